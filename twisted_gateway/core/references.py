"""References in an answer to the server that gave it, as the client is to see them. Pure.

Whoever is asked through the gateway knows itself by another address, and maybe by other paths. What
of its answer leads to itself (Location, Link, Refresh, the path of a cookie) is to lead back to the
gateway, and to name no host inside; what leads elsewhere stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from urllib.parse import SplitResult, urlsplit, urlunsplit

MOST_REFERENCES = 256
"""How many references one field may hold: one with more is left out."""

_FORMS: Mapping[bytes, re.Pattern[bytes]] = {
    # Each reference is the group after what stands in front of it.
    b"location": re.compile(rb"\A()(.*)\Z"),
    b"content-location": re.compile(rb"\A()(.*)\Z"),
    b"link": re.compile(rb"(?i)(<|\banchor\s*=\s*\")([^<>\"]*)"),
    b"refresh": re.compile(rb"(?i)\A(\s*[0-9.]+(?:\s*[;,]\s*|\s+)(?:url\s*=\s*)?['\"]?)([^'\"]*)"),
}
_SCHEMES = ("", "http", "https")
_DEFAULT_PORTS = (None, 80, 443)
# What no browser asks for, in place of what cannot be judged (CSS Values 4, section 4.5.4).
_NOWHERE = b"about:invalid"


class Places:
    """Where a server's paths are outside.

    Args:
        bases: its base URLs (`http://host:port[/prefix]`); one for each of several that are alike.
        paths: request path -> path at the server, as configured.
        prefix: what the server's paths have in front of them outside.
        any_port: whether each port of its host is its own: an engine behind a Service knows its own
            port. Else other servers may be there, and its own ports are that of its base URL and
            the default ones.
    """

    def __init__(
        self,
        bases: Sequence[str],
        paths: Mapping[str, str] | None = None,
        prefix: str = "",
        *,
        any_port: bool = True,
    ) -> None:
        """Take what the class documents."""
        self._urls = bases
        self._paths = paths or {}
        self._prefix = prefix
        self._any_port = any_port

    @cached_property
    def _bases(self) -> list[SplitResult]:
        # Most answers lead nowhere, and need none.
        return [urlsplit(url) for url in self._urls]

    def field(self, name: bytes, value: bytes) -> bytes | None:
        """Give a field of an answer as the client is to see it.

        Args:
            name: in lower case; of one that holds no references the value comes back.
            value: what the server has written.

        Returns:
            The value; None for one that is to be left out.
        """
        if name == b"set-cookie":
            return self._cookie(value)
        form = _FORMS.get(name)
        if form is None:
            return value
        found = [one[2] for one in form.finditer(value)]
        if len(found) > MOST_REFERENCES:
            return None
        moved: dict[bytes, bytes] = {}
        for one in found:
            shown = self._shown(one)
            if shown is None and name != b"link":
                return None
            moved[one] = _NOWHERE if shown is None else shown
        return form.sub(lambda one: one[1] + moved[one[2]], value)

    def outside(self, reference: bytes) -> bytes | None:
        """Give a reference to the server as one to the gateway, without scheme and host.

        Its path is the one that a client would use. One that leads elsewhere, or is relative to the
        request, stays as it is. A path that is not below the base URL's has no place outside: it
        loses its host alone.

        Returns:
            The reference for the client; None for one that nobody can parse.
        """
        try:
            target = urlsplit(reference.decode("latin-1"))
            own = self._own(target)
        except ValueError:
            return None
        if not own:
            return reference
        path = self._outside_path(target.path, own)
        return urlunsplit(("", "", path, target.query, target.fragment)).encode("latin-1")

    def _own(self, target: SplitResult) -> list[SplitResult]:
        """Say whose of the bases a reference is.

        Raises:
            ValueError: its port is none.
        """
        host = target.hostname
        if target.scheme not in _SCHEMES:
            return []
        if host is None:
            return [] if target.scheme or not target.path.startswith("/") else self._bases
        host = host.rstrip(".")
        return [
            base
            for base in self._bases
            if base.hostname == host
            and (self._any_port or target.port in (*_DEFAULT_PORTS, base.port))
        ]

    def _shown(self, reference: bytes) -> bytes | None:
        """Do as `outside`; what nobody can parse stays, unless it may name a host inside."""
        moved = self.outside(reference)
        if moved is not None:
            return moved
        text = reference.decode("latin-1").lower()
        return None if any((base.hostname or "") in text for base in self._bases) else reference

    def _outside_path(self, path: str, own: Sequence[SplitResult]) -> str:
        # A second slash in front (a backslash counts with browsers) would name a host again.
        path = "/" + path.lstrip("/\\")
        longest_first = sorted(map(_path_of, own), key=len, reverse=True)
        base = next((one for one in longest_first if _is_below(path, one)), None)
        if base is not None:
            path = path[len(base) :] or "/"
        # Engines that redirect to the same path with a slash mean the same place.
        bare = path.rstrip("/")
        back = (outside for outside, inside in self._paths.items() if inside.rstrip("/") == bare)
        path = next(back, path)
        prefix = "" if base is None else self._prefix
        return "/" + (prefix + path).lstrip("/\\")

    def _cookie(self, value: bytes) -> bytes:
        """Move a cookie's path, and take a domain out that is the server's own (RFC 6265)."""
        pair, *attributes = value.split(b";")
        kept = [pair]
        for attribute in attributes:
            name, _, word = attribute.partition(b"=")
            key, text = name.strip().lower(), word.strip().decode("latin-1")
            if key == b"domain" and self._is_own_name(text):
                continue
            if key == b"path" and text.startswith("/") and not _is_bound_to_root(pair):
                attribute = name + b"=" + self._cookie_path(text).encode("latin-1")
            kept.append(attribute)
        return b";".join(kept)

    def _is_own_name(self, domain: str) -> bool:
        return domain.strip(".").lower() in [base.hostname for base in self._bases]

    def _cookie_path(self, path: str) -> str:
        bare = path.rstrip("/")
        if self._prefix and any(_is_below(_path_of(base) or "/", bare) for base in self._bases):
            # It is for all of the server's paths, which are those below the prefix outside.
            return self._prefix
        return self._outside_path(path, self._bases)


def _path_of(base: SplitResult) -> str:
    return base.path.rstrip("/")


def _is_below(path: str, base: str) -> bool:
    return not base or path == base or path.startswith(base + "/")


def _is_bound_to_root(pair: bytes) -> bool:
    """Whether browsers take a cookie with the path `/` alone (RFC 6265bis, section 4.1.3.2)."""
    return pair.strip().lower().startswith(b"__host-")
