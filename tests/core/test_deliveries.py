from __future__ import annotations

from tests.support import TestCase
from twisted_gateway.core.deliveries import Deliveries

NOTHING: frozenset[str] = frozenset()


class DeliveriesTests(TestCase):
    """Deliveries are acted on once."""

    def setUp(self) -> None:
        super().setUp()
        self.deliveries = Deliveries(3)

    def test_once(self) -> None:
        """A delivery that comes again is not to be acted on, while it is and when it was."""
        self.assertEqual(self.deliveries.begin("a"), NOTHING)
        self.assertIsNone(self.deliveries.begin("a"))
        self.deliveries.end("a", frozenset({"x"}), complete=True)
        self.assertIsNone(self.deliveries.begin("a"))
        self.assertEqual(self.deliveries.begin("b"), NOTHING)

    def test_failed(self) -> None:
        """One that failed in part may come again, for the rest alone."""
        self.deliveries.begin("a")
        self.deliveries.end("a", frozenset({"x"}), complete=False)
        self.assertEqual(self.deliveries.begin("a"), {"x"})
        self.assertIsNone(self.deliveries.begin("a"))
        self.deliveries.end("a", frozenset({"y"}), complete=False)
        self.assertEqual(self.deliveries.begin("a"), {"x", "y"})
        self.deliveries.end("a", NOTHING, complete=True)
        self.assertIsNone(self.deliveries.begin("a"))

    def test_bounded(self) -> None:
        """What came longest ago is forgotten first, and its end is no trouble."""
        for name in ("a", "b", "c"):
            self.deliveries.begin(name)
            self.deliveries.end(name, NOTHING, complete=True)
        self.assertIsNone(self.deliveries.begin("a"))
        self.deliveries.begin("d")
        self.assertEqual(len(self.deliveries), 3)
        self.assertIsNone(self.deliveries.begin("a"))
        self.assertEqual(self.deliveries.begin("b"), NOTHING)
        self.deliveries.end("absent", NOTHING, complete=True)
        self.assertEqual(len(self.deliveries), 3)
