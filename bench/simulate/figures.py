"""What a finished run comes to, as numbers by name."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from bench.simulate.clients import Client, End, World
from twisted_gateway.load.workloads import LONG_TOKENS

Figures = dict[str, float]
NAN = math.nan

MEANINGS = {
    "completed_percent": "answered within their patience",
    "short_ttft_p50": "median time to first token of short prompts, s",
    "short_ttft_p95": "95th percentile of the time to first token of short prompts, s",
    "long_ttft_p95": "95th percentile of the time to first token of long prompts, s",
    "light_ttft_p95": "95th percentile of the time to first token of light tenants, s",
    "light_completed_percent": "of light tenants, answered within their patience",
    "answered_per_minute": "answers a minute",
    "wasted_percent": "of prefill, thrown away",
    "most_over": "most requests in the engine at once, less S",
    "idle_percent": "places left free while somebody was parked",
    "refusals": "503 for each request",
}
"""The figures that are shown, and what they are. Times are from the first try of a client, 600 s
for one that was not answered; light tenants are chats beside agents, and those beside a flood."""
_LIGHT = frozenset({"chat", "i1", "i2", "i3"})


def percentile(values: Iterable[float], share: float) -> float:
    """The least value that so great a share of the values does not pass; NaN of none."""
    ordered = sorted(values)
    if not ordered:
        return NAN
    return ordered[max(0, min(len(ordered), math.ceil(share * len(ordered))) - 1)]


def figures(world: World) -> Figures:
    """The figures of a run that is over. Direct callers count only in `most_over` and tokens."""
    gated = [client for client in world.clients if not client.arrival.direct]
    short = [client for client in gated if client.arrival.prompt_tokens <= LONG_TOKENS]
    long = [client for client in gated if client.arrival.prompt_tokens > LONG_TOKENS]
    light = [client for client in gated if client.arrival.tenant in _LIGHT]
    truth = world.truth
    answered = sum(client.end is End.OK for client in gated)
    idle_of = world.engine.model.sequences * max(1.0, truth.parked_seconds)
    return {
        "requests": len(gated),
        "completed_percent": completed(gated),
        "short_completed_percent": completed(short),
        "long_completed_percent": completed(long),
        "light_completed_percent": completed(light),
        "short_ttft_p50": percentile(map(_ttft, short), 0.5),
        "short_ttft_p95": percentile(map(_ttft, short), 0.95),
        "long_ttft_p50": percentile(map(_ttft, long), 0.5),
        "long_ttft_p95": percentile(map(_ttft, long), 0.95),
        "light_ttft_p50": percentile(map(_ttft, light), 0.5),
        "light_ttft_p95": percentile(map(_ttft, light), 0.95),
        "whole_mean": sum(map(_whole, gated)) / len(gated),
        "answered_per_minute": 60.0 * answered / _span(world.clients),
        "wasted_percent": 100.0 * truth.wasted_tokens / max(1, truth.prefilled_tokens),
        "most_over": truth.most_over,
        "most_over_gated": truth.most_over_gated,
        "idle_percent": (100.0 * truth.idle_seconds / idle_of if truth.parked_seconds > 1 else 0.0),
        "preemptions": truth.preemptions,
        "refusals": sum(client.refusals for client in world.clients) / len(gated),
        "retries": world.retries / len(world.clients),
        "longest_park": max(replica.longest_park_seconds for replica in world.replicas),
    }


def completed(clients: Sequence[Client]) -> float:
    """What share of them was answered, in percent; NaN of none."""
    if not clients:
        return NAN
    return 100.0 * sum(client.end is End.OK for client in clients) / len(clients)


def _ttft(client: Client) -> float:
    """Time to first token, retries included; all the patience where nothing came of it."""
    if client.end is not End.OK or client.first_at is None:
        return client.arrival.patience_seconds
    return client.first_at - client.arrival.at


def _whole(client: Client) -> float:
    """Time to the end of the answer; all the patience where there was none."""
    if client.done_at is None:
        return client.arrival.patience_seconds
    return client.done_at - client.arrival.at


def _span(clients: Sequence[Client]) -> float:
    """Over how many seconds clients came; of a burst, from its start to the last answer."""
    first, last = clients[0].arrival.at, clients[-1].arrival.at
    if last - first >= 60:
        return max(1.0, last - first)
    end = max([client.done_at for client in clients if client.done_at is not None], default=1.0)
    return max(1.0, end - first)
