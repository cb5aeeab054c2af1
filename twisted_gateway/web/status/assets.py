"""The status page's style, script and icon: files of this package, with what caches need."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

_TYPES = {
    "status.css": b"text/css; charset=utf-8",
    "status.js": b"text/javascript; charset=utf-8",
    "icon.svg": b"image/svg+xml",
}
_TAG_CHARACTERS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """One file.

    Attributes:
        body: its bytes.
        content_type: their media type.
        etag: a strong entity tag (RFC 9110, section 8.8.3), in its quotes.
    """

    body: bytes
    content_type: bytes
    etag: bytes

    def matches(self, if_none_match: str | None) -> bool:
        """Whether a cache that sent this header has the file already."""
        if if_none_match is None:
            return False
        tags = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
        return not tags.isdisjoint({"*", self.etag.decode("ascii")})


class Assets:
    """All of them.

    Attributes:
        by_name: the files.
        build: names the state of all of them together.
    """

    def __init__(self) -> None:
        """Read them.

        Raises:
            OSError: one was not packaged.
        """
        here = files("twisted_gateway.web.status") / "static"
        self.by_name: Mapping[str, Asset] = {
            name: _asset((here / name).read_bytes(), content_type)
            for name, content_type in _TYPES.items()
        }
        self.build = _digest(b"".join(one.body for one in self.by_name.values()))


def _asset(body: bytes, content_type: bytes) -> Asset:
    etag = f'"{_digest(body)}"'.encode("ascii")
    return Asset(body=body, content_type=content_type, etag=etag)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_TAG_CHARACTERS]
