"""`auto`: S, as it is learned from an engine's pages."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tests.support import TestCase, examples
from twisted_gateway.core.decision import Admitted, Decision
from twisted_gateway.core.gate import Gate
from twisted_gateway.core.learner import (
    CONTESTED_PAGES,
    SHOWN_SECONDS,
    START,
    TRY_SECONDS,
    Learner,
    contradicts,
    counts,
)
from twisted_gateway.core.policy import Ordering, Policy
from twisted_gateway.core.sample import Sample
from twisted_gateway.core.ticket import Ticket


class Pages(TestCase):
    """What one page says."""

    def test_counts(self) -> None:
        """A page counts unless more of ours await content than wait, or the KV cache is full."""
        cases = (
            (0, 0, None, True),
            (1, 1, None, True),
            (2, 1, None, False),
            (0, 1, 0.85, True),
            (0, 1, 0.86, False),
        )
        for awaiting, waiting, kv_usage, counted in cases:
            sample = Sample(running=1, waiting=waiting, kv_usage=kv_usage)
            self.assertIs(counts(sample, awaiting), counted, f"{awaiting}, {sample}")

    def test_contradicts(self) -> None:
        """It contradicts S that more runs, or that less does while requests wait."""
        cases = (
            (4, 0, False),
            (4, 1, False),
            (3, 0, False),
            (3, 1, True),
            (5, 0, True),
            (None, 9, False),
        )
        for running, waiting, contradicted in cases:
            sample = Sample(running=running, waiting=waiting)
            self.assertIs(contradicts(sample, 4), contradicted, str(sample))


class Rules(TestCase):
    """The learner's table, row by row."""

    def setUp(self) -> None:
        super().setUp()
        self.learner = Learner()
        self.at = 0.0

    def page(
        self,
        running: int | None,
        waiting: int = 0,
        *,
        parked: bool = True,
        misleads: bool = False,
        after: float = 2.0,
    ) -> int:
        """Learn from a page, so many seconds after the last, and say what S is then."""
        self.at += after
        sample = Sample(
            running=running,
            waiting=waiting,
            kv_usage=0.9 if misleads else None,
            taken_at=self.at,
        )
        self.learner.learn(sample, awaiting=0, parked=parked)
        return self.learner.limit

    def show(self, limit: int) -> None:
        """Let a page show S."""
        self.assertEqual(self.page(limit, 1), limit)

    def try_one_more(self, limit: int) -> None:
        """Let S be shown, and one more be tried."""
        self.show(limit)
        self.assertEqual(self.page(limit, after=SHOWN_SECONDS), limit + 1)

    # Not shown

    def test_start(self) -> None:
        """It starts at 2, having learned nothing; pages without `running` teach nothing."""
        for waiting in (0, 5):
            self.assertEqual(self.page(None, waiting), START)
        self.assertEqual(self.page(1), START)
        self.assertFalse(self.learner.learned)

    def test_doubles(self) -> None:
        """It doubles while requests park, all that may run does, and nothing waits."""
        found = [self.page(running) for running in (1, 2, 2, 3, 4, 8, 8)]
        self.assertEqual(found, [2, 4, 4, 4, 8, 16, 16])
        self.assertEqual(self.page(16, parked=False), 16)
        self.assertTrue(self.learner.learned)

    def test_shown(self) -> None:
        """Requests that wait show the most that has run."""
        for running in (2, 4, 6):
            self.page(running)
        self.assertEqual(self.page(5, 1), 6)

    def test_shown_is_at_least_one(self) -> None:
        """S is never below 1."""
        self.assertEqual(self.page(0, 1), 1)

    def test_misleading(self) -> None:
        """A page that misleads raises S to what runs, and never lowers it."""
        self.assertEqual(self.page(1, 1, misleads=True), 2)
        self.assertFalse(self.learner.learned)
        self.assertEqual(self.page(5, 1, misleads=True), 5)

    # Shown

    def test_stays(self) -> None:
        """What was shown stays for ten minutes while no more runs."""
        self.show(4)
        for _ in range(299):
            self.assertEqual(self.page(4), 4)
        self.assertEqual(self.page(4), 5)

    def test_grows_no_older_by_pages_that_agree(self) -> None:
        """Pages that show it again do not make it young: else others' traffic fixed it for good."""
        self.show(4)
        for _ in range(298):
            self.page(4, 1)
        self.assertEqual([self.page(4), self.page(4)], [4, 5])

    def test_more_runs(self) -> None:
        """More that runs ends it: S doubles if requests park, else the next that wait raise it."""
        self.show(4)
        self.assertEqual(self.page(5, parked=False), 4)
        self.assertEqual(self.page(4, 1), 5)
        self.assertEqual(self.page(6), 10)
        self.assertEqual(self.page(10), 20)

    def test_fewer_run(self) -> None:
        """An engine that for ten minutes of contention runs fewer has become smaller."""
        self.show(8)
        for page in range(CONTESTED_PAGES - 1):
            self.assertEqual(self.page(4 if page == 7 else 3, 5), 8)
            self.assertEqual(self.page(3, parked=False), 8)
            self.assertEqual(self.page(1, 9, misleads=True), 8)
        self.assertEqual(self.page(3, 5), 4)
        # That is shown as anything is.
        self.assertEqual(self.page(4), 4)
        self.assertEqual(self.page(4, after=SHOWN_SECONDS), 5)

    def test_all_run_at_times(self) -> None:
        """One that runs S at times has not."""
        self.show(8)
        for page in range(2 * CONTESTED_PAGES):
            running = 8 if page % 100 == 0 else 7
            self.assertEqual(self.page(running, 1), 8)

    # Tried

    def test_try_needs_demand(self) -> None:
        """One more is tried when requests park, all that may run does, and nothing waits."""
        self.show(4)
        self.at += SHOWN_SECONDS
        self.assertEqual(self.page(4, parked=False), 4)
        self.assertEqual(self.page(3), 4)
        self.assertEqual(self.page(4, 1), 4)
        self.assertEqual(self.page(4), 5)

    def test_try_fails(self) -> None:
        """Requests that wait end the try, for ten minutes; S is the most that ran during it."""
        self.try_one_more(4)
        self.assertEqual(self.page(4), 5)
        self.assertEqual(self.page(3, 1), 4)
        self.assertEqual(self.page(4), 4)
        self.assertEqual(self.page(4, after=SHOWN_SECONDS), 5)

    def test_try_of_what_was_shown_by_others(self) -> None:
        """An S of 1 that others' requests behind a long prefill showed does not stay."""
        self.assertEqual(self.page(1, 5), 1)
        self.assertEqual(self.page(1, after=SHOWN_SECONDS), 2)
        self.assertEqual([self.page(running) for running in (2, 4, 8)], [4, 8, 16])
        self.assertEqual(self.page(10, 6), 10)

    def test_try_succeeds_unasked(self) -> None:
        """Where one more runs and nobody is parked, S stays until somebody is."""
        self.try_one_more(4)
        self.assertEqual(self.page(5, parked=False), 5)
        self.assertEqual(self.page(5), 10)

    def test_try_reaches_one_more(self) -> None:
        """Where one more runs and others wait, that is S."""
        self.try_one_more(4)
        self.assertEqual(self.page(5, 1), 5)
        self.assertEqual(self.page(5), 5)

    def test_try_ends(self) -> None:
        """A try that misleading pages alone speak of ends after a minute."""
        self.try_one_more(4)
        began = self.at
        while self.at < began + TRY_SECONDS - 2:
            self.assertEqual(self.page(4, 1, misleads=True), 5)
        self.assertEqual(self.page(4, 1, misleads=True), 4)
        self.assertEqual(self.page(4), 4)

    def test_try_without_demand(self) -> None:
        """A try goes on while nothing speaks against it."""
        self.try_one_more(4)
        self.assertEqual(self.page(2, parked=False, after=10 * TRY_SECONDS), 5)
        self.assertEqual(self.page(4, 1), 4)

    def test_forgets_what_ran_before(self) -> None:
        """A try that fails shows what has run since it began, not what once did."""
        for running in (2, 4, 8):
            self.page(running)
        self.show(8)
        for _ in range(CONTESTED_PAGES):
            self.page(3, 5)
        self.assertEqual(self.page(3, after=SHOWN_SECONDS), 4)
        self.assertEqual(self.page(3, 1), 3)


@dataclass(eq=False)
class Job:
    """A request in the engine: seconds of prefill and of decoding that are left."""

    prefill: float
    decode: float
    ticket: Ticket | None
    answered: bool = False


class Engine:
    """It runs S at once, prefills one after the other, and publishes at the end of a step.

    While it prefills, a step takes up to 4 s, nobody enters, and others decode at half the speed.
    """

    def __init__(self, sequences: int) -> None:
        self.sequences = sequences
        self.now = 0.0
        self.running: list[Job] = []
        self.waiting: list[Job] = []
        self.published = (0, 0)

    def run(
        self, until: float, content: Callable[[Ticket], None], end: Callable[[Ticket], None]
    ) -> None:
        """Work for some time, telling of tickets whose answers begin and end."""
        while self.now < until:
            reads = next((job for job in self.running if job.prefill > 0), None)
            while reads is None and self.waiting and len(self.running) < self.sequences:
                job = self.waiting.pop(0)
                self.running.append(job)
                reads = job if job.prefill > 0 else None
            took = 0.5 if reads is None else min(4.0, reads.prefill)
            self.now += took
            for job in list(self.running):
                if job is reads:
                    job.prefill -= took
                    continue
                if not job.answered and job.ticket is not None:
                    content(job.ticket)
                job.answered = True
                job.decode -= took if reads is None else took / 2
                if job.decode <= 0:
                    self.running.remove(job)
                    if job.ticket is not None:
                        end(job.ticket)
            self.published = len(self.running), len(self.waiting)


class Hours:
    """An engine, a gate before it that always has requests parked, and others who know no gate."""

    def __init__(self, sequences: int, seed: int, foreign: float, prefills: list[float]) -> None:
        self.random = random.Random(seed)
        self.engine = Engine(sequences)
        self.gate = Gate(Policy(ordering=Ordering.FIFO))
        self.foreign = foreign
        self.prefills = prefills
        self.parked = 0
        self.now = 0.0
        self.limits: list[int] = []
        """What S was, every two seconds."""

    def send(self, ticket: Ticket | None) -> None:
        prefill, decode = self.random.choice(self.prefills), self.random.uniform(2, 40)
        self.engine.waiting.append(Job(prefill, decode, ticket))

    def carry_out(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            if isinstance(decision, Admitted):
                self.parked -= 1
                self.send(decision.ticket)

    def pass_hours(self, hours: float) -> list[int]:
        """Let time pass, and say what S was, every two seconds."""
        gate, engine = self.gate, self.engine
        begun = len(self.limits)
        for _ in range(round(hours * 1800)):
            self.now += 2.0
            while self.parked < 3:
                ticket = Ticket(model="m", policy=Policy(), stream=True)
                self.parked += 1
                self.carry_out(gate.submit(ticket, self.now))
            if self.random.random() < self.foreign * 2:
                for _ in range(self.random.choice([1, 1, 1, 6])):
                    self.send(None)
            gate.poll_sent(0, self.now)
            engine.run(
                self.now,
                lambda ticket: self.carry_out(gate.first_content(ticket, engine.now)),
                lambda ticket: self.carry_out(gate.finished(ticket, engine.now)),
            )
            running, waiting = engine.published
            sample = Sample(running=running, waiting=waiting, taken_at=self.now)
            self.carry_out(gate.poll_ok(0, sample, self.now))
            self.limits.append(gate.engine_view(0, self.now).max_inflight)
        return self.limits[begun:]


LIGHT = [0.05, 0.1]
HEAVY = [0.1, 0.2, 0.5, 8.0]


class Learning(TestCase):
    """S over hours."""

    def is_steady(self, limits: list[int], sequences: int) -> None:
        """Check that S is `sequences`, but for one more for a short time each ten minutes."""
        self.assertEqual({*limits} - {sequences, sequences + 1}, set())
        tries = [at for at in range(1, len(limits)) if limits[at] > sequences >= limits[at - 1]]
        for one, other in pairwise(tries):
            self.assertGreaterEqual(2 * (other - one), SHOWN_SECONDS)
        over = sum(limit > sequences for limit in limits)
        allowed = (len(tries) + 1) * (TRY_SECONDS / 2 + 1)
        self.assertLessEqual(over, allowed)

    @examples(20)
    @given(
        sequences=st.sampled_from([1, 2, 3, 4, 7, 8, 12]),
        seed=st.integers(0, 1000),
        foreign=st.sampled_from([0.0, 0.02, 0.05]),
        prefills=st.sampled_from([LIGHT, HEAVY]),
    )
    def test_converges(
        self, sequences: int, seed: int, foreign: float, prefills: list[float]
    ) -> None:
        """Whatever others send and however the gauges lag, S becomes what the engine runs."""
        hours = Hours(sequences, seed, foreign, prefills)
        hours.pass_hours(0.5)
        self.is_steady(hours.pass_hours(0.5), sequences)

    def test_wide(self) -> None:
        """So it does for an engine of many."""
        hours = Hours(64, 1, 0.02, [0.01, 0.02])
        hours.pass_hours(0.1)
        self.is_steady(hours.pass_hours(0.2), 64)

    @examples(10)
    @given(
        before=st.sampled_from([1, 2, 4, 8]),
        after=st.sampled_from([1, 2, 3, 8, 12]),
        seed=st.integers(0, 1000),
        foreign=st.sampled_from([0.0, 0.02]),
    )
    def test_restarted_with_another_s(
        self, before: int, after: int, seed: int, foreign: float
    ) -> None:
        """An engine that comes back with more sequences, or with fewer, is learned anew."""
        hours = Hours(before, seed, foreign, LIGHT)
        hours.pass_hours(0.1)
        hours.engine.sequences = after
        hours.pass_hours(0.6)
        self.is_steady(hours.pass_hours(0.2), after)
