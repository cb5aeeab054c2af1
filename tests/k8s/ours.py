"""What the repository's own manifests hold to, and an overlay of somebody's own need not."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from functools import cache

from tests.k8s.objects import TOP, Objects, Tree
from tests.k8s.policies import Policy
from tests.k8s.routing import is_outside
from tests.k8s.security import containers

# How long one that hangs, or that can't serve, may be taken for one that does not, in seconds.
LONGEST = {"startupProbe": 120, "livenessProbe": 120, "readinessProbe": 15}
# More gateways hold more of those that wait. What these wait for is a place in the engine.
MOST_TIMES_MORE = 2
# Until the Ingress and kube-proxy have let go of one that ends, in seconds.
LET_GO_SECONDS = 5
TOPOLOGIES = {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}
_FIELDS = {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace"}


def pods(objects: Objects) -> Iterator[str]:
    """They run as the image's user, of no group that has rights, with an image that is there."""
    user = image_user()
    for pod in objects.pods:
        context = pod["spec"].get("securityContext", {})
        if 0 in (context.get("fsGroup"), *context.get("supplementalGroups", [])):
            yield "it is in root's group"
        if pod["spec"].get("shareProcessNamespace"):
            yield "its containers see each other's processes"
        for one in containers(pod):
            name, own = one["name"], {**context, **one.get("securityContext", {})}
            runs = own.get("runAsUser"), own.get("runAsGroup")
            if runs != user:
                yield f"{name} runs as {runs}, and the image is made for {user}"
            if (pull := one.get("imagePullPolicy")) != "IfNotPresent":
                yield f"{name} is pulled {pull}: a tag is never used twice, but may be new here"


@cache
def image_user() -> tuple[int, int]:
    """User and group of the image, by the Dockerfile's last USER."""
    text = (TOP / "Dockerfile").read_text(encoding="utf-8")
    user, group = re.findall(r"^USER (\d+):(\d+)$", text, re.MULTILINE)[-1]
    return int(user), int(group)


def memory(objects: Objects) -> Iterator[str]:
    """It is asked for in full: who takes more than that is the first to go when a node runs out."""
    given = objects.container["resources"]
    asked, most = (given[kind]["memory"] for kind in ("requests", "limits"))
    if asked != most:
        yield f"{asked} of memory are asked for, and {most} may be used"


def noticed(objects: Objects) -> Iterator[str]:
    """Who does not answer is noticed soon, and is given the time to answer."""
    for name, longest in LONGEST.items():
        probe = objects.container[name]
        times = max(probe.get("failureThreshold", 3), probe.get("successThreshold", 1))
        after = probe.get("initialDelaySeconds", 0) + probe.get("periodSeconds", 10) * times
        if after > longest:
            yield f"{name}: after {after} s, and is to be known within {longest}"
    if objects.container["readinessProbe"].get("timeoutSeconds", 1) < 2:
        yield "readinessProbe: it has to answer within a second"


def spread(objects: Objects) -> Iterator[str]:
    """Over nodes and zones, each rollout by itself, and on a single node as well."""
    there = {
        one["topologyKey"]
        for one in objects.pod["spec"].get("topologySpreadConstraints", [])
        if one["whenUnsatisfiable"] == "ScheduleAnyway"
        and one.get("matchLabelKeys") == ["pod-template-hash"]
    }
    for topology in sorted(TOPOLOGIES - there):
        yield f"they are not spread over {topology} as they come"


def turnover(objects: Objects) -> Iterator[str]:
    """They come one by one, go when they are let go of, and a rollout can be undone."""
    spec = objects.one("Deployment")["spec"]
    surge = spec["strategy"].get("rollingUpdate", {}).get("maxSurge", "25%")
    if surge != 1:
        yield f"a rollout adds {surge} at once"
    if spec.get("revisionHistoryLimit", 10) < 1:
        yield "a rollout cannot be undone"
    seconds = objects.container["lifecycle"]["preStop"]["sleep"]["seconds"]
    if seconds < LET_GO_SECONDS:
        yield f"one that ends takes requests for {seconds} s, and gets them for {LET_GO_SECONDS}"
    for one in objects.of("PodDisruptionBudget"):
        if one["spec"].get("unhealthyPodEvictionPolicy") != "AlwaysAllow":
            yield "one that is not ready holds a node's drain up"


def container(objects: Objects) -> Iterator[str]:
    """It is started as the image says, knows its name, has what is for it, and says why it ends."""
    if objects.container.get("terminationMessagePolicy") != "FallbackToLogsOnError":
        yield "why it ended is not in its status"
    for key in ("command", "args"):
        if key in objects.container:
            yield f"it is not started as the image says: {key}"
    environ = {one["name"]: one.get("valueFrom", {}) for one in objects.container["env"]}
    for name, path in _FIELDS.items():
        if environ[name].get("fieldRef", {}).get("fieldPath") != path:
            yield f"{name} is not its {path}"
    mounted = {one["name"] for one in objects.container["volumeMounts"]}
    for volume in objects.pod["spec"]["volumes"]:
        if volume["name"] not in mounted:
            yield f"the volume {volume['name']} is mounted nowhere"
        if "secret" in volume and (mode := volume["secret"].get("defaultMode", 0o644)) & 0o227:
            yield f"the volume {volume['name']} is for more than its group to read: {mode:o}"


def services(objects: Objects) -> Iterator[str]:
    """Who is outside of the cluster comes by the Ingress; any gateway will do for anybody."""
    for service in objects.of("Service"):
        if is_outside(service):
            yield f"Service {service['metadata']['name']} is open to those outside of the cluster"
        if service["spec"].get("sessionAffinity", "None") != "None":
            yield f"Service {service['metadata']['name']} sends a client to one gateway alone"


def accounts(objects: Objects) -> Iterator[str]:
    """Pods that want a ServiceAccount's token say so themselves."""
    for account in objects.of("ServiceAccount"):
        if account.get("automountServiceAccountToken") is not False:
            yield f"every pod of ServiceAccount {account['metadata']['name']} gets its token"


def namespaces(objects: Objects) -> Iterator[str]:
    """A namespace that is made refuses pods that are not `restricted`."""
    for one in objects.of("Namespace"):
        labels = one["metadata"].get("labels", {})
        enforced = labels.get("pod-security.kubernetes.io/enforce")
        if enforced != "restricted":
            yield f"the namespace {one['metadata']['name']} takes pods that are {enforced}"


def blocks(objects: Objects) -> Iterator[str]:
    """Addresses are let through one by one: of a network nobody knows who else is there."""
    for policy in objects.of("NetworkPolicy"):
        for block in _blocks(policy["spec"]):
            network = ipaddress.ip_network(block["cidr"])
            if network.prefixlen != network.max_prefixlen:
                yield f"{policy['metadata']['name']}: {network} is more than one address"


def _blocks(spec: Tree) -> Iterator[Tree]:
    for way, peers in (("ingress", "from"), ("egress", "to")):
        for rule in spec.get(way, []):
            yield from (peer["ipBlock"] for peer in rule.get(peers, []) if "ipBlock" in peer)


def autoscaler(objects: Objects) -> Iterator[str]:
    """It makes a few more, and takes one away when that which went before has drained."""
    for scaler in objects.of("HorizontalPodAutoscaler"):
        spec = scaler["spec"]
        if spec["maxReplicas"] > MOST_TIMES_MORE * spec["minReplicas"]:
            yield f"{spec['maxReplicas']} gateways: they bring no more places in the engine"
        down = spec.get("behavior", {}).get("scaleDown", {})
        # Kubernetes' own: five minutes, and then all at once.
        window = down.get("stabilizationWindowSeconds", 300)
        if window < objects.config.drain_seconds:
            yield f"a gateway goes {window} s after a burst, and drains for longer"
        for one in down.get("policies", [{"type": "Percent", "value": 100, "periodSeconds": 15}]):
            few = (one["type"], one["value"]) == ("Pods", 1)
            if not few or one["periodSeconds"] < objects.config.drain_seconds:
                yield f"{one['value']} {one['type']} may go within {one['periodSeconds']} s"


OURS: tuple[Policy, ...] = (
    pods,
    memory,
    noticed,
    spread,
    turnover,
    container,
    services,
    accounts,
    namespaces,
    blocks,
    autoscaler,
)
"""All of them, for the base and for the repository's overlays."""
