"""A session's sandbox on Kubernetes: made, resumed or removed, whatever is there of it already.

Nothing is remembered: each attempt looks what there is and makes what is missing, so that it
resumes what another one, here or in another replica, has begun. That one object of a name can be
made once is what keeps replicas apart (409 AlreadyExists).

    GET pod -> ready: done
            -> ended, or being deleted: wait until it is gone, look again
            -> none: claim, policy, pod, and is the claim still there?
            -> Service; wait until the pod is Ready

Where another replica removes the session at the same time, the two may mix in any way. Whoever
removes deletes claim, Service and pod in this order; whoever makes looks at the claim, and makes
the Service, behind the pod. So none is left without the others: the maker sees to what is missing,
or the pod is deleted, which the maker sees.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet import task
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_gateway.config.sandbox import SessionsAdapter
from twisted_gateway.services.adapter import BadAnswer, Refused
from twisted_gateway.services.sessions import objects
from twisted_gateway.services.sessions.attempt import Attempt
from twisted_gateway.services.sessions.fleet import Place
from twisted_gateway.services.sessions.kube import (
    CLAIMS,
    PODS,
    POLICIES,
    SERVICES,
    Kube,
    KubeRefusal,
    Tree,
)
from twisted_gateway.services.sessions.names import claim_name, pod_name, service_dns
from twisted_gateway.services.sessions.pods import Stage, seen, stage
from twisted_gateway.upstream.errors import UpstreamError

PAUSE_SECONDS = 0.5
"""How long it is waited between two watches of the same object."""
MOST_ROUNDS = 10
"""How often an attempt looks anew at what there is."""

Judge = Callable[[Tree | None], bool]


class _Removed(Exception):
    """The session has been removed, by another replica or by hand."""


class _Made:
    """What an attempt itself has made, in order, for the case that it comes to nothing."""

    def __init__(self) -> None:
        self.things: list[tuple[str, str, str]] = []

    def note(self, kind: str, tree: Tree) -> None:
        metadata = tree["metadata"]
        self.things.append((kind, str(metadata.get("name")), str(metadata.get("uid"))))


class Cluster:
    """Makes and removes sandboxes.

    Args:
        adapter: what they are like.
        kube: the API.
        clock: for pauses.
    """

    _log = Logger()

    def __init__(self, adapter: SessionsAdapter, kube: Kube, clock: IReactorTime) -> None:
        """Take what the class documents."""
        self._adapter = adapter
        self._kube = kube
        self._clock = clock

    async def make(self, session: str, attempt: Attempt) -> Place:
        """See to it that a session has a sandbox that serves.

        What Kubernetes refuses, or is removed meanwhile, leaves nothing behind that this attempt
        has made. What takes too long, or may have been carried out although no answer came, is
        left for the next attempt to resume; the reaper removes what nobody resumes.

        Raises:
            KubeRefusal: Kubernetes refuses.
            UpstreamError: Kubernetes does not answer.
            Refused: the sandbox ended at once, or was removed meanwhile.
            Late, Superseded: see `Attempt`.
        """
        made = _Made()
        try:
            await self._make(session, attempt, made)
        except KubeRefusal:
            await self._roll_back(made)
            raise
        except _Removed:
            await self._roll_back(made)
            raise Refused(409, "the session was removed while its sandbox was made") from None
        return Place(
            service_dns(session, self._adapter.namespace, self._adapter.cluster_domain),
            pod_name(session),
            claim_name(session),
        )

    async def _make(self, session: str, attempt: Attempt, made: _Made) -> None:
        for _ in range(MOST_ROUNDS):
            attempt.check()
            pod = await self._kube.get(PODS, pod_name(session))
            if pod is not None and stage(pod) in (Stage.LEAVING, Stage.ENDED):
                attempt.seen = "the session's former pod has not ended yet"
                await self._dismiss(pod, attempt)
                continue
            if pod is None or stage(pod) is not Stage.READY:
                if not await self._has_claim(session, pod, attempt, made):
                    continue
                pod = pod or await self._create_pod(session, attempt, made)
                if pod is None or not await self._keeps_claim(session):
                    continue
            pod = await self._with_service(session, pod, attempt, made)
            await self._ready(pod, attempt)
            return
        raise BadAnswer("what Kubernetes says of the session's pod contradicts itself")

    async def _has_claim(
        self, session: str, pod: Tree | None, attempt: Attempt, made: _Made
    ) -> bool:
        """See to it that there is a workspace; False where it has to be looked anew."""
        attempt.check()
        created = await self._kube.create(CLAIMS, objects.claim(self._adapter, session))
        if created is not None:
            made.note(CLAIMS, created)
            return True
        claim = await self._kube.get(CLAIMS, claim_name(session))
        if claim is None:
            return False
        if claim["metadata"].get("deletionTimestamp") is None:
            return True
        # It stays as long as a pod uses it (its finalizer, pvc-protection), and no pod starts on
        # it any more.
        attempt.seen = "the session's former workspace is still being removed"
        if pod is not None:
            await self._dismiss(pod, attempt)
        await self._until(CLAIMS, claim, attempt, lambda tree: tree is None)
        return False

    async def _create_pod(self, session: str, attempt: Attempt, made: _Made) -> Tree | None:
        """Create the pod; None where another one has."""
        attempt.check()
        # Each time, not once: a pod without it could reach everything.
        await self._kube.apply(POLICIES, objects.policy(self._adapter))
        attempt.check()
        pod = await self._kube.create(PODS, objects.pod(self._adapter, session))
        if pod is not None:
            made.note(PODS, pod)
        return pod

    async def _with_service(self, session: str, pod: Tree, attempt: Attempt, made: _Made) -> Tree:
        """See to it that a pod has its Service; gives the pod, of a version to wait from."""
        attempt.check()
        created = await self._kube.create(SERVICES, objects.service(self._adapter, session))
        if created is None:
            return pod
        made.note(SERVICES, created)
        if stage(pod) is not Stage.READY:
            return pod
        # A pod that serves had one: who has removed that may be about to remove the pod, and has
        # removed the claim before.
        latest = await self._kube.get(PODS, pod_name(session))
        if latest is None or not await self._keeps_claim(session):
            raise _Removed
        return latest

    async def _keeps_claim(self, session: str) -> bool:
        """Whether the workspace has not been removed since; see the module."""
        claim = await self._kube.get(CLAIMS, claim_name(session))
        return claim is not None and claim["metadata"].get("deletionTimestamp") is None

    async def _dismiss(self, pod: Tree, attempt: Attempt) -> None:
        """Delete a pod, unless that is under way, and wait until it is gone."""
        if stage(pod) is not Stage.LEAVING:
            attempt.check()
            metadata = pod["metadata"]
            await self._kube.delete(PODS, metadata["name"], metadata["uid"])
        await self._until(PODS, pod, attempt, lambda tree: tree is None)

    async def _ready(self, pod: Tree, attempt: Attempt) -> None:
        def judge(tree: Tree | None) -> bool:
            if tree is None or stage(tree) is Stage.LEAVING:
                raise _Removed
            attempt.seen = f"the pod is not Ready: {seen(tree)}"
            if stage(tree) is Stage.ENDED:
                raise Refused(502, f"the sandbox ended as soon as it began: {seen(tree)}")
            return stage(tree) is Stage.READY

        await self._until(PODS, pod, attempt, judge)

    async def _until(self, kind: str, tree: Tree, attempt: Attempt, judge: Judge) -> None:
        """Watch an object until `judge` says that it is as wished.

        Args:
            kind: its kind.
            tree: the object as it was seen last.
            attempt: bounds the waiting.
            judge: is told each version of the object, and None once that very one is gone.
        """
        latest: Tree | None = tree
        name, uid = tree["metadata"]["name"], tree["metadata"].get("uid")
        while not judge(latest):
            assert latest is not None
            if await self._watched(kind, latest, attempt, judge):
                return
            await attempt.wait(_pause(self._clock))
            try:
                found = await attempt.wait(self._kube.get(kind, name))
            except UpstreamError:
                # The API restarts, or a node of its leaves; there is time to wait for it.
                continue
            latest = found if found is not None and found["metadata"].get("uid") == uid else None

    async def _watched(self, kind: str, tree: Tree, attempt: Attempt, judge: Judge) -> bool:
        """Watch an object for as long as one watch goes; say whether it is as wished."""
        uid = tree["metadata"].get("uid")
        try:
            watch = await attempt.wait(self._kube.watch(kind, tree, attempt.left_seconds))
        except KubeRefusal as refusal:
            if refusal.status == 410 or refusal.status >= 500:
                return False
            raise
        except UpstreamError:
            return False
        try:
            while (change := await attempt.wait(watch.next())) is not None:
                if change.kind == "BOOKMARK":
                    continue
                if change.kind == "ERROR":
                    # The version is too old to begin from: the object is looked at anew.
                    return False
                now = change.tree
                same = isinstance(now.get("metadata"), dict) and now["metadata"].get("uid") == uid
                if judge(now if same and change.kind != "DELETED" else None):
                    return True
            return False
        finally:
            watch.close()

    # Removing

    async def remove(self, session: str) -> bool:
        """Remove pod, Service and workspace; each is tried, whatever becomes of the others.

        Returns:
            Whether there was anything.

        Raises:
            KubeRefusal, UpstreamError: of those that could not be removed, the first one's.
        """
        found = False
        fault: Exception | None = None
        for kind, name in (
            (CLAIMS, claim_name(session)),
            (SERVICES, pod_name(session)),
            (PODS, pod_name(session)),
        ):
            try:
                found = await self._kube.delete(kind, name) or found
            except (KubeRefusal, UpstreamError) as one:
                fault = fault or one
        if fault is not None:
            raise fault
        return found

    async def _roll_back(self, made: _Made) -> None:
        """Delete what an attempt has made: the pod last, as whoever removes does."""
        for kind, name, uid in sorted(made.things, key=lambda one: one[0] == PODS):
            try:
                await self._kube.delete(kind, name, uid)
            except (KubeRefusal, UpstreamError) as fault:
                self._log.warn(
                    "{kind} {name} is left over of a sandbox that could not be made ({why})",
                    kind=kind.rpartition("/")[2],
                    name=name,
                    why=str(fault),
                )


def _pause(clock: IReactorTime) -> Deferred[Any]:
    return task.deferLater(clock, PAUSE_SECONDS, lambda: None)
