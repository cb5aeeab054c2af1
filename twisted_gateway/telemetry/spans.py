"""Traces that are recorded, by the OpenTelemetry SDK. Imported only where an exporter is set.

Spans take their parent explicitly and are nowhere the "current" one: a request's coroutine, its
timers and its callbacks run in contexts of their own, and none of them has to carry anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit

from opentelemetry.context import Context, set_value
from opentelemetry.trace import (
    INVALID_SPAN,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    TraceState,
    format_span_id,
    format_trace_id,
    set_span_in_context,
)
from opentelemetry.util.types import AttributeValue
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.web.http_headers import Headers

from twisted_gateway.core.account import Account
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.telemetry import conventions
from twisted_gateway.telemetry.tracing import (
    Attributes,
    ParkSpan,
    RequestTrace,
    TraceContext,
    UpstreamSpan,
    read_context,
    write_context,
)

SHUTDOWN_SECONDS = 2.0
_NOTHING_SAID = Account()
MOST_EVENTS = 60
"""How many events of one name a span bears: the SDK would keep the last 128 of all, and a stream of
hours that is kept alive would lose its first token."""
# Marks a parent context that came from a peer that is not trusted.
UNTRUSTED = "twisted-gateway-untrusted"


class SpanTracing:
    """Tracing that is on."""

    def __init__(
        self,
        tracer: Tracer,
        stop: Callable[[], object],
        clock: IReactorTime,
        from_thread: Callable[[Callable[[], object]], object],
        in_thread: Callable[[Callable[[], None]], object],
        described: str = "on",
    ) -> None:
        """Take the parts; `export.start` puts them together.

        Args:
            tracer: makes the spans.
            stop: sends what is left and ends; blocks.
            clock: bounds that.
            from_thread: runs a callable in the reactor's thread.
            in_thread: runs a callable in a thread that doesn't keep the process alive.
            described: where spans go, in words.
        """
        self._tracer = tracer
        self._stop = stop
        self._clock = clock
        self._from_thread = from_thread
        self._in_thread = in_thread
        self._described = described

    def request(
        self, headers: Headers, trusted: bool, known: Callable[[], Attributes] = dict
    ) -> RequestTrace:
        """See `Tracing`. Without a sampled flag to honour the configured sampler decides."""
        context = read_context(headers)
        parent = Context() if context is None else _remote(context, trusted)
        return SpanTrace(self._tracer, parent, known())

    def describe(self) -> str:
        """See `Tracing`."""
        return self._described

    def shutdown(self) -> Deferred[None]:
        """See `Tracing`. Cancelling it stops the waiting, not the sending."""
        done: Deferred[None] = Deferred()

        def finish() -> None:
            if not done.called:
                done.callback(None)

        def run() -> None:
            try:
                self._stop()
            finally:
                self._from_thread(finish)

        bound = self._clock.callLater(SHUTDOWN_SECONDS, finish)

        def unbind(result: None) -> None:
            if bound.active():
                bound.cancel()

        self._in_thread(run)
        return done.addBoth(unbind)


class SpanTrace(RequestTrace):
    """One request's server span and what hangs from it."""

    def __init__(self, tracer: Tracer, parent: Context, known: Attributes) -> None:
        """Begin the server span under `parent`."""
        super().__init__(None)
        self._tracer = tracer
        self._span = tracer.start_span(
            "HTTP",
            context=parent,
            kind=SpanKind.SERVER,
            attributes=known,
        )
        self._inside = set_span_in_context(self._span, Context())
        # What the span bears already: to set an attribute again is dear.
        self._told: dict[str, AttributeValue] = dict(known)
        self._method = str(known.get("http.request.method", ""))
        self._route = self._model = self._provider = ""
        self._tries = 0
        self._events: Counter[str] = Counter()
        self._try: _ClientSpan | None = None
        self.recording = self._span.is_recording()
        context = self._span.get_span_context()
        self.trace_id = format_trace_id(context.trace_id)
        if self.recording:
            self.span_id = format_span_id(context.span_id)
            self.exemplar = {"trace_id": self.trace_id, "span_id": self.span_id}

    def describe(
        self,
        *,
        method: str | None = None,
        route: str | None = None,
        model: str | None = None,
        provider: str | None = None,
        stream: bool | None = None,
    ) -> None:
        """See `RequestTrace`."""
        if not self._span.is_recording():
            return
        self._method = conventions.method(method) if method else self._method
        self._route = route or self._route
        self._model = model or self._model
        self._provider = provider or self._provider
        shown = "HTTP" if self._method in ("", "_OTHER") else self._method
        self._span.update_name(f"{shown} {self._route}".strip())
        known: dict[str, AttributeValue | None] = {
            "http.request.method": self._method or None,
            "http.route": self._route or None,
            "gen_ai.request.stream": stream,
            **self._gen_ai(),
        }
        told = self._told
        fresh = {k: v for k, v in known.items() if v is not None and told.get(k) != v}
        told |= fresh
        self._span.set_attributes(fresh)

    def _gen_ai(self) -> dict[str, str | None]:
        if not self._model:
            return {}
        return {
            "gen_ai.operation.name": conventions.operation(self._route),
            "gen_ai.provider.name": self._provider or None,
            "gen_ai.request.model": self._model,
        }

    def used(self, account: Account) -> None:
        """See `RequestTrace`: on the server's span, and on that of the try that was answered."""
        if account == _NOTHING_SAID:
            return
        known = {
            "gen_ai.response.model": account.model,
            "gen_ai.response.id": account.answer_id,
            "gen_ai.response.finish_reasons": account.finish_reasons or None,
            "gen_ai.usage.input_tokens": account.input_tokens,
            "gen_ai.usage.output_tokens": account.output_tokens,
            "gen_ai.usage.cache_read.input_tokens": account.cached_tokens,
        }
        _set(self._span, known)
        if self._try is not None:
            self._try.set(known)

    def event(self, name: str, **attributes: str | int | float | bool) -> None:
        """See `RequestTrace`; of more than `MOST_EVENTS` of a name the first are kept."""
        self._events[name] += 1
        if self._events[name] <= MOST_EVENTS:
            self._span.add_event(name, attributes)

    def first_token(self, seconds: float) -> None:
        """See `RequestTrace`."""
        self._span.add_event("first_token")
        if self._try is not None:
            self._try.set({"gen_ai.response.time_to_first_chunk": seconds})

    @contextmanager
    def park(self, seen: Callable[[], Attributes] = dict) -> Iterator[ParkSpan]:
        """A span `admission.park`. To be refused or cancelled is no error of it."""
        if not self.recording:
            yield ParkSpan()
            return
        span = self._tracer.start_span("admission.park", context=self._inside, attributes=seen())
        parked = _ParkedSpan(span)
        try:
            yield parked
        finally:
            parked.end()

    def upstream(self, url: str, method: str = "POST") -> UpstreamSpan:
        """A client span; it names the engine's host and port, not the rest of `url`."""
        if not self.recording:
            return _PassingSpan(self._span.get_span_context())
        parts = urlsplit(url)
        operation = conventions.operation(self._route) if self._model else None
        known: dict[str, AttributeValue | None] = {
            "http.request.method": method,
            "server.address": parts.hostname or "",
            "server.port": parts.port or (443 if parts.scheme == "https" else 80),
            "network.protocol.version": "1.1",
            # To a service several requests are no tries of one.
            "http.request.resend_count": (self._tries or None) if self._model else None,
            **self._gen_ai(),
        }
        span = self._tracer.start_span(
            method if operation is None else f"{operation} {self._model}",
            context=self._inside,
            kind=SpanKind.CLIENT,
            attributes={key: value for key, value in known.items() if value is not None},
        )
        self._tries += 1
        self._try = _ClientSpan(span)
        return self._try

    def end(self, outcome: Outcome, status: int, *, meant_status: int = 0) -> None:
        """See `RequestTrace`: a fault of the gateway or the engine makes the span an error."""
        if not self._span.is_recording():
            return
        if outcome in (Outcome.CLIENT_DISCONNECT, Outcome.CLIENT_STALLED):
            self._span.add_event(outcome.value)
        if status:
            self._span.set_attribute("http.response.status_code", status)
        self._span.set_attribute("gateway.outcome", outcome.value)
        for name, count in self._events.items():
            if count > MOST_EVENTS:
                self._span.set_attribute(f"gateway.{name}.count", count)
        if outcome.is_error or max(status, meant_status) >= 500:
            self._span.set_attribute("error.type", outcome.value)
            self._span.set_status(Status(StatusCode.ERROR, outcome.value))
        self._span.end()

    def forget(self) -> None:
        """See `RequestTrace`: a span that is never ended is never exported."""
        self._span = INVALID_SPAN


class _PassingSpan(UpstreamSpan):
    """A try of a request that is not recorded: the engine's parent is the gateway's span."""

    def __init__(self, context: SpanContext) -> None:
        super().__init__(None)
        self._span_context = context

    def inject(self, headers: Headers) -> None:
        context = self._span_context
        parent = (
            f"00-{format_trace_id(context.trace_id)}-{format_span_id(context.span_id)}"
            f"-{context.trace_flags:02x}"
        )
        write_context(headers, parent.encode("ascii"), context.trace_state.to_header().encode())


class _ClientSpan(_PassingSpan):
    def __init__(self, span: Span) -> None:
        super().__init__(span.get_span_context())
        self._span = span
        self._is_error = False

    def set(self, known: Mapping[str, AttributeValue | None]) -> None:
        _set(self._span, known)

    def status(self, code: int) -> None:
        self._span.set_attribute("http.response.status_code", code)
        if code >= 400:
            self._is_error = True
            self._span.set_attribute("error.type", str(code))
            self._span.set_status(Status(StatusCode.ERROR))

    def failed(self, kind: str) -> None:
        # By its kind alone: a message may quote what the engine or the client sent.
        self._is_error = True
        self._span.set_attribute("error.type", kind)
        self._span.set_status(Status(StatusCode.ERROR, kind))

    def end(self, outcome: Outcome | None) -> None:
        if outcome is not None and outcome.is_error and not self._is_error:
            self.failed(outcome.value)
        if self._span.is_recording():
            self._span.end()


class _ParkedSpan(ParkSpan):
    def __init__(self, span: Span) -> None:
        self._span = span
        self._outcome = "left"

    def decided(self, outcome: str, reason: str = "") -> None:
        self._outcome = outcome
        if reason:
            self._span.set_attribute("admission.reason", reason)

    def end(self) -> None:
        self._span.set_attribute("admission.outcome", self._outcome)
        self._span.end()


def _set(span: Span, known: Mapping[str, AttributeValue | None]) -> None:
    if span.is_recording():
        span.set_attributes({key: value for key, value in known.items() if value is not None})


def _remote(context: TraceContext, trusted: bool) -> Context:
    remote = SpanContext(
        trace_id=int(context.trace_id, 16),
        span_id=int(context.span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED if context.sampled else TraceFlags.DEFAULT),
        trace_state=TraceState.from_header([context.state.decode("latin-1")]),
    )
    parent = set_span_in_context(NonRecordingSpan(remote), Context())
    return parent if trusted else set_value(UNTRUSTED, True, parent)
