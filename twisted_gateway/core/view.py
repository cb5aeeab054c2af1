"""What the gate knows, as frozen facts for the status page, the metrics and refusals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from twisted_gateway.core.ticket import Priority


class Sight(Enum):
    """By what the gate judges an engine just now; the table is in `core.ledger`."""

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
        peers: sequences of other replicas, as far as they tell.
        foreign: sequences of others than these, where the gauges count; else 0.
        long_prefill: whether a long prefill keeps others out, or other long ones.
        in_engine: own, peers' and foreign.
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
    peers: int
    foreign: int
    long_prefill: bool
    in_engine: int
    sight: Sight
    stale: bool
    hold: Hold | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedView:
    """One parked ticket.

    Attributes:
        position: in the order of service as it stands, from 1, holds included.
        cost_seconds: engine time that it costs.
        long: whether its prefill is a long one.
        eta_seconds: until it is sent, by estimate; None where nothing is known to tell it by.
    """

    position: int
    model: str
    waited_seconds: float
    priority: Priority
    stream: bool
    prompt_tokens: int
    head_sent: bool
    reparked: bool
    held: bool
    tenant: str
    cost_seconds: float
    long: bool
    eta_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantView:
    """One tenant: engine time that it has used lately, and what it has parked."""

    used_seconds: float
    parked: int
    parked_work_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTotals:
    """Requests of one model: at engines, and parked with their bytes."""

    in_flight: int = 0
    parked: int = 0
    parked_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSummary:
    """What the metrics show of a gate."""

    engines: tuple[EngineView, ...]
    models: Mapping[str, ModelTotals]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateView:
    """The whole gate at one moment.

    Attributes:
        parked_work_seconds: engine time that the parked will cost.
        tenants: by their opaque names.
        rates_learned: whether anybody may be refused or held back by the two rates.
        replicas: how many gateways count as being in front of the engines.
        heard_seconds: how long ago each other one was last heard, by its address.
    """

    engines: tuple[EngineView, ...]
    parked: tuple[ParkedView, ...]
    parked_bytes: int
    parked_work_seconds: float
    models: Mapping[str, ModelTotals]
    tenants: Mapping[str, TenantView]
    prefill_tokens_per_second: float
    decode_tokens_per_second: float
    rates_learned: bool
    replicas: int
    heard_seconds: Mapping[str, float]
    draining: bool
