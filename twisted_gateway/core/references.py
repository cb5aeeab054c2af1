"""References in an answer to the server that gave it, as the client is to see them. Pure.

Whoever is asked through the gateway knows itself by another address, and maybe by other paths. What
of its answer leads to itself (Location, Link, Refresh, SourceMap, where reports go, the URL in a
challenge, the path of a cookie) is to lead back to the gateway, and to name no host inside; what
leads elsewhere stays as it is. Where a policy allows what is its own it allows what is the
gateway's.

A reference is read as browsers read it (https://url.spec.whatwg.org/#url-parsing), which take much
for a host that is none by RFC 3986: `http:///host/`, backslashes, `//h%6Fst`, `http://0x7f.1/`. One
that names the server and leads to no gateway (`ftp://host/`) is left out. What stands in a query is
the server's own, and stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from urllib.parse import SplitResult, urlsplit, urlunsplit

from twisted_gateway.core.hosts import canonical_host, plain
from twisted_gateway.core.spelling import in_ascii, unescaped

MOST_REFERENCES = 256
"""How many references one field may hold: one with more is left out."""

_FORMS: Mapping[bytes, re.Pattern[bytes]] = {
    # Each reference is the group after what stands in front of it.
    b"location": re.compile(rb"\A()(.*)\Z"),
    b"content-location": re.compile(rb"\A()(.*)\Z"),
    b"link": re.compile(rb"(?i)(<|\banchor\s*=\s*\")([^<>\"]*)"),
    b"refresh": re.compile(rb"(?i)\A(\s*[0-9.]+(?:\s*[;,]\s*|\s+)(?:url\s*=\s*)?['\"]?)([^'\"]*)"),
    b"reporting-endpoints": re.compile(rb"(=\s*\")([^\"]*)"),
    b"sourcemap": re.compile(rb"\A()(.*)\Z"),
    b"www-authenticate": re.compile(rb"(?i)()((?:[a-z][a-z0-9+.-]{0,15}:)?//[^\s\"',<>]+)"),
    b"x-sourcemap": re.compile(rb"\A()(.*)\Z"),
}
# A part of these that cannot be moved spoils no other.
_SEVERAL = (b"link", b"www-authenticate")
# Of Digest's challenge each word goes into what the client computes (RFC 7616, section 3.4.2).
_DIGEST = re.compile(rb"(?i)(?:\A|,)\s*digest\s")
# One of the directives of a policy, or of several (CSP 3, section 2.2).
_DIRECTIVE = re.compile(r"[^;,]+")
_OF_SOURCES = re.compile(r"(?i)[a-z-]+-src(?:-elem|-attr)?|base-uri|form-action|frame-ancestors")
_ANY_PORT = re.compile(r":\*(?=/|\Z)")
_SCHEME = re.compile(r"(?i)([a-z][a-z0-9+.-]*):")
_SCHEMES = ("", "http", "https")
# What browsers take off the ends of a reference, and out of it.
_ENDS = "".join(map(chr, range(0x21)))
_BREAKS = re.compile(r"[\t\r\n]")
_TAIL = re.compile(r"[?#]")
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

    @cached_property
    def _hosts(self) -> list[str]:
        return [canonical_host(base.hostname or "") for base in self._bases]

    @cached_property
    def _named(self) -> re.Pattern[str]:
        """One of the hosts, as a word of its own."""
        names = _any_of(self._hosts)
        return re.compile(rf"(?<![\w.-])(?:{names})(?!\.?[\w-])", re.IGNORECASE)

    @cached_property
    def _written(self) -> re.Pattern[str]:
        """A URL with one of the hosts in it."""
        return re.compile(rf"//[^\s/<>\"']{{0,256}}?{self._named.pattern}", re.IGNORECASE)

    @cached_property
    def _begun(self) -> re.Pattern[str]:
        """One of the hosts where a scheme has been forgotten, for it is plainly no path."""
        dotted = [host for host in self._hosts if "." in host]
        return re.compile(
            rf"(?i)(?:(?:{_any_of(self._hosts)}):[0-9]{{1,5}}|(?:{_any_of(dotted)}))(?=[/\\?#]|\Z)"
        )

    def field(self, name: bytes, value: bytes) -> bytes | None:
        """Give a field of an answer as the client is to see it.

        Args:
            name: in lower case; of one that holds no references the value comes back.
            value: what the server has written.

        Returns:
            The value; None for one that is to be left out.
        """
        kind = _KINDS.get(name)
        if kind is not None:
            return kind(self, value)
        form = _FORMS.get(name)
        if form is None or (name == b"www-authenticate" and _DIGEST.search(value)):
            return value
        found = [one[2] for one in form.finditer(value)]
        if len(found) > MOST_REFERENCES:
            return None
        if self._written.search(_read(form.sub(b"", value))):
            # Nobody follows it there, and it cannot be moved: a relation's name, or no reference.
            return None
        moved: dict[bytes, bytes] = {}
        for one in found:
            shown = self._shown(one)
            if shown is None and name not in _SEVERAL:
                return None
            moved[one] = _NOWHERE if shown is None else shown
        return form.sub(lambda one: one[1] + moved[one[2]], value)

    def outside(self, reference: bytes) -> bytes | None:
        """Give a reference to the server as one to the gateway, without scheme and host.

        Its path is the one that a client would use. One that leads elsewhere, or is relative to the
        request, stays as it is. A path that is not below the base URL's has no place outside: it
        loses its host alone.

        Returns:
            The reference for the client; None for one that nobody can parse, or that names the
            server and leads to no gateway.
        """
        try:
            return self._moved(reference)
        except ValueError:
            return None

    def _moved(self, reference: bytes) -> bytes | None:
        """Do as `outside`.

        Raises:
            ValueError: nobody can parse it.
        """
        text, encoding = _decoded(reference)
        text = _BREAKS.sub("", text.strip(_ENDS))
        if self._begun.match(in_ascii(text)):
            text = "//" + text
        named = _SCHEME.match(text)
        scheme = "" if named is None else named[1].lower()
        if scheme not in _SCHEMES:
            ours = self._is_host(urlsplit(text)) or self._named.search(plain(text))
            return None if ours else reference
        target, own = self._parted(scheme, text if named is None else text[named.end() :])
        if own:
            path = self._outside_path(target.path, own)
            return urlunsplit(("", "", path, target.query, target.fragment)).encode(encoding)
        # Who goes elsewhere takes no name along that only looks like the place that he goes to; and
        # another server on the same host is elsewhere.
        hidden = self._named.search(plain(target.netloc)) and not self._is_host(target)
        return None if hidden else reference

    def _is_host(self, target: SplitResult) -> bool:
        return bool(target.hostname) and canonical_host(target.hostname or "") in self._hosts

    def _parted(self, scheme: str, rest: str) -> tuple[SplitResult, Sequence[SplitResult]]:
        """Take a reference apart; say whose of the bases it is.

        Args:
            scheme: http, https or "".
            rest: what follows on it.

        Raises:
            ValueError: its host or its port is none.
        """
        head = _TAIL.split(rest, maxsplit=1)[0]
        tail = rest[len(head) :]
        head = head.replace("\\", "/")
        bare = head.lstrip("/")
        if scheme or head.startswith("//"):
            # However many slashes there are, a host comes behind them.
            target = urlsplit(f"{scheme or 'http'}://{bare}{tail}")
            own = self._own(target)
            if own or scheme or (rest.startswith("//") and not head.startswith("///")):
                return target, own
            # Nobody writes another's host so: a path was meant.
            head = f"/{bare}"
        return urlsplit(head + tail), self._bases if head.startswith("/") else ()

    def _own(self, target: SplitResult) -> list[SplitResult]:
        """Say whose of the bases a reference with a host is.

        Raises:
            ValueError: its port is none.
        """
        host = canonical_host(target.hostname or "")
        return [
            base
            for base, name in zip(self._bases, self._hosts, strict=True)
            if host == name and (self._any_port or target.port in (*_DEFAULT_PORTS, base.port))
        ]

    def _shown(self, reference: bytes) -> bytes | None:
        """Do as `outside`; what nobody can parse stays, unless it may name a host inside."""
        try:
            return self._moved(reference)
        except ValueError:
            return None if self._may_name(reference) else reference

    def _may_name(self, value: bytes) -> bool:
        text = _BREAKS.sub("", _read(value)).lower()
        return any(host in text for host in self._hosts if host)

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

    def _origins(self, value: bytes) -> bytes | None:
        """Leave out what is no origin to whoever comes by the gateway (Fetch, CORS protocol)."""
        origins = value.split(b",", MOST_REFERENCES)
        if len(origins) > MOST_REFERENCES:
            return None
        kept = [one for one in origins if not self._is_own(_decoded(one)[0].strip())]
        return value if len(kept) == len(origins) else b",".join(kept).strip() or None

    def _reports(self, value: bytes) -> bytes | None:
        """Leave out where reports go if that is the server, which nobody outside reaches."""
        return None if self._written.search(in_ascii(unescaped(_decoded(value)[0]))) else value

    def _policy(self, value: bytes) -> bytes:
        """Have a policy allow the gateway what it allows the server (CSP 3, section 2.3)."""
        if not self._may_name(value):
            return value
        text, encoding = _decoded(value)
        return _DIRECTIVE.sub(self._directive, text).encode(encoding)

    def _directive(self, found: re.Match[str]) -> str:
        name, *words = found[0].split() or [""]
        if name.lower() == "report-uri":
            shown = [self._shown(word.encode()) for word in words[:MOST_REFERENCES]]
            kept = [word.decode() for word in shown if word is not None]
        elif _OF_SOURCES.fullmatch(name):
            # Browsers compare these as they are written, so that no other spelling is one.
            ours = {word for word in set(words) if self._may_name(word.encode())}
            kept = ["'self'" if word in ours and self._is_own(word) else word for word in words]
        else:
            return found[0]
        blank = " " if found[0].startswith(" ") else ""
        return found[0] if kept == words else blank + " ".join([name, *kept])

    def _is_own(self, source: str) -> bool:
        """Whether an origin, or a source as policies name them, is the server."""
        text = _ANY_PORT.sub("", source)
        scheme = _SCHEME.match(text) if "://" in text else None
        rest = text if scheme is None else text[scheme.end() :]
        try:
            return bool(self._own(urlsplit("http://" + rest.lstrip("/"))))
        except ValueError:
            return self._may_name(source.encode())

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
        return canonical_host(domain.lstrip(".")) in self._hosts

    def _cookie_path(self, path: str) -> str:
        bare = path.rstrip("/")
        if self._prefix and any(_is_below(_path_of(base) or "/", bare) for base in self._bases):
            # It is for all of the server's paths, which are those below the prefix outside.
            return self._prefix
        return self._outside_path(path, self._bases)


_KINDS: Mapping[bytes, Callable[[Places, bytes], bytes | None]] = {
    # How fields are shown that are no references with words between them.
    b"access-control-allow-origin": Places._origins,
    b"content-security-policy": Places._policy,
    b"content-security-policy-report-only": Places._policy,
    b"report-to": Places._reports,
    b"set-cookie": Places._cookie,
    b"timing-allow-origin": Places._origins,
}


def _any_of(names: Sequence[str]) -> str:
    return "|".join(re.escape(name) for name in names if name) or "(?!)"


def _decoded(value: bytes) -> tuple[str, str]:
    """Read a field as browsers do; say in which encoding it is the same bytes again."""
    try:
        return value.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        return value.decode("latin-1"), "latin-1"


def _read(value: bytes) -> str:
    return plain(_decoded(value)[0])


def _path_of(base: SplitResult) -> str:
    return base.path.rstrip("/")


def _is_below(path: str, base: str) -> bool:
    return not base or path == base or path.startswith(base + "/")


def _is_bound_to_root(pair: bytes) -> bool:
    """Whether browsers take a cookie with the path `/` alone (RFC 6265bis, section 4.1.3.2)."""
    return pair.strip().lower().startswith(b"__host-")
