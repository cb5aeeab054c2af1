"""What a client is told whose token is not accepted, or does not suffice."""

from __future__ import annotations

import math
from collections.abc import Iterable

from twisted_gateway.core.errors import Problem
from twisted_gateway.core.outcome import Outcome


def unauthorized(why: str) -> Problem:
    """No token that is accepted: 401 with the challenge of RFC 6750, section 3.

    Args:
        why: a clause of printable ASCII, without quotes and without a word of the token.
    """
    challenge = f'Bearer error="invalid_token", error_description="{why}"'
    return Problem(
        "unauthorized",
        401,
        f"A valid bearer token is required here: {why}.",
        outcome=Outcome.UNAUTHORIZED,
        headers={"WWW-Authenticate": challenge},
    )


def insufficient_scope(needed: Iterable[str]) -> Problem:
    """A good token that does not allow this."""
    words = " ".join(sorted(needed))
    challenge = f'Bearer error="insufficient_scope", scope="{words}"'
    return Problem(
        "insufficient_scope",
        403,
        f"The token does not allow this; it takes the scopes {words}.",
        outcome=Outcome.UNAUTHORIZED,
        members={"required_scopes": sorted(needed)},
        headers={"WWW-Authenticate": challenge},
    )


def keys_unavailable(retry_after_seconds: float) -> Problem:
    """The issuer's keys have never been had, so that no token can be judged."""
    seconds = max(1, math.ceil(retry_after_seconds))
    return Problem(
        "auth_unavailable",
        503,
        "The gateway cannot judge tokens yet, for their issuer does not give its keys.",
        outcome=Outcome.UPSTREAM_ERROR,
        members={"retry_after": seconds},
        headers={"Retry-After": str(seconds)},
    )
