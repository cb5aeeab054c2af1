from __future__ import annotations

import itertools
import re
from typing import Any
from urllib.parse import unquote

from hypothesis import assume, given
from hypothesis import strategies as st

from tests.services.stack import AUTH, ServicesTestCase, said
from tests.stack import CONFIG as MODELS
from tests.stack import Asked, Client
from tests.support import examples
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.telemetry import inbound

CONFIG = (
    MODELS
    + AUTH
    + """
adapters:
  memory: {upstream: "http://10.2.0.1:8080"}
  open: {kind: memory, upstream: "http://10.2.0.1:8080", requireAuth: false}
routes:
  - {path: /old, upstream: "http://10.6.0.1:8080/base", deprecation: 2026-06-01,
     sunset: 2027-01-01, successor: /v1/services, requireAuth: false, timeoutSeconds: 8,
     maxBodyBytes: 64}
  - {path: /old/admin, upstream: "http://10.6.0.2"}
  - {path: /cut, upstream: "http://10.6.0.1:8080/base", stripPrefix: true, requireAuth: false}
  - {path: /memory, adapter: memory, requireAuth: false, deprecation: "2026-06-01T12:00:00Z"}
  - {path: /ask, adapter: open, resource: query}
  - {path: /free, adapter: open, requireAuth: false}
"""
)
PIECES = (
    *("/", "/admin", "admin", "%61dmin", "%2F", "%2fadmin/", "%5c", "\\admin", ";", ";a=b", "%3B"),
    *("/;a/", ";%2F", "%3b%5cx", ";%5c", "x", "?q"),
)
"""Of which paths are made that servers read in more than one way."""
NOTICE = {
    "deprecation": "@1780272000",
    "sunset": "Fri, 01 Jan 2027 00:00:00 GMT",
    "link": '</v1/services>; rel="successor-version"',
}


def reading(path: str, before: bool, after: bool, backslash: bool) -> list[str]:
    """Take a path apart as a server does.

    Args:
        path: as it came.
        before: whether parameters are cut off before it is decoded.
        after: whether they are then.
        backslash: whether that is a slash.
    """
    path = path.partition("?")[0]
    if before:
        path = re.sub(";[^/]*", "", path)
    path = unquote(path)
    if backslash:
        path = path.replace("\\", "/")
    if after:
        path = re.sub(";[^/]*", "", path)
    return [segment for segment in path.split("/") if segment]


SERVERS = [
    lambda path, how=how: reading(path, *how) for how in itertools.product((False, True), repeat=3)
]


class LegacyTestCase(ServicesTestCase):
    """A gateway with legacy routes."""

    config = CONFIG

    def setUp(self) -> None:
        super().setUp()
        self.lines = said(self)

    @property
    def there(self) -> Asked:
        """What the old service was asked last."""
        return self.stack.engine("10.6.0.1", 8080).last

    @property
    def admin(self) -> list[Asked]:
        return self.stack.engine("10.6.0.2", 80).asked

    @property
    def everything(self) -> int:
        """How many requests came to any service."""
        engines = self.stack.engines.items()
        return sum(len(engine.asked) for (host, _), engine in engines if host != "10.9.0.1")

    def get(
        self, path: str, method: str = "GET", host: str = "192.0.2.7", **headers: str
    ) -> Client:
        return self.stack.client(host).get(path, method, **headers)

    def bearer(self, **claims: Any) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token(**claims)}"}


class UpstreamTests(LegacyTestCase):
    """Routes to an upstream."""

    def test_as_it_is(self) -> None:
        """Path and query go on as they are, and the answer comes back, with the notice."""
        client = self.get("/old/a%20b;x=1/?q=%26&q=2", X_Request_ID="abc", Cookie="c=d")
        asked = self.there
        self.assertEqual((asked.method, asked.path), ("GET", "/base/old/a%20b;x=1/?q=%26&q=2"))
        self.assertEqual(asked.headers["x-request-id"], "abc")
        self.assertEqual(asked.headers["cookie"], "c=d")
        self.assertEqual(asked.headers["x-forwarded-for"], "192.0.2.7")
        self.assertEqual(asked.headers["host"], "10.6.0.1:8080")
        self.assertNotIn("content-length", asked.headers)
        asked.answer(body=b"old", content_type="text/plain", extra="set-cookie: e=f\r\n")
        self.assertEqual((client.status, client.body), (200, b"old"))
        self.assertEqual(client.headers["set-cookie"], "e=f")
        self.assertEqual(client.received.lower().count(b"x-request-id: abc"), 1)
        self.assertEqual({name: client.headers[name] for name in NOTICE}, NOTICE)
        self.assertEqual(self.stack.entries[-1].route, "/old")

    def test_stripped(self) -> None:
        """Without the prefix, where the route says so."""
        for path, there in (
            ("/cut", "/base/"),
            ("/cut/", "/base/"),
            ("/cut/a/", "/base/a/"),
            ("//cut//a?b", "/base/a?b"),
            ("/c%75t/a", "/base/a"),
        ):
            client = self.get(path)
            self.assertEqual(self.there.path, there, path)
            self.there.answer()
            self.assertNotIn("deprecation", client.headers)

    def test_methods(self) -> None:
        """Every method that means something goes on, with its body."""
        for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
            self.stack.client().send(
                f"{method} /old HTTP/1.1\r\nHost: g\r\nContent-Length: 3\r\n\r\nabc".encode()
            )
            self.assertEqual((self.there.method, self.there.body), (method, b"abc"))
            self.there.answer()
        self.stack.client().send(b"POST /old HTTP/1.1\r\nHost: g\r\nContent-Length: 0\r\n\r\n")
        self.assertEqual(self.there.headers["content-length"], "0")
        self.there.answer()
        client = self.get("/old", "HEAD")
        self.there.send(b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n")
        self.assertEqual((client.status, client.headers["content-length"]), (200, "7"))
        client = self.get("/old", "TRACE")
        self.assertEqual(client.status, 405)
        self.assertIn("PATCH", client.headers["allow"])

    def test_segments(self) -> None:
        """A prefix is whole segments, in the case that it is written in."""
        for path in ("/older", "/old.txt", "/Old", "/ol", "/old;x", "/old%20", "/v1/old"):
            self.assertEqual(self.get(path).status, 405 if path == "/v1/old" else 404, path)
        self.assertEqual(self.everything, 0)

    def test_errors_pass(self) -> None:
        """The old service's errors pass as they are, and count as its own."""
        client = self.get("/old")
        self.there.answer(404, b"<h1>no</h1>", content_type="text/html")
        self.assertEqual((client.status, client.body), (404, b"<h1>no</h1>"))
        self.assertEqual(client.headers["deprecation"], NOTICE["deprecation"])
        self.assertIs(self.stack.entries[-1].outcome, Outcome.UPSTREAM_STATUS)

    def test_own_errors(self) -> None:
        """The gateway's own errors bear the notice too."""
        self.stack.engine("10.6.0.1", 8080).up = False
        client = self.get("/old")
        self.assertEqual(client.status, 502)
        self.assertEqual({name: client.headers[name] for name in NOTICE}, NOTICE)
        self.assertNotIn(b"10.6.0.1", client.received)

    def test_redirects(self) -> None:
        """A redirect of the old service's to itself leads back here, and names no host of ours."""
        for path, location, outside in (
            ("/old/a", "http://10.6.0.1:8080/base/old/b", "/old/b"),
            ("/old/a", "/base/old/b?c", "/old/b?c"),
            ("/cut/a", "http://10.6.0.1:8080/base/b", "/cut/b"),
            ("/cut/a", "/base/b", "/cut/b"),
            ("/cut/a", "b", "b"),
            ("/cut/a", "https://elsewhere.example/b", "https://elsewhere.example/b"),
            ("/cut/a", "//elsewhere.example/b", "//elsewhere.example/b"),
            ("/cut/a", "//10.6.0.1/base/b", "/cut/b"),
            ("/cut/a", "/\\elsewhere.example/b", "/elsewhere.example/b"),
            ("/cut/a", "http://10.6.0.1:5000/sso", "http://10.6.0.1:5000/sso"),
            ("/cut/a", "http://10.6.0.1:8080/other", "/other"),
            ("/cut/a", "http:///10.6.0.1/base/b", "/cut/b"),
            ("/cut/a", "HTTP:\\\\u@10.6.0.1\\base\\b", "/cut/b"),
            ("/cut/a", "http://\uff11\uff10\u30026.0.1:8080/base/b", "/cut/b"),
            ("/cut/a", "http://[64:ff9b::a06:1]:8080/base/b", "/cut/b"),
            ("/cut/a", "ftp://10.6.0.1/b", None),
            ("/cut/a", "myapp://10.6.0.1/cb", None),
            ("/cut/a", "myapp://sso/cb", "myapp://sso/cb"),
        ):
            client = self.get(path)
            self.there.answer(302, b"", extra=f"location: {location}\r\n")
            self.assertEqual((client.status, client.headers.get("location")), (302, outside))

    def test_links(self) -> None:
        """So does every other field of an answer that leads somewhere."""
        inside = "http://10.6.0.1:8080/base"
        client = self.get("/cut/a")
        self.there.answer(
            extra=f'link: <{inside}/a?page=2>; rel="next"; anchor="{inside}/a", <b>; rel=x\r\n'
            f"refresh: 5; url={inside}/c\r\ncontent-location: {inside}/d\r\n"
            'alt-svc: h3="10.6.0.1:443"\r\nset-cookie: a=b; Domain=10.6.0.1; Path=/base\r\n'
        )
        link = '</cut/a?page=2>; rel="next"; anchor="/cut/a", <b>; rel=x'
        self.assertEqual(client.headers["link"], link)
        self.assertEqual(client.headers["refresh"], "5; url=/cut/c")
        self.assertEqual(client.headers["content-location"], "/cut/d")
        self.assertEqual(client.headers["set-cookie"], "a=b; Path=/cut")
        self.assertNotIn(b"10.6.0.1", client.received)

    def test_policies(self) -> None:
        """What holds for the old service's own pages holds for them here, and names nothing."""
        origin = "http://10.6.0.1:8080"
        base = f"{origin}/base"
        client = self.get("/cut/a")
        self.there.answer(
            401,
            b"",
            extra=f"sourcemap: {base}/a.js.map\r\naccess-control-allow-origin: {origin}\r\n"
            f"content-security-policy: img-src {base}/ https:; report-uri {base}/r\r\n"
            f'www-authenticate: Bearer realm="{base}/token"\r\n'
            f'reporting-endpoints: a="{base}/r"\r\n'
            f'report-to: {{"endpoints":[{{"url":"{base}/r"}}]}}\r\n',
        )
        self.assertEqual(client.headers["sourcemap"], "/cut/a.js.map")
        policy = "img-src 'self' https:; report-uri /cut/r"
        self.assertEqual(client.headers["content-security-policy"], policy)
        self.assertEqual(client.headers["www-authenticate"], 'Bearer realm="/cut/token"')
        self.assertEqual(client.headers["reporting-endpoints"], 'a="/cut/r"')
        self.assertNotIn("access-control-allow-origin", client.headers)
        self.assertNotIn(b"10.6.0.1", client.received)

    def test_preferences(self) -> None:
        """What the gateway itself reads of requests to models is the old service's here."""
        self.get("/old", Prefer="return=minimal", X_Priority="7").leave()
        self.assertEqual(self.there.headers["prefer"], "return=minimal")
        self.assertEqual(self.there.headers["x-priority"], "7")
        self.get("/old", Prefer="return=minimal", Connection="prefer").leave()
        self.assertNotIn("prefer", self.there.headers)

    def test_its_own_notice(self) -> None:
        """What the old service says of its end gives way to the route's; other links stay."""
        client = self.get("/old")
        self.there.answer(extra="deprecation: @1\r\nsunset: never\r\nlink: </next>; rel=next\r\n")
        head = client.received.partition(b"\r\n\r\n")[0].lower()
        self.assertEqual(head.count(b"deprecation:"), 1)
        self.assertEqual(client.headers["sunset"], NOTICE["sunset"])
        self.assertIn(b"link: </next>; rel=next\r\nlink: </v1/services>", head)

    def test_body_bound(self) -> None:
        """A route has its own bound on bodies."""
        client = self.stack.client().post("/old", b"x" * 65)
        self.assertEqual((client.status, client.json["max_body_bytes"]), (413, 64))
        self.stack.client().post("/cut", b"x" * 65)
        self.assertEqual(len(self.there.body), 65)
        self.there.answer()

    def test_silence(self) -> None:
        """The old service's silence is 504, and in the middle of an answer the end of it."""
        client = self.get("/old")
        self.stack.advance(9)
        self.assertEqual(client.status, 504)
        self.assertTrue(self.there.gone)
        client = self.get("/old")
        self.there.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
        self.stack.advance(9)
        self.assertTrue(client.wire.aborted)

    def test_back_pressure(self) -> None:
        """While the client does not take the answer the old service waits."""
        client = self.get("/old")
        client.wire.congested = True
        self.there.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
        self.assertEqual(self.there.wire.producerState, "paused")
        client.wire.relieve()
        self.there.send(b"x" * 96)
        self.assertTrue(client.whole)

    def test_leaving(self) -> None:
        """A client that leaves takes its request along."""
        client = self.get("/old")
        client.leave()
        self.assertTrue(self.there.gone)
        self.assertIs(self.stack.entries[-1].outcome, Outcome.CLIENT_DISCONNECT)
        self.assertEqual(len(self.stack.gateway.exchanges), 0)

    def test_where_it_goes(self) -> None:
        """Whatever stands in the request, it is the configured address that is asked."""
        for path in (
            *("http://evil.example/old", "//evil.example/old", "/old/@evil.example"),
            *("/old//evil.example", "/old?http://evil.example"),
        ):
            self.get(path, X_Forwarded_Host="evil.example")
        self.get("/cut//evil.example/")
        self.assertEqual(self.there.path, "/base/evil.example/")
        hosts = {host for host, *_ in self.stack.reactor.tcpClients}
        self.assertLessEqual(hosts, {"10.6.0.1", "10.9.0.1", "10.0.0.1"})

    def test_sent_once(self) -> None:
        """On a kept connection that ends, what is not idempotent is not sent again."""
        for method, times in (("POST", 1), ("PATCH", 1), ("GET", 2), ("PUT", 2)):
            self.get("/old")
            self.there.answer()
            before = self.everything
            client = self.get("/old/x", method)
            self.there.die()
            self.assertEqual(self.everything - before, times, method)
            self.assertEqual(client.status, 502 if times == 1 else 0, method)
            if times > 1:
                self.there.answer()

    def test_traversal(self) -> None:
        """No path leads out of its prefix."""
        for path in (
            *("/old/../secret", "/old/%2e%2e/secret", "/old/..%2fsecret", "/old/.%2e/x"),
            *("/old/..%5csecret", "/old/x/../../y", "/cut/%2e%2e/x", "/old/%2e"),
            # A servlet container resolves the dots of a segment less its parameters.
            *("/cut/..;/secret", "/cut/..;a=b/secret", "/cut/%2e%2e%3b/x", "/old/.;x"),
            *("/cut/..;%2fsecret", "/cut/a;b%2f../../x", "/cut/..%5c;/x", "/cut/;%2f/..;"),
            # What of this is the prefix is for each to say who reads it.
            *("/cut%2fsecret", "/old%2Fsecret", "/memory%2fquery"),
            # Some read these as /old/admin.
            *("/old/admin%00x", "/old/admin%0a", "/old/admin%0D%0AX:%20y", "/old%0A", "/x%0Ay"),
        ):
            client = self.get(path)
            self.assertEqual(client.status, 400, path)
            self.assertTrue(client.json["type"].endswith(":malformed_target"))
        self.assertEqual(self.everything, 0)


class WhoTests(LegacyTestCase):
    """Who is let in."""

    def test_token(self) -> None:
        """A route that requires a token gets requests with one, and not the token."""
        self.assertEqual(self.get("/old/admin").status, 401)
        self.assertEqual(self.get("/old/admin", Authorization="Bearer x").status, 401)
        self.assertEqual(self.admin, [])
        client = self.get("/old/admin/x", **self.bearer())
        self.assertEqual(self.admin[-1].path, "/old/admin/x")
        self.assertNotIn("authorization", self.admin[-1].headers)
        self.admin[-1].answer()
        self.assertEqual(client.status, 200)

    def test_no_way_round(self) -> None:
        """No spelling of a path falls to a shorter prefix that lets everybody in."""
        for path in (
            *("/old/admin", "/old/%61dmin", "/old/admin/", "/old//admin", "/%6fld/admin/x"),
            *("/old/ad%6Din?x", "//old/admin"),
        ):
            self.assertEqual(self.get(path).status, 401, path)
        for path in (
            *("/old%2fadmin", "/old%2Fadmin/x", "/old/admin%2fx", "/old/%2Fadmin/x"),
            *("/old/%5cadmin", "/old/admin;a=b/x", "/old/;a%2Fb/admin", "/old/;a/admin"),
            # Whoever cuts parameters before and after decoding is led there.
            "/old/;a=b%2Fc/admin%3Ba/x",
        ):
            self.assertIn(self.get(path).status, (400, 401), path)
        self.assertEqual(self.everything, 0)

    @given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=5).map("".join))
    @examples(150)
    def test_no_spelling_round(self, rest: str) -> None:
        """Nor does one that some server reads as the longer path."""
        path = f"/old{rest}"
        assume(any(read(path)[:2] == ["old", "admin"] for read in SERVERS))
        self.assertIn(self.get(path).status, (400, 401, 404), path)
        self.assertEqual(self.everything, 0, path)

    def test_same_place(self) -> None:
        """What leads to the same route whoever reads it goes on as it came."""
        for path in ("/old/%2Fx", "/old/a;b=c/x", "/old/administrator", "/old/x%2fadmin"):
            self.get(path)
            self.assertEqual(self.there.path, f"/base{path}")
            self.there.answer()

    def test_not_required(self) -> None:
        """Elsewhere the client's own credential passes."""
        self.get("/old", Authorization="Basic YTpi")
        self.assertEqual(self.there.headers["authorization"], "Basic YTpi")
        self.there.answer()

    def test_drain(self) -> None:
        """While the process drains nobody is let in."""
        drained = self.stack.gateway.drain()
        self.assertEqual(self.get("/old").status, 503)
        self.stack.advance(15)
        self.successResultOf(drained)


class AdapterTests(LegacyTestCase):
    """Routes to an adapter."""

    def post(self, path: str, token: bool = True) -> Client:
        return self.stack.client().post(path, b"{}", self.bearer() if token else {})

    def test_segment(self) -> None:
        """The segment behind the prefix is the resource."""
        client = self.post("/memory/query")
        self.assertEqual(self.asked.path, "/query")
        self.asked.answer(body={"hits": []})
        self.assertEqual(client.json, {"hits": []})
        self.assertEqual(client.headers["deprecation"], "@1780315200")
        self.assertNotIn("sunset", client.headers)
        self.assertEqual(self.stack.entries[-1].route, "/memory")

    def test_resource(self) -> None:
        """Or the route says it."""
        client = self.post("/ask/whatever/path")
        self.assertEqual(self.asked.path, "/query")
        self.asked.answer()
        self.assertEqual(client.status, 200)

    def test_who(self) -> None:
        """What either requires holds."""
        for path, status in (("/memory/query", 401), ("/ask", 401), ("/free/query", 0)):
            self.assertEqual(self.post(path, token=False).status, status, path)

    def test_unknown(self) -> None:
        """A resource that there is not is told as with X-Service, and so are wrong methods."""
        for path in ("/memory", "/memory/", "/memory/qery", "/memory/query/x"):
            client = self.post(path)
            self.assertEqual(client.status, 404, path)
            self.assertEqual(client.json["valid_resources"], ["ingest", "query"])
        self.assertEqual(self.get("/memory/query", **self.bearer()).status, 405)
        client = self.get("/memory/query", "OPTIONS")
        self.assertEqual((client.status, client.headers["allow"]), (204, "OPTIONS, POST"))

    def test_x_service(self) -> None:
        """X-Service decides before any path."""
        client = self.get("/old", X_Service="absent")
        self.assertEqual((client.status, client.json["valid_services"]), (404, ["memory", "open"]))


class UseTests(LegacyTestCase):
    """Who still uses a route."""

    def uses(self, route: str, **labels: str) -> float | None:
        return self.stack.metric("legacy_route_requests_total", route=route, **labels)

    def use(self, host: str, path: str = "/old") -> None:
        self.get(path, host=host)
        self.there.answer()

    def test_metric(self) -> None:
        """Each tenant is counted under the name that may be shown."""
        for host in ("192.0.2.1", "192.0.2.1", "192.0.2.2"):
            self.use(host)
        tenant = self.stack.entries[0].tenant
        self.assertEqual(self.uses("/old", tenant=tenant), 2)
        self.assertEqual(self.uses("/old", tenant=self.stack.entries[-1].tenant), 1)
        self.assertNotIn("192.0.2", tenant)
        self.assertEqual(
            self.stack.metric("gateway_requests_total", route="/old", outcome="ok", model=""), 3
        )

    def test_bounded(self) -> None:
        """Of many tenants the later ones are counted together."""
        self.patch(inbound, "MOST_TENANTS", 2)
        for number in (1, 2, 3, 4, 1):
            self.use(f"192.0.2.{number}")
        self.assertEqual(self.uses("/old", tenant="other"), 2)
        self.assertEqual(self.uses("/old", tenant=self.stack.entries[0].tenant), 2)

    def test_refused(self) -> None:
        """Who is not let in does not use it."""
        self.get("/old/admin")
        self.assertIsNone(self.uses("/old/admin"))

    def test_reload(self) -> None:
        """A route that is gone has no series, and serves nobody but who is under way."""
        self.use("192.0.2.1")
        client = self.get("/old")
        self.stack.text = CONFIG.replace("path: /old,", "path: /new,")
        self.assertTrue(self.stack.gateway.reload())
        self.assertIsNone(self.uses("/old"))
        self.there.answer()
        self.assertEqual(client.status, 200)
        self.assertEqual(self.get("/old").status, 404)
        self.use("192.0.2.1", "/new")
        self.assertIsNotNone(self.uses("/new"))

    def test_warning(self) -> None:
        """The log says that a route is used once an hour, who does, and what is planned."""

        def used() -> list[str]:
            return [line for line in self.lines if "is still used" in line]

        for _ in range(5):
            self.use("192.0.2.1")
        self.use("192.0.2.1", "/cut")
        self.assertEqual(len(used()), 2)
        self.assertIn("the legacy route /old is still used, now by tenant", used()[0])
        self.assertIn(
            "deprecated from 2026-06-01, gone from 2027-01-01, its successor is /v1/services",
            used()[0],
        )
        self.assertIn("nothing is planned", used()[1])
        self.stack.advance(3590, step=30)
        self.use("192.0.2.1")
        self.assertEqual(len(used()), 2)
        self.stack.advance(20)
        self.use("192.0.2.1")
        self.assertEqual(len(used()), 3)
        self.assertIn("5 more like it", used()[2])
