"""The facts of an engine that our own requests have told: its answers, its silence, its rates."""

from __future__ import annotations

from typing import Any

from twisted_gateway.config.schema import Model
from twisted_gateway.core.rates import (
    DECODE_TOKENS_PER_SECOND,
    PREFILL_TOKENS_PER_SECOND,
    Rates,
)
from twisted_gateway.core.view import GateView
from twisted_gateway.web.known import rounded
from twisted_gateway.web.tries import Tries

Tree = dict[str, Any]


def answers(model: Model, view: GateView | None, tries: Tries, address: str) -> Tree:
    """How an engine fares by our own requests.

    Args:
        model: one that it serves.
        view: of its gate, None where it has none.
        tries: the books.
        address: the engine's base URL.
    """
    start = Rates(model.policy)
    standing = tries.standing(
        address,
        prefill_rate=start.prefill if view is None else view.prefill_tokens_per_second,
        decode_rate=start.decode if view is None else view.decode_tokens_per_second,
    )
    return {
        "silent_seconds": rounded(standing.silent_seconds),
        "expected_seconds": rounded(standing.expected_seconds),
        "faults_in_a_row": standing.faults_in_a_row,
        "fault_status": standing.fault,
        "unreached": standing.unreached,
    }


def rates(model: Model, view: GateView) -> Tree:
    """How fast the engines read and write, and how that is known."""
    read, written = view.prefill_tokens_per_second, view.decode_tokens_per_second
    named_read = model.policy.prefill_tokens_per_second
    named_written = model.policy.decode_tokens_per_second
    return {
        "prefill_tokens_per_second": round(read, 1),
        "prefill_source": _source(read, named_read, PREFILL_TOKENS_PER_SECOND),
        "decode_tokens_per_second": round(written, 1),
        "decode_source": _source(written, named_written, DECODE_TOKENS_PER_SECOND),
        "learned": view.rates_learned,
    }


def _source(rate: float, configured: float | None, default: float) -> str:
    """Where a rate comes from: `learned`, `configured`, or `assumed` until it is learned."""
    if rate == (configured or default):
        return "assumed" if configured is None else "configured"
    return "learned"
