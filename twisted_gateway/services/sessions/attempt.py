"""What is being done to sessions, one thing at a time to each, and whoever waits for it.

A client that leaves stops nothing: a request to Kubernetes that is given up half way may have been
carried out, and nobody would know. What stops an attempt, its time or another wish for the same
session, stops it between two requests.

    wish      while MAKE goes on                  while REMOVE goes on
    MAKE      joins it                            waits behind it; others join who waits
    REMOVE    has it stop, and waits behind it    waits behind it; others join who waits

Who waits behind another is an attempt too: it has its own time, and does what it is there for even
when its client has left.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from enum import Enum, auto
from typing import Any, Generic, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from twisted_gateway.auth.flight import SingleFlight

Result = TypeVar("Result")
Waited = TypeVar("Waited")

MOST_SESSIONS = 256
"""How many sessions are worked on at once."""


class Wish(Enum):
    """What somebody wants of a session."""

    MAKE = auto()
    REMOVE = auto()


class Late(Exception):
    """The time of an attempt is over."""


class Superseded(Exception):
    """Something else is wanted by now."""


class Busy(Exception):
    """So many sessions are worked on that there is no room for another."""


class Stoppable:
    """Work that can be stopped where it waits, and not where it must not be given up half way."""

    def __init__(self) -> None:
        """Go on."""
        self._stopped: Exception | None = None
        self._waiting: list[Deferred[Any]] = []

    @property
    def stopped(self) -> bool:
        """Whether it is to stop, or has."""
        return self._stopped is not None

    def check(self) -> None:
        """See to it that it may go on.

        Raises:
            Late: its time is over.
            Superseded: something else is wanted.
        """
        if self._stopped is not None:
            # A new one each time: what was raised has whoever waits in its traceback, and that
            # holds this.
            raise type(self._stopped)(*self._stopped.args)

    async def wait(self, work: Coroutine[Deferred[Any], Any, Waited] | Deferred[Waited]) -> Waited:
        """Wait for something that may be given up at any moment; raises as `check` does.

        Several may be waited for at once.
        """
        if self._stopped is not None:
            _drop(work)
            self.check()
        waiting = work if isinstance(work, Deferred) else Deferred.fromCoroutine(work)
        self._waiting.append(waiting)
        try:
            return await waiting
        except CancelledError:
            self.check()
            raise
        finally:
            self._waiting.remove(waiting)

    def stop(self, why: Exception) -> None:
        """Stop it: at once where it waits, else at its next step. The first `why` counts."""
        if self._stopped is None:
            self._stopped = why
        for waiting in self._waiting[:]:
            waiting.cancel()


class Attempt(Stoppable):
    """The way of one attempt.

    Attributes:
        seen: what it waits for, in words for the client.

    Args:
        clock: for the time.
        seconds: how long it may wait for others.
    """

    def __init__(self, clock: IReactorTime, seconds: float) -> None:
        """Begin."""
        super().__init__()
        self.seen = "Kubernetes has not answered"
        self._clock = clock
        self._until = clock.seconds() + seconds
        self._timer = clock.callLater(seconds, self.stop, Late())

    @property
    def left_seconds(self) -> float:
        """How much of its time is left."""
        return max(0.0, self._until - self._clock.seconds())

    def end(self) -> None:
        """It is over."""
        if self._timer.active():
            self._timer.cancel()


Work = Callable[[Attempt], Coroutine[Deferred[Any], Any, Result]]
Failed = Callable[[Failure, Attempt, bool], object]
"""Is told how an attempt failed, and whether anybody waits for it."""


class _Entry(Generic[Result]):
    """One attempt in the line of a session, under way or waiting for those before it."""

    def __init__(self, wish: Wish, attempt: Attempt) -> None:
        self.wish = wish
        self.attempt = attempt
        self.begun = False
        self.flight: SingleFlight[Result]
        self._watched_by: list[Deferred[None]] = []

    def answers(self, wish: Wish) -> bool:
        """Whether what becomes of it is an answer to a wish that comes now.

        A removal that has begun is none: what another replica has made since it looked stays.
        """
        if self.wish is not wish or self.attempt.stopped:
            return False
        return wish is Wish.MAKE or not self.begun

    def ended(self) -> Deferred[None]:
        """Fire when it is over, however it ends; cancelling stops the waiting."""
        watch: Deferred[None] = Deferred(self._watched_by.remove)
        self._watched_by.append(watch)
        return watch

    def end(self) -> None:
        self.attempt.end()
        while self._watched_by:
            self._watched_by.pop(0).callback(None)


class Attempts:
    """Sees to it that one thing at a time is done to a session.

    Args:
        clock: for the time.
    """

    def __init__(self, clock: IReactorTime) -> None:
        """Begin with nothing to do."""
        self._clock = clock
        self._lines: dict[str, list[_Entry[Any]]] = {}
        self._closed = False

    def join(
        self,
        session: str,
        wish: Wish,
        work: Work[Result],
        *,
        seconds: float,
        failed: Failed,
    ) -> tuple[Attempt, Deferred[Result]]:
        """Do something to a session, or join who does it.

        Args:
            session: unlike any other.
            wish: what `work` does.
            work: does it; nothing of it where somebody else does.
            seconds: how long it may wait for others, that before it included.
            failed: is told, once, when it fails.

        Returns:
            The attempt, and its result, which fails with `Late`, with `Superseded`, or as `work`
            does. Cancelling it stops nothing but the waiting.

        Raises:
            Busy: there is no room.
        """
        line = self._lines.get(session, [])
        if self._closed or (not line and len(self._lines) >= MOST_SESSIONS):
            raise Busy
        if wish is Wish.REMOVE:
            _supersede(line)
        last = line[-1] if line else None
        if last is None or not last.answers(wish):
            last = self._line_up(session, wish, work, seconds, failed)
        return last.attempt, last.flight.run()

    def close(self) -> Deferred[None]:
        """Begin nothing more, and stop what is under way.

        Returns:
            Fires when nothing is under way.
        """
        self._closed = True
        for line in list(self._lines.values()):
            # The last one first: none is to begin because the one before it has stopped.
            for entry in reversed(line[:]):
                entry.attempt.stop(Superseded())
        return Deferred.fromCoroutine(self._all_ended())

    async def _all_ended(self) -> None:
        while self._lines:
            await next(iter(self._lines.values()))[0].ended()

    def _line_up(
        self,
        session: str,
        wish: Wish,
        work: Work[Result],
        seconds: float,
        failed: Failed,
    ) -> _Entry[Result]:
        entry: _Entry[Result] = _Entry(wish, Attempt(self._clock, seconds))

        async def run() -> Result:
            try:
                await self._turn(session, entry)
                entry.begun = True
                return await work(entry.attempt)
            except Exception:
                failed(Failure(), entry.attempt, entry.flight.waited)
                raise
            finally:
                self._leave(session, entry)

        entry.flight = SingleFlight(run)
        self._lines.setdefault(session, []).append(entry)
        return entry

    async def _turn(self, session: str, entry: _Entry[Any]) -> None:
        """Wait until nothing else is done to the session; raises as `Attempt.wait` does."""
        line = self._lines[session]
        before = entry.attempt.seen
        while (place := line.index(entry)) > 0:
            entry.attempt.seen = "what was wanted of the session before is not over yet"
            await entry.attempt.wait(line[place - 1].ended())
        entry.attempt.seen = before

    def _leave(self, session: str, entry: _Entry[Any]) -> None:
        line = self._lines[session]
        line.remove(entry)
        if not line:
            del self._lines[session]
        entry.end()


def _supersede(line: list[_Entry[Any]]) -> None:
    """Have everything stop that makes the session's sandbox; what has not begun leaves the line."""
    for entry in reversed(line[:]):
        if entry.wish is Wish.MAKE:
            entry.attempt.stop(Superseded())


def _drop(work: Coroutine[Deferred[Any], Any, Any] | Deferred[Any]) -> None:
    if isinstance(work, Deferred):
        work.cancel()
        _ = work.addErrback(lambda _: None)
    else:
        work.close()
