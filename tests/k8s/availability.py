"""What must hold so that the gateway is there: how many, how they come and go, and restarts."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry

from tests.k8s.objects import NAME, Objects
from twisted_gateway.config.schema import Config
from twisted_gateway.service import FLUSH_SECONDS, LAST_SECONDS
from twisted_gateway.telemetry.metrics import Metrics
from twisted_gateway.telemetry.spans import SHUTDOWN_SECONDS
from twisted_gateway.web.peer_addresses import RESOLVE_SECONDS

# One may drain, and one may fail.
LEAST_REPLICAS = 3
# What is then cut, last words on their way, last spans.
AFTER_SECONDS = LAST_SECONDS + FLUSH_SECONDS + SHUTDOWN_SECONDS
# CoreDNS' `cache` of the names of a cluster, by default.
DNS_CACHE_SECONDS = 30.0
# A start takes some seconds on half a core, and more where everything starts at once.
START_SECONDS = 30
# Half a core may be busy for seconds, and a restart cuts every stream.
BUSY_SECONDS = 30


def number(objects: Objects) -> int:
    """How many gateways there are at least; an autoscaler's number stands for the Deployment's."""
    for scaler in objects.of("HorizontalPodAutoscaler"):
        return int(scaler["spec"]["minReplicas"])
    return int(objects.one("Deployment")["spec"].get("replicas", 1))


def replicas(objects: Objects) -> Iterator[str]:
    """There are enough, and a node that is drained can take one at a time."""
    there = number(objects)
    if there < LEAST_REPLICAS:
        yield f"{there} gateways are too few for one to drain and one to fail"
    for budget in objects.of("PodDisruptionBudget"):
        spec = budget["spec"]
        most = spec.get("maxUnavailable", there - spec.get("minAvailable", 0))
        if not 1 <= most < there:
            yield f"a node's drain may take {most} of {there} gateways at once"


def drain(objects: Objects) -> Iterator[str]:
    """A pod has time to drain, and takes requests until its Services have let go of it."""
    spec = objects.pod["spec"]
    sleep = objects.container.get("lifecycle", {}).get("preStop", {}).get("sleep", {})
    if not sleep.get("seconds"):
        yield "there is no preStop"
    least = sleep.get("seconds", 0) + objects.config.drain_seconds + AFTER_SECONDS
    grace = spec.get("terminationGracePeriodSeconds", 30)
    if grace < least:
        yield f"it is killed after {grace} s, and needs {least:g}"


def rollout(objects: Objects) -> Iterator[str]:
    """The next begins when the last is there, and known to its peers."""
    spec = objects.one("Deployment")["spec"]
    strategy = spec.get("strategy", {})
    update = strategy.get("rollingUpdate", {})
    replaces = strategy.get("type", "RollingUpdate") != "RollingUpdate"
    if replaces or update.get("maxUnavailable") != 0:
        yield "a rollout takes gateways away before there are others"
    if update.get("maxSurge") in (0, "0%"):
        yield "a rollout may add no gateway, and so never begins"
    least = RESOLVE_SECONDS + DNS_CACHE_SECONDS
    if (ready := spec.get("minReadySeconds", 0)) < least:
        yield f"peers hear of a new one within {least:g} s, and the next begins after {ready}"
    if ready >= (most := spec.get("progressDeadlineSeconds", 600)):
        yield f"a rollout has failed after {most} s, and a new one counts after {ready}"


def patience(objects: Objects) -> Iterator[str]:
    """Probes give a gateway the time that it may take."""
    for name, least in (("startupProbe", START_SECONDS), ("livenessProbe", BUSY_SECONDS)):
        probe = objects.container.get(name, {})
        budget = probe.get("periodSeconds", 10) * probe.get("failureThreshold", 3)
        if budget < least:
            yield f"{name}: it is restarted after {budget} s, and may take {least}"
        if probe.get("timeoutSeconds", 1) < 2:
            yield f"{name}: it has to answer within a second"


def autoscaling(objects: Objects) -> Iterator[str]:
    """An autoscaler goes by a series that gateways have, and its number is nobody else's."""
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    metrics.configure(["m"], ["m"])
    exported = {family.name for family in registry.collect()}
    for scaler in objects.of("HorizontalPodAutoscaler"):
        if scaler["spec"]["maxReplicas"] < number(objects):
            yield f"it makes {scaler['spec']['maxReplicas']} at most"
        if "replicas" in objects.one("Deployment")["spec"]:
            yield "each apply would set the number of replicas back"
        if scaler["spec"]["scaleTargetRef"]["name"] != NAME:
            yield "it scales something else"
        for one in scaler["spec"]["metrics"]:
            name = one["pods"]["metric"]["name"]
            if name not in exported:
                yield f"no gateway exports {name}"
            depth = _smallest_depth(objects.config)
            if int(one["pods"]["target"]["averageValue"]) >= depth:
                yield f"a gateway refuses from {depth} on, before another is started"


def _smallest_depth(config: Config) -> int:
    return min(model.policy.max_queue_depth for model in config.models.values() if model.gated)
