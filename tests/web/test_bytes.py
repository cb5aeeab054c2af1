"""What the access log says of the size of an answer, in whatever way it is written."""

from __future__ import annotations

from typing import ClassVar

from tests.services.stack import AUTH, ServicesTestCase
from tests.stack import ROLE, Client, Stack, token
from tests.support import TestCase
from twisted_gateway.core.outcome import Outcome

CONFIG = (
    """
models:
  open: {upstream: "http://10.0.0.1:8000", engine: none}
  locked: {upstream: "http://10.0.0.1:8000", engine: none, requireAuth: true}
adapters:
  memory: {upstream: "http://10.2.0.1:8080"}
  s3: {upstream: "http://10.3.0.1:9000", accessKey: AK, secretKey: SK}
routes:
  - {path: /old, upstream: "http://10.2.0.1:8080", sunset: 2027-01-01}
maxBodyBytes: 2000
"""
    + AUTH.rstrip()
    + "\n  requireScopes: {s3/put: [storage.write]}\n"
)
PUT = "PUT /?bucket=b&key=k HTTP/1.1\r\nHost: g\r\nX-Service: s3\r\nX-Resource: put\r\n"
CHAT = "POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nContent-Type: application/json\r\n"
QUERY = "POST / HTTP/1.1\r\nHost: g\r\nX-Service: memory\r\nX-Resource: query\r\n"


class RefusedTests(ServicesTestCase):
    """Refusals, whenever they are written."""

    config = CONFIG

    def counted(self, client: Client, status: int, *, head: bool = False) -> None:
        """See an answer, and the size of its body in its one line of the log."""
        self.assertEqual(client.status, status, client.received)
        (entry,) = self.stack.entries
        self.assertEqual((entry.status, entry.bytes_sent), (status, len(client.body)))
        self.assertEqual(client.body == b"", head)
        self.stack.entries.clear()

    def send(self, text: str, body: bytes = b"") -> Client:
        return self.stack.client().send(text.encode() + b"\r\n" + body)

    def test_at_the_head(self) -> None:
        """A request that is refused before its body has come."""
        bearer = f"Authorization: Bearer {self.token()}\r\n"
        for head, status in (
            (PUT, 401),
            (PUT + bearer, 403),
            (QUERY, 401),
            ("POST /old/x HTTP/1.1\r\nHost: g\r\n", 401),
            ("POST / HTTP/1.1\r\nHost: g\r\nX-Service: no\r\n", 404),
            (QUERY.replace("POST", "DELETE") + bearer, 405),
        ):
            self.counted(self.send(f"{head}Content-Length: 900\r\n"), status)
        self.counted(self.send(CHAT + "Content-Length: 2001\r\n"), 413)

    def test_in_the_body(self) -> None:
        """One that is refused while its body comes, by its size or its time."""
        chunked = "Transfer-Encoding: chunked\r\n"
        bearer = f"Authorization: Bearer {self.token()}\r\n"
        for head in (CHAT, QUERY + bearer):
            self.counted(self.send(head + chunked, b"9c4\r\n" + b" " * 2500), 413)
        for head in (CHAT, QUERY + f"Authorization: Bearer {self.token()}\r\n"):
            client = self.send(head + "Content-Length: 20\r\n", b"{")
            self.stack.advance(60, 5)
            self.counted(client, 408)

    def test_after_the_body(self) -> None:
        """One that has come whole."""
        self.counted(self.stack.client().post("/v1/chat/completions", b"{"), 400)
        body = {"model": "locked", "messages": []}
        self.counted(self.stack.client().post("/v1/chat/completions", body), 401)
        self.counted(self.stack.client().get("/v1/nothing"), 405)
        self.counted(self.ask(token=None), 401)
        self.counted(self.ask("s3", "put", method="PUT", path="/?bucket=b&key=k"), 403)
        self.counted(self.stack.client().get("/", Upgrade="websocket", Connection="upgrade"), 426)

    def test_by_the_service(self) -> None:
        """One by whoever is asked."""
        client = self.ask()
        self.asked.answer(418, {"detail": "no"})
        self.counted(client, 418)
        body = {"model": "open", "messages": []}
        client = self.stack.client().post("/v1/chat/completions", body)
        self.stack.engine().last.answer(429, {"error": {"message": "no"}})
        self.counted(client, 429)

    def test_head(self) -> None:
        """Of an answer to HEAD no body is written, early or late, and its length is said."""
        for length in "", "Content-Length: 9\r\n":
            text = f"HEAD /old/x HTTP/1.1\r\nHost: g\r\n{length}"
            client = self.send(text)
            self.assertGreater(int(client.headers["content-length"]), 100)
            self.counted(client, 401, head=True)


class StreamTests(TestCase):
    """Answers that are relayed."""

    parts: ClassVar[list[bytes]] = [ROLE, token("one")]

    def test_stream(self) -> None:
        """Of a stream its content counts, without framing, and no more than was written."""
        stack = Stack(self)
        client = stack.client().chat(stream=True)
        stack.engine().last.stream(*self.parts)
        client.leave()
        (entry,) = stack.entries
        self.assertIs(entry.outcome, Outcome.CLIENT_DISCONNECT)
        self.assertEqual(entry.bytes_sent, sum(map(len, self.parts)))

    def test_error_frame(self) -> None:
        """The frame that ends a stream counts with it."""
        stack = Stack(self)
        client = stack.client().chat(stream=True)
        stack.engine().last.stream(*self.parts).die()
        (entry,) = stack.entries
        self.assertGreater(entry.bytes_sent, sum(map(len, self.parts)))
        self.assertEqual(entry.bytes_sent, len(client.body))
