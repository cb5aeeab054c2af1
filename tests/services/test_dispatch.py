from __future__ import annotations

import json
from urllib.parse import quote

from tests.auth import issuer
from tests.services.stack import AUTH, MEMORY, ServicesTestCase
from tests.stack import CONFIG
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.services import memory

OPEN = """
adapters:
  memory: {upstream: "http://10.2.0.1:8080/base", requireAuth: false, maxBodyBytes: 64,
           timeoutSeconds: 8}
  archive: {kind: memory, upstream: "http://10.2.0.1:8080", requireAuth: false,
            resources: {query: /v2/find}}
"""


class PathTests(ServicesTestCase):
    """A request with X-Service, through the whole gateway."""

    def test_good(self) -> None:
        """A request with a good token is posted to the service, and its answer comes back."""
        client = self.ask(body=b'{"q": 1}', path="/any/where")
        asked = self.asked
        self.assertEqual((asked.method, asked.path, asked.body), ("POST", "/query", b'{"q": 1}'))
        asked.answer(body={"hits": []})
        self.assertEqual((client.status, client.json), (200, {"hits": []}))
        self.assertEqual(self.stack.entries[-1].route, "memory/query")
        self.assertIs(self.stack.entries[-1].outcome, Outcome.OK)

    def test_what_goes_on(self) -> None:
        """Of the header fields only those of the service's protocol go on, with a request id."""
        self.ask(
            headers={
                "Content-Type": "application/json",
                "Cookie": "a=b",
                "X-Forwarded-For": "1.2.3.4",
                "X-Request-ID": "abc",
                "X-Tenant": "t",
                "Connection": "accept",
                "Accept": "text/html",
                "traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01",
            }
        )
        self.assertEqual(
            {name: value for name, value in self.asked.headers.items() if name != "host"},
            {
                "content-type": "application/json",
                "content-length": "2",
                "x-request-id": "abc",
                "traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01",
            },
        )

    def test_what_comes_back(self) -> None:
        """Fields of the service's answer that are none of its protocol stay inside."""
        client = self.ask()
        self.asked.answer(
            extra="server: inside/1\r\nset-cookie: a=b\r\ncache-control: no-store\r\n"
        )
        self.assertNotIn("inside", client.headers["server"])
        self.assertNotIn("set-cookie", client.headers)
        self.assertEqual(client.headers["cache-control"], "no-store")
        self.assertEqual(client.headers["content-length"], "2")

    def test_requests_without_x_service(self) -> None:
        """They are for models and operations, as if there were no services."""
        self.assertEqual(self.stack.client().get("/health").status, 200)
        self.assertEqual(self.stack.client().get("/memory").status, 404)

    def test_any_path(self) -> None:
        """X-Service decides, also on the paths of models, operations and the root."""
        for path in (
            *("/", "/v1/chat/completions", "/health", "/v1/services", "/v1/auth/token"),
            *("/a%0Ab", "/%00", "/%0D%0AX:%20y"),
        ):
            before = len(self.service.asked)
            self.ask(path=path)
            self.assertEqual(len(self.service.asked), before + 1, path)
            self.asked.answer()

    def test_keep_alive(self) -> None:
        """One connection serves one request after the other."""
        client = self.ask()
        self.asked.answer(body={"n": 1})
        self.assertNotIn("connection", client.headers)
        client.send(b"GET /health HTTP/1.1\r\nHost: g\r\n\r\n")
        self.assertEqual(client.received.count(b"HTTP/1.1 200"), 2)


class WhoTests(ServicesTestCase):
    """Who is let in."""

    def refused(self, token: str | None, why: str) -> None:
        before = len(self.service.asked)
        client = self.ask(token=token)
        self.give_keys()
        self.assertEqual(client.status, 401, why)
        challenge = client.headers["www-authenticate"]
        self.assertTrue(challenge.startswith('Bearer error="invalid_token"'), challenge)
        self.assertIn(why, challenge)
        self.assertEqual(client.headers["content-type"], "application/problem+json")
        self.assertEqual(client.json["error"]["type"], "authentication_error")
        self.assertEqual(len(self.service.asked), before)
        self.assertIs(self.stack.entries[-1].outcome, Outcome.UNAUTHORIZED)

    def test_none(self) -> None:
        """Without a token nothing reaches the service."""
        self.refused(None, "there is none")

    def test_bad_ones(self) -> None:
        """Nor does anything with a token that is not accepted, and the answer says why."""
        now = self.stack.now
        self.refused("abc", "no signed JWT")
        self.refused(self.token(exp=int(now) - 61), "expired")
        self.refused(self.token(aud="other"), "another audience")
        self.refused(self.token(iss="https://evil.example"), "another issuer")
        self.refused(issuer.token("ec-2", now), "not among the issuer's")
        self.refused(issuer.token("ec-2", now, header={"kid": "ec-1"}), "signature is wrong")

    def test_another_scheme(self) -> None:
        """Basic credentials are no token, and neither are two fields."""
        client = self.ask(token=None, headers={"Authorization": "Basic YTpi"})
        self.assertEqual(client.status, 401)
        line = f"Authorization: Bearer {self.token()}\r\n"
        client = self.stack.client().send(
            f"POST / HTTP/1.1\r\nHost: g\r\nX-Service: memory\r\nX-Resource: query\r\n"
            f"{line}{line}Content-Length: 0\r\n\r\n".encode()
        )
        self.assertEqual(client.status, 401)

    def test_token_in_query(self) -> None:
        """A token in the query string is none (RFC 6750, section 2.3), and not shown either."""
        token = self.token()
        client = self.ask(path=f"/?access_token={token}", token=None)
        self.assertEqual(client.status, 401)
        self.assertNotIn(token.encode(), client.received)

    def test_not_told(self) -> None:
        """No answer repeats a word of a refused token."""
        token = issuer.token("ec-2", self.stack.now, sub="secret-subject")
        client = self.ask(token=token)
        for part in token.split("."):
            self.assertNotIn(part.encode(), client.received)

    def test_tenant(self) -> None:
        """The token's subject is who the request counts as, wherever it comes from."""
        self.ask(token=self.token(sub="bob"))
        self.asked.answer()
        self.ask(token=self.token(sub="bob"))
        self.asked.answer()
        self.ask(token=self.token(sub="carol"))
        self.asked.answer()
        first, second, third = (entry.tenant for entry in self.stack.entries)
        self.assertEqual(first, second)
        self.assertNotEqual(first, third)
        self.assertNotIn("bob", first)


class IssuerTests(ServicesTestCase):
    """The issuer's keys, on their way here."""

    def key_fetches(self) -> int:
        return len(self.issuer.asked)

    def test_none_yet(self) -> None:
        """Before there are keys nobody is let in or turned away for good."""
        self.stack.text = self.config.replace("10.9.0.1", "10.9.0.9")
        self.assertTrue(self.stack.gateway.reload())
        other = self.stack.engine("10.9.0.9", 80)
        client = self.ask()
        self.assertEqual(client.status, 0)
        other.last.answer(500, b"down")
        self.assertEqual(client.status, 503)
        self.assertEqual(client.json["type"], "urn:twisted-gateway:problem:auth_unavailable")
        self.assertEqual(client.headers["retry-after"], "30")
        self.assertEqual(self.service.asked, [])
        self.stack.advance(2)
        other.last.answer(body=issuer.jwks(issuer.ec_jwk("ec-1")))
        self.ask()
        self.assertEqual(len(self.service.asked), 1)

    def test_what_is_asked(self) -> None:
        """The document is asked for once, as JSON, and a redirect is not followed."""
        self.assertEqual(self.key_fetches(), 1)
        self.assertIn("application/jwk-set+json", self.issuer.last.headers["accept"])
        self.stack.advance(300, step=5)
        self.assertEqual(self.key_fetches(), 2)
        self.issuer.last.answer(302, b"", extra="location: http://10.9.0.8/jwks\r\n")
        self.assertNotIn(("10.9.0.8", 80), self.stack.engines)
        self.ask()
        self.assertEqual(len(self.service.asked), 1)

    def test_reload_of_a_number(self) -> None:
        """Other intervals are no reason to drop the keys, even while the issuer is down."""
        self.issuer.up = False
        self.stack.text += "  jwksRefreshSeconds: 40\n"
        self.assertTrue(self.stack.gateway.reload())
        self.ask()
        self.assertEqual(len(self.service.asked), 1)
        before = len(self.stack.reactor.tcpClients)
        self.stack.advance(41)
        self.assertGreater(len(self.stack.reactor.tcpClients), before)

    def test_reload_before_there_are_keys(self) -> None:
        """Who waits for the first keys goes on waiting where a reload has them come from."""
        self.stack.text = self.config.replace("10.9.0.1", "10.9.0.9")
        self.assertTrue(self.stack.gateway.reload())
        waiting = self.ask()
        self.stack.text = self.config.replace("10.9.0.1", "10.9.0.3")
        self.assertTrue(self.stack.gateway.reload())
        self.stack.settle()
        self.assertEqual(waiting.status, 0)
        self.stack.engine("10.9.0.3", 80).last.answer(body=issuer.jwks(issuer.ec_jwk("ec-1")))
        self.assertEqual(len(self.service.asked), 1)

    def test_reload_while_waiting(self) -> None:
        """Who waits for keys that are no longer asked for is judged by those that are."""
        waiting = self.ask(token=self.token(key="ec-2"))
        self.stack.text = self.stack.text.replace("10.9.0.1", "10.9.0.3")
        self.assertTrue(self.stack.gateway.reload())
        self.stack.settle()
        self.assertEqual(waiting.status, 0)
        self.stack.engine("10.9.0.3", 80).last.answer(body=issuer.jwks(issuer.ec_jwk("ec-2")))
        self.asked.answer()
        self.assertEqual(waiting.status, 200)

    def test_reload(self) -> None:
        """A reload keeps the keys where they come from the same place, and asks another place."""
        self.stack.text = self.config + "  leewaySeconds: 5\n"
        self.assertTrue(self.stack.gateway.reload())
        self.assertEqual(self.key_fetches(), 1)
        self.assertEqual(self.ask(token=self.token(exp=int(self.stack.now) - 30)).status, 401)
        self.stack.text = self.config.replace("issuer.example", "other.example")
        self.assertTrue(self.stack.gateway.reload())
        self.assertEqual(self.key_fetches(), 1)
        self.assertEqual(self.ask().status, 401)
        self.stack.text = self.config.replace("/jwks", "/keys")
        self.assertTrue(self.stack.gateway.reload())
        self.stack.settle()
        self.assertEqual((self.key_fetches(), self.issuer.last.path), (2, "/keys"))
        self.give_keys()

    def test_without_auth(self) -> None:
        """Once auth is gone from the file no token is asked for, or accepted."""
        self.stack.text = MEMORY.replace("}", ", requireAuth: false}")
        self.assertTrue(self.stack.gateway.reload())
        client = self.ask(token="whatever")
        self.asked.answer()
        self.assertEqual(client.status, 200)


class ScopeTests(ServicesTestCase):
    """`requireScopes`."""

    config = (
        MEMORY + AUTH + "  requireScopes: {memory: [mem.read], memory/ingest: [mem.write, extra]}\n"
    )

    def test_renamed_while_waiting(self) -> None:
        """What a token needs is fixed when it is asked for, however a reload calls the service."""
        client = self.ask(resource="ingest", token=self.token(key="ec-2", scope="mem.read"))
        text = self.config.replace("  memory: {", "  store: {kind: memory, ")
        text = text.replace("{memory: [", "{store: [").replace("memory/ingest", "store/ingest")
        self.stack.text = text
        self.assertTrue(self.stack.gateway.reload())
        self.assertEqual(client.status, 0)
        self.issuer.last.answer(body=issuer.jwks(issuer.ec_jwk("ec-2")))
        self.assertEqual(client.status, 403)
        self.assertEqual(self.service.asked, [])

    def test_enough(self) -> None:
        """A token with the scopes is let in, in each of the forms that issuers write them."""
        for members in (
            {"scope": "other mem.read"},
            {"scp": "mem.read"},
            {"scp": ["x", "mem.read"]},
        ):
            client = self.ask(token=self.token(**members))
            self.asked.answer()
            self.assertEqual(client.status, 200)

    def test_too_few(self) -> None:
        """One without is told which it lacks; a resource's own line replaces the service's."""
        client = self.ask(token=self.token(scope="mem.write"))
        self.assertEqual(client.status, 403)
        self.assertEqual(
            client.headers["www-authenticate"],
            'Bearer error="insufficient_scope", scope="mem.read"',
        )
        self.assertEqual(client.json["required_scopes"], ["mem.read"])
        client = self.ask(resource="ingest", token=self.token(scope="mem.read mem.write"))
        self.assertEqual(client.json["required_scopes"], ["extra", "mem.write"])
        self.assertEqual(self.service.asked, [])
        client = self.ask(resource="ingest", token=self.token(scope="mem.write extra"))
        self.asked.answer()
        self.assertEqual(client.status, 200)

    def test_similar(self) -> None:
        """Scopes are compared whole."""
        for scope in ("mem.reader", "MEM.READ", "mem", "mem.read,x"):
            self.assertEqual(self.ask(token=self.token(scope=scope)).status, 403, scope)

    def test_list(self) -> None:
        """`GET /v1/services` says what the caller may use."""
        client = self.stack.client().get("/v1/services")
        memory = client.json["services"]["memory"]
        self.assertEqual(
            {name: one["allowed"] for name, one in memory["resources"].items()},
            {"ingest": False, "query": False},
        )
        token = self.token(scope="mem.read")
        client = self.stack.client().get("/v1/services", Authorization=f"Bearer {token}")
        memory = client.json["services"]["memory"]
        self.assertEqual(
            {name: one["allowed"] for name, one in memory["resources"].items()},
            {"ingest": False, "query": True},
        )
        self.assertEqual(memory["kind"], "memory")
        self.assertEqual(list(memory["resources"]["query"]["methods"]), ["POST"])
        client = self.stack.client().get("/v1/services", Authorization="Bearer x")
        self.assertEqual(client.status, 401)
        self.assertNotIn("10.2.0.1", json.dumps(memory))


class ModelTests(ServicesTestCase):
    """`requireAuth` of models."""

    config = CONFIG + "    requireAuth: true\n  open: {upstream: 'http://10.0.0.2:8000'}\n" + AUTH

    def test_required(self) -> None:
        """A model that requires a token gets requests with one, and not the token."""
        client = self.stack.client().chat()
        self.assertEqual(client.status, 401)
        self.assertEqual(self.stack.engine().asked, [])
        client = self.stack.client().chat(headers={"Authorization": f"Bearer {self.token()}"})
        asked = self.stack.engine().last
        self.assertNotIn("authorization", asked.headers)
        asked.answer()
        self.assertEqual(client.status, 200)

    def test_leaving(self) -> None:
        """A client that leaves while its key is asked for is forgotten."""
        token = issuer.token("ec-9", self.stack.now)
        client = self.stack.client().chat(headers={"Authorization": f"Bearer {token}"})
        self.assertEqual(client.status, 0)
        client.leave()
        self.assertEqual(self.stack.outcomes, ["client_disconnect"])
        self.give_keys()
        self.assertEqual(len(self.stack.gateway.exchanges), 0)

    def test_not_required(self) -> None:
        """What is sent to another model passes, whatever it is, as it does without `auth`."""
        self.stack.client().post(
            "/v1/completions", {"model": "open"}, {"Authorization": "Bearer whatever"}
        )
        asked = self.stack.engine("10.0.0.2").last
        self.assertEqual(asked.headers["authorization"], "Bearer whatever")
        asked.answer()

    def test_tenant(self) -> None:
        """The token's subject is who a request to a model counts as."""
        for subject, host in (("bob", "192.0.2.1"), ("bob", "192.0.2.2"), ("carol", "192.0.2.1")):
            self.stack.client(host).chat(
                headers={"Authorization": f"Bearer {self.token(sub=subject)}"}
            )
            self.stack.engine().last.answer()
        first, second, third = (entry.tenant for entry in self.stack.entries)
        self.assertEqual(first, second)
        self.assertNotEqual(first, third)


class WhatForTests(ServicesTestCase):
    """What a request asks for."""

    config = OPEN

    def test_unknown_service(self) -> None:
        """It is 404 with what there is, whatever the path."""
        client = self.ask("memroy", path="/v1/models", token=None)
        self.assertEqual(client.status, 404)
        self.assertEqual(client.json["valid_services"], ["archive", "memory"])
        self.assertEqual(client.json["type"], "urn:twisted-gateway:problem:unknown_service")
        self.assertEqual(self.stack.entries[-1].route, "services")

    def test_unknown_resource(self) -> None:
        """So is a resource, or none."""
        for resource in ("qery", None):
            client = self.ask(resource=resource, token=None)
            self.assertEqual(client.status, 404)
            self.assertEqual(client.json["valid_resources"], ["ingest", "query"])

    def test_method(self) -> None:
        """Another method is 405 with those that there are."""
        client = self.ask(method="GET", body=b"", token=None)
        self.assertEqual((client.status, client.headers["allow"]), (405, "OPTIONS, POST"))

    def test_options(self) -> None:
        """OPTIONS says which methods there are, to anybody."""
        for body in (b"", b"abc"):
            client = self.ask(method="OPTIONS", body=body, token=None)
            self.assertEqual((client.status, client.body), (204, b""))
            self.assertEqual(client.headers["allow"], "OPTIONS, POST")
            client.send(b"GET /health HTTP/1.1\r\nHost: g\r\n\r\n")
            self.assertEqual(client.received.count(b"HTTP/1.1 200"), 1)
        self.assertEqual(self.ask(method="OPTIONS", resource="x", token=None).status, 404)
        client = self.ask(method="OPTIONS", body=b"x" * 70_000, token=None)
        self.assertEqual(client.status, 413)
        self.assertEqual(self.service.asked, [])
        self.stack.advance(6)

    def test_parameters(self) -> None:
        """Parameters that there are not are 400, by their names."""
        client = self.ask(path="/?a=1&b=2&b=3", token=None)
        self.assertEqual(client.status, 400)
        self.assertEqual(sorted(client.json["invalid"]), ["a", "b"])

    def test_names_are_bounded_and_harmless(self) -> None:
        """A long name, and one with odd characters, is repeated at most in part, in JSON only."""
        client = self.ask("x" * 5000, token=None)
        self.assertLess(len(client.received), 2000)
        client = self.ask(resource="a\u00e9\"'<script>", token=None)
        self.assertEqual(client.status, 404)
        self.assertEqual(client.headers["content-type"], "application/problem+json")

    def test_no_parameter_chooses_a_host(self) -> None:
        """Whatever stands in path, query or Host, it is the configured address that is asked."""
        for path in ("http://evil.example/x", "//evil.example/x", "/@evil.example", "/x?y"):
            self.ask(path=path, token=None, headers={"X-Forwarded-Host": "evil.example"})
        hosts = {(host, port) for host, port, *_ in self.stack.reactor.tcpClients}
        self.assertEqual(hosts, {("10.2.0.1", 8080)})
        self.assertEqual({asked.path for asked in self.service.asked}, {"/base/query"})
        self.assertEqual({asked.headers["host"] for asked in self.service.asked}, {"10.2.0.1:8080"})

    def test_list(self) -> None:
        """What needs no token is everybody's, whatever credential they bear for somebody else."""
        client = self.stack.client().get("/v1/services", Authorization="Bearer sk-1")
        services = client.json["services"]
        self.assertEqual(list(services), ["memory", "archive"])
        self.assertTrue(services["archive"]["resources"]["query"]["allowed"])
        self.assertEqual(services["memory"]["max_body_bytes"], 64)
        head = self.stack.client().get("/v1/services", "HEAD")
        self.assertEqual((head.status, head.body), (200, b""))

    def test_another_kind(self) -> None:
        """An adapter of another name is what its kind says, with paths of its own."""
        self.ask("archive", token=None)
        self.assertEqual(self.asked.path, "/v2/find")

    def test_body_bound(self) -> None:
        """Each adapter has its own bound on bodies, kept from the head on where that tells."""
        client = self.ask(body=b"x" * 65, token=None)
        self.assertEqual((client.status, client.json["max_body_bytes"]), (413, 64))
        self.ask("archive", body=b"x" * 65, token=None)
        self.assertEqual(len(self.asked.body), 65)
        client = self.stack.client().send(
            b"POST / HTTP/1.1\r\nHost: g\r\nX-Service: memory\r\nX-Resource: query\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n40\r\n" + b"x" * 64 + b"\r\n1\r\nx\r\n0\r\n\r\n"
        )
        self.assertEqual(client.status, 413)

    def test_cors(self) -> None:
        """The gateway's own errors carry the headers of CORS, and PUT and DELETE are allowed."""
        self.stack.text = OPEN + "cors: {origins: ['https://a.example']}\n"
        self.assertTrue(self.stack.gateway.reload())
        client = self.ask("x", token=None, headers={"Origin": "https://a.example"})
        self.assertEqual(client.headers["access-control-allow-origin"], "https://a.example")
        client = self.stack.client().get(
            "/", "OPTIONS", Origin="https://a.example", Access_Control_Request_Method="PUT"
        )
        self.assertIn("PUT, DELETE", client.headers["access-control-allow-methods"])


class UpstreamTests(ServicesTestCase):
    """What services may do."""

    config = OPEN

    def test_refusal(self) -> None:
        """Its 4xx or 5xx comes as a problem with its status and words."""
        for status in (400, 401, 404, 409, 418, 429, 500, 503):
            client = self.ask(token=None)
            self.asked.answer(status, {"detail": "no such thing"}, extra="retry-after: 7\r\n")
            # It is the gateway whose credentials it asks for: the client's own are good.
            self.assertEqual(client.status, 502 if status == 401 else status)
            problem = client.json
            self.assertEqual(problem["type"], "urn:twisted-gateway:problem:service_refused")
            self.assertEqual(problem["upstream_status"], status)
            self.assertEqual(problem["upstream_message"], "no such thing")
            self.assertEqual(client.headers["retry-after"], "7")
            self.assertIs(self.stack.entries[-1].outcome, Outcome.UPSTREAM_STATUS)

    def test_no_status(self) -> None:
        """A status that is none of HTTP's goes no further, and phrases are those of the status."""
        for status in (600, 999):
            client = self.ask(token=None)
            self.asked.answer(status, b"x")
            self.assertEqual(client.status, 502)
            self.assertTrue(self.asked.gone)
        client = self.ask(token=None)
        self.asked.answer(418, b"x")
        self.assertFalse(client.received.startswith(b"HTTP/1.1 418 OK"))
        client = self.ask(token=None)
        self.asked.answer(200, b"x")
        self.assertTrue(client.received.startswith(b"HTTP/1.1 200 OK"))

    def test_refusal_without_words(self) -> None:
        """An error whose body is huge, binary or missing is passed all the same."""
        for body in (b"", b"\0\xff" * 100, b"x" * 100_000):
            client = self.ask(token=None)
            self.asked.answer(503, body, content_type="application/octet-stream")
            self.assertEqual((client.status, client.json["upstream_status"]), (503, 503))
            self.assertLess(len(client.body), 10_000)

    def test_refusal_that_tells_where(self) -> None:
        """Words that name hosts inside come without those, and bounded."""
        client = self.ask(token=None)
        why = "see http://notes/x or 10.0.0.7:5432, kept in db.svc "
        self.asked.answer(500, {"error": why + "x" * 9000})
        said = client.json["upstream_message"]
        self.assertTrue(said.startswith("see http://***/x or ***, kept in *** xx"), said)
        self.assertLess(len(client.body), 10_000)

    def test_redirect(self) -> None:
        """A redirect is not followed, and its target not told."""
        client = self.ask(token=None)
        self.asked.answer(302, b"", extra="location: http://inside.example/\r\n")
        self.assertEqual(client.status, 502)
        self.assertNotIn(b"inside.example", client.received)
        self.assertEqual(len(self.service.asked), 1)

    def test_unreachable(self) -> None:
        """Refused connections are 502."""
        self.service.up = False
        client = self.ask(token=None)
        self.assertEqual(client.status, 502)
        self.assertIs(self.stack.entries[-1].outcome, Outcome.UPSTREAM_ERROR)

    def test_dies(self) -> None:
        """So is a connection that ends before the answer, and an answer that is no HTTP."""
        client = self.ask(token=None)
        self.asked.die()
        self.assertEqual(client.status, 502)
        client = self.ask(token=None)
        self.asked.send(b"SMTP ready\r\n")
        self.assertEqual(client.status, 502)

    def test_silent(self) -> None:
        """Silence for timeoutSeconds is 504, and the connection is given up."""
        client = self.ask(token=None)
        self.stack.advance(7)
        self.assertEqual(client.status, 0)
        self.stack.advance(2)
        self.assertEqual(client.status, 504)
        self.assertTrue(self.asked.gone)
        self.assertIs(self.stack.entries[-1].outcome, Outcome.UPSTREAM_TIMEOUT)

    def test_breaks_off(self) -> None:
        """An answer that ends before it is whole is cut, so that nobody takes it for whole."""
        client = self.ask(token=None)
        self.asked.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
        self.asked.die()
        self.assertEqual(client.status, 200)
        self.assertTrue(client.wire.aborted)
        self.assertIs(self.stack.entries[-1].outcome, Outcome.UPSTREAM_INCOMPLETE)

    def test_silent_in_the_middle(self) -> None:
        """Silence within the answer is cut too."""
        client = self.ask(token=None)
        self.asked.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
        self.stack.advance(9)
        self.assertTrue(client.wire.aborted)
        self.assertTrue(self.asked.gone)
        self.assertIs(self.stack.entries[-1].outcome, Outcome.UPSTREAM_TIMEOUT)

    def test_slow_client(self) -> None:
        """While the client does not take the answer the service is paused, and its time stands."""
        client = self.ask(token=None)
        client.wire.congested = True
        self.asked.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
        self.assertEqual(self.asked.wire.producerState, "paused")
        self.stack.advance(30)
        self.assertFalse(client.wire.aborted)
        client.wire.relieve()
        self.stack.settle()
        self.asked.send(b"x" * 96)
        self.assertTrue(client.whole)

    def test_stalled_client(self) -> None:
        """A client that takes nothing for a minute is cut, and the service let go."""
        client = self.ask(token=None)
        client.wire.congested = True
        self.asked.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
        self.stack.advance(80)
        self.assertTrue(client.wire.aborted)
        self.assertTrue(self.asked.gone)
        self.assertIs(self.stack.entries[-1].outcome, Outcome.CLIENT_STALLED)

    def test_client_leaves(self) -> None:
        """When the client leaves, before or in the middle of the answer, so does the request."""
        client = self.ask(token=None)
        client.leave()
        self.assertTrue(self.asked.gone)
        self.assertIs(self.stack.entries[-1].outcome, Outcome.CLIENT_DISCONNECT)
        client = self.ask(token=None)
        self.asked.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
        client.leave()
        self.assertTrue(self.asked.gone)
        self.assertIs(self.stack.entries[-1].outcome, Outcome.CLIENT_DISCONNECT)
        self.assertEqual(len(self.stack.gateway.exchanges), 0)


class LifeTests(ServicesTestCase):
    """Reload and drain."""

    config = OPEN

    def test_a_fault_of_ours(self) -> None:
        """A fault of the gateway's own is 500, logged, and tells nothing of itself."""
        self.patch(memory, "chosen", lambda *_: 1 / 0)
        client = self.ask(token=None)
        self.assertEqual((client.status, client.json["status"]), (500, 500))
        self.assertNotIn(b"division", client.received)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertIs(self.stack.entries[-1].outcome, Outcome.INTERNAL_ERROR)

    def test_reload(self) -> None:
        """A reload puts other adapters in force; a request under way keeps its own."""
        client = self.ask(token=None)
        self.stack.text = OPEN.replace("archive:", "other:")
        self.assertTrue(self.stack.gateway.reload())
        self.assertEqual(self.ask("archive", token=None).status, 404)
        self.asked.answer(body={"old": True})
        self.assertEqual(client.json, {"old": True})

    def test_reload_at_the_door(self) -> None:
        """So does one that still waits to be let in."""
        self.stack.text = MEMORY + AUTH
        self.assertTrue(self.stack.gateway.reload())
        self.give_keys()
        client = self.ask(token=self.token(key="ec-2"))
        self.stack.text = MEMORY.replace("memory: {", "other: {kind: memory, ") + AUTH
        self.assertTrue(self.stack.gateway.reload())
        self.issuer.last.answer(body=issuer.jwks(issuer.ec_jwk("ec-2")))
        self.asked.answer(body={"old": True})
        self.assertEqual(client.json, {"old": True})

    def test_drain(self) -> None:
        """While the process drains new requests are refused, and those under way end."""
        client = self.ask(token=None)
        drained = self.stack.gateway.drain()
        late = self.ask(token=None)
        self.assertEqual((late.status, late.json["reason"]), (503, "draining"))
        self.asked.answer()
        self.assertEqual(client.status, 200)
        self.stack.advance(15)
        self.successResultOf(drained)

    def test_end_of_drain(self) -> None:
        """What is left after drainSeconds is told so, or cut where its answer has begun."""
        self.stack.text = OPEN + "drainSeconds: 3\n"
        self.stack.gateway.reload()
        waiting = self.ask(token=None)
        half = self.ask(token=None)
        self.asked.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
        drained = self.stack.gateway.drain()
        self.stack.advance(16)
        self.assertEqual(waiting.status, 503)
        self.assertTrue(half.wire.aborted)
        self.successResultOf(drained)

    def test_metrics(self) -> None:
        """Requests are counted by route and outcome; what is asked for in vain makes no series."""
        self.ask(token=None)
        self.asked.answer()
        for number in range(20):
            self.ask(f"x{number}", quote(f"r{number}"), token=None)
        count = self.stack.metric
        self.assertEqual(
            count("gateway_requests_total", route="memory/query", outcome="ok", model=""), 1
        )
        self.assertEqual(
            count("gateway_requests_total", route="services", outcome="bad_request"), 20
        )
        self.assertEqual(count("gateway_inflight", model=""), 0)
        self.assertEqual(count("gateway_upstream_seconds_count", model=""), 1)
