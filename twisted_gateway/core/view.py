"""What the gate knows, as frozen facts for the status page, the metrics and refusals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from twisted_gateway.core.ticket import Priority


class Sight(Enum):
    """By what the gate judges an engine just now; the table is in `core.gate`."""

    UNOBSERVED = "unobserved"
    UNKNOWN = "unknown"
    FRESH = "fresh"
    HELD = "held"
    LEDGER = "ledger"
    NO_GATE = "no_gate"
    CLOSED = "closed"


class Hold(Enum):
    """Why nothing is admitted to an engine, whatever room it has."""

    REFUSED_CONNECTION = "refused_connection"
    STALE_CLOSED = "stale_closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineView:
    """One engine. None means unknown.

    Attributes:
        running: sequences in the engine's batch, by its last good page.
        waiting: requests in the engine's own queue, by its last good page.
        kv_usage: share of the KV cache in use, by its last good page.
        kv_tokens: tokens that the KV cache holds.
        sample_age_seconds: time since the poll of that page was sent.
        max_inflight: S, the sequences that the engine is trusted with.
        learned: whether S was learned from the gauges.
        drift: whether the gauges contradict a configured S.
        own: sequences of this replica's tickets in the engine.
        own_requests: this replica's tickets in the engine.
        foreign: sequences of others, where the gauges count; else 0.
        in_engine: own and foreign.
        sight: by what the engine is judged.
        stale: whether its gauges have been unreadable for too long.
        hold: why nothing is admitted to it, None where nothing forbids it.
    """

    running: int | None
    waiting: int | None
    kv_usage: float | None
    kv_tokens: int | None
    sample_age_seconds: float | None
    max_inflight: int
    learned: bool
    drift: bool
    own: int
    own_requests: int
    foreign: int
    in_engine: int
    sight: Sight
    stale: bool
    hold: Hold | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedView:
    """One parked ticket; `position` counts from 1 in the order of service, holds included."""

    position: int
    model: str
    waited_seconds: float
    priority: Priority
    stream: bool
    prompt_tokens: int
    head_sent: bool
    reparked: bool
    held: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTotals:
    """Requests of one model: at engines, and parked with their bytes."""

    in_flight: int = 0
    parked: int = 0
    parked_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GateView:
    """The whole gate at one moment."""

    engines: tuple[EngineView, ...]
    parked: tuple[ParkedView, ...]
    parked_bytes: int
    models: Mapping[str, ModelTotals]
    draining: bool
