"""How the status page and its table put figures: the same words in both."""

from __future__ import annotations

from typing import Any

MOST_NAME_CHARACTERS = 120
MOST_LINE_CHARACTERS = 300

UNKNOWN = "unknown"


def duration(seconds: float) -> str:
    """A time in the unit that a person would use: `40 ms`, `3.2 s`, `42 s`, `2 min 30 s`."""
    if seconds < 0.095:
        return f"{1000 * max(0.0, seconds):.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 89.5:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 90:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def about(seconds: float) -> str:
    """An estimate, no more exact than it is: `2 s`, `40 s`, `3 min`, `2 h`."""
    if seconds < 9.5:
        return f"{max(1, round(seconds))} s"
    if seconds < 87.5:
        return f"{5 * round(seconds / 5)} s"
    minutes = round(seconds / 60)
    return f"{max(2, minutes)} min" if minutes < 90 else f"{round(seconds / 3600)} h"


def ago(seconds: float | None) -> str:
    """How long ago something was; `not yet` where it has not been."""
    return "not yet" if seconds is None else f"{duration(seconds)} ago"


def number(value: float | None) -> str:
    """A whole number, with its thousands apart."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def percent(share: float | None) -> str:
    """A share from 0 to 1. Below one percent a whole number would say that nothing is in it."""
    if share is None:
        return UNKNOWN
    return f"{100 * share:.1f} %" if 0 < share < 0.01 else f"{100 * share:.0f} %"


def count(many: int, one: str, more: str) -> str:
    """`1 request`, `12 requests`."""
    return f"{many:,} {one if many == 1 else more}"


def name(text: Any) -> str:
    """A name from outside on one line: no control characters, no more than is read."""
    return line_of(str(text), MOST_NAME_CHARACTERS)


def line_of(text: str, most: int = MOST_LINE_CHARACTERS) -> str:
    """A text from outside as one line of no more than so many characters and an ellipsis."""
    shown = text[: most + 1]
    clean = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in shown)
    return clean if len(clean) <= most else clean[:most] + "…"


def names(texts: list[str], most: int = 5) -> str:
    """Several of them, and how many more there are."""
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(map(name, texts[:most])) + more
