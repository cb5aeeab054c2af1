from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from tests.support import TestCase, examples
from twisted_gateway.web.status.drawing import HEIGHT, bars, places, share, spark

POINTS = st.lists(st.none() | st.floats(0, 1e9), min_size=1, max_size=90)


def paths(svg: str) -> list[str]:
    return re.findall(r' d="([^"]*)"', svg)


class DrawingTests(TestCase):
    """The small pictures."""

    def test_a_line(self) -> None:
        """From the lower edge to the upper one, corners only, a step for each point."""
        ground, line, limit = paths(spark("x", ("a", [0, 0, 0, 5, 10, 10]), top=10, limit=5))
        self.assertEqual(line, "M0 31L3 31L4 16L5 1L6 1")
        self.assertEqual(ground, "M0 32L0 31L3 31L4 16L5 1L6 1V32Z")
        self.assertEqual(limit, "M0 16H6")

    def test_a_gap(self) -> None:
        """Where nothing is known the line is broken; a point alone has a width."""
        _, line = paths(spark("x", ("a", [None, 10, None, None, 0, 0]), top=10))
        self.assertEqual(line, "M1 1L2 1M4 31L6 31")

    def test_bars(self) -> None:
        """A bar for each point that is not zero."""
        self.assertEqual(paths(bars("x", [None, 0, 2, 4], top=4)), ["M2 32V16h1V32ZM3 32V1h1V32Z"])

    @given(POINTS, st.floats(0, 1e9))
    @examples(60)
    def test_stays_inside(self, points: list[float | None], top: float) -> None:
        """Whatever the values, nothing is drawn outside."""
        for path in (
            *paths(spark("x", ("a", points), top=top)),
            *paths(bars("x", points, top=top)),
        ):
            for x, y in re.findall(r"[ML](\S+?) ([\d.e+-]+)", path):
                self.assertTrue(0 <= float(x) <= len(points) and 0 <= float(y) <= HEIGHT, path)

    def test_labels_are_text(self) -> None:
        """A label cannot end its attribute."""
        self.assertIn("&quot;&gt;", spark('">', ("a", [1]), top=1))

    def test_share(self) -> None:
        """More than all fills the bar and no more."""
        self.assertIn('width="42%"', share(0.42))
        self.assertEqual(share(3.0).count('width="100%"'), 2)
        self.assertIn('width="0%"', share(-1))

    def test_places(self) -> None:
        """Whose each place is shows in its shape, in this order; what is beyond them is drawn."""
        kinds = re.findall(r"<rect class=(\w+)", places(1, 2, 1, 6))
        self.assertEqual(kinds, ["own", "peer", "peer", "foreign", "free", "free"])
        self.assertEqual(places(1, 2, 1, 6).count("class=hatch"), 2)
        self.assertEqual(places(1, 2, 1, 6).count("class=dot"), 1)
        self.assertEqual(len(re.findall("class=own", places(7, 0, 0, 4))), 7)

    def test_many_places(self) -> None:
        """More than can be told apart are a bar."""
        self.assertEqual(places(64, 0, 0, 256), share(0.25))
        self.assertEqual(places(10_000, 0, 0, 4), share(1.0))
