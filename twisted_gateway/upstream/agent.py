"""The HTTP/1.1 client for upstreams: an IAgent with a pool, made for a gateway.

A gateway must know whether a connection came from the pool (a silent retry is right only then),
wants one write per read, bounds heads, and aborts exactly. One request goes

    request -> a pooled connection, or a ConnectAttempt -> Connection.exchange -> UpstreamResponse

and ends, when it is cancelled, at whatever stage it is.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.python.failure import Failure
from twisted.web.client import BrowserLikePolicyForHTTPS
from twisted.web.http_headers import Headers
from twisted.web.iweb import (
    IAgent,
    IAgentEndpointFactory,
    IBodyProducer,
    IPolicyForHTTPS,
)
from zope.interface import implementer

from twisted_gateway.upstream.connecting import ConnectAttempt, DirectEndpoints
from twisted_gateway.upstream.connection import Connection, Origin
from twisted_gateway.upstream.errors import (
    Aborted,
    Disconnected,
    InvalidRequest,
    UpstreamError,
)
from twisted_gateway.upstream.pool import IdlePool
from twisted_gateway.upstream.request_head import parse_address, render_head
from twisted_gateway.upstream.response import SentRequest, UpstreamResponse

_IDEMPOTENT = frozenset({b"GET", b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"TRACE"})


@implementer(IAgent)
class UpstreamAgent:
    """Sends requests to upstreams over kept-alive HTTP/1.1 connections.

    Requests never wait for a place: each takes an idle connection or opens one. Nothing is
    followed, decoded or remembered: no redirects, codings or cookies.
    """

    def __init__(
        self,
        reactor: Any,
        *,
        connect_seconds: float,
        endpoints: IAgentEndpointFactory | None = None,
        idempotent_only: bool = False,
        idle_seconds: float = 4.0,
        max_idle_per_host: int = 128,
        max_head_bytes: int = 65536,
        tls_policy: IPolicyForHTTPS | None = None,
    ) -> None:
        """Take the bounds.

        Args:
            reactor: IReactorTime, IReactorTCP and a name resolver; the time alone when
                `endpoints` is given.
            connect_seconds: bound on connecting, the TLS handshake included.
            endpoints: how to connect, by URI; TLS for https is then its business. Default: straight
                to the host.
            idempotent_only: whether the silent retry is for idempotent methods alone (RFC 9110,
                section 9.2.2): whoever was asked may have acted before the connection ended.
                Engines do nothing that lasts, so a POST to them may be sent again.
            idle_seconds: how long an idle connection is kept: less than the upstreams keep it
                (uvicorn: 5 s).
            max_idle_per_host: how many idle connections are kept to one scheme, host and port.
            max_head_bytes: bound on an answer's head.
            tls_policy: how https peers are verified, without `endpoints`. Default: the system's
                roots and the host's name.
        """
        if endpoints is None:
            if tls_policy is None:
                tls_policy = BrowserLikePolicyForHTTPS()
            endpoints = DirectEndpoints(reactor, tls_policy)
        self._reactor = reactor
        self._endpoints = endpoints
        self._connect_seconds = connect_seconds
        self._idempotent_only = idempotent_only
        self._max_head_bytes = max_head_bytes
        self._pool = IdlePool(reactor, idle_seconds, max_idle_per_host)
        self._connections: set[Connection] = set()
        self._attempts: set[ConnectAttempt] = set()
        self._closed = False
        self._waiters: list[Deferred[None]] = []

    def request(  # type: ignore[override]  # a narrower result; Deferred is invariant
        self,
        method: bytes,
        uri: bytes,
        headers: Headers | None = None,
        bodyProducer: IBodyProducer | None = None,
    ) -> Deferred[UpstreamResponse]:
        """Send a request.

        Args:
            method: a token.
            uri: absolute, http or https, without a user name.
            headers: `Host` is made from the URI if it is not here. Fields about framing and
                connection (Content-Length, Transfer-Encoding, TE, Trailer, Connection, Keep-Alive,
                Upgrade, Expect) are the agent's own and left out.
            bodyProducer: must be able to start again from the first byte after `stopProducing`,
                for the silent retry. A body of unknown length goes out chunked.

        Returns:
            Fires with the answer once its head is there, whatever its status; the body follows by
            `deliverBody`. Fails with an `UpstreamError`. Cancelling it drops the connection, or the
            attempt at one, at once, and fails with CancelledError. When a connection from the pool
            ends before any byte of an answer, the request is sent once more, over a new one
            (`idempotent_only`: if its method allows that).
        """
        return self.send(self._connect_seconds, method, uri, headers, bodyProducer)

    def send(
        self,
        connect_seconds: float,
        method: bytes,
        uri: bytes,
        headers: Headers | None,
        producer: IBodyProducer | None,
    ) -> Deferred[UpstreamResponse]:
        """Do what `request` does, with a bound on connecting of its own."""
        if self._closed:
            return fail(Aborted("the upstream client is closed"))
        try:
            address = parse_address(uri)
            head = render_head(method, address, headers, producer)
        except InvalidRequest as error:
            return fail(error)
        request = SentRequest(method, uri, headers)
        retried = not self._idempotent_only or method in _IDEMPOTENT
        call = _Call(self, request, address.origin, head, producer, connect_seconds, retried)
        call.start(self._pool.take(address.origin))
        return call.result

    def bound(self, connect_seconds: float) -> IAgent:
        """An agent that shares this one's pool, with a bound on connecting of its own."""
        return _BoundAgent(self, connect_seconds)

    def close(self) -> Deferred[None]:
        """Close idle connections, abort those in use, refuse requests from now on.

        Returns:
            Fires when no connection is left. Cancelling it stops nothing but the waiting.
        """
        if not self._closed:
            self._closed = True
            self._pool.close()
            for attempt in list(self._attempts):
                attempt.abandon(Aborted("the upstream client is closed"))
            for connection in list(self._connections):
                connection.shut()
        if not self._connections:
            return succeed(None)
        waiter: Deferred[None] = Deferred(self._waiters.remove)
        self._waiters.append(waiter)
        return waiter

    def connect(self, origin: Origin, connect_seconds: float) -> Deferred[Connection]:
        """Open a connection; see `ConnectAttempt.result`."""
        attempt = ConnectAttempt(self._reactor, origin, self._max_head_bytes)
        self._attempts.add(attempt)
        opened = attempt.result.addBoth(self._attempted, attempt)
        attempt.start(self._endpoints, connect_seconds)
        return opened

    def _attempted(self, result: Connection | Failure, attempt: ConnectAttempt) -> Any:
        self._attempts.discard(attempt)
        if isinstance(result, Connection):
            self._connections.add(result)
            result.owner = self
        return result

    # What connections say.

    def ready(self, connection: Connection) -> None:
        """Take no notice: a connection comes here when it is ready."""

    def idle(self, connection: Connection) -> None:
        """Keep a connection for the next request."""
        self._pool.put(connection)

    def spoiled(self, connection: Connection) -> None:
        """Give a connection to nobody any more."""
        self._pool.discard(connection)

    def lost(self, connection: Connection, reason: Failure) -> None:
        """Forget a connection."""
        self._pool.discard(connection)
        self._connections.discard(connection)
        if not self._connections:
            self._pool.rest()
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                waiter.callback(None)


@implementer(IAgent)
class _BoundAgent:
    """See `UpstreamAgent.bound`."""

    def __init__(self, agent: UpstreamAgent, connect_seconds: float) -> None:
        self._agent = agent
        self._connect_seconds = connect_seconds

    def request(  # type: ignore[override]  # a narrower result; Deferred is invariant
        self,
        method: bytes,
        uri: bytes,
        headers: Headers | None = None,
        bodyProducer: IBodyProducer | None = None,
    ) -> Deferred[UpstreamResponse]:
        """See `UpstreamAgent.request`."""
        return self._agent.send(self._connect_seconds, method, uri, headers, bodyProducer)


class _Call:
    """One request, from its start to its answer, over one connection or two."""

    def __init__(
        self,
        agent: UpstreamAgent,
        request: SentRequest,
        origin: Origin,
        head: bytes,
        producer: IBodyProducer | None,
        connect_seconds: float,
        retried: bool,
    ) -> None:
        self.result: Deferred[UpstreamResponse] = Deferred(self._cancelled)
        self._agent = agent
        self._request = request
        self._origin = origin
        self._head = head
        self._producer = producer
        self._connect_seconds = connect_seconds
        self._retried = retried
        self._connecting: Deferred[None] | None = None
        self._connection: Connection | None = None
        self._pooled = False
        self._over = False

    def start(self, pooled: Connection | None) -> None:
        """Send over `pooled`, or over a new connection if it is None."""
        if pooled is None:
            self._connect()
        else:
            self._pooled = True
            self._send(pooled)

    def responded(self, response: UpstreamResponse) -> None:
        """The answer's head is there."""
        self._connection = None
        self._over = True
        self.result.callback(response)

    def failed(self, error: UpstreamError) -> None:
        """The connection brought no answer."""
        self._connection = None
        if self._pooled and self._retried and isinstance(error, Disconnected):
            self._pooled = False
            self._connect()
        else:
            self._end(error)

    def _connect(self) -> None:
        connection = self._agent.connect(self._origin, self._connect_seconds)
        opened = connection.addCallbacks(self._send, self._unconnected)
        if not opened.called:
            self._connecting = opened

    def _send(self, connection: Connection) -> None:
        self._connecting = None
        self._connection = connection
        connection.exchange(self, self._request, self._head, self._producer)

    def _unconnected(self, failure: Failure) -> None:
        if not self._over:
            self._end(failure)

    def _end(self, error: UpstreamError | Failure) -> None:
        self._over = True
        self.result.errback(error)

    def _cancelled(self, _: object) -> None:
        self._over = True
        connecting, self._connecting = self._connecting, None
        connection, self._connection = self._connection, None
        if connecting is not None:
            connecting.cancel()
        if connection is not None:
            connection.drop()
