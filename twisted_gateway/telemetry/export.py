"""Where spans go: the SDK's provider, set up by the standard variables."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points

from opentelemetry.context import Context, get_value
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import Link, SpanKind, TraceState, get_current_span
from opentelemetry.util.types import Attributes
from twisted.internet.interfaces import IReactorFromThreads, IReactorTime
from twisted.logger import Logger

from twisted_gateway import __version__
from twisted_gateway.telemetry.repeats import Repeats
from twisted_gateway.telemetry.spans import UNTRUSTED, SpanTracing
from twisted_gateway.telemetry.tracing import NoTracing, Tracing, collector, exporters

_COMPLAINT_CHARACTERS = 500
# A collector's address may bear its credential there.
_QUERY = re.compile(r"\?[^\s)'\"]+")


class TrustingSampler(Sampler):
    """Honours the sampled flag of trusted proxies; for others the root's decision is taken.

    A stranger's trace id is kept, for it ties the traces together, but has no say: the decision
    is made as for a trace that begins here, on an id that the stranger did not choose.
    """

    def __init__(self, configured: Sampler, ids: IdGenerator) -> None:
        """Stand before the configured sampler."""
        self._configured = configured
        self._ids = ids

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        """Decide about one span."""
        parent = get_current_span(parent_context).get_span_context()
        if parent.is_valid and not parent.is_remote:
            # One of our own: a trace is recorded whole or not at all.
            own = Decision.RECORD_AND_SAMPLE if parent.trace_flags.sampled else Decision.DROP
            return SamplingResult(own, attributes, parent.trace_state)
        if not get_value(UNTRUSTED, parent_context):
            return self._configured.should_sample(
                parent_context, trace_id, name, kind, attributes, links
            )
        root_id = self._ids.generate_trace_id()
        result = self._configured.should_sample(None, root_id, name, kind, attributes, links)
        return SamplingResult(result.decision, result.attributes, parent.trace_state)

    def get_description(self) -> str:
        """Name it."""
        return f"Trusting{{{self._configured.get_description()}}}"


class Complaints(logging.Handler):
    """Brings what the SDK and its exporters complain of into the log, once a minute at most.

    They complain in their own threads, and of every span that they drop in the reactor's: at most
    one complaint is on its way to the log at a time, and the others are counted.
    """

    _log = Logger()

    def __init__(
        self, clock: IReactorTime, from_thread: Callable[[Callable[[], object]], object]
    ) -> None:
        """Take the clock, and the way from the exporter's thread to the reactor's."""
        super().__init__(logging.WARNING)
        self._from_thread = from_thread
        self._repeats = Repeats(clock)
        self._on_its_way = False
        self._left_out = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Log it, unless another was logged less than a minute ago.

        `logging` calls this under the handler's lock, in whatever thread complains.
        """
        if self._on_its_way:
            self._left_out += 1
            return
        text = _QUERY.sub("?...", _message(record))[:_COMPLAINT_CHARACTERS]
        self._on_its_way = True
        self._from_thread(lambda: self._say(text))

    def _say(self, text: str) -> None:
        self.acquire()
        try:
            left_out, self._left_out = self._left_out, 0
            self._on_its_way = False
        finally:
            self.release()
        self._repeats.say("tracing", self._log.warn, "Tracing: {text}", text=text)
        self._repeats.left_out("tracing", left_out)


def _message(record: logging.LogRecord) -> str:
    """What a record says; of one whose arguments do not fit its text, the text alone."""
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 -- an argument's own words may raise anything
        return str(record.msg)


def start(
    environment: Mapping[str, str], clock: IReactorTime, threads: IReactorFromThreads
) -> Tracing:
    """Start tracing as the standard variables say; an exporter that can't be had is logged.

    The SDK reads further variables (endpoints, headers, sampler, resource, batch sizes) from the
    process's own environment.

    Args:
        environment: which exporters are asked for.
        clock: bounds the shutdown.
        threads: where threads report.
    """
    names = exporters(environment)
    processors = [made for name in names if (made := _processor(name, environment))]
    if not processors:
        return NoTracing()
    complaints = Complaints(clock, threads.callFromThread)
    for part in ("opentelemetry.sdk", "opentelemetry.exporter"):
        logging.getLogger(part).addHandler(complaints)
    # The rest speaks of what clients send (a bad tracestate), and is no news.
    logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
    provider = make_provider(processors)
    return SpanTracing(
        provider.get_tracer("twisted_gateway", __version__),
        provider.shutdown,
        clock,
        threads.callFromThread,
        lambda run: threading.Thread(target=run, name="otel-shutdown", daemon=True).start(),
        described=" ".join([",".join(names), collector(environment)]).strip(),
    )


def make_provider(processors: Sequence[SpanProcessor]) -> TracerProvider:
    """Make the provider: the environment's sampler and resource, and nothing at exit.

    At exit it would block for as long as the collector does.
    """
    bare = TracerProvider(shutdown_on_exit=False)
    resource = bare.resource
    if str(resource.attributes.get("service.name", "")).startswith("unknown_service"):
        named = {"service.name": "twisted-gateway", "service.version": __version__}
        resource = resource.merge(Resource(named))
    provider = TracerProvider(
        sampler=TrustingSampler(bare.sampler, bare.id_generator),
        resource=resource,
        shutdown_on_exit=False,
        id_generator=bare.id_generator,
    )
    for processor in processors:
        provider.add_span_processor(processor)
    return provider


def _processor(name: str, environment: Mapping[str, str]) -> SpanProcessor | None:
    log = Logger("twisted_gateway.telemetry.spans")
    if name == "otlp":
        protocols = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
        protocol = next((environment[each] for each in protocols if environment.get(each)), "http")
        name = "otlp_proto_grpc" if protocol == "grpc" else "otlp_proto_http"
    try:
        (entry,) = entry_points(group="opentelemetry_traces_exporter", name=name)
        return BatchSpanProcessor(entry.load()())
    except Exception as fault:  # noqa: BLE001 -- a plugin may raise anything
        # Traces are not worth a gateway that does not start.
        log.error(
            "Tracing: no exporter {name}: {fault}; goes on without it",
            name=name,
            fault=repr(fault),
        )
        return None
