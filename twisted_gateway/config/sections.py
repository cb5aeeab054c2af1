"""The kinds of values that hold others: lists, mappings from names, and sections of known keys."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from operator import attrgetter
from typing import Any

from twisted_gateway.config.faults import Wrong, join, quoted
from twisted_gateway.config.kinds import Text
from twisted_gateway.config.reading import Found, Given, Kind, Reading, Schema
from twisted_gateway.config.source import Entries, Items, Node, Scalar, describe

_HINTED_CHARACTERS = 64


@dataclass(frozen=True)
class ListOf(Kind):
    """A list of values of one kind, no two of them the same.

    Attributes:
        maximum: how many there may be; 0 is any number.
        identity: what makes two items the same.
    """

    kind: Kind
    what: str
    minimum: int = 0
    maximum: int = 0
    identity: Callable[[Any], Any] = str

    @property
    def assembled(self) -> bool:
        """As what it lists."""
        return self.kind.assembled

    def take(self, node: Node, path: str, reading: Reading) -> tuple[Given, ...]:
        """Read every item."""
        if not isinstance(node, Items):
            raise Wrong(f"expected a list of {self.what}, not {describe(node)}")
        if len(node.nodes) < self.minimum:
            raise Wrong(f"expected at least {self.minimum} in the list of {self.what}")
        if 0 < self.maximum < len(node.nodes):
            raise Wrong(f"expected at most {self.maximum} in the list of {self.what}")
        given: dict[Any, Given] = {}
        for index, item in enumerate(node.nodes):
            one = self.kind.read(item, f"{path}[{index}]", reading)
            if one is None:
                continue
            first = given.setdefault(self.identity(one.value), one)
            if first is not one:
                reading.fault(
                    one.line, one.path, f"expected each only once, and {first.path} is the same"
                )
        return tuple(given.values())

    def schema(self) -> Schema:
        """Say `array`."""
        schema: Schema = {"type": "array", "items": self.kind.schema(), "uniqueItems": True}
        if self.minimum:
            schema["minItems"] = self.minimum
        if self.maximum:
            schema["maxItems"] = self.maximum
        return schema

    def plain(self, value: Any) -> list[Any]:
        """Give the items."""
        return [self.kind.plain(item) for item in value]


@dataclass(frozen=True)
class MapOf(Kind):
    """A mapping from names that the operator chooses.

    Attributes:
        name: the kind of the names.
    """

    name: Text
    kind: Kind
    what: str
    minimum: int = 0

    @property
    def assembled(self) -> bool:
        """As what it maps to."""
        return self.kind.assembled

    def take(self, node: Node, path: str, reading: Reading) -> dict[str, Given]:
        """Read every entry; a name may hold references to the environment."""
        if not isinstance(node, Entries):
            raise Wrong(f"expected {self.what}, not {describe(node)}")
        if len(node.pairs) < self.minimum:
            raise Wrong(f"expected {self.what} with at least {self.minimum} entry")
        found: dict[str, Given] = {}
        for name, value in named(node, path, reading):
            given = self.kind.read(value, join(path, name.text), reading)
            try:
                key = self.name.judge(reading.expand(name).text)
            except Wrong as wrong:
                reading.fault(name.line, join(path, name.text), f"{wrong} (as a name)")
                continue
            if key in found:
                reading.fault(name.line, join(path, name.text), f"expected only one {quoted(key)}")
            elif given is not None:
                found[key] = replace(given, line=name.line)
        return found

    def schema(self) -> Schema:
        """Say `object` with any properties of the kind."""
        return {
            "type": "object",
            "propertyNames": self.name.schema(),
            "additionalProperties": self.kind.schema(),
            **({"minProperties": self.minimum} if self.minimum else {}),
        }

    def plain(self, value: Any) -> dict[str, Any]:
        """Give the entries."""
        return {self.name.plain(name): self.kind.plain(one) for name, one in value.items()}


@dataclass(frozen=True, kw_only=True)
class Key:
    """One key of a section.

    Attributes:
        name: as the file has it; `maxInflight` is `max_inflight` of the value it goes into.
        about: what it is for, for the JSON Schema.
        attribute: where it goes, if not by its name.
        environment: the variables that it is taken from, the first that is set counts. How they
            rank against the file is said where they are read.
        option: the option of the command line that it is taken from before all else.
        derived: whether its default is computed or there is none, so that none is stated.
        own: of `admission`: whether models that share an engine may differ in it.
        absent: what sentences say where there is no value.
        show: gives what `dump` shows from the value that holds it; None to leave the key out.
    """

    name: str
    kind: Kind
    about: str
    attribute: str = ""
    environment: tuple[str, ...] = ()
    option: str = ""
    derived: bool = False
    own: bool = False
    absent: str = "nothing"
    show: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        """Derive the attribute from the name."""
        if not self.attribute:
            snake = re.sub(r"[A-Z]", lambda found: "_" + found.group().lower(), self.name)
            object.__setattr__(self, "attribute", snake)

    def plain(self, owner: Any) -> Any:
        """Give the key's value in `owner` as the file would have it; None to leave it out."""
        if self.show is not None:
            return self.show(owner)
        if isinstance(self.kind, Section) and self.kind.inline:
            return self.kind.plain(owner)
        value = attrgetter(self.attribute)(owner)
        return self.kind.shown(value)

    def said(self, owner: Any) -> str:
        """Give the key's value in `owner` as a sentence would have it."""
        value = self.plain(owner)
        if isinstance(value, list):
            return ", ".join(map(str, value))
        return self.absent if value is None else str(value)


@dataclass(frozen=True, kw_only=True)
class Section(Kind):
    """A mapping with known keys, which becomes a value of `target`.

    Attributes:
        target: a dataclass, whose defaults are the keys' defaults.
        inline: whether the keys' values belong to the target of the section around it.
        extra: more to say in the JSON Schema.
    """

    keys: Sequence[Key]
    target: Any = None
    inline: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def assembled(self) -> bool:
        """Whether it becomes a value of its own."""
        return not self.inline

    def take(self, node: Node, path: str, reading: Reading) -> Found:
        """Read the known keys; the others are faults."""
        if not isinstance(node, Entries):
            raise Wrong(f"expected a mapping, not {describe(node)}")
        found = Found(node.line, path)
        known = {key.name: key for key in self.keys}
        for name, value in named(node, path, reading):
            key = known.get(name.text)
            if key is None:
                meant = _meant(name.text, known)
                expected = (
                    f"did you mean {meant}?" if meant else f"expected one of {', '.join(known)}"
                )
                reading.fault(name.line, join(path, name.text), f"unknown key, {expected}")
                found.misspelt.update({meant} if meant else ())
                continue
            found.lines[key.name] = name.line
            given = key.kind.read(value, join(path, key.name), reading)
            if given is not None:
                found.values[key.name] = given
        return found

    def default(self, key: Key) -> Any:
        """Give the default of `key` as the file would have it; None where there is none."""
        for one in fields(self.target) if self.target is not None else ():
            if one.name == key.attribute and not key.derived:
                value = one.default
                if one.default_factory is not MISSING:
                    value = one.default_factory()
                return None if value is MISSING else key.kind.shown(value)
        return None

    def schema(self) -> Schema:
        """Say `object`, with descriptions and defaults, and nothing beside the keys."""
        properties = {}
        for key in self.keys:
            about = key.about
            if key.environment:
                about = f"{about} Environment: {', '.join(key.environment)}."
            schema: Schema = {"description": about, **key.kind.schema()}
            default = None if isinstance(key.kind, Section) else self.default(key)
            if default is not None:
                schema["default"] = default
            properties[key.name] = schema
        return {
            "type": "object",
            "properties": properties,
            "additionalProperties": False,
            **self.extra,
        }

    def plain(self, value: Any) -> dict[str, Any]:
        """Give every key that is not absent."""
        shown = {key.name: key.plain(value) for key in self.keys}
        return {name: one for name, one in shown.items() if one is not None}


def named(node: Entries, path: str, reading: Reading) -> Iterable[tuple[Scalar, Node]]:
    """Give the entries whose keys are names, each name once; the others are faults."""
    lines: dict[str, int] = {}
    for key, value in node.pairs:
        if not isinstance(key, Scalar) or key.tagged:
            reading.fault(key.line, path, "expected names as keys")
        elif key.plain and key.text == "<<":
            reading.fault(key.line, join(path, "<<"), "expected no merge key: write the keys out")
        elif key.text in lines:
            first = lines[key.text]
            reading.fault(
                key.line, join(path, key.text), f"expected once, and it is at line {first}"
            )
        else:
            lines[key.text] = key.line
            yield key, value


def _meant(name: str, known: Iterable[str]) -> str:
    """Say which key an unknown one may have meant; "" for none."""
    names = {one.lower(): one for one in known}
    if len(name) > _HINTED_CHARACTERS:
        return ""
    near = difflib.get_close_matches(name.lower().replace("_", ""), names, 1)
    return names[near[0]] if near else ""
