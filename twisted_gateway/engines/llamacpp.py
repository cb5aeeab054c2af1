"""llama.cpp's server (`llamacpp:…`, with `--metrics`, else it answers 501). It has no labels.

`llamacpp:kv_cache_usage_ratio` was dropped in 2025, so a page without it lacks nothing.
"""

from __future__ import annotations

from twisted_gateway.engines.reading import Gauges

GAUGES = Gauges(
    prefix="llamacpp:",
    running="llamacpp:requests_processing",
    waiting="llamacpp:requests_deferred",
    usage=("llamacpp:kv_cache_usage_ratio",),
    hits="llamacpp:prompt_tokens_cached_total",
    progress=(
        "llamacpp:prompt_tokens_total",
        "llamacpp:tokens_predicted_total",
        "llamacpp:n_decode_total",
    ),
)
