"""What the tests of the check share: a gateway whose every answer is the test's, and the tool."""

from __future__ import annotations

import io
import json
import signal
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from twisted.internet.defer import Deferred
from twisted.internet.protocol import Protocol
from twisted.internet.task import Clock

from tests.check.network import Network
from tests.support import TestCase
from twisted_gateway.check import commandline, settings, tool
from twisted_gateway.console.console import Console
from twisted_gateway.upstream.agent import UpstreamAgent

PUBLIC, ADMIN = "http://gateway:8080", "http://gateway:9090"
EPOCH = 1_796_000_000.0
"""When runs begin, in seconds since the epoch: 2026-11-30T00:53:20. The clock begins elsewhere."""
TOKEN = "header.claims.signature-of-the-token"


@dataclass
class Came:
    """A request that came to the scripted gateway."""

    port: int
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def tree(self) -> Any:
        return json.loads(self.body)

    @property
    def key(self) -> str:
        """What decides the answer: the service and resource, else the path."""
        service = self.headers.get("x-service")
        return f"{service}/{self.headers.get('x-resource')}" if service else self.path


@dataclass
class Says:
    """An answer; without a status none comes. It may be `cut`, too `short`, or
    `never` end."""

    status: int | None = 200
    body: Any = None
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    ends: str = "well"

    def framed(self, came: Came) -> bytes:
        """It on the wire; a stream is chunked, so that it can be cut."""
        body = self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()
        pairs = dict((("X-Request-ID", came.headers["x-request-id"]), *self.headers))
        lines = "".join(f"{name}: {value}\r\n" for name, value in pairs.items())
        head = f"HTTP/1.1 {self.status} Said\r\nContent-Type: {self.content_type}\r\n{lines}"
        if self.status == 204:
            return f"{head}\r\n".encode()
        if self.content_type == "text/event-stream":
            end = b"0\r\n\r\n" if self.ends == "well" else b""
            chunk = b"%x\r\n%s\r\n" % (len(body), body)
            return f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + chunk + end
        length = len(body) + (self.ends == "short")
        return f"{head}Content-Length: {length}\r\n\r\n".encode() + body


NOTHING = Says(None)
"""No answer comes."""


def problem(status: int, kind: str, **members: Any) -> Says:
    """A problem document of the gateway's."""
    tree = {"type": f"urn:twisted-gateway:problem:{kind}", "detail": f"it is {kind}", **members}
    return Says(status, tree, "application/problem+json")


def stream(*events: str, ends: str = "well") -> Says:
    """An event stream, which ends well, is cut, or never ends."""
    body = "".join(f"data: {event}\n\n" for event in events).encode()
    return Says(200, body, "text/event-stream", ends=ends)


def content(text: str = "yes") -> str:
    """An event with content."""
    return json.dumps({"choices": [{"index": 0, "delta": {"content": text}}]})


def service(*resources: str, method: str = "GET", **members: Any) -> dict[str, Any]:
    """A service in the list of services."""
    told = {name: {"allowed": True, "methods": {method: {}}} for name in resources}
    return {"require_auth": True, "resources": told, **members}


CHAT = Says(200, {"choices": [{"message": {"content": "Yes."}}], "usage": {"completion_tokens": 2}})
Answer = Says | Callable[[Came], Says]


class ScriptedGateway:
    """A gateway that answers as a good one does, but where a test says otherwise.

    Attributes:
        came: the requests that came.
        says: what decides (`Came.key`) -> the answer, or what gives it.
        objects: what is in the store.
        connections: those that were made, the latest last.
        servers: port -> factory.
    """

    def __init__(self) -> None:
        self.came: list[Came] = []
        self.objects: dict[str, bytes] = {}
        self.connections: list[Protocol] = []
        self.servers: dict[int, Any] = {port: _Factory(self, port) for port in (8080, 9090)}
        self.says: dict[str, Answer] = {
            **{path: self.admin(Says(200, {"status": "ok"})) for path in _HEALTH},
            "/metrics": self.admin(Says(200, b"gateway_requests_total 1\n", "text/plain")),
            "/status": self.admin(Says(200, b"<html>", "text/html")),
            "/status.json": self.admin(
                Says(200, {"models": {"m": {"engine": "vllm", "aliases": ["gpt-4o"]}}})
            ),
            "/v1/models": Says(200, {"data": [{"id": "m"}, {"id": "gpt-4o"}]}),
            "/v1/services": Says(200, {"services": {}}),
            "/v1/chat/completions": self._chat,
            "/v1/embeddings": Says(404, {"detail": "Not Found"}),
            "/v1/rerank": Says(404, {"detail": "Not Found"}),
            "/v1/auth/token": Says(200, {"access_token": TOKEN}),
            "/v1/webhooks/forgejo": problem(401, "bad_signature"),
            "memory/ingest": Says(200, {}),
            "memory/query": Says(200, {}),
            "s3/list": self._list,
            "s3/put": self._put,
            "s3/get": self._get,
            "s3/delete": self._delete,
            "sqs/list-queues": Says(200, {"queues": []}),
            "workflow/list": self._workflows,
            "iam/list-users": Says(200, {"users": [{"username": "ada"}]}),
            "notification/send-message": Says(200, {"id": 7}),
            "registry/list-repos": Says(200, {"repositories": []}),
        }

    def serve(self, **services: Any) -> None:
        """Let these services be listed."""
        self.says["/v1/services"] = Says(200, {"services": services})

    def answer(self, came: Came) -> Says:
        """Answer a request."""
        self.came.append(came)
        known = came.key in self.says
        if not known and "x-service" in came.headers:
            return problem(404, "unknown_service", valid_services=[])
        told = self.says[came.key] if known else problem(404, "not_found")
        if "x-service" in came.headers and "authorization" not in came.headers:
            told = self.says.get("no token", problem(401, "unauthorized"))
        return told if isinstance(told, Says) else told(came)

    def keys(self, method: str = "") -> list[str]:
        """What was asked for, in order."""
        return [one.key for one in self.came if one.method == method or not method]

    def admin(self, said: Says) -> Answer:
        """Give an answer of the admin side alone."""
        return lambda came: said if came.port == 9090 else problem(404, "not_found")

    def _chat(self, came: Came) -> Says:
        if came.tree["model"] not in ("m", "gpt-4o"):
            return problem(400, "unknown_model", valid_models=["m"])
        return stream(content(), "[DONE]") if came.tree.get("stream") else CHAT

    def _workflows(self, came: Came) -> Says:
        if "namespace" not in came.query:
            return problem(400, "bad_parameters", missing=["namespace"])
        return Says(200, {"executions": [{}]})

    def _list(self, came: Came) -> Says:
        return Says(200, {"objects": [{"key": key} for key in self.objects]})

    def _put(self, came: Came) -> Says:
        self.objects[came.query["key"]] = came.body
        return Says(200, {})

    def _get(self, came: Came) -> Says:
        found = self.objects.get(came.query["key"])
        if found is None:
            return problem(404, "service_refused")
        return Says(200, found, "application/octet-stream")

    def _delete(self, came: Came) -> Says:
        self.objects.pop(came.query["key"], None)
        return Says(204)


_HEALTH = ("/health", "/health/live", "/health/ready")


class _Factory:
    def __init__(self, gateway: ScriptedGateway, port: int) -> None:
        self._gateway = gateway
        self._port = port

    def buildProtocol(self, address: Any) -> Protocol:
        server = _Server(self._gateway, self._port)
        self._gateway.connections.append(server)
        return server


class _Server(Protocol):
    """Reads requests with a Content-Length."""

    def __init__(self, gateway: ScriptedGateway, port: int) -> None:
        self._gateway = gateway
        self._port = port
        self._read = b""

    def dataReceived(self, data: bytes) -> None:
        self._read += data
        head, found, rest = self._read.partition(b"\r\n\r\n")
        if not found:
            return
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (one.partition(": ") for one in lines)}
        length = int(headers.get("content-length", "0"))
        if len(rest) < length:
            return
        self._read = rest[length:]
        method, target, _ = first.split(" ")
        parts = urlsplit(target)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        came = Came(self._port, method, parts.path, query, headers, rest[:length])
        said = self._gateway.answer(came)
        transport: Any = self.transport
        if said.status is not None:
            transport.write(said.framed(came))
        if said.ends in ("cut", "short"):
            transport.loseConnection()


class Reactor:
    """A clock, and what else the tool asks of a reactor."""

    def __init__(self, clock: Any) -> None:
        self.seconds = clock.seconds
        self.callLater = clock.callLater
        self.handlers: dict[int, Any] = {}
        self._when_running: list[Callable[[], object]] = []

    def callWhenRunning(self, call: Callable[[], object]) -> None:
        self._when_running.append(call)

    def callFromThread(self, call: Callable[[], object]) -> None:
        call()

    def run(self) -> None:
        """Do what was to be done once it runs."""
        for call in self._when_running:
            call()


class ToolTestCase(TestCase):
    """The tool before a gateway in memory.

    Attributes:
        gateway: the gateway.
        printed: what it wrote to standard output.
        said: what it wrote to standard error.
    """

    def setUp(self) -> None:
        super().setUp()
        self.gateway = ScriptedGateway()
        self.printed, self.said = io.StringIO(), io.StringIO()
        self.environ: dict[str, str] = {"TOKEN": TOKEN}
        self.use(self.clock, self.gateway.servers)

    def again(self) -> None:
        """Begin afresh, before a new gateway."""
        self.assertEqual(self.clock.getDelayedCalls(), [], "timers left on the clock")
        self.setUp()

    def use(self, clock: Any, servers: dict[int, Any]) -> None:
        """Let the tool run by this clock, before these servers."""
        self.time = clock
        self.reactor = Reactor(clock)
        network = Network(clock, servers)
        self.patch(
            tool,
            "UpstreamAgent",
            lambda reactor, **bounds: UpstreamAgent(clock, endpoints=network, **bounds),
        )
        self.patch(sys, "stdout", self.printed)
        self.patch(sys, "stderr", self.said)
        self.patch(signal, "signal", self.reactor.handlers.__setitem__)

    def begin(self, *arguments: str, admin: bool = True) -> Deferred[None]:
        """Start it."""
        line = [PUBLIC, *(["--admin", ADMIN] if admin else []), *arguments]
        chosen = commandline.options(line)
        wanted = settings.read(chosen, self.environ)
        console = Console(commandline.PROGRAM)
        made = Deferred.fromCoroutine(tool._check(self.reactor, console, chosen, wanted, self.date))
        self.reactor.run()
        self.settle()
        return made

    def date(self) -> float:
        """The seconds since the epoch."""
        return EPOCH

    def settle(self) -> None:
        """Let everything happen that can happen now."""
        clock: Clock = self.time
        while any(call.getTime() <= clock.seconds() for call in clock.getDelayedCalls()):
            clock.advance(0)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        for _ in range(round(seconds * 2)):
            self.time.advance(0.5)
            self.settle()

    def check(self, *arguments: str, admin: bool = True, seconds: float = 0) -> int:
        """Run it to its end, for at most so long; gives the exit status."""
        made = self.begin(*arguments, admin=admin)
        self.advance(seconds)
        return self.status(made)

    def status(self, made: Deferred[None]) -> int:
        """The exit status of a run that has ended."""
        codes: list[int] = []

        def failed(failure: Any) -> None:
            failure.trap(SystemExit)
            codes.append(failure.value.code)

        made.addCallbacks(lambda _: codes.append(0), failed)  # type: ignore[unused-awaitable]
        self.assertEqual(len(codes), 1, f"it has not ended\n{self.printed.getvalue()}")
        return codes[0]

    def rows(self) -> dict[str, tuple[str, str]]:
        """The table: check and subject -> verdict, and what was said of it."""
        found = {}
        for line in self.printed.getvalue().splitlines():
            if not line.strip():
                break
            verdict, name = line[:8].strip(), line[10:28].strip()
            subject, _, said = line[39:].partition(": ")
            known = " " not in subject and bool(subject)
            key = f"{name} {subject}" if known else name
            found[key] = (verdict, said if known else line[39:])
        return found

    def verdicts(self) -> dict[str, str]:
        """The table without what was said."""
        return {name: verdict for name, (verdict, _) in self.rows().items()}


def named(names: Iterable[str], verdict: str = "ok") -> dict[str, str]:
    """The same verdict for each."""
    return dict.fromkeys(names, verdict)
