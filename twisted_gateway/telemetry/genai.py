"""OpenTelemetry's metrics of model servers, in the form that Prometheus gives their names.

https://github.com/open-telemetry/semantic-conventions-genai, docs/gen-ai/gen-ai-metrics.md (in
development there): names, buckets and attributes are those of the conventions. A dot becomes `_`,
a unit of seconds the suffix `_seconds`, a histogram of tokens has none.

What is counted are requests to a model on a path whose operation the conventions know, or that has
a name of ours (`telemetry.conventions`). Time to first token and time per output token are of
streams alone, for in another answer nobody sees a token come, and of those that ended well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from twisted_gateway.core.outcome import Outcome
from twisted_gateway.telemetry import conventions
from twisted_gateway.telemetry.series import forget
from twisted_gateway.telemetry.tracing import Exemplar

_DURATION_BUCKETS = (
    *(0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92),
)
_TTFT_BUCKETS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
)
_TPOT_BUCKETS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
_TOKEN_BUCKETS = tuple(4.0**power for power in range(14))

_MODEL = "gen_ai_request_model"
_LABELS = ("gen_ai_operation_name", "gen_ai_provider_name", _MODEL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One request to a model that has ended.

    Attributes:
        route: the bounded name of what handled it.
        model: the configured name.
        provider: see `telemetry.conventions.provider`.
        outcome: how it ended.
        duration_seconds: from its head to its outcome.
        ttft_seconds: from its head to the first content event; None where it was no stream.
        last_token_seconds: from its head to the last content event; None where there was no second.
        input_tokens: of its prompt, None where the answer does not say.
        output_tokens: of its answer, None where nobody knows.
        exemplar: the labels that name its trace; None where that is not recorded.
    """

    route: str
    model: str
    provider: str
    outcome: Outcome
    duration_seconds: float
    ttft_seconds: float | None = None
    last_token_seconds: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    exemplar: Exemplar = None


class GenAIMetrics(Collector):
    """The four histograms, which may be switched off and on again.

    Switched off they forget what they have counted: a counter that stands still would be taken for
    a service that nobody uses.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register on `registry`, switched off."""
        self._models: frozenset[str] = frozenset()
        self._families: _Families | None = None
        registry.register(self)

    def configure(self, models: Iterable[str], *, enabled: bool) -> None:
        """Count requests of exactly these models, or nothing; the series of others are removed."""
        before, self._models = self._models, frozenset(models) if enabled else frozenset()
        if not enabled:
            self._families = None
        elif self._families is None:
            self._families = _Families()
        else:
            for model in before - self._models:
                self._families.forget(model)

    def ended(self, served: Served) -> None:
        """Count a request; one whose model is not configured, or no longer, counts nothing."""
        operation = conventions.operation(served.route)
        if self._families is not None and operation is not None and served.model in self._models:
            self._families.ended(served, (operation, served.provider, served.model))

    def describe(self) -> Iterator[Metric]:
        """The names that this may yield, on or off."""
        return _Families().describe()

    def collect(self) -> Iterator[Metric]:
        """The histograms; none while switched off."""
        return iter(()) if self._families is None else self._families.collect()


class _Families:
    def __init__(self) -> None:
        def histogram(
            name: str, text: str, buckets: tuple[float, ...], *labels: str, unit: str = "seconds"
        ) -> Histogram:
            return Histogram(
                name, text, (*_LABELS, *labels), buckets=buckets, unit=unit, registry=None
            )

        self._duration = histogram(
            "gen_ai_server_request_duration",
            "From a request's head to its end, waiting included.",
            _DURATION_BUCKETS,
            "error_type",
        )
        self._ttft = histogram(
            "gen_ai_server_time_to_first_token",
            "Streams that ended well: from the head to the first token, waiting included.",
            _TTFT_BUCKETS,
        )
        self._tpot = histogram(
            "gen_ai_server_time_per_output_token",
            "Streams that ended well: mean time per token after the first.",
            _TPOT_BUCKETS,
        )
        self._tokens = histogram(
            "gen_ai_client_token_usage",
            "Tokens of prompts and answers, as the engine counts them.",
            _TOKEN_BUCKETS,
            "gen_ai_token_type",
            unit="",
        )
        self._all = (self._duration, self._ttft, self._tpot, self._tokens)

    def ended(self, served: Served, labels: tuple[str, str, str]) -> None:
        exemplar = None if served.exemplar is None else dict(served.exemplar)
        error_type = conventions.error_type(served.outcome)
        self._duration.labels(*labels, error_type).observe(served.duration_seconds, exemplar)
        for kind, count in (("input", served.input_tokens), ("output", served.output_tokens)):
            if count is not None:
                self._tokens.labels(*labels, kind).observe(count, exemplar)
        if served.ttft_seconds is None or served.outcome is not Outcome.OK:
            return
        self._ttft.labels(*labels).observe(served.ttft_seconds, exemplar)
        last, tokens = served.last_token_seconds, served.output_tokens
        if last is not None and tokens is not None and tokens > 1:
            rest_seconds = last - served.ttft_seconds
            self._tpot.labels(*labels).observe(rest_seconds / (tokens - 1), exemplar)

    def describe(self) -> Iterator[Metric]:
        for family in self._all:
            yield from family.describe()

    def collect(self) -> Iterator[Metric]:
        for family in self._all:
            yield from family.collect()

    def forget(self, model: str) -> None:
        for family in self._all:
            forget(family, _MODEL, model)
