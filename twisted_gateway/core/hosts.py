"""Hosts of URLs, as browsers read them (https://url.spec.whatwg.org/#host-parsing). Pure."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from urllib.parse import unquote

from twisted_gateway.core.spelling import in_ascii

_NUMBER = re.compile(r"0x[0-9a-f]{0,8}|[0-9]{1,11}")
# Addresses of IPv6 that lead to one of IPv4: NAT64's (RFC 6052), and those that once were to
# (RFC 4291, section 2.5.5.1).
_OF_IPV4 = (IPv6Network("64:ff9b::/96"), IPv6Network("::/96"))


def plain(text: str) -> str:
    """Undo percent-encoding, and what Unicode has in place of ASCII."""
    return in_ascii(unquote(text))


def canonical_host(name: str) -> str:
    """Give a host in the one form that browsers make of it (WHATWG URL, the host parser).

    Escapes and look-alikes of ASCII are undone, addresses written in one way, those of IPv6 that
    lead to one of IPv4 as that; other names of Unicode's stay as they are. What is no host comes
    back as it reads.

    Args:
        name: a host as it stands in a URL, without brackets and port.
    """
    name = plain(name).lower().rstrip(".")
    try:
        address = ip_address(name)
    except ValueError:
        return _odd_address(name) or name
    return str(address if isinstance(address, IPv4Address) else _reached(address))


def _reached(address: IPv6Address) -> IPv4Address | IPv6Address:
    """Give the address of IPv4 that one of IPv6 leads to, if it is such a one."""
    number = int(address)
    # The first two of all are those of nobody and of loopback.
    if number > 1 and any(address in network for network in _OF_IPV4):
        return IPv4Address(number & 0xFFFFFFFF)
    return address.ipv4_mapped or address


def _odd_address(name: str) -> str | None:
    """Read `10.1`, `0xa.1` and `167772161` as browsers do (WHATWG URL, the IPv4 parser)."""
    numbers = name.split(".")
    if len(numbers) > 4 or not all(map(_NUMBER.fullmatch, numbers)):
        return None
    try:
        *first, last = map(_number, numbers)
        return str(IPv4Address(bytes(first) + last.to_bytes(4 - len(first), "big")))
    except (ValueError, OverflowError):
        return None


def _number(text: str) -> int:
    if text.startswith("0x"):
        return int(text[2:] or "0", 16)
    return int(text, 8 if text.startswith("0") else 10)
