"""The services behind X-Service as one part of the gateway: who may, how they are reached."""

from __future__ import annotations

import os
import uuid
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred

from twisted_gateway.auth.guard import Guard
from twisted_gateway.auth.provider import Provider
from twisted_gateway.config.schema import Config
from twisted_gateway.services.build import Parts
from twisted_gateway.services.sessions.ongoing import Ongoing
from twisted_gateway.telemetry.metrics import Metrics
from twisted_gateway.upstream.agent import UpstreamAgent
from twisted_gateway.web.catalogue import Catalogue, Configurations
from twisted_gateway.web.door import Door
from twisted_gateway.web.errands import Errands
from twisted_gateway.web.fleet import Fleet
from twisted_gateway.web.intake import HeldBytes
from twisted_gateway.web.legacy import Legacy
from twisted_gateway.web.request import GatewayRequest
from twisted_gateway.web.service_call import Agents
from twisted_gateway.web.services import Services
from twisted_gateway.web.tenancy import Tenancy
from twisted_gateway.web.token import TokenEndpoint
from twisted_gateway.web.webhook_target import TargetRuns
from twisted_gateway.web.webhooks import Webhooks

CONNECT_SECONDS = 5.0
"""How long a connection to a service or the issuer may take."""


class ServiceSide:
    """Puts the guard, the adapters and whatever leads to them together.

    Connections to services are none of those to engines: a service that hangs takes nothing from
    inference.

    Attributes:
        guard: judges tokens, for models too.
        services: serves requests with X-Service.
        tokens: passes token requests on.
        webhooks: takes events.
        legacy: serves legacy routes.

    Args:
        reactor: for everything that takes time or touches the network.
        fleet: the configuration in force, and whether the process is shutting down.
        metrics: counts.
        tenancy: names tenants.
        held: bytes held by the process.
    """

    def __init__(
        self, reactor: Any, fleet: Fleet, metrics: Metrics, tenancy: Tenancy, held: HeldBytes
    ) -> None:
        """Put the parts together; nothing is fetched before `adopt`."""
        # What services are asked may do something there: it is not done twice.
        pooled = UpstreamAgent(reactor, connect_seconds=CONNECT_SECONDS, idempotent_only=True)
        fresh = UpstreamAgent(reactor, connect_seconds=CONNECT_SECONDS, max_idle_per_host=0)
        self._agents = Agents(pooled=pooled, fresh=fresh)
        provider = Provider(pooled, reactor)
        # In Kubernetes the host is called as the pod is: whoever reads it knows whom it means.
        replica = f"{os.uname().nodename}_{uuid.uuid4().hex}"

        def name_tenant(request: GatewayRequest) -> None:
            tenant = tenancy.tenant(request, fleet.config)
            request.exchange.tenant = tenancy.shown(tenant)

        sandboxes = self._sandboxes = Ongoing(
            reactor,
            lambda policy: UpstreamAgent(
                reactor,
                connect_seconds=CONNECT_SECONDS,
                idempotent_only=True,
                tls_policy=policy,
            ),
        )
        self.guard = Guard(reactor, lambda url: partial(provider.keys, url))
        catalogue = self._catalogue = Catalogue(
            lambda config: Parts(
                clock=reactor,
                provider=provider,
                auth=config.auth,
                agent=pooled,
                sandboxes=sandboxes,
                replica=replica,
            )
        )
        errands = Errands(self._agents, reactor, metrics, held)
        door = Door(self.guard, name_tenant=name_tenant, is_draining=lambda: fleet.draining)
        self.tokens = TokenEndpoint(door, pooled, reactor, metrics.entered)
        self.services = Services(door, catalogue, errands, metrics.entered)
        targets = TargetRuns(catalogue, errands, reactor)
        self.webhooks = Webhooks(door, targets, reactor, metrics.inbound, metrics.entered)
        self.legacy = Legacy(
            door,
            catalogue,
            self.services,
            errands,
            reactor,
            metrics=metrics.inbound,
            entered=metrics.entered,
        )

    def build(self, config: Config) -> Configurations:
        """Build the adapters of a configuration, of which none is in force by that."""
        return self._catalogue.build(config)

    def adopt(self, config: Config, services: Configurations) -> None:
        """Put `auth`, `adapters`, `webhooks` and `routes` of a configuration in force.

        Args:
            config: the configuration.
            services: its adapters, by `build`.
        """
        self.guard.adopt(config.auth)
        self.tokens.adopt(config.auth)
        self._catalogue.adopt(services)
        self.webhooks.adopt(config.forgejo_webhook)
        self.legacy.adopt(config)

    def finished(self) -> Deferred[None]:
        """Fire when nothing goes on at services whose request is over; cancelling forgets it."""
        return self._agents.afterwards.finished()

    def stop(self) -> list[Deferred[None]]:
        """Fetch nothing more, and close the connections.

        Returns:
            Each fires when none of its kind is left.
        """
        self.guard.stop()
        # Sandboxes first: what is under way of adapters that a reload has replaced is there only.
        stopped = [self._sandboxes.close(), *self._catalogue.stop()]
        self._catalogue.retire()
        return [*stopped, *self._agents.close()]
