"""Trace contexts that come in, and tracing that is off."""

from __future__ import annotations

from twisted.internet.interfaces import IReactorFromThreads
from twisted.internet.testing import MemoryReactorClock
from twisted.web.http_headers import Headers
from zope.interface import implementer

from tests.support import TestCase
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.telemetry import tracing
from twisted_gateway.telemetry.tracing import NoTracing, exporters, read_context

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
        with trace.park():
            pass
        with trace.upstream("http://engine:8000") as attempt:
            attempt.inject(outgoing)
            attempt.status(200)
        self.assertEqual(outgoing.getRawHeaders("traceparent"), [PARENT])
        self.assertEqual(outgoing.getRawHeaders("tracestate"), ["a=1"])
        self.assertEqual(outgoing.getRawHeaders("baggage"), ["k=v"])

    def test_a_broken_context_goes_no_further(self) -> None:
        """Nor does the state that came with it; the request has no trace."""
        incoming = headers("nonsense", tracestate="a=1")
        trace = NoTracing().request(incoming, trusted=True)
        self.assertEqual(trace.trace_id, "")
        with trace.upstream("http://engine:8000") as attempt:
            attempt.inject(incoming)
        self.assertFalse(incoming.hasHeader("traceparent"))
        self.assertFalse(incoming.hasHeader("tracestate"))

    def test_everything_can_be_said_to_it(self) -> None:
        """The request path asks nowhere whether tracing is on."""
        trace = NoTracing().request(Headers(), trusted=False)
        trace.describe(method="POST", route="/v1/responses", model="m", stream=True)
        trace.used(output_tokens=3)
        trace.event("first_token", at=1.0)
        trace.end(Outcome.OK, 200)
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

    def test_off_without_an_exporter(self) -> None:
        """Nothing is asked for, so nothing is recorded."""
        self.assertIsInstance(tracing.start({}, MemoryReactorClock(), Threads()), NoTracing)
