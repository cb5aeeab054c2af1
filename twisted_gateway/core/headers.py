"""Which header fields cross the gateway, and which ones it adds.

Header fields are (name, value) pairs of bytes in the order in which they came, names in any case.
`Headers.getAllRawHeaders()` gives names with lists of values: `pairs` flattens them.

The rules, in both directions (RFC 9110, section 7.6.1): fields that concern one connection do not
cross, and neither do those that `Connection` names; only then does the gateway add its own, so that
nobody can have those taken out again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from twisted_gateway.core.references import Places
from twisted_gateway.core.sse import EVENT_STREAM

Pair = tuple[bytes, bytes]
Networks = Sequence[IPv4Network | IPv6Network]

_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"http2-settings",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authentication-info",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
# `Connection` may not name what is meant for the recipient of the content (RFC 9110, 7.6.1, says so
# of senders). Without these a message would mean something else to the engine than to the gateway,
# which has read the body by its type and coding; and a client could have a cache's or a cookie's
# rules undone behind the back of a proxy in front.
_END_TO_END = frozenset(
    {
        b"authorization",
        b"cache-control",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"cookie",
        b"host",
        b"set-cookie",
        b"www-authenticate",
        b"x-api-key",
    }
)
# Said to the gateway alone, or made anew by it or by its HTTP client.
_NOT_FOR_ENGINES = frozenset(
    {
        b"content-length",
        b"expect",
        b"host",
        b"prefer",
        b"proxy",
        b"x-priority",
        b"x-request-id",
        b"x-resource",
        b"x-service",
    }
)
_CREDENTIALS = frozenset({b"authorization", b"api-key", b"x-api-key"})
# What proxies say of the client. From anyone but a trusted proxy it is hearsay.
_FORWARDING = re.compile(rb"forwarded|x-real-ip|x-tenant|x-forwarded-[a-z-]+")
_XFF, _XFP, _XFH = b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host"
# `Alt-Svc` names another server of the same site, which an engine is none of.
_NOT_FOR_CLIENTS = frozenset({b"alt-svc", b"content-length", b"x-request-id"})
_UNSAFE = re.compile(rb"[\r\n\0]")


def pairs(raw: Iterable[tuple[bytes, Iterable[bytes]]]) -> list[Pair]:
    """Flatten what `Headers.getAllRawHeaders()` gives."""
    return [(name, value) for name, values in raw for value in values]


def tokens(values: Iterable[bytes]) -> list[bytes]:
    """The elements of a comma-separated list field, in lower case, over all its lines."""
    parts = [part.strip().lower() for line in values for part in line.split(b",")]
    return [part for part in parts if part]


def request_headers(
    headers: Iterable[Pair],
    *,
    peer: str,
    scheme: str,
    request_id: str,
    trusted: Networks = (),
    api_key: str | None = None,
    token_checked: bool = False,
    stream: bool = False,
    body_decoded: bool = False,
) -> list[Pair]:
    """Build the header fields of the request to the engine.

    `Host`, `Content-Length` and framing are left to the HTTP client. Trace context passes.

    Args:
        headers: as the client sent them.
        peer: the address at the other end of the client's connection; `""` when it has none.
        scheme: `http` or `https`, as the client's connection is.
        request_id: the identifier of the request, as `core.preferences.request_id` decided.
        trusted: the proxies whose word on the client is taken.
        api_key: the model's own key, sent as Bearer instead of every credential of the client's.
        token_checked: the gateway has checked the client's token, which is then not sent on.
        stream: the client asked for an event stream, which is to come without content coding.
        body_decoded: the body's content coding has been undone.
    """
    known = _safe(headers)
    drop = _named_by_connection(known) | _HOP_BY_HOP | _NOT_FOR_ENGINES
    if api_key:
        drop |= _CREDENTIALS
    elif token_checked:
        drop |= {b"authorization"}
    if stream:
        drop |= {b"accept-encoding"}
    if body_decoded:
        drop |= {b"content-encoding"}
    # Servers in the manner of CGI take `_` for `-`, and `Proxy` for a setting of their own.
    out = [
        (name, value)
        for name, value in known
        if (key := name.lower().replace(b"_", b"-")) not in drop and not _FORWARDING.fullmatch(key)
    ]
    out += _forwarding(known, peer, scheme, trusted)
    out.append((b"X-Request-ID", request_id.encode()))
    if api_key:
        out.append((b"Authorization", b"Bearer " + api_key.strip().encode()))
    if stream:
        out.append((b"Accept-Encoding", b"identity"))
    return _safe(out)


def response_headers(
    headers: Iterable[Pair],
    *,
    request_id: str,
    places: Places,
) -> list[Pair]:
    """Build the header fields of the response to the client.

    `Content-Length` is left to the caller, who knows the length. The engine's own `X-Request-ID`
    gives way to the request's.

    Args:
        headers: as the engine sent them.
        request_id: the identifier of the request.
        places: where the engine's paths are outside; its name no client is to see.
    """
    known = _safe(headers)
    drop = _named_by_connection(known) | _HOP_BY_HOP | _NOT_FOR_CLIENTS
    streams = any(k.lower() == b"content-type" and is_event_stream(v) for k, v in known)
    if streams:
        drop |= {b"x-accel-buffering"}
    out: list[Pair] = []
    for name, value in known:
        key = name.lower()
        if key in drop:
            continue
        moved = places.field(key, value)
        if moved is not None:
            out.append((name, moved))
    out.append((b"X-Request-ID", request_id.encode()))
    if streams:
        out.append((b"X-Accel-Buffering", b"no"))
    return out


def is_event_stream(content_type: bytes | None) -> bool:
    """Whether a Content-Type says `text/event-stream`, whatever its parameters."""
    return (content_type or b"").partition(b";")[0].strip().lower() == EVENT_STREAM


def is_json(content_type: bytes | None) -> bool:
    """Whether a Content-Type says `application/json`, whatever its parameters."""
    return (content_type or b"").partition(b";")[0].strip().lower() == b"application/json"


def is_websocket_handshake(headers: Iterable[Pair]) -> bool:
    """Whether a request asks to become a WebSocket (RFC 6455, section 4.1)."""
    known = list(headers)
    return b"websocket" in tokens(_values(known, b"upgrade")) and b"upgrade" in tokens(
        _values(known, b"connection")
    )


def client_address(peer: str, forwarded_for: Iterable[bytes], trusted: Networks) -> str:
    """Say who the client is: the right-most hop of X-Forwarded-For that is no trusted proxy.

    Each proxy appends the address that it sees; what a client writes itself stands to the left of
    that and is never reached. Where the trail breaks off (an element that is no address), the last
    good hop counts, as in nginx's `real_ip_recursive`.

    Args:
        peer: the address at the other end of the connection.
        forwarded_for: the values of X-Forwarded-For, in order.
        trusted: the proxies whose word is taken.

    Returns:
        An address in its canonical form; `peer` as it is when it is none (a Unix socket).
    """
    address = _address(peer)
    if address is None:
        return peer
    hops = tokens(forwarded_for)
    while hops and _in(address, trusted):
        before = _address(hops.pop().decode("latin-1"))
        if before is None:
            break
        address = before
    return str(address)


def is_trusted(peer: str, trusted: Networks) -> bool:
    """Whether the other end of a connection is one of the proxies whose word is taken.

    Args:
        peer: its address; `""`, or a path, for a Unix socket, which is none of them.
        trusted: the proxies' networks.
    """
    address = _address(peer)
    return address is not None and _in(address, trusted)


def _named_by_connection(headers: Sequence[Pair]) -> frozenset[bytes]:
    return frozenset(tokens(_values(headers, b"connection"))) - _END_TO_END


def _values(headers: Iterable[Pair], key: bytes) -> list[bytes]:
    return [value for name, value in headers if name.lower() == key]


def _forwarding(headers: Sequence[Pair], peer: str, scheme: str, trusted: Networks) -> list[Pair]:
    """The X-Forwarded fields, and from a trusted proxy whatever else it says of the client.

    `Connection` has no say here: a client whose proxy passes it on could hide its address with it.
    """
    address = _address(peer)
    believed = address is not None and _in(address, trusted)
    trail = _values(headers, _XFF) if believed else []
    proto = _values(headers, _XFP) if believed else []
    host = _values(headers, _XFH) if believed else []
    out: list[Pair] = []
    if believed:
        ours = (_XFF, _XFP, _XFH)
        out += [
            (name, value)
            for name, value in headers
            if _FORWARDING.fullmatch(key := name.lower()) and key not in ours
        ]
    if address is not None:
        trail = [*trail, str(address).encode()]
    if trail:
        out.append((b"X-Forwarded-For", b", ".join(trail)))
    out.append((b"X-Forwarded-Proto", b", ".join(proto) or scheme.encode()))
    host = host or _values(headers, b"host")[:1]
    if host:
        out.append((b"X-Forwarded-Host", b", ".join(host)))
    return out


def _in(address: IPv4Address | IPv6Address, networks: Networks) -> bool:
    return any(address in network for network in networks)


# An address as X-Forwarded-For may hold it: 192.0.2.1, 192.0.2.1:80, [2001:db8::1]:80, quoted.
_HOP = re.compile(r'"?(?:\[([^]]+)\](?::\d+)?|(\d+(?:\.\d+){3}):\d+|([^"]+))"?')


def _address(text: str) -> IPv4Address | IPv6Address | None:
    match = _HOP.fullmatch(text.strip())
    if match is None:
        return None
    try:
        address = ip_address(match[1] or match[2] or match[3])
    except ValueError:
        return None
    # A socket that listens on :: sees IPv4 peers as ::ffff:192.0.2.1; networks name them plainly.
    return getattr(address, "ipv4_mapped", None) or address


def _safe(headers: Iterable[Pair]) -> list[Pair]:
    """Leave out what would break the framing. No HTTP parser lets it come in; a key may have it."""
    return [
        (name, value)
        for name, value in headers
        if not (_UNSAFE.search(name) or _UNSAFE.search(value))
    ]
