"""Plots as inline SVG: no script, no font, no file beside the page; colours come from its style.

Everything is bounded: a line has at most `MAX_POINTS` points, dots are thinned to `MAX_DOTS`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from twisted_gateway.console.terminal import plain

MAX_POINTS = 1500
MAX_DOTS = 3000
COLOURS = 7
"""The style sheet has so many: `--c0` to `--c6`."""

_WIDTH, _HEIGHT = 760, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 12, 34
_MAX_NAME_CHARS = 40

Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Something to draw.

    Attributes:
        name: in the legend.
        points: in the order of their x.
        colour: which of the style's.
        form: `line` (steps: a value holds until the next), `dots` or `crosses`.
        wide: a line that shows beneath another one.
    """

    name: str
    points: Sequence[Point]
    colour: int
    form: str = "line"
    wide: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A horizontal line that means something."""

    name: str
    y: float


def plot(
    title: str,
    series: Sequence[Series],
    *,
    x_max: float,
    y_name: str,
    absent: str,
    bounds: Sequence[Bound] = (),
) -> str:
    """Draw one figure.

    Args:
        title: its caption.
        series: what to draw; with no point in any, `absent` is said instead.
        x_max: seconds that the x axis reaches.
        y_name: what y is.
        absent: why there may be nothing.
        bounds: lines across, drawn where they fit the scale of the rest.
    """
    unit, unit_name = _time_unit(x_max)
    # What the axes are stands outside the picture, where it wraps on a narrow screen.
    axes = f"{y_name}; by {unit_name} from the start"
    head = f"<figure><figcaption>{escape(title)} <small>{escape(axes)}</small></figcaption>"
    if not any(one.points for one in series):
        return f"{head}<p class=absent>{escape(absent)}</p></figure>"
    highest = max(y for one in series for _, y in one.points)
    near = [bound for bound in bounds if bound.y <= max(2 * highest, 4)]
    counts = all(y == int(y) for one in series for _, y in one.points)
    y_ticks = ticks(
        max([highest, *(1.05 * bound.y for bound in near)]), least_step=1.0 if counts else 0.0
    )
    scale = _Scale(x_max=max(x_max, 1e-9), y_max=y_ticks[-1])
    drawn = [_axes(scale, y_ticks, unit)]
    drawn += [_bound(scale, bound) for bound in near]
    drawn += [_drawn(scale, one) for one in series if one.points]
    legend = "".join(_legend(one) for one in series if one.points)
    return (
        f"{head}<div class=legend>{legend}</div>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role=img aria-label="{escape(title)}">'
        f"{''.join(drawn)}</svg></figure>"
    )


def ticks(most: float, count: int = 5, *, least_step: float = 0.0) -> list[float]:
    """Give round values from 0 to one that is at least `most`, in about `count` steps."""
    rough = (most if most > 0 else 1.0) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    step = max(step, least_step)
    steps = max(1, math.ceil(most / step - 1e-9))
    return [round(step * index, 9) for index in range(steps + 1)]


def thinned(points: Sequence[Point], most: int) -> Sequence[Point]:
    """Give at most about `most` of the points: of each stretch the highest."""
    if len(points) <= most:
        return points
    size = math.ceil(len(points) / most)
    stretches = (points[start : start + size] for start in range(0, len(points), size))
    return [max(stretch, key=lambda point: point[1]) for stretch in stretches]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scale:
    x_max: float
    y_max: float

    def x(self, value: float) -> str:
        inside = min(max(value, 0.0), self.x_max) / self.x_max
        return f"{_LEFT + inside * (_WIDTH - _LEFT - _RIGHT):.1f}"

    def y(self, value: float) -> str:
        inside = min(max(value, 0.0), self.y_max) / (self.y_max or 1.0)
        return f"{_HEIGHT - _BOTTOM - inside * (_HEIGHT - _TOP - _BOTTOM):.1f}"


def _time_unit(seconds: float) -> tuple[float, str]:
    """Give what a time axis of so many seconds counts in, and its name."""
    return (60.0, "minutes") if seconds > 1200 else (1.0, "seconds")


def _axes(scale: _Scale, y_ticks: Iterable[float], unit: float) -> str:
    parts = []
    for value in y_ticks:
        y = scale.y(value)
        parts.append(
            f'<path class=grid d="M{_LEFT} {y}H{_WIDTH - _RIGHT}"/>'
            f"<text class=tick x={_LEFT - 7} y={y} dy=.32em text-anchor=end>{value:,g}</text>"
        )
    for value in ticks(scale.x_max / unit, 8):
        if value * unit <= scale.x_max:
            parts.append(
                f"<text class=tick x={scale.x(value * unit)} y={_HEIGHT - _BOTTOM + 22} "
                f"text-anchor=middle>{value:,g}</text>"
            )
    return "".join(parts)


def _bound(scale: _Scale, bound: Bound) -> str:
    y = scale.y(bound.y)
    return (
        f'<path class=bound d="M{_LEFT} {y}H{_WIDTH - _RIGHT}"/>'
        f"<text class=tick x={_WIDTH - _RIGHT} y={y} dy=-.35em text-anchor=end>"
        f"{escape(bound.name)}</text>"
    )


def _drawn(scale: _Scale, series: Series) -> str:
    style = f"style=--c:var(--c{series.colour % COLOURS})"
    if series.form == "line":
        kind = '"line wide"' if series.wide else "line"
        return f'<path class={kind} {style} d="{_steps(scale, series.points)}"/>'
    points = thinned(series.points, MAX_DOTS)
    if series.form == "dots":
        # A line of no length with a round end is a dot; one path for all keeps the page small.
        marks = "".join(f"M{scale.x(x)} {scale.y(y)}h0" for x, y in points)
        return f'<path class=dots {style} d="{marks}"/>'
    marks = "".join(f"M{scale.x(x)} {scale.y(y)}m-3 -3l6 6m0 -6l-6 6" for x, y in points)
    return f'<path class=crosses {style} d="{marks}"/>'


def _steps(scale: _Scale, points: Sequence[Point]) -> str:
    first, *rest = thinned(points, MAX_POINTS)
    path = [f"M{scale.x(first[0])} {scale.y(first[1])}"]
    path += [f"H{scale.x(x)}V{scale.y(y)}" for x, y in rest]
    return "".join(path)


def _legend(series: Series) -> str:
    name = plain(series.name)
    if len(name) > _MAX_NAME_CHARS:
        name = name[: _MAX_NAME_CHARS - 1] + "…"
    mark = {"line": "━", "dots": "●", "crosses": "✕"}[series.form]
    return (
        f"<span><b style=color:var(--c{series.colour % COLOURS})>{mark}</b> {escape(name)}</span>"
    )
