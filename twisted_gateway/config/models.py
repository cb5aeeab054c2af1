"""The models in force: what the file gives, the environment's levers, the defaults."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from twisted_gateway.config.admission import check_keys, is_gated, policy
from twisted_gateway.config.admission_keys import ADMISSION
from twisted_gateway.config.environment import OBSERVE_MODELS, observed_models, variables
from twisted_gateway.config.faults import join, quoted
from twisted_gateway.config.keys import MODEL, TIMEOUTS
from twisted_gateway.config.reading import Found, Given, Reading
from twisted_gateway.config.schema import DEFAULT_PATHS, EngineKind, Model, Timeouts
from twisted_gateway.config.sections import Section
from twisted_gateway.config.sharing import Placed, check_engines, check_names


def gather(
    section: Section, found: Found, reading: Reading, sources: dict[str, str]
) -> dict[str, Any]:
    """Give a section's values by attribute, the environment's before the file's.

    Sections that become values of their own are left out. The origins go into `sources`.
    """
    chosen: dict[str, Any] = {}
    first = variables(section, reading)
    for key in section.keys:
        kind = key.kind
        path = join(found.path, key.name)
        given = found.values.get(key.name)
        if isinstance(kind, Section) and kind.inline:
            chosen |= gather(kind, found.section(key.name), reading, sources)
        elif kind.assembled:
            continue
        elif key.name in first:
            chosen[key.attribute] = first[key.name].value
            sources[path] = first[key.name].name
        elif given is not None:
            chosen[key.attribute] = given.bare
            sources[path] = reading.origin(given)
    return chosen


class Models:
    """Makes the models, and finds what is wrong with them beyond single values."""

    def __init__(self, reading: Reading, sources: dict[str, str], max_body_bytes: int) -> None:
        """Read the variables that bear on models.

        Args:
            reading: takes faults and warnings.
            sources: takes the origins of values.
            max_body_bytes: the global limit.
        """
        self._reading = reading
        self._sources = sources
        self._max_body_bytes = max_body_bytes
        self._admission = variables(ADMISSION, reading)
        self._observed = observed_models(reading)

    def all(self, given: Mapping[str, Given]) -> dict[str, Model]:
        """Give the models by name, in the file's order."""
        placed = [self._model(name, one) for name, one in given.items()]
        check_engines(placed, self._reading)
        check_names(placed, self._reading)
        for name in sorted((self._observed or frozenset()) - set(given)):
            self._reading.warnings.append(
                f"{OBSERVE_MODELS} names {quoted(name)}, which is not configured"
            )
        return {one.model.name: one.model for one in placed}

    def _model(self, name: str, given: Given) -> Placed:
        found: Found = given.value
        chosen = gather(MODEL, found, self._reading, self._sources)
        engine, turned_off = self._engine(name, found, chosen.get("engine", EngineKind.NONE))
        admission = found.section("admission")
        unknown = "engine" in found.lines and "engine" not in found.values
        if not (turned_off or unknown):
            check_keys(engine, admission, self._reading)
        timeouts = gather(TIMEOUTS, found.section("timeouts"), self._reading, self._sources)
        chosen |= {
            "upstreams": self._upstreams(given),
            "engine": engine,
            "observed": engine.publishes_gauges,
            "gated": is_gated(engine, admission),
            "paths": MappingProxyType({**DEFAULT_PATHS, **chosen.get("paths", {})}),
            "timeouts": Timeouts(**timeouts),
            "policy": policy(engine, admission, self._admission, self._reading, self._sources),
        }
        model = Model(name=name, **{"max_body_bytes": self._max_body_bytes, **chosen})
        return Placed(
            model=model, path=given.path, line=given.line, found=found, turned_off=turned_off
        )

    def _upstreams(self, given: Given) -> tuple[str, ...]:
        """Give the base URLs, of which exactly one of two keys speaks."""
        found: Found = given.value
        lines = sorted(
            line for key, line in found.lines.items() if key in ("upstream", "upstreams")
        )
        if not lines and (found.has("upstream") or found.has("upstreams")):
            return ()
        if len(lines) != 1:
            self._reading.fault(
                lines[-1] if lines else given.line,
                join(given.path, "upstream"),
                "expected either upstream or upstreams, not both"
                if lines
                else "expected an engine's URL here, or several under upstreams",
            )
        one, several = found.values.get("upstream"), found.values.get("upstreams")
        if one is not None:
            return (one.bare,)
        return () if several is None else tuple(several.bare)

    def _engine(self, name: str, found: Found, named: EngineKind) -> tuple[EngineKind, bool]:
        """Give the kind in force, and whether the environment leaves the model out.

        A model that is left out counts as one of engine none: nothing is observed, no gate.
        """
        if self._observed is None:
            return named, False
        listed = name in self._observed
        engine = EngineKind.NONE
        if listed:
            engine = EngineKind.VLLM if named is EngineKind.NONE else named
        path = join(found.path, "engine")
        if engine is not named:
            self._sources[path] = OBSERVE_MODELS
        if listed and not is_gated(engine, found.section("admission")):
            self._reading.warnings.append(
                f"{OBSERVE_MODELS} names {quoted(name)}, but {engine.value} has no gate without "
                "maxInflight"
            )
        return engine, not listed
