"""A kube-apiserver without a socket: requests in, answers and watches out, kubelet by hand.

What a real one does that matters here it does too: it validates every object strictly, judges by
RBAC rules, lets pods end in their own time, keeps a claim while a pod uses it, refuses what is
there already, what has changed since, and versions too old to watch from.
"""

from __future__ import annotations

import base64
import copy
import json
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import yaml

from tests.services.sessions.validation import Invalid, check, check_applied

Tree = dict[str, Any]
MANIFEST = Path(__file__).parents[3] / "k8s" / "base" / "rbac-sandbox.yaml"
PVC_PROTECTION = "kubernetes.io/pvc-protection"

_PATH = re.compile(r"/(?:api|apis/([a-z0-9.]+))/v1/namespaces/([^/]+)/([a-z]+)(?:/([^/]+))?")
_KINDS = {
    "pods": ("", "Pod"),
    "services": ("", "Service"),
    "persistentvolumeclaims": ("", "PersistentVolumeClaim"),
    "networkpolicies": ("networking.k8s.io", "NetworkPolicy"),
    "leases": ("coordination.k8s.io", "Lease"),
}


@dataclass(frozen=True)
class Request:
    """A request, its header fields in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Watch:
    """A watch: `send` is told every line, until `over`."""

    resource: str
    fields: dict[str, str]
    seconds: float
    backlog: list[bytes] = field(default_factory=list)
    send: Callable[[bytes], object] | None = None
    over: bool = False


@dataclass(frozen=True)
class Reply:
    """An answer: a tree, or a watch that goes on."""

    status: int
    tree: Tree = field(default_factory=dict)
    watch: Watch | None = None
    retry_after: int | None = None


class ApiServer:
    """The API of one cluster.

    Attributes:
        tokens: those that are accepted.
        objects: (resource, name) -> object.
        asked: verb and path of every request, oldest first.
        fail: gives an answer of its own for a request, in place of the right one.
        compacted: watches cannot begin before this version.
        rules: those of the Role that is in force.
        allowed: verb and resource of what was allowed by them, and whether by the object's name.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        role = next(one for one in manifest() if one["kind"] == "Role")
        self.rules: list[Tree] = copy.deepcopy(role["rules"])
        self.namespace: str = role["metadata"]["namespace"]
        self.tokens = {"token-1"}
        self.objects: dict[tuple[str, str], Tree] = {}
        self.asked: list[tuple[str, str]] = []
        self.created: list[tuple[str, str]] = []
        self.fail: Callable[[str, str, str], Reply | None] = lambda verb, resource, name: None
        self.compacted = 0
        self.allowed: set[tuple[str, str, bool]] = set()
        self._now = now
        self._version = 100
        self._events: list[tuple[int, str, str, Tree]] = []
        self._watches: list[Watch] = []

    def handle(self, request: Request) -> Reply:
        """Answer a request."""
        try:
            return self._handle(request)
        except Invalid as fault:
            return refusal(fault.status, fault.reason, str(fault))

    def _handle(self, request: Request) -> Reply:
        parts = urlsplit(request.target)
        query = dict(parse_qsl(parts.query))
        match = _PATH.fullmatch(parts.path)
        if request.headers.get("authorization", "").removeprefix("Bearer ") not in self.tokens:
            return refusal(401, "Unauthorized", "Unauthorized")
        if match is None or _KINDS.get(match[3], ("?",))[0] != (match[1] or ""):
            return refusal(404, "NotFound", "the server could not find the requested resource")
        group, namespace, resource = match[1] or "", match[2], match[3]
        name = unquote(match[4] or "")
        verb = _verb(request.method, name, query)
        self.asked.append((verb, f"{resource}/{name}" if name else resource))
        self._authorise(group, namespace, resource, verb, name)
        failed = self.fail(verb, resource, name)
        if failed is not None:
            return failed
        if verb == "list":
            return self._list(resource, query)
        if verb == "watch":
            return self._watch(resource, query)
        if verb == "get":
            return Reply(200, copy.deepcopy(self._find(resource, name)))
        if verb == "delete":
            return self._delete(resource, name, json.loads(request.body or b"{}"))
        tree = self._read(resource, request)
        if verb == "create":
            return self._create(resource, tree)
        if verb == "update":
            return self._update(resource, name, tree)
        return self._apply(group, namespace, resource, name, tree, request, query)

    def _authorise(self, group: str, namespace: str, resource: str, verb: str, name: str) -> None:
        for rule in self.rules:
            names = rule.get("resourceNames")
            if (
                group in rule["apiGroups"]
                and resource in rule["resources"]
                and verb in rule["verbs"]
                and (names is None or name in names)
                and namespace == self.namespace
            ):
                self.allowed.add((verb, resource, names is not None))
                return
        raise Invalid(
            403,
            "Forbidden",
            f'{resource} "{name}" is forbidden: User "system:serviceaccount:llm-gateway:'
            f'llm-gateway" cannot {verb} resource "{resource}" in API group "{group}" in the '
            f'namespace "{namespace}"',
        )

    def _read(self, resource: str, request: Request) -> Tree:
        kinds = ("application/json", "application/apply-patch+yaml")
        if request.headers.get("content-type") not in kinds:
            raise Invalid(415, "UnsupportedMediaType", "the body is not in a supported format")
        tree: Tree = json.loads(request.body)
        group, kind = _KINDS[resource]
        if tree.get("kind") != kind or tree.get("apiVersion") != (f"{group}/v1" if group else "v1"):
            raise Invalid(400, "BadRequest", "the object does not match the expected kind")
        if tree["metadata"].get("namespace", self.namespace) != self.namespace:
            raise Invalid(400, "BadRequest", "the namespace does not match the request's")
        check(tree)
        return tree

    def _find(self, resource: str, name: str) -> Tree:
        found = self.objects.get((resource, name))
        if found is None:
            raise Invalid(404, "NotFound", f'{resource} "{name}" not found')
        return found

    # Verbs

    def _create(self, resource: str, tree: Tree) -> Reply:
        name = tree["metadata"]["name"]
        found = self.objects.get((resource, name))
        if found is not None:
            going = "object is being deleted: " if leaving(found) else ""
            raise Invalid(409, "AlreadyExists", f'{going}{resource} "{name}" already exists')
        if "resourceVersion" in tree["metadata"]:
            raise Invalid(400, "BadRequest", "resourceVersion should not be set")
        return Reply(201, copy.deepcopy(self._store_new(resource, tree)))

    def _store_new(self, resource: str, tree: Tree) -> Tree:
        name = tree["metadata"]["name"]
        tree["metadata"] |= {"uid": str(uuid.uuid4()), "creationTimestamp": self._time()}
        if resource == "pods":
            tree["status"] = {"phase": "Pending"}
        if resource == "persistentvolumeclaims":
            tree["metadata"]["finalizers"] = [PVC_PROTECTION]
            tree["status"] = {"phase": "Pending"}
        self.created.append((resource, name))
        self.objects[resource, name] = tree
        self._changed("ADDED", resource, tree)
        return tree

    def _update(self, resource: str, name: str, tree: Tree) -> Reply:
        found = self._find(resource, name)
        if tree["metadata"].get("resourceVersion") != found["metadata"]["resourceVersion"]:
            raise Invalid(
                409,
                "Conflict",
                f'Operation cannot be fulfilled on {resource} "{name}": the object has been '
                "modified; please apply your changes to the latest version and try again",
            )
        found["spec"] = tree["spec"]
        self._changed("MODIFIED", resource, found)
        return Reply(200, copy.deepcopy(found))

    def _apply(
        self,
        group: str,
        namespace: str,
        resource: str,
        name: str,
        tree: Tree,
        request: Request,
        query: dict[str, str],
    ) -> Reply:
        if request.headers["content-type"] != "application/apply-patch+yaml":
            raise Invalid(415, "UnsupportedMediaType", "no such patch type here")
        if not query.get("fieldManager"):
            raise Invalid(422, "Invalid", "fieldManager: Required value: for apply patch")
        check_applied(tree["spec"])
        found = self.objects.get((resource, name))
        if found is None:
            self._authorise(group, namespace, resource, "create", name)
            return Reply(201, copy.deepcopy(self._store_new(resource, tree)))
        if found["spec"] != tree["spec"]:
            found["spec"] = tree["spec"]
            self._changed("MODIFIED", resource, found)
        return Reply(200, copy.deepcopy(found))

    def _delete(self, resource: str, name: str, options: Tree) -> Reply:
        found = self._find(resource, name)
        uid = (options.get("preconditions") or {}).get("uid")
        if uid is not None and uid != found["metadata"]["uid"]:
            raise Invalid(409, "Conflict", "the UID in the precondition does not match")
        graceful = resource == "pods" and found["status"]["phase"] in ("Pending", "Running")
        if not graceful and not found["metadata"].get("finalizers"):
            self._gone(resource, name)
            return Reply(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})
        if not leaving(found):
            found["metadata"]["deletionTimestamp"] = self._time()
            if graceful:
                seconds = found["spec"]["terminationGracePeriodSeconds"]
                found["metadata"]["deletionGracePeriodSeconds"] = seconds
            self._changed("MODIFIED", resource, found)
        answer = Reply(200, copy.deepcopy(found))
        self._release_claims()
        return answer

    def _list(self, resource: str, query: dict[str, str]) -> Reply:
        after = base64.b64decode(query.get("continue", "")).decode()
        limit = int(query.get("limit", "500"))
        found = [
            tree
            for (kind, name), tree in sorted(self.objects.items())
            if kind == resource and name > after and _matches(tree, query.get("fieldSelector", ""))
        ]
        page, rest = found[:limit], found[limit:]
        metadata = {"resourceVersion": str(self._version)}
        if rest:
            metadata["continue"] = base64.b64encode(page[-1]["metadata"]["name"].encode()).decode()
        kind = f"{_KINDS[resource][1]}List"
        return Reply(200, {"kind": kind, "metadata": metadata, "items": copy.deepcopy(page)})

    def _watch(self, resource: str, query: dict[str, str]) -> Reply:
        watch = Watch(resource, query, float(query.get("timeoutSeconds", "1800")))
        begin = query.get("resourceVersion")
        if begin is None or not begin.isdigit():
            raise Invalid(400, "BadRequest", f"invalid resource version {begin!r}")
        if int(begin) < self.compacted:
            status = refusal(410, "Expired", f"too old resource version: {begin}").tree
            watch.backlog.append(_line("ERROR", status))
            watch.over = True
            return Reply(200, watch=watch)
        for version, kind, event, tree in self._events:
            if version > int(begin):
                self._tell(watch, kind, event, tree)
        self._watches.append(watch)
        return Reply(200, watch=watch)

    # Changes

    def _changed(self, event: str, resource: str, tree: Tree) -> None:
        self._version += 1
        tree["metadata"]["resourceVersion"] = str(self._version)
        seen = copy.deepcopy(tree)
        self._events.append((self._version, resource, event, seen))
        self._watches = [watch for watch in self._watches if not watch.over]
        for watch in list(self._watches):
            self._tell(watch, resource, event, seen)

    def _tell(self, watch: Watch, resource: str, event: str, tree: Tree) -> None:
        if watch.over or resource != watch.resource:
            return
        if not _matches(tree, watch.fields.get("fieldSelector", "")):
            return
        line = _line(event, tree)
        if watch.send is None:
            watch.backlog.append(line)
        else:
            watch.send(line)

    def _gone(self, resource: str, name: str) -> None:
        tree = self.objects.pop((resource, name))
        self._changed("DELETED", resource, tree)
        if resource == "pods":
            self._release_claims()

    def _release_claims(self) -> None:
        """A claim that is being deleted goes once no pod uses it."""
        used = {
            volume["persistentVolumeClaim"]["claimName"]
            for (kind, _), tree in self.objects.items()
            if kind == "pods"
            for volume in tree["spec"]["volumes"]
            if "persistentVolumeClaim" in volume
        }
        for kind, name in list(self.objects):
            if kind != "persistentvolumeclaims" or name in used:
                continue
            metadata = self.objects[kind, name]["metadata"]
            if "deletionTimestamp" in metadata and metadata["finalizers"] == [PVC_PROTECTION]:
                self._gone(kind, name)

    def _time(self) -> str:
        return datetime.fromtimestamp(self._now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    # The kubelet, by hand

    def pod(self, session: str = "s1") -> Tree:
        """The pod of a session."""
        return self.objects["pods", f"pi-session-{session}"]

    def set_status(self, session: str, status: Tree) -> None:
        """The kubelet says what has become of a session's pod."""
        pod = self.pod(session)
        pod["status"] = status
        self._changed("MODIFIED", "pods", pod)

    def become_ready(self, session: str = "s1") -> None:
        """Its container runs, and its probe succeeds."""
        ready = [{"type": "Ready", "status": "True"}]
        self.set_status(session, {"phase": "Running", "conditions": ready})

    def become_unpullable(self, session: str = "s1") -> None:
        """Its image is not to be had."""
        waiting = {"reason": "ImagePullBackOff", "message": "secret-registry.example denied"}
        states = [{"name": "session", "state": {"waiting": waiting}}]
        self.set_status(session, {"phase": "Pending", "containerStatuses": states})

    def end(self, session: str = "s1", phase: str = "Failed", reason: str = "Error") -> None:
        """Its container has ended."""
        ended = [{"name": "session", "state": {"terminated": {"reason": reason, "exitCode": 1}}}]
        self.set_status(session, {"phase": phase, "containerStatuses": ended})

    def can_start(self, session: str) -> bool:
        """Whether there is a claim for a session's pod: no pod starts without."""
        claim = self.objects.get(("persistentvolumeclaims", f"workspace-session-{session}"))
        return claim is not None and not leaving(claim)

    def finish(self, session: str = "s1") -> None:
        """A pod that is being deleted is gone."""
        assert leaving(self.pod(session))
        self._gone("pods", f"pi-session-{session}")

    def names(self, resource: str) -> list[str]:
        """The objects of a kind, by name."""
        return sorted(name for kind, name in self.objects if kind == resource)


@cache
def manifest() -> list[Tree]:
    """The documents of the gateway's own RBAC manifest."""
    return list(yaml.safe_load_all(MANIFEST.read_text()))


def leaving(tree: Tree) -> bool:
    """Whether an object is being deleted."""
    return "deletionTimestamp" in tree["metadata"]


def refusal(status: int, reason: str, message: str, retry_after: int | None = None) -> Reply:
    """A refusal as the API has it."""
    tree = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": status,
    }
    return Reply(status, tree, retry_after=retry_after)


def _line(event: str, tree: Tree) -> bytes:
    return json.dumps({"type": event, "object": tree}).encode() + b"\n"


def _verb(method: str, name: str, query: dict[str, str]) -> str:
    if method == "GET" and not name:
        return "watch" if query.get("watch") in ("1", "true") else "list"
    verbs = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
    return verbs[method]


def _matches(tree: Tree, selector: str) -> bool:
    for term in selector.split(",") if selector else ():
        path, unlike, value = term.partition("!=")
        if not unlike:
            path, _, value = term.partition("=")
        if path not in ("metadata.name", "status.phase"):
            raise Invalid(400, "BadRequest", f"field label not supported: {path}")
        outer, inner = path.split(".")
        if (tree[outer].get(inner) == value) is bool(unlike):
            return False
    return True
