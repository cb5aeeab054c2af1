"""NetworkPolicies against a cluster: whom a selector takes, and who may connect to whom."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from tests.k8s.objects import OVERLAYS, Objects, Tree, matches
from twisted_gateway.config.expand import expand

_URL = re.compile(r"https?://([^/:?\s]+)(?::(\d+))?(?=[/?\s]|$)")
_HOST_PORT = re.compile(r"([\w.-]+):(\d+)")
# Keys whose URL nobody connects to.
_NAMES_ONLY = {"issuer", "successor"}


@dataclass(frozen=True)
class Pod:
    """A pod, or an address outside of the pods' network (then `namespace` is empty).

    Attributes:
        ports: on which it listens.
        use: ports of the gateway that are to be open to it.
        served: ports of its own that are to be open to the gateway.
    """

    name: str
    namespace: str
    labels: Mapping[str, str]
    ports: frozenset[int]
    use: frozenset[int]
    served: frozenset[int]

    @classmethod
    def read(cls, name: str, namespace: str, given: Tree) -> Pod:
        """Read it as cluster.yaml has it."""
        ports, use, served = (frozenset(given.get(key, ())) for key in ("ports", "use", "served"))
        return cls(name, namespace, given.get("labels", {}), ports, use, served)


class Cluster:
    """The namespaces of a cluster, with their labels, pods and Services.

    Attributes:
        namespaces: their labels, by name.
        pods: all, and addresses that are no pods'.
        services: (namespace, name, port) -> the pods behind it, and their port.
    """

    def __init__(self, name: str) -> None:
        """Read the one of an overlay."""
        text = (OVERLAYS / name / "cluster.yaml").read_text(encoding="utf-8")
        tree = yaml.safe_load(text)
        self.namespaces: dict[str, dict[str, str]] = {}
        self.pods: list[Pod] = []
        self.services: dict[tuple[str, str, int], tuple[Pod, int]] = {}
        for namespace, given in tree["namespaces"].items():
            # Kubernetes itself sets this one.
            own = {"kubernetes.io/metadata.name": namespace}
            self.namespaces[namespace] = {**given.get("labels", {}), **own}
            for pod_name, one in given.get("pods", {}).items():
                pod = Pod.read(pod_name, namespace, one)
                self.pods.append(pod)
                for service, leads in one.get("services", {}).items():
                    for port, target in leads.items():
                        self.services[namespace, service, port] = pod, target
        for address, one in tree.get("addresses", {}).items():
            self.pods.append(Pod.read(address, "", one))

    def behind(self, host: str, port: int) -> tuple[Pod, int] | None:
        """The pods behind a Service's name in the cluster's DNS."""
        service, _, rest = host.partition(".")
        return self.services.get((rest.partition(".")[0], service, port))

    def takes(self, peer: Tree, home: str, pod: Pod) -> bool:
        """Whether a peer of a policy in the namespace `home` is this pod."""
        if "ipBlock" in peer:
            block = ipaddress.ip_network(peer["ipBlock"]["cidr"])
            return not pod.namespace and ipaddress.ip_address(pod.name) in block
        if not pod.namespace:
            return False
        if "namespaceSelector" in peer:
            if not matches(peer["namespaceSelector"], self.namespaces[pod.namespace]):
                return False
        elif pod.namespace != home:
            return False
        return matches(peer.get("podSelector", {}), pod.labels)


def rules(policies: Iterable[Tree]) -> Iterator[tuple[str, str, list[Tree], list[Tree]]]:
    """Every rule: the policy's namespace, the direction, peers and ports."""
    for policy in policies:
        for direction, peers in (("ingress", "from"), ("egress", "to")):
            for rule in policy["spec"].get(direction, []):
                home = policy["metadata"]["namespace"]
                yield home, direction, rule.get(peers, []), rule.get("ports", [])


def unmatched(policies: Iterable[Tree], cluster: Cluster, own: frozenset[int]) -> Iterator[str]:
    """Every peer that is nobody, every port without a listener, every rule for all the world."""
    for home, direction, peers, ports in rules(policies):
        if not peers or not ports:
            yield f"{direction}: a rule without peers or ports is for everybody"
        taken: list[Pod] = []
        for peer in peers:
            found = [pod for pod in cluster.pods if cluster.takes(peer, home, pod)]
            if not found:
                yield f"{direction}: {peer} is nobody"
            taken += found
        listening = own if direction == "ingress" else frozenset().union(*(p.ports for p in taken))
        for port in ports:
            if port["port"] not in listening:
                yield f"{direction}: nobody listens on {port['port']} of {peers}"


def allowed(
    policies: Iterable[Tree], cluster: Cluster, direction: str, other: Pod, port: int
) -> bool:
    """Whether policies let the gateway be reached by another at a port, or reach it there."""
    return any(
        direction == way
        and any(cluster.takes(peer, home, other) for peer in peers)
        and any(one["port"] == port for one in ports)
        for home, way, peers, ports in rules(policies)
    )


def reached(objects: Objects) -> set[tuple[str, int]]:
    """Host and port of all that configuration and environment have the gateway connect to."""
    environ = objects.environ
    found = set(_addresses(yaml.safe_load(objects.config_text), environ, ""))
    if environ["OTEL_TRACES_EXPORTER"] != "none":
        found |= set(_addresses(environ["OTEL_EXPORTER_OTLP_ENDPOINT"], environ, "upstream"))
    return found


def _addresses(node: Any, environ: Mapping[str, str], key: str) -> Iterator[tuple[str, int]]:
    if isinstance(node, dict):
        for name, value in node.items():
            yield from _addresses(value, environ, str(name))
    elif isinstance(node, list):
        for value in node:
            yield from _addresses(value, environ, key)
    elif isinstance(node, str) and key not in _NAMES_ONLY:
        text = expand(node, environ)
        if match := _URL.match(text):
            default = 443 if text.startswith("https") else 80
            yield match[1], int(match[2] or default)
        elif key == "upstream" and (match := _HOST_PORT.fullmatch(text)):
            yield match[1], int(match[2])
