"""An overlay of somebody's own: the example copied, and edited as its kustomization.yaml says."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from tests.k8s.objects import K8S
from tests.k8s.overlays import Overlay, shipped

# What is written in place of what, by the steps in the head of kustomization.yaml.
EDITS = {
    "kustomization.yaml": (
        ("newName: registry.example.com/llm/llm-gateway", "newName: registry.example.org/gateway"),
        ("newTag: 0.1.0", "newTag: 0123abc"),
        ("namespace: llm-gateway", "namespace: inference"),
        ("value: chat", "value: assistant"),
        ("/host, value: llm.example.com", "/host, value: llm.example.org"),
        ("hosts: [llm.example.com]", "hosts: [llm.example.org]"),
        ("value: kube-prometheus-stack", "value: prometheus"),
    ),
    "namespace.yaml": (("name: llm-gateway", "name: inference"),),
    "config.yaml": (
        ("  chat:", "  assistant:"),
        ("engine: vllm", "engine: vllm\n    apiKey: {file: /etc/llm-gateway-secrets/engine-key}"),
    ),
    "cluster.yaml": (
        ("  llm-gateway: [peer-token]", "  llm-gateway: [engine-key, peer-token]"),
        ("  llm-gateway:\n    labels", "  inference:\n    labels"),
        ("release: kube-prometheus-stack", "release: prometheus"),
    ),
}
# What docs/kubernetes.md leaves to choice beyond these.
CHOICES = {
    "kustomization.yaml": (
        ("  - ../../monitoring\n", ""),
        (
            "    files:\n      - config.yaml\n",
            "    files:\n      - config.yaml\n    options: {disableNameSuffixHash: true}\n",
        ),
        (
            "              - name: gateway\n",
            "              - name: gateway\n                resources: {limits: {cpu: '1'}}\n",
        ),
    ),
}


def mine(place: Path) -> Overlay:
    """Make it, in a copy of k8s in which are no others of somebody's own.

    Args:
        place: a directory that is not there yet.
    """
    shutil.copytree(K8S, place / "k8s", ignore=shutil.ignore_patterns("overlays"))
    overlays = place / "k8s" / "overlays"
    for each in shipped():
        shutil.copytree(each.path, overlays / each.name)
    own = Overlay(overlays / "mine")
    shutil.copytree(overlays / "example", own.path)
    edit(own.path, EDITS)
    return own


def edit(path: Path, edits: Mapping[str, tuple[tuple[str, str], ...]]) -> None:
    """Replace texts in files.

    Raises:
        AssertionError: one is not there exactly once.
    """
    for name, pairs in edits.items():
        text = (path / name).read_text(encoding="utf-8")
        for old, new in pairs:
            assert text.count(old) == 1, f"{name} has {old!r} {text.count(old)} times"
            text = text.replace(old, new)
        (path / name).write_text(text, encoding="utf-8")
