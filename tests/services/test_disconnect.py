from __future__ import annotations

from collections.abc import Callable

from tests.auth import issuer
from tests.services.stack import ServicesTestCase
from tests.stack import Client
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.web import reading

CONFIG = """
adapters:
  memory: {upstream: "http://10.2.0.1:8080", client: {id: g, secret: s}}
  s3: {upstream: "http://10.3.0.1:9000", accessKey: AK, secretKey: SK}
drainSeconds: 3
auth: {issuer: "https://issuer.example", audience: gateway, jwksUrl: "http://10.9.0.1/jwks",
       tokenUrl: "http://10.9.0.2/token"}
"""
HALF = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf"
REFUSAL = b"HTTP/1.1 500 Oops\r\ncontent-length: 100\r\n\r\nhalf"


class LeavingTests(ServicesTestCase):
    """A client may leave at any moment: at each await everything is given back."""

    config = CONFIG

    def setUp(self) -> None:
        # All that is read counts, be it as short as it is here.
        self.patch(reading, "UNCOUNTED_BYTES", 0)
        super().setUp()

    # Each brings a request to one await of its path.

    def waiting_for_keys(self) -> Client:
        return self.ask(token=issuer.token("ec-9", self.stack.now))

    def waiting_for_our_token(self) -> Client:
        return self.ask()

    def with_our_token(self) -> Client:
        client = self.ask()
        self.stack.engine("10.9.0.2", 80).last.answer(
            body={"access_token": "t", "token_type": "bearer"}
        )
        return client

    def connecting(self) -> Client:
        self.stack.engine("10.3.0.1", 9000).accept = lambda *_: None  # type: ignore[method-assign]
        return self.get()

    def get(self) -> Client:
        return self.ask("s3", "get", method="GET", path="/?bucket=b&key=k", body=b"")

    def reading_a_refusal(self) -> Client:
        client = self.get()
        self.stack.engine("10.3.0.1", 9000).last.send(REFUSAL)
        return client

    def reading_a_listing(self) -> Client:
        client = self.ask("s3", "list", method="GET", path="/?bucket=b", body=b"")
        self.stack.engine("10.3.0.1", 9000).last.send(HALF)
        return client

    def relaying(self) -> Client:
        client = self.get()
        self.stack.engine("10.3.0.1", 9000).last.send(HALF)
        return client

    def relaying_paused(self) -> Client:
        client = self.get()
        client.wire.congested = True
        self.stack.engine("10.3.0.1", 9000).last.send(HALF)
        return client

    def put(self, token: str, framing: str = "Content-Length: 9") -> Client:
        return self.stack.client().send(
            f"PUT /?bucket=b&key=k HTTP/1.1\r\nHost: g\r\nX-Service: s3\r\nX-Resource: put\r\n"
            f"Authorization: Bearer {token}\r\n{framing}\r\n\r\n".encode()
        )

    def putting_waiting_for_keys(self) -> Client:
        return self.put(issuer.token("ec-9", self.stack.now)).send(b"abc")

    def putting_connecting(self) -> Client:
        self.stack.engine("10.3.0.1", 9000).accept = lambda *_: None  # type: ignore[method-assign]
        return self.put(self.token()).send(b"abc")

    def putting(self) -> Client:
        return self.put(self.token()).send(b"abc")

    def putting_paused(self) -> Client:
        client = self.putting()
        self.stack.engine("10.3.0.1", 9000)._wires[-1][0].congested = True
        return client.send(b"d")

    def putting_waiting_for_the_answer(self) -> Client:
        return self.putting().send(b"defghi")

    def putting_reading_the_answer(self) -> Client:
        client = self.putting().send(b"defghi")
        self.stack.engine("10.3.0.1", 9000).last.send(HALF)
        return client

    def putting_chunked(self) -> Client:
        return self.put(self.token(), "Transfer-Encoding: chunked").send(b"3\r\nabc\r\n")

    def places(self) -> list[Callable[[], Client]]:
        return [
            *(self.waiting_for_keys, self.waiting_for_our_token, self.with_our_token),
            *(self.connecting, self.get, self.reading_a_refusal, self.reading_a_listing),
            *(self.relaying, self.relaying_paused, self.putting_waiting_for_keys),
            *(self.putting_connecting, self.putting, self.putting_paused, self.putting_chunked),
            *(self.putting_waiting_for_the_answer, self.putting_reading_the_answer),
        ]

    def check(self, place: Callable[[], Client], end: Callable[[Client], None]) -> None:
        """Bring a request somewhere, end it, and look what is left."""
        self.tearDown()
        self.setUp()
        client = place()
        self.assertEqual(len(self.stack.gateway.exchanges), 1, place.__name__)
        end(client)
        self.stack.settle()
        left = {
            "exchanges": len(self.stack.gateway.exchanges),
            "held": self.stack.gateway._held.now,
            "inflight": self.stack.metric("gateway_inflight", model=""),
            "open": [
                wire
                for wire, _ in self.stack.engine("10.3.0.1", 9000)._wires
                if not (wire.closed or wire.aborted)
            ],
        }
        self.assertEqual(
            left, {"exchanges": 0, "held": 0, "inflight": 0, "open": []}, place.__name__
        )

    def test_leaving(self) -> None:
        """The client leaves."""
        for place in self.places():
            self.check(place, lambda client: client.leave())
            self.assertIs(self.stack.entries[-1].outcome, Outcome.CLIENT_DISCONNECT, place.__name__)

    def test_end_of_drain(self) -> None:
        """The drain ends: whoever can still be told is, and nobody takes half for whole."""

        def drain(client: Client) -> None:
            drained = self.stack.gateway.drain()
            self.stack.advance(4)
            told = client.received.startswith(b"HTTP/1.1 503")
            self.assertTrue(told or client.wire.aborted, client.received)
            self.stack.advance(12)
            client.leave()
            self.successResultOf(drained)

        for place in self.places():
            self.check(place, drain)
            self.assertIn(
                self.stack.entries[-1].outcome,
                (Outcome.REJECTED, Outcome.UPSTREAM_TIMEOUT),
                place.__name__,
            )
