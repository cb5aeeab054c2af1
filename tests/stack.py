"""The whole gateway on in-memory transports and a Clock: clients on one side, engines on the other.

Bytes that a client sends go through the real Site, channel, request, gate, agent and relay; only
the sockets and the time are made here. Engines answer their polls by themselves, from gauges that
the test sets, and hand every other request to the test.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry
from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionAborted, ConnectionDone, ConnectionRefusedError
from twisted.internet.interfaces import IHalfCloseableProtocol
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure

from twisted_gateway.config.load import load
from twisted_gateway.service import Gateway
from twisted_gateway.telemetry.access import AccessEntry
from twisted_gateway.telemetry.tracing import NoTracing, Tracing

CONFIG = """
models:
  reasoning:
    upstream: http://10.0.0.1:8000
    engine: vllm
    aliases: [gpt-4o]
    admission: {maxInflight: 4}
"""

PAGE = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="reasoning"}} {running}
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{engine="0",model_name="reasoning"}} {waiting}
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{{engine="0",model_name="reasoning"}} {kv}
"""


class Wire(StringTransport):
    """One end of a connection in memory, as strict as a TCP transport where the gateway cares.

    Attributes:
        aborted: whether our side cut it.
        closed: whether it is gone.
        half_closed: whether our side will write no more.
        congested: the peer takes nothing: what is written waits, and the producer is paused.
    """

    def __init__(self, clock: Any, peer: Any, dataBuffer: bytes = b"") -> None:
        super().__init__(peerAddress=peer)
        self.clock = clock
        self.protocol: Any = None
        self.aborted = False
        self.closed = False
        self.half_closed = False
        self.congested = False
        self.dataBuffer = dataBuffer
        self.offset = 0
        self._unread = b""

    def write(self, data: bytes) -> None:
        assert isinstance(data, bytes)
        if self.closed or self.disconnecting or self.half_closed or self.aborted:
            return
        super().write(data)
        if self.congested:
            self.dataBuffer += data
            if self.producer is not None:
                self.producer.pauseProducing()

    def writeSequence(self, data: Any) -> None:
        self.write(b"".join(data))

    def take(self, count: int) -> None:
        """The peer takes some of what waits for it."""
        self.offset += count

    def relieve(self) -> None:
        """The peer takes all."""
        self.congested = False
        self.dataBuffer, self.offset = b"", 0
        if self.disconnecting:
            self.clock.callLater(0, self.lose, ConnectionDone())
        if self.producer is not None:
            self.producer.resumeProducing()

    def abortConnection(self) -> None:
        if not self.closed and not self.aborted:
            self.aborted = True
            self.clock.callLater(0, self.lose, ConnectionAborted())

    def loseConnection(self) -> None:
        if not self.closed and not self.disconnecting:
            self.disconnecting = True
            if not self.congested:
                self.clock.callLater(0, self.lose, ConnectionDone())

    def loseWriteConnection(self) -> None:
        self.half_closed = True

    def deliver(self, data: bytes) -> None:
        """The peer has sent something; while our side has paused reading it waits."""
        if self.producerState == "paused":
            self._unread += data
        elif not self.closed:
            self.protocol.dataReceived(data)

    def resumeProducing(self) -> None:
        super().resumeProducing()
        if self._unread:
            self.clock.callLater(0, self._read_on)

    def _read_on(self) -> None:
        unread, self._unread = self._unread, b""
        if unread:
            self.deliver(unread)

    def getHandle(self) -> Any:
        raise AttributeError("there is no socket")

    def setTcpNoDelay(self, enabled: bool) -> None:
        pass

    def lose(self, why: Exception | None = None) -> None:
        """The connection is gone, by whoever's doing."""
        if not self.closed:
            self.closed = True
            self._unread = b""
            if IHalfCloseableProtocol.providedBy(self.protocol):
                self.protocol.readConnectionLost()
            self.protocol.connectionLost(Failure(why or ConnectionDone()))


class Client:
    """A client's connection to the gateway."""

    def __init__(self, stack: Stack, factory: Any, host: str) -> None:
        self.stack = stack
        self.wire = Wire(stack.reactor, IPv4Address("TCP", host, 40000))
        self.wire.protocol = factory.buildProtocol(self.wire.getPeer())
        self.wire.protocol.makeConnection(self.wire)
        stack.clients.append(self)

    def send(self, data: bytes) -> Client:
        """Send raw bytes."""
        self.wire.deliver(data)
        self.stack.settle()
        return self

    def post(
        self, path: str, body: bytes | dict[str, Any], headers: Mapping[str, str] | None = None
    ) -> Client:
        """Send a POST whole."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = {"Host": "gateway", "Content-Type": "application/json", **(headers or {})}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return self.send(
            f"POST {path} HTTP/1.1\r\n{head}Content-Length: {len(data)}\r\n\r\n".encode() + data
        )

    def chat(self, *, headers: Mapping[str, str] | None = None, **members: Any) -> Client:
        """Ask for a chat completion."""
        body = {"model": "reasoning", "messages": [{"role": "user", "content": "hi"}], **members}
        return self.post("/v1/chat/completions", body, headers)

    def get(self, path: str, method: str = "GET", **headers: str) -> Client:
        """Send a request without a body."""
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        return self.send(f"{method} {path} HTTP/1.1\r\nHost: gateway\r\n{lines}\r\n".encode())

    def leave(self) -> None:
        """Drop the connection."""
        self.wire.lose()
        self.stack.settle()

    @property
    def received(self) -> bytes:
        """All bytes that came, head and framing included."""
        return bytes(self.wire.value())

    @property
    def status(self) -> int:
        """The status of the first answer, 0 while there is none."""
        return int(self.received[9:12]) if self.received else 0

    @property
    def headers(self) -> dict[str, str]:
        """The header fields of the first answer, names in lower case."""
        head = self.received.partition(b"\r\n\r\n")[0].decode("latin-1")
        pairs = [line.partition(":") for line in head.split("\r\n")[1:]]
        return {name.lower(): value.strip() for name, _, value in pairs}

    @property
    def body(self) -> bytes:
        """The body of the first answer so far, without its framing."""
        data = self.received.partition(b"\r\n\r\n")[2]
        if self.headers.get("transfer-encoding") != "chunked":
            return data
        return dechunked(data)[0]

    @property
    def whole(self) -> bool:
        """Whether the first answer's framing says that it is whole."""
        data = self.received.partition(b"\r\n\r\n")[2]
        if self.headers.get("transfer-encoding") == "chunked":
            return dechunked(data)[1]
        return len(data) == int(self.headers.get("content-length", "-1"))

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class Asked:
    """A request as an engine got it, to be answered by the test."""

    def __init__(self, engine: Engine, wire: Wire, head: bytes, body: bytes) -> None:
        self.engine = engine
        self.wire = wire
        first, *lines = head.decode("latin-1").split("\r\n")
        self.method, self.path, _ = first.split(" ")
        self.raw_headers = [tuple(line.split(": ", 1)) for line in lines]
        self.headers = {name.lower(): value for name, value in self.raw_headers}
        self.body = body

    @property
    def gone(self) -> bool:
        """Whether the gateway gave the connection up."""
        return self.wire.closed or self.wire.aborted

    def send(self, data: bytes) -> Asked:
        """Send raw bytes."""
        self.wire.deliver(data)
        self.engine.stack.settle()
        return self

    def answer(
        self,
        status: int = 200,
        body: bytes | dict[str, Any] = b"{}",
        content_type: str = "application/json",
        extra: str = "",
    ) -> Asked:
        """Send a whole answer."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.send(
            f"HTTP/1.1 {status} Said\r\ncontent-type: {content_type}\r\n{extra}"
            f"content-length: {len(data)}\r\n\r\n".encode()
            + data
        )

    def stream(self, *events: bytes, extra: str = "") -> Asked:
        """Begin an event stream, with these events."""
        self.send(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
            + extra.encode()
            + b"transfer-encoding: chunked\r\n\r\n"
        )
        return self.more(*events)

    def more(self, *events: bytes) -> Asked:
        """Send more of a stream, a chunk each."""
        for event in events:
            self.send(b"%x\r\n%s\r\n" % (len(event), event))
        return self

    def end(self) -> Asked:
        """End a chunked answer."""
        return self.send(b"0\r\n\r\n")

    def die(self, why: Exception | None = None) -> None:
        """Lose the connection."""
        self.wire.lose(why)
        self.engine.stack.settle()


class Engine:
    """An engine on one address: polls answer themselves, the rest is the test's.

    Attributes:
        asked: requests that came, oldest first.
        up: whether connections are accepted.
        gauges: what `/metrics` says; None: it hangs; bytes: that very answer.
    """

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.asked: list[Asked] = []
        self.up = True
        self.gauges: dict[str, float] | bytes | None = {"running": 0, "waiting": 0, "kv": 0.0}
        self.polls = 0
        self._wires: list[tuple[Wire, int]] = []

    @property
    def last(self) -> Asked:
        """The latest request."""
        return self.asked[-1]

    def accept(self, factory: Any, host: str, port: int) -> None:
        """Take a connection, or refuse it."""
        if not self.up:
            factory.clientConnectionFailed(None, Failure(ConnectionRefusedError()))
            return
        address = IPv4Address("TCP", host, port)
        wire = Wire(self.stack.reactor, address)
        wire.protocol = factory.buildProtocol(address)
        if wire.protocol is not None:
            wire.protocol.makeConnection(wire)
            self._wires.append((wire, 0))

    def read(self) -> bool:
        """Read what has come; True when something was whole."""
        progress = False
        for index, (wire, done) in enumerate(self._wires):
            data = wire.value()[done:]
            head, found, rest = data.partition(b"\r\n\r\n")
            if not found:
                continue
            length = _content_length(head)
            if len(rest) < length:
                continue
            self._wires[index] = (wire, done + len(head) + 4 + length)
            progress = True
            self._take(Asked(self, wire, head, rest[:length]))
        return progress

    def _take(self, asked: Asked) -> None:
        if asked.path == "/v1/models":
            asked.wire.protocol.dataReceived(b"HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n")
        elif asked.path != "/metrics":
            self.asked.append(asked)
        else:
            self.polls += 1
            answer = self._page()
            if answer is not None:
                asked.wire.protocol.dataReceived(answer)

    def _page(self) -> bytes | None:
        if not isinstance(self.gauges, dict):
            return self.gauges
        page = PAGE.format(**self.gauges).encode()
        return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(page), page)


class Stack:
    """A gateway that runs; `close` when done (the constructor sees to it)."""

    def __init__(
        self,
        case: Any,
        config: str = CONFIG,
        *,
        environ: Mapping[str, str] | None = None,
        tracing: Tracing | None = None,
        engine: Callable[[Stack], Engine] | None = None,
    ) -> None:
        self.reactor: Any = MemoryReactorClock()
        self.reactor.advance(1000)
        self.entries: list[AccessEntry] = []
        self.engines: dict[tuple[str, int], Engine] = {}
        if engine is not None:
            self.engines["10.0.0.1", 8000] = engine(self)
        self.clients: list[Client] = []
        self.text = config
        self._environ = environ or {}
        self._connected = 0
        self.gateway = Gateway(
            self.reactor,
            self._load(),
            registry=CollectorRegistry(),
            tracing=tracing or NoTracing(),
            access_log=self,  # type: ignore[arg-type]
            load=self._load,
        )
        self.gateway.startService()
        case.addCleanup(self.close, case)
        self.settle()

    def ended(self, entry: AccessEntry) -> None:
        """Be the access log."""
        self.entries.append(entry)

    def _load(self) -> Any:
        return load(self.text, name="config.yaml", environ=self._environ, read_file=_no_file)

    def engine(self, host: str = "10.0.0.1", port: int = 8000) -> Engine:
        """The engine at this address."""
        return self.engines.setdefault((host, port), Engine(self))

    def client(self, host: str = "192.0.2.7", *, site: int = 0) -> Client:
        """A new client of the first, or another, listener."""
        return Client(self, self.reactor.tcpServers[site][1], host)

    def settle(self) -> None:
        """Let everything happen that can happen now."""
        progress = True
        while progress:
            progress = False
            while self._connected < len(self.reactor.tcpClients):
                host, port, factory, *_ = self.reactor.tcpClients[self._connected]
                given_up = self.reactor.connectors[self._connected].stoppedConnecting
                self._connected += 1
                if not given_up:
                    self.engine(host, port).accept(factory, host, port)
                progress = True
            for engine in list(self.engines.values()):
                progress = engine.read() or progress
            due = [call for call in self.reactor.getDelayedCalls() if call.getTime() <= self.now]
            if due:
                self.reactor.advance(0)
                progress = True

    @property
    def now(self) -> float:
        """The time."""
        return float(self.reactor.seconds())

    def advance(self, seconds: float, step: float = 0.25) -> None:
        """Let time pass, in steps."""
        until = self.now + seconds
        while self.now < until - 1e-9:
            self.reactor.advance(min(step, until - self.now))
            self.settle()

    def poll(self, running: float | None = None, **gauges: float) -> None:
        """Set gauges of the default engine and let polls come by."""
        engine = self.engine()
        if running is not None:
            engine.gauges = {"running": running, "waiting": 0, "kv": 0.0, **gauges}
        before = engine.polls
        while engine.polls == before:
            self.advance(0.25)

    @property
    def outcomes(self) -> list[str]:
        """How the requests to models ended, in order."""
        return [entry.outcome.value for entry in self.entries if entry.route.startswith("/v1/")]

    def facts(self, model: str = "reasoning") -> dict[str, Any]:
        """What `/status.json` says of a model."""
        facts: dict[str, Any] = self.gateway.operations.facts()["models"][model]
        return facts

    def metric(self, name: str, **labels: str) -> float | None:
        """A sample of the gateway's own metrics."""
        for family in self.gateway.metrics._registry.collect():
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    return float(sample.value)
        return None

    def close(self, case: Any) -> None:
        """Stop the gateway; it must leave no timer behind."""
        for client in self.clients:
            client.wire.lose()
        self.settle()
        self.gateway.stopService()
        self.settle()
        left = self.reactor.getDelayedCalls()
        case.assertEqual(left, [], "timers left behind by the gateway")


def dechunked(data: bytes) -> tuple[bytes, bool]:
    """The content of a chunked body so far, and whether it is whole."""
    out = b""
    while True:
        size, found, rest = data.partition(b"\r\n")
        if not found:
            return out, False
        count = int(size, 16)
        if count == 0:
            return out, rest.startswith(b"\r\n")
        out += rest[:count]
        data = rest[count + 2 :]


def event(**members: Any) -> bytes:
    """One event of a stream, as vLLM writes it."""
    return b"data: " + json.dumps(members).encode() + b"\n\n"


def token(text: str) -> bytes:
    """One content event of a chat stream."""
    return event(choices=[{"index": 0, "delta": {"content": text}}])


ROLE = event(choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}}])
DONE = b"data: [DONE]\n\n"


def _content_length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


def _no_file(path: str) -> str:
    raise OSError(path)
