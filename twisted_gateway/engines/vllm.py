"""vLLM (`vllm:…`): gauges per data-parallel rank, which the label `engine` numbers.

Seen on 0.32: gauges change only when an engine step ends, so a fresh page is not a fresh reading.
Cached blocks that no request uses are not part of `vllm:kv_cache_usage_perc`; versions before
0.10 call that gauge `vllm:gpu_cache_usage_perc`. `vllm:cache_config_info` bears its facts as
labels and has no `model_name`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from math import nan

from twisted_gateway.engines.exposition import Series
from twisted_gateway.engines.reading import Gauges


def _rank(labels: Mapping[str, str]) -> Hashable:
    return labels.get("engine", "")


def _kv_tokens(config: Series) -> float:
    """Tokens of one rank's KV cache; NaN where the page does not say."""
    tokens = _integer(config.labels.get("kv_cache_size_tokens"))
    if tokens is not None:
        return tokens
    blocks = _integer(config.labels.get("num_gpu_blocks"))
    block_size = _integer(config.labels.get("block_size"))
    return nan if blocks is None or block_size is None else blocks * block_size


def _integer(text: str | None) -> int | None:
    """A label's value as an integer; "None", as Python prints it, is unknown."""
    if text is None or len(text) > 15 or not (text.isascii() and text.isdigit()):
        return None
    return int(text)


GAUGES = Gauges(
    prefix="vllm:",
    running="vllm:num_requests_running",
    waiting="vllm:num_requests_waiting",
    usage=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    usage_always=True,
    hits="vllm:prefix_cache_hits_total",
    progress=(
        "vllm:prompt_tokens_total",
        "vllm:generation_tokens_total",
        "vllm:num_preemptions_total",
    ),
    size="vllm:cache_config_info",
    kv_tokens=_kv_tokens,
    model_labels=("model_name",),
    rank=_rank,
)
