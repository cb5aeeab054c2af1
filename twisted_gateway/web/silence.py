"""A bound on silence that costs one assignment to postpone."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from twisted_gateway.telemetry.log import carried


class Silence:
    """Calls `fire` when `touch` has not been called for `seconds`.

    Touching only notes the time: the timer finds out when it is due that it is early, and sleeps
    for the rest. A stream of 16,000 chunks a second so costs no timer work at all. After `fire`
    it starts over when `repeat` is true, else it has ended.

    Args:
        clock: where time and timers come from.
        seconds: the longest silence allowed, > 0.
        fire: called without arguments; may call `stop`.
        repeat: whether the silence is timed again after it fired.
    """

    def __init__(
        self, clock: IReactorTime, seconds: float, fire: Callable[[], object], *, repeat: bool
    ) -> None:
        """Start to time."""
        self._clock = clock
        self._seconds = seconds
        self._fire = fire
        self._repeat = repeat
        self._since = clock.seconds()
        self._spent_before_hold: float | None = None
        self._wake = carried(self._due)
        self._call: IDelayedCall | None = clock.callLater(seconds, self._wake)

    def touch(self) -> None:
        """Something was heard: the silence starts over."""
        self._since = self._clock.seconds()
        if self._spent_before_hold is not None:
            self._spent_before_hold = 0.0

    def hold(self) -> None:
        """Let time stand still until `release`; idempotent."""
        if self._call is None:
            return
        self._spent_before_hold = self._clock.seconds() - self._since
        self._call.cancel()
        self._call = None

    def release(self) -> None:
        """Let time go on from where `hold` stopped it."""
        spent, self._spent_before_hold = self._spent_before_hold, None
        if spent is not None:
            self._since = self._clock.seconds() - spent
            self._call = self._clock.callLater(max(0.0, self._seconds - spent), self._wake)

    def stop(self) -> None:
        """End for good; idempotent."""
        call, self._call = self._call, None
        if call is not None:
            call.cancel()
        self._spent_before_hold = None
        self._repeat = False

    def _due(self) -> None:
        self._call = None
        now = self._clock.seconds()
        left = self._since + self._seconds - now
        if left > 0:
            self._call = self._clock.callLater(left, self._wake)
            return
        if self._repeat:
            self._since = now
            self._call = self._clock.callLater(self._seconds, self._wake)
        self._fire()
