"""A network in memory for tests of the upstream client: the server's side is the test's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from twisted.internet.defer import Deferred
from twisted.internet.error import (
    ConnectionAborted,
    ConnectionDone,
)
from twisted.internet.interfaces import IConsumer, IProtocol, IProtocolFactory, ITCPTransport
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.web.client import URI, ResponseDone
from twisted.web.http_headers import Headers
from twisted.web.iweb import (
    UNKNOWN_LENGTH,
    IAgentEndpointFactory,
    IBodyProducer,
)
from zope.interface import directlyProvides, implementer, providedBy

from tests.support import TestCase
from twisted_gateway.upstream.agent import UpstreamAgent
from twisted_gateway.upstream.connection import Connection
from twisted_gateway.upstream.errors import (
    UpstreamError,
)
from twisted_gateway.upstream.response import UpstreamResponse

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: 1\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;ext=1\r\nde\r\n"
    b"0\r\nTrailer: x\r\n\r\n"
)
HTTP10 = b"HTTP/1.0 200 OK\r\n\r\nhello"


class MemoryTransport(StringTransport):
    """Keeps each write; closes, as a reactor does, one turn after it was asked to."""

    protocol: IProtocol

    def __init__(self, clock: Clock) -> None:
        super().__init__(lenient=True)
        directlyProvides(self, providedBy(self), ITCPTransport)
        self.clock = clock
        self.writes: list[bytes] = []
        self.closed = ""
        self.no_delay = False
        self.pauses = 0

    def setTcpNoDelay(self, enabled: bool) -> None:
        self.no_delay = enabled

    def pauseProducing(self) -> None:
        self.pauses += 1
        super().pauseProducing()

    def write(self, data: bytes) -> None:
        self.writes.append(data)
        super().write(data)

    def writeSequence(self, data: Any) -> None:
        self.write(b"".join(data))

    def loseConnection(self) -> None:
        self._close("lose", ConnectionDone())

    def abortConnection(self) -> None:
        self._close("abort", ConnectionAborted())

    def _close(self, how: str, reason: Exception) -> None:
        if not self.closed:
            self.closed = how
            self.clock.callLater(0, self.protocol.connectionLost, Failure(reason))


class Socket:
    """The server's side of one connection."""

    def __init__(self, clock: Clock, factory: IProtocolFactory) -> None:
        self.transport = MemoryTransport(clock)
        protocol = factory.buildProtocol(None)  # type: ignore[arg-type]
        self.protocol = cast(Connection, protocol)
        self.transport.protocol = self.protocol
        self.protocol.makeConnection(self.transport)

    @property
    def sent(self) -> bytes:
        """All bytes that the client wrote since this was last asked."""
        value: bytes = self.transport.value()
        self.transport.clear()
        return value

    def say(self, data: bytes) -> None:
        """The client reads this in one read."""
        self.protocol.dataReceived(data)

    def end(self, reason: Exception | None = None) -> None:
        """The server closes, or the connection breaks."""
        self.transport.closed = self.transport.closed or "peer"
        self.protocol.connectionLost(Failure(reason or ConnectionDone()))


class Dial:
    """One call of an endpoint's `connect`."""

    def __init__(self, net: Network, uri: URI, factory: IProtocolFactory) -> None:
        self.net = net
        self.uri = uri
        self.factory = factory
        self.cancelled = False
        self.result: Deferred[IProtocol] = Deferred(self._cancel)

    def _cancel(self, _: object) -> None:
        self.cancelled = True

    def accept(self) -> Socket:
        socket = Socket(self.net.clock, self.factory)
        self.net.sockets.append(socket)
        self.result.callback(socket.protocol)
        return socket


@implementer(IAgentEndpointFactory)
class Network:
    """Endpoints in memory; connects at once unless `manual`."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.manual = False
        self.dials: list[Dial] = []
        self.sockets: list[Socket] = []

    def endpointForURI(self, uri: URI) -> Any:
        return _Endpoint(self, uri)


class _Endpoint:
    def __init__(self, net: Network, uri: URI) -> None:
        self.net = net
        self.uri = uri

    def connect(self, factory: IProtocolFactory) -> Deferred[IProtocol]:
        dial = Dial(self.net, self.uri, factory)
        self.net.dials.append(dial)
        if not self.net.manual:
            dial.accept()
        return dial.result


class Reader(Protocol):
    """Notes what a body's protocol is told."""

    def __init__(self, on_data: Callable[[Reader], None] | None = None) -> None:
        self.pieces: list[bytes] = []
        self.ends: list[Exception] = []
        self.on_data = on_data

    def dataReceived(self, data: bytes) -> None:
        assert not self.ends, "data after the end"
        self.pieces.append(data)
        if self.on_data is not None:
            self.on_data(self)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        assert isinstance(reason.value, Exception)
        self.ends.append(reason.value)

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def end(self) -> Exception:
        """The one end."""
        assert len(self.ends) == 1, self.ends
        return self.ends[0]

    @property
    def tap(self) -> Any:
        """The transport, whatever it offers."""
        return self.transport


@implementer(IBodyProducer)
class HandProducer:
    """A body that the test writes by hand."""

    def __init__(self, length: Any = UNKNOWN_LENGTH) -> None:
        self.length = length
        self.starts = 0
        self.events: list[str] = []
        self.consumer: Any = None
        self.done: Deferred[None] = Deferred()

    def startProducing(self, consumer: IConsumer) -> Deferred[None]:
        self.starts += 1
        self.consumer = consumer
        self.done = Deferred()
        return self.done

    def pauseProducing(self) -> None:
        self.events.append("pause")

    def resumeProducing(self) -> None:
        self.events.append("resume")

    def stopProducing(self) -> None:
        self.events.append("stop")


class AgentTestCase(TestCase):
    """An agent on a network in memory."""

    def setUp(self) -> None:
        super().setUp()
        self.start()

    def start(self, **options: Any) -> None:
        """Begin afresh, with options of the agent's."""
        self.net = Network(self.clock)
        options.setdefault("connect_seconds", 5.0)
        self.agent = UpstreamAgent(self.clock, endpoints=self.net, **options)
        self.results: list[Deferred[UpstreamResponse]] = []
        self.addCleanup(self.leave, self.agent, self.results)

    def leave(self, agent: UpstreamAgent, results: list[Deferred[UpstreamResponse]]) -> None:
        """Close the agent; requests that the test left in flight fail, which is no news."""
        closed = agent.close()
        self.clock.advance(0)
        self.successResultOf(closed)
        for result in results:
            result.addErrback(lambda failure: None)  # type: ignore[unused-awaitable]

    def ask(
        self,
        method: bytes = b"GET",
        uri: bytes = b"http://engine:8000/v1/models",
        headers: Headers | None = None,
        body: Any = None,
    ) -> Deferred[UpstreamResponse]:
        result = self.agent.request(method, uri, headers, body)
        self.results.append(result)
        return result

    def send(self, **request: Any) -> None:
        """Ask, and take no interest in the answer."""
        self.ask(**request)  # type: ignore[unused-awaitable]

    def answered(self, result: Deferred[UpstreamResponse]) -> tuple[UpstreamResponse, Reader]:
        """The answer that has come, and a reader that its body is delivered to."""
        response = self.successResultOf(result)
        reader = Reader()
        response.deliverBody(reader)
        return response, reader

    def socket(self, index: int = -1) -> Socket:
        return self.net.sockets[index]

    def whole(self, **request: Any) -> Socket:
        """Have one request answered whole; its connection."""
        result = self.ask(**request)
        socket = self.socket()
        socket.say(OK)
        _, reader = self.answered(result)
        self.assertIsInstance(reader.end, ResponseDone)
        socket.sent  # noqa: B018 -- reading it clears it
        return socket

    def fails(self, result: Deferred[Any], kind: type[UpstreamError]) -> UpstreamError:
        error = self.failureResultOf(result, kind).value
        assert type(error) is kind, error
        return error
