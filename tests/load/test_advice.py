"""Which settings a run argues for."""

from __future__ import annotations

from tests.load.harness import request, result, tried
from tests.support import TestCase
from twisted_gateway.load.advice import advise, peak, sentence
from twisted_gateway.load.results import Ending, Gate, Place, Sample

REFUSED = Ending.REFUSED


class Park(TestCase):
    """maxParkSeconds."""

    def test_longest_wait(self) -> None:
        """It is the longest wait of those that were served, rounded up."""
        run = result(request(0, tried(kept=203.0)), request(1, tried(kept=12.0)))
        self.assertEqual(advise(run).max_park_seconds.value, 210)

    def test_who_was_not_served(self) -> None:
        """Whoever left in the end does not count."""
        left = request(0, tried(kept=500.0), ending=Ending.GAVE_UP)
        self.assertEqual(
            advise(result(left, request(1, tried(kept=12.0)))).max_park_seconds.value, 15
        )

    def test_all_tries_together(self) -> None:
        """Who was refused and served later would have had to wait from its first asking."""
        no = tried(end=30.0, ending=REFUSED, reason="queue_full", kept=30.0)
        run = result(request(0, no, tried(at=40.0, kept=25.0)))
        self.assertEqual(advise(run).max_park_seconds.value, 70)

    def test_patience(self) -> None:
        """It is never over nine tenths of the patience of whom it is for."""
        run = result(request(0, tried(kept=99.0), patience=100.0))
        self.assertEqual(advise(run).max_park_seconds.value, 90)

    def test_budget_ran_out(self) -> None:
        """Refusals for a budget that was shorter than patience argue for all that that allows."""
        no = tried(end=120.0, ending=REFUSED, reason="park_timeout", kept=120.0)
        said = advise(result(request(0, no, ending=REFUSED), request(1, tried(kept=5.0))))
        self.assertEqual(said.max_park_seconds.value, 540)
        self.assertIn("1 whose budget ran out, after 120 s", said.max_park_seconds.why)

    def test_budget_as_long_as_patience(self) -> None:
        """Refusals for a budget that patience would not have outlasted argue for nothing."""
        no = tried(end=540.0, ending=REFUSED, reason="park_timeout", kept=540.0)
        said = advise(result(request(0, no, ending=REFUSED), request(1, tried(kept=5.0))))
        self.assertEqual(said.max_park_seconds.value, 5)

    def test_status_alone(self) -> None:
        """Where no client was told anything, the status page's longest wait speaks."""
        run = result(request(0), samples=[Sample(at=1.0, parked=1, longest_wait=47.0)])
        said = advise(run).max_park_seconds
        self.assertEqual(said.value, 50)
        self.assertIn("status page", said.why)

    def test_nothing_parked(self) -> None:
        """Where nobody parked, the run does not say."""
        run = result(request(0, tried(kept=0.2)), samples=[Sample(at=1.0, parked=0)])
        said = advise(run)
        self.assertIsNone(said.max_park_seconds.value)
        self.assertIsNone(said.max_queue_depth.value)
        self.assertIn("this run does not say", sentence("maxQueueDepth", said.max_queue_depth))

    def test_slow_heads_of_an_engine(self) -> None:
        """Where nothing shows a gate, a late head is the engine's own affair."""
        run = result(request(0, tried(kept=40.0)), samples=[])
        self.assertIsNone(advise(run).max_park_seconds.value)

    def test_places_show_a_gate(self) -> None:
        """Places that were told show one, without any status page."""
        run = result(request(0, tried(kept=40.0)), samples=[], places=[Place(1.0, 0, 1)])
        self.assertEqual(advise(run).max_park_seconds.value, 40)

    def test_in_force(self) -> None:
        """The gateway's own value is said in model seconds."""
        run = result(request(0, tried(kept=40.0)), speed=20.0, gate=Gate(max_park_seconds=27.0))
        self.assertEqual(advise(run).max_park_seconds.in_force, 540.0)


class Depth(TestCase):
    """maxQueueDepth."""

    def test_sampled(self) -> None:
        """It is the most that were parked at once, rounded up to eights."""
        run = result(request(0), samples=[Sample(at=1.0, parked=13), Sample(at=2.0, parked=4)])
        said = advise(run).max_queue_depth
        self.assertEqual(said.value, 16)
        self.assertIn("at most 13 wanted to park at once", said.why)

    def test_as_clients_saw_it(self) -> None:
        """What clients saw counts where it is more than was sampled."""
        run = result(*(request(n, tried(at=float(n), kept=20.0)) for n in range(9)))
        self.assertEqual(advise(run).max_queue_depth.value, 16)

    def test_turned_away(self) -> None:
        """Those that were turned away just then would have parked too."""
        no = tried(at=1.0, end=1.0, ending=REFUSED, reason="queue_full", retry_after=5.0, kept=0.0)
        run = result(
            *(request(n, no, ending=REFUSED) for n in range(4)),
            samples=[Sample(at=2.0, parked=8), Sample(at=50.0, parked=8)],
        )
        said = advise(run).max_queue_depth
        self.assertEqual(said.value, 16)
        self.assertIn("at most 12 wanted to park at once, 4 of whom", said.why)

    def test_gateways_share(self) -> None:
        """Several gateways share it, and the fullest one counts."""
        for deepest, value in ((10, 16), (30, 32)):
            run = result(
                request(0),
                to=["http://one:80", "http://two:80"],
                samples=[Sample(at=1.0, parked=32, deepest=deepest)],
            )
            self.assertEqual(advise(run).max_queue_depth.value, value)

    def test_peak(self) -> None:
        """Spans that only touch do not overlap; empty ones are none."""
        self.assertEqual(peak([(0, 2), (2, 4), (1, 3), (1, 1)]), 2)
        self.assertEqual(peak(iter([(0, 1), (1, 2)])), 1)
        self.assertEqual(peak([]), 0)
