"""What caches between the gateway and a client may keep of an answer (RFC 9111)."""

from __future__ import annotations

import re

_DIRECTIVE = re.compile(rb'(?:[^,"]|"(?:\\.|[^"\\])*")+')
_FOR_SHARED_CACHES = frozenset({b"private", b"proxy-revalidate", b"public", b"s-maxage"})


def private(cache_control: bytes = b"") -> bytes:
    """Make the Cache-Control of an answer that is for one client alone.

    Args:
        cache_control: what its origin says, which does not know that a token was asked for.

    Returns:
        The same, less what shared caches are allowed, and `private` where anything may be stored.
    """
    kept = [
        directive.strip()
        for directive in _DIRECTIVE.findall(cache_control)
        if directive.strip()
        and directive.partition(b"=")[0].strip().lower() not in _FOR_SHARED_CACHES
    ]
    if any(directive.lower() == b"no-store" for directive in kept):
        return b", ".join(kept)
    return b", ".join([b"private", *kept])
