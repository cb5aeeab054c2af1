"""Trace contexts that come in, and tracing that is off."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from twisted.internet.interfaces import IReactorFromThreads
from twisted.internet.testing import MemoryReactorClock
from twisted.web.http_headers import Headers
from zope.interface import implementer

from tests.support import TestCase
from twisted_gateway.core.account import Account
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.telemetry import tracing
from twisted_gateway.telemetry.tracing import NoTracing, collector, exporters, read_context

PACKAGE = Path(tracing.__file__).parent.parent
TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


def headers(*parents: str, **others: str) -> Headers:
    """Request headers with these `traceparent` lines."""
    made = Headers({b"traceparent": [parent.encode() for parent in parents]} if parents else {})
    for name, value in others.items():
        made.addRawHeader(name.encode(), value.encode())
    return made


@implementer(IReactorFromThreads)
class Threads:
    """A reactor's thread that is the caller's own."""

    def callFromThread(self, callable, *args, **kwargs):  # type: ignore[no-untyped-def]
        callable(*args, **kwargs)


class ReadTests(TestCase):
    """`traceparent`, as the standard has it."""

    def test_a_context_is_read(self) -> None:
        """Trace, parent, flag and state come out."""
        context = read_context(headers(PARENT, tracestate="a=1,b=2"))
        assert context is not None
        self.assertEqual((context.trace_id, context.span_id), (TRACE, SPAN))
        self.assertTrue(context.sampled)
        self.assertEqual(context.state, b"a=1,b=2")

    def test_the_flag_is_one_bit(self) -> None:
        """Other flags are not taken for it."""
        for flags, sampled in (("00", False), ("02", False), ("03", True), ("ff", True)):
            context = read_context(headers(f"00-{TRACE}-{SPAN}-{flags}"))
            assert context is not None
            self.assertIs(context.sampled, sampled, flags)

    def test_a_later_version_may_say_more(self) -> None:
        """What a version to come adds at the end is let be."""
        self.assertIsNotNone(read_context(headers(f"01-{TRACE}-{SPAN}-01-more")))

    def test_what_breaks_the_standard_is_no_context(self) -> None:
        """It is as if it were not there."""
        for parents in (
            (),
            (PARENT, PARENT),
            ("",),
            (PARENT.upper(),),
            (PARENT + "-more",),
            ("ff" + PARENT[2:],),
            (f"00-{'0' * 32}-{SPAN}-01",),
            (f"00-{TRACE}-{'0' * 16}-01",),
            (f"00-{TRACE}-{SPAN}",),
            (f"01-{TRACE}-{SPAN}-01-" + "x" * 600,),
        ):
            self.assertIsNone(read_context(headers(*parents)), parents)

    def test_too_long_a_state_is_left_out(self) -> None:
        """The context counts, its state does not."""
        context = read_context(headers(PARENT, tracestate="a=" + "x" * 5000))
        assert context is not None
        self.assertEqual(context.state, b"")


class NoTracingTests(TestCase):
    """Off, contexts pass and nothing is recorded."""

    def test_a_context_passes_to_the_engine_as_it_is(self) -> None:
        """The engine's spans hang from the caller's, and the log knows the trace."""
        incoming = headers(PARENT, tracestate="a=1", baggage="k=v")
        trace = NoTracing().request(incoming, trusted=False)
        self.assertEqual(trace.trace_id, TRACE)
        outgoing = headers("other", baggage="k=v")
        with trace.park() as parked:
            parked.decided("admitted")
        attempt = trace.upstream("http://engine:8000")
        attempt.inject(outgoing)
        attempt.status(200)
        attempt.end(Outcome.OK)
        self.assertEqual(outgoing.getRawHeaders("traceparent"), [PARENT])
        self.assertEqual(outgoing.getRawHeaders("tracestate"), ["a=1"])
        self.assertEqual(outgoing.getRawHeaders("baggage"), ["k=v"])

    def test_a_broken_context_goes_no_further(self) -> None:
        """Nor does the state that came with it; the request has no trace."""
        incoming = headers("nonsense", tracestate="a=1")
        trace = NoTracing().request(incoming, trusted=True)
        self.assertEqual(trace.trace_id, "")
        trace.upstream("http://engine:8000").inject(incoming)
        self.assertFalse(incoming.hasHeader("traceparent"))
        self.assertFalse(incoming.hasHeader("tracestate"))

    def test_everything_can_be_said_to_it(self) -> None:
        """The request path asks nowhere whether tracing is on."""
        trace = NoTracing().request(Headers(), trusted=False)
        self.assertFalse(trace.recording)
        trace.describe(method="POST", route="/v1/responses", model="m", stream=True)
        trace.used(Account(output_tokens=3))
        trace.event("keep_alive", at=1.0)
        trace.first_token(0.5)
        trace.upstream("http://engine:8000").failed("ConnectFailed")
        trace.end(Outcome.OK, 200)
        trace.forget()
        self.assertEqual((trace.span_id, trace.exemplar), ("", None))
        self.assertIsNone(self.successResultOf(NoTracing().shutdown()))


class StartTests(TestCase):
    """When tracing is on."""

    def test_the_standard_variables_decide(self) -> None:
        """An endpoint or an exporter's name turns it on; `none` and the kill switch win."""
        endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}
        for environment, wanted in (
            ({}, ()),
            ({"OTEL_SERVICE_NAME": "gateway"}, ()),
            ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, ()),
            (endpoint, ("otlp",)),
            ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/v1/traces"}, ("otlp",)),
            ({"OTEL_TRACES_EXPORTER": "otlp"}, ("otlp",)),
            ({"OTEL_TRACES_EXPORTER": "console, otlp"}, ("console", "otlp")),
            ({"OTEL_TRACES_EXPORTER": "none", **endpoint}, ()),
            ({"OTEL_TRACES_EXPORTER": "", **endpoint}, ("otlp",)),
            ({"OTEL_SDK_DISABLED": "TRUE", **endpoint}, ()),
        ):
            self.assertEqual(exporters(environment), wanted, environment)

    def test_the_collector_is_named_without_credentials(self) -> None:
        """Scheme, host and port: a user name, path or query may hold one."""
        for url, wanted in (
            ("http://collector:4318", "http://collector:4318"),
            (
                "https://user:secret@collector.example/secret/v1?key=secret",
                "https://collector.example",
            ),
            ("", ""),
            ("collector:4318", ""),
            ("http://[::1", ""),
            ("http://host:port", ""),
        ):
            environment = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": url}
            self.assertEqual(collector(environment), wanted, url)

    def test_off_costs_no_import(self) -> None:
        """Only two modules import OpenTelemetry, and nothing but `start` imports these."""
        own = "twisted_gateway.telemetry"
        modules = ("opentelemetry", f"{own}.spans", f"{own}.export")
        importers: dict[str, set[str]] = {name: set() for name in modules}
        for path in PACKAGE.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                for name in _imported(node):
                    for module, where in importers.items():
                        if f"{name}.".startswith(f"{module}."):
                            where.add(path.relative_to(PACKAGE).as_posix())
        self.assertEqual(importers["opentelemetry"], {"telemetry/spans.py", "telemetry/export.py"})
        self.assertEqual(importers[f"{own}.spans"], {"telemetry/export.py"})
        self.assertEqual(importers[f"{own}.export"], {"telemetry/tracing.py"})

    def test_off_without_an_exporter(self) -> None:
        """Nothing is asked for, so nothing is recorded."""
        self.assertIsInstance(tracing.start({}, MemoryReactorClock(), Threads()), NoTracing)


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (one.name for one in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from (f"{node.module}.{one.name}" for one in node.names)
