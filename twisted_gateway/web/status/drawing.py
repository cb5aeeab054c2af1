"""The status page's small pictures, as SVG without style: classes say what is what.

Each has its meaning as text beside it or in its label: shapes tell kinds apart, never colour alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

HEIGHT = 32
MOST_PLACES_DRAWN = 16

_PLACE = 14
_ROOM = 11
"""Of a place's width, what is drawn on."""

Points = Sequence[float | None]


def spark(label: str, *lines: tuple[str, Points], top: float, limit: float | None = None) -> str:
    """Lines over time, oldest point first; the first one stands on a filled ground.

    Args:
        label: what a screen reader says.
        lines: class and points of each; where a point is None the line is broken.
        top: the value at the upper edge.
        limit: where a dashed line lies across, None: nowhere.
    """
    top = max(top, 1e-9)
    drawn = []
    for index, (name, points) in enumerate(lines):
        runs = _runs([None if one is None else _y(one, top) for one in points])
        if index == 0:
            ground = "".join(f"M{run[0][0]} {HEIGHT}L{_line(run)}V{HEIGHT}Z" for run in runs)
            drawn.append(f'<path class="ground {name}" d="{ground}"/>')
        stroke = "".join(f"M{_line(run)}" for run in runs)
        drawn.append(f'<path class="line {name}" d="{stroke}"/>')
    if limit is not None:
        drawn.append(f'<path class=limit d="M0 {_y(limit, top):g}H{len(lines[0][1])}"/>')
    return _chart(label, len(lines[0][1]), "".join(drawn))


def bars(label: str, points: Points, *, top: float) -> str:
    """A bar for each point that is not zero."""
    tall = "".join(
        f"M{x} {HEIGHT}V{_y(one, max(top, 1e-9)):g}h1V{HEIGHT}Z"
        for x, one in enumerate(points)
        if one
    )
    return _chart(label, len(points), f'<path class=bars d="{tall}"/>')


def share(part: float) -> str:
    """A level bar, for a share from 0 to 1 that stands beside it as text."""
    width = max(0, min(100, round(100 * part)))
    return (
        f'<svg class=level aria-hidden=true><rect width="100%" height="100%" class=back />'
        f'<rect width="{width}%" height="100%" class=full /></svg>'
    )


def places(own: int, peers: int, foreign: int, limit: int) -> str:
    """An engine's places: filled, hatched and dotted squares are taken, hollow ones are free.

    Args:
        own: taken by this gateway.
        peers: by its replicas.
        foreign: by others.
        limit: how many there are; what is taken beyond them is drawn too.
    """
    taken = own + peers + foreign
    if max(taken, limit) > MOST_PLACES_DRAWN:
        return share(taken / limit)
    kinds = ["own"] * own + ["peer"] * peers + ["foreign"] * foreign
    kinds += ["free"] * (limit - taken)
    squares = "".join(_square(kind, index * _PLACE) for index, kind in enumerate(kinds))
    width = len(kinds) * _PLACE
    return f"<svg class=places width={width} height={_PLACE} aria-hidden=true>{squares}</svg>"


def _square(kind: str, x: int) -> str:
    square = f"<rect class={kind} x={x + 1} y=1 width={_ROOM} height={_ROOM} rx=2 />"
    if kind == "peer":
        lines = f"M{x + 1} 12L{x + 12} 1M{x + 1} 6.5L{x + 6.5} 1M{x + 6.5} 12L{x + 12} 6.5"
        return f'{square}<path class=hatch d="{lines}"/>'
    if kind == "foreign":
        return f"{square}<circle class=dot cx={x + 6.5} cy=6.5 r=2.5 />"
    return square


def _chart(label: str, width: int, inside: str) -> str:
    return (
        f'<svg class=spark role=img viewBox="0 0 {width} {HEIGHT}" preserveAspectRatio=none '
        f'aria-label="{escape(label)}">{inside}</svg>'
    )


def _y(value: float, top: float) -> float:
    """The height of a value; a pixel is left at both edges, for the line's own width."""
    high = HEIGHT - 1 - (HEIGHT - 2) * max(0.0, min(1.0, value / top))
    return round(high, 1)


def _runs(heights: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    """The stretches without a gap, each with its first and last point and those of every turn."""
    runs: list[list[tuple[int, float]]] = []
    fresh = True
    for x, height in enumerate(heights):
        if height is None:
            fresh = True
            continue
        if fresh:
            # A single point has a width too.
            runs.append([(x, height)])
            fresh = False
        runs[-1].append((x + 1, height))
    return [_corners(run) for run in runs]


def _corners(run: list[tuple[int, float]]) -> list[tuple[int, float]]:
    inner = (
        point
        for before, point, after in zip(run, run[1:], run[2:], strict=False)
        if not before[1] == point[1] == after[1]
    )
    return [run[0], *inner, run[-1]]


def _line(run: Sequence[tuple[int, float]]) -> str:
    return "L".join(f"{x} {height:g}" for x, height in run)
