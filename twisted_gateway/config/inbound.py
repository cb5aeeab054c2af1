"""Webhooks and legacy routes as frozen values (contract, section 6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from twisted_gateway.core.template import Template

if TYPE_CHECKING:
    from twisted_gateway.config.schema import Secret

ANY_EVENT = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookTarget:
    """What an event leads to: an operation of an adapter.

    Attributes:
        event: as the sender names it; `ANY_EVENT` is any.
        service: the adapter's name.
        resource: what is asked of it.
        parameters: its parameters, filled in from the event.
    """

    event: str
    service: str
    resource: str
    parameters: Mapping[str, Template]

    def takes(self, event: str) -> bool:
        """Whether an event of this name leads here."""
        return self.event in (ANY_EVENT, event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """A sender of events.

    Attributes:
        secret: with which it signs; None: nothing is accepted.
        targets: what its events lead to.
        max_body_bytes: the largest event.
    """

    secret: Secret | None = None
    targets: tuple[WebhookTarget, ...] = ()
    max_body_bytes: int = 1_048_576


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyRoute:
    """A path prefix that is kept working for those who still use it.

    Attributes:
        path: the prefix, of whole segments.
        upstream: the base URL that requests go to; None: they go to `adapter`.
        strip_prefix: whether the upstream gets the path without the prefix.
        adapter: the adapter's name; None: they go to `upstream`.
        resource: what is asked of the adapter; None: the path's segment behind the prefix says.
        require_auth: whether requests need a token that `auth` accepts.
        deprecation: since, or from, when it is deprecated; None: nobody is told.
        sunset: when it is expected to go; None: nobody is told.
        successor: a reference to what takes its place; None: nobody is told.
        max_body_bytes: the largest request body, for an upstream.
        timeout_seconds: how long the upstream may be silent.
    """

    path: str
    upstream: str | None = None
    strip_prefix: bool = False
    adapter: str | None = None
    resource: str | None = None
    require_auth: bool = True
    deprecation: datetime | None = None
    sunset: datetime | None = None
    successor: str | None = None
    max_body_bytes: int = 1_048_576
    timeout_seconds: float = 30.0

    @property
    def name(self) -> str:
        """What metrics, log and problems call it."""
        return self.path
