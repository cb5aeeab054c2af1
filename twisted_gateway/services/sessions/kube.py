"""The Kubernetes API over plain HTTP: objects are JSON trees, refusals `Status` objects.

See https://kubernetes.io/docs/reference/using-api/api-concepts/ for verbs, watches and resource
versions.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from twisted.internet import task
from twisted.internet.interfaces import IReactorTime

from twisted_gateway.config.sandbox import SessionsAdapter
from twisted_gateway.services.adapter import BadAnswer
from twisted_gateway.services.sessions.credentials import Token
from twisted_gateway.services.sessions.watch import Watch, open_watch
from twisted_gateway.upstream.agent import UpstreamAgent
from twisted_gateway.upstream.errors import ConnectFailed
from twisted_gateway.upstream.whole import WholeAnswer, ask

Tree = dict[str, Any]

ANSWER_SECONDS = 10.0
"""How long the API may take to answer a request."""
MOST_ANSWER_BYTES = 8_388_608
"""The largest answer that is read."""
PAGE_OBJECTS = 100
"""How many objects a list is asked for at once: some 10 kB each."""
MOST_PAGES = 100
"""How many pages of a list are read."""

MOST_TRIES = 3
"""How often a request is sent that the API has no room for (429), or could not serve yet."""
MOST_PAUSE_SECONDS = 5.0
MOST_MESSAGE_CHARACTERS = 1000

_USER_AGENT = (b"User-Agent", b"twisted-gateway")
_MANAGER = "twisted-gateway"
_TREE = b"application/json"
_APPLY = b"application/apply-patch+yaml"

PODS = "/api/v1/namespaces/{namespace}/pods"
SERVICES = "/api/v1/namespaces/{namespace}/services"
CLAIMS = "/api/v1/namespaces/{namespace}/persistentvolumeclaims"
POLICIES = "/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


class KubeRefusal(Exception):
    """The API has refused, or failed: its own 4xx or 5xx.

    Attributes:
        status: its status.
        reason: its word for it (`AlreadyExists`, `Conflict`, `Forbidden` …); "" for none.
        message: its sentence, bounded; "" where it gave none.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        """Take what the class documents."""
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message

    @property
    def exists(self) -> bool:
        """Whether an object of that name is there already."""
        return self.status == 409 and self.reason == "AlreadyExists"

    @property
    def absent(self) -> bool:
        """Whether there is no such object."""
        return self.status == 404


class Kube:
    """Asks the API for the objects of one namespace.

    Every method may be cancelled, which drops the connection, and raises `KubeRefusal` where the
    API refuses, `UpstreamError` where it does not answer.

    Args:
        adapter: says where it is.
        agent: sends; checks the API's certificate.
        clock: for the bounds.
    """

    def __init__(self, adapter: SessionsAdapter, agent: UpstreamAgent, clock: IReactorTime) -> None:
        """Take what the class documents."""
        self._server = adapter.server
        self._namespace = adapter.namespace
        self._agent = agent
        self._clock = clock
        self._token = Token(adapter, clock)

    async def get(self, kind: str, name: str) -> Tree | None:
        """Get an object; None where there is none."""
        try:
            return await self._ask("GET", self._url(kind, name))
        except KubeRefusal as refusal:
            if refusal.absent:
                return None
            raise

    async def create(self, kind: str, tree: Tree) -> Tree | None:
        """Create an object; None where one of its name is there already."""
        try:
            return await self._ask("POST", self._url(kind), tree)
        except KubeRefusal as refusal:
            if refusal.exists:
                return None
            raise

    async def apply(self, kind: str, tree: Tree) -> Tree:
        """See to it that an object is as given, whether it was there or not (server-side apply)."""
        query = {"fieldManager": _MANAGER, "force": "true"}
        url = self._url(kind, tree["metadata"]["name"], query)
        return await self._ask("PATCH", url, tree, _APPLY)

    async def update(self, kind: str, tree: Tree) -> Tree | None:
        """Replace an object; None where it is not of the resource version in `tree` any more."""
        try:
            return await self._ask("PUT", self._url(kind, tree["metadata"]["name"]), tree)
        except KubeRefusal as refusal:
            if refusal.status == 409:
                return None
            raise

    async def delete(self, kind: str, name: str, uid: str | None = None) -> bool:
        """Delete an object, if it is still the one with that uid.

        Returns:
            False where there is none; True where it is gone or will be.
        """
        options: Tree = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        try:
            await self._ask("DELETE", self._url(kind, name), options)
        except KubeRefusal as refusal:
            if refusal.absent or (uid is not None and refusal.status == 409):
                return False
            raise
        return True

    async def list(self, kind: str, fields: str) -> AsyncIterator[Tree]:
        """Give the objects that a field selector names, as pages of them come."""
        query = {"fieldSelector": fields, "limit": str(PAGE_OBJECTS)}
        for _ in range(MOST_PAGES):
            page = await self._ask("GET", self._url(kind, "", query))
            for one in page.get("items") or ():
                if isinstance(one, dict) and isinstance(one.get("metadata"), dict):
                    yield one
            metadata = page.get("metadata")
            after = metadata.get("continue") if isinstance(metadata, dict) else None
            if not after:
                return
            query["continue"] = str(after)

    async def watch(self, kind: str, tree: Tree, seconds: float) -> Watch:
        """Watch an object from the version in `tree` on, for so long."""
        metadata = tree["metadata"]
        query = {
            "watch": "1",
            "fieldSelector": f"metadata.name={metadata['name']}",
            "resourceVersion": str(metadata.get("resourceVersion", "")),
            "timeoutSeconds": str(max(1, round(seconds))),
        }
        url = self._url(kind, "", query)
        token = self._token.get()
        watch = await open_watch(self._agent, self._clock, url, _headers(token), ANSWER_SECONDS)
        if isinstance(watch, WholeAnswer) and watch.code == 401 and self._token.refused(token):
            headers = _headers(self._token.get())
            watch = await open_watch(self._agent, self._clock, url, headers, ANSWER_SECONDS)
        if isinstance(watch, WholeAnswer):
            raise _refusal(watch)
        return watch

    # One request

    def _url(self, kind: str, name: str = "", query: Mapping[str, str] | None = None) -> str:
        if self._server is None:
            raise ConnectFailed("no Kubernetes API is configured, and this is no pod of a cluster")
        url = self._server + kind.format(namespace=self._namespace)
        if name:
            url += "/" + quote(name, safe="")
        return f"{url}?{urlencode(query)}" if query else url

    async def _ask(
        self, method: str, url: str, tree: Tree | None = None, content_type: bytes = _TREE
    ) -> Tree:
        body = None if tree is None else json.dumps(tree).encode("ascii")
        tries = 0
        while True:
            tries += 1
            token = self._token.get()
            headers = _headers(token)
            if body is not None:
                headers.append((b"Content-Type", content_type))
            answer = await ask(
                self._agent,
                self._clock,
                method.encode("ascii"),
                url,
                headers,
                body,
                limit_bytes=MOST_ANSWER_BYTES,
                seconds=ANSWER_SECONDS,
            )
            if 200 <= answer.code < 300:
                return _object(answer)
            refusal = _refusal(answer)
            if isinstance(refusal, BadAnswer):
                raise refusal
            if tries >= MOST_TRIES or not await self._may_help(refusal, answer, token):
                raise refusal

    async def _may_help(self, refusal: KubeRefusal, answer: WholeAnswer, token: str) -> bool:
        """Whether the request may be sent again, once this returns."""
        if refusal.status == 401:
            return self._token.refused(token)
        crowded = refusal.status == 429
        # A quota that others write to at the same time; nothing was made.
        contended = refusal.status == 409 and refusal.reason == "Conflict" and _is_quota(refusal)
        if crowded or contended:
            await task.deferLater(self._clock, _pause_seconds(answer), lambda: None)
        return crowded or contended


def _headers(token: str) -> list[tuple[bytes, bytes]]:
    return [
        (b"Accept", _TREE),
        _USER_AGENT,
        (b"Authorization", b"Bearer " + token.encode("ascii")),
    ]


def _object(answer: WholeAnswer) -> Tree:
    """Read an object, or the Status of a success."""
    tree = _json(answer.body)
    if not isinstance(tree, dict):
        raise BadAnswer("the Kubernetes API's answer is no object")
    if tree.get("kind") != "Status" and not isinstance(tree.get("metadata"), dict):
        raise BadAnswer("the Kubernetes API's answer is no object of its own")
    return tree


def _refusal(answer: WholeAnswer) -> KubeRefusal | BadAnswer:
    if answer.code < 400:
        return BadAnswer(f"the Kubernetes API answered with status {answer.code}")
    tree = _json(answer.body)
    status = tree if isinstance(tree, dict) and tree.get("kind") == "Status" else {}
    reason, message = status.get("reason"), status.get("message")
    return KubeRefusal(
        answer.code,
        reason if isinstance(reason, str) else "",
        _printable(message) if isinstance(message, str) else "",
    )


def _printable(text: str) -> str:
    bounded = text[:MOST_MESSAGE_CHARACTERS]
    return "".join(one if one.isprintable() else " " for one in bounded)


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _is_quota(refusal: KubeRefusal) -> bool:
    return "resourcequotas" in refusal.message


def _pause_seconds(answer: WholeAnswer) -> float:
    values = answer.headers.getRawHeaders(b"Retry-After") or [b"1"]
    seconds = float(values[0]) if values[0].isdigit() and len(values[0]) < 6 else 1.0
    return min(max(seconds, 0.1), MOST_PAUSE_SECONDS)
