"""Traces in a real collector, and collectors that are out of order."""

from __future__ import annotations

import json
import re
import signal
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import Request, urlopen

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.cache import Unavailable
from tests.integration.case import chat, unavailable
from tests.integration.collector import Collector, Sink, Span
from tests.integration.engines import MODEL
from tests.integration.gateway import Gateway
from tests.integration.processes import free_port, wait_until
from tests.integration.wire import Call, get, post
from tests.integration.world import WORLD

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"
PATH = "/v1/chat/completions"
SERVER = f"POST {PATH}"


class TracesTestCase(SynchronousTestCase):
    """A gateway of the test's own, in front of the engine that all share."""

    def gateway(self, name: str, collector: str, **environment: str) -> Gateway:
        """Start one whose spans go to this address."""
        engine = WORLD.engine()
        engine.wait_idle()
        gateway = Gateway(
            name,
            WORLD.configuration(),
            WORLD.logs,
            environment={
                "OTEL_EXPORTER_OTLP_ENDPOINT": collector,
                "OTEL_BSP_SCHEDULE_DELAY": "100",
                "LOG_FORMAT": "json",
                **environment,
            },
        )
        gateway.start()
        self.addCleanup(gateway.process.stop)
        wait_until(lambda: gateway.status()["sample_age_seconds"] is not None, 15, "gauges")
        return gateway

    def lines(self, gateway: Gateway) -> list[dict[str, object]]:
        """The gateway's log."""
        text = gateway.process.log.read_text(errors="replace")
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]

    def end(self, gateway: Gateway) -> float:
        """Send SIGTERM; returns how long the process took to end, with status 0."""
        gateway.process.signal(signal.SIGTERM)
        seconds = wait_until(lambda: not gateway.process.alive, 60, "the gateway's end")
        self.assertEqual(gateway.process.wait(1), 0, gateway.process.tail())
        return seconds


class CollectorTests(TracesTestCase):
    """A real collector receives the spans."""

    def setUp(self) -> None:
        """Have a collector, and a sink behind it that can be read."""
        self.sink = Sink()
        self.addCleanup(self.sink.close)
        try:
            self.collector = Collector(WORLD.logs, self.sink)
        except Unavailable as fault:
            raise unavailable(fault) from None
        self.collector.start()
        self.addCleanup(self.collector.process.stop)

    def tree(self, trace_id: str, count: int) -> dict[str, Span]:
        """The spans of a trace by name, once there are so many."""
        wait_until(lambda: len(self.sink.spans(trace_id)) >= count, 20, f"{count} spans")
        return {span.name: span for span in self.sink.spans(trace_id)}

    def test_a_parked_stream(self) -> None:
        """Server, the time parked with what the gate saw, the call to the engine; their events."""
        gateway = self.gateway("gateway-traced", self.collector.url)
        body = chat(700, stream=True)
        busy = [Call(f"{gateway.url}{PATH}", body) for _ in range(4)]
        for one in busy:
            self.addCleanup(one.leave)
            one.expect(lambda call: call.contents, 30, "content")
        wanted = chat(12, stream=True, stream_options={"include_usage": True})
        parked = Call(
            f"{gateway.url}{PATH}",
            wanted,
            headers={"traceparent": f"00-{TRACE}-{CALLER}-00", "X-Request-ID": "the-parked-one"},
        )
        self.addCleanup(parked.leave)
        parked.expect(lambda one: one.comments, 10, "a comment")
        self.assertTrue(parked.finish(120).whole, parked.describe())
        spans = self.tree(TRACE, 3)
        self.assertEqual(set(spans), {SERVER, "admission.park", f"chat {MODEL}"})
        server, park, call = (spans[each] for each in (SERVER, "admission.park", f"chat {MODEL}"))
        self.assertEqual(
            (server.parent, park.parent, call.parent), (CALLER, server.span_id, server.span_id)
        )
        self.assertEqual((server.kind, park.kind, call.kind), ("server", "internal", "client"))
        self.assertFalse(server.error or park.error or call.error)
        self.assertLessEqual(server.began, park.began)
        self.assertLessEqual(park.ended, call.began)
        self.assertLessEqual(call.ended, server.ended)
        self.assertEqual(park.attributes["admission.max_inflight"], 4)
        self.assertEqual(park.attributes["admission.in_engine"], 4)
        self.assertEqual(park.attributes["admission.position"], 1)
        self.assertEqual(park.attributes["admission.outcome"], "admitted")
        self.assertIn("admission.sample_age_seconds", park.attributes)
        self.assertEqual(server.events[0], "keep_alive")
        self.assertEqual(server.events.count("first_token"), 1)
        for span in (server, call):
            self.assertEqual(span.attributes["gen_ai.operation.name"], "chat")
            self.assertEqual(span.attributes["gen_ai.provider.name"], "vllm")
            self.assertEqual(span.attributes["gen_ai.request.model"], MODEL)
            self.assertEqual(span.attributes["gen_ai.response.model"], MODEL)
            self.assertEqual(span.attributes["gen_ai.response.finish_reasons"], ["length"])
            self.assertEqual(span.attributes["gen_ai.usage.output_tokens"], 12)
            self.assertGreater(span.attributes["gen_ai.usage.input_tokens"], 0)
        self.assertEqual(server.resource["service.name"], "twisted-gateway")
        line = next(one for one in self.lines(gateway) if one.get("request_id") == "the-parked-one")
        self.assertEqual((line["trace_id"], line["span_id"]), (TRACE, server.span_id))
        self._exemplar(gateway)

    def _exemplar(self, gateway: Gateway) -> None:
        """OpenMetrics names a trace that the collector has."""
        asked = Request(
            f"{gateway.url}/metrics", headers={"Accept": "application/openmetrics-text"}
        )
        with urlopen(asked, timeout=10) as answer:
            page = answer.read().decode()
        named = re.search(r'llm_ttft_seconds_bucket.*# \{.*trace_id="([0-9a-f]{32})"', page)
        assert named is not None
        self.assertTrue(self.tree(named[1], 1))

    def test_what_is_left_is_sent_at_the_end(self) -> None:
        """Spans that wait for their batch when the gateway is told to end still arrive."""
        gateway = self.gateway(
            "gateway-late", self.collector.url, OTEL_BSP_SCHEDULE_DELAY="3600000"
        )
        answer = post(
            f"{gateway.url}{PATH}", chat(2), headers={"traceparent": f"00-{TRACE}-{CALLER}-01"}
        )
        self.assertEqual(answer.status, 200)
        self.assertEqual(self.sink.spans(), [])
        self.end(gateway)
        self.assertIn(SERVER, self.tree(TRACE, 2))


class OutOfOrderTests(TracesTestCase):
    """A collector that is down, hangs or refuses costs no request anything."""

    def check(self, name: str, collector: str, complaints: int) -> None:
        gateway = self.gateway(name, collector)
        for _ in range(30):
            answer = post(f"{gateway.url}{PATH}", chat(2), seconds=20)
            self.assertEqual(answer.status, 200)
        self.assertEqual(get(f"{gateway.url}/health/ready").status, 200)
        # Two seconds of grace for whoever routes to us, two at most for the collector.
        self.assertLess(self.end(gateway), 2 + 2 + 2)
        said = [one for one in self.lines(gateway) if "Tracing" in str(one["message"])]
        self.assertEqual(len(said), complaints, said)

    def test_down(self) -> None:
        """Nobody listens there."""
        self.check("gateway-collector-down", f"http://127.0.0.1:{free_port()}", 1)

    def test_it_hangs(self) -> None:
        """It accepts connections and never answers; of that the exporter notices after 10 s."""
        listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.addCleanup(listener.close)
        port = listener.getsockname()[1]
        self.check("gateway-collector-hangs", f"http://127.0.0.1:{port}", 0)

    def test_it_refuses(self) -> None:
        """It answers each batch with an error."""

        class Refusing(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_error(503)

            def log_message(self, *unused: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        port = server.server_address[1]
        self.check("gateway-collector-refuses", f"http://127.0.0.1:{port}", 1)
