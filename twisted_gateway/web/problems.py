"""The problems that a request meets before its model is known, or that are the gateway's own."""

from __future__ import annotations

import math

from twisted_gateway.core.errors import Problem
from twisted_gateway.core.outcome import Outcome


def internal_error() -> Problem:
    """A fault of the gateway's own: what it was is in the log, not in the answer."""
    return Problem(
        "internal_error",
        500,
        "The gateway failed to handle this request; its log has the reason.",
        outcome=Outcome.INTERNAL_ERROR,
    )


def held_too_much(retry_after_seconds: float) -> Problem:
    """The process holds `maxHeldBytes` of request bodies already."""
    return Problem(
        "queue_full",
        503,
        "The gateway holds as many request bodies as it may; try again later.",
        outcome=Outcome.REJECTED,
        members={"reason": "queue_full", "retry_after": math.ceil(retry_after_seconds)},
        headers={"Retry-After": str(math.ceil(retry_after_seconds))},
    )


def body_too_large(limit_bytes: int, seen: str) -> Problem:
    """A body over its limit."""
    return Problem(
        "body_too_large",
        413,
        f"The request body may have at most {limit_bytes} bytes; {seen}.",
        outcome=Outcome.BAD_REQUEST,
        members={"max_body_bytes": limit_bytes},
    )
