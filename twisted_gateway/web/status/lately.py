"""What is dear to make is made now and then, and meanwhile shown as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from twisted.internet.interfaces import IReactorTime

MOST_AGE_SECONDS = 1.0
REST = 20
"""For each second that something takes to make, so many without making it anew."""

T = TypeVar("T")


class Lately(Generic[T]):
    """The latest of what is made from what is so now.

    What is made in a moment is always fresh. What takes long, as of a queue of thousands, may be up
    to `MOST_AGE_SECONDS` old: however many ask, or however often, the rest of the reactor's time
    is for others.

    Attributes:
        spent_seconds: how long it took to make last.

    Args:
        clock: for the time.
        make: makes it; what comes back is changed by nobody.
    """

    def __init__(self, clock: IReactorTime, make: Callable[[], T]) -> None:
        """Nothing is made yet."""
        self._clock = clock
        self._make = make
        self._made: tuple[float, T] | None = None
        self.spent_seconds = 0.0

    def get(self, most_age_seconds: float | None = None) -> T:
        """Give the latest, made now where that is too old.

        Args:
            most_age_seconds: how old it may be; None for what its making is worth.
        """
        if most_age_seconds is None:
            most_age_seconds = min(MOST_AGE_SECONDS, REST * self.spent_seconds)
        if self._made is not None:
            # A clock that was set back makes it of unknown age.
            age_seconds = self._clock.seconds() - self._made[0]
            if 0 <= age_seconds < most_age_seconds:
                return self._made[1]
        return self.renew()

    def renew(self) -> T:
        """Make it now."""
        began = self._clock.seconds()
        made = self._make()
        self.spent_seconds = self._clock.seconds() - began
        self._made = began, made
        return made
