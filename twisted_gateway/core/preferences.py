"""What a client asks of the gateway itself by header: an identifier, a priority, a time to wait.

Values come as HTTP gives them, one element for each header line, as bytes or as text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from twisted_gateway.core.errors import Problem
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.core.ticket import Priority

_PRIORITIES = {known.name.lower(): known for known in Priority}
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")

# RFC 7240, section 2, read leniently. A quoted string that does not end takes the rest with it.
_QUOTED = r'"(?:[^"\\]++|\\.?)*+(?:"|\Z)'
# Possessive throughout: a client may send any number of blanks, and none is looked at twice.
_PREFERENCE = re.compile(rf'(?:[^",]++|{_QUOTED})++', re.DOTALL)
_WAIT = re.compile(r'\s*+wait\s*+(?:=\s*+("?)([0-9]*+)\1)?\s*+(;.*)?', re.IGNORECASE | re.DOTALL)
_WAIT_NAME = re.compile(r"\s*+wait\s*+(?:[=;]|$)", re.IGNORECASE)
_MAX_DELTA_SECONDS = 2**31


def request_id(value: bytes | str | None, make: Callable[[], str]) -> str:
    """Keep the client's X-Request-ID where it is well-formed, else make one.

    Args:
        value: the header's value, if there is one.
        make: gives a fresh identifier.
    """
    text = "" if value is None else _text(value)
    return text if _REQUEST_ID.fullmatch(text) else make()


def priority(values: Iterable[bytes | str]) -> Priority:
    """Read X-Priority; without it a request is interactive.

    Raises:
        Problem: 400 `invalid_priority`, for any other word or contradictory ones.
    """
    words = {_text(value).strip() for value in values}
    if not words:
        return Priority.INTERACTIVE
    known = _PRIORITIES.get(words.pop())
    if known is not None and not words:
        return known
    raise Problem(
        "invalid_priority",
        400,
        f"X-Priority must be one of {', '.join(_PRIORITIES)}.",
        outcome=Outcome.BAD_REQUEST,
        members={"valid_priorities": list(_PRIORITIES)},
        param="X-Priority",
    )


def prefer_wait(values: Iterable[bytes | str]) -> int | None:
    """Read the `wait` preference out of Prefer (RFC 7240, section 4.3).

    Of several only the first counts, and if that is malformed there is none. Other preferences,
    and parameters, are passed over.

    Returns:
        Seconds, at most 2**31; None where the client expresses no bound.
    """
    for value in values:
        for preference in _PREFERENCE.findall(_text(value)):
            if _WAIT_NAME.match(preference):
                return _seconds(preference)
    return None


def _seconds(preference: str) -> int | None:
    match = _WAIT.fullmatch(preference)
    if match is None or not match[2]:
        return None
    digits = match[2].lstrip("0")
    # Eleven digits are past the cap already, and Python refuses to read a whole line of them.
    return min(int(digits[:11] or "0"), _MAX_DELTA_SECONDS)


def _text(value: bytes | str) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value
