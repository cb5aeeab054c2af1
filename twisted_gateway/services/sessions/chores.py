"""What is done behind an answer, so that its client need not wait: bounded, one of a name."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

MOST_CHORES = 256
"""How many are under way at once; others are left undone, and the log says so."""


class Chores:
    """Does things in the background."""

    _log = Logger()

    def __init__(self) -> None:
        """Begin with nothing to do."""
        self._running: dict[str, Deferred[None]] = {}
        self._closed = False

    def do(
        self,
        name: str,
        work: Callable[[], Coroutine[Deferred[Any], Any, None]],
        failed: Callable[[Failure], object],
    ) -> None:
        """Begin something; what goes by the same name is given up for it.

        Args:
            name: what it is.
            work: does it.
            failed: is told when it fails, and not when it is given up.
        """
        self.drop(name)
        if self._closed:
            return
        if len(self._running) >= MOST_CHORES:
            self._log.warn("{name} is left undone: too much is done already", name=name.split()[0])
            return
        running = Deferred.fromCoroutine(work())
        if not running.called:
            self._running[name] = running
        _ = running.addBoth(self._ended, name, running, failed)

    def drop(self, name: str) -> None:
        """Give something up, if it is under way."""
        running = self._running.pop(name, None)
        if running is not None:
            running.cancel()

    def close(self) -> None:
        """Give everything up, and begin nothing more."""
        self._closed = True
        for name in list(self._running):
            self.drop(name)

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
