"""The kinds of single values: strings of some form, numbers, words."""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from twisted_gateway.config.expand import REFERENCE, escape
from twisted_gateway.config.faults import Wrong, quoted
from twisted_gateway.config.reading import Kind, Reading, Schema
from twisted_gateway.config.source import Node, Scalar, describe

_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]{0,18})")
_NUMBER = re.compile(r"[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")
# What YAML 1.2's core schema takes for something other than a string.
_NOT_A_STRING = re.compile(
    r"~?|null|Null|NULL|true|True|TRUE|false|False|FALSE|[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"
    r"|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_REFERENCE: Schema = {"type": "string", "pattern": REFERENCE}


def is_string(text: str) -> bool:
    """Say whether `text` without quotes is a string to YAML 1.2."""
    return not _NOT_A_STRING.fullmatch(text)


def words(choices: type[Enum]) -> dict[str, Any]:
    """Give the words of an enum whose values are what the file says."""
    return {one.value: one for one in choices}


class Atom(Kind):
    """A single value.

    Attributes:
        shows: whether a fault says what it found; never for what may hold a credential.
    """

    shows: ClassVar[bool] = True

    @property
    @abstractmethod
    def expected(self) -> str:
        """What to say when a value is something else."""

    def take(self, node: Node, path: str, reading: Reading) -> Any:
        """Put the environment into the text and parse it."""
        if not isinstance(node, Scalar):
            raise Wrong(f"expected {self.expected}, not {describe(node)}")
        scalar = reading.expand(node)
        try:
            return self.parse(scalar)
        except ValueError:
            found = f", not {_shown(node)}" if self.shows else ""
            raise Wrong(f"expected {self.expected}{found}") from None

    @abstractmethod
    def parse(self, scalar: Scalar) -> Any:
        """Give the value of a text; raise ValueError, or `Wrong` to say more than `expected`."""


@dataclass(frozen=True)
class Text(Atom):
    """A string of some form.

    Attributes:
        form: reads the string; raises `Wrong`.
        pattern: what JSON Schema can say of the form.
    """

    form: Callable[[str], Any]
    expected: str = "a string"
    pattern: str | None = None
    max_characters: int = 2048
    shows: ClassVar[bool] = False

    def parse(self, scalar: Scalar) -> Any:
        """Read the form, once the text is a string of bearable length."""
        if scalar.plain and not scalar.expanded and not is_string(scalar.text):
            raise Wrong(f"expected {self.expected}: put quotes round it, if it is one")
        return self.judge(scalar.text)

    def judge(self, text: str) -> Any:
        """Read the form of a string; raise `Wrong` where it is another, or too long."""
        if len(text) > self.max_characters:
            raise Wrong(f"expected at most {self.max_characters} characters")
        return self.form(text)

    def schema(self) -> Schema:
        """Say `string`, with the pattern or a reference to the environment."""
        if self.pattern is None:
            return {"type": "string"}
        return {"type": "string", "pattern": f"{self.pattern}|{REFERENCE}"}

    def plain(self, value: Any) -> str:
        """Give the string, so escaped that no dollar sign starts a reference."""
        return escape(str(value))


@dataclass(frozen=True)
class Whole(Atom):
    """A whole number."""

    minimum: int
    maximum: int

    @property
    def expected(self) -> str:
        """Name the range."""
        return f"a whole number from {self.minimum} to {self.maximum}"

    def parse(self, scalar: Scalar) -> int:
        """Take decimal digits only: no `0x10`, `010`, `1_000`, `1:30` or `4.0`."""
        value = int(_digits(scalar, _WHOLE))
        if not self.minimum <= value <= self.maximum:
            raise ValueError
        return value

    def schema(self) -> Schema:
        """Say `integer` and the range."""
        return _or_reference({"type": "integer", "minimum": self.minimum, "maximum": self.maximum})

    def plain(self, value: Any) -> int:
        """Give the number."""
        return int(value)


@dataclass(frozen=True)
class Number(Atom):
    """A finite number; `minimum` itself is allowed unless it is 0."""

    minimum: float
    maximum: float

    @property
    def expected(self) -> str:
        """Name the range."""
        least = f"{self.minimum:g} or more" if self.minimum else "more than 0"
        return f"a number, {least} and at most {self.maximum:.15g}"

    def parse(self, scalar: Scalar) -> float:
        """Take a decimal number, with or without fraction and exponent."""
        value = float(_digits(scalar, _NUMBER))
        if not self.minimum <= value <= self.maximum or value == 0:
            raise ValueError
        return value

    def schema(self) -> Schema:
        """Say `number` and the range."""
        least = "minimum" if self.minimum else "exclusiveMinimum"
        return _or_reference({"type": "number", least: self.minimum, "maximum": self.maximum})

    def plain(self, value: Any) -> int | float:
        """Give the number, whole where it is."""
        return int(value) if math.floor(value) == value else float(value)


@dataclass(frozen=True)
class Choice(Atom):
    """One of a few words, each with the value that it stands for."""

    words: Mapping[str, Any]

    @property
    def expected(self) -> str:
        """List the words."""
        return f"one of {', '.join(self.words)}" if len(self.words) > 1 else next(iter(self.words))

    def parse(self, scalar: Scalar) -> Any:
        """Take a word, with quotes or without."""
        if scalar.text not in self.words:
            raise ValueError
        return self.words[scalar.text]

    def schema(self) -> Schema:
        """Say `enum`."""
        return {"anyOf": [{"enum": list(self.words)}, _REFERENCE]}

    def plain(self, value: Any) -> str:
        """Give the word."""
        return next(word for word, meaning in self.words.items() if meaning == value)


@dataclass(frozen=True)
class Flag(Atom):
    """Yes or no, in YAML 1.2's words for it."""

    @property
    def expected(self) -> str:
        """Name both."""
        return "true or false"

    def parse(self, scalar: Scalar) -> bool:
        """Take `true` and `false` only: no `yes`, `on`, `1` or `"true"`."""
        if not (scalar.plain or scalar.expanded) or scalar.text not in ("true", "false"):
            raise ValueError
        return scalar.text == "true"

    def schema(self) -> Schema:
        """Say `boolean`."""
        return _or_reference({"type": "boolean"})

    def plain(self, value: Any) -> bool:
        """Give the flag."""
        return bool(value)


@dataclass(frozen=True)
class Either(Atom):
    """A word, or else a value of another kind."""

    choice: Choice
    other: Atom

    @property
    def expected(self) -> str:
        """Name both."""
        return f"{self.choice.expected} or {self.other.expected}"

    def parse(self, scalar: Scalar) -> Any:
        """Take the word where it is one."""
        kind = self.choice if scalar.text in self.choice.words else self.other
        return kind.parse(scalar)

    def schema(self) -> Schema:
        """Say `anyOf`."""
        return {"anyOf": [{"enum": list(self.choice.words)}, *self.other.schema()["anyOf"]]}

    def plain(self, value: Any) -> Any:
        """Give the word for a value that has one."""
        if value in self.choice.words.values():
            return self.choice.plain(value)
        return self.other.plain(value)

    def shown(self, value: Any) -> Any:
        """Give the word even for None, which is a value here."""
        return self.plain(value)


SECONDS = Number(0, 604_800)
"""A span of time, of a week at most."""

BYTES = Whole(1, 2**40)
"""A size."""


def _or_reference(schema: Schema) -> Schema:
    return {"anyOf": [schema, _REFERENCE]}


def _digits(scalar: Scalar, form: re.Pattern[str]) -> str:
    """Give the text of a number; raise ValueError for a string and for anything else."""
    if not (scalar.plain or scalar.expanded) or not form.fullmatch(scalar.text):
        raise ValueError
    return scalar.text


def _shown(node: Scalar) -> str:
    if not node.plain:
        return f"the string {quoted(node.text)}"
    if not node.text:
        return "nothing"
    return node.text if len(node.text) <= 40 and node.text.isprintable() else quoted(node.text)
