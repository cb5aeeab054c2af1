"""The Kubernetes objects of a session's sandbox, of the adapter's configuration alone.

A sandbox runs what a model has written, so its pod may do next to nothing: no root, no
capabilities, no credentials of the cluster, no file system but its workspace and /tmp, no network
but DNS and the gateway.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from twisted_gateway.config.sandbox import SessionsAdapter
from twisted_gateway.services.sessions.names import POLICY, claim_name, pod_name

Tree = dict[str, Any]

WORKSPACE = "/workspace"
"""Where a sandbox has its workspace."""
SCRATCH_SIZE = "1Gi"
"""How much a sandbox may put into /tmp."""
USER = 1000
GRACE_SECONDS = 10
"""How long a sandbox has to end: someone may wait for its successor."""

MANAGER = "twisted-gateway"
_NAME = "app.kubernetes.io/name"
_INSTANCE = "app.kubernetes.io/instance"
_MANAGED_BY = "app.kubernetes.io/managed-by"
SELECTOR = f"{_NAME}={POLICY},{_MANAGED_BY}={MANAGER}"
"""Selects what a gateway has made for sandboxes, of all sessions."""
_NAMESPACE_NAME = "kubernetes.io/metadata.name"
_PORT_NAME = "session"
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?", re.ASCII)


def labels(session: str) -> dict[str, str]:
    """Give the labels of everything that is a session's."""
    return {_NAME: POLICY, _INSTANCE: pod_name(session), _MANAGED_BY: MANAGER}


def is_ours(tree: Mapping[str, Any]) -> bool:
    """Whether an object bears the labels of a sandbox that a gateway has made."""
    found = tree["metadata"].get("labels") or {}
    return found.get(_NAME) == POLICY and found.get(_MANAGED_BY) == MANAGER


def manager_of_another(tree: Mapping[str, Any]) -> str | None:
    """Say who manages an object, where its label says so and it is no gateway; else None.

    What bears no such label, or an empty one, may be a session's from before the gateway, by name.

    Returns:
        The label's value, where it is one that Kubernetes allows, as answers and the log have it;
        "something else" for any other, which is only what something in front of Kubernetes says.
    """
    manager = (tree["metadata"].get("labels") or {}).get(_MANAGED_BY)
    if manager in (None, "", MANAGER):
        return None
    is_value = isinstance(manager, str) and _LABEL_VALUE.fullmatch(manager)
    return str(manager) if is_value else "something else"


def claim(adapter: SessionsAdapter, session: str) -> Tree:
    """Give the PersistentVolumeClaim of a session's workspace."""
    spec: Tree = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": adapter.storage_size}},
    }
    if adapter.storage_class is not None:
        spec["storageClassName"] = adapter.storage_class
    return _object("v1", "PersistentVolumeClaim", adapter, claim_name(session), session, spec)


def is_leaving(tree: Mapping[str, Any]) -> bool:
    """Whether an object is being deleted."""
    return tree["metadata"].get("deletionTimestamp") is not None


def is_owned_by(service: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """Whether a Service stays for as long as a pod does; one that nobody owns stays for good."""
    behind = pods_of(service)
    return pod["metadata"]["uid"] in behind or pod["metadata"]["name"] in behind


def pods_of(service: Mapping[str, Any]) -> set[str]:
    """Give the uids of the pods that own a Service; the pods' name where nobody does."""
    owners = service["metadata"].get("ownerReferences") or ()
    return {str(one.get("uid")) for one in owners} or {str(service["metadata"].get("name"))}


def service(adapter: SessionsAdapter, session: str, pod: Mapping[str, Any]) -> Tree:
    """Give the Service that has a session's pod behind it, and goes when that very pod goes."""
    port = {
        "name": _PORT_NAME,
        "port": adapter.port,
        "protocol": "TCP",
        # By its name: a pod from before a change of the configuration may listen elsewhere.
        "targetPort": _PORT_NAME,
    }
    spec: Tree = {"selector": {_INSTANCE: pod_name(session)}, "ports": [port]}
    tree = _object("v1", "Service", adapter, pod_name(session), session, spec)
    owned = pod["metadata"]
    # Kubernetes' garbage collector sees to that; no right is needed for it.
    owner = {"apiVersion": "v1", "kind": "Pod", "name": owned["name"], "uid": owned["uid"]}
    tree["metadata"]["ownerReferences"] = [owner]
    return tree


def pod(adapter: SessionsAdapter, session: str) -> Tree:
    """Give a session's pod."""
    spec: Tree = {
        "automountServiceAccountToken": False,
        # Variables of every Service of the namespace would tell it of all other sessions.
        "enableServiceLinks": False,
        # A sandbox that has ended is replaced as a whole, when somebody asks for it again.
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(adapter, session)],
        "volumes": [
            {
                "name": "workspace",
                "persistentVolumeClaim": {"claimName": claim_name(session)},
            },
            {"name": "tmp", "emptyDir": {"sizeLimit": SCRATCH_SIZE}},
        ],
    }
    if adapter.image_pull_secret is not None:
        spec["imagePullSecrets"] = [{"name": adapter.image_pull_secret}]
    return _object("v1", "Pod", adapter, pod_name(session), session, spec)


def _container(adapter: SessionsAdapter, session: str) -> Tree:
    return {
        "name": "session",
        "image": adapter.image,
        "env": [{"name": "SESSION_ID", "value": session}],
        "ports": [{"name": _PORT_NAME, "containerPort": adapter.port, "protocol": "TCP"}],
        # Without one a pod is Ready before anybody listens.
        "readinessProbe": {"tcpSocket": {"port": _PORT_NAME}, "periodSeconds": 1},
        "resources": {"requests": dict(adapter.requests), "limits": dict(adapter.limits)},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "privileged": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [
            {"name": "workspace", "mountPath": WORKSPACE},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }


def port_of(service: Tree, otherwise: int) -> int:
    """Give the port of a Service as it is, which may be of a former configuration."""
    spec = service.get("spec")
    ports = spec.get("ports") if isinstance(spec, dict) else None
    first = ports[0] if isinstance(ports, list) and ports else None
    port = first.get("port") if isinstance(first, dict) else None
    return port if isinstance(port, int) else otherwise


def policy(adapter: SessionsAdapter) -> Tree:
    """Give the NetworkPolicy of all sandboxes: in from the frontend, out to DNS and the gateway."""
    dns = {"namespaceSelector": {"matchLabels": {_NAMESPACE_NAME: "kube-system"}}}
    spec: Tree = {
        "podSelector": {"matchLabels": {_NAME: POLICY}},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [
            {
                "from": [_peer(adapter.frontend_namespace, adapter.frontend_labels)],
                "ports": [{"protocol": "TCP", "port": _PORT_NAME}],
            }
        ],
        "egress": [
            {
                "to": [dns],
                "ports": [{"protocol": kind, "port": 53} for kind in ("UDP", "TCP")],
            },
            {
                "to": [_peer(adapter.gateway_namespace, adapter.gateway_labels)],
                "ports": [{"protocol": "TCP", "port": adapter.gateway_port}],
            },
        ],
    }
    meta = {
        "name": POLICY,
        "namespace": adapter.namespace,
        "labels": {_NAME: POLICY, _MANAGED_BY: MANAGER},
    }
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": meta,
        "spec": spec,
    }


def _peer(namespace: str | None, labels: Mapping[str, str]) -> Tree:
    peer: Tree = {"podSelector": {"matchLabels": dict(labels)}}
    if namespace is not None:
        peer["namespaceSelector"] = {"matchLabels": {_NAMESPACE_NAME: namespace}}
    return peer


def _object(
    version: str, kind: str, adapter: SessionsAdapter, name: str, session: str, spec: Tree
) -> Tree:
    meta = {"name": name, "namespace": adapter.namespace, "labels": labels(session)}
    return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}
