"""The Kubernetes API over plain HTTP: objects are JSON trees, refusals `Status` objects.

A 4xx is a word of the API's (`KubeRefusal`), where it is a `Status` (kube_answers.py). A 5xx is
none: a proxy may have given up an API server that carries the request out all the same, so it is
told as no answer is (`KubeUnavailable`, an `UpstreamError`), and so is a 429, which asks for
another try. None is made here: patience.py has the time.

See https://kubernetes.io/docs/reference/using-api/api-concepts/ for verbs, watches and resource
versions.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from urllib.parse import quote, urlencode

from twisted.internet.interfaces import IReactorTime

from twisted_gateway.config.sandbox import SessionsAdapter
from twisted_gateway.services.sessions.credentials import Token
from twisted_gateway.services.sessions.kube_answers import (
    KubeRefusal,
    TooLong,
    Tree,
    read_answer,
    read_fault,
    read_list,
    whole,
)
from twisted_gateway.services.sessions.watch import Watch, open_watch
from twisted_gateway.upstream.agent import UpstreamAgent
from twisted_gateway.upstream.errors import ConnectFailed
from twisted_gateway.upstream.whole import WholeAnswer, ask

ANSWER_SECONDS = 10.0
"""How long the API may take to answer a request."""
WRITE_TIMEOUT = "9s"
"""How long the API is told to work on a write: none is carried out behind one that was given up."""
MOST_ANSWER_BYTES = 8_388_608
"""The largest answer that is read."""
PAGE_PODS = 100
"""How many pods a list is asked for at once: some 10 kB each, and often more."""
PAGE_OBJECTS = 500
"""How many other objects: some 2 kB each."""
MOST_ANSWER_VALUES = 4000 * PAGE_PODS
"""How many values an answer may have: a pod has a thousand, most of them in `managedFields`."""
MOST_PAGES = 100
"""How many pages of a list are read."""

_USER_AGENT = (b"User-Agent", b"twisted-gateway")
_MANAGER = "twisted-gateway"
_TREE = b"application/json"
_APPLY = b"application/apply-patch+yaml"

PODS = "/api/v1/namespaces/{namespace}/pods"
SERVICES = "/api/v1/namespaces/{namespace}/services"
CLAIMS = "/api/v1/namespaces/{namespace}/persistentvolumeclaims"
POLICIES = "/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


class Kube:
    """Asks the API for the objects of one namespace, once each time.

    Every method may be cancelled, which drops the connection, and raises `KubeRefusal` where the
    API refuses, `UpstreamError` where it does not answer, or only with a 5xx.

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
            return whole(await self._ask("GET", self._url(kind, name)), name)
        except KubeRefusal as refusal:
            if refusal.absent:
                return None
            raise

    async def create(self, kind: str, tree: Tree) -> Tree | None:
        """Create an object; None where one of its name is there already."""
        try:
            answer = await self._ask("POST", self._url(kind), tree)
            return whole(answer, tree["metadata"]["name"])
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
            if refusal.changed:
                return None
            raise

    async def delete(
        self, kind: str, name: str, uid: str | None = None, version: str | None = None
    ) -> bool:
        """Delete an object, if it is still the one with that uid, and of that resource version.

        Returns:
            False where it is not, or there is none; True where it is gone or will be.
        """
        options: Tree = {"apiVersion": "v1", "kind": "DeleteOptions"}
        wanted = {"uid": uid, "resourceVersion": version}
        options["preconditions"] = {key: one for key, one in wanted.items() if one is not None}
        try:
            await self._ask("DELETE", self._url(kind, name), options)
        except KubeRefusal as refusal:
            if refusal.absent or (options["preconditions"] and refusal.changed):
                return False
            raise
        return True

    async def list(self, kind: str, selector: str = "") -> AsyncIterator[Tree]:
        """Give the objects of a kind, as pages of them come: all of them, or it raises.

        The API keeps a list for some minutes. When it has forgotten it half way it is asked for a
        new one, as client-go does: so an object may come twice, or have gone.

        Args:
            kind: their kind.
            selector: labels that they bear, as `labelSelector` has it; "" for any.

        Raises:
            KubeRefusal, UpstreamError: as `get` does.
            TooLong: there are more pages than are read.
        """
        query = {"limit": str(PAGE_PODS if kind == PODS else PAGE_OBJECTS)}
        if selector:
            query["labelSelector"] = selector
        for _ in range(MOST_PAGES):
            try:
                page = await self._ask("GET", self._url(kind, "", query))
            except KubeRefusal as refusal:
                if not refusal.expired or "continue" not in query:
                    raise
                del query["continue"]
                continue
            found, _, after = read_list(page)
            for one in found:
                yield one
            if not after:
                return
            query["continue"] = after
        # Whoever goes by what is not in a list must not be given half of one.
        raise TooLong(f"the list has more than {MOST_PAGES} pages")

    async def look(self, kind: str, name: str) -> tuple[Tree | None, str]:
        """Get an object, None where there is none, and the version to watch it from."""
        query = {"fieldSelector": f"metadata.name={name}"}
        items, version, _ = read_list(await self._ask("GET", self._url(kind, "", query)))
        found = [one for one in items if one["metadata"]["name"] == name]
        return (found[0] if found else None), version

    async def watch(self, kind: str, name: str, version: str, seconds: float) -> Watch:
        """Watch an object from a version on, for so long."""
        query = {
            "watch": "1",
            "fieldSelector": f"metadata.name={name}",
            "resourceVersion": version,
            "timeoutSeconds": str(max(1, round(seconds))),
        }
        url = self._url(kind, "", query)
        token = self._token.get()
        watch = await open_watch(self._agent, self._clock, url, _headers(token), ANSWER_SECONDS)
        if isinstance(watch, WholeAnswer) and watch.code == 401 and self._token.refused(token):
            token = self._token.get()
            watch = await open_watch(self._agent, self._clock, url, _headers(token), ANSWER_SECONDS)
        if isinstance(watch, WholeAnswer):
            raise read_fault(watch, self._server or "", token)
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
        if method != "GET":
            url += ("&" if "?" in url else "?") + urlencode({"timeout": WRITE_TIMEOUT})
        token = self._token.get()
        answer = await self._send(method, url, token, tree, content_type)
        if answer.code == 401 and self._token.refused(token):
            # Kubernetes has rotated it: there is another one by now.
            token = self._token.get()
            answer = await self._send(method, url, token, tree, content_type)
        if 200 <= answer.code < 300:
            return read_answer(answer, MOST_ANSWER_VALUES)
        raise read_fault(answer, self._server or "", token)

    async def _send(
        self, method: str, url: str, token: str, tree: Tree | None, content_type: bytes
    ) -> WholeAnswer:
        headers = _headers(token)
        body = None
        if tree is not None:
            body = json.dumps(tree).encode("ascii")
            headers.append((b"Content-Type", content_type))
        return await ask(
            self._agent,
            self._clock,
            method.encode("ascii"),
            url,
            headers,
            body,
            limit_bytes=MOST_ANSWER_BYTES,
            seconds=ANSWER_SECONDS,
        )


def _headers(token: str) -> list[tuple[bytes, bytes]]:
    return [
        (b"Accept", _TREE),
        _USER_AGENT,
        (b"Authorization", b"Bearer " + token.encode("ascii")),
    ]
