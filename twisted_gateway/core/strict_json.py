"""JSON as RFC 8259 has it: in UTF-8, without NaN and infinities, and of no more values than agreed.

A value costs a hundred bytes and a part of a microsecond however few characters it has: eight
megabytes of `[],` are two seconds. So values are counted before any is made.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

MOST_VALUES = 100_000
"""How many values and names of members a document may have: some 50 ms of a slow core."""

Hook = Callable[[list[tuple[str, Any]]], Any]

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_WHITE_SPACE = b" \t\n\r"
# To read an integer takes the square of its length.
_MOST_DIGITS = 500


class TooManyValues(ValueError):
    """A document has more values than may be read."""


def loads(
    document: bytes, pairs_hook: Hook | None = None, *, most_values: int = MOST_VALUES
) -> Any:
    """Read a document.

    Args:
        document: it, in UTF-8 (RFC 8259, section 8.1); a byte order mark is passed over.
        pairs_hook: makes what stands for an object of its members; raises ValueError. Default: a
            dict, in which of several members of one name the last counts.
        most_values: how many values and names of members it may have, see `count_values`.

    Raises:
        TooManyValues: it has more.
        ValueError, RecursionError: it is none, or has a number that no float is, or one of more
            than 500 digits.
    """
    document = document.removeprefix(_BYTE_ORDER_MARK)
    if _may_have_more(document, most_values) and count_values(document, most_values) > most_values:
        raise TooManyValues(f"it has more than {most_values} values")
    return json.loads(
        document.decode("utf-8"),
        object_pairs_hook=pairs_hook,
        parse_constant=_refuse,
        parse_float=_finite,
        parse_int=_short,
    )


def count_values(document: bytes, most: int) -> int:
    """Count the values in a document, itself included, and the names of members.

    None is made, and each byte is looked at a few times at most, whatever it is.

    Args:
        document: JSON; of what is none at least those are counted that a reader would have made
            before it saw that.
        most: how many are told apart.

    Returns:
        How many; `most + 1` for any more than `most`.
    """
    # An even number of backslashes escapes nothing that follows it.
    bare = document.replace(rb"\\", b"").replace(rb"\"", b"")
    if bare.count(b'"') > 2 * most + 1:
        return most + 1
    # A quotation mark is left of each string.
    outside = b'"'.join(bare.split(b'"')[::2])
    count = 1 + _occurrences(outside, b",:")
    if count > most:
        return most + 1
    # Of what a container has the first stands behind no comma.
    dense = outside.translate(None, _WHITE_SPACE)
    empty = dense.count(b"[]") + dense.count(b"{}")
    return min(count + _occurrences(dense, b"[{") - empty, most + 1)


def _may_have_more(document: bytes, most: int) -> bool:
    """Whether a document can have more values than `most`: a look that is enough for nearly all.

    It takes the punctuation in strings for JSON's.
    """
    return len(document) > most and 1 + _occurrences(document, b"[{,:") > most


def _occurrences(text: bytes, characters: bytes) -> int:
    # Quicker than a count of each, and no slower where there are many.
    return len(text) - len(text.translate(None, characters))


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is out of range")
    return value


def _short(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError("a number is too long")
    return int(text)
