"""The status as plain text, for terminals of eighty columns or more.

    curl -s -H 'Accept: text/plain' http://127.0.0.1:8080/status

It says what the page says, in the same words.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from twisted_gateway.telemetry.history import SLOTS
from twisted_gateway.web.status.page import of_process, ranked
from twisted_gateway.web.status.reasons import waits_for
from twisted_gateway.web.status.tables import (
    JUDGED_BY,
    MOST_PARKED_SHOWN,
    ends_words,
    rates_words,
    replicas_words,
    silence,
)
from twisted_gateway.web.status.trends import latest, most, reasons_of
from twisted_gateway.web.status.words import (
    about,
    ago,
    count,
    duration,
    line_of,
    name,
    names,
    number,
    percent,
)

COLUMNS = 100
LEAST_COLUMNS = 20
MOST_ADDRESS_COLUMNS = 60
MOST_NAMES_COLUMNS = 40
MOST_TENANT_COLUMNS = 16

_LEVELS = " ▁▂▃▄▅▆▇█"
_POINTS = 3
_CELLS = SLOTS // _POINTS
_RIGHT = frozenset({"#", "waited", "in about", "tokens", "running", "waiting", "KV", "silent for"})

Facts = Mapping[str, Any]


def render(facts: Facts) -> str:
    """The facts of `/status.json` as text in lines of `COLUMNS` characters, but for long addresses.

    The worst comes first. Where there are several sets of engines, each has a line before all
    else, with nothing left out of its reason: what does not fit goes on below.
    """
    lines = [
        f"twisted-gateway {name(facts['version'])}, up {duration(facts['uptime_seconds'])}, "
        f"{count(facts['requests_in_flight'], 'request', 'requests')} under way, "
        f"{facts['time'][:19].replace('T', ' ')} UTC"
    ]
    for said in of_process(facts):
        lines += _paragraph(said)
    groups = ranked(facts)
    if len(groups) > 1:
        lines += ["", *_summary(groups)]
    for group in groups:
        lines += ["", *_group(group, facts["models"][group["models"][0]])]
    return "\n".join(lines) + "\n"


def blocks(points: Sequence[float | None]) -> str:
    """A line of blocks, one for the highest of a few points; a space where nothing is or is known.

    Args:
        points: oldest first.
    """
    top = most(points) or 1
    starts = range(0, len(points), _POINTS)
    highest = [most(points[start : start + _POINTS]) for start in starts]
    return "".join(_LEVELS[math.ceil((len(_LEVELS) - 1) * one / top)] for one in highest)


def _summary(groups: Sequence[Facts]) -> list[str]:
    rows = [
        [one["state"].upper(), line_of(names(one["models"], 2), MOST_NAMES_COLUMNS), one["why"]]
        for one in groups
    ]
    return _rows(["state", "models", "why"], rows)


def _group(group: Facts, facts: Facts) -> list[str]:
    heading = f"{group['state'].upper()}  {names(group['models'])}"
    lines = textwrap.wrap(heading, COLUMNS, subsequent_indent="    ", break_on_hyphens=False)
    for said in (group["why"], *group["notes"]):
        lines += _paragraph(said)
    lines += ["", *_engines(facts)]
    if facts["parked"]:
        lines += ["", *_queue(facts)]
    lines += ["", *_trend(group["trend"], gated=facts["gated"])]
    if facts["gated"]:
        lines += _paragraph(rates_words(facts["rates"]))
        lines += _paragraph(replicas_words(facts)) if facts["replicas"] > 1 else []
    return lines


def _engines(facts: Facts) -> list[str]:
    gated, observed = facts["gated"], facts["observed"]
    heads = ["engine", *(["in it"] if gated else [])]
    heads += ["running", "waiting", "KV", "gauges read"] if observed else []
    heads += ["silent for", "judged by"]
    rows = [
        [
            line_of(one["address"], MOST_ADDRESS_COLUMNS),
            *([f"{one['in_engine']} of {one['max_inflight']}"] if gated else []),
            *(_gauges(one) if observed else []),
            silence(one),
            JUDGED_BY[one["judged_by"]],
        ]
        for one in facts["engines"]
    ]
    return _table(heads, rows)


def _gauges(engine: Facts) -> list[str]:
    return [
        number(engine["running"]),
        number(engine["waiting"]),
        percent(engine["kv_usage"]),
        ago(engine["sample_age_seconds"]),
    ]


def _queue(facts: Facts) -> list[str]:
    parked = facts["parked"]
    heads = ["#", "waited", "in about", "class", "tokens", "tenant", "wants", "waits for"]
    rows = [
        [
            number(one["position"]),
            duration(one["waited_seconds"]),
            "unknown" if one["eta_seconds"] is None else about(one["eta_seconds"]),
            one["priority"],
            number(one["prompt_tokens"]),
            line_of(one["tenant"] or "-", MOST_TENANT_COLUMNS),
            "stream" if one["stream"] else "whole",
            waits_for(one, facts),
        ]
        for one in parked[:MOST_PARKED_SHOWN]
    ]
    more = facts["parked_requests"] - MOST_PARKED_SHOWN
    return _table(heads, rows) + ([f"  and {more:,} more behind them"] if more > 0 else [])


def _trend(trend: Facts, *, gated: bool) -> list[str]:
    said: list[tuple[str, str, str]] = []
    if gated:
        said += [
            ("in the engine", blocks(trend["in_engine"]), f"at most {most(trend['in_engine'])}"),
            ("parked", blocks(trend["parked"]), f"at most {most(trend['parked']):,}"),
        ]
    p50, p95 = latest(trend["ttft_p50_seconds"]), latest(trend["ttft_p95_seconds"])
    first = (
        "no streams"
        if p50 is None or p95 is None
        else (f"p50 {duration(p50)}, p95 {duration(p95)} now")
    )
    said.append(("first token, p95", blocks(trend["ttft_p95_seconds"]), first))
    refused = reasons_of(trend) or "none"
    said.append(("refused", blocks(trend["refused"]), refused))
    rows = [[label, f"{drawn:<{_CELLS}}", words] for label, drawn, words in said]
    lines = _rows(["", "", ""], rows, apart=" ")
    ends = ends_words(trend)
    return ["  the last 15 minutes:", *lines, *(_paragraph(ends) if ends else [])]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return _rows(heads, [heads, *rows])


def _rows(heads: Sequence[str], rows: Sequence[Sequence[str]], *, apart: str = "  ") -> list[str]:
    """Rows in columns; what is too long of the last one goes on below, under its own column."""
    widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    left = 2 + sum(widths) + len(apart) * len(widths)
    lines: list[str] = []
    for *cells, last in rows:
        aligned = [
            cell.rjust(width) if head in _RIGHT else cell.ljust(width)
            for cell, width, head in zip(cells, widths, heads, strict=False)
        ]
        first, *more = textwrap.wrap(last, max(LEAST_COLUMNS, COLUMNS - left)) or [""]
        lines.append(("  " + apart.join([*aligned, first])).rstrip())
        lines += [" " * left + one for one in more]
    return lines


def _paragraph(said: str) -> list[str]:
    return textwrap.wrap(said, COLUMNS - 2, initial_indent="  ", subsequent_indent="  ")
