"""Waiting until an object of Kubernetes is as wished: it is watched, and looked at in between.

    WATCH from a version -> its changes, until the watch ends, or does not come about
    a pause, longer each time in vain, jittered; as long as the API asks for (Retry-After)
    LIST of it alone -> the object, or none, and the version to watch from

A watch cannot begin at the version of an object that has not changed for long: the API knows that
version no more, and would say so each time (410 Expired). The version of a list is always a new
one. See https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

from __future__ import annotations

import random
from collections.abc import Callable

from twisted.internet import task
from twisted.internet.interfaces import IReactorTime

from twisted_gateway.services.sessions.attempt import Attempt
from twisted_gateway.services.sessions.kube import Kube
from twisted_gateway.services.sessions.kube_answers import KubeRefusal, KubeUnavailable, Tree
from twisted_gateway.services.sessions.watch import Change
from twisted_gateway.upstream.errors import UpstreamError

FIRST_PAUSE_SECONDS = 0.5
MOST_PAUSE_SECONDS = 5.0

Judge = Callable[[Tree | None], bool]
"""Says whether an object is as wished: of each version of it, and of None once it is gone."""


class Waiter:
    """Waits for objects.

    Args:
        kube: the API.
        clock: for pauses.
        chance: from 0 up to 1: where in its jitter a pause lies.
    """

    def __init__(
        self, kube: Kube, clock: IReactorTime, chance: Callable[[], float] = random.random
    ) -> None:
        """Take what the class documents."""
        self._kube = kube
        self._clock = clock
        self._chance = chance

    async def until(self, kind: str, tree: Tree, attempt: Attempt, judge: Judge) -> None:
        """Wait until `judge` says that an object is as wished.

        An API that fails meanwhile, or cannot be reached, is waited for too, and so is one that
        does not know the token, or has no rule that allows it: a pod that starts is none the worse
        for it. `attempt` has what it said. Cancelling drops the connection.

        Args:
            kind: the object's kind.
            tree: the object as it was seen last.
            attempt: bounds the waiting.
            judge: is told of that very object; another one of its name means that it is gone.

        Raises:
            KubeRefusal: the API refuses to tell of it.
            Late, Superseded: see `Attempt`.
            Exception: what `judge` raises.
        """
        waiting = _Waiting(self._kube, kind, tree, attempt, judge)
        while not judge(waiting.latest):
            began = self._clock.seconds()
            if await waiting.watched():
                return
            if self._clock.seconds() - began >= MOST_PAUSE_SECONDS:
                waiting.vain = 0
            looked = False
            while not looked:
                seconds = self._pause_seconds(waiting)
                await attempt.wait(task.deferLater(self._clock, seconds, lambda: None))
                waiting.vain += 1
                looked = await waiting.looked()

    def _pause_seconds(self, waiting: _Waiting) -> float:
        seconds: float = min(FIRST_PAUSE_SECONDS * 2 ** min(waiting.vain, 10), MOST_PAUSE_SECONDS)
        # Many wait for the same API, and would all come back at once.
        jittered = seconds * (0.5 + self._chance() / 2)
        return waiting.least_seconds + jittered


class _Waiting:
    """One object that is waited for.

    Attributes:
        latest: as it was seen last; None once it is gone.
        vain: how often it was looked at since a watch went on for a while.
        least_seconds: how long the API asked to be left alone.
    """

    def __init__(self, kube: Kube, kind: str, tree: Tree, attempt: Attempt, judge: Judge) -> None:
        metadata = tree["metadata"]
        self.latest: Tree | None = tree
        self.vain = 0
        self.least_seconds = 0.0
        self._kube = kube
        self._kind = kind
        self._name = str(metadata["name"])
        self._uid = metadata.get("uid")
        self._version = str(metadata.get("resourceVersion", ""))
        self._attempt = attempt
        self._judge = judge

    async def watched(self) -> bool:
        """Watch it for as long as one watch goes; say whether it is as wished."""
        seconds = self._attempt.left_seconds
        watching = self._kube.watch(self._kind, self._name, self._version, seconds)
        try:
            watch = await self._attempt.wait(watching)
        except (KubeRefusal, UpstreamError) as fault:
            self._bear(fault)
            return False
        self.least_seconds = 0.0
        try:
            while (change := await self._attempt.wait(watch.next())) is not None:
                if change.kind == "ERROR":
                    # Most often 410: the version is too old to begin from.
                    return False
                # A bookmark tells of a version, and of no object.
                if change.kind != "BOOKMARK" and self._judge(self._object(change)):
                    return True
            return False
        finally:
            watch.close()

    async def looked(self) -> bool:
        """Look at it; False where the API could not say now."""
        try:
            found, self._version = await self._attempt.wait(self._kube.look(self._kind, self._name))
        except (KubeRefusal, UpstreamError) as fault:
            self._bear(fault)
            return False
        self.latest = found if found is not None and self._is_it(found) else None
        return True

    def _object(self, change: Change) -> Tree | None:
        return change.tree if change.kind != "DELETED" and self._is_it(change.tree) else None

    def _is_it(self, tree: Tree) -> bool:
        metadata = tree.get("metadata")
        return isinstance(metadata, dict) and metadata.get("uid") == self._uid

    def _bear(self, fault: KubeRefusal | UpstreamError) -> None:
        """Let pass what the API may say otherwise in a moment: of a version, a token, a rule.

        Raises:
            KubeRefusal: the fault, where it will not.
        """
        if isinstance(fault, KubeRefusal):
            if fault.status not in (401, 403, 410):
                raise fault
            why = f"the Kubernetes API answered {fault.status} {fault.reason}".rstrip()
        else:
            why = fault.reason
        asked_for = fault.retry_after_seconds if isinstance(fault, KubeUnavailable) else None
        self.least_seconds = asked_for or 0.0
        self._attempt.seen = why
