"""The gauges that are read when they are scraped: what is so for each model, as a value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from twisted_gateway.core.sample import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelState:
    """What is so for one model now; None means unknown, or that it does not apply.

    Attributes:
        sample: the engine's gauges as last read; None also while they are stale.
        sample_age_seconds: since the last good poll was sent, stale or not.
        parked_requests: how many of its requests wait.
        parked_bytes: the bodies that they hold.
        in_flight: how many hold a place in an engine.
        max_inflight: S in force.
        drift: whether the gauges contradict it.
    """

    sample: Sample | None = None
    sample_age_seconds: float | None = None
    parked_requests: int | None = None
    parked_bytes: int | None = None
    in_flight: int | None = None
    max_inflight: int | None = None
    drift: bool | None = None


States = Callable[[], Mapping[str, ModelState]]

# name, help, what to read of a ModelState
_GAUGES: tuple[tuple[str, str, Callable[[ModelState], float | None]], ...] = (
    ("admission_parked_requests", "Requests parked now.", lambda s: s.parked_requests),
    ("admission_parked_bytes", "Bytes of the bodies parked now.", lambda s: s.parked_bytes),
    ("admission_in_flight", "Requests that hold a place in an engine now.", lambda s: s.in_flight),
    ("admission_max_inflight", "Sequences that the engine is taken for.", lambda s: s.max_inflight),
    (
        "admission_max_inflight_drift",
        "1 while the engine's gauges contradict admission_max_inflight.",
        lambda s: s.drift,
    ),
    (
        "engine_sample_age_seconds",
        "Seconds since the last good poll of the engine was sent.",
        lambda s: s.sample_age_seconds,
    ),
    (
        "vllm_requests_running",
        "Requests running in the engine, as the gateway reads it.",
        lambda s: s.sample.running if s.sample else None,
    ),
    (
        "vllm_requests_waiting",
        "Requests waiting in the engine, as the gateway reads it.",
        lambda s: s.sample.waiting if s.sample else None,
    ),
    (
        "vllm_kv_usage_perc",
        "Share of the engine's KV cache in use (0 to 1), as the gateway reads it.",
        lambda s: s.sample.kv_usage if s.sample else None,
    ),
)


class StateCollector(Collector):
    """The gauges that are read when they are scraped."""

    def __init__(self, states: States) -> None:
        """Ask `states` at each scrape; its keys are configured names."""
        self._states = states

    def collect(self) -> Iterator[Metric]:
        """Read every model's state once, and say what is known of it."""
        states = self._states()
        for family, (_, _, read) in zip(self.describe(), _GAUGES, strict=True):
            for model, state in sorted(states.items()):
                value = read(state)
                if value is not None:
                    family.add_metric([model], float(value))
            yield family

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """The families without samples, so that registering reads no state."""
        for name, text, _ in _GAUGES:
            yield GaugeMetricFamily(name, text, labels=["model"])
