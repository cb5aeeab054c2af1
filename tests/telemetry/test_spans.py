"""The spans of a request, in an exporter that keeps them in memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from unittest import mock

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, format_span_id, format_trace_id
from twisted.internet.defer import CancelledError, Deferred
from twisted.web.http_headers import Headers

from tests.support import TestCase
from tests.telemetry.test_tracing import PARENT, SPAN, TRACE, headers
from twisted_gateway.core.account import Account
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.telemetry.export import make_provider
from twisted_gateway.telemetry.spans import MOST_EVENTS, SpanTracing
from twisted_gateway.telemetry.tracing import RequestTrace

GEN_AI = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "vllm",
    "gen_ai.request.model": "reasoning",
    "gen_ai.response.model": "Qwen",
    "gen_ai.response.id": "chatcmpl-1",
    "gen_ai.response.finish_reasons": ("stop",),
    "gen_ai.usage.input_tokens": 10,
    "gen_ai.usage.output_tokens": 20,
    "gen_ai.usage.cache_read.input_tokens": 8,
}


class SpansTestCase(TestCase):
    """Tracing into memory."""

    sampler = "parentbased_always_on"
    sampler_argument = ""

    def setUp(self) -> None:
        super().setUp()
        environment = mock.patch.dict(
            os.environ,
            OTEL_TRACES_SAMPLER=self.sampler,
            OTEL_TRACES_SAMPLER_ARG=self.sampler_argument,
        )
        environment.start()
        self.addCleanup(environment.stop)
        self.exporter = InMemorySpanExporter()
        provider = make_provider([SimpleSpanProcessor(self.exporter)])
        self.threads: list[Callable[[], None]] = []
        self.stopped: list[str] = []
        self.tracing = SpanTracing(
            provider.get_tracer("tests"),
            lambda: self.stopped.append("stopped"),
            self.clock,
            lambda call: call(),
            self.threads.append,
        )

    def request(self, incoming: Headers | None = None, trusted: bool = False) -> RequestTrace:
        known = {"http.request.method": "POST", "url.path": "/v1/chat/completions"}
        trace = self.tracing.request(incoming or Headers(), trusted, lambda: known)
        trace.describe(route="/v1/chat/completions")
        trace.describe(model="reasoning", provider="vllm", stream=True)
        return trace

    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.exporter.get_finished_spans()}


class TreeTests(SpansTestCase):
    """Which spans there are, and how they hang together."""

    def test_a_request_that_parked(self) -> None:
        """A server span, the time parked and the call to the engine below it."""
        trace = self.request()
        with trace.park(lambda: {"admission.running": 4}) as parked:
            parked.decided("admitted")
        attempt = trace.upstream("http://key@engine.example:8000/base")
        attempt.status(200)
        trace.first_token(0.5)
        trace.used(Account("Qwen", "chatcmpl-1", ("stop",), 10, 20, 8))
        attempt.end(Outcome.OK)
        trace.end(Outcome.OK, 200)
        spans = self.spans()
        server = spans["POST /v1/chat/completions"]
        self.assertEqual(server.kind, SpanKind.SERVER)
        self.assertIsNone(server.parent)
        self.assertEqual(
            dict(server.attributes or {}),
            {
                "http.request.method": "POST",
                "http.route": "/v1/chat/completions",
                "http.response.status_code": 200,
                "url.path": "/v1/chat/completions",
                "gen_ai.request.stream": True,
                "gateway.outcome": "ok",
                **GEN_AI,
            },
        )
        self.assertEqual([event.name for event in server.events], ["first_token"])
        client = spans["chat reasoning"]
        self.assertEqual(client.kind, SpanKind.CLIENT)
        self.assertEqual(
            dict(client.attributes or {}),
            {
                "http.request.method": "POST",
                "server.address": "engine.example",
                "server.port": 8000,
                "network.protocol.version": "1.1",
                "http.response.status_code": 200,
                "gen_ai.response.time_to_first_chunk": 0.5,
                **GEN_AI,
            },
        )
        self.assertEqual(
            dict(spans["admission.park"].attributes or {}),
            {"admission.running": 4, "admission.outcome": "admitted"},
        )
        for child in (client, spans["admission.park"]):
            assert child.parent is not None and server.context is not None
            self.assertEqual(child.parent.span_id, server.context.span_id)

    def test_the_log_and_the_engine_know_the_trace(self) -> None:
        """The engine's parent is the span of the call to it, in the trace that is logged."""
        trace = self.request()
        outgoing = headers("stale", tracestate="stale=1", baggage="k=v")
        attempt = trace.upstream("https://engine")
        attempt.inject(outgoing)
        attempt.end(Outcome.OK)
        client = self.spans()["chat reasoning"]
        assert client.context is not None
        span = format_span_id(client.context.span_id)
        (parent,) = outgoing.getRawHeaders("traceparent", [])
        self.assertEqual(parent[:-2], f"00-{trace.trace_id}-{span}-")
        self.assertTrue(int(parent[-2:], 16) & 1)
        self.assertEqual(trace.trace_id, format_trace_id(client.context.trace_id))
        self.assertFalse(outgoing.hasHeader("tracestate"))
        self.assertEqual(outgoing.getRawHeaders("baggage"), ["k=v"])
        self.assertEqual((client.attributes or {})["server.port"], 443)

    def test_requests_that_interleave_keep_apart(self) -> None:
        """Spans find their own request across awaits, whoever runs in between."""
        gates: list[Deferred[None]] = [Deferred(), Deferred(), Deferred()]
        traces = []

        async def one(gate: Deferred[None]) -> None:
            trace = self.request()
            traces.append(trace)
            with trace.park():
                await gate
            trace.upstream("http://engine").end(Outcome.OK)
            trace.end(Outcome.OK, 200)

        running = [Deferred.fromCoroutine(one(gate)) for gate in gates]
        for gate in reversed(gates):
            gate.callback(None)
        for each in running:
            self.successResultOf(each)
        found = [span.context.trace_id for span in self.exporter.get_finished_spans()]
        self.assertEqual(
            sorted(format_trace_id(one) for one in found),
            sorted(3 * [trace.trace_id for trace in traces]),
        )

    def test_a_request_without_a_model(self) -> None:
        """Operations requests have no gen_ai attributes."""
        trace = self.tracing.request(Headers(), trusted=False)
        trace.describe(method="GET", route="/health")
        trace.upstream("http://engine").end(None)
        trace.end(Outcome.OK, 200)
        server = self.spans()["GET /health"]
        self.assertFalse([key for key in server.attributes or {} if key.startswith("gen_ai")])
        self.assertIn("POST", self.spans())


class EndTests(SpansTestCase):
    """How spans end."""

    def status(self, name: str) -> StatusCode:
        return self.spans()[name].status.status_code

    def test_outcomes_are_statuses(self) -> None:
        """Faults of engine and gateway are errors; a client that leaves or errs is not."""
        for outcome, status, meant, wanted in (
            (Outcome.OK, 200, 0, StatusCode.UNSET),
            (Outcome.CLIENT_DISCONNECT, 0, 0, StatusCode.UNSET),
            (Outcome.BAD_REQUEST, 400, 0, StatusCode.UNSET),
            (Outcome.UPSTREAM_STATUS, 404, 0, StatusCode.UNSET),
            (Outcome.UPSTREAM_STATUS, 200, 404, StatusCode.UNSET),
            (Outcome.UPSTREAM_STATUS, 200, 500, StatusCode.ERROR),
            (Outcome.REJECTED, 503, 0, StatusCode.ERROR),
            (Outcome.REJECTED, 200, 503, StatusCode.ERROR),
            (Outcome.UPSTREAM_INCOMPLETE, 200, 0, StatusCode.ERROR),
        ):
            self.exporter.clear()
            self.request().end(outcome, status, meant_status=meant)
            self.assertEqual(self.status("POST /v1/chat/completions"), wanted, outcome)
            (span,) = self.exporter.get_finished_spans()
            self.assertEqual((span.attributes or {})["gateway.outcome"], outcome.value)
            self.assertEqual("http.response.status_code" in (span.attributes or {}), status != 0)

    def test_the_first_end_counts(self) -> None:
        """A request ends once."""
        trace = self.request()
        trace.end(Outcome.OK, 200)
        trace.end(Outcome.INTERNAL_ERROR, 500)
        trace.describe(model="late")
        (span,) = self.exporter.get_finished_spans()
        self.assertEqual((span.attributes or {})["gateway.outcome"], "ok")

    def error_type(self) -> object:
        span = self.spans()["chat reasoning"]
        self.assertEqual(span.status.status_code, StatusCode.ERROR)
        return (span.attributes or {})["error.type"]

    def test_an_engine_that_fails(self) -> None:
        """The try is an error, of the kind that it was said to be."""
        attempt = self.request().upstream("http://engine")
        attempt.failed("ConnectFailed")
        attempt.end(Outcome.UPSTREAM_ERROR)
        self.assertEqual(self.error_type(), "ConnectFailed")

    def test_an_engine_that_answers_with_an_error(self) -> None:
        """Its status makes the try an error."""
        attempt = self.request().upstream("http://engine")
        attempt.status(503)
        attempt.end(None)
        self.assertEqual(self.error_type(), "503")

    def test_an_engine_that_breaks_off(self) -> None:
        """How the request ended by it makes the try an error; it ends once."""
        attempt = self.request().upstream("http://engine")
        attempt.status(200)
        attempt.end(Outcome.UPSTREAM_INCOMPLETE)
        attempt.end(Outcome.OK)
        self.assertEqual(self.error_type(), "upstream_incomplete")

    def test_tries_are_counted(self) -> None:
        """Each further one says how many there were before."""
        trace = self.request()
        for _ in range(3):
            trace.upstream("http://engine").end(None)
        counts = [
            (span.attributes or {}).get("http.request.resend_count")
            for span in self.exporter.get_finished_spans()
        ]
        self.assertEqual(counts, [None, 1, 2])

    def test_a_refusal_by_the_gate(self) -> None:
        """The park says so, with the reason, and is no error."""
        with self.request().park() as parked:
            parked.decided("refused", "park_timeout")
        (span,) = self.exporter.get_finished_spans()
        self.assertEqual(
            dict(span.attributes or {}),
            {"admission.outcome": "refused", "admission.reason": "park_timeout"},
        )
        self.assertEqual(span.status.status_code, StatusCode.UNSET)

    def test_a_client_that_leaves_is_an_event(self) -> None:
        """When it left can be seen in the span."""
        self.request().end(Outcome.CLIENT_DISCONNECT, 200)
        (span,) = self.exporter.get_finished_spans()
        self.assertEqual([event.name for event in span.events], ["client_disconnect"])

    def test_a_stream_of_hours(self) -> None:
        """Its first events are kept and the others counted."""
        trace = self.request()
        for _ in range(1000):
            trace.event("keep_alive")
        trace.first_token(0.5)
        trace.end(Outcome.OK, 200)
        (span,) = self.exporter.get_finished_spans()
        names = [event.name for event in span.events]
        self.assertEqual(names, ["keep_alive"] * MOST_EVENTS + ["first_token"])
        self.assertEqual((span.attributes or {})["gateway.keep_alive.count"], 1000)

    def test_what_is_forgotten_is_not_exported(self) -> None:
        """A probe leaves no span, whatever is told of it afterwards."""
        trace = self.request()
        trace.forget()
        trace.describe(method="GET", route="/health")
        trace.event("keep_alive")
        trace.end(Outcome.OK, 200)
        self.assertEqual(self.exporter.get_finished_spans(), ())

    def test_methods_that_no_rfc_knows(self) -> None:
        """They are all one, so that nobody makes up names of spans."""
        trace = self.request()
        trace.describe(method="BREW")
        trace.end(Outcome.BAD_REQUEST, 405)
        (span,) = self.exporter.get_finished_spans()
        self.assertEqual(span.name, "HTTP /v1/chat/completions")
        self.assertEqual((span.attributes or {})["http.request.method"], "_OTHER")

    def test_a_client_that_leaves(self) -> None:
        """Cancelled in the queue or at the engine, the spans end, and nobody is to blame."""
        trace = self.request()

        async def parked() -> None:
            with trace.park():
                await Deferred()

        work = Deferred.fromCoroutine(parked())
        work.cancel()
        self.failureResultOf(work, CancelledError)
        trace.upstream("http://engine").end(Outcome.CLIENT_DISCONNECT)
        self.assertEqual(self.status("admission.park"), StatusCode.UNSET)
        park = self.spans()["admission.park"]
        self.assertEqual(dict(park.attributes or {}), {"admission.outcome": "left"})
        self.assertEqual(self.status("chat reasoning"), StatusCode.UNSET)


class IncomingTests(SpansTestCase):
    """Contexts that come in."""

    def injected(self, incoming: Headers, trusted: bool) -> tuple[bool, list[str]]:
        """The sampled flag that goes to the engine, and its `tracestate`."""
        trace = self.request(incoming, trusted)
        self.assertEqual(trace.trace_id, TRACE)
        outgoing = Headers()
        attempt = trace.upstream("http://engine")
        attempt.inject(outgoing)
        attempt.end(Outcome.OK)
        trace.end(Outcome.OK, 200)
        self.assertEqual(trace.recording, trace.exemplar is not None)
        (parent,) = outgoing.getRawHeaders("traceparent", [])
        return bool(int(parent[-2:], 16) & 1), list(outgoing.getRawHeaders("tracestate", []))

    def test_the_server_span_continues_the_trace(self) -> None:
        """Its parent is the caller's span, and the caller's state goes on."""
        self.assertEqual(self.injected(headers(PARENT, tracestate="a=1"), True), (True, ["a=1"]))
        server = self.spans()["POST /v1/chat/completions"]
        assert server.parent is not None
        self.assertEqual(format_span_id(server.parent.span_id), SPAN)

    def test_a_trusted_proxy_decides(self) -> None:
        """What it does not record is not recorded here."""
        asked: list[str] = []
        trace = self.request(headers(PARENT[:-1] + "0"), True)

        def seen() -> dict[str, str]:
            asked.append("seen")
            return {}

        with trace.park(seen):
            pass
        self.assertFalse(self.injected(headers(PARENT[:-1] + "0"), True)[0])
        self.assertEqual(self.exporter.get_finished_spans(), ())
        self.assertEqual((asked, trace.span_id, trace.exemplar), ([], "", None))

    def test_a_stranger_does_not(self) -> None:
        """The configured sampler decides as for a trace that begins here; the trace id stays."""
        incoming = headers(PARENT[:-1] + "0", tracestate="a=1")
        self.assertEqual(self.injected(incoming, False), (True, ["a=1"]))
        self.assertEqual(len(self.spans()), 2)


class OffSamplerTests(IncomingTests):
    """The same with a sampler that records nothing of its own accord."""

    sampler = "parentbased_always_off"

    def test_a_stranger_does_not(self) -> None:
        """A stranger's flag makes nobody record."""
        self.assertFalse(self.injected(headers(PARENT), False)[0])
        self.assertEqual(self.spans(), {})


class RatioSamplerTests(SpansTestCase):
    """With a sampler that looks at nothing but the trace id."""

    sampler = "traceidratio"
    sampler_argument = "0.5"

    def test_a_strangers_trace_id_has_no_say(self) -> None:
        """An id chosen so that this sampler always takes it is taken only as often as others."""
        chosen = headers(f"00-{'0' * 31}1-{SPAN}-01")
        for _ in range(64):
            self.request(chosen, trusted=False).end(Outcome.OK, 200)
        self.assertLess(len(self.exporter.get_finished_spans()), 64)

    def test_a_trace_is_recorded_whole_or_not_at_all(self) -> None:
        """Children follow their server span, whatever the sampler says of their trace id."""
        for _ in range(32):
            self.exporter.clear()
            trace = self.request(headers(PARENT), trusted=False)
            with trace.park():
                pass
            trace.end(Outcome.OK, 200)
            self.assertIn(len(self.exporter.get_finished_spans()), (0, 2))


class ShutdownTests(SpansTestCase):
    """The end of the process."""

    def test_what_is_left_is_sent_in_a_thread(self) -> None:
        """The reactor goes on meanwhile."""
        done = self.tracing.shutdown()
        self.assertNoResult(done)
        self.threads.pop()()
        self.assertEqual(self.stopped, ["stopped"])
        self.successResultOf(done)

    def test_it_takes_two_seconds_at_most(self) -> None:
        """A collector that hangs holds nobody up; if it ends later, nothing happens."""
        done = self.tracing.shutdown()
        self.clock.advance(1.9)
        self.assertNoResult(done)
        self.clock.advance(0.1)
        self.successResultOf(done)
        self.threads.pop()()
