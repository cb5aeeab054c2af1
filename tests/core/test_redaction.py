from __future__ import annotations

from tests.support import TestCase
from twisted_gateway.core.redaction import redacted


class RedactionTests(TestCase):
    """`redacted`."""

    def test_words(self) -> None:
        """A credential goes wherever it stands by itself, whatever characters it has."""
        for text, secrets, shown in (
            ("bad token t1.", ["t1"], "bad token ***."),
            ("t1t1 t1", ["t1"], "t1t1 ***"),
            ("a s.c+et/= b", ["s.c+et/="], "a *** b"),
            ("sXc+et/=", ["s.c+et/="], "sXc+et/="),
            ("nothing", [""], "nothing"),
            ("Bearer abc, abc", ["Bearer abc", "abc"], "***, ***"),
        ):
            self.assertEqual(redacted(text, secrets), shown)
