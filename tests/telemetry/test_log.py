"""Lines that say which request they are about."""

from __future__ import annotations

import io
import json
import threading
from typing import cast

from twisted.internet.defer import Deferred
from twisted.logger import ILogObserver, LogEvent, LogPublisher, formatEvent

from tests.support import TestCase
from twisted_gateway.telemetry.access import json_observer
from twisted_gateway.telemetry.log import ABOUT, About, RequestLogger, carried, work_for, worked_for

ONE, OTHER = About("r-1", "ab" * 16, "cd" * 8), About("r-2")


class LogTestCase(TestCase):
    """A logger whose events are kept."""

    def setUp(self) -> None:
        super().setUp()
        self.events: list[LogEvent] = []
        self.log = RequestLogger("some.part", observer=cast(ILogObserver, self.events.append))

    def say(self, _: None = None) -> None:
        """Log a line."""
        self.log.info("a line")

    def named(self) -> list[str]:
        """The requests that the events are about, "" for none."""
        return [event[ABOUT].request_id if ABOUT in event else "" for event in self.events]


class RequestLoggerTests(LogTestCase):
    """What the lines look like."""

    def test_text(self) -> None:
        """The line ends with the request; without one it is as it is."""
        self.log.warn("{model}: refused", model="m", about=ONE)
        self.log.info("plain {n}", n=1)
        self.log.info("no trace", about=OTHER)
        self.assertEqual(
            [formatEvent(event) for event in self.events],
            [
                f"m: refused (request_id=r-1 trace_id={'ab' * 16})",
                "plain 1",
                "no trace (request_id=r-2 trace_id=-)",
            ],
        )

    def test_json(self) -> None:
        """The request's identifiers are members of the line, and not in its message."""
        stream = io.StringIO()
        log = RequestLogger("part", observer=LogPublisher(json_observer(stream)))
        try:
            raise ValueError("broken")
        except ValueError:
            log.failure("{what} failed", what="it", about=ONE)
        tree = json.loads(stream.getvalue())
        self.assertEqual(tree["message"], "it failed")
        self.assertEqual(tree["trace_id"], "ab" * 16)
        self.assertEqual((tree["request_id"], tree["span_id"]), ("r-1", "cd" * 8))
        self.assertIn("ValueError: broken", tree["traceback"])

    def test_it_stays_itself_as_a_class_attribute(self) -> None:
        """It takes the name of the class, as any Logger does."""

        class Part:
            log = RequestLogger()

        self.assertIsInstance(Part().log, RequestLogger)
        self.assertTrue(Part.log.namespace.endswith("Part"))


class ContextTests(LogTestCase):
    """Whom a coroutine works for, and what it hands on."""

    def test_through_awaits(self) -> None:
        """Coroutines that interleave keep apart, and nothing leaks to whoever started them."""
        gates: list[Deferred[None]] = [Deferred(), Deferred()]

        async def work(about: About, gate: Deferred[None]) -> None:
            work_for(about)
            await gate
            self.log.info("after")

        running = [
            Deferred.fromCoroutine(work(about, gate))
            for about, gate in zip((ONE, OTHER), gates, strict=True)
        ]
        self.assertIsNone(worked_for())
        for gate in reversed(gates):
            gate.callback(None)
        for each in running:
            self.successResultOf(each)
        self.assertEqual(self.named(), ["r-2", "r-1"])

    def test_timers_callbacks_and_threads(self) -> None:
        """They run elsewhere: bare they know nothing, `carried` they know the request."""
        fired: Deferred[None] = Deferred()

        async def work() -> None:
            work_for(ONE)
            for call in (self.say, carried(self.say)):
                self.clock.callLater(1, call)
                _ = fired.addCallback(call)
                thread = threading.Thread(target=call)
                thread.start()
                thread.join()

        self.successResultOf(Deferred.fromCoroutine(work()))
        self.clock.advance(1)
        fired.callback(None)
        self.assertEqual(self.named(), ["", "r-1"] * 3)

    def test_what_is_carried_may_call_itself(self) -> None:
        """It gives back what the callable gives, however deep."""

        def depth(left: int) -> int:
            return 0 if left == 0 else 1 + deeper(left - 1)

        deeper = carried(depth)
        self.assertEqual(deeper(3), 3)
