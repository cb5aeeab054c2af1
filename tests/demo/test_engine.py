"""Tests of the simulated engine: what was measured on a real one must be seen here."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock

from tests.demo.harness import run_dry
from tests.support import TestCase, examples
from twisted_gateway.demo.engine import Engine, EngineDead
from twisted_gateway.demo.scheduler import Gauges, Job, Profile, Step


class _Log:
    """What happened in an engine, by its own time."""

    def __init__(self) -> None:
        self.gauges: list[tuple[float, Gauges]] = []
        self.first: dict[Job, float] = {}
        self.finished: dict[Job, float] = {}
        self.gaps: list[float] = []
        self.preemptions = self.queries = self.hits = 0

    def __call__(self, step: Step) -> None:
        self.gauges.append((step.now, step.gauges))
        self.first.update(dict.fromkeys(step.first, step.now))
        self.finished.update(dict.fromkeys(step.finished, step.now))
        self.gaps += step.gaps_seconds
        self.preemptions += step.preemptions
        self.queries += step.prefix_queries
        self.hits += step.prefix_hits


class EngineTests(TestCase):
    """One engine on a clock."""

    def setUp(self) -> None:
        super().setUp()
        self.log = _Log()
        self.engine = self.make()
        self.tokens: dict[int, list[int]] = {}
        self.ends: dict[int, str] = {}
        self.names = 0

    def make(self, speed: float = 1.0, **changes: Any) -> Engine:
        return Engine(self.clock, Profile(**changes), speed=speed, on_step=self.log)

    def submit(self, prompt: int, output: int, engine: Engine | None = None, **more: Any) -> Job:
        name = self.names
        self.names += 1
        self.tokens[name] = []

        def done(reason: str) -> None:
            self.assertNotIn(name, self.ends)
            self.ends[name] = reason

        target = engine or self.engine
        return target.submit(prompt, output, self.tokens[name].append, done, **more)

    def near(self, value: float, wanted: float, within: float) -> None:
        self.assertLessEqual(abs(value - wanted), within, f"{value} is not near {wanted}")

    def test_a_burst_is_invisible_until_a_step_has_ended(self) -> None:
        """Six long prompts at once: nothing, then one running, then five waiting as well."""
        for _ in range(6):
            self.submit(7000, 1)
        step = 2048 / 525 + 0.04
        self.clock.advance(step - 0.01)
        self.assertEqual(self.engine.gauges(), Gauges(0, 0, 0.0))
        self.assertEqual(self.engine.in_engine_now, 6)
        self.clock.advance(0.02)
        self.assertEqual(self.engine.gauges(), Gauges(1, 0, 128 / 9527))
        self.clock.advance(step)
        self.assertEqual(self.engine.gauges(), Gauges(1, 5, 256 / 9527))
        run_dry(self.clock)
        self.assertEqual(self.engine.peak_in_engine, 6)

    def test_long_prompt_alone(self) -> None:
        """A prompt of 65,000 tokens takes 125 s to its first token."""
        job = self.submit(65_000, 2)
        run_dry(self.clock)
        self.near(self.log.first[job], 125.1, 0.1)

    def test_long_prompt_beside_a_decode_starves_both(self) -> None:
        """Beside a decode it takes 250 s, and the decode gets one token in 7.9 s."""
        self.submit(100, 6000)
        self.clock.advance(10)
        job = self.submit(65_000, 1)
        before = len(self.log.gaps)
        run_dry(self.clock, until=261)
        self.near(self.log.first[job] - 10, 249.5, 0.6)
        starved = [gap for gap in self.log.gaps[before:] if gap > 1]
        self.assertEqual(len(starved), 32)
        self.assertAlmostEqual(starved[10], 2047 / 262 + 0.04)
        self.engine.die()

    def test_decodes_share_steps(self) -> None:
        """Four decodes have 25 tokens a second each, as one has."""
        jobs = [self.submit(16, 101) for _ in range(4)]
        run_dry(self.clock)
        for job in jobs:
            self.near(self.log.finished[job] - self.log.first[job], 4.0, 0.2)

    def test_batch_is_bounded_and_first_come_first_served(self) -> None:
        """Never more than four run; the fifth starts when one has ended."""
        jobs = [self.submit(16, 10 + index) for index in range(6)]
        run_dry(self.clock)
        self.assertEqual(max(gauges.running for _, gauges in self.log.gauges), 4)
        starts = [job.scheduled_at or 0.0 for job in jobs]
        self.assertEqual(starts, sorted(starts))
        self.assertAlmostEqual(starts[4], self.log.finished[jobs[0]])

    def test_tokens_come_in_order_and_then_the_end(self) -> None:
        """Each sequence tells each of its tokens once, and why it ended once."""
        self.submit(5, 3)
        self.submit(5, 9, natural_tokens=2)
        self.submit(5, 2, natural_tokens=9)
        run_dry(self.clock)
        self.assertEqual(self.tokens, {0: [0, 1, 2], 1: [0, 1], 2: [0, 1]})
        self.assertEqual(self.ends, {0: "length", 1: "stop", 2: "length"})
        self.assertEqual(self.engine.in_engine_now, 0)

    def test_abort_while_decoding_shows_at_the_end_of_the_step(self) -> None:
        """A client that leaves is out of the gauges within a step, and is told nothing more."""
        job = self.submit(16, 100)
        self.submit(16, 100)
        self.clock.advance(1.005)
        told = len(self.tokens[0])
        self.engine.abort(job)
        self.engine.abort(job)
        self.assertEqual(self.engine.gauges().running, 2)
        self.assertEqual(self.engine.in_engine_now, 1)
        self.clock.advance(0.04)
        self.assertEqual(self.engine.gauges().running, 1)
        self.assertEqual((len(self.tokens[0]), 0 in self.ends), (told, False))
        run_dry(self.clock)
        self.assertEqual(self.ends, {1: "length"})

    def test_abort_during_its_first_step_never_shows(self) -> None:
        """A client that leaves while its first chunk is computed never appears in the gauges."""
        job = self.submit(7000, 1)
        self.clock.advance(1)
        self.engine.abort(job)
        run_dry(self.clock)
        self.assertEqual([gauges for _, gauges in self.log.gauges], [Gauges(0, 0, 0.0)])

    def test_abort_while_waiting_frees_the_queue(self) -> None:
        """A waiting request that leaves is no longer counted as waiting."""
        for _ in range(4):
            self.submit(16, 50)
        job = self.submit(16, 50)
        self.clock.advance(0.5)
        self.assertEqual(self.engine.gauges().waiting, 1)
        self.engine.abort(job)
        self.clock.advance(0.04)
        self.assertEqual(self.engine.gauges(), Gauges(4, 0, self.engine.gauges().kv_usage))
        late = self.submit(16, 50)
        self.engine.abort(late)
        run_dry(self.clock)
        self.assertEqual(len(self.ends), 4)

    def test_abort_by_a_listener(self) -> None:
        """Who leaves while others are told of a step is told nothing of it, and misses the next."""
        engine = self.engine
        jobs: list[Job] = []

        def leave(index: int) -> None:
            if index == 2:
                engine.abort(jobs[0])
                engine.abort(jobs[1])

        engine.submit(16, 10, leave, lambda reason: None)
        jobs += [self.submit(16, 10), self.submit(9000, 10)]
        run_dry(self.clock)
        self.assertEqual(self.tokens, {0: [0], 1: []})
        # One chunk of the long prompt held one of them up, the next chunk both; there is no third.
        self.assertEqual(len([gap for gap in self.log.gaps if gap > 1]), 3)
        self.assertEqual(engine.in_engine_now, 0)

    def test_last_ones_leave_between_steps(self) -> None:
        """When nobody is left after a step, the gauges say so although no other step follows."""
        jobs: list[Job] = []

        def leave(reason: str) -> None:
            self.engine.abort(jobs[0])

        self.engine.submit(16, 5, lambda index: None, leave)
        jobs.append(self.submit(16, 50))
        run_dry(self.clock)
        self.assertEqual(self.log.gauges[-1][1].running, 1)
        self.assertEqual(self.engine.gauges(), Gauges(0, 0, 0.0))

    def test_kv_grows_with_computed_tokens(self) -> None:
        """The cache fills chunk by chunk, then by the token, and is empty at the end."""
        self.submit(4096, 33)
        run_dry(self.clock)
        usage = [gauges.kv_usage * 9527 for _, gauges in self.log.gauges]
        self.assertEqual([round(blocks) for blocks in usage[:3]], [128, 256, 257])
        self.assertEqual(round(usage[-2]), 258)
        self.assertEqual(usage[-1], 0)

    def test_full_cache_preempts(self) -> None:
        """Four prompts of 60,000 tokens do not fit: running falls, waiting rises, all end whole."""
        for _ in range(4):
            self.submit(60_000, 200)
        run_dry(self.clock)
        self.assertGreater(self.log.preemptions, 0)
        pairs = [(gauges.running, gauges.waiting) for _, gauges in self.log.gauges]
        self.assertTrue(any(a[0] > b[0] and a[1] < b[1] for a, b in pairwise(pairs)), pairs)
        self.assertLessEqual(max(gauges.kv_usage for _, gauges in self.log.gauges), 1.0)
        self.assertEqual(set(self.ends.values()), {"length"})
        for tokens in self.tokens.values():
            self.assertEqual(tokens, list(range(200)))

    def test_preempted_goes_before_later_arrivals(self) -> None:
        """Whoever was preempted is back before anybody who came later is let in."""
        engine = self.make(num_blocks=20, max_num_seqs=2, max_model_tokens=300)
        for _ in range(3):
            self.submit(150, 100, engine)
        run_dry(self.clock)
        self.assertGreater(self.log.preemptions, 0)
        first, second, third = self.log.finished
        self.assertEqual(second.preemptions, 1)
        self.assertGreaterEqual(third.scheduled_at or 0.0, self.log.finished[first])
        self.assertEqual([job.arrived_at for job in (first, second, third)], [0.0] * 3)

    def test_growing_decode_may_be_preempted_itself(self) -> None:
        """The last running one gives way when it is itself the one that finds no block."""
        engine = self.make(num_blocks=20, max_model_tokens=300)
        self.submit(150, 100, engine)
        self.submit(150, 100, engine)
        run_dry(self.clock)
        self.assertGreater(self.log.preemptions, 0)
        self.assertEqual([len(tokens) for tokens in self.tokens.values()], [100, 100])

    def test_common_prefix_is_computed_once(self) -> None:
        """A prompt that begins like an earlier one only has its rest computed."""
        keys = list(range(500))
        one = self.submit(8000, 1, keys=keys)
        run_dry(self.clock)
        started = self.clock.seconds()
        other = self.submit(8016, 1, keys=[*keys, 7777])
        run_dry(self.clock)
        self.assertAlmostEqual(self.log.first[one], 8000 / 525 + 4 * 0.04)
        self.assertAlmostEqual(self.log.first[other] - started, 16 / 525 + 0.04)
        self.assertEqual((self.log.queries, self.log.hits), (16_016, 8000))
        self.assertEqual(self.engine.gauges().kv_usage, 0.0)

    def test_last_token_of_a_prompt_is_always_computed(self) -> None:
        """Even a prompt that is cached to its end has a block to compute: it needs a sample."""
        for _ in range(2):
            self.submit(32, 1, keys=[1, 2])
            run_dry(self.clock)
        self.assertEqual(self.log.hits, 16)

    def test_prefix_cache_can_be_off(self) -> None:
        """Without it nothing is asked of it and nothing is hit."""
        engine = self.make(prefix_caching=False)
        for _ in range(2):
            self.submit(32, 1, engine, keys=[1, 2])
            run_dry(self.clock)
        self.assertEqual((self.log.queries, self.log.hits), (0, 0))

    def test_pooling_ends_with_its_prefill(self) -> None:
        """A request for no token ends, with `stop`, when its prompt has been computed."""
        self.submit(525, 0)
        run_dry(self.clock)
        self.assertEqual((self.tokens[0], self.ends), ([], {0: "stop"}))
        self.assertAlmostEqual(self.clock.seconds(), 1.04)

    def test_speed(self) -> None:
        """At speed 20 everything takes a twentieth of the time."""
        job = self.submit(65_000, 26, self.make(speed=20))
        run_dry(self.clock)
        self.near(self.log.first[job] * 20, 125.1, 0.1)
        self.assertAlmostEqual((self.log.finished[job] - self.log.first[job]) * 20, 1.0)

    def test_late_timers_are_made_up_for(self) -> None:
        """An engine whose timers come late loses no time for good."""
        job = self.submit(16, 1000)
        self.clock.advance(10)
        self.clock.advance(10)
        self.near(job.made, (20 - 16 / 525) / 0.04, 1)
        run_dry(self.clock)

    def test_clock_set_back(self) -> None:
        """A clock that jumps back delays an engine by no more than a step."""
        self.submit(16, 10)
        self.clock.advance(0.2)
        made = len(self.tokens[0])
        self.clock.rightNow -= 0.001
        for call in self.clock.calls:
            call.time = self.clock.rightNow
        self.clock.rightNow -= 1000
        for call in self.clock.calls:
            call.time = self.clock.rightNow
        self.clock.advance(0)
        self.clock.advance(0.041)
        self.assertEqual(len(self.tokens[0]), made + 2)
        run_dry(self.clock)

    def test_peak_is_measured_anew(self) -> None:
        """After `reset_peak` the peak counts from what is in the engine then."""
        for _ in range(3):
            self.submit(16, 2)
        run_dry(self.clock)
        self.assertEqual(self.engine.peak_in_engine, 3)
        self.engine.reset_peak()
        self.assertEqual(self.engine.peak_in_engine, 0)
        self.submit(16, 1)
        self.assertEqual(self.engine.peak_in_engine, 1)
        run_dry(self.clock)

    def test_lateness_is_told(self) -> None:
        """It says by how much a step ended late, until it is measured anew."""
        self.submit(16, 2)
        self.clock.advance(1.0)
        self.near(self.engine.most_behind_seconds, 1.0 - 0.04 - 16 / 525, 0.001)
        self.engine.reset_peak()
        self.assertEqual(self.engine.most_behind_seconds, 0.0)
        run_dry(self.clock)

    def test_prefill_for_whole_answers_is_not_wasted(self) -> None:
        """What is answered whole was computed once, cached prefixes left out."""
        keys = range(8)
        for _ in range(2):
            self.submit(130, 2, keys=keys)
            run_dry(self.clock)
        self.assertEqual(self.engine.prefilled_tokens, 130 + 2)
        self.assertEqual(self.engine.wasted_tokens, 0)

    def test_prefill_for_the_aborted_is_wasted(self) -> None:
        """All whole chunks of one that is aborted are; what decodes add is no prefill."""
        chunk = 2048 / 525 + 0.04
        half = self.submit(4096, 5)
        self.clock.advance(1.5 * chunk)
        self.engine.abort(half)
        run_dry(self.clock)
        self.assertEqual((self.engine.prefilled_tokens, self.engine.wasted_tokens), (2048, 2048))
        whole = self.submit(1000, 50)
        self.clock.advance(3)
        self.engine.abort(whole)
        run_dry(self.clock)
        self.assertEqual((self.engine.prefilled_tokens, self.engine.wasted_tokens), (3048, 3048))

    def test_prefill_after_a_preemption_is_wasted(self) -> None:
        """What is computed again after a preemption is."""
        engine = self.make(num_blocks=20, max_model_tokens=300, prefix_caching=False)
        for _ in range(2):
            self.submit(150, 100, engine)
        run_dry(self.clock)
        self.assertGreater(self.log.preemptions, 0)
        self.assertEqual(engine.wasted_tokens, engine.prefilled_tokens - 300)
        self.assertGreater(engine.wasted_tokens, 150)

    def test_death(self) -> None:
        """A dying engine ends every job with `error`, keeps no timer and takes nothing more."""
        gone = self.submit(16, 50)
        for _ in range(5):
            self.submit(16, 50)
        self.engine.abort(gone)
        self.clock.advance(0.1)
        self.submit(16, 50)
        self.engine.die()
        self.engine.die()
        self.assertEqual(self.ends, dict.fromkeys(range(1, 7), "error"))
        self.assertEqual(self.engine.in_engine_now, 0)
        self.assertRaises(EngineDead, self.submit, 16, 50)

    def test_death_by_a_listener(self) -> None:
        """An engine that dies while it tells of a step begins no other."""
        ended: list[str] = []
        self.engine.submit(16, 5, lambda index: self.engine.die(), ended.append)
        self.submit(16, 5)
        self.clock.advance(1)
        self.assertEqual((ended, self.ends), (["error"], {0: "error"}))

    def test_failing_listener_does_not_stop_the_engine(self) -> None:
        """An exception of one who listens leaves the engine running."""
        job = self.engine.submit(16, 3, lambda index: 1 // 0, self.fail)
        for _ in range(2):
            self.assertRaises(ZeroDivisionError, self.clock.advance, 0.08)
        self.assertEqual(job.made, 2)
        self.assertRaises(ZeroDivisionError, self.clock.advance, 0.08)

    def test_what_cannot_be(self) -> None:
        """Empty and over-long sequences, and impossible engines, are refused."""
        self.assertRaises(ValueError, self.submit, 0, 1)
        self.assertRaises(ValueError, self.submit, 1, -1)
        self.assertRaises(ValueError, self.submit, 131_000, 73)
        self.assertRaises(ValueError, self.make, num_blocks=8000)
        self.assertRaises(ValueError, self.make, max_num_seqs=0)
        self.assertRaises(ValueError, self.make, speed=0)


_MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.integers(1, 700), st.integers(0, 60)),
        st.tuples(st.just("abort"), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("wait"), st.integers(1, 300), st.just(0)),
    ),
    max_size=25,
)


class AnyWorkTests(TestCase):
    """Whatever is asked of an engine."""

    @examples(25)
    @given(_MOVES, st.integers(1, 5), st.booleans())
    def test_everything_ends_and_nothing_is_left(
        self, moves: list[tuple[str, int, int]], seqs: int, prefixed: bool
    ) -> None:
        """Every job ends whole or was aborted; batch and cache keep their bounds, and end empty."""
        clock = Clock()
        seen: list[Step] = []
        profile = Profile(max_num_seqs=seqs, num_blocks=60, max_model_tokens=800)
        engine = Engine(clock, profile, on_step=seen.append)
        jobs: list[Job] = []
        told: dict[int, list[object]] = {}
        aborted: set[int] = set()

        for kind, number, output in moves:
            if kind == "submit":
                notes = told.setdefault(len(jobs), [])
                keys = range(number // 16) if prefixed else ()
                jobs.append(engine.submit(number, output, notes.append, notes.append, keys=keys))
            elif kind == "abort" and jobs:
                index = number % len(jobs)
                if not jobs[index].ended:
                    aborted.add(index)
                engine.abort(jobs[index])
            else:
                run_dry(clock, until=clock.seconds() + number / 100)
        run_dry(clock)

        for index, job in enumerate(jobs):
            whole: list[object] = [*range(job.output_tokens), job.reason]
            self.assertEqual(told[index], whole[: len(told[index])])
            self.assertEqual(len(told[index]) == len(whole), index not in aborted)
        for step in seen:
            self.assertLessEqual(step.gauges.running, seqs)
            self.assertLessEqual(step.gauges.kv_usage, 1.0)
        self.assertEqual(engine.gauges(), Gauges(0, 0, 0.0))
        self.assertEqual((engine.in_engine_now, engine.idle), (0, True))
        self.assertLessEqual(0, engine.wasted_tokens)
        self.assertLessEqual(engine.wasted_tokens, engine.prefilled_tokens)
