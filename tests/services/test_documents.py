"""Documents that adapters make: long ones wait for their client within bounds."""

from __future__ import annotations

from tests.services.stack import ServicesTestCase
from tests.stack import Client
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.web.reading import UNCOUNTED_BYTES

CONFIG = """
maxHeldBytes: 250000
drainSeconds: 3
adapters:
  s3: {upstream: "http://10.3.0.1:9000", accessKey: AK, secretKey: SK, requireAuth: false,
       timeoutSeconds: 8}
"""


class DocumentTests(ServicesTestCase):
    """A listing of some 100 kB."""

    config = CONFIG

    def ask_for(self, keys: int = 100, *, takes: bool = False, method: str = "GET") -> Client:
        """Ask for a listing, which the client takes, or not."""
        client = self.ask("s3", "list", method=method, path="/?bucket=b", body=b"", token=None)
        client.wire.congested = not takes
        contents = f"<Contents><Key>{'k' * 900}</Key></Contents>" * keys
        body = f"<ListBucketResult>{contents}</ListBucketResult>"
        self.stack.engine("10.3.0.1", 9000).last.answer(200, body.encode())
        return client

    @property
    def held(self) -> int:
        held: int = self.stack.gateway._held.now
        return held

    def test_taken(self) -> None:
        """It comes whole, as a short one does, and then counts no more."""
        for keys in (1, 100):
            client = self.ask_for(keys, takes=True)
            self.assertEqual((client.status, len(client.json["objects"])), (200, keys))
            self.assertTrue(client.whole)
            self.assertTrue(client.received.startswith(b"HTTP/1.1 200 OK\r\n"))
            self.assertEqual(client.headers["content-type"], "application/json")
            self.assertIs(self.stack.entries[-1].outcome, Outcome.OK)
        self.assertEqual(self.held, 0)

    def test_counted(self) -> None:
        """While a client does not take it it counts against `maxHeldBytes`, past which is 503."""
        waiting = [self.ask_for(), self.ask_for()]
        self.assertGreater(self.held, 2 * UNCOUNTED_BYTES)
        refused = self.ask_for(takes=True)
        self.assertEqual((refused.status, refused.json["reason"]), (503, "queue_full"))
        self.assertIn("retry-after", refused.headers)
        # Short ones count nowhere, nor does what is not sent.
        self.assertEqual(self.ask_for(1, takes=True).status, 200)
        self.assertEqual(self.ask_for(takes=True, method="HEAD").status, 200)
        waiting[0].wire.relieve()
        self.stack.settle()
        self.assertTrue(waiting[0].whole)
        self.assertEqual(self.ask_for(takes=True).status, 200)

    def test_stalled(self) -> None:
        """A client that takes nothing for a minute is cut; the service's own time stands still."""
        client = self.ask_for()
        self.stack.advance(50)
        self.assertFalse(client.wire.aborted)
        self.stack.advance(30)
        self.assertTrue(client.wire.aborted)
        self.assertIs(self.stack.entries[-1].outcome, Outcome.CLIENT_STALLED)
        self.assertEqual(self.held, 0)

    def test_slow(self) -> None:
        """One that takes it slowly is not."""
        client = self.ask_for()
        for _ in range(8):
            client.wire.take(1000)
            self.stack.advance(20)
        self.assertFalse(client.wire.aborted)
        client.wire.relieve()
        self.stack.settle()
        self.assertTrue(client.whole)
        self.assertIs(self.stack.entries[-1].outcome, Outcome.OK)

    def test_leaving(self) -> None:
        """A client that leaves takes it along, and so does the end of a drain."""
        self.ask_for().leave()
        self.assertEqual(self.held, 0)
        self.assertIs(self.stack.entries[-1].outcome, Outcome.CLIENT_DISCONNECT)
        client = self.ask_for()
        _ = self.stack.gateway.drain()
        self.stack.advance(4)
        self.assertTrue(client.wire.aborted)
        self.assertEqual((self.held, len(self.stack.gateway.exchanges)), (0, 0))
