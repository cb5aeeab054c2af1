from __future__ import annotations

from tests.services.stack import AUTH, ServicesTestCase
from tests.stack import Client
from twisted_gateway.core.outcome import Outcome

MIB = 1_048_576
CONFIG = (
    """
models:
  locked: {upstream: "http://10.0.0.1:8000", engine: none, requireAuth: true}
adapters:
  memory: {upstream: "http://10.2.0.1:8080"}
  s3: {upstream: "http://10.3.0.1:9000", accessKey: AK, secretKey: SK}
routes:
  - {path: /old, upstream: "http://10.2.0.1:8080", sunset: 2027-01-01}
  - {path: /older, adapter: memory, resource: query}
maxBodyBytes: 2097152
maxHeldBytes: 8388608
"""
    + AUTH
)
SERVICE = "X-Service: memory\r\nX-Resource: query\r\n"


class IntakeTestCase(ServicesTestCase):
    """A gateway whose every door takes a token."""

    config = CONFIG

    def begin(
        self, fields: str, length: int = MIB, *, path: str = "/", method: str = "POST"
    ) -> Client:
        """Send the head of a request."""
        return self.stack.client().send(
            f"{method} {path} HTTP/1.1\r\nHost: g\r\n{fields}"
            f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n".encode()
        )

    def bearer(self, **members: str) -> str:
        return f"Authorization: Bearer {self.token(**members)}\r\n"


class RefusedTests(IntakeTestCase):
    """Who may not send a body is told before it is taken in."""

    def test_without_a_token(self) -> None:
        """Without a token no door holds a byte, says 100 Continue, or shuts out who has one."""
        for fields, path in (
            (SERVICE, "/"),
            ("X-Service: s3\r\nX-Resource: list\r\n", "/?bucket=b"),
            ("", "/old/x"),
            ("", "/older"),
            ("", "/v1/chat/completions"),
        ):
            for _ in range(10):
                method = "GET" if "list" in fields else "POST"
                client = self.begin(
                    fields + "Expect: 100-continue\r\n", 60_000, path=path, method=method
                )
                self.assertEqual(client.status, 401, (fields, path))
                self.assertNotIn(b"100 Continue", client.received)
                self.assertIn("www-authenticate", client.headers)
                client.send(b"x" * 60_000)
                self.assertEqual(self.stack.gateway._held.now, 0, (fields, path))
        good = self.ask(body=b"x" * 1_000_000)
        self.asked.answer()
        self.assertEqual(good.status, 200)
        self.stack.advance(6)

    def test_while_keys_are_fetched(self) -> None:
        """While it is not known whether a token is good its sender is not read."""
        client = self.begin(SERVICE + self.bearer(key="ec-2")).send(b"x" * 1000)
        self.assertEqual(client.wire.producerState, "paused")
        client.send(b"x" * 500_000)
        self.assertEqual(self.stack.gateway._held.now, 1000)
        self.give_keys()
        self.assertEqual(client.status, 401)
        self.assertEqual(self.stack.gateway._held.now, 0)
        self.stack.advance(6)

    def test_what_there_is_not(self) -> None:
        """A request for nothing that there is gets its answer at once, of whatever size it is."""
        for fields, status in (
            ("X-Service: nope\r\n", 404),
            ("X-Service: memory\r\nX-Resource: nope\r\n", 404),
            ("X-Service: s3\r\nX-Resource: list\r\n", 405),
        ):
            client = self.begin(fields, 1_000_000_000).send(b"x" * 1000)
            self.assertEqual(client.status, status)
            self.assertEqual(self.stack.gateway._held.now, 0)
        self.stack.advance(6)

    def test_paths_that_take_no_body(self) -> None:
        """Where a body means nothing none is held beyond a small one."""
        for path in ("/", "/health", "/nope", "/v1/auth/token"):
            self.assertEqual(self.begin("", 70_000, path=path).status, 413, path)
        self.assertEqual(self.begin("", 70_000, path="/v1/models", method="GET").status, 413)
        self.stack.advance(6)

    def test_webhook_without_a_secret(self) -> None:
        """Events that could not be judged are not taken in."""
        client = self.begin("", path="/v1/webhooks/forgejo").send(b"x" * 1000)
        self.assertEqual(client.status, 503)
        self.assertEqual(self.stack.gateway._held.now, 0)
        self.stack.advance(6)

    def test_no_path(self) -> None:
        """OPTIONS * is answered, and noted, as what it is."""
        for fields in ("", "X-Service: s3\r\nX-Resource: put\r\n"):
            client = self.stack.client().send(
                f"OPTIONS * HTTP/1.1\r\nHost: g\r\n{fields}\r\n".encode()
            )
            self.assertEqual(client.status, 405)
            self.assertEqual(client.headers["allow"], "")
            self.assertEqual(self.stack.entries[-1].status, 405)

    def test_transfer_codings(self) -> None:
        """A coding that is not understood is refused, before what follows is taken for more."""
        for coding in ("identity", "gzip, chunked", "Identity", "chunked, identity", ""):
            client = self.stack.client().send(
                f"POST /old HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: {coding}\r\n\r\n"
                "GET /health HTTP/1.1\r\nHost: g\r\n\r\n".encode()
            )
            self.assertEqual(client.status, 400, coding)
            self.assertEqual(client.received.count(b"HTTP/1.1 "), 1, coding)

    def test_fields_of_the_route(self) -> None:
        """An answer that comes before the body has what its route says on every answer."""
        client = self.begin("", path="/old/x")
        self.assertEqual(client.status, 401)
        self.assertIn("2027", client.headers["sunset"])
        self.assertIn("x-request-id", client.headers)
        self.assertEqual(client.received.lower().count(b"\r\ndate:"), 1)
        self.stack.advance(6)


class TakenTests(IntakeTestCase):
    """Who may send a body has it taken in, and then served."""

    def test_in_pieces(self) -> None:
        """A body that comes in pieces arrives whole, at services, routes and models."""
        for fields, path, host in (
            (SERVICE, "/", "10.2.0.1"),
            ("", "/old/x", "10.2.0.1"),
            ("", "/older", "10.2.0.1"),
            ("", "/v1/chat/completions", "10.0.0.1"),
        ):
            body = b'{"model": "locked", "messages": []}'
            client = self.begin(fields + self.bearer(), len(body), path=path)
            engine = self.stack.engine(host, 8000 if host == "10.0.0.1" else 8080)
            before = len(engine.asked)
            for byte in body:
                self.assertEqual(len(engine.asked), before)
                client.send(bytes([byte]))
            self.assertEqual(engine.last.body, body)
            engine.last.answer(body={"ok": 1})
            self.assertEqual((client.status, client.json), (200, {"ok": 1}), path)
            self.assertEqual(self.stack.gateway._held.now, 0)
            client.send(b"GET /health HTTP/1.1\r\nHost: g\r\n\r\n")
            self.assertEqual(client.received.count(b"HTTP/1.1 200"), 2)

    def test_chunked(self) -> None:
        """One without a length too, and an empty one."""
        for chunks, body in ((b"2\r\n{}\r\n0\r\n\r\n", b"{}"), (b"0\r\n\r\n", b"")):
            self.stack.client().send(
                f"POST / HTTP/1.1\r\nHost: g\r\n{SERVICE}{self.bearer()}"
                "Transfer-Encoding: chunked\r\n\r\n".encode()
                + chunks
            )
            self.assertEqual(self.asked.body, body)

    def test_too_large(self) -> None:
        """One that grows beyond its bound is 413."""
        client = self.stack.client().send(
            f"POST / HTTP/1.1\r\nHost: g\r\n{SERVICE}{self.bearer()}"
            "Transfer-Encoding: chunked\r\n\r\n".encode()
        )
        for _ in range(33):
            client.send(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
        self.assertEqual(client.status, 413)
        self.assertEqual(self.service.asked, [])
        self.assertEqual(self.stack.gateway._held.now, 0)
        self.stack.advance(6)

    def test_too_slow(self) -> None:
        """One that has not come whole after bodySeconds is 408."""
        client = self.begin(SERVICE + self.bearer()).send(b"x")
        self.stack.advance(59, step=1)
        client.send(b"x")
        self.assertEqual(client.status, 0)
        self.stack.advance(2)
        self.assertEqual((client.status, client.json["status"]), (408, 408))
        self.stack.advance(6)

    def test_leaving(self) -> None:
        """A client that leaves in the middle leaves nothing behind."""
        client = self.begin(SERVICE + self.bearer()).send(b"x" * 1000)
        self.assertEqual(self.stack.gateway._held.now, 1000)
        client.leave()
        self.assertEqual(self.stack.gateway._held.now, 0)
        self.assertIs(self.stack.entries[-1].outcome, Outcome.CLIENT_DISCONNECT)

    def test_drain(self) -> None:
        """At the end of a drain a body that still comes is answered, not cut."""
        client = self.begin(SERVICE + self.bearer()).send(b"x" * 1000)
        _ = self.stack.gateway.drain()
        drained = self.stack.gateway.drain()
        self.assertEqual((client.status, client.json["reason"]), (503, "draining"))
        self.stack.advance(15)
        self.successResultOf(drained)

    def test_preflight(self) -> None:
        """A preflight with a body keeps its connection whole."""
        self.stack.text = CONFIG + 'cors: {origins: ["https://a.example"]}\n'
        self.stack.gateway.reload()
        client = self.begin(
            SERVICE + "Origin: https://a.example\r\nAccess-Control-Request-Method: PUT\r\n",
            10,
            method="OPTIONS",
        )
        client.send(b"x" * 10).send(b"GET /health HTTP/1.1\r\nHost: g\r\n\r\n")
        self.assertTrue(client.received.startswith(b"HTTP/1.1 204"))
        self.assertEqual(client.received.count(b"HTTP/1.1 200"), 1)
