"""A simulated engine on a Clock, and conversations with it over in-memory connections."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from tests.support import TestCase
from twisted_gateway.demo.host import Host
from twisted_gateway.demo.scheduler import Profile
from twisted_gateway.demo.server import EngineSite

FIXTURES = Path(__file__).parent / "fixtures"
CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "hello there, how are you doing today, my friend"}]


def shape(tree: Any) -> Any:
    """The keys of a document in their order, and the kinds of its values."""
    if isinstance(tree, dict):
        return {key: shape(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [shape(item) for item in tree]
    return type(tree).__name__


def keys_in_order(tree: Any) -> Any:
    """Like `shape`, for comparing the order as well."""
    return json.dumps(shape(tree))


def run_dry(clock: Clock, until: float = 1e9) -> None:
    """Advance from one timer to the next until there is none, or `until`."""
    while (calls := clock.getDelayedCalls()) and calls[0].getTime() <= until:
        clock.advance(max(0.0, calls[0].getTime() - clock.seconds()))
    if until < 1e9:
        clock.advance(until - clock.seconds())


class _Transport(StringTransport):
    """A transport whose loss, wanted by either side, its protocol hears of."""

    protocol: Any = None
    gone = False

    def loseConnection(self) -> None:
        super().loseConnection()
        self.drop()

    def abortConnection(self) -> None:
        self.aborting = True
        self.drop()

    def drop(self) -> None:
        if not self.gone:
            self.gone = True
            self.protocol.connectionLost(Failure(ConnectionDone()))


class Answer:
    """What has come back over one connection so far."""

    def __init__(self, raw: bytes) -> None:
        head, _, rest = raw.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        self.raw = raw
        self.status = int(lines[0].split(" ")[1]) if raw else 0
        self.headers = {
            name.lower(): value for name, value in (line.split(": ", 1) for line in lines[1:])
        }
        self.whole = True
        self.body = rest
        if self.headers.get("transfer-encoding") == "chunked":
            self.body, self.whole = dechunk(rest)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[tuple[str, Any]]:
        return sse(self.body)


def dechunk(data: bytes) -> tuple[bytes, bool]:
    """The content of a chunked body, and whether its end has come."""
    parts: list[bytes] = []
    while data:
        size, _, data = data.partition(b"\r\n")
        if not int(size, 16):
            return b"".join(parts), True
        parts.append(data[: int(size, 16)])
        data = data[int(size, 16) + 2 :]
    return b"".join(parts), False


def sse(body: bytes) -> list[tuple[str, Any]]:
    """The events of a stream as (name, data); data that is JSON is decoded."""
    events = []
    for block in body.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.strip().split("\n") if line)
        if fields:
            data = fields["data"]
            events.append((fields.get("event", ""), data if data == "[DONE]" else json.loads(data)))
    return events


class Recorded(Answer):
    """An exchange with a real vLLM 0.32, as `curl -i` shows it: with the chunks undone."""

    def __init__(self, name: str) -> None:
        raw = (FIXTURES / f"{name}.http").read_bytes().replace(b"\r\n", b"\n")
        head, _, body = raw.partition(b"\n\n")
        super().__init__(head.replace(b"\n", b"\r\n") + b"\r\n\r\n")
        self.body, self.whole = body, True


class Connection:
    """One client's connection to an engine."""

    def __init__(self, site: EngineSite, peer: str = "127.0.0.1") -> None:
        self.transport = _Transport(peerAddress=IPv4Address("TCP", peer, 40000))
        self.transport.protocol = self.protocol = site.buildProtocol(None)
        self.protocol.makeConnection(self.transport)

    def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Connection:
        """Send a request; a body is JSON unless the headers say otherwise."""
        lines = [f"{method} {path} HTTP/1.1", "Host: engine"]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
            headers = {"Content-Type": "application/json", **(headers or {})}
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        self.transport.clear()
        self.protocol.dataReceived("\r\n".join(lines).encode() + b"\r\n\r\n" + (body or b""))
        return self

    @property
    def answer(self) -> Answer:
        return Answer(self.transport.value())


class EngineCase(TestCase):
    """Tests of one engine's HTTP server. `profile`, `model`, `pools` and `speed` may be set."""

    profile = Profile()
    model = "reasoning"
    pools = False
    speed = 1.0

    def setUp(self) -> None:
        super().setUp()
        numbers = count()
        self.host = Host(
            self.clock,
            self.model,
            self.profile,
            speed=self.speed,
            new_id=lambda: f"{next(numbers):016x}",
        )
        self.site = EngineSite(self.clock, self.host, pools=self.pools)
        self.addCleanup(self.site.cut)

    def send(self, method: str, path: str, document: Any = None, **headers: str) -> Connection:
        """A request on a connection of its own."""
        body = None if document is None else json.dumps(document).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return Connection(self.site).send(method, path, body, named)

    def ask(self, path: str, document: Any = None, **headers: str) -> Answer:
        """POST, and what has come back after half a minute."""
        connection = self.send("POST", path, document, **headers)
        self.clock.advance(30)
        return connection.answer
