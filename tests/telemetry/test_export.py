"""Where spans go."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import ILogObserver, LogEvent, formatEvent, globalLogPublisher
from twisted.web.http_headers import Headers
from zope.interface import implementer

from tests.stack import Stack
from tests.support import TestCase
from tests.telemetry.test_tracing import Threads
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.telemetry import tracing
from twisted_gateway.telemetry.export import Complaints, make_provider
from twisted_gateway.telemetry.spans import SHUTDOWN_SECONDS, SpanTracing
from twisted_gateway.telemetry.tracing import NoTracing


class ExportTestCase(TestCase):
    """Collects what is logged."""

    def setUp(self) -> None:
        super().setUp()
        self.logged: list[str] = []
        self.reactor = MemoryReactorClock()

        @implementer(ILogObserver)
        def observe(event: LogEvent) -> None:
            self.logged.append(formatEvent(event))

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)


class StartTests(ExportTestCase):
    """The exporters that the variables name."""

    def test_an_otlp_endpoint_exports_over_http(self) -> None:
        """The exporter that is a dependency is the one that `otlp` means."""
        environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
        started = tracing.start(environment, self.reactor, Threads())
        self.addCleanup(logging.getLogger("opentelemetry.sdk").handlers.clear)
        self.addCleanup(logging.getLogger("opentelemetry.exporter").handlers.clear)
        self.assertIsInstance(started, SpanTracing)
        assert isinstance(started, SpanTracing)
        started._stop()
        self.assertEqual(self.logged, [])

    def test_an_exporter_that_is_not_there_is_named(self) -> None:
        """The gateway starts all the same, without traces."""
        for environment, name in (
            ({"OTEL_TRACES_EXPORTER": "nosuch"}, "nosuch"),
            (
                {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
                "otlp_proto_grpc",
            ),
        ):
            started = tracing.start(environment, self.reactor, Threads())
            self.assertIsInstance(started, NoTracing)
            self.assertIn(name, self.logged.pop())


class ProviderTests(ExportTestCase):
    """The resource that spans name."""

    def name(self) -> object:
        return make_provider([]).resource.attributes["service.name"]

    def test_the_service_has_a_name(self) -> None:
        """The gateway's own, unless the environment gives another."""
        self.assertNotIn("OTEL_SERVICE_NAME", os.environ)
        self.assertEqual(self.name(), "twisted-gateway")
        os.environ["OTEL_SERVICE_NAME"] = "edge"
        self.addCleanup(os.environ.pop, "OTEL_SERVICE_NAME")
        self.assertEqual(self.name(), "edge")

    def test_the_sampler_says_what_it_is(self) -> None:
        """Its description names the configured one inside."""
        description = make_provider([]).sampler.get_description()
        self.assertTrue(description.startswith("Trusting{ParentBased{root:AlwaysOnSampler"))


class Collector(SpanExporter):
    """An exporter that hangs, raises or refuses, as one does whose collector is out of order."""

    def __init__(self, manner: str) -> None:
        self.manner = manner
        self.called = threading.Event()
        self.released = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.called.set()
        if self.manner == "hangs":
            self.released.wait(30)
        elif self.manner == "raises":
            raise ConnectionError("refused")
        return SpanExportResult.FAILURE


class CollectorTests(ExportTestCase):
    """A collector that is down, slow or refuses costs no request anything."""

    def tracing(self, manner: str, clock: Clock) -> tuple[SpanTracing, Collector]:
        collector = Collector(manner)
        self.addCleanup(collector.released.set)
        # A queue that is full long before the requests are over.
        processor = BatchSpanProcessor(
            collector, max_queue_size=8, max_export_batch_size=4, schedule_delay_millis=1
        )
        provider = make_provider([processor])
        for name in ("opentelemetry.sdk", "opentelemetry.exporter"):
            logger = logging.getLogger(name)
            handlers = list(logger.handlers)
            logger.addHandler(Complaints(clock, lambda call: call()))
            self.addCleanup(setattr, logger, "handlers", handlers)
        return (
            SpanTracing(
                provider.get_tracer("tests"),
                provider.shutdown,
                clock,
                lambda call: call(),
                lambda run: threading.Thread(target=run, daemon=True).start(),
            ),
            collector,
        )

    def test_requests_go_on(self) -> None:
        """All of a hundred end as they should, and what is kept of them is bounded."""
        for manner in ("hangs", "raises", "refuses"):
            tracing, collector = self.tracing(manner, Clock())
            stack = Stack(self, tracing=tracing)
            for _ in range(100):
                stack.client().chat()
                stack.engine().last.answer()
            self.assertEqual(stack.outcomes, ["ok"] * 100)
            self.assertTrue(collector.called.wait(10), manner)
            collector.released.set()

    def test_a_shutdown_does_not_wait_for_one_that_hangs(self) -> None:
        """Two seconds, then the process may end; the exporter's thread keeps nobody alive."""
        tracing, collector = self.tracing("hangs", self.clock)
        tracing.request(Headers(), trusted=False).end(Outcome.OK, 200)
        self.assertTrue(collector.called.wait(10))
        done = tracing.shutdown()
        self.clock.advance(SHUTDOWN_SECONDS - 0.1)
        self.assertNoResult(done)
        self.clock.advance(0.1)
        self.successResultOf(done)
        exporting = [one for one in threading.enumerate() if one.name.startswith("OtelBatch")]
        self.assertTrue(exporting)
        self.assertTrue(all(one.daemon for one in exporting))


class ComplaintTests(ExportTestCase):
    """What the exporter's thread has to say."""

    def test_one_is_on_its_way_at_a_time(self) -> None:
        """Threads that complain without end do not fill the reactor's queue."""
        hops: list[Callable[[], object]] = []
        complaints = Complaints(self.clock, hops.append)
        logger = logging.Logger("exporter")
        logger.addHandler(complaints)
        for _ in range(100):
            logger.warning("Queue full, dropping Span.")
        self.assertEqual(len(hops), 1)
        hops.pop()()
        logger.warning("again")
        self.assertEqual(len(hops), 1)

    def test_all_are_counted(self) -> None:
        """Those that were not even on their way as well."""
        hops: list[Callable[[], object]] = []
        complaints = Complaints(self.clock, hops.append)
        logger = logging.Logger("exporter")
        logger.addHandler(complaints)
        for _ in range(100):
            logger.warning("Queue full")
        hops.pop()()
        self.clock.advance(61)
        logger.warning("Queue full")
        hops.pop()()
        self.assertIn("Queue full (99 more like it in the last 61 s)", self.logged[1])

    def test_one_whose_arguments_do_not_fit(self) -> None:
        """It is said as it stands, and stands in nobody's way."""
        complaints = Complaints(self.clock, lambda call: call())
        logger = logging.Logger("exporter")
        logger.addHandler(complaints)
        logger.warning("took %d s", "long")
        self.assertIn("took %d s", self.logged[0])
        self.clock.advance(61)
        logger.warning("again")
        self.assertIn("again", self.logged[1])

    def test_no_credential_of_an_address_is_logged(self) -> None:
        """An exporter quotes the address that it could not reach, query and all."""
        complaints = Complaints(self.clock, lambda call: call())
        logger = logging.Logger("exporter")
        logger.addHandler(complaints)
        logger.warning("HTTPConnectionPool: url: /v1/traces?api-key=secret (Caused by x)")
        self.assertNotIn("secret", self.logged[0])
        self.assertIn("/v1/traces?... (Caused by x)", self.logged[0])

    def test_once_a_minute(self) -> None:
        """A collector that is down fills no log."""
        complaints = Complaints(self.clock, lambda call: call())
        logger = logging.Logger("exporter")
        logger.addHandler(complaints)
        for _ in range(3):
            logger.warning("Failed to export %s", "x" * 1000)
        logger.info("not worth a line")
        self.assertEqual(len(self.logged), 1)
        self.assertIn("Failed to export x", self.logged[0])
        self.assertLess(len(self.logged[0]), 600)
        self.clock.advance(60)
        logger.error("again")
        self.assertEqual(len(self.logged), 2)
