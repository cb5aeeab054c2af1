"""What a simulated pooling model makes of text: vectors that are alike where words are."""

from __future__ import annotations

import base64
import math
import re
import struct
from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b

DIMENSIONS = 384
"""The length of a vector."""

_WORD = re.compile(rb"[^\W_]+")


def embed(text: bytes) -> list[float]:
    """A unit vector that depends on the words of `text` and not on their order.

    Each word adds to eight places, by its hash; each three letters of it add a little, so that
    `cat` and `cats` are near each other. Every value is one that 32 bits hold.
    """
    words = Counter(_WORD.findall(text.lower()) or [text])
    parts: Counter[bytes] = Counter()
    for word, count in words.items():
        for start in range(len(word) - 2):
            parts[word[start : start + 3]] += count
    vector = [0.0] * DIMENSIONS
    _add(vector, words, 1.0)
    _add(vector, parts, 0.3)
    length = math.sqrt(sum(value * value for value in vector)) or 1.0
    return list(struct.unpack(_FLOATS, struct.pack(_FLOATS, *(v / length for v in vector))))


def encode(vector: Sequence[float]) -> str:
    """A vector as OpenAI's clients ask for it: base64 of little-endian 32-bit floats."""
    return base64.b64encode(struct.pack(_FLOATS, *vector)).decode("ascii")


def similarity(one: Sequence[float], other: Sequence[float]) -> float:
    """The cosine of two unit vectors."""
    return sum(a * b for a, b in zip(one, other, strict=True))


_FLOATS = f"<{DIMENSIONS}f"


def _add(vector: list[float], pieces: Counter[bytes], weight: float) -> None:
    for piece, count in pieces.items():
        for place in struct.unpack("<8H", blake2b(piece, digest_size=16).digest()):
            vector[place % DIMENSIONS] += weight * count * (1 if place & 0x8000 else -1)
