"""The admission gate, rule by rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.support import TestCase
from twisted_gateway.core import estimate
from twisted_gateway.core.bay import Bay, Verdict
from twisted_gateway.core.decision import Admitted, Decision, Parked, Passed, Reason, Refused
from twisted_gateway.core.gate import Gate
from twisted_gateway.core.line import Agenda, FifoLine
from twisted_gateway.core.policy import Ordering, Policy, WhenStale
from twisted_gateway.core.sample import Sample
from twisted_gateway.core.selection import Selection
from twisted_gateway.core.ticket import IllegalCall, Priority, Ticket, TicketState
from twisted_gateway.core.view import Hold, ModelTotals, Sight

FOUR = Policy(max_inflight=4, ordering=Ordering.FIFO)
IDLE = Sample(running=0, waiting=0)


def ticket(policy: Policy = FOUR, **named: Any) -> Ticket:
    return Ticket(model="m", policy=policy, **named)


def admitted(decisions: list[Decision]) -> list[Ticket]:
    return [decision.ticket for decision in decisions if isinstance(decision, Admitted)]


def refused(decisions: list[Decision]) -> list[tuple[Ticket, Reason]]:
    return [(d.ticket, d.reason) for d in decisions if isinstance(d, Refused)]


def poll(gate: Gate, sample: Sample, now: float, engine: int = 0) -> list[Ticket]:
    gate.poll_sent(engine, now)
    return admitted(gate.poll_ok(engine, sample, now))


class GateTests(TestCase):
    """What the rules' tests have in common."""

    def burst(self, gate: Gate, count: int, now: float, **named: Any) -> list[Ticket]:
        tickets = [ticket(**named) for _ in range(count)]
        for one in tickets:
            gate.submit(one, now)
        return tickets

    def sent(self, tickets: list[Ticket]) -> int:
        return sum(one.state is TicketState.SENT for one in tickets)


class Room(GateTests):
    """What is in the engine, and what has room in it."""

    def test_burst(self) -> None:
        """A burst of 20 on an idle engine of 4 puts 4 in, parks 16, and 4 stay in to the end."""
        gate = Gate(FOUR)
        poll(gate, IDLE, 0)
        tickets = self.burst(gate, 20, 1)
        self.assertEqual(self.sent(tickets), 4)
        order = tickets[:4]
        for now in range(2, 18):
            oldest = order[now - 2]
            woken = admitted(gate.finished(oldest, now))
            self.assertEqual(len(woken), 1)
            order += woken
            self.assertEqual(self.sent(tickets), 4)
        self.assertEqual(order, tickets)

    def test_cold_start(self) -> None:
        """Before the first answer a burst is held to S by the ledger, under `auto` to 2."""
        for policy, places in ((FOUR, 4), (Policy(), 2)):
            gate = Gate(policy)
            gate.poll_sent(0, 0)
            tickets = self.burst(gate, 20, 0.1)
            self.assertEqual(self.sent(tickets), places)
            self.assertEqual(gate.view(0.1).engines[0].sight, Sight.UNKNOWN)
            gate.poll_failed(0, 5, stale=False)
            self.assertEqual(self.sent(tickets), places)

    def test_lagging_gauges(self) -> None:
        """As vLLM was seen: gauges at 0 for 7 s after a burst, `waiting` for 16 s; 4 stay in."""
        seen = {0: (0, 0), 7.2: (1, 0), 16: (1, 5), 35.8: (2, 4)}
        gate = Gate(FOUR)
        poll(gate, IDLE, -1)
        tickets = self.burst(gate, 6, 0)
        for now in range(0, 60, 2):
            running, waiting = seen[max(t for t in seen if t <= now)]
            # The recording had all six in the engine; the gate let two of them wait here.
            page = Sample(running=running, waiting=max(0, waiting - 2))
            self.assertEqual(poll(gate, page, now + 0.5), [])
            self.assertEqual(self.sent(tickets), 4)
            self.assertEqual(gate.view(now + 0.5).engines[0].in_engine, 4)

    def test_foreign_callers(self) -> None:
        """What the gauges show beyond what was ours takes room; what was ours counts once."""
        gate = Gate(FOUR)
        poll(gate, Sample(running=2, waiting=1), 0)
        tickets = self.burst(gate, 3, 1)
        self.assertEqual(self.sent(tickets), 1)
        self.assertEqual(poll(gate, Sample(running=4, waiting=0), 2), [])
        self.assertEqual(poll(gate, Sample(running=2, waiting=0), 4), tickets[1:])

    def test_most_own_during_the_poll(self) -> None:
        """A ticket that ends between a poll and its answer is not taken for a foreign one."""
        gate = Gate(FOUR)
        one, two = self.burst(gate, 2, 0)
        gate.poll_sent(0, 1)
        gate.finished(one, 1.1)
        (three,) = self.burst(gate, 1, 1.2)
        gate.finished(two, 1.3)
        gate.finished(three, 1.4)
        gate.poll_ok(0, Sample(running=2, waiting=0), 1.5)
        self.assertEqual(gate.view(1.5).engines[0].foreign, 0)
        poll(gate, Sample(running=2, waiting=0), 3)
        self.assertEqual(gate.view(3).engines[0].foreign, 2)

    def test_answer_without_poll(self) -> None:
        """A page of a poll sent before the gate opened takes nothing of ours for foreign."""
        gate = Gate(FOUR)
        self.burst(gate, 3, 0)
        gate.poll_ok(0, Sample(running=3, waiting=0), 1)
        view = gate.view(2).engines[0]
        self.assertEqual((view.foreign, view.sample_age_seconds), (0, 1))

    def test_engine_with_a_queue_only(self) -> None:
        """A kind that publishes only its queue is gated by that and the ledger."""
        gate = Gate(FOUR, learns=False)
        poll(gate, Sample(running=None, waiting=3), 0)
        self.assertEqual(self.sent(self.burst(gate, 3, 1)), 1)

    def test_sequences(self) -> None:
        """A ticket counts its n; one of more than S goes alone."""
        gate = Gate(FOUR)
        three, two, nine = ticket(n=3), ticket(n=2), ticket(n=9)
        self.assertEqual(admitted(gate.submit(three, 0)), [three])
        self.assertEqual(gate.submit(two, 0), [Parked(two)])
        behind = ticket()
        self.assertEqual(gate.submit(behind, 0), [Parked(behind)])
        self.assertEqual(admitted(gate.finished(three, 1)), [two, behind])
        self.assertEqual(gate.submit(nine, 2), [Parked(nine)])
        self.assertEqual(admitted(gate.finished(two, 3)), [])
        self.assertEqual(admitted(gate.finished(behind, 4)), [nine])
        self.assertEqual(gate.view(4).engines[0].own, 9)
        pair, single, last = ticket(n=3), ticket(), ticket()
        for one in (pair, single, last):
            self.assertEqual(gate.submit(one, 5), [Parked(one)])
        self.assertEqual(admitted(gate.finished(nine, 6)), [pair, single])

    def test_clamped(self) -> None:
        """What a client says below the least that is possible counts as the least."""
        odd = ticket(n=-3, prompt_tokens=-5, max_tokens=-1)
        self.assertEqual((odd.n, odd.prompt_tokens, odd.max_tokens), (1, 0, 0))
        gate = Gate(FOUR)
        self.burst(gate, 4, 0)
        hasty = ticket(wait_seconds=float("nan"))
        self.assertEqual(refused(gate.submit(hasty, 0)), [(hasty, Reason.PARK_TIMEOUT)])


class WakeUps(GateTests):
    """Nobody who may go stays parked."""

    def test_own_completion(self) -> None:
        """An end of ours wakes the next at once, whatever the gauges say, and only one."""
        gate = Gate(FOUR)
        poll(gate, IDLE, 0)
        tickets = self.burst(gate, 6, 0)
        poll(gate, Sample(running=4, waiting=0), 2)
        self.assertEqual(gate.finished(tickets[2], 2.1), [Admitted(tickets[4], 0)])
        self.assertEqual(gate.client_gone(tickets[0], 2.2), [Admitted(tickets[5], 0)])
        self.assertEqual(gate.client_gone(tickets[0], 2.3), [])

    def test_leaving_while_parked(self) -> None:
        """A parked client that leaves makes the queue shorter, and lets nobody in."""
        gate = Gate(FOUR)
        tickets = self.burst(gate, 6, 0, body_bytes=10)
        self.assertEqual(gate.client_gone(tickets[4], 1), [])
        view = gate.view(1)
        self.assertEqual((len(view.parked), view.parked_bytes), (1, 10))
        self.assertEqual(admitted(gate.finished(tickets[0], 2)), [tickets[5]])

    def test_leaving_before_submit(self) -> None:
        """A client may leave before its ticket is submitted; that then is illegal."""
        gate = Gate(FOUR)
        early = ticket()
        self.assertEqual(gate.client_gone(early, 0), [])
        self.assertRaises(IllegalCall, gate.submit, early, 0)

    def test_leaving_head(self) -> None:
        """When a head that asks for many leaves, those whom it held up go at once."""
        gate = Gate(FOUR)
        self.burst(gate, 3, 0)
        wide, narrow = ticket(n=3), ticket()
        gate.submit(wide, 1)
        self.assertEqual(gate.submit(narrow, 1), [Parked(narrow)])
        self.assertEqual(gate.client_gone(wide, 2), [Admitted(narrow, 0)])

    def test_refused_newcomer_frees_the_head(self) -> None:
        """When a bound passes with no tick, an event for another ticket still wakes the queue."""
        policy = replace(FOUR, max_queue_depth=1)
        gate = Gate(policy)
        first, *_, batch = (ticket(priority=Priority.BATCH) for _ in range(5))
        gate.submit(first, 0)
        self.burst(gate, 2, 0)
        gate.refused_by_engine(first, 0, connected=True)  # held until 2, room for 2
        gate.submit(batch, 0)
        wide = ticket(n=3)
        decisions = gate.submit(wide, 2)
        self.assertEqual(admitted(decisions), [first])
        self.assertEqual(refused(decisions), [(wide, Reason.QUEUE_FULL)])

    def test_poll_wakes_all(self) -> None:
        """A poll that shows more room wakes as many as have room, in order."""
        gate = Gate(FOUR)
        poll(gate, Sample(running=4, waiting=2), 0)
        tickets = self.burst(gate, 6, 1)
        self.assertEqual(self.sent(tickets), 0)
        self.assertEqual(poll(gate, Sample(running=1, waiting=0), 2), tickets[:3])

    def test_ten_thousand(self) -> None:
        """Ten thousand parked tickets are woken in order by one poll, and leave nothing behind."""
        policy = Policy(max_inflight=20_000, max_queue_depth=20_000)
        gate = Gate(policy)
        poll(gate, Sample(running=20_000, waiting=0), 0)
        tickets = self.burst(gate, 10_000, 1)
        self.assertEqual(poll(gate, IDLE, 2), tickets)
        self.assertIsNone(gate.wake_at())

    def test_no_event_within_an_event(self) -> None:
        """An event that is reported while another is being decided is an error."""
        gate = Gate(FOUR)
        faults: list[str] = []

        class Nosy(Policy):
            @property
            def max_inflight(self) -> int:
                if gate._admitting:
                    try:
                        gate.tick(0)
                    except IllegalCall as fault:
                        faults.append(str(fault))
                return 4

            @max_inflight.setter
            def max_inflight(self, value: object) -> None: ...

        self.burst(gate, 5, 0)
        gate.adopt(Nosy(), 1)
        self.assertTrue(faults)
        self.assertEqual(set(faults), {"an event came while another was being decided"})


class Order(GateTests):
    """Who goes first."""

    def test_classes(self) -> None:
        """Interactive goes before batch; a warm-up only when nothing else is parked."""
        gate = Gate(replace(FOUR, max_inflight=1))
        (first,) = self.burst(gate, 1, 0)
        warmup, batch, late = (
            ticket(priority=p) for p in (Priority.WARMUP, Priority.BATCH, Priority.INTERACTIVE)
        )
        for one in (warmup, batch, late):
            self.assertEqual(gate.submit(one, 1), [Parked(one)])
        self.assertEqual([p.priority for p in gate.view(1).parked], sorted(Priority))
        self.assertEqual(admitted(gate.finished(first, 2)), [late])
        self.assertEqual(admitted(gate.finished(late, 3)), [batch])
        self.assertEqual(admitted(gate.finished(batch, 4)), [warmup])

    def test_warmup_waits_for_held(self) -> None:
        """A warm-up does not pass a ticket that is held, though batch does."""
        gate = Gate(FOUR)
        held, warmup, batch = ticket(), ticket(priority=Priority.WARMUP), None
        gate.submit(held, 0)
        gate.refused_by_engine(held, 1, connected=True)
        self.assertEqual(gate.submit(warmup, 1), [Parked(warmup)])
        batch = ticket(priority=Priority.BATCH)
        self.assertEqual(gate.submit(batch, 1), [Admitted(batch, 0)])
        self.assertEqual(admitted(gate.tick(3)), [held, warmup])

    def test_several_engines(self) -> None:
        """The head goes where most room is, then to fewest own, then to the first."""
        gate = Gate(FOUR, engines=2)
        poll(gate, Sample(running=1, waiting=0), 0, engine=0)
        poll(gate, IDLE, 0, engine=1)
        decisions = [gate.submit(ticket(), 1)[0] for _ in range(8)]
        places = [d.engine for d in decisions if isinstance(d, Admitted)]
        # Rooms: 3:4, 3:3 where 0 has fewest own, 2:3, 2:2 ...
        self.assertEqual(places, [1, 0, 1, 0, 1, 0, 1])
        self.assertIsInstance(decisions[-1], Parked)

    def test_engine_without_a_gate_is_no_sink(self) -> None:
        """An engine that nothing is known of does not draw all requests to itself."""
        gate = Gate(Policy(), engines=2)
        poll(gate, IDLE, 0, engine=0)
        gate.poll_failed(1, 0, stale=True)
        places = [gate.submit(ticket(), 1)[0] for _ in range(5)]
        self.assertEqual([d.engine for d in places if isinstance(d, Admitted)], [0, 1, 0, 1, 1])


class Kv(GateTests):
    """Room in the KV cache."""

    def gate(self, usage: float | None, tokens: int | None, **named: Any) -> Gate:
        gate = Gate(replace(FOUR, **named))
        poll(gate, Sample(running=0, waiting=0, kv_usage=usage, kv_tokens=tokens), 0)
        return gate

    def test_threshold(self) -> None:
        """At the threshold nothing goes, with nothing of ours in the engine either."""
        for usage, places in ((0.9, 0), (0.89, 4), (None, 4)):
            self.assertEqual(self.sent(self.burst(self.gate(usage, None), 5, 1)), places)

    def test_lone_ticket(self) -> None:
        """With nothing of ours in the engine the threshold alone counts, for one ticket."""
        gate = self.gate(0.5, 1000)
        tickets = self.burst(gate, 2, 1, prompt_tokens=5000)
        self.assertEqual(self.sent(tickets), 1)

    def test_unstarted(self) -> None:
        """What was sent and has not started is kept room for: prompt and answer up to 1024."""
        gate = self.gate(0.0, 10_000)
        tickets = self.burst(gate, 4, 1, prompt_tokens=2000, max_tokens=4000)
        self.assertEqual(self.sent(tickets), 3)  # 3 x 3024 <= 9500 < 4 x 3024

    def test_started_by_content(self) -> None:
        """With its first content a ticket counts what it holds, or the gauge if that is more."""
        gate = self.gate(0.0, 10_000)
        one, *_, last = self.burst(gate, 4, 1, prompt_tokens=2000, max_tokens=4000, stream=True)
        one.generated_tokens = 1
        # 2001 + 2 x 3024 + 3024 > 9500
        self.assertEqual(gate.first_content(one, 2), [])
        self.assertEqual(admitted(gate.finished(one, 3)), [last])

    def test_content_counts(self) -> None:
        """What a started ticket has generated so far counts, to the token."""
        for generated, places in ((1500, 1), (1501, 0)):
            gate = self.gate(0.0, 10_000)
            one, *_ = self.burst(gate, 3, 1, prompt_tokens=2000, stream=True)
            gate.first_content(one, 2)
            one.generated_tokens = generated
            self.assertEqual(self.sent(self.burst(gate, 1, 2, prompt_tokens=2000)), places)

    def test_started_by_time(self) -> None:
        """A ticket counts as started when its prefill and a poll must have passed."""
        gate = self.gate(0.0, 10_000)
        tickets = self.burst(gate, 5, 1, prompt_tokens=1050, max_tokens=2000)
        self.assertEqual(self.sent(tickets), 4)
        gate = self.gate(0.0, 10_000, max_inflight=8)
        tickets = self.burst(gate, 5, 1, prompt_tokens=1050, max_tokens=2000)
        self.assertEqual(self.sent(tickets), 4)
        self.assertEqual(gate.wake_at(), 1 + 2 + 2)
        self.assertEqual(gate.tick(4.9), [])
        self.assertEqual(admitted(gate.tick(5)), tickets[4:])  # 4 x 1050 + 2074 <= 9500

    def test_started_by_time_after_a_wake_up(self) -> None:
        """Those who were sent by the same event that left the head behind ease it in time too."""
        gate = self.gate(0.95, 10_000)
        tickets = self.burst(gate, 3, 1, prompt_tokens=3150, max_tokens=2000)
        calm = Sample(running=0, waiting=0, kv_usage=0.0, kv_tokens=10_000)
        self.assertEqual(poll(gate, calm, 2), tickets[:2])
        self.assertEqual(gate.wake_at(), 2 + 6 + 2)
        self.assertEqual(admitted(gate.tick(10)), [])  # 6300 + 4174 > 9500

    def test_gauge_above_own(self) -> None:
        """Where the gauge shows more than ours, the gauge counts."""
        gate = self.gate(0.0, 10_000)
        one, _two = self.burst(gate, 2, 1, prompt_tokens=1000, stream=True)
        gate.first_content(one, 2)
        poll(gate, Sample(running=2, waiting=0, kv_usage=0.75, kv_tokens=10_000), 2)
        big, small = ticket(prompt_tokens=1001), ticket(prompt_tokens=1000)
        self.assertEqual(gate.submit(big, 2), [Parked(big)])  # 7500 + 1000 + 1001
        self.assertEqual(gate.submit(small, 2), [Admitted(small, 0)])

    def test_passing(self) -> None:
        """A head that only KV keeps is passed for 60 s, then by nobody."""
        gate = self.gate(0.0, 10_000, max_inflight=8)
        kept, big = self.burst(gate, 2, 1, prompt_tokens=6000)
        self.assertEqual(big.state, TicketState.PARKED)
        small = self.burst(gate, 1, 2, prompt_tokens=10)
        bigger = self.burst(gate, 1, 3, prompt_tokens=9000)
        small += self.burst(gate, 1, 60.9, prompt_tokens=10)
        self.assertEqual(self.sent(small), 2)
        last = ticket(prompt_tokens=10)
        self.assertEqual(gate.submit(last, 61), [Parked(last)])
        self.assertEqual(admitted(gate.finished(kept, 70)), [big, last])
        self.assertEqual(self.sent(bigger), 0)

    def test_passing_with_two_engines(self) -> None:
        """Where one engine lacks KV, and the other all room, who fits into the one may pass."""
        policy = replace(FOUR, max_inflight=2)
        gate = Gate(policy, engines=2)
        calm = Sample(running=0, waiting=0, kv_usage=0.0, kv_tokens=10_000)
        for engine, sample in enumerate((calm, Sample(running=2, waiting=0))):
            gate.poll_sent(engine, 0)
            gate.poll_ok(engine, sample, 0)
        _kept, big = self.burst(gate, 2, 1, prompt_tokens=6000)
        self.assertEqual(big.state, TicketState.PARKED)
        self.assertEqual(self.sent(self.burst(gate, 1, 2, prompt_tokens=10)), 1)

    def test_passing_begins_anew(self) -> None:
        """A head that went, and was refused by the engine, is again passed for 60 s."""
        gate = self.gate(0.0, 10_000, max_inflight=8)
        kept, big, other = self.burst(gate, 3, 1, prompt_tokens=6000)
        self.assertEqual(admitted(gate.finished(kept, 10)), [big])
        gate.refused_by_engine(big, 20, connected=True)
        self.assertEqual(other.state, TicketState.SENT)
        gate.tick(22)  # the hold is over, and there is no KV
        self.assertEqual(self.sent(self.burst(gate, 1, 81, prompt_tokens=10)), 1)
        self.assertEqual(self.sent(self.burst(gate, 1, 82, prompt_tokens=10)), 0)

    def test_passing_after_a_hold(self) -> None:
        """A small ticket whose hold ends passes a queue that was looked through without it."""
        gate = self.gate(0.0, 10_000)
        (small,) = self.burst(gate, 1, 1, prompt_tokens=10, priority=Priority.BATCH)
        gate.refused_by_engine(small, 1, connected=True)
        self.burst(gate, 3, 1, prompt_tokens=6000)
        self.assertEqual(gate.tick(2), [])
        self.assertEqual(admitted(gate.tick(3)), [small])

    def test_passing_stops_at_no_room(self) -> None:
        """Among those who pass, one that lacks room is itself passed by nobody."""
        gate = self.gate(0.0, 10_000)
        self.burst(gate, 2, 1, prompt_tokens=6000)
        wide, narrow = ticket(n=4), ticket()
        self.assertEqual(gate.submit(wide, 2), [Parked(wide)])
        self.assertEqual(gate.submit(narrow, 2), [Parked(narrow)])

    def test_passing_scans_once(self) -> None:
        """Thousands that lack KV are looked through once, not at every event."""
        gate = self.gate(0.0, 10_000, max_queue_depth=9999)
        self.burst(gate, 1001, 1, prompt_tokens=6000)
        judged: list[Ticket] = []
        choose = Selection._choose

        def watched(one: Selection, ticket: Ticket, **named: Any) -> tuple[Bay | None, Verdict]:
            judged.append(ticket)
            return choose(one, ticket, **named)

        self.patch(Selection, "_choose", watched)
        gate.tick(2)
        self.assertEqual(len(judged), 1)
        (small,) = self.burst(gate, 1, 4, prompt_tokens=10)
        self.assertEqual(len(judged), 1 + 1001)
        gate.tick(5)
        self.assertEqual(len(judged), 1 + 1001 + 1)
        self.assertEqual(small.state, TicketState.SENT)

    def test_warmup_passes_nobody(self) -> None:
        """A warm-up passes no head, also one that only KV keeps."""
        gate = self.gate(0.0, 10_000)
        self.burst(gate, 2, 1, prompt_tokens=6000)
        warmup = ticket(priority=Priority.WARMUP)
        self.assertEqual(gate.submit(warmup, 2), [Parked(warmup)])


class Outages(GateTests):
    """Never an inference outage."""

    def stale(self, policy: Policy, sample: Sample | None, **named: Any) -> Gate:
        gate = Gate(policy, **named)
        if sample is not None:
            poll(gate, sample, 0)
        for now in (2, 4):
            gate.poll_failed(0, now, stale=False)
        gate.poll_failed(0, 6, stale=True)
        return gate

    def test_an_answer_that_breaks_off_holds_the_engine(self) -> None:
        """It may be dying: its place goes to nobody before a good poll."""
        gate = Gate(FOUR)
        poll(gate, Sample(running=0, waiting=0), 0)
        tickets = self.burst(gate, 6, 1)
        self.assertEqual(gate.broken(tickets[0], 2), [])
        self.assertEqual(gate.finished(tickets[0], 2), [])
        self.assertEqual(gate.view(2).engines[0].hold, Hold.REFUSED_CONNECTION)
        self.assertEqual(poll(gate, Sample(running=3, waiting=0), 3), tickets[4:5])

    def test_not_yet_stale(self) -> None:
        """Until the engine is stale its last page counts."""
        gate = Gate(FOUR)
        poll(gate, Sample(running=3, waiting=0), 0)
        gate.poll_failed(0, 2, stale=False)
        self.assertEqual(self.sent(self.burst(gate, 3, 3)), 1)

    def test_open_with_s(self) -> None:
        """Stale and open with a configured S: the ledger alone, at once, KV and others aside."""
        gate = Gate(FOUR)
        poll(gate, Sample(running=4, waiting=9, kv_usage=0.99), 0)
        tickets = self.burst(gate, 6, 1)
        gate.poll_failed(0, 2, stale=False)
        self.assertEqual(admitted(gate.poll_failed(0, 4, stale=True)), tickets[:4])
        self.assertEqual(gate.view(4).engines[0].sight, Sight.LEDGER)
        self.assertEqual(poll(gate, Sample(running=4, waiting=0), 6), [])

    def test_open_learned(self) -> None:
        """Stale and open with a learned S: the ledger alone."""
        gate = self.stale(Policy(), Sample(running=3, waiting=1))
        self.assertEqual(self.sent(self.burst(gate, 6, 7)), 3)

    def test_open_nothing_learned(self) -> None:
        """Stale and open, nothing learned: there is no gate."""
        gate = Gate(Policy())
        tickets = self.burst(gate, 6, 1)
        self.assertEqual(self.sent(tickets), 2)
        self.assertEqual(admitted(gate.poll_failed(0, 2, stale=True)), tickets[2:])
        self.assertEqual(gate.view(2).engines[0].sight, Sight.NO_GATE)

    def test_closed(self) -> None:
        """Stale and closed: everything parks until the gauges can be read again."""
        gate = self.stale(replace(FOUR, when_stale=WhenStale.CLOSED), IDLE)
        (waiter,) = self.burst(gate, 1, 7)
        self.assertEqual(gate.tick(300), [])
        self.assertEqual(gate.view(300).engines[0].hold, Hold.STALE_CLOSED)
        self.assertEqual(poll(gate, IDLE, 301), [waiter])

    def test_hold(self) -> None:
        """Stale and hold: the last page for hold_seconds, then open."""
        gate = self.stale(replace(FOUR, when_stale=WhenStale.HOLD), Sample(running=3, waiting=0))
        tickets = self.burst(gate, 3, 7)
        self.assertEqual(self.sent(tickets), 1)
        self.assertEqual(gate.view(7).engines[0].sight, Sight.HELD)
        gate.poll_failed(0, 8, stale=True)
        self.assertEqual(gate.wake_at(), 6 + 30)
        self.assertEqual(gate.tick(35.9), [])
        self.assertEqual(admitted(gate.tick(36)), tickets[1:])

    def test_hold_without_a_page(self) -> None:
        """Stale and hold with no page ever: open."""
        for limit, places in ((4, 4), (None, 6)):
            policy = Policy(max_inflight=limit, when_stale=WhenStale.HOLD)
            self.assertEqual(self.sent(self.burst(self.stale(policy, None), 6, 7)), places)

    def test_refused_connection(self) -> None:
        """A refused connection holds all until a good poll; the ticket keeps its place."""
        gate = Gate(FOUR)
        poll(gate, IDLE, 0)
        one, two = self.burst(gate, 2, 1)
        self.assertEqual(gate.refused_by_engine(one, 1.1, connected=False), [Parked(one)])
        self.assertEqual(gate.view(2).engines[0].hold, Hold.REFUSED_CONNECTION)
        self.assertEqual(gate.refused_by_engine(two, 1.2, connected=False), [Parked(two)])
        (three,) = self.burst(gate, 1, 1.3)
        self.assertEqual(gate.tick(100), [])
        self.assertEqual(poll(gate, IDLE, 101), [one, two, three])

    def test_probes_while_polls_fail(self) -> None:
        """While polls fail, one ticket goes every poll_seconds to try; content ends the hold."""
        gate = Gate(FOUR)
        tickets = self.burst(gate, 3, 0)
        for one in tickets:
            gate.refused_by_engine(one, 0.5, connected=False)
        self.assertEqual(gate.tick(2.5), [])  # the first poll has not come back yet
        gate.poll_failed(0, 2.5, stale=False)
        self.assertEqual(tickets[0].state, TicketState.SENT)
        self.assertEqual(gate.wake_at(), 4.5)
        self.assertEqual(
            gate.refused_by_engine(tickets[0], 2.6, connected=False), [Parked(tickets[0])]
        )
        self.assertEqual(gate.tick(4.4), [])
        self.assertEqual(admitted(gate.tick(4.5)), tickets[:1])
        self.assertEqual(admitted(gate.first_content(tickets[0], 5)), tickets[1:])
        self.assertIsNone(gate.view(5).engines[0].hold)

    def test_probes_where_nothing_is_observed(self) -> None:
        """An engine that is not polled is tried every poll_seconds; an answer ends the hold."""
        gate = Gate(FOUR, observed=False)
        one, two = self.burst(gate, 2, 1)
        gate.refused_by_engine(one, 1, connected=False)
        (three,) = self.burst(gate, 1, 1.5)
        self.assertEqual(gate.finished(two, 2), [])  # sent before the refusal: proves nothing
        self.assertEqual(gate.wake_at(), 3)
        self.assertEqual(admitted(gate.tick(3)), [one])
        self.assertEqual(gate.wake_at(), 5)
        self.assertEqual(admitted(gate.finished(one, 3.5)), [three])

    def test_probe_leaves(self) -> None:
        """A probe whose client leaves proves nothing; the next one goes in its time."""
        gate = Gate(FOUR, observed=False)
        one, two = self.burst(gate, 2, 0)
        gate.refused_by_engine(one, 1, connected=False)
        gate.refused_by_engine(two, 1, connected=False)
        gate.tick(3)
        self.assertEqual(gate.client_gone(one, 3.5), [])
        self.assertEqual(admitted(gate.tick(5)), [two])

    def test_no_probe_while_closed(self) -> None:
        """Where `closed` parks, a refused connection is not tried either."""
        gate = Gate(replace(FOUR, when_stale=WhenStale.CLOSED))
        (one,) = self.burst(gate, 1, 0)
        gate.refused_by_engine(one, 1, connected=False)
        self.assertEqual(gate.poll_failed(0, 5, stale=True), [])
        self.assertEqual(gate.tick(60), [])

    def test_healthy_engine_before_probe(self) -> None:
        """A ticket whose connection one engine refused goes to another at once."""
        gate = Gate(FOUR, engines=2, observed=False)
        (one,) = self.burst(gate, 1, 0)
        self.assertEqual(gate.refused_by_engine(one, 1, connected=False), [Admitted(one, 1)])
        others = self.burst(gate, 4, 4)
        self.assertEqual([t.engine for t in others], [1, 1, 1, 0])

    def test_frozen_page(self) -> None:
        """A page that has not changed for 60 s, with nothing of ours in there, lets one try."""
        full = Sample(running=4, waiting=2, kv_usage=0.95)
        gate = Gate(FOUR)
        poll(gate, full, 0)
        tickets = self.burst(gate, 2, 10)
        self.assertEqual(gate.wake_at(), 70)
        still = replace(full, changed=False)
        self.assertEqual(poll(gate, still, 69), [])
        self.assertEqual(poll(gate, still, 71), tickets[:1])
        self.assertEqual(poll(gate, still, 200), [])  # something of ours is in the engine
        self.assertEqual(gate.finished(tickets[0], 201), [])
        self.assertEqual(admitted(gate.tick(260)), [])
        self.assertEqual(admitted(gate.tick(261)), tickets[1:])

    def test_frozen_page_shuts_out_nobody(self) -> None:
        """The minute begins anew when nobody is left whom the page shuts out."""
        gate = Gate(FOUR)
        poll(gate, Sample(running=4, waiting=2), 0)
        (one,) = self.burst(gate, 1, 10)
        gate.client_gone(one, 60)
        (two,) = self.burst(gate, 1, 80)
        self.assertEqual(two.state, TicketState.PARKED)
        self.assertEqual(gate.wake_at(), 140)

    def test_changing_page(self) -> None:
        """A page that changes is alive, and is believed."""
        gate = Gate(FOUR)
        poll(gate, Sample(running=4, waiting=2), 0)
        self.burst(gate, 2, 10)
        for now in range(12, 300, 50):
            self.assertEqual(poll(gate, Sample(running=4, waiting=2), now), [])

    def test_frozen_page_while_closed(self) -> None:
        """A page that froze before the engine went stale does not try a closed gate."""
        gate = Gate(replace(FOUR, when_stale=WhenStale.CLOSED))
        poll(gate, Sample(running=4, waiting=2), 0)
        self.burst(gate, 1, 1)
        self.assertEqual(gate.poll_failed(0, 62, stale=True), [])


class EngineRefusals(GateTests):
    """The engine's own refusal, before any byte to the client."""

    def test_ladder(self) -> None:
        """It parks again and is held 1, 2, 4, 8, 16 polls; the sixth refusal is passed on."""
        gate = Gate(FOUR)
        (one,) = self.burst(gate, 1, 0)
        now = 0.0
        for polls in (1, 2, 4, 8, 16):
            self.assertEqual(gate.refused_by_engine(one, now, connected=True), [Parked(one)])
            now += polls * FOUR.poll_seconds
            self.assertEqual(gate.wake_at(), now)
            self.assertEqual(gate.tick(now - 0.1), [])
            self.assertEqual(admitted(gate.tick(now)), [one])
        self.assertEqual(gate.refused_by_engine(one, now, connected=True), [Passed(one)])
        self.assertEqual(one.state, TicketState.DONE)

    def test_old_place(self) -> None:
        """Others pass a held ticket; afterwards it has its old place and budget."""
        gate = Gate(replace(FOUR, max_inflight=1))
        one, two, three = self.burst(gate, 3, 0)
        self.assertEqual(
            gate.refused_by_engine(one, 1, connected=True), [Admitted(two, 0), Parked(one)]
        )
        view = gate.view(2).parked[0]
        self.assertEqual((view.waited_seconds, view.reparked, view.held), (2, True, True))
        self.assertEqual(gate.tick(3), [])
        self.assertEqual(admitted(gate.finished(two, 4)), [one])
        gate.refused_by_engine(one, 5, connected=True)
        self.assertEqual(three.state, TicketState.SENT)
        self.assertEqual(refused(gate.tick(540)), [(one, Reason.PARK_TIMEOUT)])

    def test_budget(self) -> None:
        """Without patience, or with the budget spent, the engine's own answer is passed on."""
        gate = Gate(FOUR)
        for connected in (True, False):
            hasty = ticket(wait_seconds=0)
            self.assertEqual(gate.submit(hasty, 0), [Admitted(hasty, 0)])
            decisions = gate.refused_by_engine(hasty, 0, connected=connected)
            self.assertEqual(decisions, [Passed(hasty)])
        poll(gate, IDLE, 0)
        (late,) = self.burst(gate, 1, 0)
        self.assertEqual(gate.refused_by_engine(late, 540, connected=True), [Passed(late)])

    def test_no_connection_counts_for_nothing(self) -> None:
        """An engine that is starting refuses connections for minutes; the ticket lives on."""
        gate = Gate(FOUR, observed=False)
        (one,) = self.burst(gate, 1, 0)
        for now in range(0, 400, 2):
            self.assertEqual(gate.refused_by_engine(one, now, connected=False), [Parked(one)])
            self.assertEqual(admitted(gate.tick(now + 2)), [one])
        self.assertLess(len(gate._queue._bounds._heap), 100)

    def test_bounds_do_not_touch_it(self) -> None:
        """A ticket that parks again is refused neither for number nor for bytes."""
        gate = Gate(replace(FOUR, max_inflight=1, max_queue_depth=0, parked_bytes=1))
        (one,) = self.burst(gate, 1, 0, body_bytes=100)
        self.assertEqual(gate.refused_by_engine(one, 1, connected=True), [Parked(one)])

    def test_not_after_content(self) -> None:
        """An engine cannot refuse what it has begun to answer."""
        gate = Gate(FOUR)
        (one,) = self.burst(gate, 1, 0)
        gate.first_content(one, 1)
        self.assertRaises(IllegalCall, gate.refused_by_engine, one, 2, connected=True)
        self.assertEqual(gate.view(2).engines[0].own, 1)


class Bounds(GateTests):
    """How many may park, and how long."""

    def full(self, **named: Any) -> Gate:
        gate = Gate(replace(FOUR, **named))
        self.burst(gate, 4, 0)
        return gate

    def test_park_timeout(self) -> None:
        """Parking ends at the lesser of the model's bound and the client's own."""
        gate = self.full()
        for policy, wait, until in (
            (FOUR, None, 540),
            (FOUR, 7, 7),
            (FOUR, 9999, 540),
            (replace(FOUR, max_park_seconds=3), 7, 3),
        ):
            one = ticket(policy, wait_seconds=wait)
            self.assertEqual(gate.submit(one, 0), [Parked(one)])
            self.assertEqual(gate.wake_at(), until)
            self.assertEqual(gate.tick(until - 0.1), [])
            (decision,) = gate.tick(until)
            assert isinstance(decision, Refused)
            self.assertEqual(decision.reason, Reason.PARK_TIMEOUT)
            self.assertEqual(decision.waited_seconds, until)
            self.assertEqual((decision.seen.in_engine, decision.seen.max_inflight), (4, 4))
        self.assertIsNone(gate.wake_at())

    def test_wait_0(self) -> None:
        """`wait=0` goes at once or fails fast, before any other bound."""
        gate = self.full(max_queue_depth=0)
        one = ticket(wait_seconds=0)
        self.assertEqual(refused(gate.submit(one, 1)), [(one, Reason.PARK_TIMEOUT)])
        self.assertIsInstance(Gate(FOUR).submit(ticket(wait_seconds=0), 1)[0], Admitted)

    def test_queue_depth(self) -> None:
        """The newcomer that makes the queue longer than its bound is refused."""
        gate = self.full(max_queue_depth=2)
        self.assertEqual(len(self.burst(gate, 2, 1)), 2)
        one = ticket()
        self.assertEqual(refused(gate.submit(one, 1)), [(one, Reason.QUEUE_FULL)])
        self.assertEqual(len(gate.view(1).parked), 2)

    def test_parked_bytes(self) -> None:
        """So is one that makes it heavier than its bound, unless it is alone."""
        gate = self.full(parked_bytes=100)
        heavy, light = ticket(body_bytes=500), ticket(body_bytes=1)
        self.assertEqual(gate.submit(heavy, 1), [Parked(heavy)])
        self.assertEqual(refused(gate.submit(light, 1)), [(light, Reason.QUEUE_FULL)])
        gate.client_gone(heavy, 2)
        fits = [ticket(body_bytes=50), ticket(body_bytes=50)]
        for one in fits:
            self.assertEqual(gate.submit(one, 2), [Parked(one)])
        self.assertEqual(gate.view(2).parked_bytes, 100)

    def test_expiry_frees_those_behind(self) -> None:
        """When the head's parking ends, those whom it held up go in the same tick."""
        gate = Gate(FOUR)
        self.burst(gate, 3, 0)
        wide = ticket(n=2, wait_seconds=5)
        gate.submit(wide, 0)
        (narrow,) = self.burst(gate, 1, 0)
        decisions = gate.tick(5)
        self.assertEqual(refused(decisions), [(wide, Reason.PARK_TIMEOUT)])
        self.assertEqual(admitted(decisions), [narrow])


class Shutdown(GateTests):
    """Draining, and the end of it."""

    def test_stop(self) -> None:
        """Parked tickets without a status are refused, newcomers too; the others keep place."""
        gate = Gate(FOUR)
        tickets = self.burst(gate, 7, 0)
        tickets[5].head_sent = True
        self.assertEqual(
            refused(gate.stop(1)), [(one, Reason.DRAINING) for one in (tickets[4], tickets[6])]
        )
        self.assertTrue(gate.view(1).draining)
        late = ticket()
        self.assertEqual(refused(gate.submit(late, 2)), [(late, Reason.DRAINING)])
        self.assertEqual(admitted(gate.finished(tickets[0], 3)), [tickets[5]])
        self.assertEqual(
            refused(gate.refused_by_engine(tickets[1], 4, connected=True)),
            [(tickets[1], Reason.DRAINING)],
        )
        decisions = gate.refused_by_engine(tickets[5], 5, connected=True)
        self.assertEqual(decisions, [Parked(tickets[5])])

    def test_close(self) -> None:
        """At the end everything parked is refused, and what would park again."""
        gate = Gate(FOUR)
        tickets = self.burst(gate, 5, 0)
        for one in tickets:
            one.head_sent = True
        self.assertEqual(gate.stop(1), [])
        self.assertEqual(refused(gate.close(2)), [(tickets[4], Reason.DRAINING)])
        decisions = gate.refused_by_engine(tickets[0], 3, connected=False)
        self.assertEqual(refused(decisions), [(tickets[0], Reason.DRAINING)])


class Reload(GateTests):
    """A new policy."""

    def test_adopt(self) -> None:
        """More places wake the queue; fewer disturb nobody, and nor does a shorter queue."""
        gate = Gate(FOUR)
        tickets = self.burst(gate, 9, 0)
        self.assertEqual(admitted(gate.adopt(replace(FOUR, max_inflight=6), 1)), tickets[4:6])
        self.assertEqual(gate.adopt(replace(FOUR, max_inflight=1, max_queue_depth=1), 2), [])
        self.assertEqual(self.sent(tickets), 6)
        self.assertEqual(len(gate.view(2).parked), 3)

    def test_adopt_impossible(self) -> None:
        """A policy without S is refused where S cannot be learned; the old one stays."""
        self.assertRaises(ValueError, Gate, Policy(), learns=False)
        self.assertRaises(ValueError, Gate, Policy(), observed=False)
        self.assertRaises(ValueError, Gate, FOUR, engines=0)
        gate = Gate(FOUR, learns=False)
        self.assertRaises(ValueError, gate.adopt, Policy(), 1)
        self.assertEqual(gate.view(1).engines[0].max_inflight, 4)


class Auto(GateTests):
    """S, learned."""

    def limit(self, gate: Gate) -> tuple[int, bool]:
        view = gate.view(0).engines[0]
        return view.max_inflight, view.learned

    def test_doubles_and_is_shown(self) -> None:
        """It starts at 2, doubles while requests park and nothing waits, and falls when shown."""
        gate = Gate(Policy())
        poll(gate, IDLE, 0)
        self.assertEqual(self.limit(gate), (2, False))
        tickets = self.burst(gate, 20, 1, stream=True)
        self.assertEqual(len(poll(gate, Sample(running=2, waiting=0), 2)), 2)
        self.assertEqual(poll(gate, Sample(running=2, waiting=0), 4), [])
        self.assertEqual(len(poll(gate, Sample(running=4, waiting=0), 6)), 4)
        self.assertEqual(self.limit(gate), (8, True))
        lagging = Sample(running=6, waiting=2)
        poll(gate, lagging, 8)
        self.assertEqual(self.limit(gate), (8, True))
        for one in tickets[:6]:
            gate.first_content(one, 9)
        poll(gate, replace(lagging, kv_usage=0.86), 10)
        self.assertEqual(self.limit(gate), (8, True))
        poll(gate, replace(lagging, kv_usage=0.85), 12)
        self.assertEqual(self.limit(gate), (6, True))
        poll(gate, Sample(running=6, waiting=0), 14)
        self.assertEqual(self.limit(gate), (6, True))  # shown: no more doubling
        self.assertEqual(self.sent(tickets), 8)

    def test_shown_is_contradicted(self) -> None:
        """A shown S doubles again only when `running` goes above it, and with requests parked."""
        gate = Gate(Policy())
        poll(gate, Sample(running=2, waiting=1), 0)
        poll(gate, Sample(running=3, waiting=0), 2)
        self.assertEqual(self.limit(gate), (2, True))
        self.burst(gate, 1, 3)
        poll(gate, Sample(running=3, waiting=0), 4)
        self.assertEqual(self.limit(gate), (4, True))
        poll(gate, Sample(running=4, waiting=0), 6)
        self.assertEqual(self.limit(gate), (4, True))  # nothing was parked any more
        self.burst(gate, 4, 7)
        poll(gate, Sample(running=5, waiting=0), 8)
        self.assertEqual(self.limit(gate), (8, True))

    def test_no_longer_shown(self) -> None:
        """Once `running` has gone above a shown S, S doubles until it is shown again."""
        gate = Gate(Policy())
        poll(gate, Sample(running=2, waiting=1), 0)
        self.burst(gate, 9, 1)
        for running, limit in ((3, 4), (4, 8), (8, 16)):
            poll(gate, Sample(running=running, waiting=0), 2)
            self.assertEqual(self.limit(gate), (limit, True))
            self.burst(gate, 9, 3)

    def test_content_during_the_poll(self) -> None:
        """A page does not count if too many awaited content at any time while it was fetched."""
        gate = Gate(Policy())
        tickets = self.burst(gate, 2, 0, stream=True)
        gate.poll_sent(0, 1)
        for one in tickets:
            gate.first_content(one, 1.1)
        gate.poll_ok(0, Sample(running=1, waiting=1), 1.2)
        self.assertEqual(self.limit(gate), (2, False))
        for one in tickets:
            gate.finished(one, 2)
        self.assertEqual(self.sent(self.burst(gate, 1, 2, n=2)), 1)
        poll(gate, Sample(running=1, waiting=1), 3)
        self.assertEqual(self.limit(gate), (2, False))

    def test_raised_by_a_page_that_does_not_count(self) -> None:
        """While own tickets await content a page raises S, and lowers nothing."""
        gate = Gate(Policy())
        self.burst(gate, 2, 0)
        poll(gate, Sample(running=1, waiting=1), 1)
        self.assertEqual(self.limit(gate), (2, False))
        poll(gate, Sample(running=5, waiting=1), 2)
        self.assertEqual(self.limit(gate), (5, True))

    def test_at_least_one(self) -> None:
        """S is never below 1, and a page without `running` teaches nothing."""
        gate = Gate(Policy())
        poll(gate, Sample(running=None, waiting=5), 0)
        self.assertEqual(self.limit(gate), (2, False))
        poll(gate, Sample(running=0, waiting=5), 2)
        self.assertEqual(self.limit(gate), (1, True))

    def test_silent_answers_await_to_their_end(self) -> None:
        """An answer that is no stream awaits its content to its end, first byte or not."""
        for stream, limit in ((False, 2), (True, 1)):
            gate = Gate(Policy())
            tickets = self.burst(gate, 2, 0, stream=stream)
            for one in tickets:
                gate.first_content(one, 1)
                gate.first_content(one, 1.5)
            poll(gate, Sample(running=1, waiting=1), 2)
            self.assertEqual(self.limit(gate)[0], limit)
            for one in tickets:
                gate.finished(one, 3)
            poll(gate, Sample(running=1, waiting=1), 4)
            self.assertEqual(self.limit(gate)[0], 1)

    def test_drift(self) -> None:
        """Pages that count show when a configured S is too high or too low; others are silent."""
        gate = Gate(FOUR)
        for page, drift in (
            (Sample(running=4, waiting=2), False),
            (Sample(running=3, waiting=2), True),
            (Sample(running=3, waiting=2, kv_usage=0.9), True),
            (Sample(running=4, waiting=0, kv_usage=0.9), True),
            (Sample(running=4, waiting=0), False),
            (Sample(running=5, waiting=0), True),
            (IDLE, False),
            (Sample(running=None, waiting=3), False),
            (Sample(running=5, waiting=0), True),
        ):
            poll(gate, page, 0)
            self.assertEqual(gate.view(0).engines[0].drift, drift, page)
        gate.adopt(replace(FOUR, kv_threshold=0.5), 1)
        self.assertTrue(gate.view(1).engines[0].drift)
        gate.adopt(Policy(), 2)
        self.assertFalse(gate.view(2).engines[0].drift)


class Views(GateTests):
    """What is told about it."""

    def test_view(self) -> None:
        """The view has engines, the queue in order, and totals per model."""
        gate = Gate(replace(FOUR, max_inflight=1))
        empty = gate.view(0).engines[0]
        self.assertEqual(
            (empty.running, empty.waiting, empty.kv_usage, empty.sample_age_seconds),
            (None, None, None, None),
        )
        gate.poll_sent(0, 1)
        gate.poll_ok(0, Sample(running=1, waiting=2, kv_usage=0.5, kv_tokens=9), 2)
        gate.submit(Ticket(model="b", policy=FOUR, stream=True, prompt_tokens=7, body_bytes=3), 3)
        view = gate.view(5)
        engine = view.engines[0]
        self.assertEqual(
            (engine.running, engine.waiting, engine.kv_usage, engine.kv_tokens), (1, 2, 0.5, 9)
        )
        self.assertEqual((engine.foreign, engine.in_engine, engine.sample_age_seconds), (3, 3, 4))
        self.assertEqual((engine.stale, engine.hold, engine.learned), (False, None, False))
        (parked,) = view.parked
        self.assertEqual((parked.position, parked.model, parked.waited_seconds), (1, "b", 2))
        self.assertEqual((parked.stream, parked.prompt_tokens), (True, 7))
        self.assertEqual(view.models, {"b": ModelTotals(parked=1, parked_bytes=3)})
        poll(gate, IDLE, 6)
        self.assertEqual(gate.view(6).models, {"b": ModelTotals(in_flight=1)})

    def test_one_order(self) -> None:
        """Whoever is shown, the queue is put in order once, and those held are in it."""
        gate = Gate(replace(FOUR, max_inflight=1))
        sent, *parked = self.burst(gate, 4, 0)
        gate.refused_by_engine(sent, 1, connected=True)
        line, asked = gate._queue.line, []
        ranks = line.ranks

        def counted(now: float) -> Any:
            asked.append(now)
            return ranks(now)

        self.patch(line, "ranks", counted)
        view = gate.view(2, most_parked=2)
        self.assertEqual([one.held for one in view.parked], [True, False])
        self.assertEqual([one.position for one in view.parked], [1, 2])
        self.assertEqual(len(asked), 1)
        whole = gate.view(2)
        self.assertEqual(whole.parked[:2], view.parked)
        # For the one that is held another has gone.
        self.assertEqual(len(whole.parked), len(parked))


class Legality(GateTests):
    """What cannot have happened changes nothing."""

    def test_wrong_state(self) -> None:
        """Events that a ticket's state forbids are errors, whatever they are."""
        gate = Gate(replace(FOUR, max_inflight=1))
        sent, parked = self.burst(gate, 2, 0)
        new, done = ticket(), ticket()
        gate.client_gone(done, 0)
        for one in (new, parked, done):
            self.assertRaises(IllegalCall, gate.finished, one, 1)
            self.assertRaises(IllegalCall, gate.first_content, one, 1)
            self.assertRaises(IllegalCall, gate.refused_by_engine, one, 1, connected=True)
        for one in (sent, parked, done):
            self.assertRaises(IllegalCall, gate.submit, one, 1)
        self.assertEqual((gate.view(1).engines[0].own, len(gate.view(1).parked)), (1, 1))

    def test_other_gate(self) -> None:
        """A ticket belongs to one gate."""
        gate, other = Gate(replace(FOUR, max_inflight=1)), Gate(FOUR)
        sent, parked = self.burst(gate, 2, 0)
        self.assertRaises(IllegalCall, other.finished, sent, 1)
        self.assertRaises(IllegalCall, other.client_gone, sent, 1)
        self.assertRaises(IllegalCall, other.client_gone, parked, 1)
        self.assertEqual(admitted(gate.finished(sent, 2)), [parked])

    def test_polls_of_nobody(self) -> None:
        """A poll of an engine that is not there, or not observed, is an error."""
        for gate, engine in ((Gate(FOUR), 1), (Gate(FOUR), -1), (Gate(FOUR, observed=False), 0)):
            self.assertRaises(IllegalCall, gate.poll_sent, engine, 0)
            self.assertRaises(IllegalCall, gate.poll_ok, engine, IDLE, 0)
            self.assertRaises(IllegalCall, gate.poll_failed, engine, 0, stale=True)


class Lines(GateTests):
    """Where parked tickets stand."""

    def numbered(self, *sequences: int) -> list[Ticket]:
        tickets = [ticket() for _ in sequences]
        for one, sequence in zip(tickets, sequences, strict=True):
            one.sequence = sequence
        return tickets

    def test_agenda_forgets(self) -> None:
        """Tickets that have left do not pile up, and a re-entered one has its new number only."""
        agenda = Agenda()
        stays, *rest = self.numbered(*range(1000))
        agenda.push(0.5, stays)
        for one in rest:
            agenda.push(9, one)
            agenda.pop(one)
        self.assertLess(len(agenda._heap), 80)
        self.assertEqual((list(agenda), len(agenda), agenda.least()), ([stays], 1, 0.5))
        other = rest[0]
        agenda.push(0.1, other)
        agenda.pop(other)
        agenda.push(2, other)
        self.assertEqual(agenda.due(1), stays)
        self.assertIsNone(agenda.due(1))
        self.assertEqual(agenda.due(2), other)
        self.assertIsNone(agenda.least())
        for one in rest:
            agenda.push(3, one)
        for one in rest[1:]:
            agenda.pop(one)
        self.assertEqual(agenda.first(), rest[0])
        self.assertLess(len(agenda._heap), 80)

    def test_line(self) -> None:
        """A ticket that returns stands where its arrival puts it, and may leave from there."""
        line = FifoLine()
        tickets = self.numbered(1, 2, 3, 4)
        for one in (tickets[1], tickets[3]):
            line.append(one)
        for one in (tickets[2], tickets[0]):
            line.restore(one)
        self.assertEqual((list(line), len(line)), (tickets, 4))
        for index in (1, 0, 3, 2):
            line.remove(tickets[index])
            line.remove(tickets[index])
        self.assertEqual((list(line), len(line), line.first(0)), ([], 0, None))


class Estimates(TestCase):
    """Tokens and seconds, told beforehand."""

    def test_prompt(self) -> None:
        """A prompt has a token for every four bytes begun, at most what the engine can take."""
        self.assertEqual([estimate.prompt_tokens(n) for n in (0, 1, 4, 5)], [0, 1, 1, 2])
        self.assertEqual(estimate.prompt_tokens(40_000, 8192), 8192)
        self.assertEqual(estimate.prompt_tokens(400, 8192), 100)

    def test_kv(self) -> None:
        """Of an answer at most 1024 tokens are kept room for."""
        self.assertEqual(estimate.kv_tokens_needed(10, 512), 522)
        self.assertEqual(estimate.kv_tokens_needed(10, 5000), 1034)
