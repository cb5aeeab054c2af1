"""Sessions' sandboxes on Kubernetes: whether there is one, made (making.py), removed (removing.py).

Whatever is done at once, in this replica or another: in the end a session is there whole, or not at
all.
"""

from __future__ import annotations

from twisted.internet.interfaces import IReactorTime

from twisted_gateway.config.sandbox import SessionsAdapter
from twisted_gateway.services.sessions.attempt import Attempt
from twisted_gateway.services.sessions.fleet import Place
from twisted_gateway.services.sessions.kube import CLAIMS, Kube
from twisted_gateway.services.sessions.making import Making
from twisted_gateway.services.sessions.names import claim_name, pod_name, service_dns
from twisted_gateway.services.sessions.objects import is_leaving
from twisted_gateway.services.sessions.patience import Patience
from twisted_gateway.services.sessions.removing import Removing
from twisted_gateway.services.sessions.waiting import Waiter


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
        port = await making.run()
        return Place(
            service_dns(session, self._adapter.namespace, self._adapter.cluster_domain),
            pod_name(session),
            claim_name(session),
            port=port,
        )

    async def remove(self, session: str, attempt: Attempt) -> bool:
        """Remove pod, Service and workspace; each is tried, whatever becomes of the others.

        Returns:
            Whether there was anything.

        Raises:
            KubeRefusal, UpstreamError: of those that could not be removed, the first one's.
            Late, Superseded: see `Attempt`.
        """
        return await Removing(self._kube, Patience(attempt, self._clock), session).run()
