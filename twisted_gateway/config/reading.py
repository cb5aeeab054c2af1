"""Reading one file: what every kind of value shares, whatever it is.

A kind reads a value from the file, describes it in JSON Schema, and gives it back in the file's
own form; `kinds.py` has those of single values, `sections.py` those that hold others, and
`keys.py` says which key takes which.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from twisted_gateway.config.expand import expand
from twisted_gateway.config.faults import Fault, Noted, Wrong, join
from twisted_gateway.config.source import Node, Scalar

Schema = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class Reading:
    """One reading of one file: what it needs from outside, and what it has found wrong.

    Attributes:
        read_file: gives the text of a mounted secret; raises OSError or ValueError.
        options: option of the command line -> its value as a variable would have it.
    """

    name: str
    environ: Mapping[str, str]
    read_file: Callable[[str], str]
    options: Mapping[str, str] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def fault(self, line: int, path: str, expected: str) -> None:
        """Note what was expected at `path`."""
        self.faults.append(Fault(self.name, line, path, expected))

    def faulty(self, path: str) -> bool:
        """Say whether anything wrong was found at `path`, within it, or with all that it is in."""
        return any(_within(one.path, path) or _within(path, one.path) for one in self.faults)

    def origin(self, given: Given) -> str:
        """Name the place in the file that gives a value."""
        return f"{self.name} line {given.line}"

    def expand(self, node: Scalar) -> Scalar:
        """Put the environment into a text; `Wrong` where that fails."""
        if "$" not in node.text:
            return node
        text = expand(node.text, self.environ)
        return replace(node, text=text, expanded="${" in node.text)


@dataclass(frozen=True, slots=True)
class Given:
    """A valid value that the file gives, and where."""

    value: Any
    line: int
    path: str

    @property
    def bare(self) -> Any:
        """The value alone, where it is a list or a mapping without the places of what it holds."""
        if isinstance(self.value, tuple):
            return tuple(one.bare for one in self.value)
        if isinstance(self.value, dict):
            return {name: one.bare for name, one in self.value.items()}
        return self.value


@dataclass(frozen=True, slots=True)
class Found:
    """What the file gives for the keys of one mapping.

    Attributes:
        values: those that are valid, by key.
        lines: the line of every known key that is there, valid or not.
        misspelt: the known keys that unknown ones seem to mean; a fault says so.
    """

    line: int
    path: str
    values: dict[str, Given] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    misspelt: set[str] = field(default_factory=set)

    def has(self, key: str) -> bool:
        """Say whether a key is there, well spelt or not: that it is missing need not be said."""
        return key in self.lines or key in self.misspelt

    def section(self, name: str) -> Found:
        """Give the mapping under `name`, empty where there is none."""
        given = self.values.get(name)
        if given is None:
            return Found(self.line, join(self.path, name))
        assert isinstance(given.value, Found)
        return given.value


class Kind(ABC):
    """What a key takes."""

    @property
    def assembled(self) -> bool:
        """Whether its value is put together from keys of its own, by who knows what they mean."""
        return False

    def read(self, node: Node, path: str, reading: Reading) -> Given | None:
        """Read a value; None, with the fault noted, where it is not of this kind."""
        try:
            if node.tagged:
                raise Wrong("expected no YAML tag: put quotes round a string")
            return Given(self.take(node, path, reading), node.line, path)
        except Noted:
            return None
        except Wrong as wrong:
            reading.fault(node.line, path, str(wrong))
            return None

    @abstractmethod
    def take(self, node: Node, path: str, reading: Reading) -> Any:
        """Give the value of `node`; faults within it are noted, one of the whole is `Wrong`.

        Where those within leave no value, they are all that is said: `Noted`.
        """

    @abstractmethod
    def schema(self) -> Schema:
        """Describe the kind in JSON Schema."""

    @abstractmethod
    def plain(self, value: Any) -> Any:
        """Give `value` as the file would have it."""

    def shown(self, value: Any) -> Any:
        """Give `value` as the file would have it; None for the absence of one."""
        return None if value is None else self.plain(value)


def _within(path: str, around: str) -> bool:
    return bool(around) and (path == around or path.startswith((f"{around}.", f"{around}[")))
