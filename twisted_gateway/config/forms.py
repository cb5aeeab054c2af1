"""What the strings of the configuration must look like: each form a function that reads one.

Every function takes the text with the environment already in it, returns the value, and raises
`Wrong` with what was expected. Texts that may hold credentials are never repeated.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Any
from urllib.parse import SplitResult, urlsplit

from twisted.internet.endpoints import (
    TCP4ServerEndpoint,
    TCP6ServerEndpoint,
    serverFromString,
)
from twisted.internet.protocol import Factory
from twisted.internet.testing import MemoryReactor

from twisted_gateway.config.faults import Wrong
from twisted_gateway.core.template import BadTemplate, Template, parse

_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?")
# RFC 3986's pchar and the slash.
_PATH = re.compile(r"(/[A-Za-z0-9._~!$&'()*+,;=:@%-]*)+")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")
_SERVICE = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}")
_SCOPE = re.compile(r"[!#-\[\]-~]+")
_BEARER = re.compile(r"[!-~]+")
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}([Tt ]\d{2}:\d{2}:\d{2}(Z|[-+]\d{2}:\d{2}))?", re.ASCII)
_PORTS = {"http": 80, "https": 443}
_PEER = re.compile(r"(\[[^\[\]%]+\]|[^:\[\]]+)(?::([^:/]*))?")
_PORT = re.compile(r"[1-9][0-9]{0,4}")

# Twisted gives these no types.
_memory_reactor: Callable[[], MemoryReactor] = MemoryReactor
_server_from_string: Callable[[MemoryReactor, str], Any] = serverFromString


def printable(text: str) -> str:
    """Take any text of printable characters that does not begin or end with a space."""
    if not text:
        raise Wrong("expected a string that is not empty")
    if not text.isprintable():
        raise Wrong("expected printable characters only")
    if text != text.strip():
        raise Wrong("expected a string that does not begin or end with a space")
    return text


def credential(text: str) -> str:
    """Take what may stand in a header as a Bearer token (visible ASCII), or nothing at all.

    Line breaks at its end, which files and mounted secrets tend to have, are no part of it.
    """
    text = text.rstrip("\r\n")
    if text and not _BEARER.fullmatch(text):
        raise Wrong("expected visible ASCII characters only")
    return text


def service_name(text: str) -> str:
    """Take what X-Service can name: a token that is safe in headers, metrics and paths."""
    if not _SERVICE.fullmatch(text):
        raise Wrong("expected letters, digits, '.', '_' and '-', at most 64, a letter first")
    return text


def scope(text: str) -> str:
    """Take one scope (RFC 6749, section 3.3)."""
    if not _SCOPE.fullmatch(text):
        raise Wrong("expected a scope: visible ASCII without blanks, quotes and backslashes")
    return text


def file_path(text: str) -> str:
    """Take a path of the file system."""
    if not text or "\0" in text:
        raise Wrong("expected the path of a file")
    return text


def url_path(text: str) -> str:
    """Take an absolute path of a URL, without query."""
    if not _PATH.fullmatch(text):
        raise Wrong("expected an absolute path such as /rerank, without query")
    return text


def request_path(text: str) -> str:
    """Take the path of a request, as it is once repeated and trailing slashes are dropped."""
    path = url_path(text)
    if "//" in path or path.endswith("/"):
        raise Wrong("expected a path without repeated or trailing slashes (dispatch drops them)")
    return path


def plain_path(text: str) -> str:
    """Take the prefix of requests' paths: no escapes, so that it is spelt in one way alone."""
    path = request_path(text)
    if set(path) & set("%;") or {".", ".."} & set(path.split("/")):
        raise Wrong("expected a path without escapes, ';', and segments that are . or ..")
    return path


def reference(text: str) -> str:
    """Take a URL of http or https, or an absolute path, as a reference in the field Link."""
    if text.startswith("/") and not text.startswith("//"):
        return url_path(text)
    return document_url(text)


def moment(text: str) -> datetime:
    """Take a date, its first moment in UTC, or a moment (RFC 3339)."""
    try:
        if not _MOMENT.fullmatch(text):
            raise ValueError
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=found.tzinfo or UTC).astimezone(UTC)
    except (ValueError, OverflowError):
        # In UTC it may be before the first year there is, or after the last.
        raise Wrong("expected a date such as 2027-01-01 or 2027-01-01T12:00:00Z") from None


def template(text: str) -> Template:
    """Take a text with places that an event fills in."""
    try:
        return parse(text)
    except BadTemplate as fault:
        raise Wrong(str(fault)) from None


def base_url(text: str) -> str:
    """Take an engine's base URL; give it with scheme and host in lower case, no slash at its end.

    The text is not repeated in the fault: a refused one may hold a password.
    """
    url = service_url(text)
    if url.endswith("/v1"):
        raise Wrong("expected the engine's own address, without /v1: requests bring their path")
    return url


def service_url(text: str) -> str:
    """Take the base URL of a service, as `base_url` does that of an engine."""
    parts, authority = _web(text)
    if "?" in text or "#" in text:
        raise Wrong("expected a URL without query and fragment")
    if parts.path and not _PATH.fullmatch(parts.path):
        raise Wrong("expected a URL whose path needs no escapes")
    return f"{parts.scheme}://{authority}{parts.path.rstrip('/')}"


def document_url(text: str) -> str:
    """Take the URL of one resource of the web, with its query if it has one."""
    parts, authority = _web(text)
    if "#" in text:
        raise Wrong("expected a URL without fragment")
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{authority}{parts.path or '/'}{query}"


def _web(text: str) -> tuple[SplitResult, str]:
    """Take a URL of http or https apart; its authority comes in one spelling."""
    try:
        parts = _split(text)
        authority = _authority(parts)
    except ValueError:
        raise Wrong("expected a URL such as http://host:8000") from None
    if parts.scheme not in _PORTS or parts.port == 0:
        raise Wrong("expected a URL such as http://host:8000")
    if "@" in parts.netloc:
        raise Wrong("expected a URL without user and password (they have keys of their own)")
    return parts, authority


def engine_address(url: str) -> str:
    """Name the engine behind the base URL `url`: `scheme://host:port`, the port always there.

    Models whose upstreams have the same address share the engine's gate.
    """
    parts = urlsplit(url)
    return f"{parts.scheme}://{_host(parts)}:{parts.port or _PORTS[parts.scheme]}"


def peer_address(text: str) -> tuple[str, int]:
    """Take the `HOST:PORT` of a replica's listener, an IPv6 address in brackets.

    Returns:
        The host in lower case, an IPv6 address without its brackets; the port.
    """
    try:
        found = _PEER.fullmatch(text)
        if found is None:
            raise ValueError
        host = _peer_host(found[1])
    except ValueError:
        raise Wrong("expected HOST:PORT such as 10.0.0.1:8081 or [fd00::1]:8081") from None
    port = found[2]
    if not port:
        raise Wrong("expected HOST:PORT, with the port of the replicas' peers.listen")
    if not _PORT.fullmatch(port) or int(port) > 65535:
        raise Wrong("expected a port from 1 to 65535")
    return host, int(port)


def peer_text(address: tuple[str, int]) -> str:
    """Give an address that `peer_address` took as it is written."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_port(text: str) -> str:
    """Take the `HOST:PORT` of a service, an IPv6 address in brackets; the host in lower case."""
    found = _PEER.fullmatch(text)
    port = "" if found is None else found[2] or ""
    try:
        if found is None or not _PORT.fullmatch(port) or int(port) > 65535:
            raise ValueError
        return peer_text((_peer_host(found[1]), int(port)))
    except ValueError:
        raise Wrong("expected HOST:PORT such as temporal-frontend:7233") from None


def origin(text: str) -> str:
    """Take `*`, or an origin as browsers send it; give it in their spelling."""
    if text == "*":
        return text
    try:
        parts = _split(text)
        rest = text.split("://", 1)[1]
        authority = _authority(parts)
    except (ValueError, IndexError):
        raise Wrong("expected * or an origin such as https://chat.example.com") from None
    if not _SCHEME.fullmatch(parts.scheme) or set(rest) & set("/@?#"):
        raise Wrong("expected * or an origin such as https://chat.example.com, without a path")
    if parts.port == _PORTS.get(parts.scheme):
        authority = _host(parts)
    return f"{parts.scheme}://{authority}"


def network(text: str) -> IPv4Network | IPv6Network:
    """Take an address or a network in CIDR form."""
    try:
        return ip_network(text)
    except ValueError:
        pass
    try:
        loose = ip_network(text, strict=False)
    except ValueError:
        raise Wrong("expected an address or a network such as 10.0.0.0/8") from None
    raise Wrong(f"expected a network without host bits: {loose}")


def endpoint(text: str) -> str:
    """Take a Twisted server endpoint string; nothing is opened or bound."""
    if not text.isprintable():
        raise Wrong("expected printable characters only")
    reactor = _memory_reactor()
    try:
        server = _server_from_string(reactor, text)
    except Exception as fault:
        # Endpoint parsers are plugins, which may raise anything.
        raise Wrong("expected a Twisted server endpoint such as tcp:8080") from fault
    if type(server) in (TCP4ServerEndpoint, TCP6ServerEndpoint):
        # To a memory reactor a port is an entry in a list, which holds what was asked for.
        server.listen(Factory())
        if not all(0 <= port[0] <= 65535 for port in reactor.tcpServers):
            raise Wrong("expected a port between 0 and 65535")
    return text


def _split(text: str) -> SplitResult:
    """Take a URL apart.

    Raises:
        ValueError: it cannot be one.
    """
    # Before urlsplit, which drops line breaks and tabs in silence.
    if not _BEARER.fullmatch(text):
        raise ValueError("not a URL")
    parts = urlsplit(text)
    _ = parts.port
    return parts


def _host(parts: SplitResult) -> str:
    """Give the host in lower case, as it stands in a URL.

    Raises:
        ValueError: it is none.
    """
    host = parts.hostname or ""
    if ":" in host:
        return f"[{IPv6Address(host)}]"
    if not _HOST.fullmatch(host):
        raise ValueError("not a host")
    return host


def _peer_host(text: str) -> str:
    """Give a host in lower case, an IPv6 address without its brackets.

    Raises:
        ValueError: it is none.
    """
    if text.startswith("["):
        return str(IPv6Address(text[1:-1]))
    if not _HOST.fullmatch(text):
        raise ValueError("not a host")
    return text.lower()


def _authority(parts: SplitResult) -> str:
    return _host(parts) if parts.port is None else f"{_host(parts)}:{parts.port}"
