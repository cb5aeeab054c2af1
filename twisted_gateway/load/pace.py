"""The workload's time: the reactor's, made to run faster."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime


class Pace:
    """A clock of model seconds that starts at 0.

    Attributes:
        speed: model seconds in a second on the wall.
    """

    def __init__(self, clock: IReactorTime, speed: float) -> None:
        """Start at 0, `speed` times as fast as `clock`."""
        self._clock = clock
        self._began = clock.seconds()
        self.speed = speed

    def now(self) -> float:
        """Model seconds since the start."""
        return (self._clock.seconds() - self._began) * self.speed

    def later(self, at: float, call: Callable[[], object]) -> IDelayedCall:
        """Call at a model time; at the next turn of the reactor if that has passed."""
        return self._clock.callLater(max(0.0, (at - self.now()) / self.speed), call)

    def until(self, at: float) -> Deferred[None]:
        """Fires at a model time; cancelling it ends the timer."""
        done: Deferred[None] = Deferred(lambda _: timer.cancel())
        timer = self.later(at, lambda: done.callback(None))
        return done
