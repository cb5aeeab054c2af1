from __future__ import annotations

import contextlib
import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from tests.support import TestCase, examples
from twisted_gateway.core.strict_json import MOST_VALUES, TooManyValues, count_values, loads

# Strings that look like what stands around them.
_TEXTS = st.text(st.sampled_from('[]{},:"\\ \n\tué€\U0001f600'), max_size=8)
_TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4),
    max_leaves=20,
)


def counted(tree: Any) -> int:
    """How many values and names there are in a tree, itself included."""
    if isinstance(tree, dict):
        return 1 + sum(1 + counted(one) for one in tree.values())
    return 1 + sum(counted(one) for one in tree) if isinstance(tree, list) else 1


class StrictJSONTests(TestCase):
    """`loads`."""

    def test_good(self) -> None:
        """What is JSON is read."""
        self.assertEqual(loads(b'{"a": [1, 1.5e3, null, "NaN"]}'), {"a": [1, 1500.0, None, "NaN"]})
        self.assertEqual(loads(b'{"a": 1, "a": 2}', pairs_hook=list), [("a", 1), ("a", 2)])
        self.assertEqual(loads(b'\xef\xbb\xbf"\xc3\xa4"'), "ä")

    def test_numbers_that_are_none(self) -> None:
        """What Python alone takes for a number is not."""
        for text in (b"NaN", b"Infinity", b"-Infinity", b"1e999", b'{"a": [-1e400]}'):
            self.assertRaises(ValueError, loads, text)

    def test_long_numbers(self) -> None:
        """Integers are read to any length that means something."""
        self.assertEqual(loads(b"1" * 400), int("1" * 400))
        for text in (b"1" * 501, b"[-" + b"1" * 500 + b"]"):
            self.assertRaises(ValueError, loads, text)

    def test_no_json(self) -> None:
        """Nor is anything else that is no JSON, as what is in another encoding than UTF-8."""
        for text in (
            *(b"", b"{", b"\xff", b'{"a": 01}', b"[" * 100_000),
            *("[1]".encode("utf-16"), "[1]".encode("utf-32-le"), b'"\xed\xa0\x80"', b'"\xe4"'),
        ):
            self.assertRaises((ValueError, RecursionError), loads, text)

    def test_bound(self) -> None:
        """As many values as may be are read, and not one more, names and containers included."""
        for document, count in (
            (b"[" + b"0," * 98 + b"0]", 100),
            (b"[" + b"[ ], " * 98 + b"{}]", 100),
            (b"{" + b",".join(b'"%d":0' % n for n in range(50)) + b"}", 101),
            (b'["' + b"[,:" * 99 + b'"]', 2),
        ):
            tree = json.loads(document)
            self.assertEqual(loads(document, most_values=count), tree)
            self.assertRaises(TooManyValues, loads, document, most_values=count - 1)

    def test_hostile(self) -> None:
        """Millions are refused before any is made, in whatever guise."""
        made = 0

        def hook(pairs: list[tuple[str, Any]]) -> None:
            nonlocal made
            made += 1

        many = MOST_VALUES + 1
        for part in (b"{},", b'{"a":{}},', b'"",', b'"\\"[",{ },'):
            self.assertRaises(TooManyValues, loads, b"[{}," + part * many + b"{}]", hook)
        self.assertEqual(made, 0)

    def test_words(self) -> None:
        """The refusal says what is too much."""
        fault = self.assertRaises(TooManyValues, loads, b"[1]", most_values=1)
        self.assertEqual(str(fault), "it has more than 1 values")


class CountTests(TestCase):
    """`count_values`."""

    @examples(300)
    @given(
        tree=_TREES,
        ascii_only=st.booleans(),
        indent=st.none() | st.integers(0, 2),
        tight=st.booleans(),
    )
    @example(tree=["\\", '\\"', "\\\\", '"[', ""], ascii_only=True, indent=None, tight=True)
    def test_exact(self, tree: Any, ascii_only: bool, indent: int | None, tight: bool) -> None:
        """It is what a walk through the tree counts, however that is written, and bounded."""
        document = json.dumps(
            tree,
            ensure_ascii=ascii_only,
            indent=indent,
            separators=(",", ":") if tight else None,
        ).encode()
        count = counted(tree)
        self.assertEqual(count_values(document, len(document)), count)
        self.assertEqual(count_values(document, count), count)
        self.assertEqual(count_values(document, count - 1), count)
        for most in range(0, count - 1, 3):
            self.assertEqual(count_values(document, most), most + 1)

    @examples(300)
    @given(st.text(st.sampled_from('[]{},:"\\ 0'), max_size=40))
    def test_broken(self, text: str) -> None:
        """Of what is no JSON no more is made than is counted."""
        made = 0

        def hook(pairs: list[tuple[str, Any]]) -> None:
            nonlocal made
            made += 2 * len(pairs)

        document = text.encode()
        with contextlib.suppress(ValueError):
            json.loads(document, object_pairs_hook=hook)
        self.assertLessEqual(made, count_values(document, len(document)))
