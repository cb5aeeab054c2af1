"""SGLang (`sglang:…`, with `--enable-metrics`).

The label `dp_rank` numbers data-parallel ranks. Ranks of tensor and pipeline parallelism work on
the same requests; by default only the first of them publishes, with
`--enable-metrics-for-all-schedulers` all do and count once. With priority scheduling the totals
stand under `priority=""`, beside one series for each priority, which must not be added to them.
Early versions call the model's label `name`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from twisted_gateway.engines.reading import Gauges


def _rank(labels: Mapping[str, str]) -> Hashable:
    return labels.get("dp_rank", "")


def _is_total(labels: Mapping[str, str]) -> bool:
    return not labels.get("priority")


GAUGES = Gauges(
    prefix="sglang:",
    running="sglang:num_running_reqs",
    waiting="sglang:num_queue_reqs",
    usage=("sglang:token_usage",),
    usage_always=True,
    hits="sglang:cached_tokens_total",
    progress=(
        "sglang:prompt_tokens_total",
        "sglang:generation_tokens_total",
        "sglang:realtime_tokens_total",
        "sglang:num_used_tokens",
        "sglang:gen_throughput",
    ),
    size="sglang:max_total_num_tokens",
    model_labels=("model_name", "name"),
    rank=_rank,
    mirrored=True,
    keep=_is_total,
)
