"""Text Embeddings Inference (`te_…`). It publishes its queue alone: no batch, no KV cache.

Its exporter publishes a gauge only once it has been set, as TGI's does.
"""

from __future__ import annotations

from twisted_gateway.engines.reading import Gauges

GAUGES = Gauges(
    prefix="te_",
    waiting="te_queue_size",
    progress=("te_request_count", "te_request_success", "te_embed_count", "te_embed_success"),
)
