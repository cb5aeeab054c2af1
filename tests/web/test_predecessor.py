"""The five defects that the predecessor shipped with, each through the whole stack.

The first is repeated with real spans recorded, for there the tracing wrapper swallowed the flush.
"""

from __future__ import annotations

import json
from typing import cast

from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from twisted.internet.task import Clock
from twisted.logger import ILogObserver, LogEvent, globalLogPublisher

from tests.stack import DONE, PAGE, ROLE, Client, Stack, token
from tests.support import TestCase
from twisted_gateway.telemetry.export import make_provider
from twisted_gateway.telemetry.spans import SpanTracing

COMMENT = b": keep-alive position=1\n\n"


def fill(stack: Stack, count: int = 4) -> list[Client]:
    """Occupy the engine's places."""
    return [stack.client().chat(stream=True) for _ in range(count)]


class KeepAliveReachesTheClient(TestCase):
    """Defect 1: keep-alives never reached the client through the tracing wrapper."""

    def _parked_stream_is_kept_alive(self, stack: Stack) -> None:
        fill(stack)
        parked = stack.client().chat(stream=True)
        stack.advance(14.5)
        self.assertEqual(parked.received, b"")
        stack.advance(1)
        self.assertEqual(parked.status, 200)
        self.assertEqual(parked.headers["content-type"], "text/event-stream")
        self.assertEqual(parked.headers["cache-control"], "no-cache")
        self.assertEqual(parked.headers["x-accel-buffering"], "no")
        self.assertEqual(parked.body, COMMENT)
        stack.advance(15)
        self.assertEqual(parked.body, COMMENT * 2)
        stack.engine().asked[0].stream(ROLE, token("x"), DONE).end()
        stack.engine().last.stream(ROLE, token("late"), DONE).end()
        self.assertEqual(parked.body, COMMENT * 2 + ROLE + token("late") + DONE)
        self.assertTrue(parked.whole)

    def test_without_tracing(self) -> None:
        """A parked stream gets its comments, then the engine's events."""
        self._parked_stream_is_kept_alive(Stack(self))

    def test_with_every_span_recorded(self) -> None:
        """The same, with a provider that records each span."""
        exporter = InMemorySpanExporter()
        provider = make_provider([SimpleSpanProcessor(exporter)])
        tracing = SpanTracing(provider.get_tracer("test"), provider.shutdown, Clock(), _now, _now)
        self._parked_stream_is_kept_alive(Stack(self, tracing=tracing))
        names = [span.name for span in exporter.get_finished_spans()]
        self.assertIn("admission.park", names)


class EngineErrorBehindASpentStatus(TestCase):
    """Defect 2: engine errors masked behind a spent 200."""

    def test_the_engines_status_and_message_become_the_error_event(self) -> None:
        """What the engine says after the 200 is spent is one `event: error`, without [DONE]."""
        stack = Stack(self)
        fill(stack)
        parked = stack.client().chat(stream=True)
        stack.advance(16)
        stack.engine().asked[0].stream(DONE).end()
        stack.engine().last.answer(
            400, {"error": {"message": "prompt too long", "type": "BadRequestError", "code": 400}}
        )
        rest = parked.body.removeprefix(COMMENT)
        name, data, *end = rest.split(b"\n")
        self.assertEqual(name, b"event: error")
        self.assertEqual(end, [b"", b""])
        tree = json.loads(data.removeprefix(b"data: "))
        self.assertEqual(tree["type"], "error")
        self.assertEqual(tree["error"]["message"], "prompt too long")
        self.assertEqual(tree["upstream_status"], 400)
        self.assertTrue(parked.whole)
        self.assertEqual(stack.outcomes[-1], "upstream_status")

    def test_a_short_park_keeps_the_engines_true_status(self) -> None:
        """Before the first comment nothing is written, and the engine's status passes."""
        stack = Stack(self)
        fill(stack)
        parked = stack.client().chat(stream=True)
        stack.advance(10)
        stack.engine().asked[0].stream(DONE).end()
        stack.engine().last.answer(400, {"error": {"message": "prompt too long"}})
        self.assertEqual(parked.status, 400)
        self.assertEqual(parked.json, {"error": {"message": "prompt too long"}})


class NoWakeUpIsLost(TestCase):
    """Defect 3: a poll between two reads of the state was missed."""

    def test_the_poll_that_makes_room_admits(self) -> None:
        """Parked behind others' requests, a ticket goes with the very poll that shows room."""
        stack = Stack(self)
        stack.poll(running=4)
        parked = stack.client().chat(stream=True)
        stack.poll(running=4)
        self.assertEqual(stack.engine().asked, [])
        stack.poll(running=3)
        self.assertEqual(len(stack.engine().asked), 1)
        stack.engine().last.stream(DONE).end()
        self.assertTrue(parked.whole)

    def test_a_place_that_frees_is_filled_without_a_poll(self) -> None:
        """The end of one of our own wakes the next at once."""
        stack = Stack(self)
        fill(stack)
        stack.client().chat(stream=True)
        self.assertEqual(len(stack.engine().asked), 4)
        polls = stack.engine().polls
        stack.engine().asked[0].stream(DONE).end()
        self.assertEqual(len(stack.engine().asked), 5)
        self.assertEqual(stack.engine().polls, polls)


class DegradedBothWays(TestCase):
    """Defect 4: a degraded gauge pinned at 1."""

    def test_it_follows_what_can_be_read_now(self) -> None:
        """An unreadable page raises it, a readable one clears it, again and again."""
        stack = Stack(self)
        engine = stack.engine()
        good = dict(engine.gauges)  # type: ignore[arg-type]
        page = PAGE.format(**good).encode()[:60]
        for _ in range(2):
            self.assertEqual(stack.metric("observer_degraded", model="reasoning"), 0)
            engine.gauges = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(page), page)
            stack.poll()
            self.assertEqual(stack.metric("observer_degraded", model="reasoning"), 1)
            engine.gauges = dict(good)
            stack.poll()
        self.assertEqual(stack.metric("observer_degraded", model="reasoning"), 0)


class TheCapIsLoggedWithItsSource(TestCase):
    """Defect 5: a cap that defaulted silently."""

    def _logged(self, config: str, environ: dict[str, str]) -> str:
        events: list[LogEvent] = []
        observer = cast(ILogObserver, events.append)
        globalLogPublisher.addObserver(observer)
        try:
            Stack(self, config, environ=environ)
        finally:
            globalLogPublisher.removeObserver(observer)
        return "\n".join(
            f"{event.get('model')}: {event['described']}"
            for event in events
            if "described" in event
        )

    def test_each_source_is_named(self) -> None:
        """Once per model, the log says the cap in force and where it came from."""
        bare = "models: {reasoning: {upstream: 'http://10.0.0.1:8000', engine: vllm}}"
        for environ, said in (
            ({}, "maxInflight=auto (default)"),
            ({"VLLM_MAX_NUM_SEQS": "6"}, "maxInflight=6 (VLLM_MAX_NUM_SEQS)"),
            (
                {"VLLM_MAX_NUM_SEQS": "6", "ADMISSION_MAX_INFLIGHT": "4"},
                "maxInflight=4 (ADMISSION_MAX_INFLIGHT)",
            ),
        ):
            self.assertIn(said, self._logged(bare, environ))
        own = bare.replace("vllm}", "vllm, admission: {maxInflight: 3}}")
        self.assertIn(
            "maxInflight=3 (config.yaml line 1)",
            self._logged(own, {"ADMISSION_MAX_INFLIGHT": "4"}),
        )


def _now(act: object) -> None:
    act()  # type: ignore[operator]
