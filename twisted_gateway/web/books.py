"""What a request leaves behind when it has ended: its counts, its span, its line in the log."""

from __future__ import annotations

from twisted_gateway.core.outcome import Outcome
from twisted_gateway.telemetry.access import AccessEntry, AccessLog, is_routine
from twisted_gateway.telemetry.families import REASONS
from twisted_gateway.telemetry.genai import Served
from twisted_gateway.telemetry.metrics import Metrics
from twisted_gateway.web.exchange import Exchange


class Books:
    """Closes the book of each request, in metrics, trace and access log.

    Args:
        metrics: counts.
        access_log: writes a line for each request.
    """

    def __init__(self, metrics: Metrics, access_log: AccessLog) -> None:
        """Take what the class documents."""
        self._metrics = metrics
        self._access_log = access_log

    def close(self, exchange: Exchange) -> None:
        """An exchange has ended, in the outcome that it bears."""
        outcome = exchange.outcome
        assert outcome is not None
        self._count(exchange, outcome)
        trace = exchange.trace
        if is_routine(exchange.route, outcome):
            trace.forget()
        trace.describe(method=exchange.method, route=exchange.route)
        trace.end(outcome, exchange.status, meant_status=exchange.meant_status)
        self._access_log.ended(
            AccessEntry(
                request_id=exchange.request_id,
                trace_id=trace.trace_id,
                span_id=trace.span_id,
                client=exchange.client,
                route=exchange.route,
                model=exchange.model,
                stream=exchange.stream,
                tenant=exchange.tenant,
                outcome=outcome,
                reason=exchange.reason,
                status=exchange.status,
                waited_seconds=exchange.waited_seconds,
                ttft_seconds=exchange.ttft_seconds,
                duration_seconds=exchange.duration_seconds,
                bytes_sent=exchange.bytes_sent,
            )
        )

    def _count(self, exchange: Exchange, outcome: Outcome) -> None:
        self._metrics.ended(exchange.route, exchange.model, outcome)
        # Of the reasons those of the gate are counted; others are only told and logged.
        if outcome is Outcome.REJECTED and exchange.reason in REASONS:
            self._metrics.rejected(exchange.model, exchange.reason)
        self._metrics.gen_ai.ended(
            Served(
                route=exchange.route,
                model=exchange.model,
                provider=exchange.provider,
                outcome=outcome,
                duration_seconds=exchange.duration_seconds,
                ttft_seconds=exchange.ttft_seconds,
                input_tokens=exchange.account.input_tokens,
                last_token_seconds=exchange.last_token_seconds,
                output_tokens=_counted(exchange),
                exemplar=exchange.trace.exemplar,
            )
        )


def _counted(exchange: Exchange) -> int | None:
    """How many tokens an answer had: as the engine counts them, else by the stream's events."""
    said = exchange.account.output_tokens
    return said if said is not None else exchange.content_events or None
