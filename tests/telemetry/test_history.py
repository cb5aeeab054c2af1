from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.support import TestCase, examples
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.telemetry.history import (
    SLOT_SECONDS,
    SLOTS,
    WINDOW_SLOTS,
    History,
    NoRecorder,
    Trend,
)

KEY = ("http://10.0.0.1:8000",)


class HistoryTests(TestCase):
    """The last quarter of an hour of one set of engines."""

    def setUp(self) -> None:
        super().setUp()
        self.clock.advance(10_000)
        self.history = History(self.clock.seconds)
        self.history.watch({KEY: ["reasoning", "patient"]})

    def trend(self) -> Trend:
        return self.history.trend(KEY)

    def test_nothing_yet(self) -> None:
        """What was before the start is not known, and is not taken for nothing."""
        trend = self.trend()
        for points in (trend.in_engine, trend.parked, trend.refused, trend.ttft_p50_seconds):
            self.assertEqual(points, (None,) * SLOTS)

    def test_a_quarter_of_an_hour(self) -> None:
        """So much is kept, and no more."""
        self.assertEqual(SLOT_SECONDS * SLOTS, 900)
        for number in range(3 * SLOTS):
            self.history.gauges(KEY, in_engine=1, parked=number)
            self.clock.advance(SLOT_SECONDS)
        parked = self.trend().parked
        self.assertEqual(parked[-1], None)
        self.assertEqual(parked[:-1], tuple(range(2 * SLOTS + 1, 3 * SLOTS)))

    def test_the_most_of_a_slot(self) -> None:
        """A short burst within a slot is not lost, and a slot nobody looked in is a gap."""
        self.history.gauges(KEY, in_engine=2, parked=0)
        self.history.gauges(KEY, in_engine=4, parked=9)
        self.history.gauges(KEY, in_engine=1, parked=3)
        self.clock.advance(2 * SLOT_SECONDS)
        self.history.gauges(KEY, in_engine=0, parked=0)
        self.assertEqual(self.trend().in_engine[-3:], (4, None, 0))
        self.assertEqual(self.trend().parked[-3:], (9, None, 0))

    def test_refusals_and_ends(self) -> None:
        """They are counted by slot and by word, of all models that share the engines."""
        self.history.rejected("reasoning", "queue_full")
        self.clock.advance(SLOT_SECONDS)
        self.history.rejected("patient", "queue_full")
        self.history.rejected("patient", "deadline")
        self.history.ended("patient", Outcome.REJECTED)
        self.history.ended("reasoning", Outcome.OK)
        trend = self.trend()
        self.assertEqual(trend.refused[-3:], (None, 1, 2))
        self.assertEqual(trend.refused_by_reason, {"deadline": 1, "queue_full": 2})
        self.assertEqual(trend.ended, {"ok": 1, "rejected": 1})

    def test_no_refusal_is_zero(self) -> None:
        """A slot in which nothing was refused has 0, once anything is known."""
        self.history.gauges(KEY, in_engine=0, parked=0)
        self.clock.advance(3 * SLOT_SECONDS)
        self.assertEqual(self.trend().refused[-5:], (None, 0, 0, 0, 0))

    def test_old_counts_go(self) -> None:
        """After a quarter of an hour a refusal counts no longer, though nothing else came."""
        self.history.rejected("reasoning", "deadline")
        self.clock.advance(SLOT_SECONDS * SLOTS)
        self.assertEqual(self.trend().refused_by_reason, {})
        self.assertEqual(set(self.trend().refused[:-1]), {0})

    def test_models_that_are_not_watched(self) -> None:
        """What no configuration knows is not remembered, so a client can grow nothing."""
        for number in range(1000):
            self.history.rejected(f"made-up-{number}", "deadline")
            self.history.first_token(f"made-up-{number}", 1.0)
            self.history.ended(f"made-up-{number}", Outcome.OK)
        self.assertEqual(self.trend().refused_by_reason, {})
        self.assertEqual(list(self.history._lines), [KEY])

    def test_a_reload(self) -> None:
        """Engines that stay keep their history; those that go lose it."""
        self.history.rejected("reasoning", "deadline")
        self.history.watch({KEY: ["renamed"]})
        self.history.rejected("renamed", "deadline")
        self.history.rejected("reasoning", "deadline")
        self.assertEqual(self.trend().refused_by_reason, {"deadline": 2})
        self.history.watch({})
        self.history.watch({KEY: ["renamed"]})
        self.assertEqual(self.trend().refused_by_reason, {})

    def test_engines_not_watched_yet(self) -> None:
        """Between a reload and the next look there is nothing to tell of new engines."""
        self.assertEqual(self.history.trend("others").refused_by_reason, {})

    def test_the_clock_goes_back(self) -> None:
        """A wall clock that is set back a little loses nothing and breaks nothing."""
        self.history.rejected("reasoning", "deadline")
        self.clock.rightNow -= 50.0
        self.history.rejected("reasoning", "deadline")
        self.clock.rightNow += 50.0
        self.assertEqual(self.trend().refused_by_reason, {"deadline": 2})

    def test_times_to_first_token(self) -> None:
        """Median and 95th percentile are of the minute that ends with the slot."""
        for seconds in range(1, 101):
            self.history.first_token("reasoning", float(seconds))
        self.clock.advance(SLOT_SECONDS * (WINDOW_SLOTS - 1))
        trend = self.trend()
        self.assertLess(abs((trend.ttft_p50_seconds[-1] or 0) - 50), 2.5)
        self.assertLess(abs((trend.ttft_p95_seconds[-1] or 0) - 95), 4.8)
        self.clock.advance(SLOT_SECONDS)
        trend = self.trend()
        self.assertIsNone(trend.ttft_p50_seconds[-1])
        self.assertIsNotNone(trend.ttft_p50_seconds[-WINDOW_SLOTS - 1])

    def test_a_quantile_stays_as_it_was(self) -> None:
        """What comes later changes no earlier slot."""
        self.history.first_token("reasoning", 1.0)
        before = self.trend().ttft_p50_seconds[-1]
        self.clock.advance(SLOT_SECONDS)
        self.history.first_token("reasoning", 1000.0)
        self.history.first_token("reasoning", 1000.0)
        after = self.trend().ttft_p50_seconds
        self.assertEqual(after[-2], before)
        self.assertLess(abs((after[-1] or 0) - 1000), 50)

    @given(st.lists(st.floats(0.001, 10_000), min_size=1, max_size=200))
    @examples(60)
    def test_quantiles_are_near(self, seconds: list[float]) -> None:
        """They are within six percent of the exact ones, in a bounded number of buckets."""
        history = History(self.clock.seconds)
        history.watch({KEY: ["reasoning"]})
        for one in seconds:
            history.first_token("reasoning", one)
        trend = history.trend(KEY)
        ranked = sorted(seconds)
        for share, found in (
            (0.5, trend.ttft_p50_seconds[-1]),
            (0.95, trend.ttft_p95_seconds[-1]),
        ):
            exact = ranked[max(0, -(-len(ranked) * round(share * 100) // 100) - 1)]
            assert found is not None
            self.assertLess(abs(found - exact), 0.06 * exact)

    @given(st.floats(allow_nan=False))
    @examples(60)
    def test_any_duration(self, seconds: float) -> None:
        """Whatever a clock brings falls into one of some hundred buckets."""
        self.history.first_token("reasoning", seconds)
        buckets = {key for slot in self.history._lines[KEY].slots for key in slot.ttft}
        self.assertLess(max(buckets) - min(buckets), 200)

    def test_a_clock_that_was_set_back_by_much(self) -> None:
        """What comes after that is in its own time; what had been in the future is forgotten."""
        for seconds in (SLOT_SECONDS, 3600, SLOT_SECONDS - 3600, SLOT_SECONDS):
            self.history.rejected("reasoning", "deadline")
            self.clock.rightNow += seconds
        self.history.rejected("reasoning", "queue_full")
        trend = self.trend()
        self.assertEqual(trend.refused[-4:], (1, 1, 1, 1))
        self.assertEqual(trend.refused_by_reason, {"deadline": 3, "queue_full": 1})

    def test_nobody_looks_back(self) -> None:
        """The null recorder takes everything."""
        nobody = NoRecorder()
        nobody.first_token("a", 1.0)
        nobody.rejected("a", "deadline")
        nobody.ended("a", Outcome.OK)
        nobody.answered("a", "2xx")
        self.assertEqual(vars(nobody), {})
