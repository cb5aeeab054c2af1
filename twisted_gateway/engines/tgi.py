"""Text Generation Inference (`tgi_…`). No labels on its gauges, nothing about the KV cache.

Its exporter publishes a gauge only once it has been set: a server that has had no request yet
shows neither, and is unreadable until the first one comes.
"""

from __future__ import annotations

from twisted_gateway.engines.reading import Gauges

GAUGES = Gauges(
    prefix="tgi_",
    running="tgi_batch_current_size",
    waiting="tgi_queue_size",
    progress=(
        "tgi_request_count",
        "tgi_request_success",
        "tgi_batch_inference_count",
        "tgi_request_generated_tokens_sum",
        "tgi_batch_current_max_tokens",
    ),
)
