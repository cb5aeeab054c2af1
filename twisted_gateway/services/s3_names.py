"""What the parameters of S3's operations must look like, so that none leads out of its bucket."""

from __future__ import annotations

import re

from twisted_gateway.services.adapter import BadParameter

MAX_KEY_BYTES = 1024
"""The longest key that S3 takes."""
MAX_KEYS = 1000
"""The most objects that one listing gives."""

# Stores are not agreed on capitals, underscores and short names, so those pass.
_BUCKET = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,253}[A-Za-z0-9])?")


def bucket(text: str) -> str:
    """Take the name of a bucket, which is one segment of a path.

    Raises:
        BadParameter: it is none.
    """
    if not _BUCKET.fullmatch(text) or ".." in text:
        raise BadParameter("at most 255 letters, digits, '.', '_' and '-', no two dots in a row")
    return text


def key(text: str) -> str:
    """Take the key of an object.

    A segment that is `.` or `..` would be resolved on the way, and another bucket be reached.

    Raises:
        BadParameter: it is none.
    """
    prefix(text)
    if {".", ".."} & set(text.replace("\\", "/").split("/")):
        raise BadParameter("a key without segments that are . or ..")
    return text


def prefix(text: str) -> str:
    """Take the beginning of a key. Line breaks and the like are legal there; a path escapes them.

    Raises:
        BadParameter: no key begins so.
    """
    if len(text.encode("utf-8", "surrogatepass")) > MAX_KEY_BYTES:
        raise BadParameter(f"at most {MAX_KEY_BYTES} bytes")
    if "\0" in text:
        raise BadParameter("text without NUL characters")
    return text


def max_keys(text: str) -> str:
    """Take how many objects a listing is to give.

    Raises:
        BadParameter: it is no number from 1 to 1000.
    """
    if not (text.isascii() and text.isdecimal() and len(text) <= 4 and 1 <= int(text) <= MAX_KEYS):
        raise BadParameter(f"a whole number from 1 to {MAX_KEYS}")
    return str(int(text))


def continuation_token(text: str) -> str:
    """Take what an earlier listing gave.

    Raises:
        BadParameter: no listing gives such a one.
    """
    if not text.isprintable() or len(text) > 4096:
        raise BadParameter("the continuation_token of an earlier listing")
    return text
