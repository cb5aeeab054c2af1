"""OpenTelemetry's metrics of model servers, as Prometheus names them."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from tests.support import TestCase
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.telemetry.genai import Served
from twisted_gateway.telemetry.metrics import Metrics

EXEMPLAR = {"trace_id": "ab" * 16, "span_id": "cd" * 8}
SERVED = Served(
    route="/v1/chat/completions",
    model="reasoning",
    provider="vllm",
    outcome=Outcome.OK,
    duration_seconds=15.0,
    ttft_seconds=2.0,
    last_token_seconds=12.0,
    input_tokens=100,
    output_tokens=101,
    exemplar=EXEMPLAR,
)
LABELS = {
    "gen_ai_operation_name": "chat",
    "gen_ai_provider_name": "vllm",
    "gen_ai_request_model": "reasoning",
}
# The conventions: name -> labels beside those that all have, boundaries.
CONVENTIONS = {
    "gen_ai_server_request_duration_seconds": (
        {"error_type"},
        [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92],
    ),
    "gen_ai_server_time_to_first_token_seconds": (
        set(),
        [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10],
    ),
    "gen_ai_server_time_per_output_token_seconds": (
        set(),
        [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5],
    ),
    "gen_ai_client_token_usage": (
        {"gen_ai_token_type"},
        [1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864],
    ),
}


class GenAITests(TestCase):
    """Names, labels, boundaries, meaning."""

    def setUp(self) -> None:
        super().setUp()
        self.registry = CollectorRegistry()
        self.metrics = Metrics(self.registry)
        self.metrics.configure(["reasoning", "embeddings"], gen_ai=True)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"gen_ai_{name}", {**LABELS, **labels})

    def families(self) -> set[str]:
        page = self.metrics.render(None)[0].decode()
        found = text_string_to_metric_families(page)
        return {one.name for one in found if one.name.startswith("gen_ai")}

    def test_they_are_those_of_the_conventions(self) -> None:
        """Each name has its labels and its boundaries, and there is no other name."""
        self.metrics.gen_ai.ended(SERVED)
        seen = {}
        for family in text_string_to_metric_families(self.metrics.render(None)[0].decode()):
            if family.name.startswith("gen_ai"):
                labels = set().union(*(sample.labels for sample in family.samples))
                bounds = {float(one.labels["le"]) for one in family.samples if "le" in one.labels}
                own = labels - set(LABELS) - {"le"}
                seen[family.name] = (own, sorted(bounds - {float("inf")}))
        self.assertEqual(seen, CONVENTIONS)

    def test_a_stream(self) -> None:
        """Duration, first token, time per token after it, tokens of both kinds."""
        self.metrics.gen_ai.ended(SERVED)
        self.assertEqual(self.value("server_request_duration_seconds_sum", error_type=""), 15)
        self.assertEqual(self.value("server_time_to_first_token_seconds_sum"), 2)
        self.assertEqual(self.value("server_time_per_output_token_seconds_sum"), 0.1)
        for kind, count in (("input", 100), ("output", 101)):
            self.assertEqual(self.value("client_token_usage_sum", gen_ai_token_type=kind), count)

    def test_one_that_ended_badly(self) -> None:
        """Its duration counts under its outcome; of its tokens nothing is said of their pace."""
        self.metrics.gen_ai.ended(replace(SERVED, outcome=Outcome.UPSTREAM_TIMEOUT))
        self.assertEqual(
            self.value("server_request_duration_seconds_count", error_type="upstream_timeout"), 1
        )
        self.assertIsNone(self.value("server_time_to_first_token_seconds_count"))
        self.assertIsNone(self.value("server_time_per_output_token_seconds_count"))

    def test_what_is_not_known_is_not_counted(self) -> None:
        """An answer that is no stream has no first token; of one token there is no pace."""
        self.metrics.gen_ai.ended(
            replace(SERVED, ttft_seconds=None, input_tokens=None, output_tokens=None)
        )
        self.metrics.gen_ai.ended(replace(SERVED, output_tokens=1))
        self.metrics.gen_ai.ended(replace(SERVED, last_token_seconds=None))
        self.assertEqual(self.value("server_time_to_first_token_seconds_count"), 2)
        self.assertIsNone(self.value("server_time_per_output_token_seconds_count"))
        self.assertEqual(self.value("client_token_usage_count", gen_ai_token_type="input"), 2)

    def test_labels_are_bounded(self) -> None:
        """No model that is not configured, and no path without an operation, makes a series."""
        for served in (
            replace(SERVED, model="made-up"),
            replace(SERVED, model=""),
            replace(SERVED, route="/v1/*"),
            replace(SERVED, route="/v1/tokenize"),
        ):
            self.metrics.gen_ai.ended(served)
        page = self.metrics.render(None)[0].decode()
        self.assertNotIn("gen_ai_server_request_duration_seconds_count", page)

    def test_off(self) -> None:
        """Switched off there is no such name; on again it counts from nothing."""
        self.metrics.gen_ai.ended(SERVED)
        self.metrics.configure(["reasoning"], gen_ai=False)
        self.metrics.gen_ai.ended(SERVED)
        self.assertEqual(self.families(), set())
        self.metrics.configure(["reasoning"], gen_ai=True)
        self.assertEqual(self.families(), set(CONVENTIONS))
        self.assertIsNone(self.value("server_request_duration_seconds_count", error_type=""))

    def test_series_of_a_removed_model_go(self) -> None:
        """Those of the others stay."""
        self.metrics.gen_ai.ended(SERVED)
        other = replace(SERVED, model="embeddings", route="/v1/embeddings", ttft_seconds=None)
        self.metrics.gen_ai.ended(other)
        self.metrics.configure(["embeddings"], gen_ai=True)
        page = self.metrics.render(None)[0].decode()
        self.assertNotIn('"reasoning"', page)
        self.assertIn(
            'gen_ai_server_request_duration_seconds_count{error_type="",'
            'gen_ai_operation_name="embeddings"',
            page,
        )


class ExemplarTests(TestCase):
    """Traces by which counts can be explained."""

    def exemplars(self, accept: str) -> dict[str, dict[str, str]]:
        """Which histograms bear which exemplar."""
        metrics = Metrics(CollectorRegistry())
        metrics.configure(["reasoning"], gen_ai=True)
        metrics.first_token("reasoning", 1.0, EXEMPLAR)
        metrics.upstream("reasoning", 1.0, EXEMPLAR)
        metrics.waited("reasoning", "admitted", 1.0, EXEMPLAR)
        metrics.next_token("reasoning", 1.0)
        metrics.gen_ai.ended(SERVED)
        body = metrics.render(accept)[0].decode()
        if "# EOF" not in body:
            self.assertNotIn("trace_id", body)
            return {}
        return {
            family.name: sample.exemplar.labels
            for family in openmetrics.text_string_to_metric_families(body)
            for sample in family.samples
            if sample.exemplar is not None
        }

    def test_openmetrics_bears_them(self) -> None:
        """Each histogram of requests names the trace of its last one."""
        found = self.exemplars("application/openmetrics-text")
        self.assertEqual(
            set(found),
            {
                "llm_ttft_seconds",
                "gateway_upstream_seconds",
                "admission_wait_seconds",
                *CONVENTIONS,
            },
        )
        for labels in found.values():
            self.assertEqual(labels, EXEMPLAR)

    def test_the_text_format_has_none(self) -> None:
        """Prometheus' own form has no place for them."""
        self.assertEqual(self.exemplars("text/plain"), {})
