"""The workloads: what they consist of, and that a seed says all of it."""

from __future__ import annotations

import math
import random

from hypothesis import given
from hypothesis import strategies as st

from tests.support import TestCase, examples
from twisted_gateway.load.arrivals import Arrival
from twisted_gateway.load.workloads import LONG_TOKENS, NAMES, duration, estimated, workload

SEEDS = st.integers(0, 2**32)


def drawn(name: str, seed: int = 1000, **options: float) -> list[Arrival]:
    """A workload of a seed."""
    return workload(name, random.Random(seed), **options)


class Drawing(TestCase):
    """What all workloads have in common."""

    def test_a_seed_says_all_of_it(self) -> None:
        """The same seed is the same workload; another one is another."""
        for name in NAMES:
            self.assertEqual(drawn(name), drawn(name))
            self.assertNotEqual(drawn(name), drawn(name, 1001))

    def test_estimates_change_no_draw(self) -> None:
        """Who asks for the gateways' estimates as well gets the same arrivals."""
        for name in NAMES:
            one, other = random.Random(7), random.Random(7)
            pairs = estimated(name, other)
            self.assertEqual(workload(name, one), [arrival for arrival, _ in pairs])
            self.assertEqual(one.getstate(), other.getstate())

    def test_draws_are_those_of_the_first_simulator(self) -> None:
        """The first simulator's seeds mean what they did: counts and sums of seed 0 are its own."""
        expected = {
            "W1": (17, 249711, 5098, 290899, 0, 179.817446),
            "W2": (228, 1941428, 54779, 1975028, 22, 1269200.793503),
            "W3": (285, 1940797, 81375, 1992708, 27, 417909.493111),
            "W4": (683, 347219, 141921, 360900, 73, 1047212.581753),
            "W5": (847, 1539751, 226579, 1550763, 0, 1270992.508534),
            "W6": (393, 674500, 83396, 694017, 39, 591343.992629),
        }
        for name in NAMES:
            pairs = estimated(name, random.Random(1000))
            arrivals = [arrival for arrival, _ in pairs]
            found = (
                len(arrivals),
                sum(one.prompt_tokens for one in arrivals),
                sum(one.answer_tokens for one in arrivals),
                sum(estimate for _, estimate in pairs),
                sum(one.direct for one in arrivals),
                round(sum(one.at for one in arrivals), 6),
            )
            self.assertEqual(found, expected[name], name)

    @examples(20)
    @given(st.sampled_from(NAMES), SEEDS)
    def test_arrivals_are_in_order_and_possible(self, name: str, seed: int) -> None:
        """They come by time, within the duration; nobody's answer is longer than it allows."""
        arrivals = drawn(name, seed)
        self.assertEqual(arrivals, sorted(arrivals, key=lambda one: one.at))
        for one in arrivals:
            self.assertLess(one.at + one.patience_seconds, duration(name))
            self.assertLessEqual(one.answer_tokens, one.max_tokens)
            self.assertGreaterEqual(one.answer_tokens, 2)
            self.assertGreaterEqual(one.prompt_tokens, 1)
            self.assertEqual(one.group is None, one.prefix_tokens == 0)
            self.assertIn(one.tries, (1, 3, 6))

    def test_an_unknown_name(self) -> None:
        """A name that there is not is refused, with those that there are."""
        with self.assertRaisesRegex(ValueError, "'W9'; there are W1, W2"):
            drawn("W9")
        with self.assertRaisesRegex(ValueError, "'W9'"):
            duration("W9")

    def test_an_unknown_option(self) -> None:
        """An option that a workload has not is refused, with those that it has."""
        with self.assertRaisesRegex(ValueError, "W1 has no option load; it has direct, "):
            drawn("W1", load=2)
        with self.assertRaisesRegex(ValueError, "no option draw"):
            duration("W1", draw=2)

    def test_bounds(self) -> None:
        """An option out of its bounds is refused, whoever asks."""
        for name, option, value in (
            ("W2", "per_minute", -1.0),
            ("W2", "hours", math.inf),
            ("W3", "prompt_tokens", 1e12),
            ("W4", "load", math.nan),
            ("W5", "seconds", 1e9),
        ):
            with self.assertRaisesRegex(ValueError, f"{option}: expected a number from "):
                workload(name, random.Random(1), **{option: value})

    def test_patience(self) -> None:
        """A longer patience is every client's, and the duration grows with it."""
        for name in NAMES:
            arrivals = drawn(name, patience_seconds=1200)
            self.assertEqual({one.patience_seconds for one in arrivals}, {1200})
            self.assertEqual(duration(name, patience_seconds=1200), duration(name) + 600)

    def test_direct_callers(self) -> None:
        """The share of those that go past the gateway can be set."""
        for name in NAMES:
            self.assertFalse(any(one.direct for one in drawn(name, direct=0)))
            self.assertTrue(all(one.direct for one in drawn(name, direct=1)))


class Kinds(TestCase):
    """What each of them stands for."""

    def test_load_test(self) -> None:
        """W1: two long prompts and fifteen of 8,000 tokens, all within a second."""
        arrivals = drawn("W1")
        kinds = [one.kind for one in arrivals]
        self.assertEqual((kinds.count("long"), kinds.count("short")), (2, 15))
        self.assertLess(arrivals[-1].at - arrivals[0].at, 1)

    def test_load_test_spread_out(self) -> None:
        """W1: within longer they are the same clients, in the same order, further apart."""
        burst, spread = drawn("W1"), drawn("W1", within_seconds=20)
        for one, other in zip(burst, spread, strict=True):
            self.assertAlmostEqual((one.at - 10) * 20, other.at - 10)
            self.assertEqual(one.prompt_tokens, other.prompt_tokens)
        self.assertEqual(duration("W1", within_seconds=20), duration("W1") + 19)

    def test_heavy_tail(self) -> None:
        """W2: long is what is longer than a long prompt; some ask for no stream."""
        arrivals = drawn("W2")
        for one in arrivals:
            self.assertEqual(one.kind == "long", one.prompt_tokens > LONG_TOKENS)
        self.assertTrue(any(not one.stream for one in arrivals))

    def test_agents(self) -> None:
        """W3: each burst of thirty shares a prefix of its own, and chats share none."""
        arrivals = drawn("W3", bursts=2)
        groups = [one.group for one in arrivals if one.kind == "agent"]
        self.assertEqual((groups.count("g0"), groups.count("g1"), len(groups)), (30, 30, 60))
        chats = [one for one in arrivals if one.kind == "chat"]
        self.assertEqual({(one.tenant, one.group) for one in chats}, {("chat", None)})

    def test_chats(self) -> None:
        """W4: twice the load is about twice as many."""
        one, two = len(drawn("W4")), len(drawn("W4", load=2))
        self.assertTrue(1.8 * one < two < 2.2 * one, f"{one}, {two}")

    def test_flood(self) -> None:
        """W5: the flood is most of it, and the three others are told from it."""
        arrivals = drawn("W5")
        kinds = [one.kind for one in arrivals]
        self.assertGreater(kinds.count("flood"), 2 * kinds.count("interactive"))
        light = {one.tenant for one in arrivals if one.kind == "interactive"}
        self.assertEqual(light, {"i1", "i2", "i3"})

    def test_faults(self) -> None:
        """W6: a burst of sixteen begins within seconds of each fault."""
        bursts = [one.group for one in drawn("W6") if one.kind == "agent"]
        for begins in (595, 1195, 1805, 2395):
            self.assertEqual(bursts.count(f"g{begins}"), 16)
