from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.support import TestCase, examples
from twisted_gateway.web.status import words


class WordsTests(TestCase):
    """Figures as people read them."""

    def test_durations(self) -> None:
        """Each in the unit that a person would use."""
        for seconds, said in (
            (-1.0, "0 ms"),
            (0.0, "0 ms"),
            (0.0404, "40 ms"),
            (0.2, "0.2 s"),
            (9.94, "9.9 s"),
            (9.96, "10 s"),
            (89.4, "89 s"),
            (89.6, "1 min 30 s"),
            (150.0, "2 min 30 s"),
            (5399.0, "89 min 59 s"),
            (5400.0, "1 h 30 min"),
            (90_061.0, "25 h 01 min"),
        ):
            self.assertEqual(words.duration(seconds), said)

    def test_estimates(self) -> None:
        """No more exact than they are, and never nothing."""
        for seconds, said in (
            (0.0, "1 s"),
            (9.4, "9 s"),
            (41.2, "40 s"),
            (87.4, "85 s"),
            (88.0, "2 min"),
            (100.0, "2 min"),
            (400.0, "7 min"),
            (7000.0, "2 h"),
        ):
            self.assertEqual(words.about(seconds), said)

    def test_shares(self) -> None:
        """Little is not nothing."""
        found = [words.percent(share) for share in (None, 0.0, 0.004, 0.424, 1.0)]
        self.assertEqual(found, ["unknown", "0 %", "0.4 %", "42 %", "100 %"])

    def test_numbers(self) -> None:
        """With their thousands apart; what is not known is not 0."""
        self.assertEqual(
            [words.number(one) for one in (None, 0, 12_345)], ["unknown", "0", "12,345"]
        )
        self.assertEqual(words.count(1, "request", "requests"), "1 request")
        self.assertEqual(words.count(0, "request", "requests"), "0 requests")
        self.assertEqual(words.ago(None), "not yet")

    @given(st.text(max_size=300))
    @examples(60)
    def test_names(self, text: str) -> None:
        """One printable line of bounded length."""
        said = words.name(text)
        self.assertTrue(said.isprintable())
        self.assertLessEqual(len(said), words.MOST_NAME_CHARACTERS + 1)
        if text.isprintable() and len(text) <= words.MOST_NAME_CHARACTERS:
            self.assertEqual(said, text)

    def test_many_names(self) -> None:
        """The first of them, and how many more."""
        self.assertEqual(words.names(["a", "b", "c"], 2), "a, b and 1 more")
        self.assertEqual(words.names(["a"]), "a")
