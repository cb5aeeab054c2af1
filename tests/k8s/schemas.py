"""What a kube-apiserver would refuse, by the schemas of Kubernetes and of custom resources."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import kubernetes_validate  # type: ignore[import-untyped]
import yaml

from tests.k8s.objects import Tree

VERSIONS: tuple[str, ...] = ("1.30", kubernetes_validate.latest_version())
"""The oldest Kubernetes that the manifests are for, and the newest that there are schemas of."""

_CUSTOM = Path(__file__).with_name("custom_resources.yaml")


def refused(tree: Tree) -> Iterator[str]:
    """What is wrong with an object, by the schemas of its kind."""
    said = f"{tree['kind']} {tree['metadata']['name']}"
    schema = _custom().get(tree["kind"])
    if schema is not None:
        validator = jsonschema.Draft202012Validator(schema)
        for fault in validator.iter_errors(tree):
            yield f"{said}: {fault.json_path}: {fault.message}"
        return
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(tree, version, strict=True)
        except (
            kubernetes_validate.ValidationError,
            kubernetes_validate.SchemaNotFoundError,
        ) as fault:
            yield f"{said}, Kubernetes {version}: {fault}"


@cache
def _custom() -> dict[str, Any]:
    given = yaml.safe_load(_CUSTOM.read_text(encoding="utf-8"))
    return {
        kind: {
            "type": "object",
            "required": ["apiVersion", "kind", "metadata", *schema["required"]],
            "additionalProperties": False,
            "properties": {
                "apiVersion": {"const": schema["apiVersion"]},
                "kind": {"const": kind},
                "metadata": {
                    "type": "object",
                    "required": ["name"],
                    "additionalProperties": False,
                    "properties": {
                        "name": {"type": "string"},
                        "namespace": {"type": "string"},
                        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                        "annotations": {
                            "type": "object",
                            "additionalProperties": {"type": "string"},
                        },
                    },
                },
                **schema["properties"],
            },
        }
        for kind, schema in given.items()
    }
