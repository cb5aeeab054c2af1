"""What the parameters of several services look like: names, numbers, text. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable

from twisted_gateway.services.adapter import BadParameter

_CONTROL = re.compile(r"[\0-\x1f\x7f]")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


def line(most_characters: int) -> Callable[[str], str]:
    """Make what takes a line of text, without control characters."""

    def take(text: str) -> str:
        if len(text) > most_characters or _CONTROL.search(text):
            raise BadParameter(f"at most {most_characters} characters, none a control character")
        return text

    return take


def long_text(most_characters: int) -> Callable[[str], str]:
    """Make what takes text of several lines."""

    def take(text: str) -> str:
        if len(text) > most_characters or "\0" in text:
            raise BadParameter(f"at most {most_characters} characters, none of them NUL")
        return text

    return take


def name(most_characters: int) -> Callable[[str], str]:
    """Make what takes a name that is one segment of a path wherever it stands."""

    def take(text: str) -> str:
        if len(text) > most_characters or not _NAME.fullmatch(text):
            raise BadParameter(
                f"at most {most_characters} letters, digits, '.', '_' and '-', the first of them "
                "no '.' or '-'"
            )
        return text

    return take


def whole(least: int, most: int) -> Callable[[str], str]:
    """Make what takes a whole number of a range."""

    def take(text: str) -> str:
        digits = text.isascii() and text.isdecimal() and len(text) <= 18
        if not digits or not least <= int(text) <= most:
            raise BadParameter(f"a whole number from {least} to {most}")
        return str(int(text))

    return take


def flag(text: str) -> str:
    """Take `true` or `false`.

    Raises:
        BadParameter: it is neither.
    """
    if text not in ("true", "false"):
        raise BadParameter("true or false")
    return text
