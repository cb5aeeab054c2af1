"""The `sessions` adapter as a frozen value, and what is wrong with one beyond single values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from types import MappingProxyType
from typing import ClassVar

from twisted_gateway.config.faults import Wrong
from twisted_gateway.config.forms import document_url
from twisted_gateway.config.schema import Adapter, Secret

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where Kubernetes mounts a pod's credentials."""

SESSION_ID = "{session_id}"
"""What stands for the session's id in `memoryEntity`."""

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_LABEL_KEY = re.compile(
    r"([a-z0-9][a-z0-9.-]{0,252}/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
)
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]{1,9})?)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|)")
_FACTORS: Mapping[str, Decimal] = MappingProxyType(
    {
        "": Decimal(1),
        "m": Decimal("0.001"),
        **{unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", 1)},
        **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", 1)},
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionsAdapter(Adapter):
    """Sandboxes for sessions, on Kubernetes (contract, section 6).

    Attributes:
        image: what a sandbox's pod runs.
        namespace: where the sandboxes are.
        image_pull_secret: the Secret, there, with which the image is pulled.
        port: where a sandbox listens.
        storage_class: of a session's workspace; None: the cluster's default.
        storage_size: of a session's workspace, as a quantity.
        requests: resource -> quantity that a sandbox asks for.
        limits: resource -> quantity that it may have.
        cluster_domain: the last part of the DNS names of Services.
        fleet: the base URL of the fleet controller; None: there is none.
        fleet_seconds: how long it may take.
        memory_entity: the URL of a session's memory entity, with `{session_id}` in its path.
        server: the base URL of the Kubernetes API; None: none is known.
        token: for the API; None: the service account's.
        ca: a file with the certificates that the API's is checked by; None: the service account's.
        service_account: a directory with `token` and `ca.crt`, read again when they rotate.
        gateway_namespace: where the gateway is, for sandboxes to reach it; None: `namespace`.
        gateway_labels: those of its pods.
        gateway_port: where it listens.
        frontend_namespace: where those are that reach sandboxes; None: `namespace`.
        frontend_labels: those of their pods.
        reaper_interval_minutes: the time between two looks for sandboxes that have ended.
    """

    kind: ClassVar[str] = "sessions"
    resources: ClassVar[tuple[str, ...]] = ("sandbox",)

    image: str
    namespace: str
    image_pull_secret: str | None = None
    port: int = 8787
    storage_class: str | None = None
    storage_size: str = "1Gi"
    requests: Mapping[str, str] = field(
        default_factory=lambda: MappingProxyType({"cpu": "500m", "memory": "512Mi"})
    )
    limits: Mapping[str, str] = field(
        default_factory=lambda: MappingProxyType({"cpu": "1", "memory": "1Gi"})
    )
    cluster_domain: str = "cluster.local"
    fleet: str | None = None
    fleet_seconds: float = 2.0
    memory_entity: str | None = None
    server: str | None = None
    token: Secret | None = None
    ca: str | None = None
    service_account: str = SERVICE_ACCOUNT
    gateway_namespace: str | None = None
    gateway_labels: Mapping[str, str] = field(
        default_factory=lambda: MappingProxyType({"app.kubernetes.io/name": "llm-gateway"})
    )
    gateway_port: int = 8080
    frontend_namespace: str | None = None
    frontend_labels: Mapping[str, str] = field(
        default_factory=lambda: MappingProxyType({"app.kubernetes.io/name": "frontend"})
    )
    reaper_interval_minutes: float = 5.0


def dns_label(text: str) -> str:
    """Take a DNS label as Kubernetes has it (RFC 1123): the name of a namespace."""
    if not _LABEL.fullmatch(text):
        raise Wrong("expected a DNS label: lower-case letters, digits and '-', at most 63")
    return text


def dns_subdomain(text: str) -> str:
    """Take a DNS subdomain as Kubernetes has it: the name of most of its objects."""
    if not _SUBDOMAIN.fullmatch(text):
        raise Wrong("expected a DNS name: lower-case letters, digits, '-' and '.'")
    return text


def label_key(text: str) -> str:
    """Take the key of a label of Kubernetes."""
    if not _LABEL_KEY.fullmatch(text):
        raise Wrong("expected the key of a label, such as app.kubernetes.io/name")
    return text


def label_value(text: str) -> str:
    """Take the value of a label of Kubernetes."""
    if not _LABEL_VALUE.fullmatch(text):
        raise Wrong("expected the value of a label: letters, digits, '-', '_', '.', at most 63")
    return text


def quantity(text: str) -> str:
    """Take a quantity of Kubernetes that is more than nothing, in its usual form."""
    if not _QUANTITY.fullmatch(text) or not amount(text):
        raise Wrong("expected a quantity such as 500m, 2 or 512Mi")
    return text


def amount(text: str) -> Decimal:
    """Give the number that a quantity stands for."""
    found = _QUANTITY.fullmatch(text)
    assert found is not None
    return Decimal(found[1]) * _FACTORS[found[2]]


def entity_url(text: str) -> str:
    """Take the URL of a session's memory entity; the id stands in its path and nowhere else."""
    head, _, _ = text.partition(SESSION_ID)
    if head == text:
        raise Wrong(f"expected a URL with {SESSION_ID} in its path")
    # A host that the id had a part in would be one that a client chooses.
    if head.count("/") < 3 or "?" in head:
        raise Wrong(f"expected {SESSION_ID} in the path of the URL only")
    checked = document_url(text.replace(SESSION_ID, "SESSION-ID"))
    return checked.replace("SESSION-ID", SESSION_ID)


def over_limit(adapter: SessionsAdapter) -> list[str]:
    """Name the resources of which more is asked for than may be had."""
    return [
        name
        for name, asked in adapter.requests.items()
        if name in adapter.limits and amount(asked) > amount(adapter.limits[name])
    ]
