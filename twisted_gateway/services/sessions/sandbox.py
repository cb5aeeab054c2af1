"""`sessions/sandbox`: a sandbox for a session, from the fleet controller or from Kubernetes.

    POST    join who makes it already, else: the fleet controller; Kubernetes where it gives none;
            then, in the background, the session's memory entity
    DELETE  the fleet controller and Kubernetes, both, whatever becomes of the other

What is begun goes on when its client leaves: see attempt.py.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any

from twisted.internet import task
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure
from twisted.web.iweb import IAgent

from twisted_gateway.config.sandbox import SessionsAdapter
from twisted_gateway.core.errors import Problem
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.services.adapter import (
    Answer,
    BodyUse,
    Document,
    Operation,
    Parameter,
    Refused,
    ServiceRequest,
)
from twisted_gateway.services.sessions.attempt import (
    Attempt,
    Attempts,
    Busy,
    Late,
    Superseded,
    Wish,
)
from twisted_gateway.services.sessions.chores import Chores
from twisted_gateway.services.sessions.cluster import Cluster
from twisted_gateway.services.sessions.entity import Entity
from twisted_gateway.services.sessions.fleet import Fleet, NotAssigned, Place
from twisted_gateway.services.sessions.kube import Kube, KubeRefusal
from twisted_gateway.services.sessions.names import session_id
from twisted_gateway.services.sessions.reaper import Reaper
from twisted_gateway.telemetry.log import RequestLogger
from twisted_gateway.telemetry.repeats import Repeats
from twisted_gateway.upstream.agent import UpstreamAgent
from twisted_gateway.upstream.errors import UpstreamError

RELEASE_PAUSES_SECONDS = (0.0, 2.0, 10.0)
"""How long it is waited before each try to give a pod back to the fleet controller."""
RETRY_AFTER_SECONDS = 5

_SESSION = Parameter("session_id", required=True, form=session_id)
_FAULTS = (KubeRefusal, Refused, UpstreamError)


class Sandbox:
    """Makes and removes the sandboxes of sessions.

    Attributes:
        operations: see `Service`.

    Args:
        adapter: its configuration.
        agent: reaches the fleet controller and the memory service.
        kube_agent: reaches Kubernetes; closed with `stop`.
        clock: for every bound.
        replica: what this process is called, unlike any other.
    """

    _log = RequestLogger()

    def __init__(
        self,
        adapter: SessionsAdapter,
        agent: IAgent,
        kube_agent: UpstreamAgent,
        clock: IReactorTime,
        *,
        replica: str,
    ) -> None:
        """Take what the class documents; nothing happens before `start`, or a request."""
        self._adapter = adapter
        self._clock = clock
        self._kube_agent = kube_agent
        kube = Kube(adapter, kube_agent, clock)
        self._cluster = Cluster(adapter, kube, clock)
        self._reaper = Reaper(adapter, kube, clock, replica)
        self._fleet: Fleet | None = None
        if adapter.fleet is not None:
            self._fleet = Fleet(adapter.fleet, adapter.fleet_seconds, agent, clock)
        self._entity: Entity | None = None
        if adapter.memory_entity is not None:
            self._entity = Entity(adapter.memory_entity, agent, clock)
        self._attempts = Attempts(clock, adapter.timeout_seconds)
        self._chores = Chores()
        self._repeats = Repeats(clock)
        self.operations: Mapping[str, Mapping[str, Operation]] = {
            "sandbox": {
                "POST": Operation(self._post, (_SESSION,), BodyUse.NONE),
                "DELETE": Operation(self._delete, (_SESSION,), BodyUse.NONE),
            }
        }

    def start(self) -> None:
        """Begin to look for sandboxes that have ended."""
        self._reaper.start()

    def retire(self) -> None:
        """Look no more; requests go on to their end, and what is done behind them."""
        self._reaper.stop()

    def stop(self) -> Deferred[Any]:
        """Look no more, drop what is done in the background, and stop what is under way.

        Returns:
            Fires when nothing is under way, and the connections to Kubernetes are closed.
        """
        self._reaper.stop()
        self._chores.close()
        # What is half made is resumed by whoever asks another replica for the session.
        return gatherResults([self._attempts.close(), self._kube_agent.close()])

    # Operations

    async def _post(self, request: ServiceRequest) -> Answer:
        session = request.parameters["session_id"]
        place: Place = await self._in_time(request, session, Wish.MAKE, self._make)
        tree: dict[str, Any] = {"session_id": session, **place.members(), "fleet": place.fleet}
        if not place.fleet:
            tree["port"] = self._adapter.port
        return Document(tree)

    async def _delete(self, request: ServiceRequest) -> Answer:
        session = request.parameters["session_id"]
        became = await self._in_time(request, session, Wish.REMOVE, self._remove)
        return Document({"session_id": session, **became})

    async def _in_time(
        self,
        request: ServiceRequest,
        session: str,
        wish: Wish,
        work: Callable[[str, Attempt], Coroutine[Deferred[Any], Any, Any]],
    ) -> Any:
        """Do something to a session, within the time that the client has.

        Raises:
            Problem: 504 with what was seen last; 503 where there is no room.
            Refused, UpstreamError: as an operation does.
        """
        seconds = self._adapter.timeout_seconds
        doing: Deferred[Any] = Deferred.fromCoroutine(
            self._attempts.do(session, wish, lambda attempt: work(session, attempt))
        )
        late: list[str] = []

        def give_up() -> None:
            late.append(self._attempts.seen(session))
            doing.cancel()

        bound = self._clock.callLater(seconds, give_up)
        try:
            return await request.upstream.follow(request.method, self._traced_url(), doing)
        except Late as fault:
            raise self._not_in_time(str(fault)) from None
        except Superseded:
            raise Refused(409, "something else is wanted of the session by now") from None
        except Busy:
            raise _no_room() from None
        except KubeRefusal as refusal:
            raise Refused(refusal.status, refusal.message or refusal.reason) from refusal
        except Exception:
            if late:
                raise self._not_in_time(late[0]) from None
            raise
        finally:
            if bound.active():
                bound.cancel()

    def _not_in_time(self, seen: str) -> Problem:
        seconds = self._adapter.timeout_seconds
        self._repeats.say(
            "late",
            self._log.warn,
            "{service}: a sandbox was not there within {seconds:g} s: {seen}",
            service=self._adapter.name,
            seconds=seconds,
            seen=seen,
        )
        return Problem(
            "upstream_timeout",
            504,
            f"The sandbox was not there within {seconds:g} s: {seen}. Ask again: what was begun "
            "is resumed.",
            outcome=Outcome.UPSTREAM_TIMEOUT,
            members={"service": self._adapter.name, "seen": seen},
        )

    def _traced_url(self) -> str:
        """Whom a request asks first, for its span."""
        return self._adapter.fleet or self._adapter.server or "https://kubernetes.default.svc"

    # Making

    async def _make(self, session: str, attempt: Attempt) -> Place:
        # A pod that is given back late would be the one that this is about to get.
        self._chores.drop(f"release {session}")
        try:
            place = await self._assigned(session, attempt)
            if place is None:
                place = await self._cluster.make(session, attempt)
        except Late:
            raise Late(attempt.seen) from None
        except _FAULTS as fault:
            # Whoever asked may have left: the log knows in any case.
            self._complain("made", fault)
            raise
        self._remember(session, place)
        return place

    async def _assigned(self, session: str, attempt: Attempt) -> Place | None:
        """Get a pod of the fleet controller's; None where it gives none."""
        if self._fleet is None:
            return None
        attempt.seen = "the fleet controller has not answered"
        try:
            return await self._fleet.assign(session)
        except NotAssigned as fault:
            self._repeats.say(
                "fleet",
                self._log.warn,
                "{service}: the fleet controller gives no pod, Kubernetes is asked: {why}",
                service=self._adapter.name,
                why=fault.why,
            )
            if fault.uncertain:
                self._release_later(session, self._fleet)
            return None

    def _remember(self, session: str, place: Place) -> None:
        entity = self._entity
        if entity is not None:
            self._chores.do(
                f"remember {session}",
                lambda: entity.merge(session, place.members()),
                lambda fault: self._complain_of_chore("its memory entity was not updated", fault),
            )

    # Removing

    async def _remove(self, session: str, attempt: Attempt) -> dict[str, str]:
        attempt.seen = "it is still being removed"
        self._chores.drop(f"release {session}")
        self._chores.drop(f"remember {session}")
        releasing = Deferred.fromCoroutine(self._released(session))
        try:
            found = await self._cluster.remove(session)
        except _FAULTS as fault:
            self._complain("removed", fault)
            raise
        finally:
            # Both run to their end, whatever becomes of the other.
            fleet = await releasing
        return {"fleet": fleet, "kubernetes": "removed" if found else "absent"}

    async def _released(self, session: str) -> str:
        """Give the fleet controller's pod back; say what has become of it."""
        if self._fleet is None:
            return "none"
        try:
            return "released" if await self._fleet.release(session) else "absent"
        except (Refused, UpstreamError) as fault:
            self._complain_of_chore("its pod was not given back to the fleet controller", fault)
            self._release_later(session, self._fleet)
            return "failed"

    def _release_later(self, session: str, fleet: Fleet) -> None:
        async def release() -> None:
            *tries, last = RELEASE_PAUSES_SECONDS
            for seconds in tries:
                await task.deferLater(self._clock, seconds, lambda: None)
                with suppress(Refused, UpstreamError):
                    await fleet.release(session)
                    return
            await task.deferLater(self._clock, last, lambda: None)
            await fleet.release(session)

        self._chores.do(
            f"release {session}",
            release,
            lambda fault: self._complain_of_chore(
                "its pod was not given back to the fleet controller", fault
            ),
        )

    # The log

    def _complain(self, what: str, fault: Exception) -> None:
        self._repeats.say(
            f"{what} {type(fault).__name__}",
            self._log.warn,
            "{service}: a sandbox could not be {what}: {why}",
            service=self._adapter.name,
            what=what,
            why=str(fault),
        )

    def _complain_of_chore(self, what: str, fault: Exception | Failure) -> None:
        why = fault.value if isinstance(fault, Failure) else fault
        if isinstance(fault, Failure) and not isinstance(why, _FAULTS):
            self._log.failure("{what}", what=what, failure=fault)
            return
        self._repeats.say(
            what,
            self._log.warn,
            "{service}: of a session: {what} ({why})",
            service=self._adapter.name,
            what=what,
            why=str(why),
        )


def _no_room() -> Problem:
    return Problem(
        "queue_full",
        503,
        "So many sandboxes are being made or removed that there is no room for another; try again "
        f"in {RETRY_AFTER_SECONDS} s.",
        outcome=Outcome.REJECTED,
        members={"reason": "queue_full", "retry_after": RETRY_AFTER_SECONDS},
        headers={"Retry-After": str(RETRY_AFTER_SECONDS)},
    )
