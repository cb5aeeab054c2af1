"""What the gateway counts: the metrics of the contract, on a registry that is given.

Counters and histograms are written as things happen. Gauges of queues and engines are read when
they are scraped, from a callable, so that they can't drift from what they describe; what is not
known then is absent, for a 0 or a NaN would be taken for a reading.

`model` values are those of the configuration, and "" for a request without one: any other name is
counted under "". Series of a configured model stand from the start, at 0, so that `increase()`
sees their first event; they go when a reload removes the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from twisted_gateway.core.outcome import Outcome
from twisted_gateway.core.sample import Sample
from twisted_gateway.telemetry.states import StateCollector, States

WAIT_OUTCOMES = ("admitted", "refused", "left")
REASONS = ("park_timeout", "queue_full", "deadline", "draining")

_TTFT_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 240, 480, 960)
_ITL_BUCKETS = (0.005, 0.01, 0.02, 0.03, 0.04, 0.06, 0.1, 0.2, 0.5, 1, 2.5, 5, 15, 60)
_WAIT_BUCKETS = (0.1, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 240, 480, 960)
_UPSTREAM_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 240, 480, 960, 1920)


class Metrics:
    """All of the gateway's metrics; also the events of the admission driver.

    Every method takes a model's name; one that is not configured (any more) counts as "".

    Attributes:
        states: the callable that says, at each scrape, what is so for each model; its keys are
            configured names.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        """Make the collectors on `registry`, which must hold none of their names."""
        self.states: States = dict
        self._registry = registry
        self._models: dict[str, _ModelSeries] = {}
        self._engines: dict[str, _EngineSeries] = {}
        self._writers: dict[str, EngineMetrics] = {}
        self._families = _Families(registry)
        registry.register(StateCollector(lambda: self.states()))
        self._models[""] = _ModelSeries(self._families, "")

    def configure(self, models: Iterable[str], observed: Iterable[str] = ()) -> None:
        """Let exactly these models have series; those of others are removed.

        A request of a removed model that is still under way counts as "" from here on.

        Args:
            models: the configured names.
            observed: those of them whose engine is polled.
        """
        wanted, polled = {"", *models}, set(observed)
        for name in self._engines.keys() - polled:
            del self._engines[name]
            self._families.forget(name, of_engine=True)
        for name in self._models.keys() - wanted:
            del self._models[name]
            self._families.forget(name, of_engine=False)
        for name in sorted(wanted - self._models.keys()):
            self._models[name] = _ModelSeries(self._families, name)
        for name in sorted(polled - self._engines.keys()):
            self._engines[name] = _EngineSeries(self._families, name)

    def engine(self, models: Iterable[str]) -> EngineMetrics:
        """The observer's events for the engine that serves these models.

        An engine that several models share counts once for each of them. A model that is not
        among those observed counts nothing.
        """
        return EngineMetrics(self._engines, self._writers, models)

    def reloaded(self, successful: bool) -> None:
        """The configuration was read, at start or again: it is in force, or was refused."""
        self._families.reload_successful.set(successful)

    def _of(self, model: str) -> _ModelSeries:
        return self._models.get(model) or self._models[""]

    # Requests.

    def entered(self, model: str) -> Callable[[], None]:
        """A request is under way; call what comes back, once, when it has ended."""
        # The very gauge that went up goes down, whatever a reload does in between.
        gauge = self._of(model).inflight
        gauge.inc()
        return gauge.dec

    def ended(self, route: str, model: str, outcome: Outcome) -> None:
        """A request has ended, in its one outcome.

        Args:
            route: from a bounded set: the pattern that handled it, never the path it asked for.
            model: the configured name, "" where none is known.
            outcome: how it ended.
        """
        self._of(model).outcome(route, outcome)

    def upstream(self, model: str, seconds: float) -> None:
        """An engine has taken `seconds` from the sending of a request to its answer's end."""
        self._of(model).upstream.observe(seconds)

    def first_token(self, model: str, seconds: float) -> None:
        """The first content event of a stream came, `seconds` after the request's head."""
        self._of(model).ttft.observe(seconds)

    def next_token(self, model: str, seconds: float) -> None:
        """A further content event came, `seconds` after the one before."""
        self._of(model).itl.observe(seconds)

    def tokens(self, model: str, count: int) -> None:
        """A stream has brought `count` tokens."""
        self._of(model).tokens.inc(max(0, count))

    # Admission.

    def parked(self, model: str, priority: str) -> None:
        """A request has to wait, for the first time; `priority` is its class."""
        series = self._of(model)
        series.parked.inc()
        if priority == "warmup":
            series.warmup_delayed.inc()

    def waited(self, model: str, outcome: str, seconds: float) -> None:
        """A wait has ended: `admitted`, `refused` or `left`."""
        self._of(model).waits[outcome].observe(seconds)

    def rejected(self, model: str, reason: str) -> None:
        """A request was refused for one of `REASONS`."""
        series = self._of(model)
        series.rejections[reason].inc()
        if reason == "queue_full":
            series.queue_full.inc()

    def render(self, accept: str | None) -> tuple[bytes, str]:
        """The exposition, and its content type.

        Args:
            accept: the `Accept` header of the scrape: OpenMetrics where it asks for it, else the
                Prometheus text format.
        """
        encode, content_type = choose_encoder(accept or "")
        return encode(_WithoutCreated(self._registry)), content_type


class EngineMetrics:
    """The events of one engine's observer, for the models that it serves.

    Of several for one model (a reload has replaced its observer) only the latest is heard, and it
    starts with nothing degraded, as its observer does.
    """

    def __init__(
        self,
        series: Mapping[str, _EngineSeries],
        writers: dict[str, EngineMetrics],
        models: Iterable[str],
    ) -> None:
        """Made by `Metrics.engine`."""
        self._series = series
        self._writers = writers
        self._models = tuple(models)
        self._hits: float | None = None
        for name in self._models:
            writers[name] = self
        self.degraded(False)

    def sampled(self, sample: Sample) -> None:
        """A good poll. The engine's counter of prefix hits is followed through its restarts."""
        hits = sample.prefix_hit_tokens
        if hits is None:
            return
        # What the engine had counted before the first sample is not "as seen". A counter that
        # fell belongs to an engine that started again at 0.
        before = hits if self._hits is None else self._hits
        grown = hits - before if hits >= before else hits
        self._hits = hits
        for one in self._live():
            one.prefix_hits.inc(grown)

    def went_stale(self) -> None:
        """The engine's gauges can be read no longer; once per transition."""
        for one in self._live():
            one.stale.inc()

    def degraded(self, degraded: bool) -> None:
        """Whether the engine's answer could not be read as its kind's gauges; on a change."""
        for one in self._live():
            one.degraded.set(degraded)

    def _live(self) -> Iterator[_EngineSeries]:
        # A model that a reload removed must not come back through its old observer's last poll.
        return (
            self._series[name]
            for name in self._models
            if name in self._series and self._writers[name] is self
        )


def register_process(registry: CollectorRegistry) -> None:
    """Add what Prometheus' users expect of any Python process: `process_*`, `python_*`."""
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)


class _Families:
    """The collectors, each under its name in the contract."""

    def __init__(self, registry: CollectorRegistry) -> None:
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
        self.inflight = Gauge(
            "gateway_inflight", "Requests under way, parked or not.", ["model"], registry=registry
        )
        self.reload_successful = Gauge(
            "config_last_reload_successful",
            "Whether the configuration as last read is in force.",
            registry=registry,
        )
        self._of_engines = (self.stale, self.degraded, self.prefix_hits)
        self._of_models = (
            *(self.ttft, self.itl, self.tokens, self.parked, self.wait, self.rejected),
            *(self.queue_full, self.warmup_delayed, self.requests, self.upstream, self.inflight),
        )

    def forget(self, model: str, *, of_engine: bool) -> None:
        """Remove the series of `model` that its requests make, or those of its engine."""
        for family in self._of_engines if of_engine else self._of_models:
            _forget(family, model)


class _ModelSeries:
    """The series of one model, looked up once."""

    def __init__(self, families: _Families, name: str) -> None:
        self.ttft = families.ttft.labels(name)
        self.itl = families.itl.labels(name)
        self.tokens = families.tokens.labels(name)
        self.parked = families.parked.labels(name)
        self.queue_full = families.queue_full.labels(name)
        self.warmup_delayed = families.warmup_delayed.labels(name)
        self.upstream = families.upstream.labels(name)
        self.inflight = families.inflight.labels(name)
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


class _EngineSeries:
    """The series that only a model whose engine is observed has."""

    def __init__(self, families: _Families, name: str) -> None:
        self.stale = families.stale.labels(name)
        self.degraded = families.degraded.labels(name)
        self.prefix_hits = families.prefix_hits.labels(name)


class _WithoutCreated(Collector):
    """A registry less its `_created` samples, which the library's global setting may bring."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        """Hand on every family."""
        for family in self._registry.collect():
            kept = Metric(family.name, family.documentation, family.type, family.unit)
            kept.samples = [one for one in family.samples if not one.name.endswith("_created")]
            yield kept


def _forget(family: Counter | Gauge | Histogram, model: str) -> None:
    # `remove` wants every label; `remove_by_labels` is younger than the oldest release supported.
    samples = [sample.labels for metric in family.collect() for sample in metric.samples]
    mine = [labels for labels in samples if labels["model"] == model]
    for values in {tuple(v for k, v in labels.items() if k != "le") for labels in mine}:
        family.remove(*values)
