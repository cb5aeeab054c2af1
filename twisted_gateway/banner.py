"""What the log says when the gateway starts: what runs, and what is in force in brief."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.metadata import version

from twisted_gateway import __version__
from twisted_gateway.cgroup import Limits
from twisted_gateway.config.environment import OBSERVE_MODELS
from twisted_gateway.config.faults import join
from twisted_gateway.config.schema import Config, EngineKind

BESIDE_BODIES_BYTES = 128 << 20
"""What a gateway needs beside the bodies that it holds, as measured with a thousand streams."""


def beyond_limits(config: Config, limits: Limits | None) -> Iterator[str]:
    """Give a warning for what a configuration allows and the memory limit does not.

    Args:
        config: the configuration in force.
        limits: what the process may use; None: nobody has looked.
    """
    if limits is None or limits.memory_bytes is None:
        return
    if config.max_held_bytes + BESIDE_BODIES_BYTES > limits.memory_bytes:
        yield (
            f"maxHeldBytes={config.max_held_bytes} and {BESIDE_BODIES_BYTES} for everything else "
            f"are more than the memory limit of {limits.memory_bytes}: with as many bodies the "
            "kernel ends this process"
        )


def running() -> str:
    """Say which releases run."""
    python, twisted = platform.python_version(), version("twisted")
    return f"twisted-gateway {__version__} on Python {python}, Twisted {twisted}"


_MOST_NAMED = 3


def ungated(config: Config) -> Iterator[str]:
    """Give a note for each model that no gate stands before, and nobody has said so.

    One that says `engine: none` is meant to have none. One that ADMISSION_OBSERVE_MODELS leaves out
    may be meant to, or be forgotten there.

    Args:
        config: the configuration in force.
    """
    models = config.models.items()
    # Whichever OBSERVE_MODELS names have an engine, whatever the file says.
    named = [join("", name) for name, model in models if model.engine is not EngineKind.NONE]
    others = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else " alone"
    observed = (
        f"names {', '.join(named[:_MOST_NAMED])}{others}" if named else "names none of the models"
    )
    for name, model in models:
        path = join("models", name)
        if model.gated:
            continue
        if config.sources.get(join(path, "engine")) == OBSERVE_MODELS:
            yield f"{path} has no gate: {OBSERVE_MODELS} {observed}"
        elif model.engine is not EngineKind.NONE:
            kind = model.engine.value
            yield f"{path} has no gate: {kind} has one with admission.maxInflight only"
        elif join(path, "engine") not in config.sources:
            yield f"{path} has no gate, for it names no engine: requests go on as they come"


def banner(config: Config, tracing: str, limits: Limits | None = None) -> Iterator[str]:
    """Give the lines, without credentials; what is in force of each model is said by the fleet.

    Args:
        config: the configuration in force.
        tracing: where traces go, in words (`Tracing.describe`).
        limits: what the process may use; None: nobody has looked.
    """
    yield running()
    if limits is not None:
        yield f"may use {limits.describe()}"
    admin = ", ".join(config.admin_listen) or "with the others"
    yield f"listens at {', '.join(config.listen)}; operations: {admin}"

    def said(key: str, value: object) -> str:
        return f"{key}={value} ({config.sources.get(key, 'default')})"

    yield " ".join(
        [
            said("maxBodyBytes", config.max_body_bytes),
            said("maxHeldBytes", config.max_held_bytes),
            said("maxConnections", config.max_connections),
            said("drainSeconds", f"{config.drain_seconds:g}"),
            said("reload", config.reload),
        ]
    )
    proxies = len(config.trusted_proxies)
    yield (
        f"models: {len(config.models)}; trusted proxies: {proxies or 'none'}; traces: {tracing}; "
        f"gen_ai metrics: {'on' if config.gen_ai_metrics else 'off'}; clients identified: "
        f"{'yes' if config.identify_clients else 'no'}"
    )
