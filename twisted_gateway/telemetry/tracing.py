"""Traces: W3C context in and out, and the seam behind which OpenTelemetry stands.

Without an exporter in `OTEL_*` none of OpenTelemetry is imported and a request's trace is a
`RequestTrace`: a trace context that comes in goes on to the engine as it is, and its id is known
to the log. With one, `telemetry.spans` makes spans behind the same methods.

Spans are told of a request; they never stand between its response and the client's transport.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorFromThreads, IReactorTime
from twisted.web.http_headers import Headers

from twisted_gateway.core.account import Account
from twisted_gateway.core.outcome import Outcome

Attributes = Mapping[str, str | int | float | bool]

Exemplar = Mapping[str, str] | None
"""The labels that name the trace of what is counted, None where that is not recorded."""

_TRACEPARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_MAX_TRACEPARENT_BYTES = 512
_MAX_TRACESTATE_BYTES = 4096
_SAMPLED = 0x01


@dataclass(frozen=True, slots=True)
class TraceContext:
    """What a request's `traceparent` and `tracestate` say (W3C Trace Context, level 1).

    Attributes:
        parent: `traceparent` as it came.
        trace_id: 32 hex digits, not all 0.
        span_id: 16 hex digits, not all 0.
        sampled: whether the caller records this trace.
        state: `tracestate`, its lines joined; empty for none, or too long a one.
    """

    parent: bytes
    trace_id: str
    span_id: str
    sampled: bool
    state: bytes


def read_context(headers: Headers) -> TraceContext | None:
    """The trace context that a request brings; None for none, or one that breaks the standard.

    A version above 00 is read by what it shares with 00, as the standard has it.
    """
    parents = headers.getRawHeaders(b"traceparent", [])
    if len(parents) != 1 or len(parents[0]) > _MAX_TRACEPARENT_BYTES:
        return None
    match = _TRACEPARENT.fullmatch(parents[0].strip())
    if match is None:
        return None
    version, trace_id, span_id, flags, rest = match.groups()
    if version == b"ff" or (version == b"00" and rest is not None):
        return None
    if not (trace_id.strip(b"0") and span_id.strip(b"0")):
        return None
    state = b",".join(headers.getRawHeaders(b"tracestate", []))
    return TraceContext(
        parent=parents[0].strip(),
        trace_id=trace_id.decode("ascii"),
        span_id=span_id.decode("ascii"),
        sampled=bool(int(flags, 16) & _SAMPLED),
        state=state if len(state) <= _MAX_TRACESTATE_BYTES else b"",
    )


class UpstreamSpan:
    """One try at an engine, from its sending to its answer's end; this one records nothing."""

    def __init__(self, context: TraceContext | None) -> None:
        """Stand for a try of a request that brought `context`."""
        self._context = context

    def inject(self, headers: Headers) -> None:
        """Put the trace context for the engine into `headers`, in place of any that is there.

        `baggage` is left alone: it goes on as it came.
        """
        context = self._context
        write_context(
            headers, context.parent if context else b"", context.state if context else b""
        )

    def status(self, code: int) -> None:
        """The engine has answered with this HTTP status."""

    def failed(self, kind: str) -> None:
        """The engine could not be reached, or not understood; `kind` is one of few words."""

    def end(self, outcome: Outcome | None) -> None:
        """The engine has said all it had to say to this try; the first call counts.

        Args:
            outcome: how the request ended with it; None where it goes on with another try.
        """


class ParkSpan:
    """The time parked; this one records nothing."""

    def decided(self, outcome: str, reason: str = "") -> None:
        """The wait is over: `admitted`, or `refused` for a reason. Without it the client left."""


class RequestTrace:
    """One request's trace; this one records nothing and lets a context pass.

    Attributes:
        recording: whether anything that is told is kept; what is dear to tell need not be told
            where it is not.
        trace_id: 32 hex digits for the log; "" where there is no trace.
        span_id: 16 hex digits of the gateway's own span; "" where it has none.
        exemplar: the labels by which a metric refers to a trace that is recorded.
    """

    recording: bool = False
    span_id: str = ""
    exemplar: Exemplar = None

    def __init__(self, context: TraceContext | None) -> None:
        """Stand for a request that brought `context`."""
        self.trace_id = context.trace_id if context else ""
        self._context = context

    def describe(
        self,
        *,
        method: str | None = None,
        route: str | None = None,
        model: str | None = None,
        provider: str | None = None,
        stream: bool | None = None,
    ) -> None:
        """Say what became known of the request; may be called again with more.

        Args:
            method: of the request.
            route: the bounded name of what handles it.
            model: the configured model.
            provider: `gen_ai.provider.name`, see `telemetry.conventions`.
            stream: whether an event stream was asked for.
        """

    def used(self, account: Account) -> None:
        """Say what the engine's answer said of itself."""

    def event(self, name: str, **attributes: str | int | float | bool) -> None:
        """Something happened: keep-alive, re-park, refusal by the engine. Bounded in number."""

    def first_token(self, seconds: float) -> None:
        """The first event that bears content came, `seconds` after its try was sent."""

    @contextmanager
    def park(self, seen: Callable[[], Attributes] = dict) -> Iterator[ParkSpan]:
        """The time parked. Left by an exception, cancelling too, it ends there.

        Args:
            seen: gives what the gate saw when it parked the request; asked where it is recorded.
        """
        yield ParkSpan()

    def upstream(self, url: str, method: str = "POST") -> UpstreamSpan:
        """Begin a try at the engine, or a request to the service, at `url`; to be ended."""
        return UpstreamSpan(self._context)

    def end(self, outcome: Outcome, status: int, *, meant_status: int = 0) -> None:
        """The request has ended; the first call counts.

        Args:
            outcome: how it ended.
            status: what was sent, 0 where nothing was.
            meant_status: of a failure that the client was told behind a 200; 0 where there was
                none.
        """

    def forget(self) -> None:
        """Let nothing be kept of this request: it was a probe or a scrape, of no interest."""


class Tracing(Protocol):
    """What the request path knows of tracing."""

    def request(
        self, headers: Headers, trusted: bool, known: Callable[[], Attributes] = dict
    ) -> RequestTrace:
        """Begin the trace of a request whose head was just read.

        Args:
            headers: those of the request.
            trusted: whether its peer is a trusted proxy, whose sampled flag is honoured.
            known: gives what the head says, as attributes; asked where tracing is on.
        """

    def describe(self) -> str:
        """Say in a few words whether traces are exported, and where to; no credentials."""

    def shutdown(self) -> Deferred[None]:
        """Send what is left; fires within 2 seconds, whether or not that succeeded."""


class NoTracing:
    """Tracing that is off: contexts pass, ids are logged, nothing is recorded."""

    def request(
        self, headers: Headers, trusted: bool, known: Callable[[], Attributes] = dict
    ) -> RequestTrace:
        """See `Tracing`; whom one trusts makes no difference here."""
        return RequestTrace(read_context(headers))

    def describe(self) -> str:
        """See `Tracing`."""
        return "off"

    def shutdown(self) -> Deferred[None]:
        """Fire at once."""
        return succeed(None)


def start(
    environment: Mapping[str, str], clock: IReactorTime, threads: IReactorFromThreads
) -> Tracing:
    """Start tracing as the standard variables say; without an exporter that costs nothing.

    Args:
        environment: the process's variables.
        clock: bounds the shutdown; the reactor.
        threads: where the exporter's threads report; the reactor too.
    """
    if not exporters(environment):
        return NoTracing()
    # The SDK and its exporter take longer to import than all the rest.
    from twisted_gateway.telemetry import export

    return export.start(environment, clock, threads)


def exporters(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The trace exporters that the standard variables ask for; none means that tracing is off.

    The standard's own default is to export to localhost. Here that takes a word: an endpoint, or
    the exporter's name. An empty variable counts as unset, as the standard has it.
    """
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return ()
    names = [name.strip() for name in environment.get("OTEL_TRACES_EXPORTER", "").split(",")]
    names = [name for name in names if name]
    if names:
        return () if "none" in names else tuple(names)
    endpoints = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    return ("otlp",) if any(environment.get(name) for name in endpoints) else ()


def collector(environment: Mapping[str, str]) -> str:
    """Give scheme, host and port of the OTLP endpoint that the standard variables name.

    Neither user name, path nor query: any of them may hold a credential. "" where none is named.
    """
    names = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    url = next((environment[name] for name in names if environment.get(name)), "")
    try:
        parts = urlsplit(url)
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        return ""
    return f"{parts.scheme}://{parts.hostname}{port}" if parts.hostname else ""


def write_context(headers: Headers, parent: bytes, state: bytes) -> None:
    """Set `traceparent` and `tracestate`, or remove those of which there is none."""
    for name, value in ((b"traceparent", parent), (b"tracestate", state)):
        if value:
            headers.setRawHeaders(name, [value])
        else:
            headers.removeHeader(name)
