"""What the pictures of the benches have in common: SVG that is legible by day and by night.

A picture is a card with a title; what stands on it is text, bars and lines of whole markup. Nothing
is loaded from anywhere, and the same figures are the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from xml.sax.saxutils import escape

MARGIN = 20
"""Around what stands on the card."""
BAR_HEIGHT = 9
LEGEND_BAR_WIDTH = 22

_STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328 }
.title { font-size: 15px; font-weight: 600 }
.head { font-weight: 600 }
.small { font-size: 11px; fill: #59636e }
.card { fill: #ffffff; stroke: #d1d9e0 }
.grid { stroke: #d1d9e0 }
"""
_NIGHT = """
  text { fill: #f0f6fc } .small { fill: #9198a1 } .card { fill: #0d1117; stroke: #3d444d }
  .grid { stroke: #3d444d }"""

Place = Callable[[float], float]
"""Where a value stands from the left."""


def style(day: str, night: str) -> str:
    """The style sheet: of all pictures, then of one.

    Args:
        day: rules of its own classes.
        night: what is different of them on a dark page.
    """
    return f"{_STYLE}{day}\n@media (prefers-color-scheme: dark) {{{_NIGHT} {night}\n}}\n"


def document(title: str, sheet: str, width: float, height: float, parts: Iterable[str]) -> str:
    """The whole picture: a card of so many units, with a title, and parts on it."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
            f"<title>{escape(title)}</title><style>{sheet}</style>",
            f'<rect class="card" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="6"/>',
            text(title, MARGIN, 30, kind="title"),
            *parts,
            "</svg>",
            "",
        ]
    )


def text(words: str, x: float, y: float, *, kind: str = "", anchor: str = "") -> str:
    """A line of text; `anchor` is SVG's `text-anchor`, where it is not its start."""
    named = f' class="{kind}"' if kind else ""
    placed = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text{named}{placed} x="{x}" y="{y:g}">{escape(words)}</text>'


def bar(kind: str, left: float, right: float, y: float, height: float) -> str:
    """A bar, or nothing to see of one that ends before it begins."""
    size = f'width="{max(0.0, right - left):.1f}" height="{height:g}"'
    return f'<rect class="{kind}" x="{left}" y="{y:g}" {size}/>'


def scale(
    marks: Iterable[tuple[float, str]], x: Place, *, top: float, bottom: float, labels: float
) -> list[str]:
    """Lines from top to bottom at some values.

    Args:
        marks: the values, and what is written below each.
        x: where a value stands.
        top: where lines begin.
        bottom: where they end.
        labels: where what is written stands.
    """
    parts = []
    for value, words in marks:
        parts.append(f'<path class="grid" d="M{x(value)} {top}V{bottom}"/>')
        parts.append(text(words, x(value), labels, kind="small", anchor="middle"))
    return parts


def legend(entries: Sequence[tuple[str, float, str, int]], y: float) -> list[str]:
    """What bars mean, in a row.

    Args:
        entries: a bar's kind and height, what it means, and the room that this takes.
        y: where the words stand.
    """
    parts, left = [], MARGIN
    for kind, height, words, room in entries:
        right = left + LEGEND_BAR_WIDTH
        parts.append(bar(kind, left, right, y - 4 - height / 2, height))
        parts.append(text(words, right + 6, y, kind="small"))
        left = right + 6 + room
    return parts
