"""Plain text for terminals of any width, for files and for pipes."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from typing import TextIO

USUAL_COLUMNS = 80
"""Of a terminal that does not say how wide it is."""
_LEAST_COLUMNS = 20
_BETWEEN = "  "

Rows = Sequence[Sequence[str]]


def columns(stream: TextIO) -> int | None:
    """Give how wide the terminal is that a stream writes to; None where it writes to none."""
    if not stream.isatty():
        return None
    try:
        wide = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        wide = 0
    return max(wide, _LEAST_COLUMNS) if wide else USUAL_COLUMNS


def plain(text: str) -> str:
    """Keep a server's words from steering the terminal, or from turning a line's direction."""
    return "".join(char if char.isprintable() or char == "\n" else " " for char in text)


def grid(rows: Rows, wide: int | None = None) -> str:
    """Align cells in columns: the first to the left, the others to the right.

    Args:
        rows: the first has the heads; all are of one length.
        wide: how wide it may be; a grid that is wider is turned on its side and told in parts,
            each with its heads in the first column.
    """
    lines = _aligned(rows)
    if wide is None or max(map(len, lines)) <= wide:
        return "\n".join(lines)
    head, *others = rows
    parts, start = [], 0
    while start < len(others):
        end = start + 1
        while end < len(others) and _fits([head, *others[start : end + 1]], wide):
            end += 1
        parts.append("\n".join(_turned([head, *others[start:end]])))
        start = end
    return "\n\n".join(parts)


def wrapped(text: str, wide: int | None = None) -> str:
    """Break lines that are wider; what goes on is indented by two more than its beginning."""
    if wide is None:
        return text
    lines = []
    for line in text.split("\n"):
        indent = " " * (len(line) - len(line.lstrip()))
        lines += textwrap.wrap(line, wide, subsequent_indent=f"{indent}  ") or [""]
    return "\n".join(lines)


def _fits(rows: Rows, wide: int) -> bool:
    return max(map(len, _turned(rows))) <= wide


def _turned(rows: Rows) -> list[str]:
    return _aligned(list(zip(*rows, strict=True)))


def _aligned(rows: Rows) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *rest in rows:
        cells = [first.ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        lines.append(_BETWEEN.join(cells).rstrip())
    return lines
