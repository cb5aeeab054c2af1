"""Forms of values that several tools take: each reads a text, and says what it expected instead."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable

from twisted_gateway.config.faults import Wrong
from twisted_gateway.config.forms import printable

MAX_MODEL_CHARS = 256


def number(least: float, most: float) -> Callable[[str], float]:
    """Give what reads a number from `least` to `most`, both allowed."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not least <= value <= most:
            raise ArgumentTypeError(f"expected a number from {least:g} to {most:g}")
        return value

    return read


def whole(least: int, most: int) -> Callable[[str], int]:
    """Give what reads a whole number from `least` to `most`, both allowed."""

    def read(text: str) -> int:
        # Before `int`, which takes no more than a few thousand digits and says so at length.
        value = int(text) if len(text) <= 20 and text.isascii() and text.isdecimal() else None
        if value is None or not least <= value <= most:
            raise ArgumentTypeError(f"expected a whole number from {least} to {most}")
        return value

    return read


def model(text: str) -> str:
    """Read the name of a model."""
    try:
        name = printable(text)
    except Wrong:
        raise ArgumentTypeError("expected the name of a model, in printable characters") from None
    if len(name) > MAX_MODEL_CHARS:
        raise ArgumentTypeError(f"expected at most {MAX_MODEL_CHARS} characters")
    return str(name)
