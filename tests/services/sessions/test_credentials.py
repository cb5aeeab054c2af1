from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.services.sessions.apiserver import Reply, refusal
from tests.services.sessions.stack import PLAIN, SessionsTestCase
from tests.support import TestCase
from twisted_gateway.config.sandbox import SessionsAdapter
from twisted_gateway.config.schema import Secret
from twisted_gateway.services.sessions.credentials import Token, trust
from twisted_gateway.upstream.errors import ConnectFailed


def certificate() -> bytes:
    """A certificate that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM)


class FilesTestCase(TestCase):
    """A test with a service account's directory."""

    def setUp(self) -> None:
        super().setUp()
        self.directory = Path(self.mktemp())
        self.directory.mkdir(parents=True)

    def adapter(self, **members: Any) -> SessionsAdapter:
        directory = str(self.directory)
        members = {"service_account": directory, **members}
        return SessionsAdapter(name="s", image="i", namespace="n", **members)

    def write(self, name: str, content: bytes) -> None:
        (self.directory / name).write_bytes(content)


class TokenTests(FilesTestCase):
    """The bearer token."""

    def test_rotation(self) -> None:
        """The file is read again after a minute, or when its token is refused."""
        self.write("token", b"one\n")
        token = Token(self.adapter(), self.clock)
        self.assertEqual(token.get(), "one")
        self.write("token", b"two")
        self.assertEqual(token.get(), "one")
        self.clock.advance(60)
        self.assertEqual(token.get(), "two")
        self.assertFalse(token.refused("two"))
        self.write("token", b"three")
        self.assertTrue(token.refused("two"))
        self.assertEqual(token.get(), "three")

    def test_configured(self) -> None:
        """One that is configured needs no file, and there is no other."""
        token = Token(self.adapter(token=Secret("x"), service_account="/nowhere"), self.clock)
        self.assertEqual(token.get(), "x")
        self.assertFalse(token.refused("x"))

    def test_bad_files(self) -> None:
        """A file that is missing, empty, no token or huge is said, and not its content."""
        token = Token(self.adapter(), self.clock)
        self.assertRaises(ConnectFailed, token.get)
        for content in (b"", b"\n", b"a b", b"secret\nx", b"\xff", b"x" * 300_000):
            self.write("token", content)
            fault = self.assertRaises(ConnectFailed, token.get)
            self.assertNotIn("secret", str(fault))
        self.write("token", b"good")
        self.assertEqual(token.get(), "good")


class TrustTests(FilesTestCase):
    """The certificates that the API's is checked by."""

    def test_rotation(self) -> None:
        """The file is read for each connection, and may hold several."""
        self.write("ca.crt", certificate())
        policy = trust(self.adapter())
        policy.creatorForNetloc(b"10.0.0.1", 443)
        first = policy._policy
        policy.creatorForNetloc(b"kubernetes.default.svc", 443)
        self.assertIs(policy._policy, first)
        self.write("ca.crt", certificate() + certificate())
        policy.creatorForNetloc(b"10.0.0.1", 443)
        self.assertIsNot(policy._policy, first)

    def test_bad_files(self) -> None:
        """Without a certificate nobody is trusted."""
        policy = trust(self.adapter())
        self.assertRaises(ConnectFailed, policy.creatorForNetloc, b"h", 443)
        bad = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
        for content in (b"", b"hello", bad, certificate() + bad):
            self.write("ca.crt", content)
            self.assertRaises(ConnectFailed, policy.creatorForNetloc, b"h", 443)

    def test_another_file(self) -> None:
        """`ca` counts before the service account's."""
        self.write("other.pem", certificate())
        policy = trust(self.adapter(ca=str(self.directory / "other.pem")))
        policy.creatorForNetloc(b"h", 443)


class InForceTests(SessionsTestCase):
    """A token that rotates while the gateway runs."""

    def setUp(self) -> None:
        directory = Path(self.mktemp())
        directory.mkdir(parents=True)
        self.file = directory / "token"
        self.file.write_text("token-1")
        account = f"serviceAccount: {directory.absolute()}"
        self.config = PLAIN.replace("token: token-1", account)
        super().setUp()

    def test_rotation(self) -> None:
        """A token that is refused is read again, and the request sent once more."""
        self.running()
        self.file.write_text("token-2")
        self.api.tokens = {"token-2"}
        self.assertEqual(self.post().status, 200)
        self.api.tokens = {"token-3"}
        client = self.post()
        self.assertEqual((client.status, client.json["upstream_status"]), (502, 401))
        self.assertNotIn(b"token-2", client.received)

    def test_rotation_before_a_watch(self) -> None:
        """So is a watch that is refused, once; then it is waited for the next one."""

        def fail(verb: str, resource: str, name: str) -> Reply | None:
            if verb == "watch" and "token-2" not in self.api.tokens:
                self.file.write_text("token-2")
                self.api.tokens = {"token-2"}
                return refusal(401, "Unauthorized", "Unauthorized")
            return None

        self.api.fail = fail
        client = self.post()
        self.ready()
        self.assertEqual(client.status, 200)
        self.api.fail = lambda verb, kind, name: (
            refusal(401, "Unauthorized", "Unauthorized") if verb == "watch" else None
        )
        client = self.post("s2")
        self.stack.advance(1)
        self.api.fail = lambda verb, kind, name: None
        self.ready("s2")
        self.stack.advance(5)
        self.assertEqual(client.status, 200)
