"""Names, types, labels and meanings of the metrics."""

from __future__ import annotations

import prometheus_client
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from tests.support import TestCase
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.core.sample import Sample
from twisted_gateway.telemetry.families import CODE_CLASSES
from twisted_gateway.telemetry.metrics import Metrics, register_process
from twisted_gateway.telemetry.states import ModelState

# Section 5 of the contract: name -> type, labels.
CONTRACT = {
    "llm_ttft_seconds": ("histogram", {"model"}),
    "llm_itl_seconds": ("histogram", {"model"}),
    "llm_tokens_total": ("counter", {"model"}),
    "admission_parked_total": ("counter", {"model"}),
    "admission_parked_requests": ("gauge", {"model"}),
    "admission_parked_bytes": ("gauge", {"model"}),
    "admission_in_flight": ("gauge", {"model"}),
    "admission_wait_seconds": ("histogram", {"model", "outcome"}),
    "admission_rejected_total": ("counter", {"model", "reason"}),
    "admission_max_inflight": ("gauge", {"model"}),
    "admission_max_inflight_drift": ("gauge", {"model"}),
    "queue_full_requests_total": ("counter", {"model"}),
    "warmup_requests_delayed_total": ("counter", {"model"}),
    "engine_state_stale_total": ("counter", {"model"}),
    "engine_sample_age_seconds": ("gauge", {"model"}),
    "observer_degraded": ("gauge", {"model"}),
    "vllm_requests_running": ("gauge", {"model"}),
    "vllm_requests_waiting": ("gauge", {"model"}),
    "vllm_kv_usage_perc": ("gauge", {"model"}),
    "vllm_prefix_cache_hit_tokens_total": ("counter", {"model"}),
    "gateway_requests_total": ("counter", {"route", "model", "outcome"}),
    "gateway_upstream_seconds": ("histogram", {"model"}),
    "gateway_upstream_responses_total": ("counter", {"model", "code_class"}),
    "gateway_inflight": ("gauge", {"model"}),
    "config_last_reload_successful": ("gauge", set()),
    "gateway_held_bytes": ("gauge", set()),
    "webhook_target_requests_total": ("counter", {"service", "resource", "outcome"}),
    "legacy_route_requests_total": ("counter", {"route", "tenant"}),
}
FULL = ModelState(
    sample=Sample(running=3, waiting=2, kv_usage=0.5),
    sample_age_seconds=1.5,
    parked_requests=4,
    parked_bytes=4096,
    in_flight=3,
    max_inflight=4,
    drift=True,
)


class MetricsTestCase(TestCase):
    """Metrics on a registry of their own, with one model configured."""

    def setUp(self) -> None:
        super().setUp()
        self.registry = CollectorRegistry()
        self.metrics = Metrics(self.registry)
        self.metrics.configure(["reasoning"], observed=["reasoning"])

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)

    def text(self, accept: str | None = None) -> str:
        return self.metrics.render(accept)[0].decode()

    def models(self) -> set[str]:
        families = text_string_to_metric_families(self.text())
        found = (sample.labels.get("model") for family in families for sample in family.samples)
        return {name for name in found if name is not None}


class ContractTests(MetricsTestCase):
    """What dashboards rely on."""

    def test_every_metric_has_its_name_type_and_labels(self) -> None:
        """The exposition holds the contract's metrics, those of events and routes, no others."""
        self.metrics.inbound.configure_routes(["/old"])
        self.metrics.inbound.legacy_use("/old", "0123456789ab")
        self.metrics.inbound.configure_targets(["memory"])
        self.metrics.inbound.webhook_target("memory", "ingest", Outcome.OK)
        self.metrics.ended("/v1/chat/completions", "reasoning", Outcome.OK)
        self.metrics.states = lambda: {"reasoning": FULL}
        seen = {}
        for family in text_string_to_metric_families(self.text()):
            name = family.name + ("_total" if family.type == "counter" else "")
            labels = set().union(*(sample.labels for sample in family.samples)) - {"le"}
            seen[name] = (family.type, labels)
        self.assertEqual(seen, CONTRACT)

    def test_answers_are_classed(self) -> None:
        """Four classes there are, whatever an engine says; each stands at 0 from the start."""
        for status in (200, 204, 302, 404, 503, 999, 100):
            self.metrics.answered("reasoning", status)
        name, labels = "gateway_upstream_responses_total", {"model": "reasoning"}
        counted = {word: self.value(name, **labels, code_class=word) for word in CODE_CLASSES}
        self.assertEqual(counted, {"2xx": 2, "3xx": 1, "4xx": 1, "5xx": 3})
        self.assertEqual(self.value(name, model="", code_class="5xx"), 0)

    def test_ttft_buckets_reach_960_seconds(self) -> None:
        """A first token after a quarter of an hour still falls into a bucket with a bound."""
        self.metrics.first_token("reasoning", 959.0)
        self.assertEqual(self.value("llm_ttft_seconds_bucket", model="reasoning", le="480.0"), 0)
        self.assertEqual(self.value("llm_ttft_seconds_bucket", model="reasoning", le="960.0"), 1)

    def test_no_created_series_whatever_the_global_setting(self) -> None:
        """`_created` samples show neither in the text format nor in OpenMetrics."""
        prometheus_client.enable_created_metrics()
        self.metrics.first_token("reasoning", 1.0)
        self.assertNotIn("_created", self.text())
        self.assertNotIn("_created", self.text("application/openmetrics-text"))

    def test_openmetrics_when_asked_for(self) -> None:
        """A scraper that accepts OpenMetrics gets it, whole; others the text format."""
        body, content_type = self.metrics.render(
            "application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5"
        )
        self.assertTrue(content_type.startswith("application/openmetrics-text; version=1.0.0"))
        self.assertTrue(list(openmetrics.text_string_to_metric_families(body.decode())))
        for accept in (None, "", "*/*", "text/plain"):
            body, content_type = self.metrics.render(accept)
            self.assertEqual(content_type, "text/plain; version=0.0.4; charset=utf-8")
            self.assertNotIn(b"# EOF", body)

    def test_series_of_a_model_stand_at_zero_from_the_start(self) -> None:
        """`increase()` sees the first refusal, for the series was there at 0 before it."""
        for name, labels in (
            ("llm_tokens_total", {}),
            ("admission_parked_total", {}),
            ("admission_rejected_total", {"reason": "park_timeout"}),
            ("admission_wait_seconds_count", {"outcome": "left"}),
            ("engine_state_stale_total", {}),
            ("observer_degraded", {}),
            ("gateway_inflight", {}),
        ):
            self.assertEqual(self.value(name, model="reasoning", **labels), 0, name)

    def test_process_metrics_are_added_on_demand(self) -> None:
        """What one expects of any process stands beside the gateway's own."""
        register_process(self.registry)
        self.assertIn("process_resident_memory_bytes", self.text())
        self.assertIn("python_info", self.text())


class RequestTests(MetricsTestCase):
    """What requests count."""

    def test_a_request_counts_under_route_model_and_outcome(self) -> None:
        """One request is one count; the route's other outcomes appear at 0 with it."""
        self.metrics.ended("/v1/responses", "reasoning", Outcome.CLIENT_DISCONNECT)
        self.metrics.ended("/v1/responses", "reasoning", Outcome.INTERNAL_ERROR)
        labels = {"route": "/v1/responses", "model": "reasoning"}
        self.assertEqual(
            self.value("gateway_requests_total", **labels, outcome="client_disconnect"), 1
        )
        self.assertEqual(self.value("gateway_requests_total", **labels, outcome="ok"), 0)

    def test_an_unknown_model_counts_under_no_name(self) -> None:
        """What a client puts into `model` never becomes a label."""
        self.metrics.ended("/v1/responses", "made-up", Outcome.BAD_REQUEST)
        self.metrics.first_token("made-up", 1.0)
        self.assertEqual(self.models(), {"", "reasoning"})
        self.assertEqual(self.value("llm_ttft_seconds_count", model=""), 1)

    def test_inflight_goes_up_and_down(self) -> None:
        """A request is under way from `entered` until what that returned is called."""
        first, second = self.metrics.entered("reasoning"), self.metrics.entered("reasoning")
        self.assertEqual(self.value("gateway_inflight", model="reasoning"), 2)
        first()
        second()
        self.assertEqual(self.value("gateway_inflight", model="reasoning"), 0)

    def test_streams_are_timed_and_counted(self) -> None:
        """ITL, tokens and upstream time go where their names say."""
        self.metrics.next_token("reasoning", 0.04)
        self.metrics.tokens("reasoning", 200)
        self.metrics.tokens("reasoning", -5)
        self.metrics.upstream("reasoning", 12.0)
        self.assertEqual(self.value("llm_itl_seconds_sum", model="reasoning"), 0.04)
        self.assertEqual(self.value("llm_tokens_total", model="reasoning"), 200)
        self.assertEqual(self.value("gateway_upstream_seconds_sum", model="reasoning"), 12.0)

    def test_reloads_show(self) -> None:
        """A refused configuration shows as 0, one in force as 1."""
        self.metrics.reloaded(True)
        self.assertEqual(self.value("config_last_reload_successful"), 1)
        self.metrics.reloaded(False)
        self.assertEqual(self.value("config_last_reload_successful"), 0)

    def test_held_bytes_show(self) -> None:
        """They are asked for at each scrape."""
        held = [0]
        self.metrics.watch_held(lambda: held[0])
        for held[0] in (5, 0):
            self.assertEqual(self.value("gateway_held_bytes"), held[0])


class AdmissionTests(MetricsTestCase):
    """What admission counts."""

    def test_a_warmup_that_waits_counts_as_delayed_too(self) -> None:
        """Every class counts as parked; only warm-ups as delayed warm-ups."""
        self.metrics.parked("reasoning", "interactive")
        self.metrics.parked("reasoning", "warmup")
        self.assertEqual(self.value("admission_parked_total", model="reasoning"), 2)
        self.assertEqual(self.value("warmup_requests_delayed_total", model="reasoning"), 1)

    def test_waits_by_how_they_ended(self) -> None:
        """The time parked goes to its outcome."""
        self.metrics.waited("reasoning", "left", 30.0)
        labels = {"model": "reasoning"}
        self.assertEqual(self.value("admission_wait_seconds_sum", **labels, outcome="left"), 30)
        self.assertEqual(
            self.value("admission_wait_seconds_count", **labels, outcome="admitted"), 0
        )

    def test_a_full_queue_counts_twice_over(self) -> None:
        """`queue_full` is a reason, and a counter of its own."""
        self.metrics.rejected("reasoning", "queue_full")
        self.metrics.rejected("reasoning", "draining")
        labels = {"model": "reasoning"}
        self.assertEqual(self.value("admission_rejected_total", **labels, reason="queue_full"), 1)
        self.assertEqual(self.value("admission_rejected_total", **labels, reason="draining"), 1)
        self.assertEqual(self.value("queue_full_requests_total", **labels), 1)


class StateTests(MetricsTestCase):
    """The gauges that are read when they are scraped."""

    def test_states_are_read_at_each_scrape(self) -> None:
        """The gauges say what is so now."""
        self.metrics.states = lambda: {"reasoning": FULL}
        self.assertEqual(self.value("admission_parked_requests", model="reasoning"), 4)
        self.assertEqual(self.value("admission_max_inflight_drift", model="reasoning"), 1)
        self.assertEqual(self.value("vllm_requests_running", model="reasoning"), 3)
        self.assertEqual(self.value("vllm_kv_usage_perc", model="reasoning"), 0.5)
        self.assertEqual(self.value("engine_sample_age_seconds", model="reasoning"), 1.5)
        self.metrics.states = lambda: {"reasoning": ModelState(parked_requests=0)}
        self.assertEqual(self.value("admission_parked_requests", model="reasoning"), 0)

    def test_what_is_unknown_is_absent(self) -> None:
        """An unknown gauge reads neither 0 nor NaN."""
        sample = Sample(running=None, waiting=7)
        self.metrics.states = lambda: {"reasoning": ModelState(sample=sample)}
        self.assertEqual(self.value("vllm_requests_waiting", model="reasoning"), 7)
        for name in ("vllm_requests_running", "vllm_kv_usage_perc", "engine_sample_age_seconds"):
            self.assertIsNone(self.value(name, model="reasoning"), name)


class EngineTests(MetricsTestCase):
    """The observer's events."""

    def hits(self, model: str = "reasoning") -> float | None:
        return self.value("vllm_prefix_cache_hit_tokens_total", model=model)

    def sample(self, hits: float | None) -> Sample:
        return Sample(running=1, waiting=0, prefix_hit_tokens=hits)

    def test_prefix_hits_grow_by_what_was_seen(self) -> None:
        """What the engine counted before the gateway saw it is not the gateway's to count."""
        engine = self.metrics.engine(["reasoning"])
        engine.sampled(self.sample(10_000))
        self.assertEqual(self.hits(), 0)
        engine.sampled(self.sample(10_128))
        self.assertEqual(self.hits(), 128)

    def test_prefix_hits_survive_a_restart_of_the_engine(self) -> None:
        """After a restart the engine's counter begins at 0, and ours goes on."""
        engine = self.metrics.engine(["reasoning"])
        for hits in (100, 300, 50, 80):
            engine.sampled(self.sample(hits))
        self.assertEqual(self.hits(), 200 + 50 + 30)

    def test_prefix_hits_that_are_unknown_change_nothing(self) -> None:
        """A sample without the counter neither counts nor looks like a restart."""
        engine = self.metrics.engine(["reasoning"])
        for hits in (100, None, 150):
            engine.sampled(self.sample(hits))
        self.assertEqual(self.hits(), 50)

    def test_events_count_for_every_model_of_the_engine(self) -> None:
        """Models that share an engine all show its state."""
        self.metrics.configure(["a", "b"], observed=["a", "b"])
        engine = self.metrics.engine(["a", "b"])
        engine.went_stale()
        engine.degraded(True)
        for model in ("a", "b"):
            self.assertEqual(self.value("engine_state_stale_total", model=model), 1)
            self.assertEqual(self.value("observer_degraded", model=model), 1)
        engine.degraded(False)
        self.assertEqual(self.value("observer_degraded", model="a"), 0)

    def test_an_engine_that_is_not_observed_has_no_health(self) -> None:
        """Nobody looks, so nothing says that it is well."""
        self.metrics.configure(["reasoning"])
        self.assertIsNone(self.value("observer_degraded", model="reasoning"))
        self.assertEqual(self.value("llm_tokens_total", model="reasoning"), 0)


class ReloadTests(MetricsTestCase):
    """Models come and go."""

    def test_series_of_a_removed_model_go(self) -> None:
        """After the reload nothing bears its name, and late events don't bring it back."""
        done = self.metrics.entered("reasoning")
        engine = self.metrics.engine(["reasoning"])
        self.metrics.ended("/v1/responses", "reasoning", Outcome.OK)
        self.metrics.first_token("reasoning", 3.0)
        self.metrics.configure(["other"])
        done()
        engine.went_stale()
        self.metrics.ended("/v1/responses", "reasoning", Outcome.OK)
        self.metrics.rejected("reasoning", "draining")
        self.assertEqual(self.models(), {"", "other"})

    def test_series_of_a_kept_model_stay(self) -> None:
        """A reload resets no counter of a model that stays."""
        self.metrics.tokens("reasoning", 7)
        self.metrics.configure(["other", "reasoning"], observed=["reasoning"])
        self.metrics.tokens("reasoning", 1)
        self.assertEqual(self.value("llm_tokens_total", model="reasoning"), 8)
        self.assertEqual(self.value("observer_degraded", model="reasoning"), 0)

    def test_a_model_that_comes_back_starts_anew(self) -> None:
        """A request from before its removal does not pull its gauge below 0."""
        done = self.metrics.entered("reasoning")
        self.metrics.configure([])
        self.metrics.configure(["reasoning"])
        done()
        self.assertEqual(self.value("gateway_inflight", model="reasoning"), 0)
