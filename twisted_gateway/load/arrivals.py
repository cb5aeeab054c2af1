"""What a workload is made of: who asks for what, and when."""

from __future__ import annotations

from dataclasses import dataclass

MAX_ARRIVALS = 200_000
"""The most clients that one workload may come to."""
MAX_SECONDS = 604_800
"""The longest that anything in a workload may take: a week."""
MAX_TOKENS = 4_000_000
"""The longest prompt, and the longest answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One client that wants one answer.

    Attributes:
        at: when it first asks, in seconds from the start.
        tenant: who it counts as.
        prompt_tokens: the prompt's length, the shared prefix included.
        answer_tokens: how many tokens the engine generates.
        max_tokens: what the request says of it, at least that many.
        group: whose prefix it shares; None for a prompt of its own.
        prefix_tokens: how long the shared prefix is.
        stream: whether it asks for a stream.
        direct: whether it goes to the engine, past the gateway.
        tries: how often it asks at most, after refusals and broken connections.
        patience_seconds: after which it gives up, counted from `at`, all tries together.
        priority: the `X-Priority` that it names; None for none.
        kind: what it stands for in the report, such as `long`, `short`, `chat`, `agent`.
    """

    at: float
    tenant: str
    prompt_tokens: int
    answer_tokens: int
    max_tokens: int
    group: str | None = None
    prefix_tokens: int = 0
    stream: bool = True
    direct: bool = False
    tries: int = 1
    patience_seconds: float = 600.0
    priority: str | None = None
    kind: str = "short"
