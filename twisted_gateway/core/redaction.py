"""What is kept out of words of others that are shown: credentials, and where services are. Pure.

Both look at whole words. So whoever cuts a text short does it behind them, as `presentable` does:
of half a credential, or half an address, nobody could tell any more what it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

MASK = "***"

PLAIN_CHARACTERS = 8
"""From how many characters on a credential is taken for one in the middle of a word too.

A shorter one (`minio`) would be found in words that have nothing to do with it.
"""

_UNRESERVED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~")
# Where a short credential may begin: at no letter or digit, but for that of an escape.
_BEGIN = r"(?:(?<![^\W_])|(?<=%[0-9A-Fa-f]{2}))"
_END = r"(?![^\W_])"

_URL = re.compile(r"(?i)\b([a-z][a-z0-9+.-]{0,15}://)[^\s/?#\"'<>|\\]+")
# Where a name with a port is a host's and no limit (`max_tokens:4096`): it has a dot or a hyphen,
# and is no source file; or the words around it are those of somebody who connects.
_PORT = re.compile(
    r"(?i)(?<![\w.-])[a-z](?=\w*[.-])(?:[\w-]*\w)?(?:\.[\w-]*\w)*\.?"
    r"(?<!\.go)(?<!\.py)(?<!\.js)(?<!\.ts)(?<!\.rs)(?<!\.java)"
    r":[1-9][0-9]{3,4}(?!\w)"
)
_NAME_AND_PORT = r"[a-z](?:[\w-]{0,62}\w)?:[0-9]{1,5}(?!\w)"
_CALLED = re.compile(
    rf"(?i)((?:\b(?:tcp[46]?|udp[46]?|dial|host|server|broker|node|peer|addr|address|endpoint|to"
    rf"|from|via) |@|//)){_NAME_AND_PORT}"
)
_ANSWERED = re.compile(
    rf"(?i)(?<![\w.-]){_NAME_AND_PORT}(?=[:,]? (?:\(?(?:connect|i/o|no route|timed? ?out|refused"
    r"|unreachable|unavailable|(?:is|was) (?:down|not|un)|down\b)))"
)
# `key=value` of connection strings.
_SETTING = re.compile(
    r"(?i)\b(host|hostaddr|hostname|server|addr|endpoint)(\s?=\s?['\"]?)[\w.:-]{0,255}\w"
)
_INSIDE = re.compile(
    r"(?i)(?<![\w.-])(?:[\w-]{1,63}\.){1,8}"
    r"(?:svc|local|localdomain|internal|intranet|lan|corp|home\.arpa)\.?(?::[0-9]{1,5})?(?![\w-])"
)
# What Go's resolver says, in which many services are written.
_LOOKUP = re.compile(
    r"(?i)\b(lookup) [\w.-]{1,255}(?= on \S{1,64}:|: (?:no such host|no answer|no\b|i/o timeout"
    r"|server misbehaving|temporary failure|operation was canceled))"
)
_NUMERIC = re.compile(
    r"\[(?P<bracketed>[0-9A-Fa-f:.]{2,45})(?:%\w{1,15})?\](?::[0-9]{1,5})?"
    r"|(?<![0-9.:])(?P<plain>[0-9]{1,3}(?:\.[0-9]{1,3}){3})(?::[0-9]{1,5})?"
    r"(?![0-9]|\.[0-9])"
    r"|(?<![^\W_])(?<![.:])(?P<bare>[0-9A-Fa-f:]{2,39}(?:[0-9]{1,3}(?:\.[0-9]{1,3}){3})?)"
    r"(?:%\w{1,15})?(?![^\W_]|:|\.[0-9])"
)
# What stands in front of four numbers that are those of a version.
_VERSION = re.compile(r"(?i)\b(?:v|version[ :=]{1,2})\Z")
_VERSION_CHARACTERS = 11
# Within so many an address ends, with its port, and the words by which it is known for one.
_CONTEXT_CHARACTERS = 512
# Where services are that are not meant for everybody (RFC 1918, RFC 6598, RFC 3927, loopback).
_PRIVATE = [
    IPv4Network(one)
    for one in (
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.168.0.0/16",
    )
]
# What is in use of IPv6's space (RFC 4291, RFC 4193, RFC 6052); `a::b` is more likely a name.
_USED = [IPv6Network(one) for one in ("2000::/3", "fc00::/7", "fe80::/10", "64:ff9b::/96")]


def redacted(text: str, secrets: Iterable[str]) -> str:
    """Give a text without these credentials, also where they are percent-encoded.

    One of at least `PLAIN_CHARACTERS` goes wherever it stands, a shorter one where it is a word of
    its own.
    """
    # The longest first: what is left of it behind a shorter one that it begins with would stay.
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        form = "".join(map(_either_way, secret))
        if len(secret) < PLAIN_CHARACTERS:
            form = f"{_BEGIN}{form}{_END}"
        text = re.sub(form, MASK, text)
    return text


def without_addresses(text: str, hosts: Iterable[str] = ()) -> str:
    """Give a text without what tells where services are: hosts of URLs, IP addresses, host names.

    A name with a public-looking ending cannot be told from others, and stays, unless it is one of
    `hosts`; one without dots or hyphens cannot be told from a word (`memory`), nor with a port from
    a limit (`tokens:4096`), and stays unless it has a port and is spoken of as a host.

    In doubt it goes, for a word too few does less harm than an address too many: whatever is called
    a host (`host = 'x'`), and a name of several parts with four or five digits behind it
    (`gemma-2:9000`). What looks like an address stays where it is plainly none: times, places in
    source files, names of C++, and four numbers called a version (`v1.2.3.4`) that have no port and
    are in no private network.

    Args:
        text: somebody else's words.
        hosts: names that are known to be inside, without ports.
    """
    text = _URL.sub(rf"\1{MASK}", text)
    for host in sorted(filter(None, hosts), key=len, reverse=True):
        port = r"(?::[0-9]{1,5})" + ("?" if "." in host else "")
        text = re.sub(rf"(?i)(?<![\w.-]){re.escape(host)}\.?{port}(?![\w-])", MASK, text)
    text = _NUMERIC.sub(_masked, text)
    text = _INSIDE.sub(MASK, text)
    text = _PORT.sub(MASK, text)
    text = _CALLED.sub(rf"\1{MASK}", text)
    text = _ANSWERED.sub(MASK, text)
    text = _SETTING.sub(rf"\1\2{MASK}", text)
    return _LOOKUP.sub(rf"\1 {MASK}", text)


def presentable(
    text: str, most_characters: int, *, hosts: Iterable[str] = (), secrets: Iterable[str] = ()
) -> str:
    """Give somebody else's words as they may be shown: without either, and only then cut short.

    Args:
        text: the words; of very many only the first are looked at.
        most_characters: how many are shown at most.
        hosts: as for `without_addresses`.
        secrets: as for `redacted`.
    """
    looked_at = 4 * most_characters + _CONTEXT_CHARACTERS
    text = redacted(text, secrets)
    shown = without_addresses(text[:looked_at], hosts)
    if len(text) > looked_at:
        # What the end cuts through, and what only the words behind it tell, is not known there. It
        # shows in so far as it is the same where less is looked at.
        less = without_addresses(text[: looked_at - _CONTEXT_CHARACTERS], hosts)
        pairs = enumerate(zip(shown, less, strict=False))
        shown = shown[: next((at for at, (one, other) in pairs if one != other), len(less))]
    return shown[:most_characters]


def _either_way(character: str) -> str:
    """Give a pattern for a character as it is, or percent-encoded (RFC 3986; `+` for a blank)."""
    if character in _UNRESERVED:
        return re.escape(character)
    escaped = "".join(f"%{byte:02x}" for byte in character.encode("utf-8"))
    blank = "|[+]" if character == " " else ""
    return f"(?:{re.escape(character)}|(?i:{escaped}){blank})"


def _masked(found: re.Match[str]) -> str:
    """Mask what is an address; twelve past nine is none."""
    try:
        address = ip_address(found["bracketed"] or found["plain"] or found["bare"])
    except ValueError:
        return found[0]
    if _is_version(found, address):
        return found[0]
    return MASK if found["bracketed"] or _is_in_use(address, found[0]) else found[0]


def _is_version(found: re.Match[str], address: IPv4Address | IPv6Address) -> bool:
    before = found.string[max(0, found.start() - _VERSION_CHARACTERS) : found.start()]
    return (
        found[0] == found["plain"]
        and _VERSION.search(before) is not None
        and not any(address in network for network in _PRIVATE)
    )


def _is_in_use(address: IPv4Address | IPv6Address, text: str) -> bool:
    if isinstance(address, IPv4Address):
        return True
    if text.startswith("::"):
        return any(character.isdecimal() for character in text)
    return any(address in network for network in _USED)
