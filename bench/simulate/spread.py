"""Many numbers as three: median and quartiles."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from typing import NamedTuple


class Spread(NamedTuple):
    """Median and quartiles; all NaN where there was nothing to be seen."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        """As it stands in a table."""
        return self.text()

    def text(self, digits: int = 3) -> str:
        """As it stands in a table that needs so many digits."""
        if math.isnan(self.median):
            return "-"
        middle, low, high = (number(value, digits) for value in self)
        return middle if low == middle == high else f"{middle} ({low} .. {high})"


def spread(values: Iterable[float]) -> Spread:
    """Median and quartiles of values, those left out that are NaN."""
    ordered = sorted(value for value in values if not math.isnan(value))
    if not ordered:
        return Spread(math.nan, math.nan, math.nan)
    outer = len(ordered) // 4
    return Spread(statistics.median(ordered), ordered[outer], ordered[-1 - outer])


def number(value: float, digits: int = 3) -> str:
    """A number to so many digits or to the unit, whichever is more."""
    if math.isinf(value):
        return "inf"
    return f"{value:.0f}" if abs(value) >= 10 ** (digits - 1) else f"{value:.{digits}g}"
