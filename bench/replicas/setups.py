"""What is compared: so many gateways, and the configuration of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.simulate.policies import DECODE_TOKENS_PER_SECOND, POLICIES, PREFILL_TOKENS_PER_SECOND
from twisted_gateway.core.policy import Policy

MODEL = "reasoning"
SEQUENCES = 4
TOKEN = "of-the-replicas-bench-only"
SCALED = {
    "maxParkSeconds": "max_park_seconds",
    "patienceSeconds": "patience_seconds",
    "keepAliveSeconds": "keep_alive_seconds",
    "pollSeconds": "poll_seconds",
    "holdSeconds": "hold_seconds",
    "retryAfterSeconds": "retry_after_seconds",
    "longPrefillSeconds": "long_prefill_seconds",
    "parkedWorkSeconds": "parked_work_seconds",
}
"""The settings that are times, with the fields of `Policy` that have their defaults. One is left
as it is, `pollTimeoutSeconds`: it is for slow machines, and this one is as slow as it is."""
UNBOUNDED_SECONDS = 604_800
SEMAPHORE_QUEUE = 8
SEMAPHORE_PARK_SECONDS = 120.0

Admission = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run's processes are.

    Attributes:
        engine: the engine's base URL.
        peers: the ports of the replicas' peer listeners, one for each gateway.
        speed: how many times as fast time runs.
    """

    engine: str
    peers: Sequence[int]
    speed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A way to put gateways before the engine.

    Attributes:
        name: as that of the policy in `bench.simulate.policies` that is the same.
        gateways: how many processes.
    """

    name: str
    gateways: int = 3

    @property
    def words(self) -> str:
        """What it is, in a table's row."""
        return POLICIES[self.name].words.replace(": N", f": {self.gateways}")

    def configuration(self, place: Place, number: int) -> dict[str, Any]:
        """The configuration of one gateway, by its number."""
        engine, admission = self._gate(place)
        config: dict[str, Any] = {
            "tenants": {"trustedProxies": ["127.0.0.1"]},
            "models": {MODEL: {"upstream": place.engine, "engine": engine, "admission": admission}},
        }
        if self.name == "peers":
            listen = f"tcp:{place.peers[number]}:interface=127.0.0.1"
            config["peers"] = {"listen": listen, "token": TOKEN}
        return config

    def _gate(self, place: Place) -> tuple[str, Admission]:
        if self.name == "none":
            return "none", {"keepAliveSeconds": _scaled(place.speed)["keepAliveSeconds"]}
        if self.name == "semaphore":
            return "ollama", semaphore(place.speed)
        replicas = {
            "alone": 1,
            "fifo": self.gateways,
            "static": self.gateways,
            "peers": [f"127.0.0.1:{port}" for port in place.peers],
        }
        ordering = "fifo" if self.name == "fifo" else "cost"
        return "vllm", {
            **_scaled(place.speed),
            "maxInflight": SEQUENCES,
            "ordering": ordering,
            "prefillTokensPerSecond": PREFILL_TOKENS_PER_SECOND * place.speed,
            "decodeTokensPerSecond": DECODE_TOKENS_PER_SECOND * place.speed,
            "replicas": replicas[self.name],
        }


def semaphore(speed: float) -> Admission:
    """The gate made into a semaphore: of a kind of engine whose gauges nobody reads, by arrival,
    with nothing long, nothing refused for its deadline or its cost, and the predecessor's bounds.
    """
    scaled = _scaled(speed)
    return {
        "maxInflight": SEQUENCES,
        "ordering": "fifo",
        "maxQueueDepth": SEMAPHORE_QUEUE,
        "maxParkSeconds": SEMAPHORE_PARK_SECONDS / speed,
        "keepAliveSeconds": scaled["keepAliveSeconds"],
        "retryAfterSeconds": scaled["retryAfterSeconds"],
        "longPrefillSeconds": UNBOUNDED_SECONDS,
        "patienceSeconds": UNBOUNDED_SECONDS,
        "parkedWorkSeconds": UNBOUNDED_SECONDS,
    }


def _scaled(speed: float) -> Admission:
    """The default times as they are where time runs so many times as fast."""
    policy = Policy()
    return {key: getattr(policy, field) / speed for key, field in SCALED.items()}


SETUPS: Mapping[str, Setup] = {
    setup.name: setup
    for setup in (
        Setup(name="none"),
        Setup(name="semaphore"),
        Setup(name="fifo"),
        Setup(name="alone", gateways=1),
        Setup(name="static"),
        Setup(name="peers"),
    )
}
"""By name, in the order in which they are run and shown."""
