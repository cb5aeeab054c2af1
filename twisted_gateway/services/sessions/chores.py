"""What is done behind an answer, so that its client need not wait: bounded, one of a name."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_gateway.services.sessions.attempt import Stoppable, Superseded

MOST_CHORES = 256
"""How many of a kind are under way at once; others are left undone, and the log says so."""

Work = Callable[[Stoppable], Coroutine[Deferred[Any], Any, None]]


class _Chore(Stoppable):
    """A chore under way."""

    def __init__(self) -> None:
        super().__init__()
        self.running: Deferred[None] = Deferred()
        self.watched_by: list[Deferred[None]] = []

    def ended(self) -> Deferred[None]:
        """Fire when it is over, however it ends; cancelling stops the waiting."""
        watch: Deferred[None] = Deferred(self.watched_by.remove)
        self.watched_by.append(watch)
        return watch


class Chores:
    """Does things in the background."""

    _log = Logger()

    def __init__(self) -> None:
        """Begin with nothing to do."""
        self._running: dict[str, dict[str, _Chore]] = {}
        self._closed = False

    def do(self, kind: str, name: str, work: Work, failed: Callable[[Failure], object]) -> None:
        """Begin something; what goes by the same name is given up for it.

        Args:
            kind: what it is; each has room of its own, that none waits for another.
            name: to what it is done, unlike any other.
            work: does it. It is stopped where it waits by what it is given, and nowhere else.
            failed: is told when it fails, and not when it is given up.
        """
        running = self._running.setdefault(kind, {})
        if name in running:
            running.pop(name).running.cancel()
        if self._closed:
            return
        if len(running) >= MOST_CHORES:
            self._log.warn("{kind} is left undone: too much of it is done already", kind=kind)
            return
        chore = running[name] = _Chore()
        chore.running = Deferred.fromCoroutine(work(chore))
        _ = chore.running.addBoth(self._ended, running, name, chore, failed)

    async def drop(self, kind: str, name: str) -> bool:
        """Give something up, and wait for that step of it that must not be given up half way.

        Cancelling stops the waiting only.

        Returns:
            Whether it was under way.
        """
        chore = self._running.get(kind, {}).get(name)
        if chore is None:
            return False
        over = chore.ended()
        chore.stop(Superseded())
        await over
        return True

    def close(self) -> None:
        """Give everything up at once, and begin nothing more."""
        self._closed = True
        for running in self._running.values():
            for chore in list(running.values()):
                chore.running.cancel()

    def _ended(
        self,
        result: Any,
        running: dict[str, _Chore],
        name: str,
        chore: _Chore,
        failed: Callable[[Failure], object],
    ) -> None:
        if running.get(name) is chore:
            del running[name]
        while chore.watched_by:
            chore.watched_by.pop(0).callback(None)
        if isinstance(result, Failure) and not result.check(CancelledError, Superseded):
            failed(result)
