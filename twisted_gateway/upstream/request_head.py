"""Request heads: where a request goes and what its first lines say (RFC 9112 section 3)."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from twisted.web.http_headers import Headers
from twisted.web.iweb import UNKNOWN_LENGTH, IBodyProducer

from twisted_gateway.upstream.connection import Origin
from twisted_gateway.upstream.errors import InvalidRequest

_URI = re.compile(
    rb"(https?)://(\[[0-9a-f:.]{2,45}\]|[a-z0-9._~-]{1,253})(?::([0-9]{1,5}))?"
    rb"([/?][!\"$-~]*)?(?:#[!-~]*)?",
    re.IGNORECASE,
)
_METHOD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_DEFAULT_PORTS = {b"http": 80, b"https": 443}

_OURS = frozenset(
    (
        b"Connection",
        b"Content-Length",
        b"Expect",
        b"Host",
        b"Keep-Alive",
        b"Proxy-Connection",
        b"TE",
        b"Trailer",
        b"Transfer-Encoding",
        b"Upgrade",
    )
)
"""What a caller does not decide: framing and connection are the client's own business."""

_EXPECT_BODY = frozenset((b"POST", b"PUT", b"PATCH"))
"""Methods that say `Content-Length: 0` when they have no body (RFC 9110 section 8.6)."""


class Address(NamedTuple):
    """An absolute http or https URI, taken apart."""

    origin: Origin
    netloc: bytes
    target: bytes


def parse_address(uri: bytes) -> Address:
    """Take an absolute URI apart; the fragment is dropped.

    Returns:
        The origin (lower case, IPv6 literals without brackets), the value for Host, which names
        the port unless it is the scheme's own, and the request target.

    Raises:
        InvalidRequest: not an absolute http or https URI of visible ASCII, or one with a user name.
    """
    match = _URI.fullmatch(uri)
    if match is None:
        raise InvalidRequest("the upstream address is not a plain http or https URI")
    scheme, host, digits, target = match.groups()
    scheme, host = scheme.lower(), host.lower()
    default = _DEFAULT_PORTS[scheme]
    port = int(digits) if digits else default
    if not 0 < port < 65536:
        raise InvalidRequest("the upstream address has an impossible port")
    netloc = host if port == default else b"%b:%d" % (host, port)
    target = target or b"/"
    if target[:1] == b"?":
        target = b"/" + target
    return Address(Origin(scheme, host.strip(b"[]"), port), netloc, target)


def render_head(
    method: bytes, address: Address, headers: Headers | None, producer: IBodyProducer | None
) -> bytes:
    """The request line and fields, with the blank line.

    `Host` is taken from `headers`, else from the address. The body's framing is that of
    `producer`; the caller's fields about framing and connection are left out.

    Raises:
        InvalidRequest: the method is no token, a field has a control character that would end it,
            or the producer's length is impossible.
    """
    if not _METHOD.fullmatch(method):
        raise InvalidRequest("the method is not a token")
    given = headers.getRawHeaders(b"Host") if headers is not None else None
    parts = [
        method, b" ", address.target, b" HTTP/1.1\r\nHost: ", given[0] if given else address.netloc,
        b"\r\n",
    ]  # fmt: skip
    lines = 3
    if headers is not None:
        for name, values in headers.getAllRawHeaders():
            if name not in _OURS:
                for value in values:
                    parts += (name, b": ", value, b"\r\n")
                    lines += 1
    if producer is not None:
        parts.append(_framing(producer.length))
        lines += 1
    elif method in _EXPECT_BODY:
        parts.append(b"Content-Length: 0\r\n")
        lines += 1
    parts.append(b"\r\n")
    head = b"".join(parts)
    # Headers replaces line breaks by spaces; this holds whatever it does.
    if head.count(b"\n") != lines or head.count(b"\r") != lines or b"\0" in head:
        raise InvalidRequest("a header field has a control character")
    return head


def _framing(length: Any) -> bytes:
    if length is UNKNOWN_LENGTH:
        return b"Transfer-Encoding: chunked\r\n"
    if not isinstance(length, int) or length < 0:
        raise InvalidRequest("the length of the body is impossible")
    return b"Content-Length: %d\r\n" % length
