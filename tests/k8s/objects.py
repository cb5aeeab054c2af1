"""The objects of a set of manifests, and what the tests ask of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from twisted_gateway.config.load import load
from twisted_gateway.config.schema import Config

Tree = dict[str, Any]

TOP = Path(__file__).parents[2]
K8S = TOP / "k8s"
BASE = K8S / "base"
OVERLAYS = K8S / "overlays"
JOB = K8S / "integration-test-job.yaml"

NAME = "llm-gateway"
Keys = Mapping[str, frozenset[str]]
"""The keys of Secrets, by the Secrets' names."""
OF_THE_BASE: Keys = MappingProxyType({NAME: frozenset({"peer-token"})})
"""Those that the base's own configuration reads; an overlay has `secrets` in its cluster.yaml."""


@dataclass(frozen=True)
class Objects:
    """Objects as `kubectl apply` would get them.

    Attributes:
        all: of every kind.
        by_hand: the Secrets that are there beside those that these objects make.
    """

    all: tuple[Tree, ...]
    by_hand: Keys = field(default_factory=lambda: OF_THE_BASE)

    def of(self, kind: str) -> list[Tree]:
        """All of a kind."""
        return [one for one in self.all if one["kind"] == kind]

    def one(self, kind: str, name: str = NAME) -> Tree:
        """The one of that name; it is there."""
        (found,) = [one for one in self.of(kind) if one["metadata"]["name"] == name]
        return found

    def changed(self, change: Callable[[Objects], object]) -> Objects:
        """A copy that was changed."""
        copied = replace(self, all=copy.deepcopy(self.all))
        change(copied)
        return copied

    @property
    def pods(self) -> list[Tree]:
        """Every pod's template, by whatever makes pods."""
        kinds = ("Deployment", "Job", "StatefulSet", "DaemonSet")
        return [one["spec"]["template"] for one in self.all if one["kind"] in kinds]

    @property
    def pod(self) -> Tree:
        """The gateway's pod, as its template has it."""
        template: Tree = self.one("Deployment")["spec"]["template"]
        return template

    @property
    def container(self) -> Tree:
        """The gateway's container."""
        (found,) = self.pod["spec"]["containers"]
        container: Tree = found
        return container

    @property
    def ports(self) -> dict[str, int]:
        """Its ports, by name."""
        return {one["name"]: one["containerPort"] for one in self.container["ports"]}

    @property
    def environ(self) -> dict[str, str]:
        """Its environment, with what kubelet puts there; references are filled with a word."""
        given = {one["name"]: one.get("value", "filled") for one in self.container["env"]}
        cluster = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
        return {**given, **cluster}

    @property
    def config_text(self) -> str:
        """The gateway's file, which its volume `config` mounts."""
        volume = self.volume("config")
        data: Mapping[str, str] = self.one("ConfigMap", volume["configMap"]["name"])["data"]
        return data["config.yaml"]

    @property
    def config(self) -> Config:
        """The configuration as the gateway would read it, with a made-up value in each secret."""
        return load(
            self.config_text,
            name="config.yaml",
            environ=self.environ,
            read_file=self._read_secret,
        )

    def volume(self, name: str) -> Tree:
        """A volume of the gateway's pod."""
        (found,) = [one for one in self.pod["spec"]["volumes"] if one["name"] == name]
        volume: Tree = found
        return volume

    def mounted(self, volume: str) -> str:
        """Where a volume is mounted."""
        (path,) = [
            one["mountPath"] for one in self.container["volumeMounts"] if one["name"] == volume
        ]
        return str(path)

    @property
    def secrets(self) -> dict[str, set[str]]:
        """The keys of each Secret that is made, encrypted, as it is, or by hand."""
        found = {name: set(keys) for name, keys in self.by_hand.items()}
        made = [(one["metadata"]["name"], one) for one in self.of("Secret")]
        for one in self.of("SopsSecret"):
            made += [(template["name"], template) for template in one["spec"]["secretTemplates"]]
        for name, tree in made:
            found.setdefault(name, set()).update(tree.get("data", {}), tree.get("stringData", {}))
        return found

    @property
    def secret_files(self) -> set[str]:
        """The files of the mounted Secret."""
        keys = self.secrets.get(self.volume("secrets")["secret"]["secretName"], set())
        return {f"{self.mounted('secrets')}/{key}" for key in keys}

    def _read_secret(self, path: str) -> str:
        if path not in self.secret_files:
            raise FileNotFoundError(f"no key of the Secret is mounted as {path}")
        return "a-secret-of-sixteen-characters"


def read(text: str) -> Objects:
    """The objects of a stream of documents."""
    return Objects(tuple(one for one in yaml.safe_load_all(text) if one))


def base() -> Objects:
    """The base's objects and the ServiceMonitor by their files, where there is no kustomize.

    The hash of the ConfigMap's name is kustomize's to add.
    """
    return _read_base().changed(lambda objects: None)


@cache
def _read_base() -> Objects:
    return Objects(tuple(_base()))


def _base() -> Iterator[Tree]:
    kustomization = yaml.safe_load((BASE / "kustomization.yaml").read_text(encoding="utf-8"))
    names = [*(BASE / name for name in kustomization["resources"])]
    for path in (*names, K8S / "monitoring" / "servicemonitor.yaml"):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            labels = document["metadata"].setdefault("labels", {})
            for pairs in kustomization["labels"]:
                labels.update(pairs["pairs"])
            yield document
    for made in kustomization["configMapGenerator"]:
        data = {name: (BASE / name).read_text(encoding="utf-8") for name in made["files"]}
        yield {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": made["name"]},
            "data": data,
        }


def matches(selector: Tree, labels: Mapping[str, str]) -> bool:
    """Whether a label selector takes these labels."""
    if unknown := set(selector) - {"matchLabels", "matchExpressions"}:
        raise AssertionError(f"the tests do not know {sorted(unknown)} in a selector")
    wanted: Mapping[str, str] = selector.get("matchLabels", {})
    expressions: list[Tree] = selector.get("matchExpressions", [])
    return all(labels.get(name) == value for name, value in wanted.items()) and all(
        _holds(one, labels) for one in expressions
    )


def _holds(expression: Tree, labels: Mapping[str, str]) -> bool:
    key, values = expression["key"], expression.get("values", [])
    match expression["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case operator:
            raise AssertionError(f"there is no operator {operator}")


@cache
def check_labels() -> Mapping[str, str]:
    """Those of the check's pods: of the Job's, and of a candidate's."""
    job = yaml.safe_load(JOB.read_text(encoding="utf-8"))
    labels: dict[str, str] = job["spec"]["template"]["metadata"]["labels"]
    return MappingProxyType(labels)
