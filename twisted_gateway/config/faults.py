"""What is wrong with a configuration: every fault at once, each with its place."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

ENVIRONMENT = "environment"
"""What stands for the file's name in a fault of an environment variable."""
COMMAND_LINE = "command line"
"""What stands for the file's name in a fault of an option."""

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SHOWN_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong.

    Attributes:
        file: the configuration's name, `ENVIRONMENT` or `COMMAND_LINE`.
        line: counted from 1; None where there is none (the environment, an unreadable file).
        path: the key path, such as `models.reasoning.admission.kvThreshold`, or the name of the
            variable or option; empty where the text as a whole is meant.
        expected: what was expected, on one line, without credentials.
    """

    file: str
    line: int | None
    path: str
    expected: str

    def __str__(self) -> str:
        """Give the one line that `--check` prints."""
        parts = [self.file]
        if self.line is not None:
            parts.append(f"line {self.line}")
        if self.path:
            parts.append(self.path)
        return ": ".join([*parts, self.expected])


class ConfigError(Exception):
    """A configuration that cannot be used; its text is one line per fault.

    Attributes:
        faults: all that was found, those of the file first, in the order of its lines.
    """

    def __init__(self, faults: Iterable[Fault]) -> None:
        """Sort and keep `faults`, of which there is at least one."""
        self.faults = tuple(sorted(faults, key=_place))
        super().__init__("\n".join(map(str, self.faults)))


class Wrong(Exception):
    """A value that is not what its place takes; the text says what was expected.

    Raised where the value is judged, and made a `Fault` by whoever knows its line and path.
    """


class Noted(Wrong):
    """A value that is worth nothing, and whose faults are noted already, at places of their own."""

    def __init__(self) -> None:
        """There is nothing more to say."""
        super().__init__("its faults are noted")


def join(path: str, key: str) -> str:
    """Give the path of `key` within the mapping at `path`, quoting names that need it."""
    shown = key if _BARE.fullmatch(key) and len(key) <= _SHOWN_CHARACTERS else quoted(key)
    return f"{path}.{shown}" if path else shown


def quoted(text: str) -> str:
    """Show `text` in quotes, on one line and at a bounded length."""
    if len(text) > _SHOWN_CHARACTERS:
        text = text[:_SHOWN_CHARACTERS] + "..."
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _place(fault: Fault) -> tuple[bool, bool, int]:
    return fault.file in (ENVIRONMENT, COMMAND_LINE), fault.line is None, fault.line or 0
