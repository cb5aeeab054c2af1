from __future__ import annotations

from tests.support import TestCase
from twisted_gateway.core.strict_json import loads


class StrictJSONTests(TestCase):
    """`loads`."""

    def test_good(self) -> None:
        """What is JSON is read."""
        self.assertEqual(loads(b'{"a": [1, 1.5e3, null, "NaN"]}'), {"a": [1, 1500.0, None, "NaN"]})
        self.assertEqual(loads('{"a": 1, "a": 2}', pairs_hook=list), [("a", 1), ("a", 2)])

    def test_numbers_that_are_none(self) -> None:
        """What Python alone takes for a number is not."""
        for text in ("NaN", "Infinity", "-Infinity", "1e999", '{"a": [-1e400]}'):
            self.assertRaises(ValueError, loads, text)

    def test_no_json(self) -> None:
        """Nor is anything else that is no JSON."""
        for text in (b"", b"{", b"\xff", b'{"a": 01}', b"[" * 100_000):
            self.assertRaises((ValueError, RecursionError), loads, text)
