"""A mapping from names to sections of several kinds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from twisted_gateway.config.faults import Wrong, join, quoted
from twisted_gateway.config.kinds import Text
from twisted_gateway.config.reading import Given, Kind, Reading, Schema
from twisted_gateway.config.sections import Section, named
from twisted_gateway.config.source import Entries, Node, Scalar, describe

_KIND = "kind"


@dataclass(frozen=True)
class ByKind(Kind):
    """A mapping from names that the operator chooses to sections.

    Which section an entry is says its key `kind`, else its name.

    Attributes:
        name: the kind of the names.
        kinds: the word for a kind -> its section, which has a key `kind` among its keys.
    """

    name: Text
    kinds: Mapping[str, Section]
    what: str

    @property
    def assembled(self) -> bool:
        """Its entries become values of their own."""
        return True

    def take(self, node: Node, path: str, reading: Reading) -> dict[str, Given]:
        """Read every entry by the section of its kind."""
        if not isinstance(node, Entries):
            raise Wrong(f"expected {self.what}, not {describe(node)}")
        found: dict[str, Given] = {}
        for name, value in named(node, path, reading):
            place = join(path, name.text)
            try:
                key = self.name.judge(name.text)
            except Wrong as wrong:
                reading.fault(name.line, place, f"{wrong} (as a name)")
                continue
            section = self._section(key, name.line, value, place, reading)
            given = None if section is None else section.read(value, place, reading)
            if given is not None:
                found[key] = Given(given.value, name.line, place)
        return found

    def kind_of(self, name: str, given: Given) -> str:
        """Say of what kind an entry is that `take` gave."""
        chosen = given.value.values.get(_KIND)
        return name if chosen is None else str(chosen.value)

    def _section(
        self, name: str, line: int, value: Node, path: str, reading: Reading
    ) -> Section | None:
        """Find the section of an entry; None, with the fault noted, where there is none.

        A name that is also a kind means that kind: anything else would mislead.
        """
        known = ", ".join(self.kinds)
        for key, one in value.pairs if isinstance(value, Entries) else ():
            if not (isinstance(key, Scalar) and key.text == _KIND):
                continue
            kind = one.text if isinstance(one, Scalar) else ""
            if kind in self.kinds and (kind == name or name not in self.kinds):
                return self.kinds[kind]
            expected = name if name in self.kinds else f"one of {known}"
            reading.fault(one.line, join(path, _KIND), f"expected {expected}")
            return None
        if name not in self.kinds:
            reading.fault(
                line, join(path, _KIND), f"expected one of {known}: {quoted(name)} is no kind"
            )
        return self.kinds.get(name)

    def schema(self) -> Schema:
        """Say the sections by their own names, and any of them, with its kind, by another."""
        sections = {kind: section.schema() for kind, section in self.kinds.items()}
        others = [
            {**section, "required": sorted({_KIND, *section.get("required", ())})}
            for section in sections.values()
        ]
        return {
            "type": "object",
            "propertyNames": self.name.schema(),
            "properties": {
                kind: {"description": f"The adapter {kind}.", **section}
                for kind, section in sections.items()
            },
            "additionalProperties": {"anyOf": others},
        }

    def plain(self, value: Any) -> dict[str, Any]:
        """Give the entries, each as its section has it."""
        return {name: self.kinds[one.kind].plain(one) for name, one in value.items()}
