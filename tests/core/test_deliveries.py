from __future__ import annotations

from tests.support import TestCase
from twisted_gateway.core.deliveries import Conflict, Deliveries, Delivery

NOTHING: frozenset[str] = frozenset()


class DeliveriesTests(TestCase):
    """Events are acted on once, however they are delivered."""

    def setUp(self) -> None:
        super().setUp()
        self.deliveries = Deliveries(3)

    def find(self, name: str, body: bytes | None = None, event: str = "push") -> Delivery:
        return self.deliveries.find(name, event, name.encode() if body is None else body)

    def complete(self, name: str) -> Delivery:
        """One that came, and of which all was done."""
        delivery = self.find(name)
        delivery.begin()
        delivery.end(frozenset({"x"}), complete=True)
        return delivery

    def conflicts(self, name: str, body: bytes, event: str = "push") -> None:
        before = len(self.deliveries)
        self.assertRaises(Conflict, self.find, name, body, event)
        self.assertEqual(len(self.deliveries), before)

    def test_new(self) -> None:
        """What nobody knows is new, and nothing has been done for it."""
        one = self.find("a")
        self.assertEqual((one.under_way, one.complete, one.done), (False, False, set()))
        self.assertIsNot(self.find("b"), one)

    def test_same_id(self) -> None:
        """A delivery is known by its id, whatever else it bears once all of it was done."""
        one = self.complete("a")
        for body, event in ((b"a", "push"), (b"another", "push"), (b"a", "issues")):
            self.assertIs(self.find("a", body, event), one)
        self.assertTrue(one.complete)
        self.assertEqual(len(self.deliveries), 1)

    def test_same_body(self) -> None:
        """And by its body, whatever id it comes under."""
        one = self.complete("a")
        self.assertIs(self.find("b", b"a"), one)
        # Whoever sends it so has not used up the id.
        self.assertIsNot(self.find("b", b"b"), one)

    def test_another_event(self) -> None:
        """A body is one of the event that it came as first, and of no other."""
        self.complete("a")
        self.conflicts("b", b"a", "issues")
        self.find("c")
        self.conflicts("c", b"c", "issues")
        self.conflicts("d", b"c", "issues")

    def test_id_with_another_body(self) -> None:
        """While something is left to be done under an id, no other body takes its place."""
        self.find("a")
        self.conflicts("a", b"another")
        self.find("b")
        self.conflicts("a", b"b")

    def test_failed(self) -> None:
        """One that failed in part may come again, for the rest alone."""
        one = self.find("a")
        one.begin()
        self.assertTrue(self.find("a").under_way)
        one.end(frozenset({"x"}), complete=False)
        again = self.find("b", b"a")
        self.assertIs(again, one)
        self.assertEqual((again.under_way, again.complete, again.done), (False, False, {"x"}))
        again.end(frozenset({"y"}), complete=True)
        self.assertEqual(self.find("a").done, {"x", "y"})
        self.assertTrue(self.find("a").complete)

    def test_bounded(self) -> None:
        """What came longest ago is forgotten first, under its id and its body."""
        one, two, _ = (self.complete(name) for name in ("a", "b", "c"))
        self.assertIs(self.find("a"), one)
        self.complete("d")
        self.assertEqual(len(self.deliveries), 3)
        self.assertIs(self.find("a"), one)
        self.assertIsNot(self.find("b"), two)
        self.assertEqual(len(self.deliveries), 3)

    def test_under_way(self) -> None:
        """What is being acted on is not forgotten; there are no more of those than requests."""
        busy = [self.find(name) for name in "abcd"]
        self.assertEqual(len(self.deliveries), 3)
        busy = [self.find(name) for name in "bcd"]
        for one in busy:
            one.begin()
        self.complete("e")
        self.assertEqual([self.find(one.name) for one in busy], busy)
        self.assertEqual(len(self.deliveries), 4)
        for one in busy:
            one.end(NOTHING, complete=True)
        self.complete("f")
        self.assertEqual(len(self.deliveries), 3)
