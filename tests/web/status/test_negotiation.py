from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.support import TestCase, examples
from twisted_gateway.web.status.negotiation import best

HTML, TEXT, JSON = OFFERS = ("text/html", "text/plain", "application/json")
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"


class BestTests(TestCase):
    """Which form a client wants."""

    def test_choices(self) -> None:
        """The one it weighs highest; of equals the first; what it cannot have is the first."""
        for accept, wanted in (
            (None, HTML),
            ("", HTML),
            ("*/*", HTML),
            (BROWSER, HTML),
            ("text/plain", TEXT),
            ("Text/Plain; charset=utf-8", TEXT),
            ("application/json", JSON),
            ("application/json, text/plain;q=0.5", JSON),
            ("text/plain;q=0.5, application/json;q=0.4", TEXT),
            ("text/*", HTML),
            ("text/*;q=0.3, text/plain;q=0.2, */*;q=0.1", HTML),
            ("text/html;q=0, */*", TEXT),
            ("image/png", HTML),
            ("nonsense", HTML),
            ("text/plain;q=nonsense", TEXT),
        ):
            self.assertEqual(best(accept, OFFERS), wanted, accept)

    @given(st.text(alphabet="textplain/*;q=0.1, \t", max_size=80))
    @examples(100)
    def test_anything(self, accept: str) -> None:
        """Whatever the header, one of the offers is chosen."""
        self.assertIn(best(accept, OFFERS), OFFERS)

    def test_many_ranges(self) -> None:
        """Of a header of thousands of ranges only the first are read."""
        accept = ",".join(["image/png"] * 5000 + ["text/plain"])
        self.assertEqual(best(accept, OFFERS), HTML)
