from __future__ import annotations

from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from tests.support import TestCase, examples
from twisted_gateway.core.spelling import in_ascii, unescaped


class UnescapedTests(TestCase):
    """`unescaped`."""

    def test_table(self) -> None:
        """What URLs, JSON and HTML escape with is undone once; all else stays."""
        for text, read in (
            ("%2F%2fa%3A80 %C3%A9 %FF 5% %zz", "//a:80 \u00e9 \ufffd 5% %zz"),
            (r"http:\/\/a, \\/ \\\\/b", "http://a, / /b"),
            (r"\u002e\u003A \x2e \\u002e \u12 \ud83d", r".: . . \u12 \ud83d"),
            (r"a\nb\tc\r", "a b c "),
            ("&#46;&#x2E;&#x2e &#46 &amp;#46; &period;&colon;&sol;", "... . &#46; .:/"),
            ("a&b; &nosuch; &#1114112; &#55296; &#x110000;", None),
            ("%00%0a%1b[1m%20x", "   [1m x"),
            ("%252E", "%2E"),
            ("two\nlines, C:\\dir", None),
            ("", None),
        ):
            self.assertEqual(unescaped(text), text if read is None else read)

    def test_very_long_numbers(self) -> None:
        """No number is so long that it cannot be read."""
        text = "&#" + "9" * 10_000 + "; &#x" + "f" * 10_000
        self.assertEqual(unescaped(text)[-9_000:], text[-9_000:])

    @examples(100)
    @given(st.text(st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="\\&%")))
    def test_round(self, text: str) -> None:
        """What was escaped is the same again."""
        self.assertEqual(unescaped(quote(text, safe="")), text)
        self.assertEqual(unescaped("".join(f"&#{ord(one)};" for one in text)), text)
        plane = "".join(one for one in text if ord(one) < 0x10000)
        self.assertEqual(unescaped("".join(f"\\u{ord(one):04x}" for one in plane)), plane)


class InAsciiTests(TestCase):
    """`in_ascii`."""

    def test_table(self) -> None:
        """As browsers take names of hosts; what has no form in ASCII stays."""
        for text, ascii_ in (
            ("\uff11\uff12\uff17\u30020\uff0e0\uff611", "127.0.0.1"),
            ("\uff21\uff42\uff1a\U0001d7d9\u2460\u00b2", "Ab:112"),
            ("10.\u200b0\u00ad.\ufeff0.\ufe0f5", "10.0.0.5"),
            ("caf\u00e9 \u65e5\u672c \ufdfa", "caf\u00e9 \u65e5\u672c \ufdfa"),
            ("plain", "plain"),
        ):
            self.assertEqual(in_ascii(text), ascii_)
