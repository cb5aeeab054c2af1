"""Asking Kubernetes again where it gave no answer, for as long as an attempt has time.

An API server that restarts, loses etcd's leader or has too much to do says so with a 5xx or a 429;
that is no word on what was asked. It is asked again after a while: after `Retry-After` where it
names one, else ever later, jittered, for many would else come back at once.

One that has said nothing yet in this attempt, and cannot be reached, is not waited for: whoever
asks is told at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from twisted.internet import task
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from twisted_gateway.services.adapter import BadAnswer
from twisted_gateway.services.sessions.attempt import Attempt
from twisted_gateway.services.sessions.kube_answers import KubeRefusal, KubeUnavailable
from twisted_gateway.upstream.errors import UpstreamError

FIRST_PAUSE_SECONDS = 0.25
MOST_PAUSE_SECONDS = 5.0
TRY_SECONDS = 1.0
"""How much time there must be for another try, behind the pause."""

T = TypeVar("T")


class Patience:
    """How often the API is asked in one attempt.

    Attributes:
        unanswered: whether there was a request without an answer, since it was last set to False.

    Args:
        attempt: bounds it, and says what it waits for.
        clock: for pauses.
        chance: from 0 up to 1: where in its jitter a pause lies.
    """

    def __init__(
        self,
        attempt: Attempt,
        clock: IReactorTime,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Have asked nothing yet."""
        self.unanswered = False
        self._attempt = attempt
        self._clock = clock
        self._chance = chance
        self._answered = False

    async def ask(self, request: Callable[[], Coroutine[Deferred[Any], Any, T]]) -> T:
        """Send a request, more than once if need be; it is not given up half way.

        Raises:
            KubeRefusal: the API refuses.
            UpstreamError: it gives no answer, and there is no time, or no use, to ask again.
            Late, Superseded: see `Attempt`.
        """
        tries = 0
        while True:
            tries += 1
            try:
                return await self.once(request)
            except UpstreamError as fault:
                await self.bear(fault, tries)

    async def once(self, request: Callable[[], Coroutine[Deferred[Any], Any, T]]) -> T:
        """Send a request once; what it raises may be borne.

        None is sent behind the attempt's end, when its client has been told, and may have begun
        something new elsewhere.

        Raises:
            KubeRefusal: the API refuses.
            UpstreamError: it gives no answer.
            Late, Superseded: see `Attempt`.
        """
        self._attempt.check()
        try:
            answer = await request()
        except KubeRefusal:
            self._answered = True
            raise
        self._answered = True
        return answer

    async def pause(self, seconds: float) -> None:
        """Wait for so long; raises as `Attempt.wait` does."""
        await self._attempt.wait(task.deferLater(self._clock, seconds, lambda: None))

    async def bear(self, fault: UpstreamError, tries: int) -> None:
        """Wait until another try may help.

        Raises:
            UpstreamError: the fault, where none will, or there is no time for it.
            Late, Superseded: see `Attempt`.
        """
        self.unanswered = True
        seconds = self._pause_seconds(fault, tries)
        if not self._may_pass(fault) or seconds + TRY_SECONDS > self._attempt.left_seconds:
            try:
                raise fault
            finally:
                # It has this frame in its traceback, and must not be held by it in turn.
                del fault
        before, self._attempt.seen = self._attempt.seen, fault.reason
        await self.pause(seconds)
        self._attempt.seen = before

    def _may_pass(self, fault: UpstreamError) -> bool:
        if isinstance(fault, KubeUnavailable):
            self._answered = True
        return self._answered and not isinstance(fault, BadAnswer)

    def _pause_seconds(self, fault: UpstreamError, tries: int) -> float:
        if isinstance(fault, KubeUnavailable) and fault.retry_after_seconds:
            return fault.retry_after_seconds * (1 + self._chance() / 10)
        seconds = min(FIRST_PAUSE_SECONDS * 2.0 ** min(tries - 1, 10), MOST_PAUSE_SECONDS)
        return seconds * (0.5 + self._chance() / 2)
