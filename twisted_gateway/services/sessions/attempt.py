"""One thing that is being done to one session, and whoever waits for it.

A client that leaves stops nothing: a request to Kubernetes that is given up half way may have been
carried out, and nobody would know. What stops an attempt, its time or another wish for the same
session, stops it between two requests.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from enum import Enum, auto
from typing import Any, Generic, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime

from twisted_gateway.auth.flight import SingleFlight

Result = TypeVar("Result")
Waited = TypeVar("Waited")

MOST_ATTEMPTS = 256
"""How many sessions are worked on at once."""


class Wish(Enum):
    """What somebody wants of a session."""

    MAKE = auto()
    REMOVE = auto()


class Late(Exception):
    """The time of an attempt is over."""


class Superseded(Exception):
    """Something else is wanted of the session by now."""


class Busy(Exception):
    """So many sessions are worked on that there is no room for another."""


class Attempt:
    """The way of one attempt.

    Attributes:
        seen: what it waits for, in words for the client.

    Args:
        clock: for the time.
        seconds: how long it may wait for others.
    """

    def __init__(self, clock: IReactorTime, seconds: float) -> None:
        """Begin."""
        self.seen = "Kubernetes has not answered"
        self._clock = clock
        self._until = clock.seconds() + seconds
        self._stopped: Exception | None = None
        self._waiting: Deferred[Any] | None = None
        self._timer = clock.callLater(seconds, self.stop, Late())

    @property
    def left_seconds(self) -> float:
        """How much of its time is left."""
        return max(0.0, self._until - self._clock.seconds())

    def check(self) -> None:
        """See to it that it may go on.

        Raises:
            Late: its time is over.
            Superseded: something else is wanted.
        """
        if self._stopped is not None:
            raise self._stopped

    async def wait(self, work: Coroutine[Deferred[Any], Any, Waited] | Deferred[Waited]) -> Waited:
        """Wait for something that may be given up at any moment; raises as `check` does."""
        if self._stopped is not None:
            _drop(work)
            raise self._stopped
        waiting = work if isinstance(work, Deferred) else Deferred.fromCoroutine(work)
        self._waiting = waiting
        try:
            return await waiting
        except CancelledError:
            self.check()
            raise
        finally:
            self._waiting = None

    def stop(self, why: Exception) -> None:
        """Stop it: at once where it waits, else at its next step. The first `why` counts."""
        if self._stopped is None:
            self._stopped = why
        if self._waiting is not None:
            self._waiting.cancel()

    def end(self) -> None:
        """It is over."""
        if self._timer.active():
            self._timer.cancel()


Work = Callable[[Attempt], Coroutine[Deferred[Any], Any, Result]]


class _Running(Generic[Result]):
    def __init__(self, wish: Wish, attempt: Attempt, flight: SingleFlight[Result]) -> None:
        self.wish = wish
        self.attempt = attempt
        self.flight = flight
        self.superseded = False


class Attempts:
    """Sees to it that one thing at a time is done to a session.

    Who wants what is being done already joins it. Who wants something else has it stop, and waits
    until it has.

    Args:
        clock: for the time.
        seconds: how long an attempt may wait for others.
    """

    def __init__(self, clock: IReactorTime, seconds: float) -> None:
        """Begin with nothing to do."""
        self._clock = clock
        self._seconds = seconds
        self._running: dict[str, _Running[Any]] = {}
        self._closed = False

    def seen(self, session: str) -> str:
        """Say what is waited for, for a session; "" for nothing."""
        running = self._running.get(session)
        return "" if running is None else running.attempt.seen

    async def do(self, session: str, wish: Wish, work: Work[Result]) -> Result:
        """Do something to a session, or join who does it.

        Cancelling stops nothing but the waiting.

        Raises:
            Busy: there is no room.
            Late: the attempt's time is over.
            Superseded: something else is wanted of the session by now.
            Exception: what `work` raises.
        """
        while (running := self._running.get(session)) is not None:
            if running.wish is wish and not running.superseded:
                result: Result = await running.flight.run()
                return result
            if running.wish is Wish.MAKE:
                running.superseded = True
                running.attempt.stop(Superseded())
            if self._running.get(session) is running:
                await _ended(running.flight)
        if self._closed or len(self._running) >= MOST_ATTEMPTS:
            raise Busy
        return await self._start(session, wish, work).run()

    def close(self) -> Deferred[None]:
        """Begin nothing more, and stop what is under way.

        Returns:
            Fires when nothing is under way.
        """
        self._closed = True
        for running in list(self._running.values()):
            running.attempt.stop(Superseded())
        return Deferred.fromCoroutine(self._all_ended())

    async def _all_ended(self) -> None:
        while self._running:
            await _ended(next(iter(self._running.values())).flight)

    def _start(self, session: str, wish: Wish, work: Work[Result]) -> SingleFlight[Result]:
        attempt = Attempt(self._clock, self._seconds)

        async def run() -> Result:
            try:
                return await work(attempt)
            finally:
                attempt.end()
                del self._running[session]

        flight = SingleFlight(run)
        self._running[session] = _Running(wish, attempt, flight)
        return flight


async def _ended(flight: SingleFlight[Any]) -> None:
    """Wait for the end of an attempt that is under way, whatever it is.

    What went wrong is told to who wanted it.
    """
    ended: Deferred[Any] = flight.run().addBoth(lambda _: None)
    await ended


def _drop(work: Coroutine[Deferred[Any], Any, Any] | Deferred[Any]) -> None:
    if isinstance(work, Deferred):
        work.cancel()
        _ = work.addErrback(lambda _: None)
    else:
        work.close()
