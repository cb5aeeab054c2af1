"""Sessions' sandboxes on Kubernetes: whether there is one, made, and removed.

Whoever removes a session deletes its claim first, then the Service, then the pod: so whoever makes
one at the same time sees that the session is removed (making.py), be it in another replica. A claim
that came in between is seen by another look. In the end a session is there whole, or not at all.
"""

from __future__ import annotations

from twisted.internet.interfaces import IReactorTime

from twisted_gateway.config.sandbox import SessionsAdapter
from twisted_gateway.services.adapter import BadAnswer
from twisted_gateway.services.sessions.attempt import Attempt
from twisted_gateway.services.sessions.fleet import Place
from twisted_gateway.services.sessions.kube import CLAIMS, PODS, SERVICES, Kube, KubeRefusal
from twisted_gateway.services.sessions.making import Making
from twisted_gateway.services.sessions.names import claim_name, pod_name, service_dns
from twisted_gateway.services.sessions.objects import is_leaving
from twisted_gateway.services.sessions.patience import Patience
from twisted_gateway.services.sessions.waiting import Waiter
from twisted_gateway.upstream.errors import UpstreamError

MOST_PASSES = 5
"""How often a session is removed whose claim is there again each time."""


class Cluster:
    """Makes and removes sandboxes.

    Args:
        adapter: what they are like.
        kube: the API.
        clock: for pauses.
    """

    def __init__(self, adapter: SessionsAdapter, kube: Kube, clock: IReactorTime) -> None:
        """Take what the class documents."""
        self._adapter = adapter
        self._kube = kube
        self._clock = clock
        self._waiter = Waiter(kube, clock)

    async def has_workspace(self, session: str) -> bool:
        """Whether a session has its workspace here, and is not being removed; asked once.

        Cancelling drops the connection.

        Raises:
            KubeRefusal, UpstreamError: Kubernetes does not say.
        """
        claim = await self._kube.get(CLAIMS, claim_name(session))
        return claim is not None and not is_leaving(claim)

    async def make(self, session: str, attempt: Attempt) -> Place:
        """See to it that a session has a sandbox that serves.

        What Kubernetes refuses, or is removed meanwhile, leaves no pod behind that this attempt
        has made, and never a workspace. What takes too long, or may have been carried out although
        no answer came, is left for the next attempt to resume; the reaper removes what nobody
        resumes.

        Raises:
            KubeRefusal: Kubernetes refuses.
            UpstreamError: Kubernetes does not answer.
            Refused: the sandbox ended at once, or was removed meanwhile.
            Late, Superseded: see `Attempt`.
        """
        patience = Patience(attempt, self._clock)
        making = Making(self._adapter, self._kube, self._waiter, patience, session, attempt)
        await making.run()
        return Place(
            service_dns(session, self._adapter.namespace, self._adapter.cluster_domain),
            pod_name(session),
            claim_name(session),
        )

    async def remove(self, session: str, attempt: Attempt) -> bool:
        """Remove pod, Service and workspace; each is tried, whatever becomes of the others.

        Returns:
            Whether there was anything.

        Raises:
            KubeRefusal, UpstreamError: of those that could not be removed, the first one's.
            Late, Superseded: see `Attempt`.
        """
        patience = Patience(attempt, self._clock)
        found = False
        for _ in range(MOST_PASSES):
            found = await self._remove_all(session, patience) or found
            claim = await patience.ask(lambda: self._kube.get(CLAIMS, claim_name(session)))
            if claim is None or is_leaving(claim):
                return found
        raise BadAnswer("the session is made again as often as it is removed")

    async def _remove_all(self, session: str, patience: Patience) -> bool:
        left = [
            (CLAIMS, claim_name(session)),
            (SERVICES, pod_name(session)),
            (PODS, pod_name(session)),
        ]
        found = False
        refusal: KubeRefusal | None = None
        tries = 0
        while left:
            tries += 1
            failed, fault = [], None
            for kind, name in left:
                try:
                    found = await self._kube.delete(kind, name) or found
                except KubeRefusal as one:
                    refusal = refusal or one
                except UpstreamError as one:
                    fault = fault or one
                    failed.append((kind, name))
            left = failed
            if fault is not None:
                await patience.bear(fault, tries)
        if refusal is not None:
            raise refusal
        return found
