"""What is in a cluster beside its API: the objects, the scheduler, the controllers, the kubelet.

What they do on their own they do at once; what takes its time a test does by hand. After
https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/, and the sources of kube-scheduler
(volumebinding) and kube-controller-manager (pvc-protection, resourcequota, garbagecollector).
"""

from __future__ import annotations

import copy
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tests.services.sessions.validation import Invalid

Tree = dict[str, Any]
PVC_PROTECTION = "kubernetes.io/pvc-protection"
NODE = "node-1"
ENDED = ("Succeeded", "Failed")

_SELECTABLE = ("metadata.name", "metadata.namespace", "spec.nodeName", "status.phase")


@dataclass
class Watch:
    """A watch: `send` is told every line, until `over`."""

    resource: str
    fields: dict[str, str]
    seconds: float
    backlog: list[bytes] = field(default_factory=list)
    send: Callable[[bytes], object] | None = None
    over: bool = False

    def tell(self, line: bytes) -> None:
        """Send a line, or keep it until somebody reads."""
        if self.send is None:
            self.backlog.append(line)
        else:
            self.send(line)


class Cluster:
    """Objects, their versions, and what becomes of them.

    Attributes:
        objects: (resource, name) -> object.
        created: resource and name of everything that was created, oldest first.
        compacted: watches cannot begin before this version.
        room: whether a node has room for a pod: pods that come have one then.
        quota: of a resource how many there may be, by a ResourceQuota.
        recount_seconds: how long a quota counts what has gone; a real one takes a moment.
        collecting: whether the garbage collector is at work; a real one takes seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.objects: dict[tuple[str, str], Tree] = {}
        self.created: list[tuple[str, str]] = []
        self.compacted = 0
        self.room = True
        self.quota: dict[str, int] = {}
        self.recount_seconds = 0.0
        self.collecting = True
        self._now = now
        self._version = 100
        self._went: list[tuple[float, str]] = []
        self._events: list[tuple[int, str, str, Tree]] = []
        self._watches: list[Watch] = []

    # Objects, and who watches them

    def _store_new(self, resource: str, tree: Tree) -> Tree:
        """Store a new object; gives it as it was when its creation was answered."""
        name = tree["metadata"]["name"]
        tree["metadata"] |= {"uid": str(uuid.uuid4()), "creationTimestamp": self._time()}
        if resource in ("pods", "persistentvolumeclaims"):
            tree["status"] = {"phase": "Pending"}
        if resource == "persistentvolumeclaims":
            tree["metadata"]["finalizers"] = [PVC_PROTECTION]
        self.created.append((resource, name))
        self.objects[resource, name] = tree
        self._changed("ADDED", resource, tree)
        answered = copy.deepcopy(tree)
        self.schedule()
        if self.collecting:
            self.collect()
        return answered

    def _changed(self, event: str, resource: str, tree: Tree) -> None:
        self._version += 1
        tree["metadata"]["resourceVersion"] = str(self._version)
        seen = copy.deepcopy(tree)
        self._events.append((self._version, resource, event, seen))
        self._watches = [watch for watch in self._watches if not watch.over]
        for watch in list(self._watches):
            self._tell(watch, resource, event, seen)

    def _begin_watch(self, watch: Watch, version: int) -> None:
        """Tell a watch of everything since a version; 0 is any: of what there is."""
        if version == 0:
            for (resource, _), tree in list(self.objects.items()):
                self._tell(watch, resource, "ADDED", tree)
            self._watches.append(watch)
            return
        if version < self.compacted:
            # Once the request is understood, a fault is an event, and no answer of its own.
            status = failure(410, "Expired", f"too old resource version: {version}")
            watch.tell(line("ERROR", status))
            watch.over = True
            return
        for since, resource, event, tree in self._events:
            if since > version:
                self._tell(watch, resource, event, tree)
        self._watches.append(watch)

    def _tell(self, watch: Watch, resource: str, event: str, tree: Tree) -> None:
        if watch.over or resource != watch.resource:
            return
        if matches(tree, watch.fields.get("fieldSelector", "")):
            watch.tell(line(event, tree))

    def compact(self) -> None:
        """What was before now can be watched from no more, until something changes again."""
        self.compacted = self._version

    def bookmark(self) -> None:
        """Tell everybody who watches of the version that they have seen."""
        for watch in self._watches:
            metadata = {"resourceVersion": str(self._version)}
            watch.tell(line("BOOKMARK", {"kind": "Pod", "apiVersion": "v1", "metadata": metadata}))

    def _time(self, later_seconds: float = 0) -> str:
        then = datetime.fromtimestamp(self._now() + later_seconds, UTC)
        return then.strftime("%Y-%m-%dT%H:%M:%SZ")

    # Quota

    def _charge(self, resource: str, name: str) -> None:
        """Refuse what there is no quota for, whether or not it is there already."""
        hard = self.quota.get(resource)
        if hard is None:
            return
        used = sum(
            kind == resource and self._counts(one) for (kind, _), one in self.objects.items()
        )
        since = self._now() - self.recount_seconds
        used += sum(kind == resource and then > since for then, kind in self._went)
        if used >= hard:
            raise Invalid(
                403,
                "Forbidden",
                f'{resource} "{name}" is forbidden: exceeded quota: sandboxes, requested: '
                f"{resource}=1, used: {resource}={used}, limited: {resource}={hard}",
            )

    def _counts(self, tree: Tree) -> bool:
        """Whether an object is charged: pods are until they have ended, or should have long ago."""
        metadata = tree["metadata"]
        grace = metadata.get("deletionGracePeriodSeconds", 0)
        # It counts the grace twice: deletionTimestamp has it in it.
        late = leaving(tree) and metadata["deletionTimestamp"] < self._time(-grace)
        return tree["kind"] != "Pod" or not (late or tree["status"]["phase"] in ENDED)

    # Deletion

    def _mark(self, resource: str, tree: Tree, grace_seconds: int) -> None:
        """An object is to be deleted, once its grace is over and nobody holds it any more."""
        if not leaving(tree):
            tree["metadata"]["deletionTimestamp"] = self._time(grace_seconds)
            tree["metadata"]["deletionGracePeriodSeconds"] = grace_seconds
            self._changed("MODIFIED", resource, tree)

    def _gone(self, resource: str, name: str) -> None:
        tree = self.objects.pop((resource, name))
        self._went.append((self._now(), resource))
        self._changed("DELETED", resource, tree)
        if resource == "pods":
            self._release_claims()
        if self.collecting:
            self.collect()

    def collect(self) -> None:
        """Garbage is collected: what has owners of which none is there, by their uids."""
        there = {tree["metadata"]["uid"] for tree in self.objects.values()}
        for key, tree in list(self.objects.items()):
            owners = {one["uid"] for one in tree["metadata"].get("ownerReferences", ())}
            if owners and not owners & there and key in self.objects:
                self._gone(*key)

    def _release_claims(self) -> None:
        """A claim that is being deleted goes once no pod that is on a node uses it.

        Pods that are on none are not asked: the kubelet starts none on such a claim. Those that
        have ended count as long as they are there.
        """
        used = {
            claim
            for (kind, _), tree in self.objects.items()
            if kind == "pods" and "nodeName" in tree["spec"]
            for claim in claims_of(tree)
        }
        for kind, name in list(self.objects):
            if kind != "persistentvolumeclaims" or name in used:
                continue
            tree = self.objects[kind, name]
            if leaving(tree) and tree["metadata"]["finalizers"] == [PVC_PROTECTION]:
                self._gone(kind, name)

    # The scheduler

    def schedule(self) -> None:
        """Pods get a node where there is room, and their claims are there to stay."""
        for (kind, name), tree in list(self.objects.items()):
            if kind != "pods" or "nodeName" in tree["spec"] or not self.room:
                continue
            if all(self._is_usable(claim) for claim in claims_of(tree)):
                tree["spec"]["nodeName"] = NODE
                tree["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}]
                self._changed("MODIFIED", kind, self.objects[kind, name])

    def _is_usable(self, claim: str) -> bool:
        found = self.objects.get(("persistentvolumeclaims", claim))
        return found is not None and not leaving(found)

    # The kubelet, by hand

    def pod(self, session: str = "s1") -> Tree:
        """The pod of a session."""
        return self.objects["pods", f"pi-session-{session}"]

    def set_status(self, session: str, status: Tree) -> None:
        """The kubelet says what has become of a session's pod."""
        pod = self.pod(session)
        pod["status"] = status
        self._changed("MODIFIED", "pods", pod)

    def become_running(self, session: str = "s1", *, ready: bool = False) -> None:
        """Its container runs, which it does not without a node, and a claim that is there."""
        pod = self.pod(session)
        runs = pod["status"]["phase"] == "Running"
        assert runs or ("nodeName" in pod["spec"] and self.can_start(session)), "it cannot start"
        conditions = [{"type": "Ready", "status": str(ready)}]
        self.set_status(session, {"phase": "Running", "conditions": conditions})

    def become_ready(self, session: str = "s1") -> None:
        """Its container runs, and its probe succeeds."""
        self.become_running(session, ready=True)

    def become_unpullable(self, session: str = "s1") -> None:
        """Its image is not to be had."""
        waiting = {"reason": "ImagePullBackOff", "message": "secret-registry.example denied"}
        states = [{"name": "session", "state": {"waiting": waiting}}]
        self.set_status(session, {"phase": "Pending", "containerStatuses": states})

    def end(self, session: str = "s1", phase: str = "Failed", reason: str = "Error") -> None:
        """Its container has ended."""
        ended = [{"name": "session", "state": {"terminated": {"reason": reason, "exitCode": 1}}}]
        self.set_status(session, {"phase": phase, "containerStatuses": ended})

    def evict(self, session: str = "s1") -> None:
        """Its node has no memory left: the kubelet ends it, and it stays as a failed one."""
        message = "The node was low on resource: memory."
        self.set_status(session, {"phase": "Failed", "reason": "Evicted", "message": message})

    def disrupt(self, session: str = "s1", reason: str = "EvictionByEvictionAPI") -> None:
        """Its node is drained, or it makes room for another pod: it is deleted, with its grace.

        Args:
            session: whose pod it is.
            reason: `EvictionByEvictionAPI`, `PreemptionByScheduler`, `DeletionByTaintManager`, ….
        """
        pod = self.pod(session)
        target = {"type": "DisruptionTarget", "status": "True", "reason": reason}
        pod["status"].setdefault("conditions", []).append(target)
        self._changed("MODIFIED", "pods", pod)
        self._mark("pods", pod, pod["spec"]["terminationGracePeriodSeconds"])

    def can_start(self, session: str) -> bool:
        """Whether there is a claim for a session's pod: no pod starts without."""
        return self._is_usable(f"workspace-session-{session}")

    def finish(self, session: str = "s1") -> None:
        """A pod that is being deleted is gone."""
        assert leaving(self.pod(session))
        self._gone("pods", f"pi-session-{session}")

    def names(self, resource: str) -> list[str]:
        """The objects of a kind, by name."""
        return sorted(name for kind, name in self.objects if kind == resource)


def leaving(tree: Tree) -> bool:
    """Whether an object is being deleted."""
    return "deletionTimestamp" in tree["metadata"]


def claims_of(pod: Tree) -> list[str]:
    """The claims that a pod mounts, by name."""
    volumes = pod["spec"].get("volumes", ())
    claims = (one.get("persistentVolumeClaim") for one in volumes)
    return [claim["claimName"] for claim in claims if claim is not None]


def matches(tree: Tree, selector: str) -> bool:
    """Whether a field selector names an object."""
    for term in selector.split(",") if selector else ():
        path, unlike, value = term.partition("!=")
        if not unlike:
            path, _, value = term.partition("=")
        if path not in _SELECTABLE:
            raise Invalid(400, "BadRequest", f"field label not supported: {path}")
        outer, inner = path.split(".")
        if (tree.get(outer, {}).get(inner, "") == value) is bool(unlike):
            return False
    return True


def bears(tree: Tree, selector: str) -> bool:
    """Whether an object has the labels of a label selector, of which equality alone is known."""
    labels = tree["metadata"].get("labels", {})
    wanted = (term.partition("=") for term in selector.split(",") if term)
    return all(labels.get(name) == value for name, _, value in wanted)


def failure(status: int, reason: str, message: str) -> Tree:
    """A Status, as the API tells of what it refuses."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": status,
    }


def line(event: str, tree: Tree) -> bytes:
    """A line of a watch."""
    return json.dumps({"type": event, "object": tree}).encode() + b"\n"
