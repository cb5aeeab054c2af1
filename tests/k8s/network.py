"""NetworkPolicies against a cluster: whom a selector takes, and who may connect to whom."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
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
# A namespace that no cluster.yaml has.
ELSEWHERE = "elsewhere"
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
        """One that nothing is known of, but for its labels: it listens everywhere."""
        known = cls.read(name, namespace, given, own)
        return replace(known, ports=None)


class Cluster:
    """The namespaces of a cluster, with their labels, pods and Services.

    Args:
        path: its cluster.yaml; overlays/example says what the keys mean.
        own: the gateway's ports, by name.

    Attributes:
        namespaces: their labels, by name.
        pods: all that are named, and addresses that are no pods'.
        strangers: somebody else in each namespace, with and without labels; whoever bears the
            labels of one that is known in a namespace that is not; and the world.
        services: (namespace, name, port) -> the pods behind it, and their port.
        outside: who is no pod, by address and by each of its names; names of anybody are the world.
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
            known = given.get("pods", {})
            keys = {key for one in known.values() for key in one.get("labels", {})}
            other = {**open_to_all, "labels": dict.fromkeys(keys, "another")}
            self.strangers.append(Pod.anybody("another", namespace, other, own))
            for pod_name, one in known.items():
                pod = Pod.read(pod_name, namespace, one, own)
                self.pods.append(pod)
                for service, leads in one.get("services", {}).items():
                    for port, target in leads.items():
                        self.services[namespace, service, port] = pod, Port.read(target, own)
        keys = {key for labels in self.namespaces.values() for key in labels}
        self.namespaces[ELSEWHERE] = dict.fromkeys(keys, ELSEWHERE)
        for pod in self.pods:
            as_if = {"labels": pod.labels}
            self.strangers.append(Pod.anybody(f"like {pod.name}", ELSEWHERE, as_if, own))
        addresses = dict(tree.get("addresses", {}))
        open_to_all = addresses.pop("anybody", {})
        world = [Pod.anybody(address, "", open_to_all, own) for address in WORLD]
        self.strangers += world
        outside = [Pod.read(address, "", one, own) for address, one in addresses.items()]
        self.pods += outside
        self.outside: dict[str, Pod] = {}
        named = zip((world[0], *outside), (open_to_all, *addresses.values()), strict=True)
        for pod, given in named:
            self.outside |= dict.fromkeys((pod.name, *given.get("names", ())), pod)

    @property
    def opened(self) -> list[Pod]:
        """Whom a policy may be for: all that are named, and the world where something is open."""
        world = {pod.name: pod for pod in self.strangers if not pod.namespace}
        return [*self.pods, *(pod for pod in world.values() if pod.use or pod.served)]

    def bearing(self, namespace: str, labels: Mapping[str, str]) -> Pod:
        """The one pod of a namespace that has these labels, and maybe more; it is there."""
        here = [pod for pod in self.pods if pod.namespace == namespace]
        found = [pod for pod in here if labels.items() <= pod.labels.items()]
        assert len(found) == 1, f"{len(found)} pods of {namespace} in cluster.yaml bear {labels}"
        return found[0]

    def behind(self, host: str, port: int) -> tuple[Pod, Port] | None:
        """The pods behind a Service's name in the cluster's DNS, or who is outside by that name."""
        if host in self.outside:
            return self.outside[host], Port(port)
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


def unmatched(policies: list[Tree], cluster: Cluster, own: frozenset[Port]) -> Iterator[str]:
    """Every peer that is nobody, every port without a listener, every rule for all the world.

    And every policy that binds nobody, or has rules for a direction that it does not name.
    """
    for policy in policies:
        yield from _without_effect(policy, cluster)
    for home, direction, peers, ports in rules(policies):
        if not peers or not ports:
            yield f"{direction}: a rule without peers or ports is for everybody"
        taken: list[Pod] = []
        for peer in peers:
            found = [pod for pod in cluster.opened if cluster.takes(peer, home, pod)]
            if not found:
                yield f"{direction}: {peer} is nobody"
            taken += found
        theirs = frozenset(port for pod in taken for port in pod.ports or pod.served)
        listening = own if direction == "ingress" else theirs
        for one in ports:
            first, last = bounds(one)
            there = {port.number for port in listening if covers(one, port)}
            if silent := sorted(set(range(first, last + 1)) - there):
                protocol = one.get("protocol", "TCP")
                yield f"{direction}: nobody listens on {silent[0]}/{protocol} of {peers}"


def _without_effect(policy: Tree, cluster: Cluster) -> Iterator[str]:
    name, spec = policy["metadata"]["name"], policy["spec"]
    if not any(binds(policy, pod) for pod in cluster.pods):
        yield f"{name} binds nobody: {spec['podSelector']}"
    for way in ("ingress", "egress"):
        if spec.get(way) and way.capitalize() not in spec["policyTypes"]:
            yield f"{name} has rules for {way}, and policyTypes {spec['policyTypes']}"


def binds(policy: Tree, pod: Pod) -> bool:
    """Whether a policy is for a pod."""
    here = pod.namespace == policy["metadata"]["namespace"]
    return here and matches(policy["spec"]["podSelector"], pod.labels)


class Ways:
    """What policies let one pod be reached by, or let it reach.

    A pod that no policy binds in a direction is open in it; a rule for a direction that its policy
    does not name does nothing.

    Args:
        policies: all that there are.
        cluster: where they are.
        direction: "ingress" or "egress".
        pod: whose they are.
    """

    def __init__(
        self, policies: Iterable[Tree], cluster: Cluster, direction: str, pod: Pod
    ) -> None:
        """Find the policies that bind it."""
        binding = [
            policy
            for policy in policies
            if direction.capitalize() in policy["spec"]["policyTypes"] and binds(policy, pod)
        ]
        self._cluster = cluster
        self._open = not binding
        self._rules = [rule for rule in rules(binding) if rule[1] == direction]

    def open(self, other: Pod, ports: frozenset[Port]) -> frozenset[Port]:
        """Those of the ports at which the other may reach it, or be reached by it."""
        if self._open:
            return ports
        found = [
            theirs
            for home, _, peers, theirs in self._rules
            if any(self._cluster.takes(peer, home, other) for peer in peers or [_of(other)])
        ]
        return frozenset(
            port
            for port in (ports if found else ())
            if any(not theirs or any(covers(one, port) for one in theirs) for theirs in found)
        )


def _of(pod: Pod) -> Tree:
    """A peer that is this pod: a rule that names none is for everybody."""
    if not pod.namespace:
        return {"ipBlock": {"cidr": pod.name}}
    name = {"kubernetes.io/metadata.name": pod.namespace}
    return {"namespaceSelector": {"matchLabels": name}}


def place(url: str) -> tuple[str, int] | None:
    """Host and port of a URL, the port by its scheme where it names none; None: it is no URL."""
    match = _URL.match(url)
    if match is None:
        return None
    return match[1], int(match[2] or (443 if url.startswith("https") else 80))


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
        if found := place(text):
            yield found
        elif key == "upstream" and (match := _HOST_PORT.fullmatch(text)):
            yield match[1], int(match[2])
