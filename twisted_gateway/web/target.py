"""The target of a request: how it is read, and what is refused (RFC 9112, section 3.2)."""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

from twisted_gateway.core.errors import Problem
from twisted_gateway.core.outcome import Outcome

_SLASHES = re.compile(rb"/{2,}")
_ABSOLUTE = re.compile(rb"(?i)\Ahttps?://[^/?]*")
# Visible ASCII but `#`: a fragment, which is no part of a target, would be dropped on the way and
# leave another path than the one that was judged (RFC 9112, section 3.2).
_TARGET = re.compile(rb"[!\"$-~]+")
_CONTROL = re.compile(rb"[\0-\x1f\x7f]")
_SIMPLE = re.compile(rb"[A-Za-z0-9/_-]*")
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}")


def split_target(target: bytes) -> tuple[bytes, bytes]:
    """Give the target in origin form, and its path less repeated and trailing slashes.

    Whom a proxy's form of a target is for is nobody's concern here (RFC 9112, section 3.2.2).
    """
    uri, absolute = _ABSOLUTE.subn(b"", target)
    if absolute and not uri.startswith(b"/"):
        uri = b"/" + uri
    path = _SLASHES.sub(b"/", uri.partition(b"?")[0])
    return uri, (path.rstrip(b"/") or b"/") if len(path) > 1 else path


def routed_path(path: bytes) -> bytes:
    """Give the one spelling of a path that routes are matched by, for whatever is decided by path.

    All is decoded in it but what would not mean the same then: a slash inside a segment is `%2F`,
    which parts no segments, and `%` itself is `%25` (RFC 3986, sections 2.4 and 6.2.2).
    """
    if b"%" not in path:
        return path
    return b"/".join(
        unquote_to_bytes(segment).replace(b"%", b"%25").replace(b"/", b"%2F")
        for segment in path.split(b"/")
    )


def is_well_formed(method: bytes, uri: bytes, path: bytes) -> bool:
    """Whether a method is a token, and a target one that everybody reads alike.

    One that begins with something else than a slash is no path, though servers may find one in it.
    """
    begins = uri.startswith(b"/") or uri == b"*"
    return bool(begins and _TOKEN.fullmatch(method) and _TARGET.fullmatch(uri) and _is_plain(path))


def has_controls(path: bytes) -> bool:
    """Whether there are control characters in a path once it is decoded.

    Servers do not agree on what is behind a NUL or in front of a line break at the end.
    """
    return bool(_CONTROL.search(unquote_to_bytes(path)))


def readings(path: bytes) -> frozenset[tuple[bytes, ...]]:
    """Give the segments that servers find in a path which takes more than letters to spell.

    To many what follows a `;` in a segment (RFC 3986, section 3.3) is no part of its name: they
    cut it off after they have decoded the path, or before that too. A backslash is a slash to some.
    Empty segments are left out.
    """
    return frozenset(
        tuple(filter(None, _named(unquote_to_bytes(one).replace(b"\\", slash))))
        for one in (path, b"/".join(_named(path)))
        for slash in (b"\\", b"/")
    )


def malformed_target() -> Problem:
    """What `is_well_formed` is not."""
    return Problem(
        "malformed_target",
        400,
        "The method must be a token, the target visible ASCII without #, and its path begin with "
        "a slash, be percent-encoded UTF-8 without control characters and segments that are . or "
        ".., and mean the same place to every server: no escaped slashes, backslashes or "
        "parameters on the way to a route's prefix.",
        outcome=Outcome.BAD_REQUEST,
    )


def malformed_host() -> Problem:
    """No host, or several (RFC 9112, section 3.2)."""
    return Problem(
        "malformed_host",
        400,
        "A request in HTTP/1.1 names its host in exactly one Host field.",
        outcome=Outcome.BAD_REQUEST,
    )


def _is_plain(path: bytes) -> bool:
    """Whether a path is UTF-8 and leads nowhere else once somebody resolves its dots."""
    if _SIMPLE.fullmatch(path):
        return True
    try:
        unquote_to_bytes(path).decode("utf-8")
    except UnicodeDecodeError:
        return False
    return not any(one in (b".", b"..") for reading in readings(path) for one in reading)


def _named(path: bytes) -> list[bytes]:
    """Give a path's segments, each less its parameters."""
    return [segment.partition(b";")[0] for segment in path.split(b"/")]
