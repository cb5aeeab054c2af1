"""The picture: a lane for each request, one panel without the gateway and one with it."""

from __future__ import annotations

import math

from bench import svg
from bench.mid.report import WAYS, Measurement, Run, typical
from bench.mid.scene import LONG, SCENES, Answer
from bench.svg import BAR_HEIGHT, MARGIN

PANEL_WIDTH = 330
LANE_HEIGHT = 17
LABEL_WIDTH = 40
GAP = 40
TOP = 46
HEAD = 54
FOOT = 44
BOTTOM = 34
TICKS = (10, 20, 50, 100, 200, 500)
MOST_TICKS = 6
STYLE = svg.style(
    """\
.waits { fill: #afb8c1 }
.short { fill: #0969da }
.long { fill: #bc4c00 }""",
    """\
.waits { fill: #656c76 } .short { fill: #4493f8 }
  .long { fill: #f0883e }""",
)
LEGEND = (
    ("waits", BAR_HEIGHT / 3, "waits for its first token", 160),
    ("short", BAR_HEIGHT, "a short one is being answered", 190),
    ("long", BAR_HEIGHT, "a long one is; the figures on the left are prompt tokens", 0),
)
TITLE = "Two long prompts, and six short ones just behind them, on a vLLM that runs four"


def picture(measurement: Measurement) -> str:
    """Draw each scene's typical runs, without the gateway and with it, over the same time."""
    scenes = [[typical(measurement, scene, way) for way in WAYS] for scene in measurement.scenes]
    lanes = max(len(run.answers) for runs in scenes for run in runs)
    row_height = HEAD + lanes * LANE_HEIGHT + FOOT
    step = LABEL_WIDTH + PANEL_WIDTH + GAP
    width = 2 * MARGIN + len(WAYS) * step - GAP
    height = TOP + len(scenes) * row_height + BOTTOM
    parts = []
    for row, runs in enumerate(scenes):
        end = max(answer.end for run in runs for answer in run.answers)
        for column, run in enumerate(runs):
            parts += _panel(run, MARGIN + column * step, TOP + row * row_height, end)
    parts += svg.legend(LEGEND, height - 16)
    return svg.document(TITLE, STYLE, width, height, parts)


def _panel(run: Run, left: int, top: int, end: float) -> list[str]:
    start, first = left + LABEL_WIDTH, top + HEAD
    bottom = first + len(run.answers) * LANE_HEIGHT
    # The seconds behind a bar are written to its right.
    scale = (PANEL_WIDTH - 40) / end

    def x(at: float) -> float:
        return round(start + at * scale, 1)

    way, found = WAYS[run.way].capitalize(), SCENES[run.scene].words
    tick = next((tick for tick in TICKS if end / tick <= MOST_TICKS), math.ceil(end))
    marks = [(at, f"{at} s") for at in range(0, int(end) + 1, tick)]
    parts = [
        svg.text(way, left, top + 20, kind="head"),
        svg.text(found, left, top + 38),
        *svg.scale(marks, x, top=first - 6, bottom=bottom + 2, labels=bottom + 17),
    ]
    for number, answer in enumerate(sorted(run.answers, key=_order)):
        parts += _lane(answer, start, first + number * LANE_HEIGHT, x)
    return parts


def _lane(answer: Answer, start: int, top: int, x: svg.Place) -> list[str]:
    """Thin while it waits for its first token, thick while it is answered."""
    y = top + (LANE_HEIGHT - BAR_HEIGHT) / 2
    begun, ended = x(answer.first), x(answer.end)
    # However short an answer is, it is to be seen.
    ended = max(ended, begun + 2)
    size, took = f"{answer.prompt_tokens:,}", f"{answer.completion:.0f} s"
    return [
        svg.text(size, start - 6, y + BAR_HEIGHT, kind="small", anchor="end"),
        svg.bar("waits", x(answer.at), begun, y + BAR_HEIGHT / 3, BAR_HEIGHT / 3),
        svg.bar(answer.kind, begun, ended, y, BAR_HEIGHT),
        svg.text(took, round(ended + 4, 1), y + BAR_HEIGHT, kind="small"),
    ]


def _order(answer: Answer) -> tuple[bool, float]:
    return answer.kind != LONG, answer.end
