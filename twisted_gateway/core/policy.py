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


class Ordering(Enum):
    """Who of the parked is served first."""

    COST = "cost"
    """By class, tenants by what they have used lately, and response ratio."""
    FIFO = "fifo"
    """By class, then by arrival."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """How many gateways are in front of an engine, and where they can be asked what they hold.

    Attributes:
        count: how many, where only their number is known; 1 is this one alone.
        addresses: host and port of each one's peer listener, this one's own among them or not.
        dns: host and port of a name that resolves to all of them (a headless Service).
    """

    count: int = 1
    addresses: tuple[tuple[str, int], ...] = ()
    dns: tuple[str, int] | None = None

    @property
    def exchanged(self) -> bool:
        """Whether the replicas ask each other."""
        return bool(self.addresses) or self.dns is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How one engine is gated and observed. All keys are those of the contract, section 2.

    `max_inflight` is S, the sequences that the engine runs at once; None means `auto`: it is
    learned from the gauges. The rates of prefill (tokens a second of one prompt alone) and decode
    (tokens a second of one answer) are those to start with; naming either makes both count as
    learned. The last four may differ between models that share an engine.
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
    ordering: Ordering = Ordering.COST
    long_prefill_seconds: float = 15.0
    prefill_tokens_per_second: float | None = None
    decode_tokens_per_second: float | None = None
    parked_work_seconds: float = 900.0
    replicas: Replicas = Replicas()
    patience_seconds: float = 600.0
    max_park_seconds: float = 540.0
    keep_alive_seconds: float = 15.0
    retry_after_seconds: float = 5.0
