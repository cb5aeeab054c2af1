from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred

from tests.support import TestCase
from twisted_gateway.auth.flight import SingleFlight


class FlightTests(TestCase):
    """Work that many wait for."""

    def setUp(self) -> None:
        super().setUp()
        self.runs: list[Deferred[int]] = []
        self.flight: SingleFlight[int] = SingleFlight(self.work)

    async def work(self) -> int:
        run: Deferred[int] = Deferred()
        self.runs.append(run)
        return await run

    def test_one_for_all(self) -> None:
        """Whoever comes while it runs gets its result; who comes later has it run again."""
        waiting = [self.flight.run(), self.flight.run()]
        self.runs[0].callback(1)
        self.assertEqual([self.successResultOf(one) for one in waiting], [1, 1])
        again = self.flight.run()
        self.runs[1].errback(ZeroDivisionError())
        self.failureResultOf(again, ZeroDivisionError)

    def test_one_cancels_another(self) -> None:
        """What one of them does about it takes it from nobody behind that one."""
        first, second, third = (self.flight.run() for _ in range(3))
        _ = first.addCallback(lambda _: second.cancel())
        self.runs[0].callback(1)
        self.failureResultOf(second, CancelledError)
        self.assertEqual(self.successResultOf(third), 1)
        self.assertFalse(self.flight.running)
