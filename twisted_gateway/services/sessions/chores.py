"""What is done behind an answer, so that its client need not wait: bounded, one of a name."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, DeferredSemaphore
from twisted.python.failure import Failure

MOST_CHORES = 256
"""How many wait or are under way at one place; others are left undone."""
MOST_AT_ONCE = 8
"""How many are under way at one place: each may hold a few MiB, and nothing else counts them."""

Work = Callable[[], Coroutine[Deferred[Any], Any, None]]


class _Line:
    """What is to be done at one place."""

    def __init__(self) -> None:
        self.running: dict[str, Deferred[None]] = {}
        self.room = DeferredSemaphore(MOST_AT_ONCE)


class Chores:
    """Does things in the background, a few at a time at each place.

    A place that is slow, or down, keeps what is done elsewhere from nothing.
    """

    def __init__(self) -> None:
        """Begin with nothing to do."""
        # Of places at which nothing is to be done there is none.
        self._lines: dict[str, _Line] = {}
        self._closed = False

    def do(self, place: str, name: str, work: Work, failed: Callable[[Failure], object]) -> bool:
        """Begin something, or have it wait for its turn; what goes by its name is given up for it.

        Args:
            place: where it is done; bounded by the caller.
            name: to what it is done, unlike any other there.
            work: does it. It is cancelled where it waits when it is given up.
            failed: is told when it fails, and not when it is given up.

        Returns:
            False where too much is to be done at that place already: it is left undone.
        """
        before = self._lines.get(place)
        if before is not None and name in before.running:
            before.running.pop(name).cancel()
        if self._closed:
            return True
        line = self._lines.setdefault(place, before or _Line())
        if len(line.running) >= MOST_CHORES:
            return False
        running: Deferred[None] = line.room.run(lambda: Deferred.fromCoroutine(work()))
        line.running[name] = running
        _ = running.addBoth(self._ended, place, name, running, failed)
        return True

    def close(self) -> None:
        """Give everything up at once, and begin nothing more."""
        self._closed = True
        for line in list(self._lines.values()):
            # The last one first: none is to begin because one before it has made room.
            for running in reversed(list(line.running.values())):
                running.cancel()

    def _ended(
        self,
        result: Any,
        place: str,
        name: str,
        running: Deferred[None],
        failed: Callable[[Failure], object],
    ) -> None:
        line = self._lines.get(place)
        if line is not None and line.running.get(name) is running:
            del line.running[name]
            if not line.running:
                del self._lines[place]
        if isinstance(result, Failure) and not result.check(CancelledError):
            failed(result)
