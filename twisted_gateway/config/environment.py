"""The environment variables, and options of the command line, that stand for keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from twisted_gateway.config.faults import COMMAND_LINE, ENVIRONMENT, Fault, Wrong
from twisted_gateway.config.kinds import Atom
from twisted_gateway.config.reading import Kind, Reading
from twisted_gateway.config.sections import ListOf, Section
from twisted_gateway.config.source import Scalar

OBSERVE_MODELS = "ADMISSION_OBSERVE_MODELS"


@dataclass(frozen=True, slots=True)
class Variable:
    """A valid value that the environment or the command line gives.

    Attributes:
        name: the variable or option it comes from.
    """

    name: str
    value: Any


def variables(section: Section, reading: Reading) -> dict[str, Variable]:
    """Read the options and variables of a section's keys.

    Of several variables for one key, the first that is set counts, but all must be valid; an
    option stands in their place. An empty one is as good as unset. Values are taken as they are:
    there are no references in them.

    Returns:
        What is set, by the key's name.
    """
    found: dict[str, Variable] = {}
    for key in section.keys:
        option = reading.options.get(key.option, "").strip()
        given = {name: reading.environ.get(name, "").strip() for name in key.environment}
        source = COMMAND_LINE if option else ENVIRONMENT
        for name, text in ({key.option: option} if option else given).items():
            if not text:
                continue
            try:
                value = _parse(key.kind, text)
            except Wrong as wrong:
                reading.faults.append(Fault(source, None, name, str(wrong)))
            else:
                found.setdefault(key.name, Variable(name, value))
    return found


def observed_models(reading: Reading) -> frozenset[str] | None:
    """Give the models that ADMISSION_OBSERVE_MODELS names; None where it is not set.

    Set but empty is an empty set: nothing is observed, the gate is off.
    """
    text = reading.environ.get(OBSERVE_MODELS)
    if text is None:
        return None
    return frozenset(name.strip() for name in text.split(",")) - {""}


def _parse(kind: Kind, text: str) -> Any:
    """Read a variable: one value, or a list that is separated by blanks."""
    if isinstance(kind, ListOf):
        items = tuple(_parse(kind.kind, part) for part in text.split())
        if len(set(items)) < len(items):
            raise Wrong(f"expected {kind.what} without one twice")
        return items
    assert isinstance(kind, Atom)
    try:
        return kind.parse(Scalar(text=text, line=0, expanded=True))
    except ValueError:
        raise Wrong(f"expected {kind.expected}") from None
