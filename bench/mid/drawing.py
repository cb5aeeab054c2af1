"""The picture: a lane for each request, one panel without the gateway and one with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from xml.sax.saxutils import escape

from bench.mid.report import WAYS, Measurement, Run, typical
from bench.mid.scene import LONG, SCENES, Answer

PANEL_WIDTH = 330
LANE_HEIGHT = 17
BAR_HEIGHT = 9
MARGIN = 20
LABEL_WIDTH = 40
GAP = 40
TOP = 46
HEAD = 54
FOOT = 44
BOTTOM = 34
TICKS = (10, 20, 50, 100, 200, 500)
MOST_TICKS = 6
STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328 }
.title { font-size: 15px; font-weight: 600 }
.head { font-weight: 600 }
.small { font-size: 11px; fill: #59636e }
.card { fill: #ffffff; stroke: #d1d9e0 }
.grid { stroke: #d1d9e0 }
.waits { fill: #afb8c1 }
.short { fill: #0969da }
.long { fill: #bc4c00 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .small { fill: #9198a1 } .card { fill: #0d1117; stroke: #3d444d }
  .grid { stroke: #3d444d } .waits { fill: #656c76 } .short { fill: #4493f8 }
  .long { fill: #f0883e }
}
"""
TITLE = "Two long prompts, and six short ones just behind them, on a vLLM that runs four"


def picture(measurement: Measurement) -> str:
    """Draw each scene's typical runs, without the gateway and with it, over the same time."""
    scenes = [[typical(measurement, scene, way) for way in WAYS] for scene in measurement.scenes]
    lanes = max(len(run.answers) for runs in scenes for run in runs)
    row_height = HEAD + lanes * LANE_HEIGHT + FOOT
    step = LABEL_WIDTH + PANEL_WIDTH + GAP
    width = 2 * MARGIN + len(WAYS) * step - GAP
    height = TOP + len(scenes) * row_height + BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        f"<title>{escape(TITLE)}</title><style>{STYLE}</style>",
        f'<rect class="card" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="6"/>',
        f'<text class="title" x="{MARGIN}" y="30">{escape(TITLE)}</text>',
    ]
    for row, runs in enumerate(scenes):
        end = max(answer.end for run in runs for answer in run.answers)
        for column, run in enumerate(runs):
            parts += _panel(run, MARGIN + column * step, TOP + row * row_height, end)
    return "\n".join([*parts, *_legend(height - 16), "</svg>", ""])


def _panel(run: Run, left: int, top: int, end: float) -> list[str]:
    start, first = left + LABEL_WIDTH, top + HEAD
    bottom = first + len(run.answers) * LANE_HEIGHT
    # The seconds behind a bar are written to its right.
    scale = (PANEL_WIDTH - 40) / end

    def x(at: float) -> float:
        return round(start + at * scale, 1)

    way, found = WAYS[run.way].capitalize(), SCENES[run.scene].words
    parts = [
        f'<text class="head" x="{left}" y="{top + 20}">{escape(way)}</text>',
        f'<text x="{left}" y="{top + 38}">{escape(found)}</text>',
    ]
    tick = next((tick for tick in TICKS if end / tick <= MOST_TICKS), math.ceil(end))
    for at in range(0, int(end) + 1, tick):
        parts.append(f'<path class="grid" d="M{x(at)} {first - 6}V{bottom + 2}"/>')
        parts.append(
            f'<text class="small" text-anchor="middle" x="{x(at)}" y="{bottom + 17}">{at} s</text>'
        )
    for number, answer in enumerate(sorted(run.answers, key=_order)):
        parts += _lane(answer, start, first + number * LANE_HEIGHT, x)
    return parts


def _lane(answer: Answer, start: int, top: int, x: Callable[[float], float]) -> list[str]:
    """Thin while it waits for its first token, thick while it is answered."""
    y = top + (LANE_HEIGHT - BAR_HEIGHT) / 2
    begun, ended = x(answer.first), x(answer.end)
    # However short an answer is, it is to be seen.
    ended = max(ended, begun + 2)
    size = f"{answer.prompt_tokens:,}"
    return [
        f'<text class="small" text-anchor="end" x="{start - 6}" y="{y + BAR_HEIGHT:g}">'
        f"{size}</text>",
        _bar("waits", x(answer.at), begun, y + BAR_HEIGHT / 3, BAR_HEIGHT / 3),
        _bar(answer.kind, begun, ended, y, BAR_HEIGHT),
        f'<text class="small" x="{ended + 4:.1f}" y="{y + BAR_HEIGHT:g}">'
        f"{answer.completion:.0f} s</text>",
    ]


def _bar(kind: str, left: float, right: float, y: float, height: float) -> str:
    size = f'width="{max(0.0, right - left):.1f}" height="{height:g}"'
    return f'<rect class="{kind}" x="{left}" y="{y:g}" {size}/>'


def _legend(y: int) -> list[str]:
    parts, x = [], MARGIN
    told: Sequence[tuple[str, float, str, int]] = (
        ("waits", BAR_HEIGHT / 3, "waits for its first token", 160),
        ("short", BAR_HEIGHT, "a short one is being answered", 190),
        ("long", BAR_HEIGHT, "a long one is; the figures on the left are prompt tokens", 0),
    )
    for kind, height, words, room in told:
        parts.append(_bar(kind, x, x + 22, y - 4 - height / 2, height))
        parts.append(f'<text class="small" x="{x + 28}" y="{y}">{words}</text>')
        x += 28 + room
    return parts


def _order(answer: Answer) -> tuple[bool, float]:
    return answer.kind != LONG, answer.end
