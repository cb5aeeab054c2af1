"""The admission policy of one engine: the `admission` keys of the configuration as a value."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class WhenStale(Enum):
    """What the gate does while the engine's gauges cannot be read."""

    OPEN = "open"
    """Admit by the ledger of own tickets alone."""
    CLOSED = "closed"
    """Park until the gauges can be read again."""
    HOLD = "hold"
    """Judge by the last sample for `hold_seconds`, then as `OPEN`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How one engine is gated and observed. All keys are those of the contract, section 2.

    `max_inflight` is S, the sequences that the engine runs at once; None means `auto`: it is
    learned from the gauges. The last four may differ between models that share an engine.
    """

    max_inflight: int | None = None
    kv_threshold: float = 0.90
    max_queue_depth: int = 256
    poll_seconds: float = 2.0
    poll_timeout_seconds: float = 5.0
    stale_after_polls: int = 3
    when_stale: WhenStale = WhenStale.OPEN
    hold_seconds: float = 30.0
    parked_bytes: int = 67_108_864
    ordering: str = "fifo"
    max_park_seconds: float = 540.0
    keep_alive_seconds: float = 15.0
    retry_after_seconds: float = 5.0
