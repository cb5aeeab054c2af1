"""What one good poll of an engine's `/metrics` says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One reading of an engine's scheduler gauges, over all of its data-parallel ranks.

    None always means unknown, never zero.

    Attributes:
        running: sequences in the engine's batch; None for kinds that publish only a queue (TEI).
        waiting: requests in the engine's own queue.
        kv_usage: share of the KV cache in use, 0 to 1, of the fullest rank.
        kv_tokens: tokens that the KV cache holds, all ranks together.
        prefix_hit_tokens: the engine's counter of prefix-cache hits, in tokens.
        changed: whether any value read from the page differs from the page before.
        taken_at: when the poll was sent, on the observer's clock, in seconds.
    """

    running: int | None
    waiting: int
    kv_usage: float | None = None
    kv_tokens: int | None = None
    prefix_hit_tokens: float | None = None
    changed: bool = True
    taken_at: float = 0.0
