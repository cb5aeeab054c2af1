"""The adapters' frozen values, a class for each kind beside those of schema.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from twisted_gateway.config.schema import Adapter, Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class SqsAdapter(Adapter):
    """Queues of a service that speaks SQS; a token is always required.

    Attributes:
        upstream: its base URL.
        region: the region that signatures name.
        access_key: the gateway's key; None only in a configuration that is refused.
        secret_key: its secret; None only in a configuration that is refused.
    """

    kind: ClassVar[str] = "sqs"
    resources: ClassVar[tuple[str, ...]] = (
        *("list-queues", "send-message", "receive-message", "delete-message"),
    )

    upstream: str
    region: str = "us-east-1"
    access_key: Secret | None = None
    secret_key: Secret | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationAdapter(Adapter):
    """A Gotify server.

    Attributes:
        upstream: its base URL.
        token: of the application that messages count for; None only in a configuration that is
            refused.
    """

    kind: ClassVar[str] = "notification"
    resources: ClassVar[tuple[str, ...]] = ("send-message",)

    upstream: str
    token: Secret | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IamAdapter(Adapter):
    """An authentik server.

    Attributes:
        upstream: its base URL.
        token: of the gateway's service account; None only in a configuration that is refused.
    """

    kind: ClassVar[str] = "iam"
    resources: ClassVar[tuple[str, ...]] = ("list-users",)

    upstream: str
    token: Secret | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryAdapter(Adapter):
    """A Forgejo or Gitea server.

    Attributes:
        upstream: its base URL.
        token: the gateway's access token; None: it sees what is public.
    """

    kind: ClassVar[str] = "registry"
    resources: ClassVar[tuple[str, ...]] = ("list-packages", "list-repos")

    upstream: str
    token: Secret | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowAdapter(Adapter):
    """A Temporal frontend.

    Attributes:
        upstream: its `HOST:PORT`.
        tls: whether it is reached over TLS.
    """

    kind: ClassVar[str] = "workflow"
    resources: ClassVar[tuple[str, ...]] = ("list",)

    upstream: str
    tls: bool = False
