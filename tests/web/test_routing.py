from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote_to_bytes

from hypothesis import given
from hypothesis import strategies as st

from tests.services.stack import ServicesTestCase
from tests.stack import Client
from tests.support import TestCase, examples
from twisted_gateway.web.intake import MAX_IDLE_BODY_BYTES, BodyRule
from twisted_gateway.web.target import routed_path, split_target
from twisted_gateway.web.token import MAX_REQUEST_BYTES
from twisted_gateway.web.webhooks import ROUTE as WEBHOOKS

CONFIG = """
models:
  reasoning: {upstream: "http://10.0.0.1:8000", engine: none, maxBodyBytes: 90001}
  rerank: {upstream: "http://10.0.0.2", engine: tei, maxBodyBytes: 90001}
adapters:
  memory: {upstream: "http://10.2.0.1:8080", requireAuth: false, maxBodyBytes: 90002}
webhooks: {forgejo: {secret: hook-secret, maxBodyBytes: 90003}}
routes:
  - {path: /old, upstream: "http://10.2.0.1:8080", requireAuth: false, maxBodyBytes: 90004}
  - {path: /old/admin, upstream: "http://10.2.0.1:8080", maxBodyBytes: 90005}
  - {path: /older, adapter: memory, resource: query, requireAuth: false}
auth: {issuer: "https://issuer.example", audience: gateway, jwksUrl: "http://10.9.0.1/jwks"}
"""
IDLE = BodyRule(MAX_IDLE_BODY_BYTES)
MODEL = BodyRule(90_001)
WEBHOOK = BodyRule(90_003, from_head=True)
# What serves a request, by the log's name for it -> what holds for its body.
POSTED = {
    "/v1/chat/completions": MODEL,
    "/v1/tokenize": MODEL,
    "/v1/*": MODEL,
    "/v1/auth/token": BodyRule(MAX_REQUEST_BYTES),
    "/v1/webhooks/forgejo": WEBHOOK,
    "/old": BodyRule(90_004, from_head=True),
    "/old/admin": BodyRule(90_005, from_head=True),
    "/older": BodyRule(90_002, from_head=True),
}
READ = ("/health", "/health/live", "/health/ready", "/metrics", "/status", "/status.json")
LISTS = ("/v1/models", "/v1/models/reasoning", "/v1/services")
PATHS = (
    *("/v1/chat/completions", "/v1/tokenize", "/v1/images/edits", "/v1/auth/token"),
    *("/v1/webhooks/forgejo", "/old", "/old/x", "/old/admin", "/old/admin/x", "/older"),
    *(*LISTS, *READ, "/status/status.css", "/", "/nope"),
)


@st.composite
def spelled(draw: st.DrawFn, paths: tuple[str, ...] = PATHS) -> tuple[str, str]:
    """A path, and a spelling of it with any of its characters percent-encoded, slashes too."""
    path = draw(st.sampled_from(paths))
    drawn = draw(st.lists(st.integers(0, len(path) - 1), max_size=4))
    where = range(1, len(path)) if draw(st.integers(0, 9)) == 0 else drawn
    form = draw(st.sampled_from(("%%%02x", "%%%02X")))
    text = "".join(
        form % ord(one) if index in where and index else one for index, one in enumerate(path)
    )
    end = draw(st.sampled_from(("", "", "", "/", "//", "?", "/?&", "%2f", "%2F", "%25")))
    start = draw(st.sampled_from(("", "", "", "/", "/%2f", "%2f")))
    return path, (start + text if start != "%2f" else "/%2f" + text[1:]) + end


@st.composite
def detours(draw: st.DrawFn) -> str:
    """A path with what servers read in different ways somewhere between its segments."""
    text = draw(spelled())[1]
    piece = draw(
        st.sampled_from(
            (
                *("/.", "/x/..", "/x/%2e%2e", "/..%2fx", "%2f..", "/v1/..", "/old/%2E./", "\\"),
                *("/%5c", ";a=b", "%3B", "%2f", "//", "/v1/%2f", "%00", "/;/..", "%252e%252e/"),
            )
        )
    )
    at = draw(st.sampled_from([match.start() for match in re.finditer("/", text)]))
    return text[:at] + piece + text[at:]


def segments(target: str) -> list[bytes]:
    """What a path names, segment by segment, without any of the code that is tested."""
    path = target.partition("?")[0].encode()
    return [unquote_to_bytes(one) for one in path.split(b"/") if one]


def seen_by_nginx(target: str) -> bytes:
    """The path that nginx finds its `location` by: decoded, then slashes merged, dots resolved."""
    found: list[bytes] = []
    for one in unquote_to_bytes(target.partition("?")[0]).split(b"/"):
        if one == b"..":
            del found[-1:]
        elif one not in (b"", b"."):
            found.append(one)
    return b"/" + b"/".join(found)


class RoutedPathTests(TestCase):
    """`routed_path`."""

    @given(spelled())
    def test_same_place(self, example: tuple[str, str]) -> None:
        """Two spellings are one where they name the same segments, and no others are."""
        path, target = example
        found = routed_path(split_target(target.encode())[1])
        self.assertEqual(found == path.encode(), segments(target) == segments(path), target)

    @given(st.lists(st.text("%/2F\0aé", min_size=1).map(str.encode), min_size=1))
    def test_back(self, names: list[bytes]) -> None:
        """From the one spelling the segments can be had again, whatever is in them."""
        written = b"".join(b"/" + b"".join(b"%%%02x" % byte for byte in name) for name in names)
        found = routed_path(written)
        self.assertEqual([unquote_to_bytes(one) for one in found[1:].split(b"/")], names)
        self.assertEqual(routed_path(found), found)


class RoutingTestCase(ServicesTestCase):
    """A gateway, of each of whose requests is noted what held for its body."""

    config = CONFIG
    site = 0

    def setUp(self) -> None:
        super().setUp()
        self.rules: list[BodyRule] = []
        for _, site in self.stack.gateway._sites:
            self.patch(site, "body_rule", self._noting(site.body_rule))

    def _noting(self, body_rule: Any) -> Any:
        def noted(request: Any) -> BodyRule:
            rule: BodyRule = body_rule(request)
            self.rules.append(rule)
            return rule

        return noted

    def begin(self, target: str, method: str, fields: str = "", body: bytes = b"{}") -> Client:
        head = f"{method} {target} HTTP/1.1\r\nHost: g\r\nContent-Length: {len(body)}\r\n{fields}"
        return self.stack.client(site=self.site).send(head.encode() + b"\r\n" + body)

    def ask(self, target: str, method: str = "POST", fields: str = "") -> tuple[str, int]:  # type: ignore[override]
        """Send a request, to its end.

        Returns:
            What served it, by the name that the log has for it, and the status.
        """
        client = self.begin(target, method, fields)
        for engine in list(self.stack.engines.values()):
            for asked in engine.asked:
                if not asked.gone and not client.status:
                    asked.answer()
        status = client.status
        self.assertTrue(status, target)
        client.leave()
        return self.stack.entries[-1].route, status


class BodyRuleTests(RoutingTestCase):
    """The bounds of a body are those of what serves it."""

    @given(spelled())
    @examples(200)
    def test_posted(self, example: tuple[str, str]) -> None:
        """However a path is spelled."""
        path, target = example
        route, status = self.ask(target)
        self.assertEqual(self.rules[-1], POSTED.get(route, IDLE), (target, route))
        if route not in POSTED:
            self.assertIn(status, (404, 405), target)
        if segments(target) == segments(path):
            rule = self.rules[-1]
            self.assertEqual((route, status, rule), (*self.ask(path), self.rules[-1]), target)

    @given(spelled(), st.sampled_from(("GET", "HEAD", "PUT", "DELETE", "OPTIONS")))
    @examples(200)
    def test_read(self, example: tuple[str, str], method: str) -> None:
        """Also with another method; nothing but legacy routes takes a body then."""
        path, target = example
        route, status = self.ask(target, method)
        legacy = POSTED.get(route, IDLE) if route.startswith("/old") else IDLE
        if route == "/older":
            # Its adapter takes POST alone: the others are refused at the head.
            self.assertTrue(self.rules[-1].from_head)
        else:
            self.assertEqual(self.rules[-1], legacy, (target, route))
        if segments(target) == segments(path):
            self.assertEqual((route, status), self.ask(path, method), target)

    @given(spelled(), st.sampled_from(("POST", "GET")))
    def test_services(self, example: tuple[str, str], method: str) -> None:
        """A service is asked on every path, under its own bounds."""
        fields = "X-Service: memory\r\nX-Resource: query\r\n"
        route, status = self.ask(example[1], method, fields)
        if method == "GET":
            self.assertEqual(status, 405, example[1])
        else:
            self.assertEqual((route, self.rules[-1].max_bytes), ("memory/query", 90_002))
        self.assertTrue(self.rules[-1].from_head)


class PublishedTests(RoutingTestCase):
    """What whoever publishes a prefix sees of a path, and what the gateway does with it."""

    config = CONFIG + 'listen: ["tcp:8080"]\nadminListen: ["tcp:9090"]\n'

    @given(
        st.one_of(spelled().map(lambda one: one[1]), detours()), st.sampled_from(("POST", "GET"))
    )
    @examples(300)
    def test_prefixes(self, target: str, method: str) -> None:
        """Nothing is served by what lies outside the prefix that nginx finds in the path."""
        route, status = self.ask(target, method)
        seen = seen_by_nginx(target).decode()
        self.assertFalse(route.startswith(("/health", "/metrics", "/status")), target)
        if status in (400, 404, 405):
            return
        prefix = {"/v1/*": "/v1/", "/v1/models/{id}": "/v1/models/"}.get(route, route)
        self.assertTrue(seen.startswith(prefix), (target, route, seen))
        if route == "/old":
            self.assertFalse(re.match("/old/admin(/|$)", seen), target)

    @given(spelled((*READ, "/status/status.css")), st.sampled_from(("GET", "HEAD", "POST")))
    def test_inside(self, example: tuple[str, str], method: str) -> None:
        """With `adminListen` the public listener has no spelling of what is inside."""
        self.assertEqual(self.ask(example[1], method)[1], 404, example[1])


class AdminTests(RoutingTestCase):
    """The listener of `adminListen`."""

    config = CONFIG + 'listen: ["tcp:8080"]\nadminListen: ["tcp:9090"]\n'
    site = 1

    @given(spelled(), st.sampled_from(("GET", "POST")))
    def test_bodies(self, example: tuple[str, str], method: str) -> None:
        """It has nothing that takes a body, and serves nothing that clients use."""
        path, target = example
        status = self.ask(target, method)[1]
        self.assertEqual(self.rules[-1], IDLE, target)
        inside = path in READ or path.startswith("/status/")
        if segments(target) == segments(path) and inside:
            self.assertEqual(status, self.ask(path, method)[1])
            self.assertEqual(status == 405, method == "POST")
        else:
            self.assertEqual(status, 404, target)


class SpellingTests(RoutingTestCase):
    """What was served under other bounds than its own."""

    def test_events(self) -> None:
        """A webhook's bound holds for what is its path; an escaped slash leads to no event."""
        for target in (WEBHOOKS, "/v1/webhooks/%66orgejo", "/%761//webhooks/forgejo/"):
            client = self.begin(target, "POST", body=b"x" * 90_004)
            self.assertEqual((client.status, self.rules[-1]), (413, WEBHOOK), target)
        for target in (f"{WEBHOOKS}%2f", "/v1/webhooks%2Fforgejo", "/v1%2fwebhooks/forgejo"):
            route, status = self.ask(target)
            self.assertNotEqual(route, WEBHOOKS, target)
            self.assertIn(status, (400, 404), target)
        self.stack.advance(6)

    def test_token_requests(self) -> None:
        """So does that of token requests."""
        for target in ("/v1/auth/token", "/v1/auth/toke%6e", "/v1/%61uth/token/"):
            client = self.begin(target, "POST", body=b"x" * (MAX_REQUEST_BYTES + 1))
            self.assertEqual(client.status, 413, target)
        self.stack.advance(6)

    def test_models(self) -> None:
        """A request to a model is that whatever its spelling, which its engine gets as it is."""
        body = b'{"model": "reasoning", "stream": true, "messages": []}'
        for target in ("/v1/chat/completions", "/%761/%63hat/completion%73"):
            client = self.begin(target, "POST", body=body)
            self.assertEqual(self.stack.engine().last.path, target)
            self.stack.engine().last.stream().end()
            self.assertEqual(self.stack.entries[-1].route, "/v1/chat/completions")
            self.assertTrue(self.stack.entries[-1].stream, target)
            client.leave()

    def test_mapped_paths(self) -> None:
        """One whose path the configuration maps goes where that says, whatever its spelling."""
        for target in ("/v1/rerank?a=%2F", "/v1/%72eran%6B?a=%2F"):
            self.begin(target, "POST", body=b'{"model": "rerank", "query": "q", "texts": []}')
            asked = self.stack.engine("10.0.0.2", 80).last
            self.assertEqual(asked.path, "/rerank?a=%2F")
            asked.answer()

    def test_not_a_path(self) -> None:
        """A target that does not begin with a slash is 400, not what follows its first byte."""
        for target in ("xv1/models", "v1/models", "\\/v1/models", "*/v1/models", "?/v1/models"):
            self.assertEqual(self.ask(target, "GET"), ("", 400), target)
            self.assertEqual(self.ask(f"x{WEBHOOKS[1:]}"), ("", 400))
        for target in ("http://g/v1/models", "HTTP://g//v1/models/"):
            self.assertEqual(self.ask(target, "GET"), ("/v1/models", 200), target)
        for target in ("http://g", "http://g?/v1/models"):
            self.assertEqual(self.ask(target, "GET"), ("", 404), target)

    def test_the_list_of_models(self) -> None:
        """The list is only to be read, and says so in every spelling."""
        for target in ("/v1/models", "/v1/model%73", "/v1/models/reasonin%67"):
            client = self.begin(target, "POST")
            self.assertEqual((client.status, client.headers["allow"]), (405, "GET, HEAD"))
            self.assertEqual(self.ask(target, "GET")[1], 200)
