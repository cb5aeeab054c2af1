"""What is counted of webhooks and legacy routes; every label's values are bounded."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter

from twisted_gateway.core.outcome import Outcome
from twisted_gateway.telemetry.series import forget

MOST_TENANTS = 32
"""How many tenants of a legacy route have series of their own."""
OTHER_TENANTS = "other"
"""What all further ones are counted as."""


class InboundMetrics:
    """The collectors of webhooks and legacy routes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Make them on `registry`."""
        self._targets = Counter(
            "webhook_target_requests_total",
            "Operations that webhooks led to, by how they ended.",
            ("service", "resource", "outcome"),
            registry=registry,
        )
        self._legacy = Counter(
            "legacy_route_requests_total",
            "Requests let in by a legacy route, by who still makes them.",
            ("route", "tenant"),
            registry=registry,
        )
        self._tenants: dict[str, set[str]] = {}
        self._services: set[str] = set()

    def configure_targets(self, services: Iterable[str]) -> None:
        """Let exactly these adapters have series as targets; those of others are removed."""
        wanted = set(services)
        for service in self._services - wanted:
            forget(self._targets, "service", service)
        self._services = wanted

    def configure_routes(self, routes: Iterable[str]) -> None:
        """Let exactly these legacy routes have series; those of others are removed."""
        wanted = set(routes)
        for route in self._tenants.keys() - wanted:
            del self._tenants[route]
            forget(self._legacy, "route", route)
        for route in wanted - self._tenants.keys():
            self._tenants[route] = set()

    def webhook_target(self, service: str, resource: str, outcome: Outcome) -> None:
        """An operation that a webhook led to has ended; that of no target any more counts not."""
        if service in self._services:
            self._targets.labels(service, resource, outcome.value).inc()

    def legacy_use(self, route: str, tenant: str) -> None:
        """A request was let in by a legacy route.

        Args:
            route: a configured one; another (a reload has removed it) counts nothing.
            tenant: who it counts as, in the form that may be shown.
        """
        tenants = self._tenants.get(route)
        if tenants is None:
            return
        if tenant not in tenants and len(tenants) >= MOST_TENANTS:
            tenant = OTHER_TENANTS
        else:
            tenants.add(tenant)
        self._legacy.labels(route, tenant).inc()
