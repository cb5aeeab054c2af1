"""From an adapter's configuration to the adapter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from twisted.internet.interfaces import IReactorTime

from twisted_gateway.auth.provider import OwnToken, Provider
from twisted_gateway.config.adapters import (
    IamAdapter,
    NotificationAdapter,
    RegistryAdapter,
    SqsAdapter,
    WorkflowAdapter,
)
from twisted_gateway.config.sandbox import SessionsAdapter
from twisted_gateway.config.schema import (
    Adapter,
    Auth,
    ClientCredentials,
    MemoryAdapter,
    S3Adapter,
)
from twisted_gateway.services.adapter import Service
from twisted_gateway.services.authentik import Authentik
from twisted_gateway.services.forgejo import Forgejo
from twisted_gateway.services.gotify import Gotify
from twisted_gateway.services.memory import Memory
from twisted_gateway.services.s3 import S3
from twisted_gateway.services.sessions.ongoing import Ongoing
from twisted_gateway.services.sessions.sandbox import Sandbox
from twisted_gateway.services.sqs import Sqs
from twisted_gateway.services.workflow import Workflow
from twisted_gateway.upstream.agent import UpstreamAgent


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What adapters are built of.

    Attributes:
        clock: for timers, and the time of day.
        provider: where tokens of the gateway's own come from.
        auth: the `auth` in force.
        agent: reaches services without a request's `Upstream`.
        sandboxes: what `sessions` adapters share.
        replica: what this process is called, unlike any other.
    """

    clock: IReactorTime
    provider: Provider
    auth: Auth | None
    agent: UpstreamAgent
    sandboxes: Ongoing
    replica: str

    def own_token(self, client: ClientCredentials | None) -> OwnToken | None:
        """Make the gateway's own token by these credentials; None for none."""
        if client is None or self.auth is None or self.auth.token_url is None:
            return None
        return OwnToken(self.provider, self.auth.token_url, client, self.clock)


def _memory(adapter: MemoryAdapter, parts: Parts) -> Service:
    return Memory(adapter, parts.own_token(adapter.client))


def _s3(adapter: S3Adapter, parts: Parts) -> Service:
    return S3(adapter, parts.clock)


def _sqs(adapter: SqsAdapter, parts: Parts) -> Service:
    return Sqs(adapter, parts.clock)


def _workflow(adapter: WorkflowAdapter, parts: Parts) -> Service:
    # Imported here for it needs the extra `workflow`, and a hundred megabytes of it.
    from twisted_gateway.services.temporal import Temporal

    return Workflow(adapter, Temporal(adapter, parts.clock))


def _sessions(adapter: SessionsAdapter, parts: Parts) -> Service:
    return Sandbox(
        adapter,
        parts.agent,
        parts.sandboxes,
        parts.clock,
        replica=parts.replica,
    )


BUILDERS: Mapping[str, Callable[[Any, Parts], Service]] = MappingProxyType(
    {
        MemoryAdapter.kind: _memory,
        S3Adapter.kind: _s3,
        SqsAdapter.kind: _sqs,
        IamAdapter.kind: lambda adapter, parts: Authentik(adapter),
        NotificationAdapter.kind: lambda adapter, parts: Gotify(adapter),
        RegistryAdapter.kind: lambda adapter, parts: Forgejo(adapter),
        WorkflowAdapter.kind: _workflow,
        SessionsAdapter.kind: _sessions,
    }
)


def build(adapter: Adapter, parts: Parts) -> Service:
    """Make an adapter of its configuration."""
    return BUILDERS[adapter.kind](adapter, parts)
