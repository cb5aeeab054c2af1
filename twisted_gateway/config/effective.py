"""Every setting in force, with where its value comes from: for people who ask why."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from twisted_gateway.config.by_kind import ByKind
from twisted_gateway.config.faults import join
from twisted_gateway.config.keys import ROOT
from twisted_gateway.config.schema import Config
from twisted_gateway.config.sections import ListOf, MapOf, Section

DEFAULT = "default"
MOST_CHARACTERS = 300

_QUERY = re.compile(r"(https?://[^\s?,]*)\?[^\s,]*")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")


@dataclass(frozen=True, slots=True)
class Setting:
    """One value in force.

    Attributes:
        key: its path, as faults name it: `models.reasoning.admission.maxInflight`.
        value: as the file would have it; a secret is `***`.
        source: `config.yaml line 12`, `environment MAX_BODY_BYTES`, `default`.
    """

    key: str
    value: str
    source: str


def effective(config: Config) -> tuple[Setting, ...]:
    """Every setting of `config` that has a value, in the order of the file's keys."""
    return tuple(_walk(ROOT, ROOT.plain(config), "", config.sources))


def _walk(
    section: Section, plain: Mapping[str, Any], path: str, sources: Mapping[str, str]
) -> Iterator[Setting]:
    for key in section.keys:
        if key.name not in plain:
            continue
        kind, value, at = key.kind, plain[key.name], join(path, key.name)
        if isinstance(kind, Section):
            yield from _walk(kind, value, at, sources)
        elif isinstance(kind, MapOf) and isinstance(kind.kind, Section):
            for name, one in value.items():
                yield from _walk(kind.kind, one, join(at, name), sources)
        elif isinstance(kind, ListOf) and isinstance(kind.kind, Section):
            for index, one in enumerate(value):
                yield from _walk(kind.kind, one, f"{at}[{index}]", sources)
        elif isinstance(kind, ByKind):
            for name, one in value.items():
                yield from _walk(kind.kinds[one.get("kind", name)], one, join(at, name), sources)
        else:
            yield Setting(at, _said(value), _source(sources.get(at, DEFAULT)))


def _said(value: Any) -> str:
    if isinstance(value, dict):
        text = ", ".join(f"{name}: {one}" for name, one in value.items())
    elif isinstance(value, list):
        text = ", ".join(map(str, value))
    elif isinstance(value, bool):
        text = str(value).lower()
    else:
        text = str(value)
    # A query may bear a credential, and nobody needs it to know whose address this is.
    text = _QUERY.sub(r"\1?***", text)
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…"


def _source(source: str) -> str:
    return f"environment {source}" if _VARIABLE.fullmatch(source) else source
