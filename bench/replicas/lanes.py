"""A picture of who waited and who was served: a lane for each request, panels side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bench import svg
from bench.svg import BAR_HEIGHT, MARGIN

PANEL_WIDTH = 280
LANE_HEIGHT = 15
LABEL_WIDTH = 34
GAP = 24
TOP = 92
BOTTOM = 66
LEGEND_WIDTH = 960
STYLE = svg.style(
    """\
.waits { fill: #afb8c1 }
.answers { fill: #0969da }
.lost { fill: #ff8182 }
.spoilt { fill: #cf222e }
.cross { stroke: #cf222e; stroke-width: 2; fill: none }""",
    """\
.waits { fill: #656c76 } .answers { fill: #4493f8 }
  .lost { fill: #8e1519 } .spoilt { fill: #f85149 } .cross { stroke: #f85149 }""",
)
LEGEND = (
    ("waits", BAR_HEIGHT / 3, "waits for its first token", 182),
    ("answers", BAR_HEIGHT, "is being answered", 150),
    ("lost", BAR_HEIGHT / 3, "waits, and is never answered", 204),
    ("spoilt", BAR_HEIGHT, "has begun to be answered when its client leaves", 0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """What became of one request. Times are seconds from the start.

    Attributes:
        label: what it is; short.
        at: when it first asked.
        first: when its first token came, at its last try; None: none ever did.
        end: when it was answered whole, or left for good.
        answered: whether it was answered whole.
    """

    label: str
    at: float
    first: float | None
    end: float
    answered: bool


@dataclass(frozen=True, slots=True)
class Panel:
    """What became of all requests in one way of serving them."""

    title: str
    lanes: Sequence[Lane]

    @property
    def answered(self) -> int:
        """How many were answered whole."""
        return sum(lane.answered for lane in self.lanes)


def picture(title: str, panels: Sequence[Panel]) -> str:
    """Draw panels side by side, over the same time; lanes in the order of their first tokens."""
    end = max(lane.end for panel in panels for lane in panel.lanes)
    seconds = 20.0 * math.ceil(end / 20)
    rows = max(len(panel.lanes) for panel in panels)
    bottom = TOP + rows * LANE_HEIGHT
    step = LABEL_WIDTH + PANEL_WIDTH + GAP
    width = max(LEGEND_WIDTH, 2 * MARGIN + len(panels) * step - GAP)
    height = bottom + BOTTOM
    parts = [
        part
        for place, panel in enumerate(panels)
        for part in _panel(panel, MARGIN + place * step, bottom, seconds)
    ]
    parts += svg.legend(LEGEND, height - 16)
    return svg.document(title, STYLE, width, height, parts)


def _panel(panel: Panel, left: int, bottom: int, seconds: float) -> list[str]:
    start = left + LABEL_WIDTH

    def x(at: float) -> float:
        return round(start + PANEL_WIDTH * min(1.0, at / seconds), 1)

    told = f"{panel.answered} of {len(panel.lanes)} answered"
    marks = [(at, f"{at} s") for at in range(0, round(seconds) + 1, 200)]
    parts = [
        svg.text(panel.title, left, 58, kind="head"),
        svg.text(told, left, 76),
        *svg.scale(marks, x, top=TOP - 6, bottom=bottom + 2, labels=bottom + 17),
    ]
    for row, lane in enumerate(sorted(panel.lanes, key=_order)):
        y = TOP + row * LANE_HEIGHT + (LANE_HEIGHT - BAR_HEIGHT) / 2
        parts.append(svg.text(lane.label, start - 6, y + BAR_HEIGHT, kind="small", anchor="end"))
        parts += _lane(lane, y, x)
    return parts


def _lane(lane: Lane, y: float, x: svg.Place) -> list[str]:
    """Thin while it waits, thick while it is answered; a cross where it ends with no answer."""
    first = lane.end if lane.first is None else lane.first
    waits, answers = ("waits", "answers") if lane.answered else ("lost", "spoilt")
    parts = [svg.bar(waits, x(lane.at), x(first), y + BAR_HEIGHT / 3, BAR_HEIGHT / 3)]
    if lane.first is not None:
        # However short an answer is, it is to be seen.
        parts.append(svg.bar(answers, x(first), max(x(lane.end), x(first) + 2), y, BAR_HEIGHT))
    if not lane.answered:
        middle, half = y + BAR_HEIGHT / 2, BAR_HEIGHT / 2 - 0.5
        left, right = x(lane.end) - half, x(lane.end) + half
        parts.append(
            f'<path class="cross" d="M{left:g} {middle - half:g}L{right:g} {middle + half:g}'
            f'M{left:g} {middle + half:g}L{right:g} {middle - half:g}"/>'
        )
    return parts


def _order(lane: Lane) -> tuple[float, float, float]:
    return (math.inf if lane.first is None else lane.first, lane.end, lane.at)
