from __future__ import annotations

import hmac

from opentelemetry.trace import SpanKind, StatusCode, format_span_id
from twisted.logger import LogEvent, formatEvent

from tests.services.stack import AUTH
from tests.services.test_dispatch import OPEN
from tests.stack import Client, Stack
from tests.web.test_traces import TRACE, TracesTestCase
from twisted_gateway.web import service_answer, service_call

HOOK = """
webhooks:
  forgejo:
    secret: s
    targets: [{event: push, service: memory, resource: ingest, parameters: {text: x}}]
"""


class ServiceTraces(TracesTestCase):
    """What traces and log tell of requests to services."""

    def ask(self, stack: Stack, service: str = "memory", **headers: str) -> Client:
        lines = {"X-Service": service, "X-Resource": "query", **headers}
        return stack.client().post("/", {"secret": "prompt"}, lines)

    def said(self) -> list[str]:
        """The warnings of services."""
        return [formatEvent(one) for one in self.events if "service" in one]

    def test_spans(self) -> None:
        """A server span by the route, below it a client span, the parent of the service's own."""
        stack = self.stack(OPEN)
        self.ask(stack, traceparent=f"00-{TRACE}-b7ad6b7169203331-01")
        asked = stack.engine("10.2.0.1", 8080).last
        asked.answer()
        spans = {span.kind: span for span in self.of(TRACE)}
        server, client = spans[SpanKind.SERVER], spans[SpanKind.CLIENT]
        self.assertEqual(server.name, "POST memory/query")
        assert server.attributes is not None
        assert client.attributes is not None
        self.assertEqual(server.attributes["http.route"], "memory/query")
        self.assertEqual(client.name, "POST")
        self.assertEqual(client.attributes["server.address"], "10.2.0.1")
        self.assertEqual(client.attributes["http.request.method"], "POST")
        self.assertNotIn("gen_ai.request.model", client.attributes)
        parent = f"00-{TRACE}-{format_span_id(client.context.span_id)}-01"
        self.assertEqual(asked.headers["traceparent"], parent)

    def test_tokens(self) -> None:
        """So it is with the issuer, which is asked for a token; when it is down both are errors."""
        stack = self.stack(OPEN + AUTH + "  tokenUrl: http://10.9.0.1/token\n")
        issuer = stack.engine("10.9.0.1", 80)
        issuer.last.answer(body=b'{"keys": []}')
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        parent = f"00-{TRACE}-b7ad6b7169203331-01"
        stack.client().post("/v1/auth/token", b"a=b", {**form, "traceparent": parent})
        issuer.last.answer()
        spans = {span.kind: span for span in self.of(TRACE)}
        client = spans[SpanKind.CLIENT]
        assert client.attributes is not None
        self.assertEqual(client.attributes["server.address"], "10.9.0.1")
        parent = f"00-{TRACE}-{format_span_id(client.context.span_id)}-01"
        self.assertEqual(issuer.last.headers["traceparent"], parent)
        stack.client().post("/v1/auth/token", b"a=b", form)
        issuer.last.die()
        spans = {span.kind: span for span in self.of(stack.entries[-1].trace_id)}
        codes = {span.status.status_code for span in spans.values()}
        self.assertEqual((len(spans), codes), (2, {StatusCode.ERROR}))

    def test_failure(self) -> None:
        """A service that fails makes both spans errors, and one line in the log for all."""
        stack = self.stack(OPEN)
        stack.engine("10.2.0.1", 8080).up = False
        for _ in range(5):
            self.ask(stack)
        spans = self.of(stack.entries[-1].trace_id)
        self.assertEqual({span.status.status_code for span in spans}, {StatusCode.ERROR})
        self.assertEqual(len(self.said()), 1)
        self.assertIn("memory: the connection was refused", self.said()[0])

    def test_refusals_of_our_key(self) -> None:
        """What a service says of the gateway's key, or of itself, is in the log; 404s are not."""
        stack = self.stack(OPEN)
        for status, lines in ((404, 0), (409, 0), (403, 1), (403, 1), (500, 2)):
            self.ask(stack)
            stack.engine("10.2.0.1", 8080).last.answer(status, {"detail": "go {away}"})
            self.assertEqual(len(self.said()), lines, status)
        # Not with its words, which may quote what the client sent.
        self.assertIn("memory: it answered 403 (request_id=", self.said()[0])

    def test_nothing_of_the_client(self) -> None:
        """Neither bodies nor tokens nor queries are in the log or the spans."""
        stack = self.stack(OPEN)
        self.ask(stack, Authorization="Bearer secret-token")
        stack.engine("10.2.0.1", 8080).last.answer(500, b"")
        stack.client().get("/?key=secret-key", X_Service="memory", X_Resource="query")
        events: list[LogEvent] = self.events
        told = repr(events) + repr(stack.entries)
        told += "".join(span.to_json() for span in self.exporter.get_finished_spans())
        for secret in ("secret-token", "prompt", "secret-key"):
            self.assertNotIn(secret, told)

    def test_faults_of_ours(self) -> None:
        """A fault of the gateway's own makes the service's span an error too."""
        stack = self.stack(OPEN)
        self.patch(service_answer, "_head", lambda *_: 1 / 0)
        self.ask(stack)
        stack.engine("10.2.0.1", 8080).last.answer()
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        spans = self.of(stack.entries[-1].trace_id)
        self.assertEqual([span.status.status_code for span in spans], [StatusCode.ERROR] * 2)

    def test_webhook_targets(self) -> None:
        """An event's span says how its target ended, be that a fault of ours."""
        stack = self.stack(OPEN + HOOK)
        body = b"{}"
        signature = hmac.digest(b"s", body, "sha256").hex()
        lines = {
            "X-Forgejo-Event": "push",
            "X-Forgejo-Delivery": "d1",
            "X-Forgejo-Signature": signature,
        }
        self.patch(service_call, "read_whole", lambda *_, **__: 1 / 0)
        stack.client().post("/v1/webhooks/forgejo", body, lines)
        stack.engine("10.2.0.1", 8080).last.answer()
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        spans = {span.kind: span for span in self.of(stack.entries[-1].trace_id)}
        self.assertIs(spans[SpanKind.CLIENT].status.status_code, StatusCode.ERROR)
