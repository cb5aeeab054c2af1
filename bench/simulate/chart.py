"""A picture of figures as SVG, legible by day and by night."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench import svg
from bench.simulate.spread import Spread, number
from bench.svg import MARGIN

LABEL_WIDTH = 230
PANEL_WIDTH = 215
ROW_HEIGHT = 26
TOP = 78
BOTTOM = 40
GAP = 40
STYLE = svg.style(
    """\
.other { fill: #818b98; stroke: #818b98 }
.ours { fill: #0969da; stroke: #0969da }
circle.out { fill: none; stroke-width: 1.5 }
.range { stroke-width: 3; stroke-linecap: round; stroke-opacity: .45 }""",
    """\
.other { fill: #9198a1; stroke: #9198a1 }
  .ours { fill: #4493f8; stroke: #4493f8 }""",
)


@dataclass(frozen=True, slots=True)
class Bar:
    """One row of a panel.

    Attributes:
        label: what it is.
        seeds: a filled dot at the median, a line between the quartiles.
        held_out: the median as a ring.
        ours: whether it is emphasised.
    """

    label: str
    seeds: Spread
    held_out: Spread
    ours: bool


@dataclass(frozen=True, slots=True)
class Panel:
    """One figure, of everybody."""

    title: str
    bars: Sequence[Bar]


def chart(title: str, panels: Sequence[Panel]) -> str:
    """Draw panels side by side; their rows are the same."""
    rows = len(panels[0].bars)
    width = 2 * MARGIN + LABEL_WIDTH + len(panels) * PANEL_WIDTH + (len(panels) - 1) * GAP
    height = TOP + rows * ROW_HEIGHT + BOTTOM
    parts = [
        svg.text(bar.label, MARGIN, _y(row) + 4, kind="head" if bar.ours else "")
        for row, bar in enumerate(panels[0].bars)
    ]
    for place, panel in enumerate(panels):
        left = MARGIN + LABEL_WIDTH + place * (PANEL_WIDTH + GAP)
        parts += _panel(panel, left, TOP + rows * ROW_HEIGHT)
    words = "dot: median; line: quartiles; ring: median of held-out seeds"
    parts.append(svg.text(words, MARGIN, height - 12, kind="small"))
    return svg.document(title, STYLE, width, height, parts)


def _panel(panel: Panel, left: float, bottom: float) -> list[str]:
    shown = [value for bar in panel.bars for value in (*bar.seeds, bar.held_out.median)]
    top = nice(max((value for value in shown if math.isfinite(value)), default=1.0))

    def x(value: float) -> float:
        return round(left + PANEL_WIDTH * min(1.0, value / top), 1)

    marks = [(part * top, number(part * top)) for part in (0.0, 0.5, 1.0)]
    parts = [svg.text(panel.title, left, TOP - 22, kind="head")]
    parts += svg.scale(marks, x, top=TOP - 8, bottom=bottom, labels=bottom + 14)
    for row, bar in enumerate(panel.bars):
        parts += _bar(bar, row, x)
    return parts


def _bar(bar: Bar, row: int, x: Callable[[float], float]) -> list[str]:
    if math.isnan(bar.seeds.median):
        return []
    y = _y(row)
    kind = "ours" if bar.ours else "other"
    middle, low, high = map(x, bar.seeds)
    parts = [
        f'<path class="{kind} range" d="M{low} {y}H{high}"/>',
        f'<circle class="{kind}" cx="{middle}" cy="{y}" r="4.5"/>',
    ]
    if not math.isnan(bar.held_out.median):
        parts.append(f'<circle class="{kind} out" cx="{x(bar.held_out.median)}" cy="{y}" r="7"/>')
    return parts


def _y(row: int) -> int:
    return TOP + row * ROW_HEIGHT + ROW_HEIGHT // 2


def nice(value: float) -> float:
    """The least round number that is not below a value."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(
        step * power for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 20) if step * power >= value
    )
