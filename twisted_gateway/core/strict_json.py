"""JSON as RFC 8259 has it: without NaN and infinities, which Python reads, and so would write."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

Hook = Callable[[list[tuple[str, Any]]], Any]


def loads(text: str | bytes, pairs_hook: Hook | None = None) -> Any:
    """Read a document.

    Args:
        text: it; bytes are UTF-8, -16 or -32.
        pairs_hook: makes what stands for an object of its members; raises ValueError. Default: a
            dict, in which of several members of one name the last counts.

    Raises:
        ValueError, RecursionError: it is none, or holds a number that no float is.
    """
    return json.loads(
        text, object_pairs_hook=pairs_hook, parse_constant=_refuse, parse_float=_finite
    )


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is out of range")
    return value
