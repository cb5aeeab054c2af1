"""The four tiles of the status page: a figure each, with its last quarter of an hour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from twisted_gateway.web.status import drawing
from twisted_gateway.web.status.words import count, duration, number

LATELY = "in the last 15 minutes"

Facts = Mapping[str, Any]


def tiles(facts: Facts, trend: Facts) -> str:
    """In the engine, parked, time to first token, refused; without a gate the last two alone."""
    first = [_in_engine(facts, trend), _parked(facts, trend)] if facts["gated"] else []
    return f"<div class=tiles>{''.join([*first, _ttft(trend), _refused(trend)])}</div>"


def latest(points: Sequence[float | None]) -> float | None:
    """The last point that is known."""
    return next((one for one in reversed(points) if one is not None), None)


def most(points: Sequence[float | None]) -> float:
    """The highest point; 0 where none is known."""
    return max((one for one in points if one is not None), default=0)


def reasons_of(trend: Facts) -> str:
    """Refusals by reason, in words; "" where there are none."""
    return ", ".join(f"{many:,} {reason}" for reason, many in trend["refused_by_reason"].items())


def _in_engine(facts: Facts, trend: Facts) -> str:
    inside, places = facts["in_engine"], facts["max_inflight"]
    points = trend["in_engine"]
    top = max(places, most(points))
    label = f"In the engine {LATELY}: now {inside} of {places}, at most {most(points)}"
    return _tile(
        "in the engine",
        f"{inside} <small>of {places}</small>",
        drawing.spark(label, ("inside", points), top=top * 1.05, limit=places),
        f"at most {most(points)} in 15 min",
    )


def _parked(facts: Facts, trend: Facts) -> str:
    many, points = facts["parked_requests"], trend["parked"]
    label = f"Parked {LATELY}: now {many:,}, at most {most(points):,}"
    depth = facts["max_queue_depth"]
    return _tile(
        "parked",
        f"{many:,} <small>of {depth:,}</small>",
        drawing.spark(label, ("parked", points), top=max(4, most(points))),
        f"at most {most(points):,} in 15 min",
    )


def _ttft(trend: Facts) -> str:
    p50s, p95s = trend["ttft_p50_seconds"], trend["ttft_p95_seconds"]
    p50, p95 = latest(p50s), latest(p95s)
    if p50 is None or p95 is None:
        value, below = "none", f"no stream {LATELY}"
        label = f"Time to first token: {below}"
    else:
        value = f"{duration(p50)} <small>p95 {duration(p95)}</small>"
        below = f"p50 solid, p95 dashed: at most {duration(most(p95s))}"
        label = (
            f"Time to first token {LATELY}: median now {duration(p50)}, "
            f"95th percentile {duration(p95)}, at most {duration(most(p95s))}"
        )
    lines = ("p50", p50s), ("p95", p95s)
    return _tile("time to first token", value, drawing.spark(label, *lines, top=most(p95s)), below)


def _refused(trend: Facts) -> str:
    many = sum(trend["refused_by_reason"].values())
    said = reasons_of(trend) or "none"
    label = f"Refused {LATELY}: {said}"
    ended = f"of {count(sum(trend['ended'].values()), 'request', 'requests')} that ended"
    return _tile(
        "refused",
        number(many),
        drawing.bars(label, trend["refused"], top=max(4, most(trend["refused"]))),
        f"{escape(said)}, {ended}" if many else ended,
    )


def _tile(label: str, value: str, picture: str, below: str) -> str:
    return (
        f"<figure><figcaption>{label} <b>{value}</b></figcaption>{picture}<p>{below}</p></figure>"
    )
