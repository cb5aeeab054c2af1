"""A kube-apiserver without a socket: requests in, answers and watches out.

What a real one does that matters here it does too: it validates every object strictly, judges by
RBAC rules and by quota (before it looks whether the object is there already), lets pods end in
their own time, refuses what is there already, what has changed since, and versions too old to watch
from, or to go on with a list of. Behind it is `Cluster`.
"""

from __future__ import annotations

import base64
import copy
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

import yaml

from tests.services.sessions.cluster import (
    ENDED,
    Cluster,
    Tree,
    Watch,
    bears,
    failure,
    leaving,
    matches,
)
from tests.services.sessions.validation import Invalid, check, check_applied

__all__ = ["ApiServer", "Reply", "Request", "Watch", "leaving", "manifest", "refusal"]

MANIFEST = Path(__file__).parents[3] / "k8s" / "components" / "sandboxes" / "rbac.yaml"
NAMESPACE = "poimen"
"""Of the sandboxes; an overlay puts it into the manifest."""

_APPLY = "application/apply-patch+yaml"
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


@dataclass(frozen=True)
class Reply:
    """An answer: a tree, or a watch that goes on; 0 for a connection that ends without one."""

    status: int
    tree: Tree = field(default_factory=dict)
    watch: Watch | None = None
    retry_after: int | None = None


Trouble = Callable[[str, str, str], Reply | None]
"""Gives an answer of its own for (verb, resource, name), or None."""


class ApiServer(Cluster):
    """The API of one cluster.

    Attributes:
        tokens: those that are accepted.
        asked: verb and path of every request, oldest first.
        fail: gives an answer of its own for a request, which is not carried out.
        lose: gives an answer of its own for a request, which has been carried out all the same.
        rules: those of the Role that is in force.
        allowed: verb and resource of what was allowed by them, and whether by the object's name.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__(now)
        role = next(one for one in manifest() if one["kind"] == "Role")
        self.rules: list[Tree] = copy.deepcopy(role["rules"])
        self.namespace = NAMESPACE
        self.tokens = {"token-1"}
        self.asked: list[tuple[str, str]] = []
        self.fail: Trouble = lambda verb, resource, name: None
        self.lose: Trouble = lambda verb, resource, name: None
        self.allowed: set[tuple[str, str, bool]] = set()
        # Of lists that have been given in part: version, and what is left.
        self._lists: list[tuple[int, list[Tree]]] = []

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
        if match is None:
            # Nobody is told what is nowhere before it is clear that he may know.
            return refusal(403, "Forbidden", f'User cannot get path "{parts.path}"')
        group, namespace, resource = match[1] or "", match[2], match[3]
        name = unquote(match[4] or "")
        verb = _verb(request.method, name, query)
        self.asked.append((verb, f"{resource}/{name}" if name else resource))
        self._authorise(group, namespace, resource, verb, name)
        failed = self.fail(verb, resource, name)
        if failed is not None:
            return failed
        reply = self._carry_out(verb, (group, namespace, resource), name, request, query)
        return self.lose(verb, resource, name) or reply

    def _carry_out(
        self,
        verb: str,
        place: tuple[str, str, str],
        name: str,
        request: Request,
        query: dict[str, str],
    ) -> Reply:
        _, _, resource = place
        if verb == "list":
            return self._list(resource, query)
        if verb == "watch":
            return self._watch(resource, query)
        if verb == "get":
            return Reply(200, copy.deepcopy(self._find(resource, name)))
        if verb == "delete":
            return self._delete(resource, name, _options(request))
        tree = self._read(resource, request)
        if verb == "create":
            return self._create(resource, tree)
        if verb == "update":
            return self._update(resource, name, tree)
        return self._apply(place, name, tree, query)

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
        if request.method != "PATCH":
            _check_type(request)
        elif request.headers.get("content-type") != _APPLY:
            raise Invalid(415, "UnsupportedMediaType", "no such patch type here")
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
        # Admission comes before the store, which alone knows what is there.
        self._charge(resource, name)
        found = self.objects.get((resource, name))
        if found is not None:
            going = "object is being deleted: " if leaving(found) else ""
            raise Invalid(409, "AlreadyExists", f'{going}{resource} "{name}" already exists')
        if "resourceVersion" in tree["metadata"]:
            raise Invalid(400, "BadRequest", "resourceVersion should not be set")
        return Reply(201, self._store_new(resource, tree))

    def _update(self, resource: str, name: str, tree: Tree) -> Reply:
        found = self._find(resource, name)
        if "resourceVersion" not in tree["metadata"]:
            raise Invalid(422, "Invalid", "metadata.resourceVersion: must be specified")
        if tree["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
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
        self, place: tuple[str, str, str], name: str, tree: Tree, query: dict[str, str]
    ) -> Reply:
        group, namespace, resource = place
        if not query.get("fieldManager"):
            raise Invalid(422, "Invalid", "fieldManager: Required value: for apply patch")
        check_applied(tree["spec"])
        found = self.objects.get((resource, name))
        if found is None:
            self._authorise(group, namespace, resource, "create", name)
            self._charge(resource, name)
            return Reply(201, self._store_new(resource, tree))
        if found["spec"] != tree["spec"]:
            found["spec"] = tree["spec"]
            self._changed("MODIFIED", resource, found)
        return Reply(200, copy.deepcopy(found))

    def _delete(self, resource: str, name: str, options: Tree) -> Reply:
        found = self._find(resource, name)
        self._check_preconditions(found, resource, name, options.get("preconditions") or {})
        grace = 0
        if resource == "pods" and "nodeName" in found["spec"]:
            # A pod that is on no node, or has ended, goes at once: no kubelet has to end it.
            own = found["spec"]["terminationGracePeriodSeconds"]
            ended = found["status"]["phase"] in ENDED
            grace = 0 if ended else options.get("gracePeriodSeconds", own)
        if not grace and not found["metadata"].get("finalizers"):
            self._gone(resource, name)
            return Reply(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})
        self._mark(resource, found, grace)
        answer = Reply(200, copy.deepcopy(found))
        self._release_claims()
        return answer

    def _check_preconditions(self, found: Tree, resource: str, name: str, wanted: Tree) -> None:
        for member, there in wanted.items():
            if found["metadata"][member] != there:
                raise Invalid(
                    409,
                    "Conflict",
                    f'Operation cannot be fulfilled on {resource} "{name}": the {member} in the '
                    f"precondition ({there}) does not match the {member} in record "
                    f"({found['metadata'][member]}). The object might have been modified, or "
                    "deleted and then recreated",
                )

    def _list(self, resource: str, query: dict[str, str]) -> Reply:
        limit = int(query.get("limit", "500"))
        selector, labels = query.get("fieldSelector", ""), query.get("labelSelector", "")
        if "continue" in query:
            version, left = self._left_of(query["continue"])
        else:
            version = self._version
            left = [
                copy.deepcopy(tree)
                for (kind, _), tree in sorted(self.objects.items())
                if kind == resource and matches(tree, selector) and bears(tree, labels)
            ]
        page, rest = left[:limit], left[limit:]
        metadata = {"resourceVersion": str(version)}
        if rest:
            metadata["continue"] = self._keep(version, rest)
        kind = f"{_KINDS[resource][1]}List"
        return Reply(200, {"kind": kind, "metadata": metadata, "items": page})

    def _keep(self, version: int, rest: list[Tree]) -> str:
        """Keep the rest of a list, as it was at its version; give what is said to go on with it."""
        self._lists.append((version, rest))
        return base64.urlsafe_b64encode(str(len(self._lists) - 1).encode()).decode()

    def _left_of(self, token: str) -> tuple[int, list[Tree]]:
        try:
            version, rest = self._lists[int(base64.urlsafe_b64decode(token))]
        except (ValueError, IndexError):
            raise Invalid(400, "BadRequest", "continue key is not valid") from None
        if version < self.compacted:
            raise Invalid(
                410,
                "Expired",
                "The provided continue parameter is too old to display a consistent list result. "
                "You can start a new list without the continue parameter",
            )
        return version, rest

    def _watch(self, resource: str, query: dict[str, str]) -> Reply:
        watch = Watch(resource, query, float(query.get("timeoutSeconds", "1800")))
        begin = query.get("resourceVersion", "0")
        if not begin.isdigit():
            raise Invalid(400, "BadRequest", f"invalid resource version {begin!r}")
        self._begin_watch(watch, int(begin))
        return Reply(200, watch=watch)


@cache
def manifest() -> list[Tree]:
    """The documents of the gateway's own RBAC manifest."""
    return list(yaml.safe_load_all(MANIFEST.read_text()))


def refusal(status: int, reason: str, message: str, retry_after: int | None = None) -> Reply:
    """A refusal as the API has it."""
    return Reply(status, failure(status, reason, message), retry_after=retry_after)


def _options(request: Request) -> Tree:
    """Read the DeleteOptions of a request; without any it needs no media type."""
    if not request.body:
        return {}
    _check_type(request)
    options: Tree = json.loads(request.body)
    if options.get("kind", "DeleteOptions") != "DeleteOptions":
        raise Invalid(400, "BadRequest", "the object does not match the expected kind")
    return options


def _check_type(request: Request) -> None:
    if request.headers.get("content-type") != "application/json":
        raise Invalid(
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: "
            "application/json, application/yaml, application/vnd.kubernetes.protobuf",
        )


def _verb(method: str, name: str, query: dict[str, str]) -> str:
    if method == "GET" and not name:
        return "watch" if query.get("watch") in ("1", "true") else "list"
    if method == "DELETE" and not name:
        return "deletecollection"
    verbs = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
    return verbs[method]


# What an API says that fails, or is taken for one by something in between. Whether the request has
# been carried out none of them says: see `fail` and `lose`.
UNAVAILABLE = refusal(503, "ServiceUnavailable", "the server is currently unable to handle it")
STARTING = refusal(503, "ServiceUnavailable", "the server is starting", 2)
SHUTTING_DOWN = refusal(429, "TooManyRequests", "apiserver is shutting down", 5)
TIMED_OUT = refusal(
    504, "Timeout", "Timeout: request did not complete within requested timeout 10s"
)
ETCD_TIMED_OUT = refusal(500, "", "etcdserver: request timed out")
BROKEN_OFF = Reply(0)
"""The connection ends before there is an answer."""


def times(verb: str, resource: str, *replies: Reply) -> Trouble:
    """One answer after the other for requests of a kind, and no more."""
    left = list(replies)

    def trouble(asked: str, kind: str, name: str) -> Reply | None:
        return left.pop(0) if left and (asked, kind) == (verb, resource) else None

    return trouble
