"""What a simulated engine can be told to do wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

METRICS_MODES = ("ok", "hang", "garble", "html", "500")
"""How /metrics answers: well, never, with a torn page, with a proxy's login page, with a 500."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """The faults in force. Each request is judged by those that it meets when it comes.

    Attributes:
        metrics: one of `METRICS_MODES`.
        refuse_next: so many further inference requests are answered 503.
        cut_after_tokens: streams lose their connection after so many tokens.
        error_after_tokens: streams get an error and `[DONE]` in band after so many tokens.
        hang: requests are accepted (a stream has its head at once) and never computed.
        die: the engine is dead: streams have ended in error, /health says 503, inference 500,
            and /metrics goes on. Taking it back restarts the engine: empty, all series at zero.
    """

    metrics: str = "ok"
    refuse_next: int = 0
    cut_after_tokens: int | None = None
    error_after_tokens: int | None = None
    hang: bool = False
    die: bool = False

    def changed(self, wanted: Mapping[str, Any]) -> Faults:
        """These faults with some of them changed.

        Raises:
            ValueError: an unknown name, or a value that is none; the message says which.
        """
        for name, value in wanted.items():
            if name not in _CHECKS:
                raise ValueError(f"{name}: unknown, expected one of {', '.join(_CHECKS)}")
            if not _CHECKS[name](value):
                raise ValueError(f"{name}: impossible value")
        return replace(self, **wanted)


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _maybe_count(value: object) -> bool:
    return value is None or _count(value)


def _flag(value: object) -> bool:
    return isinstance(value, bool)


_CHECKS = {
    "metrics": METRICS_MODES.__contains__,
    "refuse_next": _count,
    "cut_after_tokens": _maybe_count,
    "error_after_tokens": _maybe_count,
    "hang": _flag,
    "die": _flag,
}
