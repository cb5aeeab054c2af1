from __future__ import annotations

from tests.services.sessions.apiserver import Reply, Request
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

    def test_repeats(self) -> None:
        """A seed says all of a history, jitter included: what has gone wrong can be seen again."""

        def run(seed: int) -> list[object]:
            history = History(seed, 0.3)
            told: list[object] = []
            handle = history.api.handle

            def note(request: Request) -> Reply:
                told.append((history.clock.seconds(), request.method, request.target))
                return handle(request)

            history.api.handle = note  # type: ignore[method-assign]
            history.run()
            return [history.asked, history.served, told]

        for seed in range(5200, 5204):
            self.assertEqual(run(seed), run(seed), seed)

    def test_calm(self) -> None:
        """Clients, replicas and lost pods."""
        self.explore(5010, 0)

    def test_troubled(self) -> None:
        """So with requests that fail, with and without being carried out."""
        self.explore(5100, 0.12)
