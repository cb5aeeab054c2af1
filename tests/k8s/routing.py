"""What must hold of the way to the gateway: probes, ports, Services."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry
from twisted.internet.testing import MemoryReactorClock

from tests.k8s.objects import NAME, Objects, Tree, matches
from tests.stack import Client
from twisted_gateway.service import Gateway
from twisted_gateway.telemetry.tracing import NoTracing

METRICS = "/metrics"


class Asked:
    """A gateway of these objects' configuration, in memory, with nobody behind it."""

    def __init__(self, objects: Objects) -> None:
        self.reactor: Any = MemoryReactorClock()
        self.clients: list[Client] = []
        self._gateway = Gateway(
            self.reactor,
            objects.config,
            registry=CollectorRegistry(),
            tracing=NoTracing(),
            access_log=self,  # type: ignore[arg-type]
            load=None,
        )
        self._gateway.startService()

    def ended(self, entry: object) -> None:
        """Be the access log."""

    def settle(self) -> None:
        """Let what is due happen."""
        self.reactor.advance(0)

    def status(self, port: int, path: str) -> int:
        """The status of a GET; 0 where nothing listens."""
        for at, factory, *_ in self.reactor.tcpServers:
            if at == port:
                client = Client(self, factory, "192.0.2.7")  # type: ignore[arg-type]
                status = client.get(path).status
                client.wire.lose()
                return status
        return 0

    def close(self) -> None:
        """Stop it."""
        self._gateway.stopService()


def probes(objects: Objects) -> Iterator[str]:
    """Probes and scrapes get a 200 from the gateway's own site on their ports."""
    gateway = Asked(objects)
    try:
        for name in ("startupProbe", "livenessProbe", "readinessProbe"):
            probe = objects.container.get(name)
            if probe is None:
                yield f"there is no {name}"
                continue
            where = probe["httpGet"]
            port = objects.ports.get(where["port"], 0)
            if (status := gateway.status(port, where["path"])) != 200:
                yield f"{name}: {where['path']} on {where['port']} is {status}"
            if (name == "readinessProbe") is not where["path"].endswith("/ready"):
                yield f"{name}: {where['path']} answers another question"
        for port in objects.ports.values():
            for path in (METRICS, "/status", "/health"):
                public = port != objects.ports["admin"]
                if (gateway.status(port, path) == 200) is public:
                    yield f"{path} on {port} is public, or is not there"
    finally:
        gateway.close()


def ports(objects: Objects) -> Iterator[str]:
    """Configuration, container and Services mean the same ports by the same names."""
    config = objects.config
    listened = {
        "http": [number(one) for one in config.listen],
        "admin": [number(one) for one in config.admin_listen],
        "peers": [number(config.peers.listen)],
    }
    declared = {name: [port] for name, port in objects.ports.items()}
    if listened != declared:
        yield f"it listens on {listened}, and the container says {declared}"
    for port in objects.container["ports"]:
        if port.get("protocol", "TCP") != "TCP":
            yield f"the container says {port['protocol']} of {port['name']}"
    for service in objects.of("Service"):
        for port in service["spec"]["ports"]:
            name, target = service["metadata"]["name"], port["targetPort"]
            if objects.ports.get(target) != port["port"]:
                yield f"Service {name}: {port['port']} leads to {target}"
            if port.get("protocol", "TCP") != "TCP":
                yield f"Service {name}: {port['port']} is for {port['protocol']}"
    for name, wanted in {NAME: {"http"}, f"{NAME}-admin": {"admin"}}.items():
        there = {port["targetPort"] for port in objects.one("Service", name)["spec"]["ports"]}
        if there != wanted:
            yield f"Service {name} gives {sorted(there)}"


def exposed(objects: Objects) -> Iterator[str]:
    """Operators' and peers' ports stay in the cluster; clients get who is ready, and no other."""
    for service in objects.of("Service"):
        name, spec = service["metadata"]["name"], service["spec"]
        targets = {port["targetPort"] for port in spec["ports"]}
        if is_outside(service) and targets != {"http"}:
            yield f"Service {name} has {sorted(targets)} for those outside of the cluster"
        if spec.get("publishNotReadyAddresses") and "http" in targets:
            yield f"Service {name} sends clients to gateways that are not ready"


def is_outside(service: Tree) -> bool:
    """Whether a Service has an address for those outside of the cluster, or is one itself."""
    spec = service["spec"]
    return spec.get("type", "ClusterIP") != "ClusterIP" or bool(spec.get("externalIPs"))


def peers(objects: Objects) -> Iterator[str]:
    """`replicas` names the headless Service of all gateways, those that drain among them."""
    spec = objects.pod["spec"]
    own = spec.get("dnsConfig", {}).get("nameservers")
    if spec.get("dnsPolicy") == "Default" or (spec.get("dnsPolicy") == "None" and not own):
        yield f"with dnsPolicy {spec['dnsPolicy']} names of Services are nobody's"
    for model in objects.config.models.values():
        if not model.exchanges:
            continue
        if model.policy.replicas.dns is None:
            yield f"{model.name}: pods come and go, and their addresses are fixed"
            continue
        host, port = model.policy.replicas.dns
        service = next(
            (one for one in objects.of("Service") if one["metadata"]["name"] == host.split(".")[0]),
            None,
        )
        if service is None:
            yield f"{model.name}: there is no Service {host}"
            continue
        spec = service["spec"]
        if spec.get("clusterIP") != "None" or spec.get("publishNotReadyAddresses") is not True:
            yield f"Service {host} does not name all gateways one by one"
        if ("peers", port) not in {(one["name"], one["port"]) for one in spec["ports"]}:
            yield f"Service {host} has no port peers {port}"


def scraped(objects: Objects) -> Iterator[str]:
    """The ServiceMonitor finds one Service of all gateways, with labels as rules want them."""
    for monitor in objects.of("ServiceMonitor"):
        spec = monitor["spec"]
        found = [
            one
            for one in objects.of("Service")
            if matches(spec["selector"], one["metadata"]["labels"])
        ]
        if len(found) != 1:
            yield f"it takes {len(found)} Services"
            continue
        (service,) = found
        if not service["spec"].get("publishNotReadyAddresses"):
            yield "one that drains is not scraped"
        if spec.get("jobLabel") not in service["metadata"]["labels"]:
            yield "the job has no name"
        names = {port["name"] for port in service["spec"]["ports"] if port["targetPort"] == "admin"}
        for endpoint in spec["endpoints"]:
            if endpoint["port"] not in names or endpoint["path"] != METRICS:
                yield f"{endpoint['path']} of {endpoint['port']} is not where metrics are"
            if endpoint.get("relabelings") or endpoint.get("honorLabels"):
                yield "the target's own labels (namespace, instance) are changed"
            longest, every = endpoint.get("scrapeTimeout"), endpoint.get("interval")
            if longest and every and seconds(longest) > seconds(every):
                yield f"a scrape may take {longest}, and the next comes after {every}"


def seconds(text: str) -> float:
    """A duration of Prometheus'."""
    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
    assert re.fullmatch(r"(\d+(ms|s|m|h))+", text), f"{text!r} is no duration"
    return sum(int(many) * units[unit] for many, unit in re.findall(r"(\d+)(ms|s|m|h)", text))


def number(endpoint: str) -> int:
    """The port of a Twisted endpoint string."""
    match = re.fullmatch(r"tcp:(\d+).*", endpoint)
    assert match is not None, endpoint
    return int(match[1])
