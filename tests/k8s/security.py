"""What pods may do: the Pod Security Standard `restricted`, and what a gateway has no use for.

A field that the Standard does not allow is refused by its name: what is not known here is a fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.k8s.objects import Objects, Tree
from twisted_gateway.config.sandbox import SessionsAdapter

_VOLUMES = {"configMap", "secret", "emptyDir", "projected", "downwardAPI"}
_OF_THE_HOST = ("hostNetwork", "hostPID", "hostIPC")
_PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
_SELINUX_TYPES = {
    "container_t",
    "container_init_t",
    "container_kvm_t",
    "container_engine_t",
}
_SYSCTLS = {
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
}


def _is(wanted: object) -> Callable[[Any], bool]:
    return lambda given: given is wanted


def _anything(given: object) -> bool:
    return True


def _profile(given: Tree) -> bool:
    return given.get("type") in ("RuntimeDefault", "Localhost")


def _se_linux(given: Tree) -> bool:
    kind = given.get("type", "")
    return not (given.get("user") or given.get("role")) and (not kind or kind in _SELINUX_TYPES)


def _capabilities(given: Tree) -> bool:
    return set(given.get("add", [])) <= {"NET_BIND_SERVICE"}


def _sysctls(given: list[Tree]) -> bool:
    return {one["name"] for one in given} <= _SYSCTLS


Allowed = Mapping[str, Callable[[Any], bool]]
_OF_EITHER: Allowed = {
    "appArmorProfile": _profile,
    "runAsGroup": _anything,
    "runAsNonRoot": _is(True),
    "runAsUser": lambda given: given > 0,
    "seLinuxOptions": _se_linux,
    "seccompProfile": _profile,
}
_OF_A_POD: Allowed = {
    **_OF_EITHER,
    "fsGroup": _anything,
    "fsGroupChangePolicy": _anything,
    "supplementalGroups": _anything,
    "supplementalGroupsPolicy": _anything,
    "sysctls": _sysctls,
}
_OF_A_CONTAINER: Allowed = {
    **_OF_EITHER,
    "allowPrivilegeEscalation": _is(False),
    "capabilities": _capabilities,
    "privileged": _is(False),
    "procMount": lambda given: given == "Default",
    "readOnlyRootFilesystem": _is(True),
}


def restricted(objects: Objects) -> Iterator[str]:
    """Pods pass the Pod Security Standard `restricted`, and write nowhere but in an emptyDir.

    https://kubernetes.io/docs/concepts/security/pod-security-standards/
    """
    for pod in objects.pods:
        yield from _of_pod(pod["spec"])
        for container in containers(pod):
            yield from _of_container(container)
    adapters = objects.config.adapters.values()
    talks = any(isinstance(one, SessionsAdapter) for one in adapters)
    if objects.pod["spec"].get("automountServiceAccountToken") is not talks:
        yield "the service account's token is mounted, or is not, without need"


def containers(pod: Tree) -> list[Tree]:
    """Every container of a pod, those that come first among them."""
    return [*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])]


def _of_pod(spec: Tree) -> Iterator[str]:
    context = spec.get("securityContext", {})
    yield from _refused("the pod", context, _OF_A_POD)
    if context.get("runAsNonRoot") is not True or not context.get("runAsUser"):
        yield "it may run as root"
    if "seccompProfile" not in context:
        yield "seccomp is not RuntimeDefault"
    if spec.get("enableServiceLinks") is not False:
        yield "every Service of the namespace puts variables into its environment"
    if any(spec.get(name) for name in _OF_THE_HOST):
        yield "it shares something with its host"
    for volume in spec.get("volumes", []):
        if not _VOLUMES & set(volume):
            yield f"the volume {volume['name']} is of a kind that is not allowed"
        # Files of a Secret are root's; the group's where there is one.
        mode = volume.get("secret", {}).get("defaultMode", 0o644)
        if not mode & 0o004 and not (mode & 0o040 and context.get("fsGroup")):
            yield f"it can not read the volume {volume['name']}"


def _of_container(container: Tree) -> Iterator[str]:
    name, own = container["name"], container.get("securityContext", {})
    yield from _refused(name, own, _OF_A_CONTAINER)
    if own.get("allowPrivilegeEscalation") is not False:
        yield f"{name} may gain privileges"
    if own.get("readOnlyRootFilesystem") is not True:
        yield f"{name} may write to its root file system"
    if own.get("capabilities", {}).get("drop") != ["ALL"]:
        yield f"{name} keeps capabilities"
    for port in container.get("ports", []):
        if port.get("hostPort"):
            yield f"{name} takes the port {port['hostPort']} of its host"
    lifecycle = container.get("lifecycle", {})
    asked = {probe: container.get(probe, {}) for probe in _PROBES}
    for where, handler in {**asked, **lifecycle}.items():
        for how in ("httpGet", "tcpSocket"):
            if isinstance(handler, dict) and (host := handler.get(how, {}).get("host")):
                yield f"{name}: {where} asks {host}, and not the pod"


def _refused(whose: str, context: Tree, allowed: Allowed) -> Iterator[str]:
    for key, given in context.items():
        if key not in allowed or not allowed[key](given):
            yield f"{whose} has {key}: {given}"
