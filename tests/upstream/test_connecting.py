"""Behaviour of the endpoints that the agent connects by: addresses, names, TLS."""

from __future__ import annotations

import datetime
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IHostnameResolver, IReactorPluggableNameResolver
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.ssl import Certificate, CertificateOptions, PrivateCertificate
from twisted.internet.testing import MemoryReactorClock
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.test.iosim import FakeTransport, connect
from twisted.web.client import BrowserLikePolicyForHTTPS
from zope.interface import implementer

from tests.support import TestCase
from tests.upstream.network import OK, Reader
from twisted_gateway.upstream.agent import UpstreamAgent
from twisted_gateway.upstream.errors import ConnectFailed, ConnectTimedOut
from twisted_gateway.upstream.response import UpstreamResponse


@implementer(IHostnameResolver)
class Resolver:
    """Resolves every name, at once, to 127.0.0.1."""

    def resolveHostName(
        self, resolutionReceiver: Any, hostName: str, portNumber: int = 0, *rest: Any, **more: Any
    ) -> Any:
        resolutionReceiver.resolutionBegan(self)
        resolutionReceiver.addressResolved(IPv4Address("TCP", "127.0.0.1", portNumber))
        resolutionReceiver.resolutionComplete()
        return self


@implementer(IReactorPluggableNameResolver)
class Reactor(MemoryReactorClock):
    """A reactor in memory; that of Twisted 24.11 resolves no names by itself."""

    nameResolver = Resolver()

    def installNameResolver(self, resolver: IHostnameResolver) -> IHostnameResolver:
        raise NotImplementedError


class AddressTests(TestCase):
    """Plain connections."""

    def setUp(self) -> None:
        super().setUp()
        self.clock = self.reactor = Reactor()
        self.agent = UpstreamAgent(self.reactor, connect_seconds=5)

    def test_addresses(self) -> None:
        """IP literals are connected to as they are, names to what they resolve to."""
        for uri, expected in (
            (b"http://10.0.0.1:8000/", ("10.0.0.1", 8000)),
            (b"http://[::1]:8000/", ("::1", 8000)),
            (b"http://engine/", ("127.0.0.1", 80)),
        ):
            result = self.agent.request(b"GET", uri)
            host, port, _, timeout, _ = self.reactor.tcpClients[-1]
            self.assertEqual((host, port), expected)
            self.assertIsNone(timeout, "the reactor's own bound: zero would end it at once")
            result.cancel()
            self.failureResultOf(result)

    def test_timeout(self) -> None:
        """The bound ends the attempt and leaves no timer, for names too."""
        for uri in (b"http://10.0.0.1/", b"http://[::1]/", b"http://engine/"):
            result = self.agent.request(b"GET", uri)
            self.reactor.advance(5)
            self.failureResultOf(result, ConnectTimedOut)
            self.assertEqual(self.reactor.getDelayedCalls(), [])


def make_certificate(name: str) -> tuple[bytes, bytes]:
    """A self-signed certificate for `name`, and its key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    today = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(today - datetime.timedelta(days=1))
        .not_valid_after(today + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return certificate.public_bytes(serialization.Encoding.PEM), private


class Server(Protocol):
    """Keeps what it reads."""

    def __init__(self) -> None:
        self.seen = b""

    def dataReceived(self, data: bytes) -> None:
        self.seen += data


class TLSTests(TestCase):
    """https, with a real TLS engine on both sides of a pipe in memory."""

    certificate, key = make_certificate("engine")

    def setUp(self) -> None:
        super().setUp()
        self.clock = self.reactor = Reactor()

    def shake(self, trusted: bytes, uri: bytes) -> tuple[Deferred[UpstreamResponse], Server]:
        """Send a request to a server that has the certificate of `engine`."""
        policy = BrowserLikePolicyForHTTPS(trustRoot=Certificate.loadPEM(trusted))
        agent = UpstreamAgent(self.reactor, connect_seconds=5, tls_policy=policy)
        self.agent = agent
        self.addCleanup(self.leave, agent)
        result = agent.request(b"GET", uri)
        factory = self.reactor.tcpClients[-1][2]
        own = PrivateCertificate.loadPEM(self.certificate + self.key)
        options: CertificateOptions = own.options()
        server = Server()
        outer = TLSMemoryBIOFactory(
            options, False, Factory.forProtocol(lambda: server), self.reactor
        )
        server_protocol: Any = outer.buildProtocol(None)
        client_protocol = factory.buildProtocol(None)
        self.pump = connect(
            server_protocol,
            FakeTransport(server_protocol, True),
            client_protocol,
            FakeTransport(client_protocol, False),
        )
        self.flush()
        return result, server

    def flush(self) -> None:
        """Let everything pass; TLS gathers small writes until the next turn."""
        for _ in range(3):
            self.pump.flush()
            self.reactor.advance(0)

    def leave(self, agent: UpstreamAgent) -> None:
        closed = agent.close()
        self.flush()
        self.successResultOf(closed)

    def test_exchange(self) -> None:
        """A request and its answer pass, twice, over one TLS connection."""
        result, server = self.shake(self.certificate, b"https://engine/x")
        self.assertIn(b"GET /x HTTP/1.1\r\nHost: engine\r\n", server.seen)
        self.answer(server, result)
        again = self.agent.request(b"GET", b"https://engine/again")
        self.flush()
        self.assertIn(b"GET /again", server.seen)
        self.answer(server, again)
        self.assertEqual(len(self.reactor.tcpClients), 1)

    def answer(self, server: Server, result: Deferred[UpstreamResponse]) -> None:
        assert server.transport is not None
        server.transport.write(OK)
        self.flush()
        reader = Reader()
        self.successResultOf(result).deliverBody(reader)
        self.assertEqual(reader.body, b"hello")

    def test_wrong_name(self) -> None:
        """A certificate for another name is a failure to connect; the request is not sent."""
        result, server = self.shake(self.certificate, b"https://other/x")
        error = self.failureResultOf(result, ConnectFailed).value
        self.assertIn("another name", str(error))
        self.assertEqual(server.seen, b"")

    def test_untrusted(self) -> None:
        """A certificate that nobody trusted signed is one too, and says so."""
        other, _ = make_certificate("engine")
        result, server = self.shake(other, b"https://engine/x")
        error = self.failureResultOf(result, ConnectFailed).value
        self.assertIn("certificate", str(error))
        self.assertEqual(server.seen, b"")
