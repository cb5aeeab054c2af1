"""What admission of one model is in force, and where each value comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted_gateway.config.admission_keys import admission_keys
from twisted_gateway.config.environment import Variable
from twisted_gateway.config.faults import join
from twisted_gateway.config.reading import Found, Reading
from twisted_gateway.config.schema import Config, EngineKind, Model
from twisted_gateway.core.policy import Policy


def is_gated(engine: EngineKind, found: Found) -> bool:
    """Say whether such an engine has a gate, given what the file says under `admission`.

    Where running and waiting are published, S is configured or learned. Elsewhere only a number
    in the file makes a gate, never one from the environment, which is meant for vLLM.
    """
    if engine.publishes_running:
        return True
    given = found.values.get("maxInflight")
    return engine is not EngineKind.NONE and given is not None and given.value is not None


def check_keys(engine: EngineKind, found: Found, reading: Reading) -> None:
    """Find the keys under `admission` that such an engine cannot have, or that do nothing."""
    meant = {key.name for key in admission_keys(engine.publishes_gauges, is_gated(engine, found))}
    for name, line in found.lines.items():
        path = join(found.path, name)
        if engine is EngineKind.NONE and name not in meant:
            reading.fault(line, path, "expected keepAliveSeconds alone: engine none has no gate")
        elif name == "maxInflight":
            given = found.values.get(name)
            if given is not None and given.value is None and not engine.publishes_running:
                reading.fault(
                    line, path, f"expected a whole number: {engine.value} publishes too little"
                )
        elif name not in meant:
            reading.warnings.append(
                f"{path} does nothing: {engine.value} has no gate without maxInflight"
            )


def policy(
    engine: EngineKind,
    found: Found,
    variables: Mapping[str, Variable],
    reading: Reading,
    sources: dict[str, str],
) -> Policy:
    """Give the values in force: the file's, for vLLM else the environment's, else the defaults.

    Keys that mean nothing for the engine keep their defaults. Where a value is no plain default,
    its origin goes into `sources`.
    """
    chosen: dict[str, Any] = {}
    for key in admission_keys(engine.publishes_gauges, is_gated(engine, found)):
        path = join(found.path, key.name)
        given = found.values.get(key.name)
        variable = variables.get(key.name) if engine is EngineKind.VLLM else None
        if given is not None:
            chosen[key.attribute] = given.bare
            sources[path] = reading.origin(given)
        elif variable is not None:
            chosen[key.attribute] = variable.value
            sources[path] = variable.name
        elif key.name == "pollTimeoutSeconds":
            # Keys stand in order: pollSeconds is chosen already.
            derived = 2 * float(chosen.get("poll_seconds", Policy().poll_seconds))
            if derived > Policy().poll_timeout_seconds:
                chosen[key.attribute] = derived
                sources[path] = "2 x pollSeconds"
    return Policy(**chosen)


def describe_admission(config: Config, model: Model) -> str:
    """Say on one line what admission of `model` is in force, and where each value comes from."""
    path = join("models", model.name)

    def said(key: str, value: str) -> str:
        return f"{key.rpartition('.')[2]}={value} ({config.sources.get(key, 'default')})"

    state = "observed" if model.observed else "not observed"
    gate = "gated" if model.gated else "no gate"
    parts = [f"{said(join(path, 'engine'), model.engine.value)}: {state}, {gate};"]
    for key in admission_keys(model.observed, model.gated):
        parts.append(said(join(join(path, "admission"), key.name), key.said(model.policy)))
    return " ".join(parts)
