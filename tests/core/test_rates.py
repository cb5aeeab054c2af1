"""How fast an engine is: learned from what it has served."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.support import TestCase, examples
from twisted_gateway.core.policy import Policy
from twisted_gateway.core.rates import (
    DECODE_TOKENS_PER_SECOND,
    LEAST_ANSWER_TOKENS,
    LEAST_PROMPT_TOKENS,
    LEAST_RATE,
    MOST_ESTIMATE_RATIO,
    MOST_SAMPLES,
    PREFILL_TOKENS_PER_SECOND,
    Rates,
)

DEFAULTS = (PREFILL_TOKENS_PER_SECOND, DECODE_TOKENS_PER_SECOND)
SECONDS = st.lists(st.floats(0.5, 100), max_size=40)


def both(rates: Rates) -> tuple[float, float]:
    return (rates.prefill, rates.decode)


def upper_tercile(samples: list[float]) -> float:
    """The least of the best third, counted up, of the last 15."""
    last = sorted(samples[-MOST_SAMPLES:], reverse=True)
    return last[: -(-len(last) // 3)][-1]


class StartValues(TestCase):
    """What serves until something is learned."""

    def test_defaults(self) -> None:
        """525 and 25 tokens a second serve, and do not count as learned."""
        rates = Rates(Policy())
        self.assertEqual((*both(rates), rates.learned), (525, 25, False))

    def test_named(self) -> None:
        """Naming either in the configuration makes both count as learned."""
        prefill = Rates(Policy(prefill_tokens_per_second=100))
        decode = Rates(Policy(decode_tokens_per_second=10))
        self.assertEqual((*both(prefill), prefill.learned), (100, 25, True))
        self.assertEqual((*both(decode), decode.learned), (525, 10, True))

    def test_adopted(self) -> None:
        """Another policy replaces the start values, not what was learned."""
        rates = Rates(Policy(prefill_tokens_per_second=100))
        for _ in range(5):
            rates.prefill_took(2000, 10, confirmed=True)
        rates.adopt(Policy(prefill_tokens_per_second=300, decode_tokens_per_second=30))
        self.assertEqual((*both(rates), rates.learned), (200, 30, True))
        rates.adopt(Policy())
        self.assertEqual((*both(rates), rates.learned), (200, 25, False))


class Learning(TestCase):
    """What is learned from."""

    def test_five_samples(self) -> None:
        """Four samples change nothing; with the fifth the second best of them serves."""
        rates = Rates(Policy())
        for seconds in (1, 2, 4, 8):
            self.assertFalse(rates.prefill_took(4000, seconds, confirmed=True))
            self.assertFalse(rates.decode_took(400, seconds))
        self.assertEqual(both(rates), DEFAULTS)
        self.assertTrue(rates.prefill_took(4000, 16, confirmed=True))
        self.assertTrue(rates.decode_took(400, 16))
        self.assertEqual(both(rates), (2000, 200))

    def test_both_must_be_learned(self) -> None:
        """One that is learned serves the order; both count as learned when both are."""
        rates = Rates(Policy())
        for _ in range(5):
            rates.prefill_took(2000, 10, confirmed=True)
        self.assertEqual((*both(rates), rates.learned), (200, 25, False))
        for _ in range(5):
            rates.decode_took(100, 10)
        self.assertEqual((*both(rates), rates.learned), (200, 10, True))

    def test_learned_replaces_named(self) -> None:
        """What five samples say goes before what the configuration names."""
        rates = Rates(Policy(prefill_tokens_per_second=100, decode_tokens_per_second=10))
        for _ in range(5):
            rates.prefill_took(2000, 10, confirmed=True)
        self.assertEqual(both(rates), (200, 10))

    def test_little_teaches_nothing(self) -> None:
        """Short prompts and short answers are no samples."""
        rates = Rates(Policy())
        for _ in range(9):
            self.assertFalse(rates.prefill_took(LEAST_PROMPT_TOKENS - 1, 1, confirmed=True))
            self.assertFalse(rates.decode_took(LEAST_ANSWER_TOKENS - 1, 1))
        self.assertEqual((*both(rates), rates.learned), (*DEFAULTS, False))

    def test_an_estimate_that_is_put_right(self) -> None:
        """It counts at once; what the engine says in the end stands in its place."""
        rates = Rates(Policy())
        requests = [object() for _ in range(5)]
        for one in requests:
            rates.prefill_took(8000, 10, confirmed=False, of=one)
        self.assertEqual(rates.prefill, 800)
        for one in requests:
            rates.prefill_took(2000, 10, confirmed=True, of=one)
        self.assertEqual(rates.prefill, 200)
        # Five samples and not ten: one more has no majority to stand against.
        self.assertTrue(rates.prefill_took(999, 1, confirmed=True, of=requests[0]))
        self.assertEqual(rates.prefill, 525)
        self.assertFalse(rates.prefill_took(999, 1, confirmed=True, of=requests[0]))

    def test_no_time_at_all(self) -> None:
        """What took no time by the clock took a millisecond; no rate is 0."""
        rates = Rates(Policy())
        for _ in range(5):
            rates.prefill_took(1000, 0, confirmed=True)
            rates.decode_took(32, 1e9)
        self.assertEqual(both(rates), (1_000_000, LEAST_RATE))

    def test_change_is_told_of_once(self) -> None:
        """A sample that leaves both rates as they are is no change."""
        rates = Rates(Policy())
        told = [rates.prefill_took(2000, 10, confirmed=True) for _ in range(8)]
        self.assertEqual(told, [False] * 4 + [True] + [False] * 3)

    @examples(100)
    @given(SECONDS, SECONDS)
    def test_upper_tercile_of_the_last(self, reads: list[float], writes: list[float]) -> None:
        """Of its last 15 samples a third are at a rate or above, whatever came before these."""
        rates = Rates(Policy())
        for seconds in reads:
            rates.prefill_took(2000, seconds, confirmed=True)
        for seconds in writes:
            rates.decode_took(64, seconds)
        expected = [
            upper_tercile([tokens / took for took in seen]) if len(seen) >= 5 else start
            for tokens, seen, start in (
                (2000, reads, PREFILL_TOKENS_PER_SECOND),
                (64, writes, DECODE_TOKENS_PER_SECOND),
            )
        ]
        self.assertEqual(list(both(rates)), expected)
        self.assertEqual(rates.learned, len(reads) >= 5 and len(writes) >= 5)


class Estimates(TestCase):
    """What samples may teach that nobody but a client vouches for."""

    def taught(self, rates: Rates, rate: float, count: int, *, confirmed: bool) -> None:
        for _ in range(count):
            rates.prefill_took(int(1000 * rate), 1000.0, confirmed=confirmed)

    def test_nothing_is_known_better(self) -> None:
        """An engine whose answers say nothing is known by estimates, however fast it is."""
        for rate in (20.0, 50_000.0):
            rates = Rates(Policy())
            self.taught(rates, rate, 4, confirmed=True)
            self.taught(rates, rate, 5, confirmed=False)
            self.assertEqual(rates.prefill, rate)

    def test_beside_confirmed(self) -> None:
        """Estimates count as at most four times what confirmed samples show, and a quarter."""
        for told, taken in ((1e6, 2000.0), (1.0, 125.0), (900.0, 900.0), (200.0, 200.0)):
            rates = Rates(Policy())
            self.taught(rates, 500.0, 5, confirmed=True)
            self.taught(rates, told, 60, confirmed=False)
            self.assertEqual(rates.prefill, taken, f"{told} told")

    def test_beside_the_configured_rate(self) -> None:
        """Until five are confirmed, what the configuration names bounds estimates."""
        rates = Rates(Policy(prefill_tokens_per_second=500.0))
        self.taught(rates, 5000.0, 4, confirmed=True)
        self.taught(rates, 1e6, 20, confirmed=False)
        self.assertEqual(rates.prefill, 2000.0)
        rates.adopt(Policy(prefill_tokens_per_second=1000.0))
        self.assertEqual(rates.prefill, 4000.0)
        self.taught(rates, 5000.0, 1, confirmed=True)
        self.assertEqual(rates.prefill, 20_000.0)

    def test_confirmed_ones_are_not_bounded(self) -> None:
        """What the engine has told counts as it is, also before there are five."""
        rates = Rates(Policy(prefill_tokens_per_second=500.0))
        self.taught(rates, 500.0, 1, confirmed=False)
        self.taught(rates, 5000.0, 4, confirmed=True)
        self.assertEqual(rates.prefill, 5000.0)

    def test_an_engine_that_has_changed(self) -> None:
        """Confirmed samples are bounded by nothing, and take the bounds with them."""
        rates = Rates(Policy(prefill_tokens_per_second=500.0))
        self.taught(rates, 500.0, 15, confirmed=True)
        self.taught(rates, 50_000.0, 15, confirmed=True)
        self.assertEqual(rates.prefill, 50_000.0)
        self.taught(rates, 40_000.0, 15, confirmed=False)
        self.assertEqual(rates.prefill, 40_000.0)

    @examples(100)
    @given(
        true=st.floats(20.0, 50_000.0),
        told=st.lists(st.floats(1e-3, 1e9) | st.none(), max_size=60),
    )
    def test_whatever_is_told(self, true: float, told: list[float | None]) -> None:
        """With five confirmed, no estimates make the rate worse than by the ratio."""
        rates = Rates(Policy())
        self.taught(rates, true, 5, confirmed=True)
        shown = rates.prefill
        for rate in told:
            self.taught(rates, true if rate is None else max(1.0, rate), 1, confirmed=rate is None)
            self.assertGreaterEqual(rates.prefill, shown / MOST_ESTIMATE_RATIO)
            self.assertLessEqual(rates.prefill, shown * MOST_ESTIMATE_RATIO)
