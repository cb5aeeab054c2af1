"""Content codings of request bodies: gzip and zstd, decoded within a limit.

A body may expand a thousandfold and more. What is decoded is counted block by block: one that
goes over the limit is refused with no more than the limit and a block in memory, one that keeps
within it is held at most twice. zstd adds its window, at most the 8 MiB that RFC 9659 allows.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Protocol

import zstandard  # noqa: TID251 - a pure function of bytes, as zlib is

ACCEPTED = ("gzip", "zstd")
"""What a 415 names in `Accept-Encoding`."""
MOST_CODINGS = 2
"""How many codings one body may bear, one upon the other."""
MOST_MEMBERS = 1024
"""How many gzip members or zstd frames one body may consist of; each costs a decoder."""

_BLOCK_BYTES = 65_536
_ZSTD_WINDOW_BYTES = 8 * 1024 * 1024


class CodingError(ValueError):
    """A coded body cannot be read.

    Attributes:
        detail: a sentence that says what was wrong and what was expected.
    """

    def __init__(self, detail: str) -> None:
        """Take what the class documents."""
        super().__init__(detail)
        self.detail = detail


class CodingUnsupported(CodingError):
    """The coding is none that is decoded here: 415."""


class CodingCorrupt(CodingError):
    """The bytes are not what their coding says: 400."""


class CodingTooLarge(CodingError):
    """The decoded body, or what lies between two codings, is over the limit: 413."""


class _Member(Protocol):
    """A decoder of one gzip member or zstd frame, which reads no further than its end."""

    @property
    def eof(self) -> bool:
        """Whether the end has been read, checksum included."""

    @property
    def unused_data(self) -> bytes:
        """What was given beyond the end."""

    @property
    def unconsumed_tail(self) -> bytes:
        """What was given and could not be read for want of room in the output."""

    def decompress(self, data: memoryview, most: int, /) -> bytes:
        """Read on; at most `most` bytes come out where the decoder can be told so."""


class _Frame:
    """zstandard's decoder of a frame as a `_Member`. It cannot be told how much to give."""

    unconsumed_tail = b""

    def __init__(self) -> None:
        self._inner = _zstd().decompressobj()

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: memoryview, most: int, /) -> bytes:
        return self._inner.decompress(data)


def decode(body: bytes, coding: str, limit: int) -> bytes:
    """Undo the codings that `Content-Encoding` names.

    Args:
        body: the coded bytes.
        coding: the value of the header, codings in the order in which they were applied (RFC 9110
            section 8.4): `gzip`, `x-gzip`, `zstd`, `identity`, in any case.
        limit: the most bytes that may come out.

    Returns:
        The decoded body; `body` itself when there is nothing to undo.

    Raises:
        CodingUnsupported: another coding is named, or more than `MOST_CODINGS`.
        CodingCorrupt: the bytes are damaged or cut short, something else follows them, or they
            have more than `MOST_MEMBERS` members.
        CodingTooLarge: more than `limit` bytes would come out.
    """
    for name in reversed(_names(coding)):
        body = _gunzip(body, limit) if name == "gzip" else _unzstd(body, limit)
    return body


def _names(coding: str) -> list[str]:
    names = []
    for element in coding.split(","):
        name = element.strip(" \t").lower()
        if name in ("", "identity"):
            continue
        if name == "x-gzip":
            name = "gzip"
        if name not in ACCEPTED:
            raise CodingUnsupported(
                f"The body has a Content-Encoding other than {' and '.join(ACCEPTED)}."
            )
        names.append(name)
    if len(names) > MOST_CODINGS:
        raise CodingUnsupported(f"The body has more than {MOST_CODINGS} content codings.")
    return names


def _gunzip(body: bytes, limit: int) -> bytes:
    try:
        return _members(body, limit, lambda: zlib.decompressobj(wbits=16 + zlib.MAX_WBITS))
    except zlib.error:
        raise _corrupt() from None


def _unzstd(body: bytes, limit: int) -> bytes:
    try:
        _measure(body, limit)
        return _members(body, limit, _Frame)
    except zstandard.ZstdError:
        raise _corrupt() from None


def _measure(body: bytes, limit: int) -> None:
    """Check that zstd data stay within the limit, by decoding them into one block again and again.

    The stream reader is bounded but ends in silence where the data do; the frame decoder tells a
    whole frame from one cut short but is not bounded. Each makes up for the other.
    """
    block = bytearray(_BLOCK_BYTES)
    total = 0
    with _zstd().stream_reader(body, read_across_frames=True) as reader:
        while count := reader.readinto(block):
            total += count
            if total > limit:
                raise _too_large(limit)


def _members(body: bytes, limit: int, member_type: Callable[[], _Member]) -> bytes:
    view = memoryview(body)
    pieces: list[bytes] = []
    total = done = members = 0
    while done < len(view):
        members += 1
        if members > MOST_MEMBERS:
            raise CodingCorrupt(f"The body has more than {MOST_MEMBERS} compressed members.")
        member = member_type()
        while not member.eof:
            block = view[done : done + _BLOCK_BYTES]
            piece = member.decompress(block, min(_BLOCK_BYTES, limit + 1 - total))
            if not (block or piece):
                raise _corrupt()
            pieces.append(piece)
            total += len(piece)
            if total > limit:
                raise _too_large(limit)
            done += len(block) - len(member.unused_data) - len(member.unconsumed_tail)
    return b"".join(pieces)


def _zstd() -> zstandard.ZstdDecompressor:
    # Not shared: a decompressor keeps the largest window that it ever had.
    return zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)


def _corrupt() -> CodingCorrupt:
    return CodingCorrupt(
        "The body is not what its Content-Encoding says: it is damaged, cut short, or followed by "
        "something else."
    )


def _too_large(limit: int) -> CodingTooLarge:
    return CodingTooLarge(f"The body is larger than {limit} bytes once decoded.")
