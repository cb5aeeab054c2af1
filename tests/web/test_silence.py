"""Tests of the bound on silence."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock

from tests.support import TestCase
from twisted_gateway.web.silence import Silence


class Silences(TestCase):
    """When it fires, and when not."""

    def setUp(self) -> None:
        """Note the times at which it fires."""
        super().setUp()
        self.fired: list[float] = []

    def _silence(self, *, repeat: bool = False) -> Silence:
        return Silence(
            self.clock, 10, lambda: self.fired.append(self.clock.seconds()), repeat=repeat
        )

    def test_it_fires_once(self) -> None:
        """After the bound, and not again."""
        self._silence()
        self.clock.pump([1] * 30)
        self.assertEqual(self.fired, [10])

    def test_it_repeats(self) -> None:
        """Every bound, until it is stopped."""
        silence = self._silence(repeat=True)
        self.clock.pump([1] * 35)
        self.assertEqual(self.fired, [10, 20, 30])
        silence.stop()
        silence.stop()

    def test_touching_postpones(self) -> None:
        """The bound counts from the last touch."""
        silence = self._silence()
        self.clock.advance(9)
        silence.touch()
        self.clock.pump([1] * 9)
        self.assertEqual(self.fired, [])
        self.clock.pump([1])
        self.assertEqual(self.fired, [19])

    def test_time_stands_still_while_held(self) -> None:
        """What was spent before counts after; a touch meanwhile starts over."""
        silence = self._silence()
        self.clock.advance(4)
        silence.hold()
        silence.hold()
        self.clock.advance(100)
        silence.release()
        self.clock.pump([1] * 6)
        self.assertEqual(self.fired, [110])
        silence = self._silence()
        self.clock.advance(4)
        silence.hold()
        silence.touch()
        silence.release()
        silence.release()
        self.clock.pump([1] * 10)
        self.assertEqual(self.fired, [110, 124])

    def test_holding_what_has_ended_changes_nothing(self) -> None:
        """Neither before nor after a stop."""
        silence = self._silence()
        silence.stop()
        silence.hold()
        silence.release()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    @given(st.lists(st.floats(0.01, 15), min_size=1, max_size=20))
    def test_it_never_fires_early_or_late(self, pauses: list[float]) -> None:
        """With touches in between, it fires exactly when a pause is longer than the bound."""
        clock = Clock()
        fired: list[float] = []
        silence = Silence(clock, 10, lambda: fired.append(clock.seconds()), repeat=False)
        for pause in pauses:
            touched = clock.seconds()
            clock.advance(min(pause, 9.999))
            self.assertEqual(fired, [])
            if pause > 10.001:
                clock.advance(0.002)
                self.assertEqual(len(fired), 1, (touched, pause))
                return
            silence.touch()
        silence.stop()
