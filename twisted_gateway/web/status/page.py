"""The status page: the facts of `/status.json` as plain HTML that needs no script.

It asks the browser to load it again every two seconds. It is readable on a phone, in the dark and
without colour vision: every state is a word, and bars have their number beside them. Its length
is bounded: of a long queue only the head is shown, with how many more there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

RELOAD_SECONDS = 2
MOST_PARKED_SHOWN = 25
MOST_NAME_CHARACTERS = 120
CONTENT_SECURITY_POLICY = (
    b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"
)

_JUDGED_BY = {
    "ledger": "is judged by the gateway's own requests alone",
    "held": "is judged by its last reading",
    "no_gate": "has no bound: its places are not known yet",
    "closed": "gets nothing until its gauges can be read",
}

_STYLE = """
:root{color-scheme:light dark;--line:#8884;--bar:#2a78d6;--back:#8883;--card:#8881}
body{font:15px/1.45 system-ui,sans-serif;margin:1rem auto;max-width:54rem;padding:0 .8rem}
h1{font-size:1.2rem;margin:0}h2{font-size:1.05rem;margin:0 0 .5rem}h1,h2{overflow-wrap:anywhere}
small,.dim{font-weight:400;opacity:.75}p{margin:.4rem 0}
section{background:var(--card);border:1px solid var(--line);border-radius:.5rem;
margin:.9rem 0;overflow-x:auto;padding:.8rem 1rem}
dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(6.6rem,1fr));gap:.5rem 1rem;margin:0}
dt{font-size:.85rem;opacity:.75}dd{font-size:1.25rem;font-weight:600;margin:0}
.bar{background:var(--back);border-radius:.2rem;height:.35rem;margin-top:.2rem;max-width:9rem}
.bar i{background:var(--bar);border-radius:.2rem;display:block;height:100%}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin-top:.7rem;width:100%}
td,th{border-top:1px solid var(--line);padding:.2rem .5rem .2rem 0;text-align:left}
th{border:0;font-size:.85rem;font-weight:400;opacity:.75}
td:last-child,th:last-child{padding-right:0}td:nth-child(2){overflow-wrap:anywhere}
@media(max-width:28rem){section{padding:.6rem}table{font-size:.8rem}}
.why{border-left:.25rem solid var(--bar);padding-left:.7rem}
"""


def render(facts: Mapping[str, Any]) -> str:
    """The page.

    Args:
        facts: the tree of `/status.json`.
    """
    models = "".join(_model(name, one) for name, one in facts["models"].items())
    draining = "<p class=why>Draining: newcomers are refused.</p>" if facts["draining"] else ""
    return (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        f"<meta http-equiv=refresh content={RELOAD_SECONDS}>"
        '<meta name=viewport content="width=device-width,initial-scale=1">'
        f"<title>twisted-gateway</title><style>{_STYLE}</style>"
        f"<h1>twisted-gateway <small>{escape(facts['version'])}</small></h1>"
        f"<p class=dim>up {_duration(facts['uptime_seconds'])} · "
        f"requests under way: {facts['requests_in_flight']} · "
        "<a href=/status.json>as JSON</a> · <a href=/metrics>metrics</a></p>"
        f"{draining}{models}</html>"
    )


def _model(name: str, facts: Mapping[str, Any]) -> str:
    also = f", also {_names(facts['aliases'])}" if facts["aliases"] else ""
    head = f"<h2>{_name(name)} <small>{escape(facts['engine'])}{also}</small></h2>"
    if facts["gated"]:
        body = _cells([*_gate(facts), *_reading(facts)]) + _why(facts)
        body += _engines(facts["engines"]) + _queue(facts["parked"])
    else:
        body = "<p class=dim>no gate: requests go straight to the engine</p>"
        body += _cells(_reading(facts)) + _why(facts)
    return f"<section>{head}{body}</section>"


def _gate(facts: Mapping[str, Any]) -> list[str]:
    """What the gateway itself has counted."""
    places = facts["max_inflight"]
    return [
        _cell("in the engine", f"{facts['in_engine']} of {places}", facts["in_engine"] / places),
        _cell("parked here", str(len(facts["parked"]))),
    ]


def _reading(facts: Mapping[str, Any]) -> list[str]:
    """What the engine says of itself, where it says anything."""
    if not facts["observed"]:
        return []
    return [
        _cell("engine: running", _number(facts["running"])),
        _cell("engine: waiting", _number(facts["waiting"])),
        _cell("engine: KV cache", _percent(facts["kv_usage"]), facts["kv_usage"]),
        _cell("gauges read", _ago(facts["sample_age_seconds"])),
    ]


def _cells(cells: Sequence[str]) -> str:
    return f"<dl>{''.join(cells)}</dl>" if cells else ""


def _cell(label: str, value: str, share: float | None = None) -> str:
    bar = ""
    if share is not None:
        bar = f"<div class=bar><i style=width:{max(0, min(100, round(100 * share)))}%></i></div>"
    return f"<div><dt>{label}</dt><dd>{escape(value)}{bar}</dd></div>"


def _why(facts: Mapping[str, Any]) -> str:
    """Say in words what is not as it should be."""
    words = []
    if facts["stale"]:
        words.append("The engine's gauges have not been readable for a while.")
    if facts["degraded"]:
        words.append("The engine answers, but not with all gauges of its kind.")
    if facts["reason"]:
        words.append(f"Last poll: {facts['reason']}.")
    for engine in facts.get("engines", ()):
        said = [_JUDGED_BY.get(engine["judged_by"], "")]
        if engine["hold"] == "refused_connection":
            said.append("refused a connection, so it gets nothing but a trial")
        if engine["drift"]:
            said.append("publishes gauges that contradict maxInflight")
        words += [f"Engine {engine['number']} {one}." for one in said if one]
    return "".join(f"<p class=why>{escape(word)}</p>" for word in words)


def _engines(engines: Sequence[Mapping[str, Any]]) -> str:
    """A row for each engine, where there are several."""
    if len(engines) < 2:
        return ""
    rows = (
        (
            str(one["number"]),
            f"{one['in_engine']} of {one['max_inflight']}",
            _number(one["running"]),
            _number(one["waiting"]),
            _percent(one["kv_usage"]),
            _ago(one["sample_age_seconds"]),
        )
        for one in engines
    )
    return _table(("engine", "in it", "running", "waiting", "KV cache", "gauges read"), rows)


def _queue(parked: Sequence[Mapping[str, Any]]) -> str:
    if not parked:
        return ""
    rows = (
        (
            str(one["position"]),
            one["model"][:MOST_NAME_CHARACTERS],
            one["priority"],
            _duration(one["waited_seconds"]),
            f"{one['prompt_tokens']:,}",
            "sent back by the engine" if one["reparked"] else _wants(one["stream"]),
        )
        for one in parked[:MOST_PARKED_SHOWN]
    )
    more = len(parked) - MOST_PARKED_SHOWN
    table = _table(("#", "model", "class", "waited", "≈ tokens", "wants"), rows)
    return table + (f"<p class=dim>and {more:,} more behind them</p>" if more > 0 else "")


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{escape(word)}" for word in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}" for cell in cells) + "</tr>" for cells in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _name(text: str) -> str:
    shown = text[:MOST_NAME_CHARACTERS]
    return escape(shown) + ("…" if len(text) > MOST_NAME_CHARACTERS else "")


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(_name(name) for name in names[:5]) + more


def _wants(stream: bool) -> str:
    return "stream" if stream else "whole answer"


def _number(value: int | None) -> str:
    return "unknown" if value is None else str(value)


def _percent(share: float | None) -> str:
    if share is None:
        return "unknown"
    # Below one percent a whole number would say that nothing is in it.
    return f"{100 * share:.1f} %" if 0 < share < 0.01 else f"{100 * share:.0f} %"


def _ago(seconds: float | None) -> str:
    return "not yet" if seconds is None else f"{_duration(seconds)} ago"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    return (
        f"{minutes // 60} h {minutes % 60:02d} min"
        if minutes > 90
        else f"{minutes} min {rest:02d} s"
    )
