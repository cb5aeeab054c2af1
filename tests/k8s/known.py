"""The environment variables that the gateway's process reads, as its source has them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from types import ModuleType

from opentelemetry import environment_variables as api_variables
from opentelemetry.sdk import environment_variables as sdk_variables

from tests.k8s.objects import TOP
from twisted_gateway.config.by_kind import ByKind
from twisted_gateway.config.environment import OBSERVE_MODELS
from twisted_gateway.config.keys import ROOT
from twisted_gateway.config.sections import ListOf, MapOf, Section

PACKAGE = TOP / "twisted_gateway"
# Other commands have variables of their own, and Kubernetes' are kubelet's to set.
_OTHERS = {"check", "load"}
_FOREIGN = ("OTEL_", "KUBERNETES_")
_NAMES = {"environ", "environment"}
_REFERENCE = re.compile(r"(?<!\$)\$\{([A-Za-z_][A-Za-z0-9_]*)(:-)?")


def of_keys(kind: object = ROOT) -> Iterator[str]:
    """The variables that stand for keys of the configuration."""
    match kind:
        case Section():
            for key in kind.keys:
                yield from key.environment
                yield from of_keys(key.kind)
        case MapOf() | ListOf():
            yield from of_keys(kind.kind)
        case ByKind():
            for one in kind.kinds.values():
                yield from of_keys(one)
        case _:
            pass


def of_process() -> Iterator[str]:
    """Those that the process asks for by name, but for OpenTelemetry's and Kubernetes'."""
    for module in PACKAGE.rglob("*.py"):
        if module.relative_to(PACKAGE).parts[0] in _OTHERS:
            continue
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Attribute(
                        attr="get", value=ast.Attribute(attr=attr) | ast.Name(id=attr)
                    ),
                    args=[ast.Constant(value=str(variable)), *_],
                ) if attr in _NAMES and not variable.startswith(_FOREIGN):
                    yield variable


@cache
def gateway() -> frozenset[str]:
    """All but OpenTelemetry's."""
    return frozenset({*of_keys(), *of_process(), OBSERVE_MODELS})


def opentelemetry() -> frozenset[str]:
    """OpenTelemetry's own, by its API and SDK."""
    modules: tuple[ModuleType, ...] = (api_variables, sdk_variables)
    names = (name for module in modules for name in vars(module))
    return frozenset(name for name in names if name.startswith("OTEL_"))


def referenced(text: str) -> Mapping[str, bool]:
    """Those that a configuration's text refers to, and whether each has a default there."""
    return {match[1]: bool(match[2]) for match in _REFERENCE.finditer(uncommented(text))}


def uncommented(text: str) -> str:
    """The text of a YAML file without its comments."""
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    return "\n".join(line.partition(" #")[0] for line in lines)
