"""The problems that a request meets before its model is known, or that are the gateway's own."""

from __future__ import annotations

import math

from twisted_gateway.core.errors import Problem
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.upstream.errors import (
    ConnectFailed,
    ConnectTimedOut,
    Disconnected,
    UpstreamError,
)

HELD_RETRY_AFTER_SECONDS = 5.0
"""When whoever came while too much was held may try again."""


def internal_error() -> Problem:
    """A fault of the gateway's own: what it was is in the log, not in the answer."""
    return Problem(
        "internal_error",
        500,
        "The gateway failed to handle this request; its log has the reason.",
        outcome=Outcome.INTERNAL_ERROR,
    )


def draining() -> Problem:
    """The process is shutting down: the client is to try again elsewhere.

    No gate is asked, so there is no position and no engine to tell of.
    """
    return Problem(
        "draining",
        503,
        "This gateway is shutting down; try again and another one will answer.",
        outcome=Outcome.REJECTED,
        members={"reason": "draining", "retry_after": 1},
        headers={"Retry-After": "1"},
    )


def held_too_much(retry_after_seconds: float) -> Problem:
    """The process holds `maxHeldBytes` of bodies already.

    Whose model it is for is not known yet, so there is no position and no engine to tell of.
    """
    return Problem(
        "queue_full",
        503,
        "The gateway holds as many bodies of requests and answers as it may; try again later.",
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


def body_too_slow(seconds: float) -> Problem:
    """A body that was not whole in time."""
    return Problem(
        "body_timeout",
        408,
        f"The request body did not arrive whole within {seconds:g} s.",
        outcome=Outcome.BAD_REQUEST,
    )


def no_websocket() -> Problem:
    """A WebSocket handshake, which is met at no path."""
    return Problem(
        "websocket",
        426,
        "This gateway does not speak WebSocket; send a plain HTTP/1.1 request.",
        outcome=Outcome.BAD_REQUEST,
        headers={"Upgrade": "HTTP/1.1", "Connection": "Upgrade"},
    )


def no_path(method: str) -> Problem:
    """A request for the server as a whole (RFC 9110, section 9.3.7)."""
    return Problem(
        "method_not_allowed",
        405,
        f"{method} * is not served here; name a path.",
        outcome=Outcome.BAD_REQUEST,
        # Nothing is: an empty list says so (RFC 9110, section 10.2.1).
        headers={"Allow": ""},
    )


def unreachable(model: str, fault: UpstreamError) -> Problem:
    """The engine of a model gave no answer that could be relayed."""
    if isinstance(fault, ConnectTimedOut):
        return Problem(
            "upstream_timeout",
            504,
            f"The engine of {model} could not be reached in time.",
            outcome=Outcome.UPSTREAM_TIMEOUT,
            members={"reason": "connect_timeout"},
        )
    if isinstance(fault, ConnectFailed):
        words = "could not be reached"
    elif isinstance(fault, Disconnected):
        words = "closed the connection before it answered"
    else:
        words = "gave no answer that can be relayed"
    return Problem(
        "upstream_error",
        502,
        f"The engine of {model} {words}: {fault.reason}.",
        outcome=Outcome.UPSTREAM_ERROR,
    )
