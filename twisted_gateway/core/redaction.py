"""What is kept out of words of others that are shown: credentials, and where services are. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address

MASK = "***"

_URL = re.compile(r"(?i)\b([a-z][a-z0-9+.-]{0,15}://)[^\s/?#\"'<>|\\]+")
# Where it is certain that a name is a host's: it has a port, or an ending that no public one has.
_PORT = re.compile(r"(?i)(?<![\w.-])[a-z](?:[\w-]*\w)?(?:\.[\w-]*\w)*\.?:[1-9][0-9]{3,4}(?!\w)")
_INSIDE = re.compile(
    r"(?i)(?<![\w.-])(?:[\w-]{1,63}\.){1,8}"
    r"(?:svc|local|localdomain|internal|intranet|lan|corp|home\.arpa)\.?(?::[0-9]{1,5})?(?![\w-])"
)
# What Go's resolver says, in which many services are written.
_LOOKUP = re.compile(r"(?i)\b(lookup) [\w.-]+\w(?=[ :])")
_NUMERIC = re.compile(
    r"\[(?P<bracketed>[0-9A-Fa-f:.]{2,45})(?:%\w{1,15})?\](?::[0-9]{1,5})?"
    r"|(?<![\w.:])(?P<plain>[0-9]{1,3}(?:\.[0-9]{1,3}){3})(?::[0-9]{1,5})?(?![\w.]\w)"
    r"|(?<![\w.:])(?P<bare>[0-9A-Fa-f:]{2,39}(?:[0-9]{1,3}(?:\.[0-9]{1,3}){3})?)(?![\w:]|\.[0-9])"
)


def redacted(text: str, secrets: Iterable[str]) -> str:
    """Give a text without these credentials, wherever they stand in it as words of their own."""
    for secret in secrets:
        if secret:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", MASK, text)
    return text


def without_addresses(text: str, hosts: Iterable[str] = ()) -> str:
    """Give a text without what tells where services are: hosts of URLs, IP addresses, host names.

    A name with a public-looking ending cannot be told from others, and stays, unless it is one of
    `hosts`; one without dots cannot be told from a word (`memory`), and stays unless it has a port.

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
    return _LOOKUP.sub(rf"\1 {MASK}", text)


def _masked(found: re.Match[str]) -> str:
    """Mask what is an address; twelve past nine is none."""
    try:
        ip_address(found["bracketed"] or found["plain"] or found["bare"])
    except ValueError:
        return found[0]
    return MASK
