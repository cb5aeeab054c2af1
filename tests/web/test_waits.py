"""What is counted and logged of waits and tries at an engine that refuses, or is not there."""

from __future__ import annotations

from typing import Any, cast

from twisted.logger import ILogObserver, LogLevel, globalLogPublisher

from tests.stack import CONFIG, Stack
from tests.support import TestCase

MODEL = {"model": "reasoning"}


class WaitTests(TestCase):
    """`admission_wait_seconds`: once for each request that had to wait, with all of its wait."""

    def waits(self, stack: Stack) -> dict[str, tuple[float, float]]:
        """Outcome -> how many, and their seconds; those that are none left out."""
        found = {}
        for outcome in ("admitted", "refused", "left"):
            labels = MODEL | {"outcome": outcome}
            many = stack.metric("admission_wait_seconds_count", **labels) or 0
            if many:
                seconds = stack.metric("admission_wait_seconds_sum", **labels) or 0
                found[outcome] = many, seconds
        return found

    def test_trials_are_no_admissions(self) -> None:
        """An engine that is down is tried time and again, and lets nobody in."""
        stack = Stack(self)
        stack.engine().up = False
        for index in range(5):
            stack.client(f"192.0.2.{index + 1}").chat()
        stack.advance(60)
        self.assertEqual(self.waits(stack), {})
        self.assertEqual(stack.metric("gateway_upstream_seconds_count", **MODEL), 0)
        self.assertGreater(len(stack.reactor.tcpClients), 10)
        stack.advance(500)
        self.assertEqual(list(self.waits(stack)), ["refused"])
        many, seconds = self.waits(stack)["refused"]
        self.assertEqual((many, round(seconds / many)), (5, 540))

    def test_sent_back_and_served(self) -> None:
        """It is one wait, as long as all of them together."""
        stack = Stack(self)
        stack.client().chat()
        for hold_seconds in (2, 4, 8):
            stack.engine().last.answer(503)
            stack.advance(hold_seconds)
            self.assertEqual(self.waits(stack), {})
        stack.engine().last.answer(200)
        self.assertEqual(self.waits(stack), {"admitted": (1, 14)})

    def test_a_client_that_leaves(self) -> None:
        """While parked it has left; while the engine works for it it was admitted."""
        stack = Stack(self, CONFIG.replace("maxInflight: 4", "maxInflight: 1"))
        for index in range(3):
            stack.client(f"192.0.2.{index + 1}").chat()
        stack.advance(3)
        stack.engine().last.answer()
        self.assertEqual(self.waits(stack), {})
        stack.advance(2)
        stack.clients[2].leave()
        self.assertEqual(self.waits(stack), {"left": (1, 5)})
        stack.clients[1].leave()
        self.assertEqual(self.waits(stack), {"admitted": (1, 3), "left": (1, 5)})

    def test_who_does_not_wait_is_not_counted(self) -> None:
        """Neither is one that gets its place at once."""
        stack = Stack(self)
        stack.client().chat()
        stack.engine().last.answer()
        self.assertEqual(self.waits(stack), {})


class ComplaintTests(TestCase):
    """What the log says of an engine that answers with errors."""

    def setUp(self) -> None:
        super().setUp()
        self.said: list[dict[str, Any]] = []
        observer = cast(ILogObserver, self.said.append)
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)

    def complaints(self) -> list[str]:
        said = [
            event["log_format"].format_map(event)
            for event in self.said
            if event.get("log_level") is LogLevel.warn
        ]
        return [line.partition(" (request_id")[0] for line in said if "answers with" in line]

    def test_refusals(self) -> None:
        """Once a minute for each engine and status, with how many there were."""
        stack = Stack(self)
        stack.client().chat()
        for _ in range(12):
            stack.engine().last.answer(503)
            stack.advance(30)
        first, second, *_ = self.complaints()
        self.assertEqual(
            first,
            "reasoning: the engine at http://10.0.0.1:8000 answers with status 503; what it "
            "refuses is sent again later",
        )
        self.assertIn("more like it in the last", second)
        self.assertLess(len(self.complaints()), 8)

    def test_errors(self) -> None:
        """A 5xx that is relayed is a warning too; what clients do wrong is none."""
        stack = Stack(self)
        for status in (500, 400, 404, 500):
            stack.client().chat()
            stack.engine().last.answer(status)
        self.assertEqual(
            self.complaints(),
            ["reasoning: the engine at http://10.0.0.1:8000 answers with status 500"],
        )
        labels = MODEL | {"code_class": "5xx"}
        self.assertEqual(stack.metric("gateway_upstream_responses_total", **labels), 2)
