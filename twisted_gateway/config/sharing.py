"""What models must agree on because they share names or engines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twisted_gateway.config.admission_keys import ADMISSION
from twisted_gateway.config.faults import join, quoted
from twisted_gateway.config.forms import engine_address
from twisted_gateway.config.reading import Found, Given, Reading
from twisted_gateway.config.schema import Model
from twisted_gateway.config.sections import Key


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A model, and where the file has it.

    Attributes:
        turned_off: whether ADMISSION_OBSERVE_MODELS leaves it out, whatever the file says.
    """

    model: Model
    path: str
    line: int
    found: Found
    turned_off: bool

    @property
    def place(self) -> str:
        """Where it is, for the fault of another."""
        return f"{self.path} (line {self.line})"

    def line_of(self, key: str) -> int:
        """Give the line of one of the model's keys, or of the model."""
        return self.found.lines.get(key, self.line)


def check_names(models: Sequence[Placed], reading: Reading) -> None:
    """See to it that every name and alias means one model."""
    owners = {one.model.name: Given(None, one.line, one.path) for one in models}
    for one in models:
        aliases = one.found.values.get("aliases")
        for alias in () if aliases is None else aliases.value:
            owner = owners.setdefault(alias.value, alias)
            if owner is not alias:
                taken = f"{quoted(alias.value)} is {owner.path} (line {owner.line})"
                reading.fault(alias.line, alias.path, f"expected a name of its own: {taken}")


def check_engines(models: Sequence[Placed], reading: Reading) -> None:
    """See to it that models that share an engine's address can share its gate.

    A model with faults of its own is left out: those may be all that it differs in.
    """
    faulty = {one.path for one in models if reading.faulty(one.path)}
    owners: dict[str, tuple[Placed, tuple[str, ...]]] = {}
    for one in models:
        if one.turned_off or one.path in faulty:
            continue
        addresses = tuple(engine_address(url) for url in one.model.upstreams)
        for address in addresses:
            owner, theirs = owners.setdefault(address, (one, addresses))
            if owner is not one:
                _compare(one, owner, address, addresses == theirs, reading)
                break


def _compare(one: Placed, owner: Placed, address: str, same: bool, reading: Reading) -> None:
    """Compare a model with the first that has one of its engines."""
    shared = f"they share the engine at {address}"
    if not same:
        name = "upstreams" if "upstreams" in one.found.lines else "upstream"
        reading.fault(
            one.line_of(name),
            join(one.path, name),
            f"expected the same engines in the same order as {owner.place}, or none of them: "
            f"{shared}",
        )
    elif one.model.engine is not owner.model.engine:
        reading.fault(
            one.line_of("engine"),
            join(one.path, "engine"),
            f"expected {owner.model.engine.value} as in {owner.place}: {shared}",
        )
    else:
        for key in ADMISSION.keys:
            mine, theirs = _said(key, one.model), _said(key, owner.model)
            if not key.own and mine != theirs:
                section = one.found.section("admission")
                reading.fault(
                    section.lines.get(key.name, one.line_of("admission")),
                    join(section.path, key.name),
                    f"expected {theirs} as in {owner.place}, not {mine}: {shared}",
                )


def _said(key: Key, model: Model) -> str:
    """Say what `model` has for a key of `admission`."""
    if key.name == "maxInflight" and not model.gated:
        return key.absent
    return key.said(model.policy)
