"""The forms of the command line's values: each reads a text, and says what it expected instead."""

from __future__ import annotations

from argparse import ArgumentTypeError

from twisted_gateway.config.faults import Wrong
from twisted_gateway.config.forms import base_url
from twisted_gateway.upstream.errors import InvalidRequest
from twisted_gateway.upstream.request_head import parse_address

# What the tool says itself, or what frames the request.
_TAKEN = frozenset(
    {
        *("accept", "authorization", "connection", "content-length", "content-type", "expect"),
        *("host", "te", "transfer-encoding", "upgrade", "x-priority", "x-request-id"),
    }
)


def url(text: str) -> str:
    """Read the base URL of an API; it may end in a slash or in `/v1`."""
    _, _, rest = text.partition("://")
    if "@" in rest.partition("/")[0]:
        # What may be a password is not repeated.
        raise ArgumentTypeError("expected a URL without user and password (use --api-key-env)")
    try:
        return base_url(text.rstrip("/").removesuffix("/v1"))
    except Wrong as fault:
        raise ArgumentTypeError(str(fault)) from None


def page(text: str) -> str:
    """Read the URL of a page, or `none`."""
    if text == "none":
        return text
    try:
        parse_address(text.encode("ascii"))
    except (InvalidRequest, UnicodeEncodeError):
        raise ArgumentTypeError("expected a URL such as http://host:8080/page, or none") from None
    return text


def option(text: str) -> tuple[str, float]:
    """Read `NAME=NUMBER`."""
    name, _, value = text.partition("=")
    try:
        return name, float(value)
    except ValueError:
        raise ArgumentTypeError("expected NAME=NUMBER") from None


def header(text: str) -> str:
    """Read the name of a header that the tool does not need itself; empty for none."""
    if text and not all(char.isascii() and (char.isalnum() or char in "-_") for char in text):
        raise ArgumentTypeError("expected the name of a header")
    if text.lower() in _TAKEN:
        raise ArgumentTypeError(f"expected another header: {text} says something else")
    return text
