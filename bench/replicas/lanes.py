"""A picture of who waited and who was served: a lane for each request, panels side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

PANEL_WIDTH = 280
LANE_HEIGHT = 15
BAR_HEIGHT = 9
MARGIN = 20
LABEL_WIDTH = 34
GAP = 24
TOP = 92
BOTTOM = 66
LEGEND_WIDTH = 960
STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328 }
.title { font-size: 15px; font-weight: 600 }
.head { font-weight: 600 }
.small { font-size: 11px; fill: #59636e }
.card { fill: #ffffff; stroke: #d1d9e0 }
.grid { stroke: #d1d9e0 }
.waits { fill: #afb8c1 }
.answers { fill: #0969da }
.lost { fill: #ff8182 }
.spoilt { fill: #cf222e }
.cross { stroke: #cf222e; stroke-width: 2; fill: none }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .small { fill: #9198a1 } .card { fill: #0d1117; stroke: #3d444d }
  .grid { stroke: #3d444d } .waits { fill: #656c76 } .answers { fill: #4493f8 }
  .lost { fill: #8e1519 } .spoilt { fill: #f85149 } .cross { stroke: #f85149 }
}
"""


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
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f'<rect class="card" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="6"/>',
        f'<text class="title" x="{MARGIN}" y="30">{escape(title)}</text>',
    ]
    for place, panel in enumerate(panels):
        parts += _panel(panel, MARGIN + place * step, bottom, seconds)
    return "\n".join([*parts, *_legend(height - 16), "</svg>", ""])


def _panel(panel: Panel, left: int, bottom: int, seconds: float) -> list[str]:
    start = left + LABEL_WIDTH

    def x(at: float) -> float:
        return round(start + PANEL_WIDTH * min(1.0, at / seconds), 1)

    told = f"{panel.answered} of {len(panel.lanes)} answered"
    parts = [
        f'<text class="head" x="{left}" y="58">{escape(panel.title)}</text>',
        f'<text x="{left}" y="76">{told}</text>',
    ]
    for at in range(0, round(seconds) + 1, 200):
        parts.append(f'<path class="grid" d="M{x(at)} {TOP - 6}V{bottom + 2}"/>')
        parts.append(
            f'<text class="small" text-anchor="middle" x="{x(at)}" y="{bottom + 17}">{at} s</text>'
        )
    for row, lane in enumerate(sorted(panel.lanes, key=_order)):
        y = TOP + row * LANE_HEIGHT + (LANE_HEIGHT - BAR_HEIGHT) / 2
        parts.append(
            f'<text class="small" text-anchor="end" x="{start - 6}" y="{y + BAR_HEIGHT:g}">'
            f"{escape(lane.label)}</text>"
        )
        parts += _lane(lane, y, x)
    return parts


def _lane(lane: Lane, y: float, x: Callable[[float], float]) -> list[str]:
    """Thin while it waits, thick while it is answered; a cross where it ends with no answer."""
    first = lane.end if lane.first is None else lane.first
    waits, answers = ("waits", "answers") if lane.answered else ("lost", "spoilt")
    parts = [_bar(waits, x(lane.at), x(first), y + BAR_HEIGHT / 3, BAR_HEIGHT / 3)]
    if lane.first is not None:
        # However short an answer is, it is to be seen.
        parts.append(_bar(answers, x(first), max(x(lane.end), x(first) + 2), y, BAR_HEIGHT))
    if not lane.answered:
        middle, half = y + BAR_HEIGHT / 2, BAR_HEIGHT / 2 - 0.5
        left, right = x(lane.end) - half, x(lane.end) + half
        parts.append(
            f'<path class="cross" d="M{left:g} {middle - half:g}L{right:g} {middle + half:g}'
            f'M{left:g} {middle + half:g}L{right:g} {middle - half:g}"/>'
        )
    return parts


def _bar(kind: str, left: float, right: float, y: float, height: float) -> str:
    size = f'width="{max(0.0, right - left):.1f}" height="{height:g}"'
    return f'<rect class="{kind}" x="{left}" y="{y:g}" {size}/>'


def _legend(y: int) -> list[str]:
    parts, x = [], MARGIN
    for kind, height, words, room in (
        ("waits", BAR_HEIGHT / 3, "waits for its first token", 182),
        ("answers", BAR_HEIGHT, "is being answered", 150),
        ("lost", BAR_HEIGHT / 3, "waits, and is never answered", 204),
        ("spoilt", BAR_HEIGHT, "has begun to be answered when its client leaves", 0),
    ):
        parts.append(_bar(kind, x, x + 22, y - 4 - height / 2, height))
        parts.append(f'<text class="small" x="{x + 28}" y="{y}">{words}</text>')
        x += 28 + room
    return parts


def _order(lane: Lane) -> tuple[float, float, float]:
    return (math.inf if lane.first is None else lane.first, lane.end, lane.at)
