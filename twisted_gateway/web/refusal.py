"""The gate's refusal as an answer: 503, when to come back, and what the gate saw."""

from __future__ import annotations

import math

from twisted_gateway.core.decision import Reason, Refused
from twisted_gateway.core.errors import Problem
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.web.known import rounded

RETRY_JITTER = 0.25
MOST_RETRY_SECONDS = 60

_WORDS = {
    Reason.PARK_TIMEOUT: "No place became free in the time that this request may wait",
    Reason.QUEUE_FULL: "As many requests wait for the engine as may wait",
    Reason.DEADLINE: "The request could not be served in the time that its client waits",
    Reason.DRAINING: "This gateway is shutting down; another one will answer",
}


def refusal(decision: Refused, chance: float) -> Problem:
    """The gate's refusal as a problem, with what the gate saw.

    Args:
        decision: the refusal.
        chance: from 0 up to 1: where in its jitter `Retry-After` lies.
    """
    reason = decision.reason
    engine = decision.seen
    standing = decision.standing
    retry_after = _retry_after(decision, chance)
    headers = {"Retry-After": str(retry_after), "X-Queue-Position": str(standing.position)}
    if standing.eta_seconds is not None:
        headers["X-Queue-Wait-Estimate"] = str(math.ceil(standing.eta_seconds))
    seen = {
        "running": engine.running,
        "waiting": engine.waiting,
        "kv_usage": engine.kv_usage,
        "max_inflight": engine.max_inflight,
        "in_engine": engine.in_engine,
        "sample_age_seconds": rounded(engine.sample_age_seconds),
        "waited_seconds": rounded(decision.waited_seconds),
        "position": standing.position,
        "wait_estimate_seconds": rounded(standing.eta_seconds),
    }
    return Problem(
        reason.value,
        503,
        f"{_WORDS[reason]}; try again in {retry_after} s.",
        outcome=Outcome.REJECTED,
        members={"reason": reason.value, "retry_after": retry_after, **seen},
        headers=headers,
    )


def _retry_after(decision: Refused, chance: float) -> int:
    """Whole seconds until a place should be free, give or take a quarter, within bounds.

    The jitter keeps those who are refused together from coming back together.
    """
    least = math.ceil(decision.ticket.policy.retry_after_seconds)
    expected = decision.place_seconds if decision.place_seconds is not None else float(least)
    jittered = round(expected * (1 + RETRY_JITTER * (2 * chance - 1)))
    return max(1, least, min(MOST_RETRY_SECONDS, jittered))
