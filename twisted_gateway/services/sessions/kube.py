"""The Kubernetes API over plain HTTP: objects are JSON trees, refusals `Status` objects.

A 4xx is a word of the API's (`KubeRefusal`). A 5xx is none: a proxy may have given up an API server
that carries the request out all the same, so it is told as no answer is (`KubeUnavailable`, an
`UpstreamError`), and so is a 429, which asks for another try. None is made here: patience.py has
the time.

See https://kubernetes.io/docs/reference/using-api/api-concepts/ for verbs, watches and resource
versions.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from twisted.internet.interfaces import IReactorTime

from twisted_gateway.config.sandbox import SessionsAdapter
from twisted_gateway.core import strict_json
from twisted_gateway.core.events import MAX_ERROR_BODY_BYTES
from twisted_gateway.core.redaction import presentable
from twisted_gateway.services.adapter import BadAnswer
from twisted_gateway.services.sessions.credentials import Token
from twisted_gateway.services.sessions.watch import Watch, open_watch
from twisted_gateway.upstream.agent import UpstreamAgent
from twisted_gateway.upstream.errors import ConnectFailed, UpstreamError
from twisted_gateway.upstream.whole import WholeAnswer, ask

Tree = dict[str, Any]

ANSWER_SECONDS = 10.0
"""How long the API may take to answer a request."""
WRITE_TIMEOUT = "9s"
"""How long the API is told to work on a write: none is carried out behind one that was given up."""
MOST_ANSWER_BYTES = 8_388_608
"""The largest answer that is read."""
PAGE_OBJECTS = 100
"""How many objects a list is asked for at once: some 10 kB each."""
MOST_ANSWER_VALUES = 4000 * PAGE_OBJECTS
"""How many values an answer may have: a pod has a thousand, most of them in `managedFields`."""
MOST_PAGES = 100
"""How many pages of a list are read."""

MOST_MESSAGE_CHARACTERS = 1000
"""How much of the API's own words is kept."""

_REASON = re.compile(r"[A-Za-z]{1,64}")
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
    """The API refuses: its own 4xx, but for 429.

    Attributes:
        status: its status.
        reason: its word for it (`AlreadyExists`, `Conflict`, `Forbidden` …); "" for none.
        message: its sentence, bounded, without addresses and credentials; "" where it gave none.
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

    @property
    def expired(self) -> bool:
        """Whether what was asked to go on is forgotten by now."""
        return self.status == 410


class KubeUnavailable(UpstreamError):
    """The API cannot serve a request now: a 5xx, a 429, or a quota that others write to.

    What was asked may have been carried out all the same.

    Attributes:
        status: its status.
        message: as in `KubeRefusal`.
        retry_after_seconds: how long it asks to be left alone; None where it does not say.
    """

    def __init__(
        self, status: int, reason: str, message: str, retry_after_seconds: float | None
    ) -> None:
        """Take what the class documents, and the API's word for it, which may be ""."""
        super().__init__(" ".join(f"the Kubernetes API answered {status} {reason}".split()))
        self.status = status
        self.message = message
        self.retry_after_seconds = retry_after_seconds

    @property
    def headers(self) -> dict[str, str]:
        """What tells a client of it."""
        seconds = self.retry_after_seconds
        return {} if seconds is None else {"Retry-After": f"{seconds:.0f}"}


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
            if refusal.absent or (options["preconditions"] and refusal.status == 409):
                return False
            raise
        return True

    async def list(self, kind: str) -> AsyncIterator[Tree]:
        """Give the objects of a kind, as pages of them come: all of them, or it raises.

        The API keeps a list for some minutes. When it has forgotten it half way it is asked for a
        new one, as client-go does: so an object may come twice, or have gone.

        Raises:
            KubeRefusal, UpstreamError: as `get` does, and where there are more pages than are read.
        """
        query = {"limit": str(PAGE_OBJECTS)}
        for _ in range(MOST_PAGES):
            try:
                page = await self._ask("GET", self._url(kind, "", query))
            except KubeRefusal as refusal:
                if not refusal.expired or "continue" not in query:
                    raise
                del query["continue"]
                continue
            for one in page.get("items") or ():
                if isinstance(one, dict) and isinstance(one.get("metadata"), dict):
                    yield one
            metadata = page.get("metadata")
            after = metadata.get("continue") if isinstance(metadata, dict) else None
            if not after:
                return
            query["continue"] = str(after)
        # Whoever goes by what is not in a list must not be given half of one.
        raise BadAnswer(f"the list has more than {MOST_PAGES} pages")

    async def look(self, kind: str, name: str) -> tuple[Tree | None, str]:
        """Get an object, None where there is none, and the version to watch it from."""
        query = {"fieldSelector": f"metadata.name={name}"}
        page = await self._ask("GET", self._url(kind, "", query))
        metadata, items = page.get("metadata"), page.get("items") or ()
        if not isinstance(metadata, dict) or not isinstance(items, list | tuple):
            raise BadAnswer("the Kubernetes API's answer is no list")
        found = [one for one in items if isinstance(one, dict) and _is_named(one, name)]
        return (found[0] if found else None), str(metadata.get("resourceVersion", ""))

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
            raise self._fault(watch, token)
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
            return _object(answer)
        raise self._fault(answer, token)

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

    def _fault(self, answer: WholeAnswer, token: str) -> KubeRefusal | UpstreamError:
        """Say what an answer means that is not the one that was asked for.

        Args:
            answer: it.
            token: what it was asked with.
        """
        if answer.code < 400:
            return BadAnswer(f"the Kubernetes API answered with status {answer.code}")
        tree = _json(answer.body)
        status = tree if isinstance(tree, dict) and tree.get("kind") == "Status" else {}
        reason = _reason(status.get("reason"))
        words = _printable(status.get("message"))
        # Two that are charged to one quota at once; the API has given up its own tries.
        contended = answer.code == 409 and reason == "Conflict" and "resourcequotas" in words
        hosts = [urlsplit(self._server or "").hostname or ""]
        message = presentable(words, MOST_MESSAGE_CHARACTERS, hosts=hosts, secrets=[token])
        if answer.code >= 500 or answer.code == 429 or contended:
            return KubeUnavailable(answer.code, reason, message, _retry_after(answer))
        return KubeRefusal(answer.code, reason, message)


def _headers(token: str) -> list[tuple[bytes, bytes]]:
    return [
        (b"Accept", _TREE),
        _USER_AGENT,
        (b"Authorization", b"Bearer " + token.encode("ascii")),
    ]


def _is_named(tree: Tree, name: str) -> bool:
    metadata = tree.get("metadata")
    return isinstance(metadata, dict) and metadata.get("name") == name


def _object(answer: WholeAnswer) -> Tree:
    """Read an object, or the Status of a success."""
    tree = _json(answer.body)
    if not isinstance(tree, dict):
        raise BadAnswer("the Kubernetes API's answer is no object")
    if tree.get("kind") != "Status" and not isinstance(tree.get("metadata"), dict):
        raise BadAnswer("the Kubernetes API's answer is no object of its own")
    return tree


def _reason(value: object) -> str:
    """Take the API's one word; whatever else stands there is none of it."""
    return value if isinstance(value, str) and _REASON.fullmatch(value) else ""


def _printable(text: object) -> str:
    # What is beyond is far behind all that is shown.
    some = text[:MAX_ERROR_BODY_BYTES] if isinstance(text, str) else ""
    return "".join(one if one.isprintable() else " " for one in some)


def _json(body: bytes) -> Any:
    try:
        return strict_json.loads(body, most_values=MOST_ANSWER_VALUES)
    except (ValueError, RecursionError):
        return None


def _retry_after(answer: WholeAnswer) -> float | None:
    values = answer.headers.getRawHeaders(b"Retry-After") or [b""]
    return float(values[0]) if values[0].isdigit() and len(values[0]) < 6 else None
