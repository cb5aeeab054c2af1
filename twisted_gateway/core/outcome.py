"""How a request can end: each request ends in exactly one `Outcome`.

The outcome is what the metric `gateway_requests_total`, the access log and the span status say
of a request. The status is the one the gateway answers with where the outcome is of its own
making; where the engine answered, the engine's status passes as it is.
"""

from __future__ import annotations

from enum import Enum


class Outcome(Enum):
    """The terminal outcomes. `value` is the metric label and the word in the log."""

    status: int
    is_error: bool

    OK = "ok", 200, False
    """A whole answer with a status below 400 has been relayed, or made by the gateway."""
    UPSTREAM_STATUS = "upstream_status", 502, False
    """The engine's own 4xx or 5xx was relayed (or framed behind a spent 200)."""
    UPSTREAM_ERROR = "upstream_error", 502, True
    """The engine could not be reached, broke its protocol, or put an error into its stream."""
    UPSTREAM_TIMEOUT = "upstream_timeout", 504, True
    """The engine kept silent for longer than the configured bound."""
    UPSTREAM_INCOMPLETE = "upstream_incomplete", 502, True
    """The engine's answer ended before it was whole."""
    CLIENT_DISCONNECT = "client_disconnect", 499, False
    """The client left before its answer was whole; nobody failed."""
    CLIENT_STALLED = "client_stalled", 499, False
    """The client took no byte for `clientStallSeconds` while data waited, and was cut."""
    REJECTED = "rejected", 503, False
    """Admission refused the request: queue full, park timeout, draining."""
    BAD_REQUEST = "bad_request", 400, False
    """The request itself was wrong: body, model, method, path, size."""
    UNAUTHORIZED = "unauthorized", 401, False
    """The request bore no valid credential where one is required."""
    INTERNAL_ERROR = "internal_error", 500, True
    """A fault of the gateway's own."""

    def __new__(cls, value: str, status: int, is_error: bool) -> Outcome:
        """Make a member whose value is the label alone."""
        member = object.__new__(cls)
        member._value_ = value
        member.status = status
        member.is_error = is_error
        return member
