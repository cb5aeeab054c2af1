"""What must hold of whom the gateway believes."""

from __future__ import annotations

from collections.abc import Iterator

from tests.k8s.objects import Objects
from twisted_gateway.config.schema import TenantSource

# Wider than the private networks of RFC 1918 and RFC 4193 nothing is one's own.
_WIDEST = {4: 8, 6: 7}


def tenants(objects: Objects) -> Iterator[str]:
    """Who says of a client who it is is a proxy of one's own, and never the client itself."""
    config = objects.config
    if TenantSource.HEADER in config.tenants_from:
        yield "a client's own X-Tenant says whom its requests count for"
    for network in config.trusted_proxies:
        if network.prefixlen < _WIDEST[network.version] or not network.is_private:
            yield f"{network} is not a proxy's network: anybody is believed"


def tokens(objects: Objects) -> Iterator[str]:
    """What the Ingress publishes of services takes a token."""
    config = objects.config
    for adapter in config.adapters.values():
        if not adapter.require_auth:
            yield f"the service {adapter.name} is anybody's"
    for route in config.routes:
        if not route.require_auth:
            yield f"the route {route.path} is anybody's"
