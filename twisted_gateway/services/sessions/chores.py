"""What is done behind an answer, so that its client need not wait: bounded, one of a name."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, DeferredSemaphore
from twisted.logger import Logger
from twisted.python.failure import Failure

MOST_CHORES = 256
"""How many wait or are under way; others are left undone, and the log says so."""
MOST_AT_ONCE = 8
"""How many are under way: each may hold a few MiB, and nothing else counts them."""

Work = Callable[[], Coroutine[Deferred[Any], Any, None]]


class Chores:
    """Does things in the background, a few at a time."""

    _log = Logger()

    def __init__(self) -> None:
        """Begin with nothing to do."""
        self._running: dict[str, Deferred[None]] = {}
        self._room = DeferredSemaphore(MOST_AT_ONCE)
        self._closed = False

    def do(self, kind: str, name: str, work: Work, failed: Callable[[Failure], object]) -> None:
        """Begin something, or have it wait for its turn; what goes by its name is given up for it.

        Args:
            kind: what it is, for the log.
            name: to what it is done, unlike any other.
            work: does it. It is cancelled where it waits when it is given up.
            failed: is told when it fails, and not when it is given up.
        """
        if name in self._running:
            self._running.pop(name).cancel()
        if self._closed:
            return
        if len(self._running) >= MOST_CHORES:
            self._log.warn("{kind} is left undone: too much of it is to be done already", kind=kind)
            return
        running: Deferred[None] = self._room.run(lambda: Deferred.fromCoroutine(work()))
        self._running[name] = running
        _ = running.addBoth(self._ended, name, running, failed)

    def close(self) -> None:
        """Give everything up at once, and begin nothing more."""
        self._closed = True
        # The last one first: none is to begin because one before it has made room.
        for running in reversed(list(self._running.values())):
            running.cancel()

    def _ended(
        self,
        result: Any,
        name: str,
        running: Deferred[None],
        failed: Callable[[Failure], object],
    ) -> None:
        if self._running.get(name) is running:
            del self._running[name]
        if isinstance(result, Failure) and not result.check(CancelledError):
            failed(result)
