"""The status page: the facts of `/status.json` as plain HTML that needs no script.

It asks the browser to load it again every two seconds. It is readable on a phone, in the dark and
without colour vision: every state is a word, and bars have their number beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

RELOAD_SECONDS = 2
CONTENT_SECURITY_POLICY = (
    b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"
)

_STYLE = """
:root{color-scheme:light dark;--line:#8884;--bar:#2a78d6;--back:#8882}
body{font:15px/1.45 system-ui,sans-serif;margin:1.2rem auto;max-width:62rem;padding:0 1rem}
h1{font-size:1.25rem;margin:0}h2{font-size:1.05rem;margin:1.6rem 0 .3rem}
p{margin:.3rem 0}small,.dim{opacity:.7}
.facts{display:flex;flex-wrap:wrap;gap:.5rem 1.6rem;margin:.5rem 0}
.facts div{min-width:7.5rem}.facts b{display:block;font-size:1.35rem;font-weight:600}
.bar{height:.5rem;background:var(--back);border-radius:.25rem;overflow:hidden;max-width:24rem}
.bar i{display:block;height:100%;background:var(--bar)}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%}
td,th{text-align:right;padding:.2rem .6rem;border-bottom:1px solid var(--line);white-space:nowrap}
td:first-child,th:first-child,td.l,th.l{text-align:left}
.why{border-left:.25rem solid var(--bar);padding:.2rem .7rem;margin:.4rem 0}
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
        f"{facts['requests_in_flight']} requests under way</p>{draining}{models}</html>"
    )


def _model(name: str, facts: Mapping[str, Any]) -> str:
    head = f"<h2>{escape(name)} <small>{escape(facts['engine'])}</small></h2>"
    if not facts["gated"]:
        return head + "<p class=dim>no gate: requests go straight to the engine</p>" + _why(facts)
    parked = facts["parked"]
    places = facts["max_inflight"]
    share = min(100, 100 * facts["in_engine"] // max(1, places))
    boxes = [
        ("in the engine", f"{facts['in_engine']} of {places}"),
        ("parked", str(len(parked))),
        ("running", _number(facts["running"])),
        ("waiting", _number(facts["waiting"])),
        ("KV cache", _percent(facts["kv_usage"])),
        ("sample age", _duration(facts["sample_age_seconds"])),
    ]
    shown = "".join(f"<div><b>{escape(value)}</b>{label}</div>" for label, value in boxes)
    return (
        f"{head}<div class=facts>{shown}</div>"
        f"<div class=bar><i style=width:{share}%></i></div>{_why(facts)}{_queue(parked)}"
    )


def _why(facts: Mapping[str, Any]) -> str:
    words = []
    if facts["stale"]:
        words.append("the engine's gauges cannot be read")
    if facts["degraded"]:
        words.append("the engine's answer is not readable as its kind's gauges")
    if facts["reason"]:
        words.append(facts["reason"])
    words += [
        f"engine {engine['number']}: {engine['hold'].replace('_', ' ')}"
        for engine in facts.get("engines", ())
        if engine["hold"]
    ]
    return "".join(f"<p class=why>{escape(word)}</p>" for word in words)


def _queue(parked: list[Mapping[str, Any]]) -> str:
    if not parked:
        return "<p class=dim>nothing is parked</p>"
    rows = "".join(
        f"<tr><td>{one['position']}<td class=l>{escape(one['model'])}"
        f"<td class=l>{escape(one['priority'])}"
        f"<td>{_duration(one['waited_seconds'])}<td>{one['prompt_tokens']:,}"
        f"<td class=l>{'stream' if one['stream'] else 'whole answer'}"
        f"{' · sent back by the engine' if one['reparked'] else ''}"
        for one in parked
    )
    return (
        "<div class=scroll><table><tr><th>#<th class=l>model<th class=l>class<th>waited"
        f"<th>prompt tokens<th class=l>wants</tr>{rows}</table></div>"
    )


def _number(value: int | None) -> str:
    return "unknown" if value is None else str(value)


def _percent(value: float | None) -> str:
    return "unknown" if value is None else f"{100 * value:.0f} %"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    if seconds < 90:
        return f"{seconds:.1f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"
