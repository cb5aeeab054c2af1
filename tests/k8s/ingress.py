"""What must hold of the Ingress: it publishes the API alone, and is as streams need it."""

from __future__ import annotations

from collections.abc import Iterator

from tests.k8s.objects import NAME, Objects, Tree
from tests.k8s.policies import amount
from twisted_gateway.config.schema import Config

PUBLIC = {"/v1"}
# What a stream needs of nginx, and that a body is not kept by it.
STREAMS = {"proxy-buffering": "off", "proxy-request-buffering": "off", "proxy-http-version": "1.1"}
NEEDED = {
    *STREAMS,
    "proxy-body-size",
    "proxy-connect-timeout",
    "proxy-next-upstream",
    "proxy-next-upstream-tries",
    "proxy-read-timeout",
    "proxy-send-timeout",
}
# Others of ingress-nginx that do no harm here; it takes a misspelt one in silence.
KNOWN = NEEDED | {
    "canary",
    "canary-by-header",
    "canary-weight",
    "enable-opentelemetry",
    "force-ssl-redirect",
    "limit-connections",
    "limit-rpm",
    "limit-rps",
    "ssl-redirect",
    "whitelist-source-range",
}
# What would send a request to another gateway that one has already begun to work on.
_REPEATING = ("non_idempotent", "http_")
_PREFIX = "nginx.ingress.kubernetes.io/"
_SIZES = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}


def nginx_annotations(ingress: Tree) -> dict[str, str]:
    """Those for ingress-nginx, by the name behind the prefix."""
    given: dict[str, str] = ingress["metadata"].get("annotations", {})
    return {
        name.removeprefix(_PREFIX): value
        for name, value in given.items()
        if name.startswith(_PREFIX)
    }


def published(objects: Objects) -> Iterator[str]:
    """It leads to the API of this host by TLS, and to nothing else; nginx is who reads it."""
    for one in objects.of("Ingress"):
        yield from _paths(objects, one)
        if "defaultBackend" in one["spec"]:
            yield f"it publishes whatever nobody else does: {one['spec']['defaultBackend']}"
        name = one["spec"].get("ingressClassName")
        if "nginx" not in str(name):
            yield f"the annotations are for ingress-nginx, and its class is {name}"
        hosts = {rule["host"] for rule in one["spec"]["rules"]}
        encrypted = {host for tls in one["spec"].get("tls", []) for host in tls["hosts"]}
        if hosts != encrypted:
            yield f"it has TLS for {sorted(encrypted)}, and publishes {sorted(hosts)}"


def streams(objects: Objects) -> Iterator[str]:
    """It is patient enough, holds nothing back, and repeats nothing."""
    for one in objects.of("Ingress"):
        given = nginx_annotations(one)
        for name in sorted(given.keys() - KNOWN):
            yield f"no annotation {name} is known in tests/k8s/ingress.py"
        for name in sorted(NEEDED - given.keys()):
            yield f"{name} is not set"
        for name, value in STREAMS.items():
            if given.get(name, value) != value:
                yield f"{name} is {given[name]}"
        yield from _bounds(objects.config, given)
        words = given.get("proxy-next-upstream", "error timeout").split()
        if not {"error", "timeout"} <= set(words):
            yield "a gateway whose node is gone is waited for, and no other is tried"
        for word in words:
            if word.startswith(_REPEATING):
                yield f"{word}: what one gateway works on is sent to another"
        if not 1 < int(given.get("proxy-next-upstream-tries", 2)) <= 3:
            yield "one more gateway is to be tried, or two, and not every one"


def _bounds(config: Config, given: dict[str, str]) -> Iterator[str]:
    silence = _longest_silence(config)
    if int(given.get("proxy-read-timeout", 60)) <= silence:
        yield f"proxy-read-timeout is not above {silence:g} s of parking and prefill"
    pause = max((one.timeout_seconds for one in config.adapters.values()), default=0.0)
    if int(given.get("proxy-send-timeout", 60)) <= pause:
        yield f"proxy-send-timeout is not above {pause:g} s in which a service may be silent"
    largest = _largest_body(config)
    if amount(given.get("proxy-body-size", "1m"), _SIZES) < largest:
        yield f"proxy-body-size is below maxBodyBytes, {largest}"


def _paths(objects: Objects, ingress: Tree) -> Iterator[str]:
    wanted = PUBLIC | {route.path for route in objects.config.routes}
    there = set()
    for rule in ingress["spec"]["rules"]:
        for path in rule["http"]["paths"]:
            there.add(path["path"])
            if path["pathType"] != "Prefix":
                yield f"{path['path']} is no prefix"
            yield from _backend(objects, path["backend"]["service"])
    if there != wanted:
        yield f"it publishes {sorted(there)}, and clients use {sorted(wanted)}"


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
