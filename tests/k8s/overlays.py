"""The overlays that there are, one's own among them, by their files: without kubectl."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from twisted.trial.unittest import FailTest

from tests.k8s.network import Cluster, Port
from tests.k8s.objects import BASE, OVERLAYS, Keys, Objects, Tree, base, check_labels
from tests.k8s.reach import Reach

SHIPPED = ("example", "homelab")
"""The repository's own."""


@dataclass(frozen=True)
class Overlay:
    """A directory with a kustomization for a cluster.

    Attributes:
        path: the directory.
    """

    path: Path

    @property
    def name(self) -> str:
        """What it is called."""
        return self.path.name

    @cached_property
    def kustomization(self) -> Tree:
        """Its kustomization.yaml."""
        return _document(self.path / "kustomization.yaml")

    @cached_property
    def namespace(self) -> str:
        """Where it puts the gateway, by `namespace` or by a NamespaceTransformer that stands in it.

        Raises:
            AssertionError: it has neither.
        """
        if named := self.kustomization.get("namespace"):
            return str(named)
        for text in self.kustomization.get("transformers", []):
            tree = yaml.safe_load(text)
            if isinstance(tree, dict) and tree["kind"] == "NamespaceTransformer":
                return str(tree["metadata"]["namespace"])
        raise AssertionError(f"{self.name} gives its objects no namespace")

    @cached_property
    def objects(self) -> Objects:
        """The base with its configuration, environment and Secrets, to be looked at only."""
        objects = base()
        config = (self.path / "config.yaml").read_text(encoding="utf-8")
        objects.one("ConfigMap")["data"]["config.yaml"] = config
        for variable in self._variables():
            kept = [one for one in objects.container["env"] if one["name"] != variable["name"]]
            objects.container["env"][:] = [*kept, copy.deepcopy(variable)]
        secrets = [one for one in self._resources() if one["kind"] in ("Secret", "SopsSecret")]
        return Objects((*objects.all, *secrets), self.by_hand)

    @cached_property
    def by_hand(self) -> Keys:
        """The Secrets that are made by hand, or by whatever else is not in its files."""
        given = _document(self.path / "cluster.yaml").get("secrets", {})
        return {name: frozenset(keys) for name, keys in given.items()}

    @property
    def policies(self) -> list[Tree]:
        """The NetworkPolicies of the base and its own, for the caller to change."""
        found = [*_documents(BASE / "networkpolicy.yaml"), *self._resources()]
        policies = [copy.deepcopy(one) for one in found if one["kind"] == "NetworkPolicy"]
        for policy in policies:
            policy["metadata"]["namespace"] = self.namespace
        return policies

    @property
    def own(self) -> frozenset[Port]:
        """The gateway's ports."""
        return frozenset(Port(number) for number in self.objects.ports.values())

    def cluster(self) -> Cluster:
        """The cluster that it is for."""
        return Cluster(self.path / "cluster.yaml", self.objects.ports)

    def reach(self, policies: Iterable[Tree], cluster: Cluster | None = None) -> Reach:
        """Who reaches whom by these policies, in this cluster or the one that it is for."""
        where = self.cluster() if cluster is None else cluster
        gateway = where.bearing(self.namespace, self.objects.pod["metadata"]["labels"])
        check = where.bearing(self.namespace, check_labels())
        return Reach(list(policies), where, gateway, check)

    def _resources(self) -> Iterator[Any]:
        """The objects in files of its own."""
        for name in self.kustomization["resources"]:
            if (self.path / name).is_file():
                yield from _documents(self.path / name)

    def _variables(self) -> Iterator[Any]:
        """The environment of every patch of the Deployment."""
        for patch in self.kustomization.get("patches", []):
            text = patch.get("patch") or (self.path / patch["path"]).read_text(encoding="utf-8")
            tree = yaml.safe_load(text)
            if isinstance(tree, dict) and tree["kind"] == "Deployment":
                for container in tree["spec"]["template"]["spec"].get("containers", []):
                    yield from container.get("env", [])


def sound(of: Overlay, said: Iterable[str]) -> None:
    """Nothing is said of an overlay.

    Raises:
        FailTest: something is; with a line for each, of which a comparison would hide most.
    """
    if lines := list(said):
        raise FailTest("\n".join([f"{of.name}:", *lines]))


def overlays(directory: Path = OVERLAYS) -> list[Overlay]:
    """Every overlay of a directory."""
    return [Overlay(path.parent) for path in sorted(directory.glob("*/kustomization.yaml"))]


def overlay(name: str) -> Overlay:
    """The one of that name."""
    return Overlay(OVERLAYS / name)


def shipped() -> list[Overlay]:
    """Those of the repository: for what is true of them, and is anybody's choice in one's own."""
    return [overlay(name) for name in SHIPPED]


def _documents(path: Path) -> Iterator[Any]:
    yield from (one for one in yaml.safe_load_all(path.read_text(encoding="utf-8")) if one)


def _document(path: Path) -> Tree:
    tree: Tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    return tree
