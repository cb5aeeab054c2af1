"""What must hold of the gateway's objects, as one that applies them would check it.

Each policy gives a line for everything that is wrong. test_policies.py breaks each once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from decimal import Decimal

from tests.k8s import known, security
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

_CORES = {"": 1000, "m": 1}
_BYTES = {
    "": 1,
    **{letter: 1000**power for power, letter in enumerate("kMGT", 1)},
    **{f"{letter}i": 1024**power for power, letter in enumerate("KMGT", 1)},
}


def amount(given: object, units: dict[str, int]) -> int:
    """A number with a unit, as YAML has it: "500m", "0.5" or 1."""
    text = str(given)
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([A-Za-z]*)", text)
    if match is None or match[2] not in units:
        raise AssertionError(f"{text!r} is no number with one of the units {sorted(units)}")
    return int(Decimal(match[1]) * units[match[2]])


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
        yield from _of_container(container["name"], container.get("resources", {}))
    memory = objects.container.get("resources", {}).get("limits", {}).get("memory", "0")
    if amount(memory, _BYTES) < objects.config.max_held_bytes + PROCESS_BYTES:
        yield f"maxHeldBytes does not fit into {memory}"
    for volume in objects.pod["spec"]["volumes"]:
        if "emptyDir" in volume and "sizeLimit" not in volume["emptyDir"]:
            yield f"the volume {volume['name']} has no bound"


def _of_container(whose: str, given: Tree) -> Iterator[str]:
    for name, units in (("cpu", _CORES), ("memory", _BYTES)):
        asked, most = (given.get(kind, {}).get(name) for kind in ("requests", "limits"))
        if asked is None:
            yield f"{whose} has no requests.{name}"
        if most is None:
            yield f"{whose} has no limits.{name}"
        elif asked is not None and amount(asked, units) > amount(most, units):
            yield f"{whose} asks for {asked} of {name}, and may use {most}"
    cpu = given.get("limits", {}).get("cpu", 0)
    if amount(cpu, _CORES) > MOST_MILLICORES:
        yield f"{whose} can not use {cpu} cores"


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


def secrets(objects: Objects) -> Iterator[str]:
    """Every file of the mounted Secret that config.yaml names is a key of it."""
    mount, name = objects.mounted("secrets"), objects.volume("secrets")["secret"]["secretName"]
    text = known.uncommented(objects.config_text)
    for path in sorted(set(re.findall(rf"{re.escape(mount)}/[\w.-]+", text))):
        if path not in objects.secret_files:
            yield (
                f"config.yaml reads {path}, and nothing makes such a key of the Secret {name}: "
                "where that is done by hand, name it in cluster.yaml, under `secrets`"
            )


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
    logins = {one["name"] for one in spec.get("imagePullSecrets", [])}
    for account in objects.of("ServiceAccount"):
        logins |= {one["name"] for one in account.get("imagePullSecrets", [])}
    for name in sorted((wanted | logins) - set(objects.secrets)):
        yield f"there is no Secret {name}"
    for name in sorted(_made_logins(objects) - logins):
        yield f"nobody pulls an image with the Secret {name}"
    for name, kind in (("config", "configMap"), ("secrets", "secret")):
        if objects.volume(name)[kind].get("optional"):
            yield f"it starts without its volume {name}, and fails, where it would have waited"
    yield from _bindings(objects)


def _bindings(objects: Objects) -> Iterator[str]:
    account = objects.pod["spec"].get("serviceAccountName")
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
            if (subject["name"], subject["namespace"]) != (account, home):
                yield f"the Role is bound to {subject['namespace']}/{subject['name']}"


def _made_logins(objects: Objects) -> set[str]:
    made = [(one["metadata"]["name"], one) for one in objects.of("Secret")]
    for one in objects.of("SopsSecret"):
        made += [(template["name"], template) for template in one["spec"]["secretTemplates"]]
    return {name for name, one in made if one.get("type") == "kubernetes.io/dockerconfigjson"}


def _containers(objects: Objects) -> list[Tree]:
    return [one for pod in objects.pods for one in security.containers(pod)]
