"""Sandboxes from wherever they are to be had, and what is done behind the answer.

A session that has its workspace on Kubernetes goes on there: the fleet controller's pods have
workspaces of their own. Any other one is given a warm pod, where the fleet controller has one.
"""

from __future__ import annotations

from contextlib import suppress

from twisted.internet import task
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from twisted_gateway.config.sandbox import SessionsAdapter
from twisted_gateway.services.adapter import Refused
from twisted_gateway.services.sessions.attempt import Attempt, Late, Stoppable, Superseded, Wish
from twisted_gateway.services.sessions.chores import Chores
from twisted_gateway.services.sessions.cluster import Cluster
from twisted_gateway.services.sessions.entity import Entity
from twisted_gateway.services.sessions.fleet import NOWHERE, Fleet, NotAssigned, Place
from twisted_gateway.services.sessions.kube import KubeRefusal
from twisted_gateway.telemetry.log import RequestLogger
from twisted_gateway.telemetry.repeats import Repeats
from twisted_gateway.upstream.errors import UpstreamError
from twisted_gateway.upstream.whole import within

LOOK_SECONDS = 2.0
"""How long Kubernetes may take to say whether a session is there, before the fleet is asked."""
RELEASE_PAUSES_SECONDS = (0.0, 2.0, 10.0)
"""How long it is waited before each try to give a pod back to the fleet controller."""

_RELEASE, _REMEMBER = "giving a pod back to the fleet controller", "updating a memory entity"
_FAULTS = (KubeRefusal, Refused, UpstreamError)


class Provisioner:
    """Makes and removes sandboxes, each time as an attempt of `Attempts`.

    Args:
        adapter: its configuration.
        cluster: makes and removes them on Kubernetes.
        fleet: gives warm pods; None: there is none.
        entity: is told where they are; None: there is none.
        chores: does what is done behind an answer.
        clock: for pauses and bounds.
    """

    _log = RequestLogger()

    def __init__(
        self,
        adapter: SessionsAdapter,
        cluster: Cluster,
        fleet: Fleet | None,
        entity: Entity | None,
        chores: Chores,
        clock: IReactorTime,
    ) -> None:
        """Take what the class documents."""
        self._adapter = adapter
        self._cluster = cluster
        self._fleet = fleet
        self._entity = entity
        self._chores = chores
        self._clock = clock
        self._repeats = Repeats(clock)

    async def make(self, session: str, attempt: Attempt) -> Place:
        """Give a session its sandbox, and make or resume it where there is none.

        Raises:
            KubeRefusal, UpstreamError, Refused, Late, Superseded: see `Cluster.make`.
        """
        place = await self._assigned(session, attempt)
        if place is None:
            attempt.seen = "Kubernetes has not answered"
            place = await self._cluster.make(session, attempt)
        self._remember(session, place, make=True)
        return place

    async def remove(self, session: str, attempt: Attempt) -> dict[str, str]:
        """Remove a session's sandbox and its workspace; say what has become of either.

        The fleet controller and Kubernetes are both asked, whatever becomes of the other.

        Raises:
            KubeRefusal, UpstreamError, Late, Superseded: see `Cluster.remove`.
        """
        attempt.seen = "it is still being removed"
        releasing = Deferred.fromCoroutine(self._released(session))
        try:
            found = await self._cluster.remove(session, attempt)
        finally:
            fleet = await releasing
        self._remember(session, NOWHERE, make=False)
        return {"fleet": fleet, "kubernetes": "removed" if found else "absent"}

    def failed(self, wish: Wish, failure: Failure, attempt: Attempt, *, waited: bool) -> None:
        """Say in the log how an attempt has failed: once, however many wait, or nobody."""
        fault = failure.value
        what = "made" if wish is Wish.MAKE else "removed"
        if isinstance(fault, Late):
            self._repeats.say(
                f"{what} late",
                self._log.warn,
                "{service}: a sandbox was not {what} within {seconds:g} s: {seen}",
                service=self._adapter.name,
                what=what,
                seconds=self._adapter.timeout_seconds,
                seen=attempt.seen,
            )
        elif isinstance(fault, _FAULTS):
            self._complain(f"a sandbox could not be {what}", fault)
        elif not (waited or isinstance(fault, Superseded)):
            # Whoever waits is told 500, which is said with the request.
            self._log.failure("a sandbox could not be {what}", what=what, failure=failure)

    # The fleet controller

    async def _assigned(self, session: str, attempt: Attempt) -> Place | None:
        """Get a pod of the fleet controller's; None where Kubernetes is to be asked."""
        if self._fleet is None or await self._is_on_kubernetes(session, attempt):
            return None
        attempt.seen = "the fleet controller has not answered"
        # A pod that is given back late would be the one that this is about to get.
        dropped = await self._chores.drop(_RELEASE, self._name_of(self._adapter.fleet, session))
        try:
            return await self._fleet.assign(session)
        except NotAssigned as fault:
            self._complain("the fleet controller gives no pod, Kubernetes is asked", fault)
            # Nothing is given back because nobody knows whether something was assigned: it may be
            # the pod that the session has, and works in. What a DELETE was to give back is.
            if dropped:
                self._release_later(session, self._fleet)
            return None

    async def _is_on_kubernetes(self, session: str, attempt: Attempt) -> bool:
        """Whether a session has its workspace there, as far as can be said at once."""
        if self._adapter.server is None:
            return False
        looking = Deferred.fromCoroutine(self._cluster.has_workspace(session))
        try:
            return bool(await attempt.wait(within(looking, self._clock, LOOK_SECONDS)))
        except (KubeRefusal, UpstreamError) as fault:
            self._complain("Kubernetes does not say whether a session is there", fault)
            return False

    async def _released(self, session: str) -> str:
        """Give the fleet controller's pod back; say what has become of it."""
        if self._fleet is None:
            return "none"
        await self._chores.drop(_RELEASE, self._name_of(self._adapter.fleet, session))
        try:
            return "released" if await self._fleet.release(session) else "absent"
        except (Refused, UpstreamError) as fault:
            self._complain(f"{_RELEASE} failed, it is tried again", fault)
            self._release_later(session, self._fleet)
            return "failed"

    def _release_later(self, session: str, fleet: Fleet) -> None:
        async def release(chore: Stoppable) -> None:
            *tries, last = RELEASE_PAUSES_SECONDS
            for seconds in tries:
                await chore.wait(task.deferLater(self._clock, seconds, lambda: None))
                with suppress(Refused, UpstreamError):
                    await fleet.release(session)
                    return
            await chore.wait(task.deferLater(self._clock, last, lambda: None))
            await fleet.release(session)

        name = self._name_of(self._adapter.fleet, session)
        self._chores.do(_RELEASE, name, release, lambda fault: self._undone(_RELEASE, fault))

    # The memory entity

    def _remember(self, session: str, place: Place, *, make: bool) -> None:
        entity = self._entity
        if entity is None:
            return

        async def merge(chore: Stoppable) -> None:
            await chore.wait(entity.merge(session, place.members(), make=make))

        name = self._name_of(self._adapter.memory_entity, session)
        self._chores.do(_REMEMBER, name, merge, lambda fault: self._undone(_REMEMBER, fault))

    def _name_of(self, url: str | None, session: str) -> str:
        """Give what a chore goes by: an adapter of the same service, after a reload, knows it."""
        return f"{url} {session}"

    # The log

    def _undone(self, chore: str, failure: Failure) -> None:
        if isinstance(failure.value, _FAULTS):
            self._complain(f"{chore} failed", failure.value)
        else:
            self._log.failure("{chore} failed", chore=chore, failure=failure)

    def _complain(self, what: str, fault: Exception) -> None:
        self._repeats.say(
            f"{what} {type(fault).__name__}",
            self._log.warn,
            "{service}: {what}: {why}",
            service=self._adapter.name,
            what=what,
            why=str(fault),
        )
