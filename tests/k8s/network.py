"""NetworkPolicies against a cluster: whom a selector takes, and who may connect to whom."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.k8s.objects import Objects, Tree, matches
from twisted_gateway.config.expand import expand

_URL = re.compile(r"https?://([^/:?\s]+)(?::(\d+))?(?=[/?\s]|$)")
_HOST_PORT = re.compile(r"([\w.-]+):(\d+)")
# Keys whose URL nobody connects to.
_NAMES_ONLY = {"issuer", "successor"}
# Addresses of documentation (RFC 5737, RFC 3849): nobody's.
WORLD = ("203.0.113.1", "2001:db8::1")
PROTOCOLS = ("TCP", "UDP", "SCTP")
LAST_PORT = 65535


class Port(NamedTuple):
    """A port of a pod."""

    number: int
    protocol: str = "TCP"

    @classmethod
    def read(cls, given: int | str, own: Mapping[str, int]) -> Port:
        """Read it as cluster.yaml has it: 80, 53/UDP, or the name of one of the gateway's."""
        if given in own:
            return cls(own[str(given)])
        number, _, protocol = str(given).partition("/")
        return cls(int(number), protocol or "TCP")


@dataclass(frozen=True)
class Pod:
    """A pod, or an address outside of the pods' network (then `namespace` is empty).

    Attributes:
        ports: on which it listens; None: on all.
        use: ports of the gateway that are to be open to it.
        served: ports of its own that are to be open to the gateway.
        max_num_seqs: how many sequences it runs at once, where it is an engine and that is known.
        selects: the labels by which an operator takes its objects.
    """

    name: str
    namespace: str
    labels: Mapping[str, str]
    ports: frozenset[Port] | None
    use: frozenset[Port]
    served: frozenset[Port]
    max_num_seqs: int | None = None
    selects: Mapping[str, str] | None = None

    @classmethod
    def read(cls, name: str, namespace: str, given: Tree, own: Mapping[str, int]) -> Pod:
        """Read it as cluster.yaml has it."""
        ports, use, served = (
            frozenset(Port.read(one, own) for one in given.get(key, ()))
            for key in ("ports", "use", "served")
        )
        labels = given.get("labels", {})
        sequences, selects = given.get("maxNumSeqs"), given.get("selects")
        return cls(name, namespace, labels, ports, use, served, sequences, selects)

    @classmethod
    def anybody(cls, name: str, namespace: str, given: Tree, own: Mapping[str, int]) -> Pod:
        """One that nothing is known of: it bears no label, and listens everywhere."""
        known = cls.read(name, namespace, given, own)
        return cls(name, namespace, {}, None, known.use, known.served)


class Cluster:
    """The namespaces of a cluster, with their labels, pods and Services.

    Args:
        path: its cluster.yaml; overlays/example says what the keys mean.
        own: the gateway's ports, by name.

    Attributes:
        namespaces: their labels, by name.
        pods: all that are named, and addresses that are no pods'.
        strangers: somebody else in each namespace, and in the world.
        services: (namespace, name, port) -> the pods behind it, and their port.
    """

    def __init__(self, path: Path, own: Mapping[str, int]) -> None:
        """Read it."""
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
        self.namespaces: dict[str, dict[str, str]] = {}
        self.pods: list[Pod] = []
        self.strangers: list[Pod] = []
        self.services: dict[tuple[str, str, int], tuple[Pod, Port]] = {}
        for namespace, given in tree["namespaces"].items():
            # Kubernetes itself sets this one.
            metadata_name = {"kubernetes.io/metadata.name": namespace}
            self.namespaces[namespace] = {**given.get("labels", {}), **metadata_name}
            open_to_all = given.get("anybody", {})
            self.strangers.append(Pod.anybody("anybody", namespace, open_to_all, own))
            for pod_name, one in given.get("pods", {}).items():
                pod = Pod.read(pod_name, namespace, one, own)
                self.pods.append(pod)
                for service, leads in one.get("services", {}).items():
                    for port, target in leads.items():
                        self.services[namespace, service, port] = pod, Port.read(target, own)
        addresses = dict(tree.get("addresses", {}))
        open_to_all = addresses.pop("anybody", {})
        self.strangers += [Pod.anybody(address, "", open_to_all, own) for address in WORLD]
        self.pods += [Pod.read(address, "", one, own) for address, one in addresses.items()]

    def behind(self, host: str, port: int) -> tuple[Pod, Port] | None:
        """The pods behind a Service's name in the cluster's DNS."""
        service, _, rest = host.partition(".")
        return self.services.get((rest.partition(".")[0], service, port))

    def takes(self, peer: Tree, home: str, pod: Pod) -> bool:
        """Whether a peer of a policy in the namespace `home` is this pod."""
        if "ipBlock" in peer:
            block = peer["ipBlock"]
            taken = not pod.namespace and _within(pod.name, block["cidr"])
            return taken and not any(_within(pod.name, one) for one in block.get("except", ()))
        if not pod.namespace:
            return False
        if "namespaceSelector" in peer:
            if not matches(peer["namespaceSelector"], self.namespaces[pod.namespace]):
                return False
        elif pod.namespace != home:
            return False
        return matches(peer.get("podSelector", {}), pod.labels)


def _within(address: str, cidr: str) -> bool:
    return ipaddress.ip_address(address) in ipaddress.ip_network(cidr)


def rules(policies: Iterable[Tree]) -> Iterator[tuple[str, str, list[Tree], list[Tree]]]:
    """Every rule: the policy's namespace, the direction, peers and ports."""
    for policy in policies:
        for direction, peers in (("ingress", "from"), ("egress", "to")):
            for rule in policy["spec"].get(direction, []):
                home = policy["metadata"]["namespace"]
                yield home, direction, rule.get(peers, []), rule.get("ports", [])


def bounds(rule: Tree) -> tuple[int, int]:
    """The first and the last port of an entry of a rule's `ports`; without one it is for all."""
    first = rule.get("port", 1)
    assert isinstance(first, int), f"the tests do not know ports by name: {first}"
    return first, rule.get("endPort", first if "port" in rule else LAST_PORT)


def covers(rule: Tree, port: Port) -> bool:
    """Whether an entry of a rule's `ports` is for this one."""
    first, last = bounds(rule)
    return rule.get("protocol", "TCP") == port.protocol and first <= port.number <= last


def mentioned(policies: Iterable[Tree], cluster: Cluster) -> frozenset[Port]:
    """Every port that a policy or a pod names, by every protocol: where to try one that has all."""
    numbers = {number for *_, ports in rules(policies) for one in ports for number in bounds(one)}
    numbers |= {port.number for pod in cluster.pods for port in pod.ports or ()}
    return frozenset(Port(number, protocol) for number in numbers for protocol in PROTOCOLS)


def unmatched(policies: Iterable[Tree], cluster: Cluster, own: frozenset[Port]) -> Iterator[str]:
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
        theirs = frozenset(port for pod in taken for port in pod.ports or ())
        listening = own if direction == "ingress" else theirs
        for one in ports:
            first, last = bounds(one)
            there = {port.number for port in listening if covers(one, port)}
            if silent := sorted(set(range(first, last + 1)) - there):
                protocol = one.get("protocol", "TCP")
                yield f"{direction}: nobody listens on {silent[0]}/{protocol} of {peers}"


def allowed(
    policies: Iterable[Tree], cluster: Cluster, direction: str, other: Pod, port: Port
) -> bool:
    """Whether policies let the gateway be reached by another at a port, or reach it there."""
    return any(
        direction == way
        and any(cluster.takes(peer, home, other) for peer in peers or [_of(other)])
        and any(covers(one, port) for one in ports or [{"protocol": port.protocol}])
        for home, way, peers, ports in rules(policies)
    )


def _of(pod: Pod) -> Tree:
    """A peer that is this pod: a rule that names none is for everybody."""
    if not pod.namespace:
        return {"ipBlock": {"cidr": pod.name}}
    name = {"kubernetes.io/metadata.name": pod.namespace}
    return {"namespaceSelector": {"matchLabels": name}}


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
