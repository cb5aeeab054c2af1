"""The tables of the status page: engines, queue, tenants, models, settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from twisted_gateway.web.status import drawing
from twisted_gateway.web.status.reasons import waits_for
from twisted_gateway.web.status.words import (
    UNKNOWN,
    about,
    ago,
    duration,
    name,
    names,
    number,
    percent,
)

MOST_PARKED_SHOWN = 25
MOST_TENANTS_SHOWN = 10
MOST_PEERS_SHOWN = 10

JUDGED_BY = {
    "unobserved": "our own count",
    "unknown": "our own count, no gauges yet",
    "fresh": "its gauges",
    "held": "its last gauges",
    "ledger": "our own count",
    "no_gate": "nothing: not bounded yet",
    "closed": "nothing is let in",
    None: "no gate",
}

SOURCES = {
    "learned": "learned",
    "configured": "configured, until learned",
    "assumed": "assumed, until learned",
}

Facts = Mapping[str, Any]


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; on a narrow screen each cell bears its head as a label.

    Args:
        caption: what a screen reader says of it.
        heads: of the columns.
        rows: their cells; text is escaped, `Markup` is not.
    """
    head = "".join(f"<th scope=col>{escape(word)}</th>" for word in heads)
    body = "".join(
        "<tr>"
        + "".join(
            f'<td data-label="{escape(word)}">{cell if isinstance(cell, Markup) else escape(cell)}'
            "</td>"
            for word, cell in zip(heads, cells, strict=True)
        )
        + "</tr>"
        for cells in rows
    )
    return (
        f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )


def engines(facts: Facts) -> str:
    """A row for each engine: its places, its gauges with their age, how well it can be seen."""
    gated, observed = facts["gated"], facts["observed"]
    heads = ["engine"]
    heads += ["places"] if gated else []
    heads += ["running", "waiting", "KV cache", "gauges read"] if observed else []
    heads += ["silent for"]
    heads += ["judged by"] if gated else []
    rows = []
    for one in facts["engines"]:
        row = [name(one["address"])]
        row += [_places(one)] if gated else []
        row += _gauges(one) if observed else []
        row += [silence(one)]
        row += [JUDGED_BY[one["judged_by"]]] if gated else []
        rows.append(row)
    return table("Engines" if len(rows) > 1 else "Engine", heads, rows)


def silence(engine: Facts) -> str:
    """For how long nothing has come from an engine that owes us something."""
    seconds = engine["silent_seconds"]
    return "nothing due" if seconds is None else duration(seconds)


def queue(facts: Facts) -> str:
    """Who is parked, in the order of service as it stands."""
    parked = facts["parked"]
    if not parked:
        return ""
    several = len({one["model"] for one in parked}) > 1
    heads = ["#", "waited", "its turn in", "class", "tokens", "tenant", "wants", "waits for"]
    rows = [_ticket(one, facts, several=several) for one in parked[:MOST_PARKED_SHOWN]]
    if several:
        heads.insert(4, "model")
    more = facts["parked_requests"] - MOST_PARKED_SHOWN
    behind = f"<p class=more>and {more:,} more behind them</p>" if more > 0 else ""
    return table("Queue", heads, rows) + behind


def more(facts: Facts, group: Facts, models: Facts) -> str:
    """What is looked up less often, folded away."""
    parts = [_models(group, models)] if len(group["models"]) > 1 else []
    if facts["gated"]:
        parts += [_tenants(facts["tenants"]), _rates(facts["rates"]), _replicas(facts)]
    inside = "".join([*parts, _ends(group["trend"])])
    summary = "Tenants, rates, replicas" if facts["gated"] else "How requests ended"
    return f"<details><summary>{summary}</summary>{inside}</details>" if inside else ""


def rates_words(rates: Facts) -> str:
    """The two rates in words."""
    return (
        f"The engine reads {number(rates['prefill_tokens_per_second'])} tokens a second of a "
        f"prompt alone ({SOURCES[rates['prefill_source']]}) and writes "
        f"{number(rates['decode_tokens_per_second'])} of an answer "
        f"({SOURCES[rates['decode_source']]})."
    )


def replicas_words(facts: Facts) -> str:
    """How many replicas count, and which of them were heard."""
    peers = facts["peers"]
    heard = ", ".join(
        f"{name(one['address'])} {ago(one['heard_seconds'])}" for one in peers[:MOST_PEERS_SHOWN]
    )
    said = f"Replicas of the gateway that count: {facts['replicas']}"
    return f"{said}; heard: {heard}." if peers else f"{said}."


def ends_words(trend: Facts) -> str:
    """How the requests of the last quarter of an hour ended; "" where none did."""
    ended = ", ".join(f"{many:,} {outcome}" for outcome, many in trend["ended"].items())
    return f"Ended in the last 15 minutes: {ended}." if ended else ""


def _places(engine: Facts) -> Markup:
    own, peers, foreign = engine["own"], engine["peers"], engine["foreign"]
    picture = drawing.places(own, peers, foreign, engine["max_inflight"])
    said = f"{engine['in_engine']} of {engine['max_inflight']}"
    if engine["learned"]:
        said += " (learned)"
    if peers or foreign:
        shares = (own, "ours"), (peers, "of replicas"), (foreign, "of others")
        said += ": " + ", ".join(f"{many} {whose}" for many, whose in shares if many)
    return Markup(f"{picture} {escape(said)}")


def _gauges(engine: Facts) -> list[str]:
    usage = engine["kv_usage"]
    picture = "" if usage is None else f" {drawing.share(usage)}"
    return [
        number(engine["running"]),
        number(engine["waiting"]),
        Markup(f"{escape(percent(usage))}{picture}"),
        ago(engine["sample_age_seconds"]),
    ]


def _ticket(ticket: Facts, facts: Facts, *, several: bool) -> list[str]:
    eta = ticket["eta_seconds"]
    row = [
        number(ticket["position"]),
        duration(ticket["waited_seconds"]),
        UNKNOWN if eta is None else f"≈ {about(eta)}",
        name(ticket["priority"]),
        number(ticket["prompt_tokens"]),
        name(ticket["tenant"] or UNKNOWN),
        "stream" if ticket["stream"] else "whole answer",
        waits_for(ticket, facts),
    ]
    if several:
        row.insert(4, name(ticket["model"]))
    return row


def _models(group: Facts, models: Facts) -> str:
    rows = [
        [
            name(one),
            names(models[one]["aliases"]) or "none",
            number(models[one]["requests"]["under_way"]),
            number(models[one]["requests"]["in_engine"]),
            number(models[one]["requests"]["parked"]),
        ]
        for one in group["models"]
    ]
    return table("Models", ("model", "also called", "under way", "in the engine", "parked"), rows)


def _tenants(tenants: Sequence[Facts]) -> str:
    if not tenants:
        return ""
    rows = [
        [
            name(one["tenant"] or UNKNOWN),
            number(one["parked"]),
            duration(one["parked_work_seconds"]),
            duration(one["used_seconds"]),
        ]
        for one in tenants[:MOST_TENANTS_SHOWN]
    ]
    heads = ("tenant", "parked", "engine time to come", "engine time used lately")
    left = len(tenants) - len(rows)
    return table("Tenants", heads, rows) + (f"<p class=more>and {left} more</p>" if left else "")


def _rates(rates: Facts) -> str:
    return f"<p>{escape(rates_words(rates))}</p>"


def _replicas(facts: Facts) -> str:
    alone = facts["replicas"] == 1 and not facts["peers"]
    return "" if alone else f"<p>{escape(replicas_words(facts))}</p>"


def _ends(trend: Facts) -> str:
    said = ends_words(trend)
    return f"<p>{escape(said)}</p>" if said else ""
