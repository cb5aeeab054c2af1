"""The forms of the command line's values: each reads a text, and says what it expected instead."""

from __future__ import annotations

from argparse import ArgumentTypeError
from pathlib import Path

from twisted_gateway.check.catalogue import CHECKS
from twisted_gateway.check.models import KINDS
from twisted_gateway.check.services import BODIES
from twisted_gateway.config.faults import Wrong
from twisted_gateway.config.forms import printable, service_name, service_url
from twisted_gateway.console.values import model

# A gateway that is not ready cannot be checked, and what was made is always removed.
_NEVER_SKIPPED = frozenset({"ready", "cleanup"})


def url(text: str) -> str:
    """Read a base URL of the gateway; it may end in a slash or in `/v1`."""
    try:
        return service_url(text.rstrip("/").removesuffix("/v1"))
    except Wrong as fault:
        raise ArgumentTypeError(str(fault)) from None


def name(text: str) -> str:
    """Read a name."""
    try:
        return printable(text)
    except Wrong as fault:
        raise ArgumentTypeError(str(fault)) from None


def models(text: str) -> dict[str, str]:
    """Read names of models, each with what it is for, or "" to find out."""
    found = {}
    for one in _parts(text):
        name, is_kind, kind = one.rpartition("=")
        # A model's own name may have a `=` in it.
        if not (is_kind and kind in KINDS):
            name, kind = one, ""
        found[model(name)] = kind
    return found


def services(text: str) -> list[str]:
    """Read names of services."""
    try:
        return list(dict.fromkeys(service_name(name) for name in _parts(text)))
    except Wrong as fault:
        raise ArgumentTypeError(str(fault)) from None


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def accept(text: str) -> tuple[str, frozenset[int]]:
    """Read statuses, and the name of the check that they are for, "" for all refusals."""
    name, is_named, codes = text.rpartition("=")
    if is_named:
        _known(name)
    least = 100 if is_named else 400
    found = frozenset(
        int(code) if len(code) == 3 and code.isascii() and code.isdigit() else 0
        for code in codes.split(",")
    )
    if not all(least <= code <= 599 for code in found):
        raise ArgumentTypeError(f"expected statuses from {least} to 599, such as 400,404")
    return name, found


def skip(text: str) -> str:
    """Read the name of a check that may be left out."""
    if _known(text) in _NEVER_SKIPPED:
        raise ArgumentTypeError(f"{text} is always made")
    return text


def _known(name: str) -> str:
    if name not in CHECKS:
        raise ArgumentTypeError(f"there is no check {name[:64]!r} (--list has them)")
    return name


def body(text: str) -> tuple[str, Path]:
    """Read `CHECK=FILE`."""
    name, _, path = text.partition("=")
    if name not in BODIES or not path:
        raise ArgumentTypeError(f"expected CHECK=FILE, CHECK one of {', '.join(BODIES)}")
    return name, Path(path)


def parameter(text: str) -> tuple[str, str]:
    """Read `NAME=VALUE`."""
    name, found, value = text.partition("=")
    if not (found and name):
        raise ArgumentTypeError("expected NAME=VALUE")
    return name, value
