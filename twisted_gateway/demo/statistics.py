"""What a simulated engine publishes at /metrics: vLLM 0.32's own families, names and buckets.

The page is made by prometheus_client, as vLLM's is, so that its form is the same to the letter:
`_created` samples typed as gauges, labels in order of name. Values change only when a step ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from twisted_gateway.demo.scheduler import Gauges, Job, Profile, Step

CONTENT_TYPE = b"text/plain; version=1.0.0; charset=utf-8"
"""The content type that vLLM 0.32 gives its page."""

_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
_STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_FIRST_SECONDS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_GAP_SECONDS = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0),
)
_REQUEST_SECONDS = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0),
    *(240.0, 480.0, 960.0, 1920.0, 7680.0),
)

_GAUGES: Mapping[str, str] = MappingProxyType(
    {
        "num_requests_running": "Number of requests in model execution batches.",
        "num_requests_waiting": "Number of requests waiting to be processed.",
        "kv_cache_usage_perc": "KV-cache usage. 1 means 100 percent usage.",
    }
)
_COUNTERS: Mapping[str, str] = MappingProxyType(
    {
        "prefix_cache_queries": "Prefix cache queries, in terms of number of queried tokens.",
        "prefix_cache_hits": "Prefix cache hits, in terms of number of cached tokens.",
        "num_preemptions": "Cumulative number of preemption from the engine.",
        "prompt_tokens": "Number of prefill tokens processed.",
        "prompt_tokens_cached": "Number of cached prompt tokens (local + external).",
        "generation_tokens": "Number of generation tokens processed.",
    }
)
_HISTOGRAMS: Mapping[str, tuple[str, Sequence[float]]] = MappingProxyType(
    {
        "request_prompt_tokens": ("Number of prefill tokens processed.", _TOKENS),
        "request_generation_tokens": ("Number of generation tokens processed.", _TOKENS),
        "iteration_tokens_total": (
            "Histogram of number of tokens per engine_step.",
            _STEP_TOKENS,
        ),
        "request_params_max_tokens": (
            "Histogram of the max_tokens request parameter.",
            _TOKENS,
        ),
        "time_to_first_token_seconds": (
            "Histogram of time to first token in seconds.",
            _FIRST_SECONDS,
        ),
        "inter_token_latency_seconds": (
            "Histogram of inter-token latency in seconds.",
            _GAP_SECONDS,
        ),
        "request_time_per_output_token_seconds": (
            "Histogram of time_per_output_token_seconds per request.",
            _GAP_SECONDS,
        ),
        "e2e_request_latency_seconds": (
            "Histogram of e2e request latency in seconds.",
            _REQUEST_SECONDS,
        ),
        "request_queue_time_seconds": (
            "Histogram of time spent in WAITING phase for request.",
            _REQUEST_SECONDS,
        ),
        "request_inference_time_seconds": (
            "Histogram of time spent in RUNNING phase for request.",
            _REQUEST_SECONDS,
        ),
        "request_prefill_time_seconds": (
            "Histogram of time spent in PREFILL phase for request.",
            _REQUEST_SECONDS,
        ),
        "request_decode_time_seconds": (
            "Histogram of time spent in DECODE phase for request.",
            _REQUEST_SECONDS,
        ),
    }
)
_REASONS = ("stop", "length", "abort", "error", "repetition")
_WAITING_BY_REASON = (
    "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling "
    "capacity; 'deferred' = deferred by transient constraints (LoRA budget, KV transfer, blocked "
    "status). Sum of all reasons equals vllm:num_requests_waiting."
)


class Statistics:
    """The series of one engine since it started. A restarted engine has new ones."""

    def __init__(self, model_name: str, profile: Profile) -> None:
        """Start all series at zero, on a registry of their own."""
        self._labels = {"model_name": model_name, "engine": "0"}
        self._registry = CollectorRegistry()
        self._gauges = {
            name: Gauge(f"vllm:{name}", text, self._labels, registry=self._registry).labels(
                **self._labels
            )
            for name, text in _GAUGES.items()
        }
        by_reason = Gauge(
            "vllm:num_requests_waiting_by_reason",
            _WAITING_BY_REASON,
            [*self._labels, "reason"],
            registry=self._registry,
        )
        self._gauges["capacity"] = by_reason.labels(**self._labels, reason="capacity")
        by_reason.labels(**self._labels, reason="deferred").set(0)
        self._counters = {
            name: Counter(f"vllm:{name}", text, self._labels, registry=self._registry).labels(
                **self._labels
            )
            for name, text in _COUNTERS.items()
        }
        success = Counter(
            "vllm:request_success",
            "Count of successfully processed requests.",
            [*self._labels, "finished_reason"],
            registry=self._registry,
        )
        for reason in _REASONS:
            self._counters[reason] = success.labels(**self._labels, finished_reason=reason)
        self._histograms = {
            name: Histogram(
                f"vllm:{name}", text, self._labels, buckets=buckets, registry=self._registry
            ).labels(**self._labels)
            for name, (text, buckets) in _HISTOGRAMS.items()
        }
        self._describe_cache(profile)

    def page(self) -> bytes:
        """The exposition text; it costs a few milliseconds."""
        return generate_latest(self._registry)

    def show(self, gauges: Gauges) -> None:
        """Publish these gauges."""
        self._gauges["num_requests_running"].set(gauges.running)
        self._gauges["num_requests_waiting"].set(gauges.waiting)
        self._gauges["capacity"].set(gauges.waiting)
        self._gauges["kv_cache_usage_perc"].set(gauges.kv_usage)

    def record(self, step: Step) -> None:
        """Take in what one step did."""
        self.show(step.gauges)
        prompts = sum(job.prompt_tokens for job in step.first)
        cached = sum(job.cached_tokens for job in step.first)
        for name, value in (
            ("prefix_cache_queries", step.prefix_queries),
            ("prefix_cache_hits", step.prefix_hits),
            ("num_preemptions", step.preemptions),
            ("prompt_tokens", prompts),
            ("prompt_tokens_cached", cached),
            ("generation_tokens", len(step.producers)),
        ):
            if value:
                self._counters[name].inc(value)
        observe = self._observe
        if step.producers:
            # Steps that only prefill are not counted: vLLM makes no iteration of them.
            observe("iteration_tokens_total", prompts - cached + len(step.producers))
        for job in step.first:
            observe("time_to_first_token_seconds", step.now - job.arrived_at)
        for gap in step.gaps_seconds:
            observe("inter_token_latency_seconds", gap)
        for job in step.finished:
            self._finish(job, step.now)

    def _finish(self, job: Job, now: float) -> None:
        scheduled = job.arrived_at if job.scheduled_at is None else job.scheduled_at
        first = now if job.first_token_at is None else job.first_token_at
        observe = self._observe
        self._counters[job.reason].inc()
        observe("request_prompt_tokens", job.prompt_tokens)
        observe("request_generation_tokens", job.made)
        observe("request_params_max_tokens", job.max_tokens)
        observe("e2e_request_latency_seconds", now - job.arrived_at)
        observe("request_queue_time_seconds", scheduled - job.arrived_at)
        observe("request_inference_time_seconds", now - scheduled)
        observe("request_prefill_time_seconds", first - scheduled)
        observe("request_decode_time_seconds", now - first)
        if job.made > 1:
            observe("request_time_per_output_token_seconds", (now - first) / (job.made - 1))

    def _observe(self, name: str, value: float) -> None:
        self._histograms[name].observe(value)

    def _describe_cache(self, profile: Profile) -> None:
        facts = {
            "block_size": str(profile.block_tokens),
            "cache_dtype": "auto",
            "enable_prefix_caching": str(profile.prefix_caching),
            "gpu_memory_utilization": "0.92",
            "is_attention_free": "False",
            "kv_cache_max_concurrency": str(profile.kv_tokens / profile.max_model_tokens),
            "kv_cache_size_tokens": str(profile.kv_tokens),
            "num_cpu_blocks": "None",
            "num_gpu_blocks": str(profile.num_blocks),
            "num_gpu_blocks_override": str(profile.num_blocks),
            "prefix_caching_hash_algo": "sha256",
            "sliding_window": "None",
            "engine": "0",
        }
        Gauge(
            "vllm:cache_config_info",
            "Information of the LLMEngine CacheConfig",
            facts,
            registry=self._registry,
        ).labels(**facts).set(1)
