"""Deferreds that nobody awaits, or not to their end."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure


def shielded(work: Deferred[Any]) -> Deferred[Any]:
    """Give what fires, or fails, as `work` does, and whose cancelling leaves `work` alone.

    Once that was cancelled, what comes of `work` is left to whoever has it.
    """
    outside: Deferred[Any] = Deferred()

    def passed(result: Any) -> Any:
        if outside.called:
            return result
        (outside.errback if isinstance(result, Failure) else outside.callback)(result)
        return None

    # What comes back is `work` itself.
    _ = work.addBoth(passed)
    return outside


class Afterwards:
    """Work whose request is over, such as undoing what it had begun: a drain waits for it."""

    _log = Logger()

    def __init__(self) -> None:
        """Start with none."""
        self._running: set[Deferred[Any]] = set()
        self._waiters: list[Deferred[None]] = []

    def add(self, work: Deferred[Any], what: str) -> None:
        """Let `work` run on by itself; see `in_background`."""
        self._running.add(work)

        def over(result: Any) -> Any:
            self._running.discard(work)
            if not self._running:
                waiters, self._waiters = self._waiters, []
                for waiter in waiters:
                    if not waiter.called:
                        # One that was told before has cancelled it.
                        waiter.callback(None)
            return result

        in_background(work.addBoth(over), self._log, what)

    def finished(self) -> Deferred[None]:
        """Fire when there is none. Cancelling stops nothing but the waiting."""
        waiter: Deferred[None] = Deferred(self._forget)
        if self._running:
            self._waiters.append(waiter)
        else:
            waiter.callback(None)
        return waiter

    def _forget(self, waiter: Deferred[None]) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)


def in_background(work: Deferred[Any], log: Logger, what: str) -> None:
    """Let `work` run on by itself.

    Args:
        work: its result is dropped; its failure is logged, unless it was cancelled.
        log: where to.
        what: what failed then, for the log.
    """

    def failed(failure: Failure) -> None:
        if not failure.check(CancelledError):
            log.failure("{what} failed", what=what, failure=failure)

    _ = work.addErrback(failed)
