"""Opening a connection to an upstream: an endpoint, an exact bound on the time, a TLS handshake."""

from __future__ import annotations

from typing import Any, cast

from OpenSSL import SSL
from service_identity import VerificationError
from twisted.internet.abstract import isIPAddress, isIPv6Address
from twisted.internet.defer import CancelledError, Deferred, maybeDeferred
from twisted.internet.endpoints import (
    HostnameEndpoint,
    TCP4ClientEndpoint,
    TCP6ClientEndpoint,
)
from twisted.internet.error import (
    ConnectionRefusedError,
    DNSLookupError,
    NoRouteError,
    SSLError,
    TimeoutError,
)
from twisted.internet.interfaces import (
    IAddress,
    IDelayedCall,
    IOpenSSLClientConnectionCreator,
    IProtocol,
    IProtocolFactory,
    IReactorTime,
    IStreamClientEndpoint,
)
from twisted.internet.protocol import Factory
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure
from twisted.web.client import URI
from twisted.web.iweb import IAgentEndpointFactory, IPolicyForHTTPS
from zope.interface import implementer

from twisted_gateway.upstream.connection import Connection, Origin
from twisted_gateway.upstream.errors import (
    ConnectFailed,
    ConnectTimedOut,
    HandshakeFailed,
    UpstreamError,
)


@implementer(IAgentEndpointFactory)
class DirectEndpoints:
    """Endpoints straight to the host: no resolver thread for IP literals, TLS for https.

    None of them bounds its time: `ConnectAttempt` does.
    """

    def __init__(self, reactor: Any, tls_policy: IPolicyForHTTPS) -> None:
        """Take the reactor (IReactorTCP, IReactorTime, a name resolver) and the policy for TLS."""
        self._reactor = reactor
        self._tls_policy = tls_policy

    def endpointForURI(self, uri: URI) -> IStreamClientEndpoint:
        """The endpoint for the host, port and scheme of `uri`; names race their addresses."""
        host = uri.host.decode("ascii")
        endpoint: IStreamClientEndpoint
        # None: the reactor sets no bound of its own; zero would be one.
        if isIPAddress(host):
            endpoint = TCP4ClientEndpoint(self._reactor, host, uri.port, timeout=cast(float, None))
        elif isIPv6Address(host):
            endpoint = TCP6ClientEndpoint(self._reactor, host, uri.port, timeout=None)
        else:
            endpoint = HostnameEndpoint(
                self._reactor, uri.host, uri.port, timeout=cast(float, None)
            )
        if uri.scheme == b"https":
            creator = self._tls_policy.creatorForNetloc(uri.host, uri.port)
            endpoint = _TLSEndpoint(self._reactor, creator, endpoint)
        return endpoint


@implementer(IStreamClientEndpoint)
class _TLSEndpoint:
    """`endpoints.wrapClientTLS`, but on the reactor that it is given instead of the global one."""

    def __init__(
        self,
        clock: IReactorTime,
        creator: IOpenSSLClientConnectionCreator,
        endpoint: IStreamClientEndpoint,
    ) -> None:
        self._clock = clock
        self._creator = creator
        self._endpoint = endpoint

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """Connect; the handshake is only begun when the Deferred fires."""
        factory = TLSMemoryBIOFactory(self._creator, True, protocolFactory, self._clock)
        return self._endpoint.connect(factory)


class ConnectAttempt(Factory):
    """One attempt to connect, which ends exactly once.

    It owns its connection until it is open: for https until the handshake is complete, so the
    bound covers the handshake too and a bad certificate is a failure to connect.

    Attributes:
        result: fires with the Connection, or fails with ConnectFailed, ConnectTimedOut or what
            `abandon` was given; cancelling it gives the attempt up, at whatever stage.
    """

    noisy = False

    def __init__(self, clock: IReactorTime, origin: Origin, max_head_bytes: int) -> None:
        """Take what the connection will need."""
        self.result: Deferred[Connection] = Deferred(self._cancelled)
        self._clock = clock
        self._origin = origin
        self._max_head_bytes = max_head_bytes
        self._timer: IDelayedCall | None = None
        self._connecting: Deferred[Any] | None = None
        self._connection: Connection | None = None
        self._over = False

    def start(self, endpoints: IAgentEndpointFactory, seconds: float) -> None:
        """Begin; the attempt fails after `seconds`, whatever the endpoint does."""
        host = self._origin.host
        netloc = b"%b:%d" % (b"[%b]" % host if b":" in host else host, self._origin.port)
        uri = URI(self._origin.scheme, netloc, host, self._origin.port, b"/", b"", b"", b"")
        self._timer = self._clock.callLater(seconds, self._expired)
        dialled = maybeDeferred(self._dial, endpoints, uri)
        dialled = dialled.addCallbacks(self._connected, self._refused)
        if not self._over:
            self._connecting = dialled

    def abandon(self, error: UpstreamError) -> None:
        """End the attempt with `error`, unless it has ended."""
        self._settle(error)

    def buildProtocol(self, addr: IAddress | None) -> Connection | None:
        """Make the connection; None, which aborts, once the attempt is over."""
        if self._over:
            return None
        self._connection = Connection(self._origin, self, self._max_head_bytes)
        return self._connection

    def ready(self, connection: Connection) -> None:
        """The handshake is complete."""
        self._settle(None)

    def idle(self, connection: Connection) -> None:
        """Nothing is exchanged during an attempt."""

    def spoiled(self, connection: Connection) -> None:
        """The attempt aborts what it gives up itself."""

    def lost(self, connection: Connection, reason: Failure) -> None:
        """The connection ended before it was open."""
        self._settle(HandshakeFailed(_handshake_fault(reason)))

    def _dial(self, endpoints: IAgentEndpointFactory, uri: URI) -> Deferred[Any]:
        endpoint: IStreamClientEndpoint = endpoints.endpointForURI(uri)
        return endpoint.connect(self)

    def _connected(self, _: object) -> None:
        if self._origin.scheme == b"http":
            self._settle(None)

    def _refused(self, failure: Failure) -> None:
        self._settle(_connect_error(failure))

    def _expired(self) -> None:
        self._settle(ConnectTimedOut("no connection within the time allowed"))

    def _cancelled(self, _: object) -> None:
        self._end(keep=False)

    def _settle(self, error: UpstreamError | None) -> None:
        if self._over:
            return
        connection = self._connection
        self._end(keep=error is None)
        if error is not None:
            self.result.errback(error)
        elif connection is None:
            self.result.errback(ConnectFailed("the endpoint made no connection"))
        else:
            self.result.callback(connection)

    def _end(self, *, keep: bool) -> None:
        """Let go of everything; the connection is aborted unless it is to be kept."""
        self._over = True
        timer, self._timer = self._timer, None
        connecting, self._connecting = self._connecting, None
        connection, self._connection = self._connection, None
        if timer is not None and timer.active():
            timer.cancel()
        if keep:
            return
        if connecting is not None:
            connecting.cancel()
        if connection is not None:
            connection.abort()


def _connect_error(failure: Failure) -> ConnectFailed:
    fault = failure.value
    if isinstance(fault, ConnectFailed):
        return fault
    if isinstance(fault, ConnectionRefusedError):
        return ConnectFailed("the connection was refused", refused=True)
    if isinstance(fault, TimeoutError):
        return ConnectTimedOut("the connection timed out")
    if isinstance(fault, DNSLookupError):
        return ConnectFailed("the name of the host is unknown")
    if isinstance(fault, NoRouteError):
        return ConnectFailed("there is no route to the host")
    if isinstance(fault, CancelledError):
        return ConnectFailed("the endpoint gave the connection up")
    return ConnectFailed(f"the connection failed ({type(fault).__name__})")


def _handshake_fault(reason: Failure) -> str:
    fault = reason.value
    if isinstance(fault, VerificationError):
        return "the TLS handshake failed: the certificate is for another name"
    if isinstance(fault, SSL.Error | SSLError) and fault.args and isinstance(fault.args[0], list):
        words = "; ".join(str(entry[-1]) for entry in fault.args[0])
        return f"the TLS handshake failed: {words}" if words else "the TLS handshake failed"
    return "the connection ended before it was open"
