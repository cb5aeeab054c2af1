from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.support import TestCase, examples
from twisted_gateway.config.expand import escape, expand
from twisted_gateway.config.faults import Wrong

ENVIRONMENT = {"A": "one", "EMPTY": "", "TRICK": "${A} $$"}


class ExpandTests(TestCase):
    """References to the environment."""

    def test_values(self) -> None:
        """References give the variable, the default where it is unset or empty; `$$` a dollar."""
        for text, expected in {
            "${A}": "one",
            "x${A}y${A}z": "xoneyonez",
            "${EMPTY}": "",
            "${EMPTY:-two}": "two",
            "${NONE:-}": "",
            "${NONE:-a:-b}": "a:-b",
            "${A:-two}": "one",
            "$$": "$",
            "$${A}": "${A}",
            "$A $ 5$": "$A $ 5$",
            "${TRICK}": "${A} $$",
        }.items():
            self.assertEqual(expand(text, ENVIRONMENT), expected, text)

    def test_unset(self) -> None:
        """A variable that is unset and has no default is named."""
        fault = self.assertRaises(Wrong, expand, "${NONE}", ENVIRONMENT)
        self.assertIn("expected NONE in the environment", str(fault))

    def test_malformed(self) -> None:
        """A reference that is none is an error, not a text."""
        for text in ("${", "${}", "${1A}", "${A", "${A:-x", "${A-x}", "a ${ A }"):
            fault = self.assertRaises(Wrong, expand, text, ENVIRONMENT)
            self.assertIn("${NAME}", str(fault))

    @examples(50)
    @given(st.text(st.sampled_from("$${}A:-x"), max_size=12))
    def test_escape(self, text: str) -> None:
        """An escaped text expands to itself, whatever it holds."""
        self.assertEqual(expand(escape(text), {}), text)
