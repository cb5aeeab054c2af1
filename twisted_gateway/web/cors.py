"""Cross-origin requests from browsers (the Fetch standard's CORS protocol)."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from twisted_gateway.core.outcome import Outcome

if TYPE_CHECKING:
    from twisted_gateway.web.request import GatewayRequest

_EXPOSED = b"X-Request-ID, Retry-After, Preference-Applied"
_PREFLIGHT_SECONDS = b"600"


class Cors:
    """Which origins may call, and the headers that say so; also on the gateway's own errors.

    Args:
        origins: allowed origins as browsers send them (`https://app.example`), or `*`.
    """

    def __init__(self, origins: Collection[str]) -> None:
        """Take the origins."""
        self._any = "*" in origins
        self._origins = frozenset(origin.encode("ascii") for origin in origins)

    def headers(self, request: GatewayRequest) -> list[tuple[bytes, bytes]]:
        """The headers for an answer to this request; none where its origin is not allowed."""
        origin = request.requestHeaders.getRawHeaders(b"Origin", [b""])[0]
        if not origin or not self._origins:
            return []
        if self._any:
            return [
                (b"Access-Control-Allow-Origin", b"*"),
                (b"Access-Control-Expose-Headers", _EXPOSED),
            ]
        if origin not in self._origins:
            return [(b"Vary", b"Origin")]
        return [
            (b"Access-Control-Allow-Origin", origin),
            (b"Access-Control-Expose-Headers", _EXPOSED),
            (b"Vary", b"Origin"),
        ]

    def apply(self, request: GatewayRequest) -> None:
        """Put the headers on the request's answer, whatever it will be."""
        for name, value in self.headers(request):
            request.setHeader(name, value)

    def preflight(self, request: GatewayRequest) -> bool:
        """Answer a preflight, without asking for a token; False where it is none."""
        asked = request.requestHeaders.getRawHeaders(b"Access-Control-Request-Method")
        if request.method != b"OPTIONS" or not asked or not self._origins:
            return False
        headers = []
        if request.responseHeaders.hasHeader(b"Access-Control-Allow-Origin"):
            wanted = request.requestHeaders.getRawHeaders(b"Access-Control-Request-Headers", [b""])
            headers = [
                (b"Access-Control-Allow-Methods", b"GET, HEAD, POST"),
                (b"Access-Control-Allow-Headers", b", ".join(wanted)),
                (b"Access-Control-Max-Age", _PREFLIGHT_SECONDS),
            ]
        request.exchange.route = "preflight"
        request.setResponseCode(204)
        for name, value in headers:
            request.setHeader(name, value)
        request.exchange.end(Outcome.OK, 204)
        request.finish()
        return True
