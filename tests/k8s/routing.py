"""What must hold of the way to the gateway: probes, ports, Services, Ingress."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry
from twisted.internet.testing import MemoryReactorClock

from tests.k8s.objects import NAME, Objects, Tree, matches
from tests.k8s.policies import PUBLIC, amount, annotation
from tests.stack import Client
from twisted_gateway.config.schema import Config
from twisted_gateway.service import Gateway
from twisted_gateway.telemetry.tracing import NoTracing

METRICS = "/metrics"
# What a stream needs of nginx, and that a body is not kept by it.
STREAMS = {"proxy-buffering": "off", "proxy-request-buffering": "off", "proxy-http-version": "1.1"}
_NGINX_SIZES = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}


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
    for service in objects.of("Service"):
        for port in service["spec"]["ports"]:
            name, target = service["metadata"]["name"], port["targetPort"]
            if objects.ports.get(target) != port["port"]:
                yield f"Service {name}: {port['port']} leads to {target}"
    for name, wanted in {NAME: {"http"}, f"{NAME}-admin": {"admin"}}.items():
        there = {port["targetPort"] for port in objects.one("Service", name)["spec"]["ports"]}
        if there != wanted:
            yield f"Service {name} gives {sorted(there)}"


def peers(objects: Objects) -> Iterator[str]:
    """`replicas` names the headless Service of all gateways, those that drain among them."""
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


def ingress(objects: Objects) -> Iterator[str]:
    """It publishes the API alone, is patient enough, and holds nothing back."""
    for one in objects.of("Ingress"):
        yield from _published(objects, one)
        for name, value in STREAMS.items():
            if annotation(one, name) != value:
                yield f"{name} is {annotation(one, name)}"
        silence = _longest_silence(objects.config)
        if int(annotation(one, "proxy-read-timeout") or 60) <= silence:
            yield f"proxy-read-timeout is not above {silence:g} s of parking and prefill"
        largest = _largest_body(objects.config)
        if amount(annotation(one, "proxy-body-size") or "1m", _NGINX_SIZES) < largest:
            yield f"proxy-body-size is below maxBodyBytes, {largest}"
        if "timeout" in str(annotation(one, "proxy-next-upstream") or "error timeout"):
            yield "a request that takes long is sent again"


def _published(objects: Objects, ingress: Tree) -> Iterator[str]:
    wanted = PUBLIC | {route.path for route in objects.config.routes}
    published = set()
    for rule in ingress["spec"]["rules"]:
        for path in rule["http"]["paths"]:
            published.add(path["path"])
            if path["pathType"] != "Prefix":
                yield f"{path['path']} is no prefix"
            yield from _backend(objects, path["backend"]["service"])
    if published != wanted:
        yield f"it publishes {sorted(published)}, and clients use {sorted(wanted)}"


def _longest_silence(config: Config) -> float:
    """How long nobody may hear anything who does not stream, in seconds."""
    return max(
        model.timeouts.first_content_seconds
        + (model.policy.max_park_seconds if model.gated else 0.0)
        for model in config.models.values()
    )


def _largest_body(config: Config) -> int:
    return max(
        config.max_body_bytes,
        *(model.max_body_bytes for model in config.models.values()),
        *(adapter.max_body_bytes for adapter in config.adapters.values()),
        *(route.max_body_bytes for route in config.routes),
    )


def _backend(objects: Objects, wanted: Tree) -> Iterator[str]:
    there = {
        one["metadata"]["name"]: {port["name"] for port in one["spec"]["ports"]}
        for one in objects.of("Service")
    }
    if wanted["port"].get("name") not in there.get(wanted["name"], ()):
        yield f"there is no port {wanted['port']} of a Service {wanted['name']}"
    elif wanted["name"] != NAME or wanted["port"]["name"] != "http":
        yield f"it publishes {wanted['name']}"


def number(endpoint: str) -> int:
    """The port of a Twisted endpoint string."""
    match = re.fullmatch(r"tcp:(\d+).*", endpoint)
    assert match is not None, endpoint
    return int(match[1])
