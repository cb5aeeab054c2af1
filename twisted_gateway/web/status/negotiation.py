"""Which form of an answer a client wants (RFC 9110, section 12.5.1)."""

from __future__ import annotations

import re
from collections.abc import Sequence

MOST_RANGES = 50

_RANGE = re.compile(r"\s*([^/;,\s]+/[^/;,\s]+)\s*((?:;[^,]*)?)")
_WEIGHT = re.compile(r";\s*[qQ]\s*=\s*(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)\s*(?:;|$)")


def best(accept: str | None, offers: Sequence[str]) -> str:
    """Choose what to answer with.

    Args:
        accept: the `Accept` header; None or "" is as good as anything.
        offers: media types in lower case, the most wanted by us first.

    Returns:
        The offer that the client weighs highest, of equals the first; where it wants none of
        them, the first: an answer that was not asked for says more than a 406.
    """
    ranges = _ranges(accept or "")
    if not ranges:
        return offers[0]
    weights = [_weight(offer, ranges) for offer in offers]
    return offers[weights.index(max(weights))]


def _ranges(accept: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in accept.split(",", MOST_RANGES)[:MOST_RANGES]:
        match = _RANGE.fullmatch(part)
        if match is not None:
            weight = _WEIGHT.search(match[2])
            found.setdefault(match[1].lower(), 1.0 if weight is None else float(weight[1]))
    return found


def _weight(offer: str, ranges: dict[str, float]) -> float:
    """The weight of the range that is closest to the offer."""
    whole = offer.partition("/")[0] + "/*"
    return ranges.get(offer, ranges.get(whole, ranges.get("*/*", 0.0)))
