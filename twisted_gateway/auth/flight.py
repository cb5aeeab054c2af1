"""Work that many may wait for and that is done once."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

Result = TypeVar("Result")


class SingleFlight(Generic[Result]):
    """Runs one thing at a time; whoever asks while it runs gets the same result.

    Args:
        work: does it.
    """

    def __init__(self, work: Callable[[], Coroutine[Deferred[Any], Any, Result]]) -> None:
        """Begin with nothing under way."""
        self._work = work
        self._running: Deferred[Result] | None = None
        self._waiters: list[Deferred[Result]] = []

    @property
    def running(self) -> bool:
        """Whether it is under way."""
        return bool(self._waiters) or self._running is not None

    @property
    def waited(self) -> bool:
        """Whether anybody waits for it."""
        return bool(self._waiters)

    def run(self) -> Deferred[Result]:
        """Start it, or join who waits for it.

        Returns:
            Fires, or fails, as it does. Cancelling stops nothing but the waiting, for others may
            wait too.
        """
        waiter: Deferred[Result] = Deferred(self._forget)
        self._waiters.append(waiter)
        if self._running is None:
            running = Deferred.fromCoroutine(self._work())
            if not running.called:
                self._running = running
            _ = running.addBoth(self._landed)
        return waiter

    def stop(self) -> None:
        """Cancel what is under way; whoever waits sees that."""
        if self._running is not None:
            self._running.cancel()

    def _landed(self, result: Result | Failure) -> None:
        self._running = None
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if waiter.called:
                # One that was told before has cancelled it.
                continue
            if isinstance(result, Failure):
                waiter.errback(result)
            else:
                waiter.callback(result)

    def _forget(self, waiter: Deferred[Result]) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)
