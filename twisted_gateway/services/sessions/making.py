"""A session's sandbox on Kubernetes, made or resumed, whatever is there of it already.

Nothing is remembered. An attempt looks what there is, makes what is missing, and looks again, until
nothing is: so it resumes what another one, here or in another replica, has begun.

    claim being removed -> remove its pod too, wait until it is gone, look again
    pod ended, leaving  -> wait until it is gone, look again
    no pod              -> policy, pod
    no Service          -> Service, which is the pod's: it goes with it (ownerReferences)
    no claim            -> claim
    all, not Ready      -> wait until the pod is Ready, look again: a watch tells of what was, too
    all, Ready          -> done

The claim is made last, for a pod waits for its claim: whatever is refused, no workspace has been
made. So none is ever rolled back, which could be the one that another replica's pod uses by then.
What is rolled back is the pod that the attempt itself has made, and with it the Service.

A claim is a session's life. One that an attempt has seen, and that is gone or going then, means
that the session has been removed: whoever removes begins with it. A pod that goes while its claim
stays was taken by something else, a node that is drained or the reaper, and is replaced.
"""

from __future__ import annotations

from twisted.logger import Logger

from twisted_gateway.config.sandbox import SessionsAdapter
from twisted_gateway.services.adapter import BadAnswer, Refused
from twisted_gateway.services.sessions import objects
from twisted_gateway.services.sessions.attempt import Attempt
from twisted_gateway.services.sessions.kube import CLAIMS, PODS, POLICIES, SERVICES, Kube
from twisted_gateway.services.sessions.kube_answers import KubeRefusal, Tree
from twisted_gateway.services.sessions.names import claim_name, pod_name
from twisted_gateway.services.sessions.objects import is_leaving
from twisted_gateway.services.sessions.patience import Patience
from twisted_gateway.services.sessions.pods import Stage, seen, stage
from twisted_gateway.services.sessions.waiting import Waiter
from twisted_gateway.upstream.errors import UpstreamError

MOST_ROUNDS = 10
"""How often an attempt looks at what there is."""

QUOTA_PAUSES_SECONDS = (0.25, 0.5, 1.0, 2.0)
"""How long it is waited before each new try at a full quota, behind something that has gone.

The quota controller counts what has gone a moment later (kube-controller-manager, resourcequota).
"""

UNMAKABLE = frozenset({400, 403, 413, 422})
"""The refusals that another try would meet with too; what others leave behind is resumed by it."""


class _Removed(Exception):
    """The session has been removed, by another replica or by hand."""


class Making:
    """One attempt at one session's sandbox.

    Args:
        adapter: what sandboxes are like.
        kube: the API.
        waiter: waits for objects.
        patience: asks the API.
        session: whose sandbox it is.
        attempt: its time.
    """

    _log = Logger()

    def __init__(
        self,
        adapter: SessionsAdapter,
        kube: Kube,
        waiter: Waiter,
        patience: Patience,
        session: str,
        attempt: Attempt,
    ) -> None:
        """Have seen nothing yet."""
        self._adapter = adapter
        self._kube = kube
        self._waiter = waiter
        self._patience = patience
        self._session = session
        self._attempt = attempt
        self._claim_uid: str | None = None
        self._own_pod_uid: str | None = None
        self._port = adapter.port
        self._quota_pauses: list[float] = []

    async def run(self) -> int:
        """See to it that there is a sandbox that serves; raises as `Cluster.make` does.

        Returns:
            The port of its Service.
        """
        try:
            self._note(await self._get(CLAIMS, claim_name(self._session)))
            for _ in range(MOST_ROUNDS):
                if await self._round():
                    # Of what the last look has taken somebody may want something else by now.
                    self._attempt.check()
                    return self._port
        except KubeRefusal as refusal:
            if refusal.status in UNMAKABLE:
                await self._roll_back()
            raise
        except _Removed:
            await self._roll_back()
            raise Refused(409, "the session was removed while its sandbox was made") from None
        raise BadAnswer("what Kubernetes says of the session's pod contradicts itself")

    async def _round(self) -> bool:
        """Look once, and make what is missing; False where it has to be looked again."""
        noted = self._claim_uid
        pod = await self._get(PODS, pod_name(self._session))
        claim = await self._get(CLAIMS, claim_name(self._session))
        if not await self._may_stay(pod, claim):
            return False
        if pod is None:
            pod = await self._create_pod()
            if pod is None or claim is not None:
                # Whether that claim is still there is to be seen behind the pod: whoever removes
                # the session takes the claim before the pod, and may have seen no pod.
                return False
        service_made = await self._see_to_service(pod)
        if service_made is None:
            return False
        if claim is None and not await self._create_claim():
            return False
        if stage(pod) is Stage.READY:
            # A pod that serves had them: who has removed them may be about to remove the pod. And a
            # claim that was first seen behind the pod may be the next one's, and the pod gone.
            return noted is not None and claim is not None and not service_made
        await self._becomes_ready(pod)
        return False

    async def _may_stay(self, pod: Tree | None, claim: Tree | None) -> bool:
        """Whether what is there is to be built upon; what is not has gone when this returns."""
        if self._claim_uid is not None and not _is_alive(claim, self._claim_uid):
            raise _Removed
        if claim is not None and is_leaving(claim):
            # It stays as long as a pod uses it (its finalizer, pvc-protection), and no pod starts
            # on it any more: a DELETE that is under way, or has come half way.
            self._attempt.seen = "the session's former workspace is still being removed"
            if pod is not None:
                await self._dismiss(pod)
            await self._is_gone(CLAIMS, claim)
            return False
        self._note(claim)
        if pod is None:
            return True
        if stage(pod) is Stage.ENDED and pod["metadata"]["uid"] == self._own_pod_uid:
            raise _ended(pod)
        if stage(pod) in (Stage.LEAVING, Stage.ENDED) or (claim is None and _has_started(pod)):
            self._attempt.seen = "the session's former pod has not ended yet"
            await self._dismiss(pod)
            return False
        return True

    def _note(self, claim: Tree | None) -> None:
        """Keep in mind which claim is the session's, from now on."""
        if claim is not None and not is_leaving(claim):
            self._claim_uid = str(claim["metadata"]["uid"])

    # What is missing

    async def _create_pod(self) -> Tree | None:
        """Create the pod; None where another one has."""
        # The policy each time, not once: a pod without it could reach everything.
        policy = objects.policy(self._adapter)
        await self._patience.ask(lambda: self._kube.apply(POLICIES, policy))
        self._patience.unanswered = False
        pod = await self._create(PODS, objects.pod(self._adapter, self._session))
        own = pod
        if pod is None and self._patience.unanswered:
            # As far as anybody can know it was made by the request that got no answer.
            own = await self._get(PODS, pod_name(self._session))
        self._own_pod_uid = None if own is None else str(own["metadata"]["uid"])
        return pod

    async def _see_to_service(self, pod: Tree) -> bool | None:
        """See to it that a pod has its Service.

        Returns:
            Whether it had to be made; None where it has to be looked again.
        """
        name = pod_name(self._session)
        found = await self._get(SERVICES, name)
        if found is not None:
            if objects.is_owned_by(found, pod):
                # The configuration may have changed since it was made.
                self._port = objects.port_of(found, self._adapter.port)
                return False
            now = await self._get(PODS, name)
            if now is None or now["metadata"]["uid"] != pod["metadata"]["uid"]:
                # It may be that of a pod which has taken this one's place.
                return None
            # A former pod's, which the garbage collector has not come to yet.
            uid = found["metadata"]["uid"]
            await self._patience.ask(lambda: self._kube.delete(SERVICES, name, uid))
        service = objects.service(self._adapter, self._session, pod)
        return True if await self._create(SERVICES, service) is not None else None

    async def _create_claim(self) -> bool:
        """Create the claim; False where another one has."""
        claim = await self._create(CLAIMS, objects.claim(self._adapter, self._session))
        if claim is None:
            return False
        self._note(claim)
        return True

    async def _becomes_ready(self, pod: Tree) -> None:
        """Wait until a pod was Ready once, or is none of the session's any more."""

        def judge(tree: Tree | None) -> bool:
            if tree is None or stage(tree) is Stage.LEAVING:
                return True
            self._attempt.seen = f"the pod is not Ready: {seen(tree)}"
            if stage(tree) is Stage.ENDED:
                raise _ended(tree)
            return stage(tree) is Stage.READY

        await self._waiter.until(PODS, pod, self._attempt, judge)

    # One thing

    async def _get(self, kind: str, name: str) -> Tree | None:
        return await self._patience.ask(lambda: self._kube.get(kind, name))

    async def _create(self, kind: str, tree: Tree) -> Tree | None:
        """Create an object; None where one of its name is there already."""
        while True:
            try:
                return await self._patience.ask(lambda: self._kube.create(kind, tree))
            except KubeRefusal as refusal:
                # A quota is charged, and refuses, before it is seen that there is nothing to do.
                if refusal.status == 403 and await self._is_there(kind, tree["metadata"]["name"]):
                    return None
                if not (refusal.of_quota and self._quota_pauses):
                    raise
                await self._patience.pause(self._quota_pauses.pop(0))

    async def _is_there(self, kind: str, name: str) -> bool:
        try:
            return await self._get(kind, name) is not None
        except KubeRefusal:
            return False

    async def _is_whole(self) -> bool:
        """Whether a pod that is Ready has all else of a sandbox: one that is removed has not."""
        claim = await self._kube.get(CLAIMS, claim_name(self._session))
        if claim is None or is_leaving(claim):
            return False
        return await self._kube.get(SERVICES, pod_name(self._session)) is not None

    async def _dismiss(self, pod: Tree) -> None:
        """Delete a pod, unless that is under way, and wait until it is gone."""
        if stage(pod) is not Stage.LEAVING:
            await self._patience.ask(
                lambda: self._kube.delete(PODS, pod["metadata"]["name"], pod["metadata"]["uid"])
            )
        await self._is_gone(PODS, pod)

    async def _is_gone(self, kind: str, tree: Tree) -> None:
        """Wait until an object is gone; its quota may not know of it for a while."""
        await self._waiter.until(kind, tree, self._attempt, lambda one: one is None)
        self._quota_pauses = list(QUOTA_PAUSES_SECONDS)

    async def _roll_back(self) -> None:
        """Delete the pod that this attempt has made, unless it serves by another one's doing."""
        if self._own_pod_uid is None:
            return
        name = pod_name(self._session)
        try:
            for _ in range(MOST_ROUNDS):
                pod = await self._kube.get(PODS, name)
                if pod is None or pod["metadata"]["uid"] != self._own_pod_uid:
                    return
                if stage(pod) is Stage.READY and await self._is_whole():
                    return
                version = str(pod["metadata"].get("resourceVersion"))
                # As it was seen, that is: one that gets Ready in between is looked at again.
                if await self._kube.delete(PODS, name, self._own_pod_uid, version):
                    return
        except (KubeRefusal, UpstreamError) as fault:
            self._log.warn(
                "the pod {name} is left over of a sandbox that could not be made ({why})",
                name=name,
                why=str(fault),
            )


def _ended(pod: Tree) -> Refused:
    return Refused(502, f"the sandbox ended as soon as it began: {seen(pod)}")


def _is_alive(claim: Tree | None, uid: str) -> bool:
    return claim is not None and not is_leaving(claim) and claim["metadata"]["uid"] == uid


def _has_started(pod: Tree) -> bool:
    """Whether a pod is on a node, which it comes to with its claim only."""
    spec = pod.get("spec")
    return isinstance(spec, dict) and bool(spec.get("nodeName"))
