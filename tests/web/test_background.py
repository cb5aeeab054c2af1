"""Deferreds that nobody awaits, or not to their end."""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred

from tests.support import TestCase
from twisted_gateway.web.background import Afterwards


class AfterwardsTests(TestCase):
    """What goes on when its request is over."""

    def setUp(self) -> None:
        super().setUp()
        self.afterwards = Afterwards()
        self.work: Deferred[None] = Deferred()
        self.afterwards.add(self.work, "the test")

    def test_finished(self) -> None:
        """Who waits is told when all of it is over, and at once where there is none."""
        waiting = self.afterwards.finished()
        other: Deferred[None] = Deferred()
        self.afterwards.add(other, "the other")
        self.work.callback(None)
        self.assertNoResult(waiting)
        other.callback(None)
        self.assertIsNone(self.successResultOf(waiting))
        self.assertIsNone(self.successResultOf(self.afterwards.finished()))

    def test_giving_up(self) -> None:
        """Cancelling stops nothing but the waiting."""
        first, second = self.afterwards.finished(), self.afterwards.finished()
        first.cancel()
        self.failureResultOf(first, CancelledError)
        self.work.callback(None)
        self.assertIsNone(self.successResultOf(second))

    def test_one_cancels_another(self) -> None:
        """What one of them does about it takes it from nobody behind that one."""
        first, second, third = (self.afterwards.finished() for _ in range(3))
        _ = first.addCallback(lambda _: second.cancel())
        self.work.callback(None)
        self.failureResultOf(second, CancelledError)
        self.assertIsNone(self.successResultOf(third))
