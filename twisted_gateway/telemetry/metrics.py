"""What the gateway counts: the metrics of the contract, on a registry that is given.

Counters and histograms are written as things happen. Gauges of queues and engines are read when
they are scraped, from a callable, so that they can't drift from what they describe; what is not
known then is absent, for a 0 or a NaN would be taken for a reading.

`model` values are those of the configuration, and "" for a request without one: any other name is
counted under "". Series of a configured model stand from the start, at 0, so that `increase()`
sees their first event; they go when a reload removes the model. Those of "" stay, of whatever
route: a reload that renames a service leaves what was counted of the old name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from twisted_gateway.core.outcome import Outcome
from twisted_gateway.core.sample import Sample
from twisted_gateway.telemetry.families import (
    EngineSeries,
    Families,
    ModelSeries,
    code_class_of,
)
from twisted_gateway.telemetry.genai import GenAIMetrics
from twisted_gateway.telemetry.history import NoRecorder, Recorder
from twisted_gateway.telemetry.inbound import InboundMetrics
from twisted_gateway.telemetry.states import StateCollector, States
from twisted_gateway.telemetry.tracing import Exemplar


class Metrics:
    """All of the gateway's metrics; also the events of the admission driver.

    Every method takes a model's name; one that is not configured (any more) counts as "". Some take
    an exemplar, the labels that name the trace of what is counted: OpenMetrics shows the last one.

    Attributes:
        states: the callable that says, at each scrape, what is so for each model; its keys are
            configured names.
        history: is told of first tokens, refusals and ends as well.
        gen_ai: OpenTelemetry's names for the same requests; off until `configure` switches it on.
        inbound: what is counted of webhooks and legacy routes.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        """Make the collectors on `registry`, which must hold none of their names."""
        self.states: States = dict
        self.history: Recorder = NoRecorder()
        self._registry = registry
        self._models: dict[str, ModelSeries] = {}
        self._engines: dict[str, EngineSeries] = {}
        self._writers: dict[str, EngineMetrics] = {}
        self._families = Families(registry)
        registry.register(StateCollector(lambda: self.states()))
        self.gen_ai = GenAIMetrics(registry)
        self.inbound = InboundMetrics(registry)
        self._models[""] = ModelSeries(self._families, "")

    def configure(
        self, models: Iterable[str], observed: Iterable[str] = (), *, gen_ai: bool = False
    ) -> None:
        """Let exactly these models have series; those of others are removed.

        A request of a removed model that is still under way counts as "" from here on.

        Args:
            models: the configured names.
            observed: those of them whose engine is polled.
            gen_ai: whether OpenTelemetry's names are there too.
        """
        wanted, polled = {"", *models}, set(observed)
        self.gen_ai.configure(wanted - {""}, enabled=gen_ai)
        for name in self._engines.keys() - polled:
            del self._engines[name]
            self._families.forget(name, of_engine=True)
        for name in self._models.keys() - wanted:
            del self._models[name]
            self._families.forget(name, of_engine=False)
        for name in sorted(wanted - self._models.keys()):
            self._models[name] = ModelSeries(self._families, name)
        for name in sorted(polled - self._engines.keys()):
            self._engines[name] = EngineSeries(self._families, name)

    def engine(self, models: Iterable[str]) -> EngineMetrics:
        """The observer's events for the engine that serves these models.

        An engine that several models share counts once for each of them. A model that is not
        among those observed counts nothing.
        """
        return EngineMetrics(self._engines, self._writers, models)

    def reloaded(self, successful: bool) -> None:
        """The configuration was read, at start or again: it is in force, or was refused."""
        self._families.reload_successful.set(successful)

    def watch_held(self, held: Callable[[], float]) -> None:
        """Ask for the bytes that the process holds, at each scrape."""
        self._families.held.set_function(held)

    def _of(self, model: str) -> ModelSeries:
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
        self.history.ended(model, outcome)

    def upstream(self, model: str, seconds: float, exemplar: Exemplar = None) -> None:
        """An engine has taken `seconds` from the sending of a request to its answer's end."""
        self._of(model).upstream.observe(seconds, _copy(exemplar))

    def answered(self, model: str, status: int) -> None:
        """The head of an engine's answer has come; a refusal that is sent again later counts."""
        code_class = code_class_of(status)
        self._of(model).responses[code_class].inc()
        self.history.answered(model, code_class)

    def first_token(self, model: str, seconds: float, exemplar: Exemplar = None) -> None:
        """The first content event of a stream came, `seconds` after the request's head."""
        self._of(model).ttft.observe(seconds, _copy(exemplar))
        self.history.first_token(model, seconds)

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

    def waited(self, model: str, outcome: str, seconds: float, exemplar: Exemplar = None) -> None:
        """A request has waited so long in all, until it was `admitted`, `refused` or `left`."""
        self._of(model).waits[outcome].observe(seconds, _copy(exemplar))

    def rejected(self, model: str, reason: str) -> None:
        """A request was refused for one of `families.REASONS`."""
        series = self._of(model)
        series.rejections[reason].inc()
        if reason == "queue_full":
            series.queue_full.inc()
        self.history.rejected(model, reason)

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
        series: Mapping[str, EngineSeries],
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

    def _live(self) -> Iterator[EngineSeries]:
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


def _copy(exemplar: Exemplar) -> dict[str, str] | None:
    return None if exemplar is None else dict(exemplar)


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
