from __future__ import annotations

from tests.services.stack import AUTH, ServicesTestCase
from tests.stack import Asked

CONFIG = (
    """
adapters:
  memory: {upstream: "http://10.2.0.1:8080"}
  s3: {upstream: "http://10.3.0.1:9000", accessKey: AK, secretKey: SK}
  open: {kind: s3, upstream: "http://10.3.0.1:9000", accessKey: AK, secretKey: SK,
         requireAuth: false}
routes:
  - {path: /files, adapter: open, resource: get, requireAuth: false}
  - {path: /old, upstream: "http://10.3.0.1:9000"}
cors: {origins: ["https://a.example"]}
"""
    + AUTH
)
PUBLIC = "cache-control: public, s-maxage=9, max-age=60\r\n"


class CacheTests(ServicesTestCase):
    """What caches and browsers may do with an answer."""

    config = CONFIG

    @property
    def store(self) -> Asked:
        return self.stack.engine("10.3.0.1", 9000).last

    def test_not_the_paths(self) -> None:
        """No answer, good or bad, can be taken for the one of its path, or run as a page."""
        good = self.ask("s3", "get", method="GET", path="/status?bucket=b&key=k", body=b"")
        self.store.answer(200, b"<script>", "text/html", PUBLIC)
        listing = self.ask("s3", "list", method="GET", path="/?bucket=b", body=b"")
        self.store.answer(200, b"<ListBucketResult/>")
        missing = self.ask("s3", "get", method="GET", path="/?bucket=b&key=k", body=b"")
        self.store.answer(404, b"")
        refused = self.ask("s3", "get", method="GET", path="/?bucket=b&key=k", token=None, body=b"")
        early = self.ask("nope", body=b"{}")
        for client, status in (
            (good, 200),
            (listing, 200),
            (missing, 404),
            (refused, 401),
            (early, 404),
        ):
            self.assertEqual(client.status, status)
            head = client.received.partition(b"\r\n\r\n")[0].lower()
            self.assertIn(b"vary: x-service, x-resource, authorization", head)
            self.assertIn(b"vary: origin", head)
            self.assertEqual(client.headers["x-content-type-options"], "nosniff")
            self.assertIn("sandbox", client.headers["content-security-policy"])

    def test_private(self) -> None:
        """What took a token is for nobody else, whatever the service says of it."""
        client = self.ask("s3", "get", method="GET", path="/?bucket=b&key=k", body=b"")
        self.store.answer(200, b"x", "text/plain", PUBLIC)
        self.assertEqual(client.headers["cache-control"], "private, max-age=60")
        client = self.ask("s3", "list", method="GET", path="/?bucket=b", body=b"")
        self.store.answer(200, b"<ListBucketResult/>")
        self.assertEqual(client.headers["cache-control"], "private")
        client = self.stack.client().get("/old/x", Authorization=f"Bearer {self.token()}")
        self.store.answer(200, b"x", "text/plain", PUBLIC)
        self.assertEqual(client.headers["cache-control"], "private, max-age=60")

    def test_public(self) -> None:
        """What takes none passes with what the service says of it."""
        client = self.ask(
            "open", "get", method="GET", path="/?bucket=b&key=k", token=None, body=b""
        )
        self.store.answer(200, b"x", "text/plain", PUBLIC)
        self.assertIn("public", client.headers["cache-control"])

    def test_legacy_route(self) -> None:
        """Nor is an object a page of the gateway's where a route leads to it by its path."""
        client = self.stack.client().get("/files?bucket=b&key=k")
        self.store.answer(200, b"<script>", "text/html")
        self.assertEqual(client.status, 200)
        self.assertEqual(client.headers["x-content-type-options"], "nosniff")
        self.assertIn("sandbox", client.headers["content-security-policy"])

    def test_list_of_services(self) -> None:
        """The list says what its reader may, so it is nobody else's."""
        client = self.stack.client().get("/v1/services", Authorization=f"Bearer {self.token()}")
        self.assertEqual(client.headers["cache-control"], "private")
        self.assertIn(b"\r\nVary: Authorization\r\n", client.received)
