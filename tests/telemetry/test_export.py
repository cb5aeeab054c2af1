"""Where spans go."""

from __future__ import annotations

import logging
import os

from twisted.internet.testing import MemoryReactorClock
from twisted.logger import ILogObserver, LogEvent, formatEvent, globalLogPublisher
from zope.interface import implementer

from tests.support import TestCase
from tests.telemetry.test_tracing import Threads
from twisted_gateway.telemetry import tracing
from twisted_gateway.telemetry.export import Complaints, make_provider
from twisted_gateway.telemetry.spans import SpanTracing
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


class ComplaintTests(ExportTestCase):
    """What the exporter's thread has to say."""

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
