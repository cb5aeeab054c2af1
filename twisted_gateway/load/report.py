"""The report: one HTML page that needs nothing beside itself, to be mailed to a colleague."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape

from twisted_gateway.console.terminal import plain
from twisted_gateway.load import table
from twisted_gateway.load.advice import Advice, Said
from twisted_gateway.load.compare import Comparison
from twisted_gateway.load.figures import Summary
from twisted_gateway.load.plots import Bound, Point, Series, plot
from twisted_gateway.load.results import Ending, Request, Result, Sample

_MAX_CHARS = 400
_MAX_FACT_CHARS = 4000
_MAX_KINDS = 5
"""How many have dots of a colour of their own; the others, those that ask least, share one."""
_STYLE = """
:root{color-scheme:light dark;--line:#8884;--card:#8881;--back:#fff;--ink:#1b1f24;
--c0:#2a6fcf;--c1:#d1690e;--c2:#178a63;--c3:#a045c4;--c4:#c9314a;--c5:#7d7a16;--c6:#6b7480}
@media(prefers-color-scheme:dark){:root{--back:#14171a;--ink:#e4e7ea;
--c0:#6ea8f5;--c1:#f0994a;--c2:#4cc598;--c3:#cd8be6;--c4:#f2788a;--c5:#c4c04e;--c6:#9aa4ae}}
body{background:var(--back);color:var(--ink);font:15px/1.45 system-ui,sans-serif;
margin:1.2rem auto;max-width:58rem;padding:0 .9rem}
h1{font-size:1.3rem;margin:0}h2{font-size:1.05rem;margin:1.6rem 0 .4rem}
.dim,.note{opacity:.8}.note{font-size:.9rem;margin:.3rem 0}
.cards{display:grid;gap:.6rem;grid-template-columns:repeat(auto-fill,minmax(11.5rem,1fr));
margin:1rem 0}.cards div{background:var(--card);border:1px solid var(--line);border-radius:.5rem;
padding:.5rem .7rem}.cards b{display:block;font-size:1.3rem;font-variant-numeric:tabular-nums}
.warn{border-left:.3rem solid var(--c4);opacity:1;padding-left:.6rem}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.88rem;
font-variant-numeric:tabular-nums;margin:.3rem 0;white-space:nowrap}
td,th{border-top:1px solid var(--line);padding:.22rem .55rem;text-align:right}
th{border-top:0;font-weight:500;opacity:.8}td:first-child,th:first-child{padding-left:0;
text-align:left}tr.all td{font-weight:600}.facts td{text-align:left;white-space:normal}
.facts td:first-child{opacity:.8;padding-right:1.5rem;vertical-align:top}
.advice{background:var(--card);border-left:.3rem solid var(--c0);border-radius:.3rem;
margin:.5rem 0;padding:.5rem .8rem}figure{margin:1.1rem 0}
figcaption{font-weight:600}figcaption small{font-weight:400;opacity:.8;padding-left:.4rem}
h1,.dim,.note,.facts td,.advice{overflow-wrap:anywhere}svg{display:block;height:auto;width:100%}
.legend{display:flex;flex-wrap:wrap;font-size:.85rem;gap:.1rem 1.1rem;margin:.15rem 0}
.tick{fill:currentColor;font-size:11px;opacity:.75}.grid{fill:none;stroke:var(--line)}
.bound{fill:none;opacity:.6;stroke:currentColor;stroke-dasharray:5 4}
.line{fill:none;stroke:var(--c);stroke-width:1.6}
path.wide{opacity:.55;stroke-width:4}.crosses{fill:none;stroke:var(--c);
stroke-width:1.5}.dots{fill:none;opacity:.75;stroke:var(--c);stroke-linecap:round;stroke-width:5}
.absent{background:var(--card);border-radius:.3rem;padding:.6rem .8rem}
@media(max-width:40rem){.tick{font-size:20px}.line,.crosses{stroke-width:2.5}
.dots{stroke-width:9}.cards{grid-template-columns:1fr 1fr}}
@media print{body{max-width:none}}
"""
_NO_STATUS = "The gateway's /status.json was not to be had, so there is nothing to draw."


def report(result: Result, summary: Summary, advice: Advice) -> str:
    """Give the page of one run."""
    cut = result.interrupted
    return _page(
        f"Load test {result.settings.workload}",
        [
            f"<p class=dim>{_about(result)}</p>",
            _cards(summary),
            "<h2>What it argues for</h2>",
            _advice("maxParkSeconds", advice.max_park_seconds),
            _advice("maxQueueDepth", advice.max_queue_depth),
            *(f"<p class=note>{_text(note)}</p>" for note in table.notes(result, summary)),
            "<h2>Over time</h2>",
            *_plots(result),
            "<h2>By kind</h2>",
            _table(table.table("kind", [*summary.kinds, summary.all], cut=cut), last_is_all=True),
            *(
                ["<h2>By tenant</h2>", _table(table.table("tenant", summary.tenants, cut=cut))]
                if len(summary.tenants) > 1
                else []
            ),
            f"<p class=note>{escape(table.FOOTNOTE)}</p>",
            "<h2>Besides</h2>",
            _facts(table.facts(result, summary)),
        ],
    )


def comparison(compared: Comparison) -> str:
    """Give the page that sets one run beside another."""
    first, second = compared.first, compared.second
    return _page(
        "Two load tests",
        [
            f"<p class=dim>A: {_text(compared.names[0])}: {_about(first)}</p>",
            f"<p class=dim>B: {_text(compared.names[1])}: {_about(second)}</p>",
            *(f'<p class="note warn">{_text(note)}</p>' for note in compared.notes),
            _table([("", "A", "B", "B / A"), *compared.rows]),
            f"<p class=note>{escape(table.FOOTNOTE)}</p>",
            "<h2>Over time</h2>",
            *_both_plots(first, second),
        ],
    )


def _page(title: str, parts: Iterable[str]) -> str:
    return (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width,initial-scale=1">'
        "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; "
        "style-src 'unsafe-inline'\">"
        f"<title>{_text(title)}</title><style>{_STYLE}</style>"
        f"<h1>{_text(title)}</h1>{''.join(parts)}</html>\n"
    )


def _about(result: Result) -> str:
    settings = result.settings
    options = "".join(f", {name} {value:g}" for name, value in settings.options.items())
    speed = "" if settings.speed == 1 else f", {settings.speed:g} times as fast"
    return _text(
        f"{settings.workload} (seed {settings.seed}{options}) for model {settings.model} at "
        f"{', '.join(settings.to)}{speed}, {settings.started}, llm-gateway-load {settings.version}"
    )


def _cards(summary: Summary) -> str:
    row = summary.all
    pairs = (
        ("asked", f"{row.asked}"),
        ("completed", table.percent(row.completed_percent)),
        ("TTFT, median", _seconds(row.ttft_p50)),
        ("TTFT, p95", _seconds(row.ttft_p95)),
        ("refused", f"{row.refused}"),
        ("gave up", f"{row.gave_up}"),
        ("most parked", table.number(summary.most_parked)),
        ("answer tokens/s", f"{row.tokens_per_second:.1f}"),
    )
    cards = "".join(f"<div>{name}<b>{_text(value)}</b></div>" for name, value in pairs)
    return f"<div class=cards>{cards}</div>"


def _seconds(value: float | None) -> str:
    return "none" if value is None else f"{table.seconds(value)} s"


def _advice(key: str, said: Said) -> str:
    why = said.why[:1].upper() + said.why[1:]
    force = f" In force: {said.force}." if said.force else ""
    return f"<p class=advice><b>{key}: {_text(said.headline)}</b><br>{_text(why + force)}</p>"


def _table(rows: Sequence[Sequence[str]], *, last_is_all: bool = False) -> str:
    head, *body = rows
    text = "<tr>" + "".join(f"<th>{_text(cell)}" for cell in head)
    for place, row in enumerate(body, 1):
        whole = last_is_all and place == len(body)
        text += "<tr class=all>" if whole else "<tr>"
        text += "".join(f"<td>{_text(cell)}" for cell in row)
    return f"<div class=wide><table>{text}</table></div>"


def _facts(pairs: Iterable[tuple[str, str]]) -> str:
    rows = "".join(
        f"<tr><td>{_text(name)}<td>{_text(value, _MAX_FACT_CHARS)}" for name, value in pairs
    )
    return f"<table class=facts>{rows}</table>"


def _text(text: str, most: int = _MAX_CHARS) -> str:
    """Make markup of what may come from anywhere: no elements, no controls, no great length."""
    return escape(plain(text if len(text) <= most else text[: most - 1] + "…"))


# The plots.


def _plots(result: Result) -> Iterable[str]:
    end = result.took
    yield plot(
        "Time to first token, by when it came",
        [*_answered(result), *_unanswered(result, 4)],
        x_max=end,
        y_name="seconds; ✕ left without an answer after so long",
        absent="No stream had any content.",
    )
    yield plot(
        "Parked",
        _parked(result),
        x_max=end,
        y_name="requests",
        absent=_NO_STATUS,
        bounds=_queue_bound(result),
    )
    yield plot(
        "In the engine",
        _engine(result),
        x_max=end,
        y_name="requests",
        absent=_NO_STATUS,
        bounds=_places_bound(result),
    )
    yield plot(
        "Refused",
        _refused(result),
        x_max=end,
        y_name="tries, so far",
        absent="Nothing was refused.",
    )
    yield plot(
        "Place in the queue, as clients were told",
        [Series(name="position", points=_places(result), colour=0, form="dots")],
        x_max=end,
        y_name="position",
        absent="No keep-alive comment told a position.",
    )


def _both_plots(first: Result, second: Result) -> Iterable[str]:
    end = max(first.took, second.took)
    runs = ((0, "A", first), (1, "B", second))
    yield plot(
        "Time to first token, by when it came",
        [
            *(
                Series(name=name, points=_ttfts(run.requests), colour=colour, form="dots")
                for colour, name, run in runs
            ),
            *(
                one
                for colour, name, run in runs
                for one in _unanswered(run, colour, f"{name}, no answer")
            ),
        ],
        x_max=end,
        y_name="seconds; ✕ left without an answer after so long",
        absent="No stream had any content.",
    )
    for title, attribute, absent in (
        ("Parked", "parked", _NO_STATUS),
        ("In the engine", "in_engine", _NO_STATUS),
        ("Refused so far", "refused", "Nothing was sampled."),
    ):
        yield plot(
            title,
            [
                Series(name=name, points=_over_time(run.samples, attribute), colour=colour)
                for colour, name, run in runs
            ],
            x_max=end,
            y_name="requests",
            absent=absent,
        )


def _answered(result: Result) -> Iterable[Series]:
    sizes = Counter(request.kind for request in result.requests)
    own = sorted(kind for kind, _ in sizes.most_common(_MAX_KINDS))
    # Colour 4, red, is left for those without an answer.
    colours = [0, 1, 2, 3, 5]
    for kind, colour in zip(own, colours, strict=False):
        points = _ttfts(one for one in result.requests if one.kind == kind)
        yield Series(name=kind, points=points, colour=colour, form="dots")
    rest = len(sizes) - len(own)
    if rest:
        points = _ttfts(one for one in result.requests if one.kind not in own)
        yield Series(name=f"{rest} other kinds", points=points, colour=6, form="dots")


def _ttfts(requests: Iterable[Request]) -> list[Point]:
    return [(one.at + one.ttft, one.ttft) for one in requests if one.ttft is not None]


def _unanswered(result: Result, colour: int, name: str = "no answer") -> Iterable[Series]:
    points = [
        (one.end, one.end - one.at)
        for one in result.requests
        if one.tries and one.ending not in (Ending.COMPLETED, Ending.INTERRUPTED)
    ]
    yield Series(name=name, points=points, colour=colour, form="crosses")


def _over_time(samples: Iterable[Sample], attribute: str) -> list[Point]:
    values = ((one.at, getattr(one, attribute)) for one in samples)
    return [(at, float(value)) for at, value in values if value is not None]


def _parked(result: Result) -> list[Series]:
    told = _over_time(result.samples, "held")
    series = [Series(name="by /status.json", points=_over_time(result.samples, "parked"), colour=0)]
    if any(value for _, value in told):
        series.append(Series(name="as clients were told", points=told, colour=1))
    return series


def _engine(result: Result) -> list[Series]:
    names = (
        ("in_engine", "by the gateway's ledger"),
        ("running", "engine's gauge: running"),
        ("waiting", "engine's gauge: waiting"),
        ("truth", "by the simulated engine itself"),
    )
    return [
        Series(
            name=name,
            points=_over_time(result.samples, attribute),
            colour=colour,
            wide=attribute == "in_engine",
        )
        for colour, (attribute, name) in enumerate(names)
    ]


def _queue_bound(result: Result) -> list[Bound]:
    depth = None if result.gate is None else result.gate.max_queue_depth
    gateways = len(result.settings.to)
    of = f" of {gateways} gateways" if gateways > 1 else ""
    return [] if depth is None else [Bound(name=f"maxQueueDepth{of}", y=depth * gateways)]


def _places_bound(result: Result) -> list[Bound]:
    places = None if result.gate is None else result.gate.max_inflight
    return [] if places is None else [Bound(name="maxInflight", y=places)]


def _refused(result: Result) -> list[Series]:
    """Give a line for each reason: how many so far."""
    ends: dict[str, list[float]] = {}
    for request in result.requests:
        for one in request.tries:
            if one.ending is Ending.REFUSED:
                ends.setdefault(one.reason, []).append(one.end)
    series = []
    for colour, reason in enumerate(sorted(ends, key=lambda each: -len(ends[each]))[:6]):
        times = sorted(ends[reason])
        points = [(0.0, 0.0), *((at, float(count)) for count, at in enumerate(times, 1))]
        points.append((result.took, float(len(times))))
        series.append(Series(name=reason, points=points, colour=colour))
    return series


def _places(result: Result) -> list[Point]:
    return [(one.at, float(one.position)) for one in sorted(result.places, key=lambda p: p.at)]
