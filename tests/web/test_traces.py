"""What the traces and the log tell of requests that go through the whole stack."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Any, cast

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, format_span_id, format_trace_id
from twisted.internet.task import Clock
from twisted.logger import ILogObserver, LogEvent, formatEvent, globalLogPublisher

from tests.stack import CONFIG, DONE, ROLE, Client, Stack, event, token
from tests.support import TestCase
from twisted_gateway.telemetry.export import make_provider
from twisted_gateway.telemetry.log import ABOUT, RequestLogger, carried
from twisted_gateway.telemetry.spans import SpanTracing
from twisted_gateway.web import meter, proxy, reply

PROXIES = "tenants: {trustedProxies: [192.0.2.0/24]}\n" + CONFIG
TRACE = "0af7651916cd43dd8448eb211c80319c"
HEADERS = {
    "X-Forwarded-Proto": "https, http",
    "X-Forwarded-Host": "api.example:8443",
    "X-Forwarded-For": "198.51.100.9",
    "User-Agent": "OpenAI/Python 3",
}
SERVER = "POST /v1/chat/completions"


class TracesTestCase(TestCase):
    """A gateway whose spans are kept in memory, and whose log is heard."""

    maxDiff = None

    def setUp(self) -> None:
        super().setUp()
        self.exporter = InMemorySpanExporter()
        provider = make_provider([SimpleSpanProcessor(self.exporter)])
        self.tracing = SpanTracing(
            provider.get_tracer("tests"), provider.shutdown, Clock(), _now, _now
        )
        self.events: list[LogEvent] = []
        observer = cast(ILogObserver, self.events.append)
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)

    def stack(self, config: str = CONFIG) -> Stack:
        return Stack(self, config, tracing=self.tracing)

    def fill(self, stack: Stack, count: int = 4) -> list[Client]:
        """Occupy the engine's places, and forget the spans of it later."""
        return [stack.client().chat(stream=True) for _ in range(count)]

    def of(self, trace_id: str) -> list[ReadableSpan]:
        """The spans of one trace, as they ended."""
        return [
            span
            for span in self.exporter.get_finished_spans()
            if format_trace_id(span.context.trace_id) == trace_id
        ]

    def last(self, stack: Stack) -> dict[str, ReadableSpan]:
        """The spans of the request that ended last, by name."""
        return {span.name: span for span in self.of(stack.entries[-1].trace_id)}

    def attributes(self, span: ReadableSpan) -> dict[str, Any]:
        return dict(span.attributes or {})


class TreeTests(TracesTestCase):
    """The spans of one request, and how they hang together."""

    def test_a_parked_stream(self) -> None:
        """Server, park with the gauges that parked it, client with what the engine said."""
        stack = self.stack()
        stack.poll(running=0, kv=0.25)
        self.fill(stack)
        stack.poll(running=4, waiting=0, kv=0.5)
        client = stack.client().chat(stream=True, headers={"X-Priority": "batch"})
        stack.advance(31)
        stack.engine().asked[0].stream(ROLE, DONE).end()
        stack.advance(0.5)
        stack.engine().last.stream(
            event(id="c-1", model="Qwen/Qwen3-32B", choices=[{"delta": {"role": "assistant"}}]),
            token("a"),
            token("b"),
            event(
                id="c-1", model="Qwen/Qwen3-32B", choices=[{"delta": {}, "finish_reason": "length"}]
            ),
            event(choices=[], usage={"prompt_tokens": 7, "completion_tokens": 2}),
            DONE,
        ).end()
        self.assertTrue(client.whole)
        spans = self.last(stack)
        self.assertEqual(set(spans), {SERVER, "admission.park", "chat reasoning"})
        server, park, call = (spans[name] for name in (SERVER, "admission.park", "chat reasoning"))
        self.assertIsNone(server.parent)
        for child in (park, call):
            assert child.parent is not None
            self.assertEqual(child.parent.span_id, server.context.span_id)
        self.assertEqual((server.kind, call.kind), (SpanKind.SERVER, SpanKind.CLIENT))
        said = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "vllm",
            "gen_ai.request.model": "reasoning",
            "gen_ai.response.model": "Qwen/Qwen3-32B",
            "gen_ai.response.id": "c-1",
            "gen_ai.response.finish_reasons": ("length",),
            "gen_ai.usage.input_tokens": 7,
            "gen_ai.usage.output_tokens": 2,
        }
        self.assertEqual(
            self.attributes(server),
            {
                "http.request.method": "POST",
                "http.route": "/v1/chat/completions",
                "http.response.status_code": 200,
                "url.path": "/v1/chat/completions",
                "url.scheme": "http",
                "network.protocol.version": "1.1",
                "server.address": "gateway",
                "gen_ai.request.stream": True,
                "gateway.outcome": "ok",
                **said,
            },
        )
        self.assertEqual(
            self.attributes(call),
            {
                "http.request.method": "POST",
                "http.response.status_code": 200,
                "server.address": "10.0.0.1",
                "server.port": 8000,
                "network.protocol.version": "1.1",
                "gen_ai.response.time_to_first_chunk": 0.5,
                **said,
            },
        )
        seen = self.attributes(park)
        self.assertLess(seen.pop("admission.sample_age_seconds"), 1)
        self.assertGreater(seen.pop("admission.prompt_tokens"), 0)
        seen.pop("admission.wait_estimate_seconds", None)
        self.assertEqual(
            seen,
            {
                "admission.running": 4,
                "admission.waiting": 0,
                "admission.kv_usage": 0.5,
                "admission.in_engine": 4,
                "admission.max_inflight": 4,
                "admission.judged_by": "fresh",
                "admission.long_prefill": False,
                "admission.position": 1,
                "admission.priority": "batch",
                "admission.reparked": False,
                "admission.outcome": "admitted",
            },
        )
        self.assertEqual(
            [one.name for one in server.events], ["keep_alive", "keep_alive", "first_token"]
        )

    def test_an_engine_that_refuses(self) -> None:
        """A try for each time that it was asked, a park between them, and the event of it."""
        stack = self.stack()
        stack.client().chat()
        stack.engine().last.answer(503, b"{}")
        stack.advance(3)
        stack.engine().last.answer(200, {"model": "m", "usage": {"prompt_tokens": 3}})
        spans = self.of(stack.entries[-1].trace_id)
        self.assertEqual(
            [span.name for span in spans],
            ["chat reasoning", "admission.park", "chat reasoning", SERVER],
        )
        first, park, second, server = map(self.attributes, spans)
        self.assertEqual((first["error.type"], first["http.response.status_code"]), ("503", 503))
        self.assertTrue(park["admission.reparked"])
        self.assertEqual(second["http.request.resend_count"], 1)
        self.assertEqual([one.name for one in spans[-1].events], ["refused_by_engine", "reparked"])
        for answered in (second, server):
            self.assertEqual(answered["gen_ai.response.model"], "m")
            self.assertEqual(answered["gen_ai.usage.input_tokens"], 3)
        self.assertEqual(spans[-1].status.status_code, StatusCode.UNSET)

    def test_an_engine_that_cannot_be_reached(self) -> None:
        """The try says of what kind that was, and the request is an error."""
        stack = self.stack("models: {m: {upstream: 'http://10.0.0.1:8000'}}")
        stack.engine().up = False
        stack.client().post("/v1/chat/completions", {"model": "m", "messages": []})
        spans = self.last(stack)
        self.assertEqual(self.attributes(spans["chat m"])["error.type"], "ConnectFailed")
        self.assertEqual(self.attributes(spans[SERVER])["error.type"], "upstream_error")
        for span in spans.values():
            self.assertEqual(span.status.status_code, StatusCode.ERROR)

    def test_an_engine_that_breaks_off(self) -> None:
        """Both spans end with it, as errors."""
        stack = self.stack()
        stack.client().chat(stream=True)
        stack.engine().last.stream(ROLE, token("a")).die()
        spans = self.last(stack)
        for name in (SERVER, "chat reasoning"):
            self.assertEqual(self.attributes(spans[name])["error.type"], "upstream_incomplete")

    def test_an_engine_that_keeps_silent(self) -> None:
        """The try lasts until nobody waits any more, and says why."""
        stack = self.stack(CONFIG + "    timeouts: {firstContentSeconds: 20}\n")
        stack.client().chat()
        stack.advance(21)
        call = self.last(stack)["chat reasoning"]
        self.assertEqual(self.attributes(call)["error.type"], "upstream_timeout")

    def test_a_fault_of_ours(self) -> None:
        """It is said of both spans, and the log's traceback bears the trace."""
        stack = self.stack()
        client = stack.client().chat()
        self.patch(proxy, "is_json", lambda _: 1 / 0)
        stack.engine().last.answer()
        self.assertTrue(client.wire.aborted)
        spans = self.last(stack)
        for name in (SERVER, "chat reasoning"):
            self.assertEqual(self.attributes(spans[name])["error.type"], "internal_error")
        (failure,) = [one for one in self.events if "log_failure" in one]
        self.assertEqual(failure[ABOUT].trace_id, stack.entries[-1].trace_id)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_clients_that_leave(self) -> None:
        """Parked or running: an event of the server's span, and nobody's error."""
        stack = self.stack()
        running = self.fill(stack)[0]
        parked = stack.client().chat(stream=True)
        stack.advance(1)
        for client, inside in ((parked, "admission.park"), (running, "chat reasoning")):
            client.leave()
            spans = self.last(stack)
            self.assertEqual(set(spans), {SERVER, inside})
            self.assertEqual([one.name for one in spans[SERVER].events], ["client_disconnect"])
            for span in spans.values():
                self.assertEqual(span.status.status_code, StatusCode.UNSET)
            if inside == "admission.park":
                self.assertEqual(self.attributes(spans[inside])["admission.outcome"], "left")
                # Its place goes to nobody: whoever is next in line is not disturbed.
                self.assertEqual(len(stack.engine().asked), 4)

    def test_a_refusal(self) -> None:
        """The park says why it ended, and how long the client was told to wait is no secret."""
        stack = self.stack()
        self.fill(stack)
        stack.client().chat(headers={"Prefer": "wait=2"})
        stack.advance(3)
        spans = self.last(stack)
        park = self.attributes(spans["admission.park"])
        self.assertEqual(
            (park["admission.outcome"], park["admission.reason"]), ("refused", "park_timeout")
        )
        self.assertEqual(self.attributes(spans[SERVER])["gateway.outcome"], "rejected")

    def test_probes_leave_no_span(self) -> None:
        """A trace for each scrape would bury the others; one that went wrong is kept."""
        stack = self.stack()
        for path in ("/health", "/health/ready", "/metrics", "/status.json"):
            self.assertEqual(stack.client().get(path).status, 200)
        self.assertEqual(self.exporter.get_finished_spans(), ())
        stack.client().get("/nothing")
        self.assertEqual(len(self.exporter.get_finished_spans()), 1)


class AnswerTests(TracesTestCase):
    """What is read off answers that are no streams."""

    def usage(self, body: bytes, **options: Any) -> tuple[Any, float | None]:
        """The prompt's tokens in the span, and how often they were counted."""
        stack = self.stack()
        stack.client().chat()
        stack.engine().last.answer(200, body, **options)
        span = self.last(stack)[SERVER]
        count = stack.metric("gen_ai_client_token_usage_count", gen_ai_token_type="input")
        return self.attributes(span).get("gen_ai.usage.input_tokens"), count

    def test_usage(self) -> None:
        """A JSON answer says what it took."""
        self.assertEqual(self.usage(b'{"usage": {"prompt_tokens": 5}}'), (5, 1))

    def test_what_is_not_looked_at(self) -> None:
        """Other types, encoded bytes and very long answers pass without being kept."""
        body = b'{"usage": {"prompt_tokens": 5}}'
        self.assertEqual(self.usage(body, content_type="text/plain"), (None, None))
        self.assertEqual(self.usage(body, extra="content-encoding: gzip\r\n"), (None, None))
        long = b'{"pad": "' + b"x" * meter.MOST_ANSWER_BYTES + b'", ' + body[1:]
        self.assertEqual(self.usage(long), (None, None))

    def test_gen_ai_metrics_can_be_switched_off(self) -> None:
        """By a key, and by a reload; the contract's own go on."""
        stack = self.stack()
        stack.text = "telemetry: {genAiMetrics: false}\n" + CONFIG
        stack.gateway.reload()
        stack.client().chat()
        stack.engine().last.answer(200, b'{"usage": {"prompt_tokens": 5}}')
        self.assertNotIn("gen_ai", stack.client().get("/metrics").body.decode())
        self.assertEqual(stack.metric("gateway_upstream_seconds_count", model="reasoning"), 1)

    def test_exemplars(self) -> None:
        """Each histogram of which docs/traces.md says so names the trace of a recorded request."""
        stack = self.stack(PROXIES)
        stack.poll(running=0)
        self.fill(stack)
        stack.poll(running=4)
        for flag in ("01", "00"):
            parent = f"00-{TRACE[::-1] if flag == '00' else TRACE}-b7ad6b7169203331-{flag}"
            stack.client().chat(stream=True, headers={"traceparent": parent})
        for asked in stack.engine().asked[:2]:
            asked.stream(ROLE, DONE).end()
        stack.poll(running=0)
        usage = event(choices=[], usage={"prompt_tokens": 7, "completion_tokens": 2})
        for asked in stack.engine().asked[4:]:
            asked.stream(ROLE, token("a"), token("b"), usage, DONE).end()
        page = stack.client().get("/metrics", Accept="application/openmetrics-text").body.decode()
        named = {
            line.partition("_bucket{")[0]
            for line in page.splitlines()
            if f'trace_id="{TRACE}"' in line
        }
        self.assertEqual(
            named,
            {
                "llm_ttft_seconds",
                "admission_wait_seconds",
                "gateway_upstream_seconds",
                "gen_ai_server_request_duration_seconds",
                "gen_ai_server_time_to_first_token_seconds",
                "gen_ai_server_time_per_output_token_seconds",
                "gen_ai_client_token_usage",
            },
        )
        self.assertNotIn(TRACE[::-1], page)


class UsageTests(TracesTestCase):
    """How many tokens there were."""

    def test_the_engine_does_not_say(self) -> None:
        """Then traces say nothing; the metrics count the events of a stream."""
        stack = self.stack()
        stack.client().chat(stream=True)
        stack.engine().last.stream(ROLE, token("a"), token("b"), DONE).end()
        for span in self.last(stack).values():
            self.assertNotIn("gen_ai.usage.output_tokens", self.attributes(span))
        name = "gen_ai_client_token_usage_sum"
        self.assertEqual(stack.metric(name, gen_ai_token_type="output"), 2)


class BehindASpentStatusTests(TracesTestCase):
    """What fails behind a 200 that a comment has spent is a failure all the same."""

    def ended(self, stack: Stack) -> tuple[Any, StatusCode]:
        span = self.last(stack)[SERVER]
        return self.attributes(span)["http.response.status_code"], span.status.status_code

    def test_a_refusal(self) -> None:
        """As the one is that has a status of its own."""
        bounds = "{maxInflight: 4, maxParkSeconds: 20, keepAliveSeconds: 5}"
        stack = self.stack(CONFIG.replace("{maxInflight: 4}", bounds))
        stack.poll(running=0)
        self.fill(stack)
        stack.poll(running=4)
        for stream, status in ((True, 200), (False, 503)):
            stack.client().chat(stream=stream)
            stack.advance(25)
            self.assertEqual(self.ended(stack), (status, StatusCode.ERROR))

    def test_the_engines_answer(self) -> None:
        """Its 500 is an error, its 404 the client's own."""
        stack = self.stack(CONFIG.replace("{maxInflight: 4}", "{keepAliveSeconds: 5}"))
        for code, wanted in ((500, StatusCode.ERROR), (404, StatusCode.UNSET)):
            stack.client().chat(stream=True)
            stack.advance(11)
            stack.engine().last.answer(code, {"error": {"message": "boom"}})
            self.assertEqual(self.ended(stack), (200, wanted))


class HeadTests(TracesTestCase):
    """What the head of a request tells, and whom it is believed of."""

    def told(self, config: str) -> dict[str, Any]:
        stack = self.stack(config)
        stack.client().chat(headers=HEADERS)
        stack.engine().last.answer()
        self.entry = stack.entries[-1]
        return self.attributes(self.last(stack)[SERVER])

    def test_a_trusted_proxy_is_believed(self) -> None:
        """Scheme and host are those that the client used; who it is is not told."""
        told = self.told(PROXIES)
        self.assertEqual((told["url.scheme"], told["server.address"]), ("https", "api.example"))
        self.assertEqual(told["server.port"], 8443)
        self.assertFalse({"client.address", "user_agent.original"} & set(told))
        self.assertEqual(self.entry.client, "")

    def test_a_stranger_is_not(self) -> None:
        """What it says of the scheme and host is hearsay."""
        told = self.told(CONFIG)
        self.assertEqual((told["url.scheme"], told["server.address"]), ("http", "gateway"))
        self.assertNotIn("server.port", told)

    def test_clients_are_identified_where_that_is_wanted(self) -> None:
        """In the span and in the log: past trusted proxies, else the peer itself."""
        wanted = "telemetry: {identifyClients: true}\n"
        told = self.told(wanted + PROXIES)
        self.assertEqual(told["client.address"], "198.51.100.9")
        self.assertEqual(told["user_agent.original"], "OpenAI/Python 3")
        self.assertEqual(self.entry.client, "198.51.100.9")
        self.assertEqual(self.told(wanted + CONFIG)["client.address"], "192.0.2.7")

    def test_everything_is_bounded(self) -> None:
        """Long paths are cut, and what is no host is none; the query is left out."""
        stack = self.stack()
        stack.client().send(b"BREW /" + b"a" * 5000 + b"?key=secret HTTP/1.1\r\nHost: x y\r\n\r\n")
        (span,) = self.exporter.get_finished_spans()
        told = self.attributes(span)
        self.assertEqual(len(told["url.path"]), 256)
        self.assertEqual(told["http.request.method"], "_OTHER")
        self.assertNotIn("server.address", told)
        self.assertNotIn("secret", span.to_json())

    def test_a_request_that_is_refused_early(self) -> None:
        """One whose body is too large has its method and path all the same."""
        stack = self.stack()
        stack.client().send(
            b"POST /v1/responses HTTP/1.1\r\nHost: g\r\nContent-Length: 99999999\r\n\r\n"
        )
        (span,) = self.exporter.get_finished_spans()
        told = self.attributes(span)
        self.assertEqual(
            (told["http.request.method"], told["url.path"], told["http.response.status_code"]),
            ("POST", "/v1/responses", 413),
        )

    def test_the_context_goes_on_to_the_engine(self) -> None:
        """Its parent is our client span; the caller's state and baggage come with it."""
        stack = self.stack(PROXIES)
        stack.client().chat(
            headers={
                "traceparent": f"00-{TRACE}-b7ad6b7169203331-01",
                "tracestate": "vendor=1",
                "baggage": "tenant=a",
            }
        )
        asked = stack.engine().last
        asked.answer()
        call = self.last(stack)["chat reasoning"]
        headers = {name.lower(): value for name, value in asked.headers.items()}
        self.assertEqual(
            headers["traceparent"], f"00-{TRACE}-{format_span_id(call.context.span_id)}-01"
        )
        self.assertEqual((headers["tracestate"], headers["baggage"]), ("vendor=1", "tenant=a"))


class InterleavedTests(TracesTestCase):
    """Fifty requests at once, which park, run, fail and leave."""

    def test_every_span_and_line_of_a_request_bears_its_trace(self) -> None:
        """Through awaits, timers, callbacks of transports and thread hops."""
        log = RequestLogger("tests")
        self.spoken = 0

        def speaking(owner: Any, name: str, *, hop: bool = False) -> None:
            """Have a method of the request path say a line first, maybe in another thread."""
            spoken = getattr(owner, name)

            def speak(this: Any, *args: Any) -> Any:
                self.spoken += 1
                where, request_id = f"{owner.__name__}.{name}", this._exchange.request_id
                line = carried(log.info)
                if hop:
                    thread = threading.Thread(
                        target=line,
                        args=("{where} {expected}",),
                        kwargs={"where": where, "expected": request_id},
                    )
                    thread.start()
                    thread.join()
                else:
                    log.info("{where} {expected}", where=where, expected=request_id)
                return spoken(this, *args)

            self.patch(owner, name, speak)

        speaking(proxy.Proxy, "carry", hop=True)  # in the coroutine, and in a thread
        speaking(proxy.Proxy, "_pass_on")  # after awaits
        speaking(reply.Reply, "_comment")  # in a timer
        speaking(meter.StreamMeter, "_content")  # in a transport's callback
        stack = self.stack(CONFIG.replace("maxInflight: 4", "maxInflight: 7"))
        clients = [
            stack.client().chat(
                stream=number % 3 != 0,
                headers={
                    "traceparent": f"00-{number + 1:032x}-{number + 1:016x}-00",
                    "X-Request-ID": f"request-{number}",
                },
            )
            for number in range(50)
        ]
        clients[40].leave()
        answered = 0
        while len(stack.entries) < 50:
            stack.advance(4)
            for asked in stack.engine().asked[answered:]:
                answered += 1
                if answered % 11 == 0:
                    asked.die()
                elif b'"stream": true' in asked.body:
                    asked.stream(ROLE, token("a")).more(token("b"), DONE).end()
                else:
                    asked.answer(200, {"model": "m"})
        self.assertGreater(self.spoken, 150)
        self._compare(stack)

    def _compare(self, stack: Stack) -> None:
        expected = {f"request-{n}": f"{n + 1:032x}" for n in range(50)}
        self.assertEqual({entry.request_id: entry.trace_id for entry in stack.entries}, expected)
        lines: dict[str, set[str]] = defaultdict(set)
        for one in self.events:
            if "expected" in one:
                self.assertIn(ABOUT, one, formatEvent(one))
                self.assertEqual(one[ABOUT].request_id, one["expected"])
            if ABOUT in one:
                lines[one[ABOUT].request_id].add(one[ABOUT].trace_id)
        for request_id, trace_id in expected.items():
            spans = self.of(trace_id)
            names = sorted(span.name for span in spans)
            self.assertIn(SERVER, names)
            (server,) = [span for span in spans if span.name == SERVER]
            for span in spans:
                if span is not server:
                    assert span.parent is not None
                    self.assertEqual(span.parent.span_id, server.context.span_id)
            if request_id != "request-40":
                self.assertIn("chat reasoning", names)
                self.assertEqual(lines[request_id], {trace_id})
        found = [span for trace_id in expected.values() for span in self.of(trace_id)]
        names = [span.name for span in found]
        # All but the first seven have parked; all but the one that left were sent, once.
        self.assertEqual((names.count("admission.park"), names.count("chat reasoning")), (43, 49))
        self.assertEqual(len(self.exporter.get_finished_spans()), len(found))


class RepeatedTests(TracesTestCase):
    """An engine that is down, and many who ask."""

    def test_it_is_said_once_in_a_while(self) -> None:
        """The log says it once; each request has its own line in the access log."""
        stack = self.stack("models: {m: {upstream: 'http://10.0.0.1:8000'}}")
        stack.engine().up = False
        for _ in range(20):
            stack.client().post("/v1/chat/completions", {"model": "m", "messages": []})
        stack.advance(61)
        stack.client().post("/v1/chat/completions", {"model": "m", "messages": []})
        said = [formatEvent(one) for one in self.events if "reason" in one and "model" in one]
        self.assertEqual(len(said), 2)
        self.assertIn("(19 more like it in the last 61 s)", said[1])
        self.assertIn(f"trace_id={stack.entries[-1].trace_id}", said[1])
        self.assertEqual(len(stack.entries), 21)

    def test_clients_that_misbehave_do_not_fill_the_log(self) -> None:
        """Each is cut, and it is said once."""
        stack = self.stack()
        clients = [stack.client().chat() for _ in range(3)]
        for client in clients:
            client.send(b"x" * 20_000)
        self.assertTrue(all(client.wire.aborted for client in clients))
        said = [one for one in self.events if "sent on behind" in formatEvent(one)]
        self.assertEqual(len(said), 1)


def _now(act: object) -> None:
    act()  # type: ignore[operator]
