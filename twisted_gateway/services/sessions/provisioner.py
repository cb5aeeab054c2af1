"""Sandboxes from wherever they are to be had, and what is done behind the answer.

A session that has its workspace on Kubernetes goes on there: the fleet controller's pods have
workspaces of their own. Any other one is given a warm pod, where the fleet controller has one.
"""

from __future__ import annotations

from twisted.internet import task
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from twisted_gateway.config.sandbox import SessionsAdapter
from twisted_gateway.services.adapter import Refused
from twisted_gateway.services.sessions.attempt import Attempt, Late, Superseded, Wish
from twisted_gateway.services.sessions.chores import Chores
from twisted_gateway.services.sessions.cluster import Cluster
from twisted_gateway.services.sessions.entity import Entity
from twisted_gateway.services.sessions.fleet import (
    NOWHERE,
    RELEASE_SECONDS,
    Fleet,
    NotAssigned,
    Place,
)
from twisted_gateway.services.sessions.kube_answers import KubeRefusal
from twisted_gateway.telemetry.log import RequestLogger
from twisted_gateway.telemetry.repeats import Repeats
from twisted_gateway.upstream.errors import AnswerTimedOut, UpstreamError
from twisted_gateway.upstream.whole import within

LOOK_SECONDS = 2.0
"""How long Kubernetes may take to say whether a session is there, before the fleet is asked."""
RELEASE_PAUSES_SECONDS = (0.5, 2.0)
"""How long it is waited before each new try to give a pod back to the fleet controller."""
REMEMBER_SECONDS = 10.0
"""How long the change of a memory entity may wait for its turn; then it is left undone."""

_REMEMBER = "updating a memory entity"
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
            KubeRefusal, UpstreamError, Refused, Late, Superseded: see `Cluster.remove`; where there
                is a fleet controller alone, that could not be asked, or refused.
        """
        attempt.seen = "it is still being removed"
        if self._fleet is not None and self._adapter.server is None:
            fleet, kubernetes = await self._release(self._fleet, session, attempt), "none"
        else:
            releasing = Deferred.fromCoroutine(self._released(session, attempt))
            try:
                found = await self._cluster.remove(session, attempt)
            finally:
                fleet = await releasing
            kubernetes = "removed" if found else "absent"
        self._remember(session, NOWHERE, make=False)
        return {"fleet": fleet, "kubernetes": kubernetes}

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
        try:
            place = await self._fleet.assign(session)
        except NotAssigned as fault:
            self._complain("the fleet controller gives no pod, Kubernetes is asked", fault)
            # Nothing is given back because nobody knows whether something was assigned: it may be
            # the pod that the session has, and works in.
            return None
        # A DELETE that has come meanwhile gives it back, and its client must not be told of it.
        attempt.check()
        return place

    async def _is_on_kubernetes(self, session: str, attempt: Attempt) -> bool:
        """Whether a session is there, as far as can be said at once."""
        if self._adapter.server is None:
            return False
        looking = Deferred.fromCoroutine(self._cluster.is_here(session))
        try:
            return bool(await attempt.wait(within(looking, self._clock, LOOK_SECONDS)))
        except (KubeRefusal, UpstreamError) as fault:
            self._complain("Kubernetes does not say whether a session is there", fault)
            return False

    async def _released(self, session: str, attempt: Attempt) -> str:
        """Give the fleet controller's pod back; say what has become of it, whatever that is."""
        if self._fleet is None:
            return "none"
        try:
            return await self._release(self._fleet, session, attempt)
        except (Late, Superseded):
            # The log says so of the whole removal.
            return "failed"
        except (Refused, UpstreamError) as fault:
            self._complain("giving a pod back to the fleet controller failed", fault)
            return "failed"

    async def _release(self, fleet: Fleet, session: str, attempt: Attempt) -> str:
        """Give a pod back, with a few tries while nothing else is done to the session.

        None comes behind the answer, and none goes on then: another replica may have been given the
        pod by then, for a client that works in it.

        Raises:
            Refused, UpstreamError: as `Fleet.release` does, at the last try.
            Late, Superseded: see `Attempt`.
        """
        for seconds in RELEASE_PAUSES_SECONDS:
            try:
                return await self._release_once(fleet, session, attempt)
            except (Refused, UpstreamError) as fault:
                # The last try is to have ended when the client is to have its answer.
                is_late = attempt.left_seconds < seconds + RELEASE_SECONDS
                if is_late or not _may_pass(fault):
                    raise
            await attempt.wait(task.deferLater(self._clock, seconds, lambda: None))
        return await self._release_once(fleet, session, attempt)

    async def _release_once(self, fleet: Fleet, session: str, attempt: Attempt) -> str:
        # Little is left of its time where it has waited for what was under way before it.
        attempt.check()
        seconds = min(RELEASE_SECONDS, attempt.left_seconds)
        return "released" if await fleet.release(session, seconds) else "absent"

    # The memory entity

    def _remember(self, session: str, place: Place, *, make: bool) -> None:
        entity = self._entity
        if entity is None:
            return

        asked_at = self._clock.seconds()

        async def merge() -> None:
            if self._clock.seconds() - asked_at >= REMEMBER_SECONDS:
                # By now another replica may have told of what has become of it since.
                raise AnswerTimedOut(f"others kept it waiting for {REMEMBER_SECONDS:g} s")
            await entity.merge(session, place.members(), make=make)

        # An adapter of the same service, after a reload, knows it by the same name.
        name = f"{self._adapter.memory_entity} {session}"
        where = str(self._adapter.memory_entity)
        if not self._chores.do(where, name, merge, lambda fault: self._undone(_REMEMBER, fault)):
            self._repeats.say(
                f"{_REMEMBER} left",
                self._log.warn,
                "{service}: {chore} is left undone: too much of it is to be done already",
                service=self._adapter.name,
                chore=_REMEMBER,
            )

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


def _may_pass(fault: Refused | UpstreamError) -> bool:
    """Whether another try may come to something else."""
    return not isinstance(fault, Refused) or fault.status >= 500 or fault.status == 429
