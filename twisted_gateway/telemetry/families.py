"""The collectors of the contract's metrics, and the series of one model, looked up once."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from twisted_gateway.core.decision import Reason
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.telemetry.series import forget

CODE_CLASSES = ("2xx", "3xx", "4xx", "5xx")
WAIT_OUTCOMES = ("admitted", "refused", "left")
REASONS = tuple(reason.value for reason in Reason)

_TTFT_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 240, 480, 960)
_ITL_BUCKETS = (0.005, 0.01, 0.02, 0.03, 0.04, 0.06, 0.1, 0.2, 0.5, 1, 2.5, 5, 15, 60)
_WAIT_BUCKETS = (0.1, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 240, 480, 960)
_UPSTREAM_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 240, 480, 960, 1920)


def code_class_of(status: int) -> str:
    """One of `CODE_CLASSES`; what is none of them (RFC 9110, section 15) counts as `5xx`."""
    code_class = f"{status // 100}xx"
    return code_class if code_class in CODE_CLASSES else "5xx"


class Families:
    """The collectors, each under its name in the contract."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Make them on `registry`."""

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(name, text, labels, registry=registry, buckets=buckets)

        self.ttft = histogram(
            "llm_ttft_seconds",
            "Streams: from the request's head to the first event that bears content.",
            _TTFT_BUCKETS,
            "model",
        )
        self.itl = histogram(
            "llm_itl_seconds", "Streams: between consecutive content events.", _ITL_BUCKETS, "model"
        )
        self.tokens = counter(
            "llm_tokens_total",
            "Streams: completion tokens by the engine's usage, else content events.",
            "model",
        )
        self.parked = counter("admission_parked_total", "Requests that had to wait.", "model")
        self.wait = histogram(
            "admission_wait_seconds",
            "Time parked, by how it ended.",
            _WAIT_BUCKETS,
            "model",
            "outcome",
        )
        self.rejected = counter(
            "admission_rejected_total", "Requests refused, by reason.", "model", "reason"
        )
        self.queue_full = counter(
            "queue_full_requests_total", "Requests refused because the queue was full.", "model"
        )
        self.warmup_delayed = counter(
            "warmup_requests_delayed_total", "Warm-up requests that had to wait.", "model"
        )
        self.stale = counter(
            "engine_state_stale_total",
            "Times that the engine's gauges could be read no longer.",
            "model",
        )
        self.degraded = Gauge(
            "observer_degraded",
            "1 while the engine's answer cannot be read as its kind's gauges.",
            ["model"],
            registry=registry,
        )
        self.prefix_hits = counter(
            "vllm_prefix_cache_hit_tokens_total",
            "Tokens that the engine found in its prefix cache, through its restarts.",
            "model",
        )
        self.requests = counter(
            "gateway_requests_total",
            "Requests, by the one outcome in which each ends.",
            "route",
            "model",
            "outcome",
        )
        self.upstream = histogram(
            "gateway_upstream_seconds",
            "From the sending of a request to the end of the engine's answer.",
            _UPSTREAM_BUCKETS,
            "model",
        )
        self.responses = counter(
            "gateway_upstream_responses_total",
            "Answers of engines by the class of their status, those sent again later included.",
            "model",
            "code_class",
        )
        self.inflight = Gauge(
            "gateway_inflight", "Requests under way, parked or not.", ["model"], registry=registry
        )
        self.reload_successful = Gauge(
            "config_last_reload_successful",
            "Whether the configuration as last read is in force.",
            registry=registry,
        )
        self.held = Gauge(
            "gateway_held_bytes",
            "Bytes of bodies and documents held now, of maxHeldBytes.",
            registry=registry,
        )
        self._of_engines = (self.stale, self.degraded, self.prefix_hits)
        self._of_models = (
            *(self.ttft, self.itl, self.tokens, self.parked, self.wait, self.rejected),
            *(self.queue_full, self.warmup_delayed, self.requests, self.upstream, self.inflight),
            self.responses,
        )

    def forget(self, model: str, *, of_engine: bool) -> None:
        """Remove the series of `model` that its requests make, or those of its engine."""
        for family in self._of_engines if of_engine else self._of_models:
            forget(family, "model", model)


class ModelSeries:
    """The series of one model, looked up once."""

    def __init__(self, families: Families, name: str) -> None:
        """Make them, at 0."""
        self.ttft = families.ttft.labels(name)
        self.itl = families.itl.labels(name)
        self.tokens = families.tokens.labels(name)
        self.parked = families.parked.labels(name)
        self.queue_full = families.queue_full.labels(name)
        self.warmup_delayed = families.warmup_delayed.labels(name)
        self.upstream = families.upstream.labels(name)
        self.inflight = families.inflight.labels(name)
        self.responses = {word: families.responses.labels(name, word) for word in CODE_CLASSES}
        self.waits = {word: families.wait.labels(name, word) for word in WAIT_OUTCOMES}
        self.rejections = {reason: families.rejected.labels(name, reason) for reason in REASONS}
        self._name = name
        self._requests = families.requests
        self._outcomes: dict[str, dict[Outcome, Counter]] = {}

    def outcome(self, route: str, outcome: Outcome) -> None:
        """Count one request; the first of a route brings all its outcomes, at 0."""
        if route not in self._outcomes:
            self._outcomes[route] = {
                each: self._requests.labels(route, self._name, each.value) for each in Outcome
            }
        self._outcomes[route][outcome].inc()


class EngineSeries:
    """The series that only a model whose engine is observed has."""

    def __init__(self, families: Families, name: str) -> None:
        """Make them, at 0."""
        self.stale = families.stale.labels(name)
        self.degraded = families.degraded.labels(name)
        self.prefix_hits = families.prefix_hits.labels(name)
