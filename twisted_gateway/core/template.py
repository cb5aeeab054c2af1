"""Texts with places that an event fills in: `push to {repository[full_name]}`.

A place names a member of the event, then members and items of that in brackets. It reaches JSON's
objects and arrays and nothing else: unlike `str.format` it knows no attributes, no conversions and
no format specifications. `{{` and `}}` stand for braces.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

MAX_RENDERED_CHARACTERS = 65_536
"""The longest text that comes of a template."""

_PIECE = re.compile(
    r"(?P<text>[^{}]+)|(?P<brace>\{\{|\}\})"
    r"|\{(?P<path>[A-Za-z0-9_-]+(?:\[[A-Za-z0-9_-]+\])*)\}"
)
_STEP = re.compile(r"[A-Za-z0-9_-]+")

Path = tuple[str, ...]


class BadTemplate(ValueError):
    """A text is no template; the message says what was expected."""


class Unfilled(Exception):
    """An event does not have what a template wants of it; the message says what."""


@dataclass(frozen=True, slots=True)
class Template:
    """A template, read.

    Attributes:
        text: as it was written.
        pieces: texts as they are, and paths of what is put between them.
    """

    text: str
    pieces: tuple[str | Path, ...]

    def __str__(self) -> str:
        """Give it as it was written."""
        return self.text


def parse(text: str) -> Template:
    """Read a template.

    Raises:
        BadTemplate: it is none.
    """
    pieces: list[str | Path] = []
    at = 0
    while at < len(text):
        found = _PIECE.match(text, at)
        if found is None:
            raise BadTemplate(
                "expected places such as {repository[full_name]}, and {{ or }} for braces"
            )
        at = found.end()
        if found["path"]:
            pieces.append(tuple(_STEP.findall(found["path"])))
        else:
            pieces.append(found["text"] or found["brace"][0])
    return Template(text, tuple(pieces))


def render(template: Template, event: Any) -> str:
    """Fill a template in.

    Args:
        template: the template.
        event: a tree of JSON.

    Raises:
        Unfilled: what a place names is not there, or is an object or an array; or the text would
            be too long, or hold half of a surrogate pair, which is no text anybody could be sent.
    """
    text = "".join(
        piece if isinstance(piece, str) else _text(_find(piece, event), piece)
        for piece in template.pieces
    )
    if len(text) > MAX_RENDERED_CHARACTERS:
        raise Unfilled(f"the text would have more than {MAX_RENDERED_CHARACTERS} characters")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise Unfilled("the text would hold half of a surrogate pair") from None
    return text


def _find(path: Path, event: Any) -> Any:
    value = event
    for step in path:
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdecimal() and int(step[:9]) < len(value):
            value = value[int(step[:9])]
        else:
            raise Unfilled(f"the event has no {_shown(path)}")
    return value


def _text(value: Any, path: Path) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    raise Unfilled(f"{_shown(path)} of the event is no single value")


def _shown(path: Path) -> str:
    first, *rest = path
    return first + "".join(f"[{step}]" for step in rest)
