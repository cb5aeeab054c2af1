"""What is kept out of words of others that are shown: credentials, and where services are. Pure.

Both look at whole words. So whoever cuts a text short does it behind them, as `presentable` does:
of half a credential, or half an address, nobody could tell any more what it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html.entities import codepoint2name
from ipaddress import IPv4Address, IPv4Network, ip_address

from twisted_gateway.core.spelling import in_ascii, unescaped

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
_PORT_BEHIND = "(?:(?::|%3[Aa])[0-9]{1,5})?"
_BRACKETED = re.compile(rf"\[(?P<address>[0-9A-Fa-f:.]{{2,45}})(?:%\w{{1,15}})?\]{_PORT_BEHIND}")
# Where neither a digit nor a fifth number touches it; nor does Go's `IP:` in front save it.
_IPV4 = re.compile(
    r"(?<![0-9])(?<![0-9]\.)(?P<address>0{0,3}[0-9]{1,3}(?:\.0{0,3}[0-9]{1,3}){3})"
    rf"{_PORT_BEHIND}(?![0-9]|\.[0-9])"
)
_GROUP = "[0-9A-Fa-f]{1,4}"
_DOTTED = r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}"
_LAST = rf"(?:(?:{_GROUP}:){{0,6}}(?:{_DOTTED}|{_GROUP}))"
_LAST_TWO = rf"(?:{_DOTTED}|{_GROUP}:{_GROUP})"
# By how it begins an address is told from other words with colons: what is in use of IPv6's space
# (2000::/3, fc00::/7, fe80::/10, 64:ff9b::/96 of RFC 4291, RFC 4193, RFC 6052) and what begins with
# zeros (loopback, IPv4-mapped). `a::b` is more likely a name.
_IN_USE = (
    "(?:[23][0-9A-Fa-f]{3}|[Ff][CcDd][0-9A-Fa-f]{2}|[Ff][Ee][89ABab][0-9A-Fa-f]"
    "|0{0,2}64:[Ff]{2}9[Bb])"
)
_ZEROS = "(?:0{1,4}(?::0{1,4}){0,6})"
_IPV6 = re.compile(
    rf"(?<![^\W_])(?:{_IN_USE}(?:(?::{_GROUP}){{0,6}}::{_LAST}?|(?::{_GROUP}){{5}}:{_LAST_TWO})"
    rf"|(?:0{{1,4}}:){{5}}(?:0{{1,4}}|[Ff]{{4}}):{_LAST_TWO}"
    # A resource's name at Amazon has three colons in the middle (`arn:aws:s3:::2024`).
    rf"|(?:{_ZEROS}|(?<!:)|(?=::1(?![\w-])|::[Ff]{{4}}:))::(?=[A-Fa-f:]{{0,34}}[0-9]){_LAST})"
    rf"(?:%\w{{1,15}})?{_PORT_BEHIND}(?![^\W_]|\.[0-9])"
)
# What stands in front of four numbers that are those of a version.
_VERSION = re.compile(r"(?i)(?:\b(?:v|version[ :=]{1,2})|\.so\.)\Z")
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
# How often escapes are undone: JSON within JSON that is percent-encoded has three kinds.
_SPELLINGS = 3
_BACKSLASHES_OR_ONE = re.compile(r"(?s)\\+|.")


def redacted(text: str, secrets: Iterable[str]) -> str:
    """Give a text without these credentials, also where they are percent-encoded or escaped.

    One of at least `PLAIN_CHARACTERS` goes wherever it stands, a shorter one where it is a word of
    its own.
    """
    # The longest first: what is left of it behind a shorter one that it begins with would stay.
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        # Backslashes in a row as one: each as one to four of them would be tried in many ways.
        form = "".join(map(_either_way, _BACKSLASHES_OR_ONE.findall(secret)))
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

    What is found only once its spelling is undone (percent-encoding, escapes of JSON and HTML,
    full-width digits) has the whole text come back without such spellings. A number in a form that
    few take for an address (`0x0a000005`, `167772165`) stays where it is no URL's host, and so does
    one that is pulled apart (`10[.]0[.]0[.]5`).

    Args:
        text: somebody else's words.
        hosts: names that are known to be inside, without ports.
    """
    known = _known(hosts)
    shown = hidden = _masked(text, known)
    for _ in range(_SPELLINGS):
        plainer = _plainer(text)
        if plainer == text:
            break
        text, hidden, found = plainer, _plainer(hidden), _masked(plainer, known)
        if found != hidden:
            # As a rule more is found now, and whole; but what joins up may hide what was found.
            more = found.count(MASK) >= hidden.count(MASK)
            shown = hidden = found if more else _masked(hidden, known)
    return shown


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
    """Give a pattern for a character as it is, or as it is written where it means something.

    Percent-encoded (RFC 3986; `+` for a blank), in a string of JSON, in one within a string, or as
    a reference of HTML. Backslashes in a row count as one.
    """
    if character in _UNRESERVED:
        return re.escape(character)
    if character.startswith("\\"):
        most = len(character)
        return rf"(?:\\{{{most},{4 * most}}}|(?i:(?:%5c){{{most}}}))"
    percent = "".join(f"%{byte:02x}" for byte in character.encode("utf-8"))
    number = ord(character)
    forms = [
        rf"\\{{0,3}}{re.escape(character)}",
        rf"(?i:{percent}|\\{{1,3}}u{number:04x}|&#0{{0,4}}{number};|&#x0{{0,4}}{number:x};)",
    ]
    if character == " ":
        forms.append("[+]")
    if name := codepoint2name.get(number, "apos" if character == "'" else ""):
        forms.append(f"&{name};")
    return f"(?:{'|'.join(forms)})"


def _plainer(text: str) -> str:
    return in_ascii(unescaped(text))


def _known(hosts: Iterable[str]) -> list[re.Pattern[str]]:
    """Give what finds each host, the longest first; without dots it has to have a port."""
    return [
        re.compile(
            rf"(?i)(?<![\w.-]){re.escape(host)}\.?"
            rf"{_PORT_BEHIND if '.' in host else ':[0-9]{1,5}'}(?![\w-])"
        )
        for host in sorted(filter(None, hosts), key=len, reverse=True)
    ]


def _masked(text: str, known: Iterable[re.Pattern[str]]) -> str:
    """Mask what is an address as it stands.

    Args:
        text: somebody else's words.
        known: what finds the names that are known to be inside.
    """
    text = _URL.sub(rf"\1{MASK}", text)
    # First what holds others: a cluster's name begins with that of a Service, and an address of
    # IPv6 may end in one of IPv4.
    text = _INSIDE.sub(MASK, text)
    for host in known:
        text = host.sub(MASK, text)
    text = _BRACKETED.sub(_without_bracketed, text)
    text = _IPV6.sub(MASK, text)
    text = _IPV4.sub(_without_ipv4, text)
    text = _PORT.sub(MASK, text)
    text = _CALLED.sub(rf"\1{MASK}", text)
    text = _ANSWERED.sub(MASK, text)
    text = _SETTING.sub(rf"\1\2{MASK}", text)
    return _LOOKUP.sub(rf"\1 {MASK}", text)


def _without_bracketed(found: re.Match[str]) -> str:
    try:
        ip_address(found["address"])
    except ValueError:
        return found[0]
    return MASK


def _without_ipv4(found: re.Match[str]) -> str:
    # To some a number with zeros in front is octal; it is an address to everybody.
    numbers = [int(number) for number in found["address"].split(".")]
    if max(numbers) > 255:
        return found[0]
    return found[0] if _is_version(found, IPv4Address(bytes(numbers))) else MASK


def _is_version(found: re.Match[str], address: IPv4Address) -> bool:
    before = found.string[max(0, found.start() - _VERSION_CHARACTERS) : found.start()]
    return (
        found[0] == found["address"]
        and _VERSION.search(before) is not None
        and not any(address in network for network in _PRIVATE)
    )
