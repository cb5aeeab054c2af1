from __future__ import annotations

from tests.services.sessions.histories import History
from tests.support import TestCase, examples
from twisted_gateway.services.sessions.attempt import Wish


class HistoryTests(TestCase):
    """Many histories of a session, each of its seed: `History(seed, troubled).run()` repeats it."""

    def explore(self, first: int, troubled: float) -> None:
        seen = set()
        for seed in range(first, first + examples(12).max_examples):
            history = History(seed, troubled)
            history.run()
            self.assertEqual(history.wrong, [], f"History({seed}, {troubled})")
            seen |= {(one.wish, one.told) for one in history.asked}
        self.assertLessEqual({(Wish.MAKE, "done"), (Wish.REMOVE, "done")}, seen)

    def test_calm(self) -> None:
        """Clients, replicas and lost pods."""
        self.explore(5010, 0)

    def test_troubled(self) -> None:
        """So with requests that fail, with and without being carried out."""
        self.explore(5100, 0.12)
