"""Content codings: what comes out is whole and within the limit."""

from __future__ import annotations

import contextlib
import gzip
import random
import struct
import tracemalloc

import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tests.support import TestCase, examples
from twisted_gateway.core.coding import (
    MOST_MEMBERS,
    CodingCorrupt,
    CodingError,
    CodingTooLarge,
    CodingUnsupported,
    decode,
)

MIB = 1024 * 1024


def zstd(data: bytes) -> bytes:
    """One zstd frame."""
    return zstandard.ZstdCompressor().compress(data)


def squeeze(data: bytes, coding: str) -> bytes:
    """Apply one coding."""
    return zstd(data) if coding == "zstd" else gzip.compress(data, mtime=0)


def zstd_run(blocks: int, window: int = 0x58) -> bytes:
    """A frame of 4 bytes for each 128 KiB, whose header tells its window but not its size."""
    frame = b"\x28\xb5\x2f\xfd\x00" + bytes([window])
    for left in reversed(range(blocks)):
        frame += struct.pack("<I", (131_072 << 3) | (1 << 1) | (left == 0))[:3] + b"A"
    return frame


SKIPPED = struct.pack("<II", 0x184D2A50, 3) + b"abc"
LIMIT = 4096


class Decoding(TestCase):
    """Bodies that pass."""

    @examples(60)
    @given(
        st.lists(st.sampled_from(("gzip", "zstd", "identity")), max_size=2),
        st.lists(st.binary(max_size=300), min_size=1, max_size=3),
        st.integers(0, 600),
    )
    def test_any_body(self, codings: list[str], pieces: list[bytes], limit: int) -> None:
        """What was coded comes back, or is refused when it is over the limit."""
        body = data = b"".join(pieces)
        sizes = []
        for coding in codings:
            if coding != "identity":
                sizes.append(len(body))
                body = squeeze(body, coding)
        if max(sizes, default=0) > limit:
            self.assertRaises(CodingTooLarge, decode, body, ", ".join(codings), limit)
        else:
            self.assertEqual(decode(body, ", ".join(codings), limit), data)

    @examples(80)
    @given(
        st.sampled_from(("gzip", "zstd")),
        st.binary(min_size=1, max_size=60),
        st.integers(0),
        st.binary(max_size=3),
        st.integers(0, 3),
    )
    def test_any_damage(
        self, coding: str, data: bytes, place: int, piece: bytes, dropped: int
    ) -> None:
        """Damage is told, or nothing over the limit comes out."""
        body = squeeze(data * 20, coding)
        place %= len(body) + 1
        body = body[:place] + piece + body[place + dropped :]
        with contextlib.suppress(CodingCorrupt, CodingTooLarge):
            self.assertLessEqual(len(decode(body, coding, 600)), 600)

    def test_names(self) -> None:
        """Codings are named in any case, with empty elements; identity changes nothing."""
        body = squeeze(b"data", "gzip")
        for coding in ("gzip", "x-gzip", "GZip", " gzip\t,", "identity, gzip"):
            self.assertEqual(decode(body, coding, LIMIT), b"data")
        for coding in ("", "identity", ",", "Identity , identity"):
            self.assertIs(decode(body, coding, 1), body)

    def test_order(self) -> None:
        """Of two codings the last is undone first."""
        body = squeeze(squeeze(b"data", "gzip"), "zstd")
        self.assertEqual(decode(body, "gzip, zstd", LIMIT), b"data")
        self.assertRaises(CodingCorrupt, decode, body, "zstd, gzip", LIMIT)

    def test_members(self) -> None:
        """Several members or frames are one body; what zstd says to skip is skipped."""
        for coding in ("gzip", "zstd"):
            body = squeeze(b"a", coding) + squeeze(b"", coding) + squeeze(b"b" * 99, coding)
            self.assertEqual(decode(body, coding, LIMIT), b"a" + b"b" * 99)
        body = SKIPPED + zstd(b"a") + SKIPPED + zstd(b"b") + SKIPPED
        self.assertEqual(decode(body, "zstd", LIMIT), b"ab")

    def test_large(self) -> None:
        """Bodies of more than a block, compressible or not, come back whole."""
        noise = random.Random(1).randbytes(MIB)
        for data in (noise, bytes(MIB), noise[:70_000] + bytes(70_000) + noise[:70_000]):
            for coding in ("gzip", "zstd"):
                self.assertEqual(decode(squeeze(data, coding), coding, len(data)), data)


class Refusing(TestCase):
    """Bodies that do not."""

    def test_unsupported(self) -> None:
        """Other codings, and too many of them, are refused without a look at the body."""
        for coding in ("br", "deflate", "gzip, br", "gzip;q=1", "gzip, gzip, gzip", "*"):
            self.assertRaises(CodingUnsupported, decode, b"", coding, LIMIT)

    def test_corrupt(self) -> None:
        """Every cut, every trailing byte and plain text are told as corrupt."""
        for coding in ("gzip", "zstd"):
            body = squeeze(b"data" * 50, coding)
            for end in range(1, len(body)):
                self.assertRaises(CodingCorrupt, decode, body[:end], coding, LIMIT)
            for tail in (b"\0", b"x" * 20, body[:6]):
                self.assertRaises(CodingCorrupt, decode, body + tail, coding, LIMIT)
            self.assertRaises(CodingCorrupt, decode, b'{"model":"m"}', coding, LIMIT)

    def test_checksum(self) -> None:
        """A body whose checksum is wrong is corrupt."""
        body = bytearray(gzip.compress(b"data"))
        body[-8] ^= 1
        self.assertRaises(CodingCorrupt, decode, bytes(body), "gzip", LIMIT)
        frame = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(b"data"))
        frame[-1] ^= 1
        self.assertRaises(CodingCorrupt, decode, bytes(frame), "zstd", LIMIT)

    def test_members(self) -> None:
        """The count of members is bounded, and the bound itself passes."""
        for coding in ("gzip", "zstd"):
            one = squeeze(b"", coding)
            self.assertEqual(decode(one * MOST_MEMBERS, coding, LIMIT), b"")
            fault: CodingError = self.assertRaises(
                CodingCorrupt, decode, one * (MOST_MEMBERS + 1), coding, LIMIT
            )
            self.assertIn("1024", fault.detail)

    def test_limit(self) -> None:
        """The limit itself passes, a byte more does not; it is named."""
        for coding in ("gzip", "zstd"):
            for size in (0, 1, 65_536, 65_537, 131_072):
                body = squeeze(bytes(size), coding)
                self.assertEqual(len(decode(body, coding, size)), size)
                if size:
                    fault: CodingError = self.assertRaises(
                        CodingTooLarge, decode, body, coding, size - 1
                    )
                    self.assertIn(f" {size - 1} bytes", fault.detail)

    def test_bombs(self) -> None:
        """A body that would come out over the limit costs no more than the limit and a block."""
        bombs = (
            (gzip.compress(bytes(10 * MIB)), "gzip"),
            (zstd_run(800), "zstd"),
            (zstd(b"a") + zstd_run(800), "zstd"),
            (zstd(gzip.compress(bytes(10 * MIB))), "gzip, zstd"),
        )
        for body, coding in bombs:
            tracemalloc.start()
            try:
                self.assertRaises(CodingTooLarge, decode, body, coding, MIB)
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            self.assertLess(peak, MIB + 512 * 1024, coding)

    def test_window(self) -> None:
        """A zstd window over 8 MiB, which no sender may ask for in HTTP, is refused."""
        self.assertEqual(decode(zstd_run(1, 0x68), "zstd", MIB), b"A" * 131_072)
        self.assertRaises(CodingCorrupt, decode, zstd_run(1, 0x70), "zstd", MIB)
