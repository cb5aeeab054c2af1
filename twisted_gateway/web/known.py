"""Numbers of which some may not be known: sums, maxima and roundings of those that are."""

from __future__ import annotations

from collections.abc import Iterable


def total(values: Iterable[int | None]) -> int | None:
    """Add up those that are known; None where none is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def most(values: Iterable[float | None]) -> float | None:
    """Give the greatest of those that are known; None where none is."""
    return max((value for value in values if value is not None), default=None)


def rounded(seconds: float | None) -> float | None:
    """Round seconds to milliseconds; None stays None."""
    return None if seconds is None else round(seconds, 3)
