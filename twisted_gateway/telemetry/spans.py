"""Traces that are recorded, by the OpenTelemetry SDK. Imported only where an exporter is set.

Spans take their parent explicitly and are nowhere the "current" one: a request's coroutine, its
timers and its callbacks run in contexts of their own, and none of them has to carry anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit

from opentelemetry.context import Context, set_value
from opentelemetry.trace import (
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
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.web.http_headers import Headers

from twisted_gateway.core.outcome import Outcome
from twisted_gateway.telemetry.tracing import (
    RequestTrace,
    TraceContext,
    UpstreamSpan,
    read_context,
    write_context,
)

SHUTDOWN_SECONDS = 2.0
# Marks a parent context that came from a peer that is not trusted.
UNTRUSTED = "twisted-gateway-untrusted"

# The last part of a route -> gen_ai.operation.name (OpenTelemetry's GenAI conventions).
_OPERATIONS = {
    "chat/completions": "chat",
    "responses": "chat",
    "messages": "chat",
    "completions": "text_completion",
    "embeddings": "embeddings",
}


class SpanTracing:
    """Tracing that is on."""

    def __init__(
        self,
        tracer: Tracer,
        stop: Callable[[], object],
        clock: IReactorTime,
        from_thread: Callable[[Callable[[], object]], object],
        in_thread: Callable[[Callable[[], None]], object],
    ) -> None:
        """Take the parts; `export.start` puts them together.

        Args:
            tracer: makes the spans.
            stop: sends what is left and ends; blocks.
            clock: bounds that.
            from_thread: runs a callable in the reactor's thread.
            in_thread: runs a callable in a thread that doesn't keep the process alive.
        """
        self._tracer = tracer
        self._stop = stop
        self._clock = clock
        self._from_thread = from_thread
        self._in_thread = in_thread

    def request(self, headers: Headers, trusted: bool) -> RequestTrace:
        """See `Tracing`. Without a sampled flag to honour the configured sampler decides."""
        context = read_context(headers)
        parent = Context() if context is None else _remote(context, trusted)
        return SpanTrace(self._tracer, parent)

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

    def __init__(self, tracer: Tracer, parent: Context) -> None:
        """Begin the server span under `parent`."""
        super().__init__(None)
        self._tracer = tracer
        self._span = tracer.start_span("HTTP", context=parent, kind=SpanKind.SERVER)
        self._inside = set_span_in_context(self._span, Context())
        self._method = self._route = self._model = ""
        self.trace_id = format_trace_id(self._span.get_span_context().trace_id)

    def describe(
        self,
        *,
        method: str | None = None,
        route: str | None = None,
        model: str | None = None,
        stream: bool | None = None,
    ) -> None:
        """See `RequestTrace`."""
        self._method = method or self._method
        self._route = route or self._route
        self._model = model or self._model
        self._span.update_name(f"{self._method} {self._route}".strip() or "HTTP")
        known = {
            "http.request.method": method,
            "http.route": route,
            "gen_ai.operation.name": _operation(self._route) if self._model else None,
            "gen_ai.request.model": model,
            "gen_ai.request.stream": stream,
        }
        self._set(known)

    def used(
        self,
        *,
        response_model: str | None = None,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
    ) -> None:
        """See `RequestTrace`."""
        known = {
            "gen_ai.response.model": response_model,
            "gen_ai.usage.input_tokens": input_tokens,
            "gen_ai.usage.output_tokens": output_tokens,
        }
        self._set(known)

    def event(self, name: str, **attributes: str | int | float | bool) -> None:
        """See `RequestTrace`; the SDK keeps the last 128."""
        self._span.add_event(name, attributes)

    @contextmanager
    def park(self) -> Iterator[None]:
        """A span `admission.park`. To be refused or cancelled is no error of it."""
        span = self._tracer.start_span("admission.park", context=self._inside)
        try:
            yield
        finally:
            span.end()

    @contextmanager
    def upstream(self, url: str) -> Iterator[UpstreamSpan]:
        """A client span; it names the engine's host and port, not the rest of `url`."""
        parts = urlsplit(url)
        attributes: dict[str, str | int] = {
            "http.request.method": "POST",
            "server.address": parts.hostname or "",
            "server.port": parts.port or (443 if parts.scheme == "https" else 80),
        }
        operation = _operation(self._route) if self._model else None
        if operation is not None:
            attributes["gen_ai.operation.name"] = operation
            attributes["gen_ai.request.model"] = self._model
        span = self._tracer.start_span(
            "POST" if operation is None else f"{operation} {self._model}",
            context=self._inside,
            kind=SpanKind.CLIENT,
            attributes=attributes,
        )
        try:
            yield _ClientSpan(span)
        except CancelledError:
            # The client has left, or a bound of ours has passed: the engine did no wrong.
            raise
        except Exception as fault:
            # By its kind alone: a message may quote what the engine or the client sent.
            kind = type(fault).__qualname__
            span.set_attribute("error.type", kind)
            span.set_status(Status(StatusCode.ERROR, kind))
            raise
        finally:
            span.end()

    def end(self, outcome: Outcome, status: int) -> None:
        """See `RequestTrace`: a fault of the gateway or the engine makes the span an error."""
        if not self._span.is_recording():
            return
        if status:
            self._span.set_attribute("http.response.status_code", status)
        self._span.set_attribute("gateway.outcome", outcome.value)
        if outcome.is_error or status >= 500:
            self._span.set_attribute("error.type", outcome.value)
            self._span.set_status(Status(StatusCode.ERROR, outcome.value))
        self._span.end()

    def _set(self, known: Mapping[str, str | int | None]) -> None:
        if not self._span.is_recording():
            return
        self._span.set_attributes({key: value for key, value in known.items() if value is not None})


class _ClientSpan(UpstreamSpan):
    def __init__(self, span: Span) -> None:
        super().__init__(None)
        self._span = span

    def inject(self, headers: Headers) -> None:
        context = self._span.get_span_context()
        parent = (
            f"00-{format_trace_id(context.trace_id)}-{format_span_id(context.span_id)}"
            f"-{context.trace_flags:02x}"
        )
        write_context(headers, parent.encode("ascii"), context.trace_state.to_header().encode())

    def status(self, code: int) -> None:
        self._span.set_attribute("http.response.status_code", code)
        if code >= 400:
            self._span.set_attribute("error.type", str(code))
            self._span.set_status(Status(StatusCode.ERROR))


def _operation(route: str) -> str | None:
    return next((word for end, word in _OPERATIONS.items() if route.endswith("/" + end)), None)


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
