from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.support import TestCase, examples
from twisted_gateway.core.charset import decoded, is_told

TEXT = "Schl\xfcssel"


class DecodedTests(TestCase):
    """Texts, by what they are said to be in."""

    def test_declared(self) -> None:
        """A text that is not UTF-8 is in what its field says, or else it itself."""
        for start, content_type, shown in (
            ("", "text/plain; charset=ISO-8859-1", TEXT),
            ("", 'text/plain;format=flowed; Charset="latin1"', TEXT),
            ("", "text/plain; charset=us-ascii", TEXT),
            ("<?xml version='1.0' encoding='iso-8859-1'?>", "", TEXT),
            ('\n<?xml version="1.0"  encoding = "US-ASCII" ?>', "text/xml", TEXT),
            ("<html><meta charset=latin-1>", "", TEXT),
            ('<meta http-equiv=x content="text/html; charset=iso-8859-1">', "", TEXT),
            ("", "", "Schl\ufffdssel"),
            ("", "text/plain; charset=", "Schl\ufffdssel"),
            ("", "text/plain; charset=koi8-r", "Schl\ufffdssel"),
            ("charset=latin-1 ", "", "Schl\ufffdssel"),
            ("<?xml version='1.0' encoding='latin-1'?>", "a/b; charset=utf-8", "Schl\ufffdssel"),
            (" " * 1024 + "<meta charset=latin-1>", "", "Schl\ufffdssel"),
        ):
            body = (start + TEXT).encode("latin-1")
            self.assertEqual(decoded(body, content_type), start + shown, (start, content_type))
            self.assertIs(is_told(body, content_type), shown == TEXT)

    def test_is_utf_8(self) -> None:
        """What is UTF-8 is read as that, and its mark is none of the text."""
        for content_type in ("", "text/plain; charset=iso-8859-1", "text/plain; charset=koi8-r"):
            for encoding in ("utf-8", "utf-8-sig"):
                self.assertEqual(decoded(TEXT.encode(encoding), content_type), TEXT)
                self.assertTrue(is_told(TEXT.encode(encoding), content_type))

    @examples(200)
    @given(
        st.binary(max_size=40),
        st.sampled_from(["<?xml encoding='", "<meta charset=", ""]),
        st.text(max_size=20),
    )
    def test_anything(self, body: bytes, start: str, content_type: str) -> None:
        """Whatever it is, it is a text."""
        self.assertIsInstance(decoded(start.encode() + body, content_type), str)
