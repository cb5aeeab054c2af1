"""Sessions' sandboxes on Kubernetes: whether there is one, made (making.py), removed (removing.py).

Whatever is done at once, in this replica or another: in the end a session is there whole, or not at
all.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from twisted.internet.interfaces import IReactorTime

from twisted_gateway.config.sandbox import SessionsAdapter
from twisted_gateway.services.sessions.attempt import Attempt
from twisted_gateway.services.sessions.fleet import Place
from twisted_gateway.services.sessions.kube import CLAIMS, PODS, Kube
from twisted_gateway.services.sessions.making import Making
from twisted_gateway.services.sessions.names import claim_name, pod_name, service_dns
from twisted_gateway.services.sessions.objects import is_leaving, is_ours
from twisted_gateway.services.sessions.patience import Patience
from twisted_gateway.services.sessions.pods import Stage, stage
from twisted_gateway.services.sessions.removing import Removing
from twisted_gateway.services.sessions.waiting import Waiter


class Cluster:
    """Makes and removes sandboxes.

    Args:
        adapter: what they are like.
        kube: the API.
        clock: for pauses.
        chance: from 0 up to 1: where in its jitter a pause lies.
    """

    def __init__(
        self,
        adapter: SessionsAdapter,
        kube: Kube,
        clock: IReactorTime,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Take what the class documents."""
        self._adapter = adapter
        self._kube = kube
        self._clock = clock
        self._chance = chance
        self._waiter = Waiter(kube, clock, chance)

    async def is_here(self, session: str) -> bool:
        """Whether a session is here already, and is not being removed; each is asked for once.

        It is with its workspace. It is with a pod of the gateway's too, which has none yet: another
        replica is making it, and makes the workspace last (making.py).

        Cancelling drops the connection.

        Raises:
            KubeRefusal, UpstreamError: Kubernetes does not say.
        """
        claim = await self._kube.get(CLAIMS, claim_name(session))
        if claim is not None:
            return not is_leaving(claim)
        pod = await self._kube.get(PODS, pod_name(session))
        return pod is not None and is_ours(pod) and stage(pod) in (Stage.STARTING, Stage.READY)

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
        patience = Patience(attempt, self._clock, self._chance)
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
            Refused: one of them is another one's, and stays.
            Late, Superseded: see `Attempt`.
        """
        patience = Patience(attempt, self._clock, self._chance)
        return await Removing(self._kube, patience, session).run()
