"""Where a ticket stands, and how long it will take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support import TestCase, examples
from twisted_gateway.core.decision import Admitted, Reason, Refused
from twisted_gateway.core.gate import Gate
from twisted_gateway.core.line import FifoLine
from twisted_gateway.core.order import CostLine
from twisted_gateway.core.outlook import ENDS_COUNTED, PACE_SECONDS, Outlook, Pace, Standing
from twisted_gateway.core.policy import Ordering, Policy
from twisted_gateway.core.sample import Sample
from twisted_gateway.core.ticket import Priority, Ticket

ONE = Policy(max_inflight=1, prefill_tokens_per_second=500.0, decode_tokens_per_second=25.0)


def ticket(*, seconds: float = 1, policy: Policy = ONE, **named: Any) -> Ticket:
    """A request whose prompt takes so many seconds."""
    return Ticket(model="m", policy=policy, prompt_tokens=int(seconds * 500), **named)


def costing(seconds: float, number: int = 0, **named: Any) -> Ticket:
    """A parked one of such a cost."""
    one = ticket(**named)
    one.cost_seconds, one.sequence = seconds, number
    return one


class PaceTests(TestCase):
    """Engine time served per second."""

    def test_unknown(self) -> None:
        """Before anything has ended nothing is known, but what is expected."""
        pace = Pace()
        self.assertIsNone(pace.speed(None))
        self.assertEqual(pace.speed(2.0), 2)
        pace.pass_time(0, waiting=True)
        pace.pass_time(10, waiting=True)
        self.assertIsNone(pace.speed(None))

    def test_what_ended_while_somebody_waited(self) -> None:
        """It is the cost of what ended by the time that somebody waited; idle time is none."""
        pace = Pace()
        pace.pass_time(0, waiting=False)
        pace.ended(100, 0, waiting=False)
        pace.pass_time(50, waiting=False)
        pace.pass_time(60, waiting=True)
        pace.ended(20, 60, waiting=True)
        self.assertEqual(pace.speed(None), 2)
        pace.pass_time(1000, waiting=False)
        self.assertEqual(pace.speed(None), 2)

    def test_the_past_fades(self) -> None:
        """Work and time fade alike, with a time constant of 120 s."""
        pace = Pace()
        pace.pass_time(0, waiting=True)
        pace.pass_time(10, waiting=True)
        pace.ended(20, 10, waiting=True)
        pace.pass_time(10 + PACE_SECONDS, waiting=True)
        self.assertAlmostEqual(pace.speed(None) or 0, 20 / math.e / (10 / math.e + PACE_SECONDS))

    def test_expected_weighs_as_much_as_two_minutes(self) -> None:
        """What the learned rates say counts beside what was seen."""
        pace = Pace()
        pace.pass_time(0, waiting=True)
        pace.pass_time(40, waiting=True)
        pace.ended(120, 40, waiting=True)
        self.assertEqual(pace.speed(1.0), (120 + PACE_SECONDS) / (40 + PACE_SECONDS))

    def test_time_does_not_go_back(self) -> None:
        """The same time again, or an earlier one, adds nothing."""
        pace = Pace()
        pace.pass_time(10, waiting=True)
        pace.pass_time(20, waiting=True)
        pace.ended(10, 20, waiting=True)
        for now in (20, 15):
            pace.pass_time(now, waiting=True)
        self.assertEqual(pace.speed(None), 1)

    def test_place_seconds(self) -> None:
        """How often places free, of the last sixteen ends; two are needed to tell."""
        pace = Pace()
        self.assertIsNone(pace.place_seconds(0))
        pace.ended(1, 0, waiting=False)
        self.assertIsNone(pace.place_seconds(5))
        pace.ended(1, 10, waiting=False)
        self.assertEqual(pace.place_seconds(20), 10)
        for number in range(ENDS_COUNTED):
            pace.ended(1, 100 + 2 * number, waiting=True)
        self.assertEqual(pace.place_seconds(132), 2)

    def test_idle_time_tells_nothing(self) -> None:
        """What ended two minutes ago or earlier says nothing of how often places free."""
        pace = Pace()
        for now in (1, 2, 3, 3600):
            pace.ended(1, now, waiting=True)
        self.assertIsNone(pace.place_seconds(3600))
        pace.ended(1, 3604, waiting=True)
        self.assertEqual(pace.place_seconds(3604), 2)


class OutlookTests(TestCase):
    """The order at one moment, and what is ahead of each place."""

    def outlook(
        self, *costs: float, ends: Sequence[float] = (0,), speed: float | None = 1.0
    ) -> tuple[Outlook, list[Ticket]]:
        line = CostLine(lambda tenant, now: 0.0)
        tickets = [costing(cost, number) for number, cost in enumerate(costs)]
        for one in tickets:
            line.append(one)
        return Outlook(line, 0, ends_seconds=ends, speed=speed), tickets

    def test_places_and_times(self) -> None:
        """A place is by rank; its time is the first one's, then the work ahead by the speed."""
        outlook, (dear, cheap, middle) = self.outlook(30, 10, 20, ends=[3], speed=2)
        standings = [outlook.standing(one, 0) for one in (cheap, middle, dear)]
        self.assertEqual([standing.position for standing in standings], [1, 2, 3])
        self.assertEqual([standing.eta_seconds for standing in standings], [3, 8, 18])

    def test_places_that_free_together(self) -> None:
        """Who is among the first waits for no more than as many ends, in whatever order given."""
        outlook, parked = self.outlook(10, 10, 10, 10, ends=[9, 2, 5])
        etas = [outlook.standing(one, 0).eta_seconds for one in parked]
        self.assertEqual(etas, [2, 5, 9, 32])
        outlook, parked = self.outlook(1, 1, 1, ends=[2, 9, 9])
        self.assertEqual([outlook.standing(one, 0).eta_seconds for one in parked], [2, 3, 4])

    def test_time_runs_on(self) -> None:
        """As time goes by less is left, never less than nothing; positions stay."""
        outlook, (one,) = self.outlook(10, ends=[3])
        self.assertEqual(outlook.standing(one, 1), Standing(position=1, eta_seconds=2))
        self.assertEqual(outlook.standing(one, 9), Standing(position=1, eta_seconds=0))

    def test_unknown_speed(self) -> None:
        """Without a speed there is a position alone."""
        outlook, (one,) = self.outlook(10, speed=None)
        self.assertEqual(outlook.standing(one, 0), Standing(position=1, eta_seconds=None))

    def test_one_that_is_not_in_line(self) -> None:
        """A newcomer is told where it would stand."""
        outlook, _ = self.outlook(10, 20, 30)
        self.assertEqual(outlook.standing(costing(15, 9), 0).position, 2)
        self.assertEqual(outlook.standing(costing(20, 9), 0).position, 3)
        self.assertEqual(outlook.standing(costing(99, 9), 0).eta_seconds, 60)
        batch = costing(1, 9, priority=Priority.BATCH)
        self.assertEqual(outlook.standing(batch, 0).position, 4)

    def test_fifo(self) -> None:
        """Under `fifo` the order is that of arrival."""
        line = FifoLine()
        tickets = [costing(cost, number) for number, cost in enumerate((30, 10))]
        for one in tickets:
            line.append(one)
        outlook = Outlook(line, 0)
        self.assertEqual([outlook.standing(one, 0).position for one in tickets], [1, 2])
        self.assertEqual(line.rank_of(Priority.BATCH, "", 5, 1, 0), (Priority.BATCH, 0, -5))

    @examples(50)
    @given(st.lists(st.tuples(st.sampled_from(Priority), st.integers(1, 50)), max_size=20))
    def test_order_of_service(self, parked: list[tuple[Priority, int]]) -> None:
        """Positions are those in which the line gives its tickets."""
        line = CostLine(lambda tenant, now: 0.0)
        for number, (priority, cost) in enumerate(parked):
            line.append(costing(cost, number, priority=priority))
        outlook = Outlook(line, 5)
        ranked = list(line.ranked(5))
        positions = [outlook.standing(one, 5).position for one in ranked]
        self.assertEqual(positions, list(range(1, len(parked) + 1)))


class Standings(TestCase):
    """What the gate says of its tickets."""

    def test_parked(self) -> None:
        """What is left of what was sent is ahead of the first, and those before of the others."""
        gate = Gate(ONE)
        gate.submit(ticket(seconds=10), 0)
        dear, cheap = ticket(seconds=4), ticket(seconds=2)
        gate.submit(dear, 0)
        gate.submit(cheap, 0)
        self.assertEqual(gate.standing(cheap, 0), Standing(position=1, eta_seconds=10))
        self.assertEqual(gate.standing(dear, 0), Standing(position=2, eta_seconds=12))
        view = gate.view(0)
        self.assertEqual([one.eta_seconds for one in view.parked], [10, 12])

    def gate(self, *, places: int, **named: Any) -> tuple[Gate, list[Ticket], Ticket]:
        """A gate with so many streams in its engine, and one parked."""
        policy = Policy(
            max_inflight=places, prefill_tokens_per_second=500.0, decode_tokens_per_second=25.0
        )
        gate = Gate(policy)
        sent = [ticket(policy=policy, stream=True, **named) for _ in range(places)]
        parked = ticket(policy=policy, stream=True)
        for one in (*sent, parked):
            gate.submit(one, 0)
        return gate, sent, parked

    def test_it_counts_down(self) -> None:
        """Prompts are read one after another; then each answer says by itself how far it is."""
        gate, (first, _), parked = self.gate(places=2, seconds=10, max_tokens=100)

        def eta(now: float) -> float | None:
            return gate.view(now).parked[0].eta_seconds

        # One has 10 s to read and 4 s to write; the other comes 10 s later.
        self.assertEqual([eta(now) for now in (0, 5, 13)], [14, 9, 1])
        gate.first_content(first, 10)
        first.generated_tokens = 4
        slowness = (10 + PACE_SECONDS) / PACE_SECONDS  # so long somebody has waited for no end
        self.assertAlmostEqual(eta(11) or 0, 96 / 25 * slowness)
        # It writes 10 tokens a second, whatever others did.
        first.generated_tokens = 40
        self.assertEqual(eta(14), 6)
        first.generated_tokens = 90
        self.assertEqual(eta(19), 1)
        self.assertIs(parked.engine, None)

    def test_one_that_overruns(self) -> None:
        """What takes longer than expected may take a quarter as long again, up to its bound."""
        gate, (one,), parked = self.gate(places=1, seconds=10, max_tokens=620)

        def eta(now: float) -> float | None:
            return gate.view(now).parked[0].eta_seconds

        self.assertEqual(eta(40), 40 / 4)
        gate.first_content(one, 40)
        one.generated_tokens = 560
        self.assertEqual(eta(68), 60 / 20)
        one.generated_tokens = 620
        self.assertEqual(eta(71), 0)
        self.assertIs(parked.engine, None)

    def test_several_sequences(self) -> None:
        """Of an answer of several sequences each has its share of the tokens."""
        gate, (one,), _ = self.gate(places=1, seconds=0, max_tokens=100, n=1)
        one.n = 2
        gate.first_content(one, 0)
        one.generated_tokens = 100
        self.assertEqual(gate.view(10).parked[0].eta_seconds, 10)

    def test_nothing_of_ours(self) -> None:
        """Where others fill the engine, the next place is as far as places have been lately."""
        gate, (one,), parked = self.gate(places=1, seconds=10)
        gate.finished(one, 10)
        gate.poll_sent(0, 20)
        last = ticket(stream=True)
        gate.submit(last, 20)
        gate.finished(parked, 20)
        gate.client_gone(last, 20)
        gate.poll_sent(0, 21)
        gate.poll_ok(0, Sample(running=1, waiting=0), 21)
        newcomer = ticket(stream=True)
        gate.submit(newcomer, 30)
        # Two have ended, the first of them 20 s ago.
        self.assertEqual(gate.standing(newcomer, 30).eta_seconds, 10)

    def test_a_second_old_at_most(self) -> None:
        """For a second the same order serves; then it is made anew."""
        gate = Gate(ONE)
        gate.submit(ticket(seconds=10), 0)
        dear, cheap = ticket(seconds=4), ticket(seconds=2)
        gate.submit(dear, 0)
        self.assertEqual(gate.standing(dear, 0).position, 1)
        gate.submit(cheap, 0.5)
        self.assertEqual(gate.standing(dear, 1).position, 1)
        self.assertEqual(gate.standing(dear, 1.1).position, 2)

    def test_unknown(self) -> None:
        """By default rates, before anything has ended, only the position is known."""
        gate = Gate(Policy(max_inflight=1))
        gate.submit(ticket(), 0)
        parked = ticket()
        gate.submit(parked, 0)
        self.assertEqual(gate.standing(parked, 0), Standing(position=1, eta_seconds=None))

    def test_measured(self) -> None:
        """Where rates are not learned, what has ended while somebody waited tells the pace."""
        gate = Gate(Policy(max_inflight=1))
        first, second, third = [Ticket(model="m", policy=ONE, prompt_tokens=5250) for _ in range(3)]
        for one in (first, second, third):
            gate.submit(one, 0)
        gate.finished(first, 20)
        self.assertEqual(gate.standing(third, 20), Standing(position=1, eta_seconds=20))

    def test_waited_until_a_poll(self) -> None:
        """Time until a poll lets the last one go was waited through, as any other."""
        gate = Gate(Policy(max_inflight=1))
        gate.poll_sent(0, 0)
        gate.poll_ok(0, Sample(running=1, waiting=0), 0)
        first, second, third = [Ticket(model="m", policy=ONE, prompt_tokens=5250) for _ in range(3)]
        gate.submit(first, 0)
        gate.poll_sent(0, 100)
        self.assertEqual(gate.poll_ok(0, Sample(running=0, waiting=0), 100), [Admitted(first, 0)])
        gate.submit(second, 100)
        gate.submit(third, 100)
        gate.finished(first, 110)
        seconds = 100 * math.exp(-10 / PACE_SECONDS) + 10
        self.assertEqual(gate.standing(third, 110).eta_seconds, 10 / (10 / seconds))

    def test_refusal_says_where_it_stood(self) -> None:
        """A refusal tells its place, its time, and how often places free."""
        policy = Policy(
            max_inflight=1,
            max_queue_depth=1,
            ordering=Ordering.FIFO,
            prefill_tokens_per_second=500.0,
        )
        gate = Gate(policy)
        for now in (0, 10):
            one = ticket(seconds=10, policy=policy)
            gate.submit(one, now)
            gate.finished(one, now + 10)
        gate.submit(ticket(seconds=10, policy=policy), 20)
        gate.submit(ticket(seconds=10, policy=policy), 20)
        (refusal,) = gate.submit(ticket(policy=policy), 20)
        assert isinstance(refusal, Refused)
        self.assertEqual(refusal.reason, Reason.QUEUE_FULL)
        self.assertEqual(refusal.standing, Standing(position=2, eta_seconds=20))
        self.assertEqual(refusal.place_seconds, 5)
