"""What must hold of the gateway's objects, as one that applies them would check it.

Each policy gives a line for everything that is wrong. test_policies.py breaks each once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from tests.k8s import known
from tests.k8s.objects import Objects, Tree, check_labels, matches
from twisted_gateway.config.sandbox import SessionsAdapter

Policy = Callable[[Objects], Iterator[str]]

# What the process itself needs beside the bodies that it holds.
PROCESS_BYTES = 192 * 1024**2
# There is one event loop; threads of adapters and exporters take little beside it.
MOST_MILLICORES = 2000
NEEDED_OTEL = {
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_RESOURCE_ATTRIBUTES",
    "OTEL_SERVICE_NAME",
    "OTEL_TRACES_EXPORTER",
    "OTEL_TRACES_SAMPLER",
    "OTEL_TRACES_SAMPLER_ARG",
}

_QUANTITY = {"Ki": 1024, "Mi": 1024**2, "Gi": 1024**3}
_VOLUMES = {"configMap", "secret", "emptyDir", "projected", "downwardAPI"}


def amount(text: str, units: dict[str, int]) -> int:
    """A number with a unit."""
    match = re.fullmatch(r"(\d+)([A-Za-z]*)", text)
    if match is None or match[2] not in units:
        raise AssertionError(f"{text!r} is no number with one of the units {sorted(units)}")
    return int(match[1]) * units[match[2]]


def images(objects: Objects) -> Iterator[str]:
    """Every image has a tag or a digest, and the tag says which build."""
    adapters = objects.config.adapters.values()
    sandboxes = [one.image for one in adapters if isinstance(one, SessionsAdapter)]
    for image in (*(one["image"] for one in _containers(objects)), *sandboxes):
        name, _, tag = image.partition("@")[0].rpartition(":")
        if "@sha256:" in image:
            continue
        if not name or "/" in tag:
            yield f"{image} has no tag"
        elif tag == "latest":
            yield f"{image} may be anything"


def resources(objects: Objects) -> Iterator[str]:
    """Everything is limited, and what the configuration may hold fits."""
    for container in _containers(objects):
        given = container.get("resources", {})
        for kind in ("requests", "limits"):
            for name in ("cpu", "memory"):
                if name not in given.get(kind, {}):
                    yield f"{container['name']} has no {kind}.{name}"
        cpu = given.get("limits", {}).get("cpu", "0")
        if amount(cpu, {"": 1000, "m": 1}) > MOST_MILLICORES:
            yield f"{container['name']} can not use {cpu} cores"
    memory = objects.container.get("resources", {}).get("limits", {}).get("memory", "0")
    if amount(memory, {"": 1, **_QUANTITY}) < objects.config.max_held_bytes + PROCESS_BYTES:
        yield f"maxHeldBytes does not fit into {memory}"
    for volume in objects.pod["spec"]["volumes"]:
        if "emptyDir" in volume and "sizeLimit" not in volume["emptyDir"]:
            yield f"the volume {volume['name']} has no bound"


def restricted(objects: Objects) -> Iterator[str]:
    """Pods pass the Pod Security Standard `restricted`, and write nowhere but in an emptyDir."""
    for pod in objects.pods:
        yield from _of_pod(pod["spec"])
    for container in _containers(objects):
        own = container.get("securityContext", {})
        if own.get("allowPrivilegeEscalation") is not False:
            yield f"{container['name']} may gain privileges"
        if own.get("readOnlyRootFilesystem") is not True:
            yield f"{container['name']} may write to its root file system"
        if own.get("capabilities", {}).get("drop") != ["ALL"]:
            yield f"{container['name']} keeps capabilities"
    adapters = objects.config.adapters.values()
    talks = any(isinstance(one, SessionsAdapter) for one in adapters)
    if objects.pod["spec"].get("automountServiceAccountToken") is not talks:
        yield "the service account's token is mounted, or is not, without need"


def _of_pod(spec: Tree) -> Iterator[str]:
    context = spec.get("securityContext", {})
    if context.get("runAsNonRoot") is not True or not context.get("runAsUser"):
        yield "it may run as root"
    if context.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        yield "seccomp is not RuntimeDefault"
    if spec.get("enableServiceLinks") is not False:
        yield "every Service of the namespace puts variables into its environment"
    if any(spec.get(name) for name in ("hostNetwork", "hostPID", "hostIPC")):
        yield "it shares something with its host"
    for volume in spec.get("volumes", []):
        if not _VOLUMES & set(volume):
            yield f"the volume {volume['name']} is of a kind that is not allowed"
        # Files of a Secret are root's; the group's where there is one.
        mode = volume.get("secret", {}).get("defaultMode", 0o644)
        if not mode & 0o004 and not (mode & 0o040 and context.get("fsGroup")):
            yield f"it can not read the volume {volume['name']}"


def environment(objects: Objects) -> Iterator[str]:
    """All variables are known to the gateway, and all that it knows are set."""
    names = [one["name"] for one in objects.container["env"]]
    referred = known.referenced(objects.config_text)
    inside = {
        name
        for one in objects.container["env"]
        for name in re.findall(r"\$\((\w+)\)", one.get("value", ""))
    }
    allowed = known.gateway() | known.opentelemetry() | set(referred) | inside
    for name in names:
        if name not in allowed:
            yield f"{name} is nothing that the gateway reads"
        if names.count(name) > 1:
            yield f"{name} is set twice"
    for index, one in enumerate(objects.container["env"]):
        # Kubernetes leaves a reference as it stands where the variable comes later.
        for name in re.findall(r"\$\((\w+)\)", one.get("value", "")):
            if name not in names[:index]:
                yield f"{one['name']} refers to {name}, which is not set before it"
    for name in sorted((known.gateway() | NEEDED_OTEL) - set(names)):
        yield f"{name} is not set"
    for name, has_default in referred.items():
        if name not in names and not has_default:
            yield f"config.yaml refers to {name}, which is not set"


def configuration(objects: Objects) -> Iterator[str]:
    """The file is all there is in its ConfigMap, loads, and is spoken of with its own names."""
    config = objects.config
    yield from config.warnings
    volume = objects.volume("config")
    path = objects.environ["GATEWAY_CONFIG"]
    if path != f"{objects.mounted('config')}/config.yaml":
        yield f"GATEWAY_CONFIG is {path}, which is not mounted"
    keys = set(objects.one("ConfigMap", volume["configMap"]["name"])["data"])
    if keys != {"config.yaml"}:
        yield f"the ConfigMap has the keys {sorted(keys)}"
    used = {path for path in objects.secret_files if path in objects.config_text}
    if stray := objects.secret_files - used:
        yield f"nothing uses {sorted(stray)}"
    listed = {*config.listen, *config.admin_listen}
    if len(config.listen) != 1 or len(config.admin_listen) != 1:
        yield f"the listeners are {sorted(listed)}, not one for clients and one for operators"
    for model in config.models.values():
        if model.gated and not model.exchanges:
            yield f"the replicas' gates of {model.name} do not know of each other"


def coupled(objects: Objects) -> Iterator[str]:
    """What is said twice of the engine is the same, so that taking one away changes nothing."""
    names = ("ADMISSION_MAX_INFLIGHT", "VLLM_MAX_NUM_SEQS")
    first, second = (objects.environ.get(name) for name in names)
    if first != second:
        yield f"{names[0]} is {first}, and {names[1]} {second}"


def selectors(objects: Objects) -> Iterator[str]:
    """What selects the gateway's pods does so, and no others; policies bind the check's as well."""
    labels, check = objects.pod["metadata"]["labels"], check_labels()
    for who, selector in _selectors(objects):
        policy = who.partition(" ")[0].endswith("NetworkPolicy")
        if matches(selector, {}):
            yield f"{who} selects every pod of the namespace"
        elif not matches(selector, labels) and not (policy and matches(selector, check)):
            yield f"{who} selects no gateway"
        elif matches(selector, check) and not policy:
            yield f"{who} selects the check's pods"


def _selectors(objects: Objects) -> Iterator[tuple[str, Tree]]:
    keys = {
        "Deployment": "selector",
        "PodDisruptionBudget": "selector",
        "Service": "selector",
        "NetworkPolicy": "podSelector",
        "CiliumNetworkPolicy": "endpointSelector",
    }
    for kind, key in keys.items():
        for one in objects.of(kind):
            selector = one["spec"].get(key, {})
            given = {"matchLabels": selector} if kind == "Service" else selector
            yield f"{kind} {one['metadata']['name']}", given
    for constraint in objects.pod["spec"].get("topologySpreadConstraints", []):
        yield f"the spread over {constraint['topologyKey']}", constraint["labelSelector"]


def names(objects: Objects) -> Iterator[str]:
    """What an object refers to is there."""
    spec = objects.pod["spec"]
    accounts = {one["metadata"]["name"] for one in objects.of("ServiceAccount")}
    if spec.get("serviceAccountName") not in accounts:
        yield f"there is no ServiceAccount {spec.get('serviceAccountName')}"
    wanted = {objects.volume("secrets")["secret"]["secretName"]}
    for account in objects.of("ServiceAccount"):
        wanted |= {one["name"] for one in account.get("imagePullSecrets", [])}
    for name in sorted(wanted - set(objects.secrets)):
        yield f"there is no Secret {name}"
    for binding in objects.of("RoleBinding"):
        place = binding["metadata"]["namespace"]
        roles = {
            one["metadata"]["name"]
            for one in objects.of("Role")
            if one["metadata"]["namespace"] == place
        }
        if binding["roleRef"]["name"] not in roles:
            yield f"there is no Role {binding['roleRef']['name']} in {place}"
        home = objects.one("Deployment")["metadata"].get("namespace")
        for subject in binding["subjects"]:
            if (subject["name"], subject["namespace"]) != (spec.get("serviceAccountName"), home):
                yield f"the Role is bound to {subject['namespace']}/{subject['name']}"


def _containers(objects: Objects) -> Iterator[Tree]:
    for pod in objects.pods:
        yield from pod["spec"]["containers"]
        yield from pod["spec"].get("initContainers", [])
