"""Cross-origin requests from browsers (the Fetch standard's CORS protocol)."""

from __future__ import annotations

from collections.abc import Collection

from twisted.web.http_headers import Headers

Pairs = list[tuple[bytes, bytes]]

_EXPOSED = (
    b"X-Request-ID, Retry-After, Preference-Applied, X-Queue-Position, X-Queue-Wait-Estimate, "
    b"ETag, Content-Range, WWW-Authenticate"
)
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

    def headers(self, request: Headers) -> Pairs:
        """The headers for an answer to a request with these; none where nothing is allowed."""
        if not self._origins:
            return []
        if self._any:
            return [
                (b"Access-Control-Allow-Origin", b"*"),
                (b"Access-Control-Expose-Headers", _EXPOSED),
            ]
        # Also to those without an origin: a cache must not give them each other's answers.
        vary = (b"Vary", b"Origin")
        origin = request.getRawHeaders(b"Origin", [b""])[0]
        if origin not in self._origins:
            return [vary]
        return [
            (b"Access-Control-Allow-Origin", origin),
            (b"Access-Control-Expose-Headers", _EXPOSED),
            vary,
        ]

    def preflight(self, method: bytes, request: Headers) -> Pairs | None:
        """The further headers of the answer to a preflight; None where this is none."""
        asked = request.hasHeader(b"Access-Control-Request-Method")
        if method != b"OPTIONS" or not asked or not self._origins:
            return None
        origin = request.getRawHeaders(b"Origin", [b""])[0]
        if not (self._any or origin in self._origins):
            return []
        wanted = request.getRawHeaders(b"Access-Control-Request-Headers", [b""])
        return [
            (b"Access-Control-Allow-Methods", b"GET, HEAD, POST, PUT, DELETE"),
            (b"Access-Control-Allow-Headers", b", ".join(wanted)),
            (b"Access-Control-Max-Age", _PREFLIGHT_SECONDS),
        ]
