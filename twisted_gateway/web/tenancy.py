"""Who counts as one: whoever shares a place in line, and an engine's time, as if one client.

Where a tenant comes from is what a client must not be able to choose: a subject or key that the
gateway has checked itself, a header that a trusted proxy has set, an address that a trusted proxy
or the connection names. Of the value no more than an HMAC goes any further: the name by which the
gates, and the peers, tell tenants apart, and another one of that to be shown.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Mapping
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING

from twisted_gateway.config.schema import Config, Secret, TenantSource
from twisted_gateway.core.headers import client_address

if TYPE_CHECKING:
    from twisted_gateway.web.request import GatewayRequest

NAME_DIGITS = 16
SHOWN_DIGITS = 12
_KEY_BYTES = 32
_CONTROL = re.compile(rb"[\0-\x1f\x7f]")

Reader = Callable[["GatewayRequest", Config], bytes | None]


class Tenancy:
    """Names the tenants of requests, and the names' shown forms.

    Args:
        random: gives so many random bytes, fit for keys.
    """

    def __init__(self, random: Callable[[int], bytes]) -> None:
        """Make the keys of this process."""
        self._own_key = random(_KEY_BYTES)
        self._shown_key = random(_KEY_BYTES)

    def tenant(self, request: GatewayRequest, config: Config) -> str:
        """Name the tenant of a request by the first source of `tenants.from` that applies.

        Args:
            request: its head has been read, and whatever credential it bears has been checked.
            config: the configuration in force.

        Returns:
            Hex digits: an HMAC of the source and its value, keyed by the peers' token where there
            is one, for then replicas agree on it, else by a key of this process. It is for gates
            and peers; people are shown `shown`. "" where no source applies: all of these are one.
        """
        for source in config.tenants_from:
            value = _READERS[source](request, config)
            if value is not None:
                said = source.value.encode("ascii") + b"\0" + value
                return _hex(self._name_key(config.peers.token), said, NAME_DIGITS)
        return ""

    def shown(self, tenant: str) -> str:
        """What logs and the status page may say of a tenant: it means nothing to other processes.

        Args:
            tenant: the name that `tenant` gave, here or at a peer.

        Returns:
            Hex digits, or "" for "".
        """
        if not tenant:
            return ""
        return _hex(self._shown_key, tenant.encode("utf-8", "surrogatepass"), SHOWN_DIGITS)

    def _name_key(self, token: Secret | None) -> bytes:
        if token is None or not token.value:
            return self._own_key
        return token.value.encode("utf-8", "surrogatepass")


def _subject(request: GatewayRequest, config: Config) -> bytes | None:
    return _checked(request.exchange.subject)


def _api_key(request: GatewayRequest, config: Config) -> bytes | None:
    return _checked(request.exchange.api_key)


def _checked(value: str | None) -> bytes | None:
    return None if value is None else value.encode("utf-8", "surrogatepass")


def _header(request: GatewayRequest, config: Config) -> bytes | None:
    """X-Tenant of a trusted proxy; none where it is empty, not text, or says two things."""
    if not request.peer_is_trusted(config.trusted_proxies):
        return None
    values = set(request.requestHeaders.getRawHeaders(b"X-Tenant", []))
    # A proxy that adds its line to the client's own, where it should replace it, tells nothing.
    if len(values) != 1:
        return None
    value = values.pop().strip(b" \t")
    return None if not value or _CONTROL.search(value) else value


def _address(request: GatewayRequest, config: Config) -> bytes:
    """The client's address; whoever has an IPv6 address has all of its /64."""
    hops = request.requestHeaders.getRawHeaders(b"X-Forwarded-For", [])
    text = client_address(request.peer_host(), hops, config.trusted_proxies)
    try:
        address = ip_address(text)
    except ValueError:
        # A Unix socket: whoever comes through it is one.
        return b""
    if isinstance(address, IPv6Address):
        text = f"{IPv6Address(int(address) >> 64 << 64)}/64"
    return text.encode("ascii")


_READERS: Mapping[TenantSource, Reader] = {
    TenantSource.SUBJECT: _subject,
    TenantSource.API_KEY: _api_key,
    TenantSource.HEADER: _header,
    TenantSource.ADDRESS: _address,
}


def _hex(key: bytes, message: bytes, digits: int) -> str:
    return hmac.digest(key, message, "sha256").hex()[:digits]
