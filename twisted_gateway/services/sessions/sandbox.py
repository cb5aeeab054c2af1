"""`sessions/sandbox`: a sandbox for a session, from the fleet controller or from Kubernetes.

    POST    join who makes it already, else: Kubernetes, where the session has its workspace there;
            the fleet controller; Kubernetes where that gives none
    DELETE  the fleet controller and Kubernetes, both, whatever becomes of the other
    then    in the background, the session's memory entity

What is begun goes on when its client leaves: see attempt.py.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from twisted.internet.defer import CancelledError, Deferred, succeed
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
from twisted_gateway.services.sessions.attempt import Attempt, Busy, Late, Superseded, Wish
from twisted_gateway.services.sessions.cluster import Cluster
from twisted_gateway.services.sessions.entity import Entity
from twisted_gateway.services.sessions.fleet import Fleet
from twisted_gateway.services.sessions.kube import Kube
from twisted_gateway.services.sessions.kube_answers import KubeRefusal, KubeUnavailable
from twisted_gateway.services.sessions.names import session_id
from twisted_gateway.services.sessions.ongoing import Ongoing
from twisted_gateway.services.sessions.provisioner import Provisioner
from twisted_gateway.services.sessions.reaper import Reaper

RETRY_AFTER_SECONDS = 5

_SESSION = Parameter("session_id", required=True, form=session_id)

Result = TypeVar("Result")


class Sandbox:
    """Makes and removes the sandboxes of sessions.

    Attributes:
        operations: see `Service`.

    Args:
        adapter: its configuration.
        agent: reaches the fleet controller and the memory service.
        ongoing: what outlives this adapter when the configuration is read again.
        clock: for every bound.
        replica: what this process is called, unlike any other.
    """

    def __init__(
        self,
        adapter: SessionsAdapter,
        agent: IAgent,
        ongoing: Ongoing,
        clock: IReactorTime,
        *,
        replica: str,
    ) -> None:
        """Take what the class documents; nothing happens before `start`, or a request."""
        self._adapter = adapter
        self._clock = clock
        self._attempts = ongoing.attempts
        kube = Kube(adapter, ongoing.agent(adapter), clock)
        fleet = entity = None
        if adapter.fleet is not None:
            fleet = Fleet(adapter.fleet, adapter.fleet_seconds, agent, clock)
        if adapter.memory_entity is not None:
            entity = Entity(adapter.memory_entity, agent, clock)
        cluster = Cluster(adapter, kube, clock)
        self._provisioner = Provisioner(adapter, cluster, fleet, entity, ongoing.chores, clock)
        self._reaper = Reaper(adapter, kube, clock, replica, ongoing.sights)
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
        """Look no more; what is under way is the process's to stop, see `Ongoing`.

        Returns:
            Has fired.
        """
        self._reaper.stop()
        return succeed(None)

    async def _post(self, request: ServiceRequest) -> Answer:
        session = request.parameters["session_id"]
        place = await self._in_time(request, session, Wish.MAKE, self._provisioner.make)
        known = {name: value for name, value in place.members().items() if value is not None}
        tree: dict[str, Any] = {"session_id": session, **known, "fleet": place.fleet}
        if place.port is not None:
            tree["port"] = place.port
        return Document(tree)

    async def _delete(self, request: ServiceRequest) -> Answer:
        session = request.parameters["session_id"]
        became = await self._in_time(request, session, Wish.REMOVE, self._provisioner.remove)
        return Document({"session_id": session, **became})

    async def _in_time(
        self,
        request: ServiceRequest,
        session: str,
        wish: Wish,
        work: Callable[[str, Attempt], Coroutine[Deferred[Any], Any, Result]],
    ) -> Result:
        """Do something to a session, within the time that the client has.

        Raises:
            Problem: 504 with what was seen last; 503 where there is no room.
            Refused, UpstreamError: as an operation does.
        """
        seconds = self._adapter.timeout_seconds

        def failed(failure: Failure, attempt: Attempt, waited: bool) -> None:
            self._provisioner.failed(wish, failure, attempt, waited=waited)

        try:
            attempt, doing = self._attempts.join(
                self._name_of(session),
                wish,
                lambda attempt: work(session, attempt),
                seconds=seconds,
                failed=failed,
            )
        except Busy:
            raise _no_room() from None
        late: list[str] = []

        def give_up() -> None:
            # The attempt itself stops between two of its requests only, which take their time.
            late.append(attempt.seen)
            doing.cancel()

        bound = self._clock.callLater(seconds, give_up)
        try:
            return await request.upstream.follow(request.method, self._traced_url(), doing)
        except Late:
            raise self._not_in_time(wish, attempt.seen) from None
        except CancelledError:
            if late:
                raise self._not_in_time(wish, late[0]) from None
            raise
        except (Superseded, KubeRefusal, KubeUnavailable) as fault:
            raise _refused(fault) from fault
        finally:
            if bound.active():
                bound.cancel()

    def _not_in_time(self, wish: Wish, seen: str) -> Problem:
        seconds = self._adapter.timeout_seconds
        what = "there" if wish is Wish.MAKE else "removed"
        return Problem(
            "upstream_timeout",
            504,
            f"The sandbox was not {what} within {seconds:g} s: {seen}. Ask again: what was begun "
            "is resumed.",
            outcome=Outcome.UPSTREAM_TIMEOUT,
            members={"service": self._adapter.name, "seen": seen},
        )

    def _name_of(self, session: str) -> str:
        """Give what a session goes by among all that this process works on."""
        adapter = self._adapter
        return f"{adapter.server} {adapter.namespace} {session}"

    def _traced_url(self) -> str:
        """Whose answer a request is put down to, in its span."""
        return self._adapter.fleet or self._adapter.server or "https://kubernetes.default.svc"


def _refused(fault: Superseded | KubeRefusal | KubeUnavailable) -> Refused:
    if isinstance(fault, Superseded):
        return Refused(409, "something else is wanted of the session by now")
    headers = fault.headers if isinstance(fault, KubeUnavailable) else None
    return Refused(fault.status, fault.message or fault.reason, headers)


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
