"""What the head of a request says, as attributes of its span (OpenTelemetry's HTTP conventions).

https://opentelemetry.io/docs/specs/semconv/http/http-spans/#http-server-span

The query is left out, for it may bear a credential; so are the client's address and its User-Agent,
unless the configuration wants clients to be identified. Everything is cut to a bound.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from twisted_gateway.config.schema import Config
from twisted_gateway.core.headers import client_address
from twisted_gateway.telemetry import conventions
from twisted_gateway.telemetry.tracing import Attributes

if TYPE_CHECKING:
    from twisted_gateway.web.request import GatewayRequest

_MOST_CHARACTERS = 256
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[0-9A-Za-z._-]{1,255})(?::([0-9]{1,5}))?")


def client_of(request: GatewayRequest, config: Config) -> str:
    """Give the client's address, past the proxies that are trusted; "" where it has none."""
    hops = request.requestHeaders.getRawHeaders(b"X-Forwarded-For", [])
    return client_address(request.peer_host(), hops, config.trusted_proxies)


def server_attributes(request: GatewayRequest, config: Config) -> Attributes:
    """Give what is known of a request whose head has been read.

    What proxies say of the scheme and the host is taken from trusted ones only.
    """
    trusted = request.peer_is_trusted(config.trusted_proxies)
    scheme = _forwarded(request, b"X-Forwarded-Proto") if trusted else ""
    host = _forwarded(request, b"X-Forwarded-Host") if trusted else ""
    known: dict[str, str | int | None] = {
        "http.request.method": conventions.method(request.method.decode("ascii", "replace")),
        "url.scheme": scheme if scheme in ("http", "https") else _own_scheme(request),
        "url.path": request.path.decode("utf-8", "replace")[:_MOST_CHARACTERS],
        "network.protocol.version": request.clientproto.partition(b"/")[2].decode(
            "ascii", "replace"
        ),
    }
    match = _HOST.fullmatch(host or _first(request, b"Host"))
    if match is not None:
        known["server.address"] = match[1]
        known["server.port"] = None if match[2] is None else int(match[2])
    if config.identify_clients:
        known["client.address"] = client_of(request, config) or None
        known["user_agent.original"] = _first(request, b"User-Agent")[:_MOST_CHARACTERS] or None
    return {key: value for key, value in known.items() if value is not None}


def _own_scheme(request: GatewayRequest) -> str:
    return "https" if request.isSecure() else "http"


def _forwarded(request: GatewayRequest, name: bytes) -> str:
    """The first element of a field to which each proxy may have added its own."""
    return _first(request, name).partition(",")[0].strip()


def _first(request: GatewayRequest, name: bytes) -> str:
    values = request.requestHeaders.getRawHeaders(name)
    return values[0].decode("latin-1") if values else ""
