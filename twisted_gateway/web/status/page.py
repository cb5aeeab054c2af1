"""The status page: the facts of `/status.json` as HTML.

It is whole without script, and loads itself again every few seconds then. With script the board,
which is all that changes, is replaced by what `/status/events` brings: rendered here as well, so
that there is one form of it. It is readable on a phone, in the dark and without colour vision:
every state is a word and a shape. Its length is bounded: of a long queue only the head is shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from twisted_gateway.web.status import reasons, tables, trends
from twisted_gateway.web.status.words import count, duration, name, names

RELOAD_SECONDS = 5
MOST_TITLE_CHARACTERS = 60

CONTENT_SECURITY_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

SHAPES = {
    "shut": "\N{BLACK SQUARE}",
    "failing": "\N{MULTIPLICATION X}",
    "silent": "\N{WHITE DOWN-POINTING TRIANGLE}",
    "stale": "\N{BLACK UP-POINTING TRIANGLE}",
    "waiting": "\N{BLACK DIAMOND}",
    "serving": "\N{BLACK CIRCLE}",
    "idle": "\N{WHITE CIRCLE}",
    "no gate": "\N{WHITE DIAMOND}",
}

Facts = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What the page says of itself, to the script.

    Attributes:
        build: changes with style or script, so that an old page loads itself anew.
        settings: changes with the settings in force.
        up: what leads from the page to `/`, as a relative reference.
    """

    build: str
    settings: str
    up: str = ""


def render(facts: Facts, frame: Frame) -> str:
    """The whole page.

    Args:
        facts: the tree of `/status.json`.
        frame: what goes round the board.
    """
    up = escape(frame.up)
    return (
        f'<!doctype html><html lang=en data-build="{escape(frame.build)}" '
        f'data-settings="{escape(frame.settings)}" data-up="{up}"><head><meta charset=utf-8>'
        '<meta name=viewport content="width=device-width,initial-scale=1">'
        '<meta name=color-scheme content="light dark">'
        f"<title>{escape(title(facts))}</title>"
        f'<link rel=stylesheet href="{up}status/status.css?{escape(frame.build)}">'
        f'<link rel=icon type="image/svg+xml" href="{up}status/icon.svg">'
        f'<script src="{up}status/status.js?{escape(frame.build)}" defer></script>'
        f"<noscript><meta http-equiv=refresh content={RELOAD_SECONDS}></noscript></head><body>"
        f"<header><h1>twisted-gateway <small>{escape(name(facts['version']))}</small></h1>"
        f"<p id=live role=status>as of {_time(facts)}<noscript>, loaded again every "
        f"{RELOAD_SECONDS} s</noscript></p>"
        f'<nav aria-label="Other forms"><a href="">load again</a> '
        f'<a href="{up}status.json">JSON</a> <a href="{up}metrics">metrics</a></nav></header>'
        f"<main id=board>{board(facts)}</main>"
        f"<footer id=settings>{_settings(facts['settings'])}</footer></body></html>"
    )


def title(facts: Facts) -> str:
    """What a tab says: how many wait, and for what, or how the worst of all fares."""
    groups = ranked(facts)
    waiting = [
        (facts["models"][group["models"][0]]["parked_requests"], group["models"])
        for group in groups
    ]
    many = sum(parked for parked, _ in waiting)
    if many:
        where = [model for parked, models in waiting if parked for model in models]
        said = f"{many:,} wait: {names(where, 1)}"
    else:
        said = groups[0]["state"] if groups else "no models"
    return f"{name(said)[:MOST_TITLE_CHARACTERS]} \N{MIDDLE DOT} twisted-gateway"


def board(facts: Facts) -> str:
    """All that changes from second to second."""
    groups = ranked(facts)
    numbers = {id(group): index for index, group in enumerate(facts["groups"], 1)}
    lines = "".join(_line(group, numbers[id(group)]) for group in groups)
    sections = "".join(
        _section(group, facts["models"], number) for number, group in enumerate(facts["groups"], 1)
    )
    return (
        f"<p class=facts>up {duration(facts['uptime_seconds'])} \N{MIDDLE DOT} "
        f"{count(facts['requests_in_flight'], 'request', 'requests')} under way "
        f"\N{MIDDLE DOT} {_time(facts)}</p>"
        f"{''.join(f'<p class=note>{escape(one)}</p>' for one in of_process(facts))}"
        f'<ul class=why aria-label="Why requests wait">{lines}</ul>{sections}'
    )


def of_process(facts: Facts) -> list[str]:
    """What is to be said of the gateway as a whole."""
    said = []
    if facts["draining"]:
        said.append("Draining: newcomers are refused, what is under way ends.")
    faults = facts["refused_configuration"]
    if faults:
        more = f" (and {len(faults) - 1} more, see the log)" if len(faults) > 1 else ""
        said.append(
            "The configuration as last read is refused, and the one before it stays in force; the "
            f"next start will fail: {faults[0]}{more}"
        )
    refused = sum(facts["refused_without_model"].values())
    if refused:
        said.append(
            f"{count(refused, 'request was', 'requests were')} refused in the last 15 minutes "
            "before their model was known: maxConnections or maxHeldBytes."
        )
    for one in facts["retired"]:
        said.append(
            f"A configuration that is no longer in force still serves {names(one['models'])}: "
            f"{one['in_engine']} in the engine, {one['parked']} parked."
        )
    return said


def ranked(facts: Facts) -> list[Facts]:
    """The groups, the worst first."""
    return sorted(facts["groups"], key=lambda group: reasons.State(group["state"]).rank)


def _line(group: Facts, number: int) -> str:
    return (
        f'<li>{_badge(group["state"])} <a href="#engines-{number}">'
        f"{escape(names(group['models']))}</a> <span>{escape(group['why'])}</span></li>"
    )


def _badge(state: str) -> str:
    kind = state.replace(" ", "-")
    return f'<b class="state {kind}"><i aria-hidden=true>{SHAPES[state]}</i> {escape(state)}</b>'


def _section(group: Facts, models: Facts, number: int) -> str:
    facts = models[group["models"][0]]
    head = (
        f"<h2 id=title-{number}>{escape(names(group['models']))} "
        f"<small>{escape(_kind(group, models))}</small></h2>"
    )
    noted = "".join(f"<p class=note>{escape(one)}</p>" for one in group["notes"])
    return (
        f"<section id=engines-{number} aria-labelledby=title-{number}>{head}{noted}"
        f"{trends.tiles(facts, group['trend'])}{tables.engines(facts)}{tables.queue(facts)}"
        f"{tables.more(facts, group, models)}</section>"
    )


def _kind(group: Facts, models: Facts) -> str:
    kinds = sorted({models[one]["engine"] for one in group["models"]} - {"none"})
    aliases = [alias for one in group["models"] for alias in models[one]["aliases"]]
    said = [name(" or ".join(kinds))] if kinds else []
    return ", ".join(said + ([f"also called {names(aliases)}"] if aliases else []))


def _settings(settings: Sequence[Facts]) -> str:
    named = sum(one["source"] != "default" for one in settings)
    rows = [[one["key"], one["value"], one["source"]] for one in settings]
    return (
        f"<details><summary>Settings in force ({named} of {len(rows)} are not defaults)</summary>"
        + tables.table("Settings in force", ("key", "value", "from"), rows)
        + "</details>"
    )


def _time(facts: Facts) -> str:
    return f"{escape(str(facts['time'])[11:19])} UTC"
