from __future__ import annotations

import base64
from typing import Any

from tests.services.stack import ServicesTestCase, said
from tests.stack import Asked

CONFIG = """
adapters:
  memory: {upstream: "http://10.2.0.1:8080", requireAuth: false, timeoutSeconds: 60,
           client: {id: "gate way", secret: "s:cret/%", scope: "a b"}}
auth:
  issuer: https://issuer.example
  audience: gateway
  jwksUrl: http://10.9.0.1/jwks
  tokenUrl: http://10.9.0.2/token?tenant=1
"""


class OwnTokenTests(ServicesTestCase):
    """The gateway's own token towards a service."""

    config = CONFIG

    @property
    def requests(self) -> list[Asked]:
        return self.stack.engine("10.9.0.2", 80).asked

    def give(self, text: str = "t1", **members: Any) -> None:
        self.requests[-1].answer(
            body={"access_token": text, "token_type": "Bearer", "expires_in": 300, **members}
        )

    def test_request(self) -> None:
        """It is asked for as RFC 6749 has it, with the client's name and secret encoded."""
        self.ask(token=None)
        request = self.requests[-1]
        self.assertEqual((request.method, request.path), ("POST", "/token?tenant=1"))
        self.assertEqual(request.body, b"grant_type=client_credentials&scope=a+b")
        kind, _, pair = request.headers["authorization"].partition(" ")
        self.assertEqual(kind, "Basic")
        self.assertEqual(base64.b64decode(pair), b"gate+way:s%3Acret%2F%25")
        self.give()
        self.assertEqual(self.asked.headers["authorization"], "Bearer t1")

    def test_kept(self) -> None:
        """It is kept until shortly before its end; however many want it, one is asked for."""
        for _ in range(20):
            self.ask(token=None)
        self.assertEqual(len(self.requests), 1)
        self.give()
        self.assertEqual(len(self.service.asked), 20)
        self.stack.advance(50)
        self.ask(token=None)
        self.assertEqual(len(self.requests), 1)
        self.stack.advance(220, step=10)
        self.ask(token=None)
        self.assertEqual(len(self.requests), 2)
        self.give("t2")
        self.assertEqual(self.asked.headers["authorization"], "Bearer t2")

    def test_short_life(self) -> None:
        """One that lives for a short while is used for most of it."""
        self.ask(token=None)
        self.give(expires_in=10)
        self.stack.advance(7)
        self.ask(token=None)
        self.assertEqual(len(self.requests), 1)
        self.stack.advance(2)
        self.ask(token=None)
        self.assertEqual(len(self.requests), 2)
        self.give()

    def test_refused_by_the_service(self) -> None:
        """When the service does not accept it the next request brings another."""
        client = self.ask(token=None)
        self.give()
        lines = said(self)
        self.asked.answer(401, {"detail": "who? Bearer t1 is not good; t1"})
        self.assertEqual((client.status, client.json["upstream_status"]), (502, 401))
        self.assertEqual(client.json["upstream_message"], "who? *** is not good; ***")
        self.assertNotIn("t1", "".join(lines))
        self.ask(token=None)
        self.assertEqual(len(self.requests), 2)
        self.give("t2")
        self.assertEqual(self.asked.headers["authorization"], "Bearer t2")

    def test_leaving(self) -> None:
        """Who leaves while waiting does not take it from the others."""
        leaving = self.ask(token=None)
        staying = self.ask(token=None)
        leaving.leave()
        self.give()
        self.asked.answer(body={"ok": 1})
        self.assertEqual(staying.json, {"ok": 1})

    def test_provider_refuses(self) -> None:
        """Without one the service is not asked, and the answer says where it failed, no more."""
        self.ask(token=None)
        client = self.ask(token=None)
        why = {"error": "invalid_client", "error_description": "not s:cret/% or s%3Acret%2F%25"}
        self.requests[-1].answer(401, why)
        self.assertEqual(client.status, 502)
        self.assertIn("the token endpoint answered 401: invalid_client.", client.json["detail"])
        self.assertNotIn(b"cret", client.received)
        for body in (b"at http://10.9.0.2", b'{"error": "see 10.9.0.2"}', b"[1]", b'{"error": 5}'):
            client = self.ask(token=None)
            self.requests[-1].answer(503, body)
            self.assertIn("the token endpoint answered 503.", client.json["detail"])
        self.assertEqual(self.service.asked, [])

    def test_no_token(self) -> None:
        """Answers that hold none that can be sent are as good as a refusal."""
        for members in (
            {"access_token": None},
            {"access_token": "a b"},
            {"access_token": "a\r\nX: y"},
            {"access_token": "é"},
            {"access_token": ""},
            {"token_type": "mac"},
            {"token_type": None},
        ):
            client = self.ask(token=None)
            self.give(**members)
            self.assertEqual(client.status, 502, members)
        nan = b'{"access_token": "t", "token_type": "bearer", "expires_in": NaN}'
        for body in (b"[]", b"", b"nonsense", nan):
            client = self.ask(token=None)
            self.requests[-1].answer(body=body)
            self.assertEqual(client.status, 502, body)
        self.assertEqual(self.service.asked, [])

    def test_odd_lives(self) -> None:
        """A life that is none counts as a minute."""
        for life in (None, "300", -1, True, [1]):
            self.stack.advance(60, step=10)
            before = len(self.requests)
            self.ask(token=None)
            self.assertEqual(len(self.requests), before + 1, life)
            self.give(expires_in=life)

    def test_long_life(self) -> None:
        """A life of more seconds than a float holds is a week."""
        client = self.ask(token=None)
        self.give(expires_in=10**400)
        self.asked.answer()
        self.assertEqual(client.status, 200)
        self.stack.advance(7 * 86_400 - 40, step=86_400)
        self.ask(token=None).leave()
        self.assertEqual(len(self.requests), 1)
        self.stack.advance(20, step=10)
        self.ask(token=None).leave()
        self.assertEqual(len(self.requests), 2)

    def test_provider_is_slow(self) -> None:
        """A provider that does not answer is given up."""
        client = self.ask(token=None)
        self.stack.advance(11)
        self.assertEqual(client.status, 504)
        self.assertTrue(self.requests[-1].gone)


class EndpointTests(ServicesTestCase):
    """`POST /v1/auth/token`."""

    config = CONFIG

    @property
    def request(self) -> Asked:
        return self.stack.engine("10.9.0.2", 80).last

    def post(self, body: bytes = b"grant_type=client_credentials", **headers: str) -> Any:
        kind = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
        return self.stack.client().post("/v1/auth/token", body, {**kind, **headers})

    def test_passed(self) -> None:
        """The form and the client's own credentials go on, and the token comes back."""
        client = self.post(Authorization="Basic YTpi", Cookie="a=b")
        request = self.request
        self.assertEqual((request.method, request.path), ("POST", "/token?tenant=1"))
        self.assertEqual(request.body, b"grant_type=client_credentials")
        self.assertEqual(request.headers["authorization"], "Basic YTpi")
        self.assertNotIn("cookie", request.headers)
        request.answer(body={"access_token": "t"}, extra="set-cookie: a=b\r\n")
        self.assertEqual((client.status, client.json), (200, {"access_token": "t"}))
        self.assertEqual(client.headers["cache-control"], "no-store")
        self.assertNotIn("set-cookie", client.headers)
        self.assertEqual(self.stack.entries[-1].route, "/v1/auth/token")

    def test_errors(self) -> None:
        """The provider's errors pass as they are, for OAuth clients read them."""
        client = self.post()
        self.request.answer(
            401, {"error": "invalid_client"}, extra='www-authenticate: Basic realm="x"\r\n'
        )
        self.assertEqual((client.status, client.json), (401, {"error": "invalid_client"}))
        self.assertEqual(client.headers["www-authenticate"], 'Basic realm="x"')
        self.assertEqual(self.stack.entries[-1].outcome.value, "upstream_status")

    def test_inert(self) -> None:
        """Whatever the issuer answers with, and whatever goes wrong, no browser runs it."""
        answered = self.post()
        self.request.answer(200, b"<script>", content_type="text/html")
        for client in (answered, self.post(b"{}", **{"Content-Type": "application/json"})):
            self.assertEqual(client.headers["x-content-type-options"], "nosniff")
            self.assertIn("sandbox", client.headers["content-security-policy"])
        self.assertEqual(
            (answered.body, answered.headers["content-type"]), (b"<script>", "text/html")
        )

    def test_bearer_does_not_pass(self) -> None:
        """A bearer token is no client's credential."""
        self.post(Authorization="Bearer abc")
        self.assertNotIn("authorization", self.request.headers)

    def test_refused(self) -> None:
        """Other types, large bodies and other methods do not reach the provider."""
        client = self.post(b"{}", **{"Content-Type": "application/json"})
        self.assertEqual(client.status, 415)
        self.assertEqual(self.post(b"x" * 70_000).status, 413)
        self.assertEqual(self.stack.client().get("/v1/auth/token").status, 405)
        self.assertEqual(self.stack.engine("10.9.0.2", 80).asked, [])

    def test_provider_fails(self) -> None:
        """Silence is 504, an endless answer or none 502; a client that leaves takes it along."""
        client = self.post()
        self.stack.advance(11)
        self.assertEqual(client.status, 504)
        client = self.post()
        self.request.die()
        self.assertEqual(client.status, 502)
        client = self.post()
        self.request.answer(999)
        self.assertEqual(client.status, 502)
        client = self.post()
        self.request.answer(body=b"x" * 300_000)
        self.assertEqual(client.status, 502)
        client = self.post()
        client.leave()
        self.assertTrue(self.request.gone)
        self.assertEqual(self.stack.entries[-1].outcome.value, "client_disconnect")

    def test_drain(self) -> None:
        """Newcomers are refused, as everywhere; one that waits is served."""
        waiting = self.post()
        self.assertEqual(self.stack.metric("gateway_inflight", model=""), 1)
        _ = self.stack.gateway.drain()
        client = self.post()
        self.assertEqual((client.status, client.json["reason"]), (503, "draining"))
        self.assertEqual(len(self.stack.engine("10.9.0.2", 80).asked), 1)
        self.request.answer(body={"access_token": "t"})
        self.assertEqual(waiting.status, 200)
        self.assertEqual(self.stack.metric("gateway_inflight", model=""), 0)
        self.stack.advance(3)

    def test_trace(self) -> None:
        """The issuer's part belongs to the client's trace."""
        trace = "4bf92f3577b34da6a3ce929d0e0e4736"
        self.post(traceparent=f"00-{trace}-00f067aa0ba902b7-01")
        self.assertEqual(self.request.headers["traceparent"][3:35], trace)

    def test_not_configured(self) -> None:
        """Without a tokenUrl there is no such thing."""
        self.stack.text = (
            CONFIG.replace("  tokenUrl:", "  #")
            .replace("client:", "#")
            .replace("           #", "           }\n#")
        )
        self.assertTrue(self.stack.gateway.reload())
        client = self.post()
        self.assertEqual(client.status, 404)
