"""What replicas make of what they tell each other, rule by rule."""

from __future__ import annotations

from collections.abc import Mapping

from tests.support import TestCase
from twisted_gateway.core.decision import Admitted
from twisted_gateway.core.gate import Gate
from twisted_gateway.core.ledger import Ledger
from twisted_gateway.core.peers import GateReport, HeadView, Peers
from twisted_gateway.core.peerwire import PeerView, read_view, render_view
from twisted_gateway.core.policy import Ordering, Policy, Replicas
from twisted_gateway.core.quota import Quota
from twisted_gateway.core.sample import Sample
from twisted_gateway.core.ticket import Priority, Ticket, TicketState

ASKED = Replicas(addresses=(("10.0.0.1", 8081), ("10.0.0.2", 8081)))


def head(
    age: float = 1.0,
    *,
    cost: float = 1.0,
    tenant: str = "aa",
    priority: Priority = Priority.INTERACTIVE,
) -> HeadView:
    return HeadView(age_seconds=age, cost_seconds=cost, tenant=tenant, priority=priority)


def holding(count: int, *, first: HeadView | None = None, lane: float = 0.0) -> GateReport:
    return GateReport(in_flight=(count,), long_prefill_seconds=(lane,), head=first)


class Silence(TestCase):
    """What a peer that does not answer counts as."""

    def heard(self, *views: Mapping[str, GateReport | None]) -> Peers:
        peers = Peers()
        for view in views:
            peers.heard(view, 0.0)
        return peers

    def test_ages(self) -> None:
        """It counts with what it said for 2 s, with a share for 30 s more, then as nothing."""
        for at, held in ((0.0, [7]), (1.9, [7]), (2.1, [4]), (31.9, [4]), (32.0, [])):
            peers = self.heard({"b": holding(7)})
            self.assertEqual(peers.held(0, 9, at), held, f"after {at} s")

    def test_goes_on_being_asked(self) -> None:
        """One that is asked in every round and never answers comes to count as nothing for good."""
        peers = self.heard({"b": holding(7)})
        for quarter in range(1, 4 * 120):
            peers.heard({"b": None}, quarter / 4)
            if quarter >= 4 * 32:
                self.assertEqual(peers.held(0, 9, quarter / 4), [], f"after {quarter / 4} s")
                self.assertEqual(peers.counted(quarter / 4), 0)

    def test_never_answered(self) -> None:
        """One that never answered counts as one that was heard when it was first asked."""
        peers = self.heard({"b": None})
        for quarter in range(4 * 40):
            now = quarter / 4 + 0.1
            peers.heard({"b": None}, now)
            expected = [0] if now < 2 else [4] if now < 32 else []
            self.assertEqual(peers.held(0, 9, now), expected, f"after {now} s")

    def test_returns(self) -> None:
        """One that answers again counts with what it says."""
        peers = self.heard({"b": holding(7)})
        peers.heard({"b": None}, 40.0)
        peers.heard({"b": holding(3)}, 41.0)
        self.assertEqual(peers.held(0, 9, 41.0), [3])

    def test_share_is_at_least_one(self) -> None:
        """The share of a silent one is S // N, and never less than 1."""
        peers = self.heard({"b": holding(0), "c": holding(0), "d": holding(0)})
        self.assertEqual(peers.held(0, 3, 5.0), [1, 1, 1])
        self.assertEqual(peers.held(0, 9, 5.0), [2, 2, 2])

    def test_left_out(self) -> None:
        """One that a round does not name is one that did not answer."""
        peers = self.heard({"b": holding(7), "c": holding(1)})
        peers.heard({"c": holding(2)}, 1.0)
        self.assertEqual(peers.held(0, 9, 1.0), [7, 2])
        self.assertEqual(peers.held(0, 9, 2.5), [3, 2])

    def test_engines(self) -> None:
        """Each engine's own figures count; an engine that a peer does not tell of holds nothing."""
        peers = self.heard({"b": GateReport(in_flight=(3, 5))})
        self.assertEqual([peers.held(engine, 9, 0.0) for engine in range(3)], [[3], [5], [0]])

    def test_next_change(self) -> None:
        """It says when silence alone will change something."""
        peers = self.heard({"b": holding(7)})
        self.assertEqual(peers.next_change(0.0), 2.0)
        self.assertEqual(peers.next_change(2.0), 32.0)
        self.assertIsNone(Peers().next_change(0.0))

    def test_long_prefill(self) -> None:
        """A long prefill is believed for as long as was told, and not of one that is silent."""
        peers = self.heard({"b": holding(1, lane=1.5), "c": holding(1)})
        self.assertEqual(peers.long_until(0, 1.0), 1.5)
        self.assertIsNone(peers.long_until(0, 1.5))
        peers = self.heard({"b": holding(1, lane=300.0)})
        self.assertEqual(peers.long_until(0, 1.9), 300.0)
        self.assertIsNone(peers.long_until(0, 2.1))

    def test_use(self) -> None:
        """What tenants have used adds up; one that nobody tells of has used nothing."""
        peers = self.heard({"b": GateReport(use={"aa": 3.0}), "c": GateReport(use={"aa": 4.0})})
        self.assertEqual([peers.use(tenant, 0.0) for tenant in ("aa", "bb")], [7.0, 0.0])


class BetterHeads(TestCase):
    """A peer's head that goes before ours."""

    def setUp(self) -> None:
        super().setUp()
        self.peers = Peers()

    def tell(self, now: float, first: HeadView | None) -> None:
        self.peers.heard({"b": holding(1, first=first)}, now)

    def better(self, now: float, *, room: bool = True) -> int:
        return self.peers.better(
            lambda view, age: view.priority is Priority.INTERACTIVE, now, room=room
        )

    def test_passed_over(self) -> None:
        """It is waited for, for 2 s."""
        for quarter in range(12):
            now = quarter / 4
            self.tell(now, head(1.0 + now))
            self.assertEqual(self.better(now), int(now < 2.0), f"after {now} s")

    def test_no_room(self) -> None:
        """The 2 s begin when there is room for it."""
        for quarter in range(40):
            now = quarter / 4
            self.tell(now, head(1.0 + now))
            self.assertEqual(self.better(now, room=now > 5), int(now < 7), f"after {now} s")

    def test_taking(self) -> None:
        """One that takes places is waited for anew; one that does not is not, head after head."""
        for held, waited_for in ((2, 1), (1, 0), (0, 0)):
            self.peers = Peers()
            self.tell(0.0, head(1.0))
            self.better(0.0)
            self.peers.heard({"b": holding(held, first=head(9.0))}, 2.0)
            self.assertEqual(self.better(2.0), waited_for, f"{held} held")

    def test_none(self) -> None:
        """A peer without a head, or with a worse one, is not waited for."""
        self.tell(0.0, None)
        self.assertEqual(self.better(0.0), 0)
        self.tell(0.1, head(priority=Priority.BATCH))
        self.assertEqual(self.better(0.1), 0)

    def test_better_again(self) -> None:
        """A head that has not been better meanwhile is waited for anew."""
        self.tell(0.0, head(1.0))
        self.better(0.0)
        self.tell(1.5, head(2.5))
        self.peers.better(lambda view, age: False, 1.5, room=True)
        self.tell(3.0, head(4.0))
        self.assertEqual(self.better(3.0), 1)

    def test_silent(self) -> None:
        """The head of a peer that has been silent for 2 s is not waited for."""
        self.tell(0.0, head())
        self.assertEqual(self.better(2.1), 0)

    def test_age(self) -> None:
        """It is told how long ago a head was heard of."""
        self.tell(0.0, head(3.0))
        for age in (0.5, 0.6):
            found = self.peers.better(
                lambda view, ago: view.age_seconds + ago >= 3.6, age, room=True
            )
            self.assertEqual(found, int(age == 0.6))


class Quotas(TestCase):
    """What a replica may take."""

    def quota(self, replicas: int) -> Quota:
        quota = Quota()
        quota.replicas, quota.asked = replicas, True
        return quota

    def may(
        self,
        quota: Quota,
        *,
        limit: int = 100,
        own: int = 1,
        peers: int = 0,
        others: int = 0,
        now: float = 0.0,
        replicas: Replicas = ASKED,
    ) -> int:
        return quota.room(replicas, limit=limit, own=own, peers=peers, others=others, now=now)

    def granted(self, room: int, *, count: int = 4, better: int = 0, wanted: int = 1) -> int:
        quota = self.quota(count)
        quota.grant(room, better, wanted, 0.0, own=1, current=True)
        return self.may(quota)

    def test_alone(self) -> None:
        """One replica has the room that there is."""
        self.assertEqual(self.may(Quota(), limit=4, own=1, others=1, replicas=Replicas()), 2)

    def test_alone_of_those_asked(self) -> None:
        """The same where a round of asking found nobody else; not before one has ended."""
        quota = Quota()
        self.assertEqual(self.may(quota, limit=4, own=1), 0)
        quota.asked = True
        self.assertEqual(self.may(quota, limit=4, own=1), 3)

    def test_number_alone(self) -> None:
        """With N alone it keeps to ceil((S + 2) / N); so much of what is foreign are the others."""
        three = Replicas(count=3)
        for own, others, room in ((0, 0, 2), (2, 0, 0), (0, 4, 2), (0, 5, 1), (1, 6, -1)):
            self.assertEqual(
                self.may(Quota(), limit=4, own=own, others=others, replicas=three), room
            )

    def test_own_place(self) -> None:
        """One place is always one's own, unless others than replicas fill the engine."""
        quota = self.quota(2)
        self.assertEqual(self.may(quota, limit=4, own=0, peers=4), 1)
        self.assertEqual(self.may(quota, limit=4, own=0, peers=4, others=3), 1)
        self.assertLess(self.may(quota, limit=4, own=0, peers=4, others=4), 1)
        self.assertLess(self.may(quota, limit=4, own=1, peers=3), 1)

    def test_little_room(self) -> None:
        """Up to two places for each replica are shared, rounded up, to be taken at once."""
        found = [self.granted(room) for room in range(9)]
        self.assertEqual(found, [0, 1, 1, 1, 1, 2, 2, 2, 2])

    def test_much_room(self) -> None:
        """More than that goes in small parts, so that no two pictures of it add up."""
        self.assertEqual([self.granted(room) for room in (9, 16, 32, 64)], [1, 1, 2, 4])

    def test_never_more_than_room(self) -> None:
        """What was granted is worth no more than the room that there is when it is taken."""
        quota = self.quota(2)
        quota.grant(64, 0, 1, 0.0, own=1, current=True)
        self.assertEqual(self.may(quota, limit=4, own=1, peers=2), 1)

    def test_better_heads(self) -> None:
        """Of little room a place is left for each better head."""
        self.assertEqual([self.granted(3, better=better) for better in (1, 2, 3)], [1, 1, 0])

    def test_many_sequences(self) -> None:
        """A head of many sequences gets as many where there are so many."""
        self.assertEqual([self.granted(room, wanted=5) for room in (3, 6, 9)], [3, 5, 5])

    def test_not_current(self) -> None:
        """A round that is not to be believed gives nothing, and takes what was given."""
        quota = self.quota(4)
        quota.grant(64, 0, 1, 0.0, own=1, current=True)
        quota.grant(64, 0, 1, 0.1, own=1, current=False)
        self.assertEqual(self.may(quota, now=0.1), 0)

    def test_at_once(self) -> None:
        """What was to be taken at once and was not is gone; what stands is there until 0.3 s."""
        quota = self.quota(4)
        quota.grant(4, 0, 1, 0.0, own=1, current=True)
        quota.lapse()
        self.assertEqual(self.may(quota), 0)
        quota.grant(64, 0, 1, 0.0, own=1, current=True)
        quota.lapse()
        self.assertEqual([self.may(quota, now=now) for now in (0.0, 0.29, 0.3)], [4, 4, 0])

    def test_taken(self) -> None:
        """What is taken is had no longer."""
        quota = self.quota(4)
        quota.grant(64, 0, 1, 0.0, own=1, current=True)
        quota.take(3)
        self.assertEqual(self.may(quota), 1)
        quota.take(1)
        self.assertEqual(self.may(quota), 0)

    def test_taken_before(self) -> None:
        """However much was taken since the round before, it counts against what this one gives."""
        for taken in range(1, 12):
            quota = self.quota(3)
            quota.take(taken)
            quota.grant(1, 0, 1, 0.0, own=taken, current=True)
            self.assertEqual(self.may(quota), 0, f"{taken} taken")

    def test_taken_and_ended(self) -> None:
        """What was taken and has ended since counts against nobody."""
        quota = self.quota(3)
        quota.take(6)
        quota.grant(3, 0, 1, 0.0, own=0, current=True)
        self.assertEqual(self.may(quota), 1)

    def test_refill(self) -> None:
        """A place that is one's own again may be taken at once."""
        quota = self.quota(4)
        quota.refill(1)
        self.assertEqual(self.may(quota), 1)
        quota.lapse()
        self.assertEqual(self.may(quota), 0)


class Replicated(TestCase):
    """Gates that ask each other."""

    def gate(self, limit: int = 4, replicas: Replicas = ASKED, **keys: object) -> Gate:
        keys = {"ordering": Ordering.FIFO, **keys}
        return Gate(Policy(max_inflight=limit, replicas=replicas, **keys))  # type: ignore[arg-type]

    def submit(self, gate: Gate, count: int, now: float, **keys: object) -> list[Ticket]:
        tickets = [Ticket(model="m", policy=Policy(), **keys) for _ in range(count)]  # type: ignore[arg-type]
        for one in tickets:
            gate.submit(one, now)
        return tickets

    def sent(self, tickets: list[Ticket]) -> int:
        return sum(one.state is TicketState.SENT for one in tickets)

    def rounds(self, gates: list[Gate], now: float) -> None:
        """Each asks all others, one after the other."""
        for gate in gates:
            others = {str(n): one.report(now) for n, one in enumerate(gates) if one is not gate}
            gate.peers(others, now, current=True)


class Taking(Replicated):
    """Places."""

    def test_head_that_costs_nothing(self) -> None:
        """A peer that tells of a head of no cost is believed, and breaks nothing."""
        gate = self.gate(4, ordering=Ordering.COST)
        tickets = self.submit(gate, 3, 0.0)
        nothing = HeadView(age_seconds=1.0, cost_seconds=0.0, tenant="")
        gate.peers({"b": holding(2, first=nothing)}, 0.1, current=True)
        gate.finished(tickets[0], 0.2)
        self.assertEqual(tickets[0].state, TicketState.DONE)

    def test_head_of_many_sequences(self) -> None:
        """Room is left until a peer's better head of several sequences has all its places."""
        gate = self.gate(4, ordering=Ordering.COST)
        wide = HeadView(age_seconds=100.0, cost_seconds=1.0, tenant="", sequences=3)
        tickets = self.submit(gate, 9, 0.0, prompt_tokens=5250)
        for quarter in range(1, 9):
            gate.peers({"b": holding(0)}, quarter / 4, current=True)
        self.assertEqual(self.sent(tickets), 4)
        for second in range(3, 6):
            gate.peers({"b": holding(0, first=wide)}, float(second), current=True)
            self.assertEqual(gate.finished(tickets[second - 3], second + 0.1), [])
        gate.peers({"b": holding(0, first=wide)}, 6.9, current=True)
        self.assertEqual(self.sent(tickets), 1)
        # It had its places for 2 s, and took none.
        gate.peers({"b": holding(0, first=wide)}, 8.9, current=True)
        self.assertGreater(self.sent(tickets), 1)

    def test_peer_that_says_too_much(self) -> None:
        """No peer counts as holding more than S, nor its long prefill longer than told at first."""
        gate = self.gate(4, ordering=Ordering.COST)
        for second in range(40):
            now = float(second)
            gate.peers({"b": holding(100_000, lane=10.0)}, now, current=True)
            self.assertEqual(gate.view(now).engines[0].peers, 4)
            self.assertEqual(gate.view(now).engines[0].long_prefill, now < 10, now)
        gate.peers({"b": holding(0, lane=10.0)}, 40.0, current=True)
        self.assertFalse(gate.view(40.0).engines[0].long_prefill)

    def test_peers_prefills_are_no_drift(self) -> None:
        """What peers hold may be what an engine has not begun yet: it contradicts nothing."""
        gate = self.gate(4)
        gate.peers({"b": holding(2)}, 0.0, current=True)
        gate.poll_sent(0, 0.1)
        gate.poll_ok(0, Sample(running=1, waiting=1), 0.2)
        self.assertFalse(gate.view(0.2).engines[0].drift)
        gate.poll_sent(0, 2.1)
        gate.poll_ok(0, Sample(running=2, waiting=2), 2.2)
        self.assertTrue(gate.view(2.2).engines[0].drift)

    def test_heard(self) -> None:
        """The view says how long ago each was heard, also of one that counts no longer."""
        gate = self.gate(4)
        gate.peers({"b": holding(2), "c": None}, 0.0, current=True)
        gate.peers({"b": None, "c": None}, 40.0, current=True)
        self.assertEqual(dict(gate.view(41.0).heard_seconds), {"b": 41.0, "c": 41.0})

    def test_adopted(self) -> None:
        """A gate that was alone keeps to one place once replicas are named, until it has asked."""
        gate = self.gate(4, Replicas())
        gate.adopt(Policy(max_inflight=4, replicas=ASKED, ordering=Ordering.FIFO), 0.0)
        self.assertEqual(self.sent(self.submit(gate, 9, 0.0)), 1)

    def test_unasked(self) -> None:
        """Until a round has ended a replica keeps to one place."""
        self.assertEqual(self.sent(self.submit(self.gate(), 9, 0.0)), 1)

    def test_nobody_else(self) -> None:
        """Where a round finds nobody else, every place may be taken."""
        gate = self.gate()
        gate.peers({}, 0.0, current=True)
        self.assertEqual(self.sent(self.submit(gate, 9, 0.0)), 4)

    def test_fills(self) -> None:
        """One replica alone in use fills every place within a few seconds of rounds."""
        for limit, seconds in ((1, 1), (4, 2), (9, 5), (64, 25)):
            for count in (2, 3, 4):
                gates = [self.gate(limit) for _ in range(count)]
                tickets = self.submit(gates[0], limit + 3, 0.0)
                for quarter in range(4 * seconds):
                    self.rounds(gates, quarter / 4)
                self.assertEqual(self.sent(tickets), limit, f"S = {limit}, N = {count}")

    def test_bursts_everywhere(self) -> None:
        """Bursts at all replicas at once put at most N - 1 over S into an engine."""
        for limit in (1, 2, 4, 9):
            gates = [self.gate(limit) for _ in range(3)]
            self.rounds(gates, 0.0)
            tickets = [self.submit(gate, 12, 0.1) for gate in gates]
            for quarter in range(1, 20):
                # All pictures are taken before anybody acts by one.
                reports = [gate.report(quarter / 4) for gate in gates]
                for gate in gates:
                    others = {
                        str(n): report for n, report in enumerate(reports) if gates[n] is not gate
                    }
                    gate.peers(others, quarter / 4, current=True)
                self.assertLessEqual(sum(map(self.sent, tickets)), limit + 2)
            self.assertGreaterEqual(sum(map(self.sent, tickets)), limit)

    def test_late_pictures(self) -> None:
        """What was taken while a round was under way is not given by it once more."""
        gates = [self.gate(2) for _ in range(2)]
        pictures = [gate.report(0.0) for gate in gates]
        tickets = [self.submit(gate, 3, 0.1) for gate in gates]
        gates[0].peers({"1": pictures[1]}, 0.2, current=True)
        gates[1].peers({"0": pictures[0]}, 0.2, current=True)
        self.assertLessEqual(sum(map(self.sent, tickets)), 3)

    def test_two_rounds_within_another(self) -> None:
        """Nor what was taken by the round before: a peer may not have seen that yet."""
        gates = first, second, third = [self.gate(6) for _ in range(3)]
        nothing = holding(0)
        tickets = [self.submit(gate, 6, 0.1) for gate in gates]
        first.peers({"1": nothing, "2": nothing}, 0.2, current=True)
        # Each asks again as soon as its round has ended, before the next one's has.
        told_by_first = first.report(0.25)
        second.peers({"0": nothing, "2": nothing}, 0.23, current=True)
        told_by_second = second.report(0.25)
        third.peers({"0": nothing, "1": nothing}, 0.24, current=True)
        first.peers({"1": holding(1), "2": holding(1)}, 0.45, current=True)
        second.peers({"0": told_by_first, "2": holding(1)}, 0.48, current=True)
        third.peers({"0": told_by_first, "1": told_by_second}, 0.49, current=True)
        self.assertLessEqual(sum(map(self.sent, tickets)), 8)

    def test_refills(self) -> None:
        """A place whose ticket ends is filled again at once."""
        gate = self.gate(2)
        gate.peers({"b": holding(1)}, 0.0, current=True)
        tickets = self.submit(gate, 3, 0.0)
        decisions = gate.finished(tickets[0], 0.1)
        self.assertEqual(decisions, [Admitted(tickets[1], 0)])

    def test_refills_nothing_when_over(self) -> None:
        """It is not while peers hold so much that there is no room."""
        gate = self.gate(2)
        gate.peers({"b": holding(0)}, 0.0, current=True)
        tickets = self.submit(gate, 3, 0.0)
        for quarter in range(3):
            gate.peers({"b": holding(0)}, quarter / 4, current=True)
        self.assertEqual(self.sent(tickets), 2)
        gate.peers({"b": holding(2)}, 0.6, current=True)
        self.assertEqual(gate.finished(tickets[0], 0.7), [])
        # It holds nothing itself: one place is always its own.
        self.assertEqual(gate.finished(tickets[1], 0.8), [Admitted(tickets[2], 0)])

    def test_silent_peer(self) -> None:
        """A peer that falls silent is believed, then has a share, then nothing; it wakes for it."""
        gate = self.gate(4)
        gate.peers({"b": holding(3)}, 0.0, current=True)
        tickets = self.submit(gate, 9, 0.0)
        counted = []
        for quarter in range(1, 4 * 40):
            gate.peers({"b": None}, quarter / 4, current=True)
            counted.append(self.sent(tickets))
        self.assertEqual((counted[4], counted[4 * 31], counted[-1]), (1, 2, 4))

    def test_wakes_for_silence(self) -> None:
        """Where nothing else happens it wakes when silence changes what a peer counts as."""
        gate = self.gate(4)
        gate.peers({"b": holding(4)}, 0.0, current=True)
        self.submit(gate, 9, 0.0)
        self.assertEqual(gate.wake_at(), 2.0)

    def test_foreign(self) -> None:
        """Of what the gauges show, what peers held when they were read is not foreign."""
        gate = self.gate(9)
        gate.peers({"b": holding(3)}, 0.0, current=True)
        gate.poll_sent(0, 0.1)
        gate.poll_ok(0, Sample(running=5, waiting=0), 0.2)
        view = gate.engine_view(0, 0.2)
        self.assertEqual((view.peers, view.foreign, view.in_engine), (3, 2, 5))

    def test_number_alone(self) -> None:
        """With N alone, never more than ceil((S + 2) / N) of one's own."""
        for limit in range(1, 10):
            for count in (2, 3, 4):
                gate = self.gate(limit, Replicas(count=count))
                most = -(-(limit + 2) // count)
                self.assertEqual(self.sent(self.submit(gate, 20, 0.0)), most)

    def test_view(self) -> None:
        """The view says how many replicas count."""
        gate = self.gate()
        self.assertEqual(gate.view(0.0).replicas, 1)
        gate.peers({"b": holding(0), "c": None}, 0.0, current=True)
        self.assertEqual(gate.view(0.0).replicas, 3)
        self.assertEqual(self.gate(4, Replicas(count=5)).view(0.0).replicas, 5)


class Crowded(Replicated):
    """A head of several sequences, where peers say for ever that they fill the engine."""

    def told(self, gate: Gate, now: float, *, foreign: int = 0, held: int = 4) -> None:
        gate.peers({"b": holding(held)}, now, current=True)
        gate.poll_sent(0, now)
        running = held + gate.engine_view(0, now).own
        gate.poll_ok(0, Sample(running=running, waiting=foreign), now)

    def after(self, gate: Gate, ticket: Ticket, seconds: int, *, foreign: int = 0) -> int | None:
        """After how many seconds of being told so it goes, if it does."""
        for second in range(1, seconds):
            self.told(gate, float(second), foreign=foreign)
            if ticket.state is TicketState.SENT:
                return second
        return None

    def test_goes_after_all(self) -> None:
        """It waits for its places for 60 s, then it takes them."""
        for sequences in (2, 4, 9):
            gate = self.gate(4)
            self.told(gate, 0.0)
            (wide,) = self.submit(gate, 1, 0.0, n=sequences)
            self.assertEqual(self.after(gate, wide, 90), 60, f"{sequences} sequences")

    def test_wakes(self) -> None:
        """It needs nobody to tell it that the time has come."""
        gate = self.gate(4)
        self.told(gate, 0.0)
        (wide,) = self.submit(gate, 1, 0.0, n=3)
        for second in range(1, 60):
            self.told(gate, float(second))
        wake_at = gate.wake_at()
        assert wake_at is not None
        while wake_at < 60:
            self.assertEqual(gate.tick(wake_at), [])
            wake_at = gate.wake_at()
            assert wake_at is not None
        self.assertEqual((wake_at, gate.tick(wake_at)), (60.0, [Admitted(wide, 0)]))

    def test_not_beside_our_own(self) -> None:
        """While something of ours is in the engine it waits."""
        gate = self.gate(4)
        self.told(gate, 0.0)
        ours, wide = self.submit(gate, 1, 0.0) + self.submit(gate, 1, 0.0, n=3)
        self.assertIsNone(self.after(gate, wide, 90))
        gate.finished(ours, 90.0)
        for second in range(91, 155):
            self.told(gate, float(second))
        self.assertEqual(wide.sent_at, 150.0)

    def test_not_where_there_is_some_room(self) -> None:
        """Nor beside it where peers leave a place, but not three."""
        gate = self.gate(4)
        self.told(gate, 0.0, held=2)
        self.submit(gate, 1, 0.0)
        (wide,) = self.submit(gate, 1, 0.0, n=3)
        for second in range(1, 200):
            self.told(gate, float(second), held=2)
        self.assertEqual(wide.state, TicketState.PARKED)

    def test_not_where_others_fill_it(self) -> None:
        """What the gauges show beside peers is true: for that it waits."""
        gate = self.gate(4)
        self.told(gate, 0.0, foreign=2)
        (wide,) = self.submit(gate, 1, 0.0, n=3)
        self.assertIsNone(self.after(gate, wide, 200, foreign=2))
        (narrow,) = self.submit(gate, 1, 200.0, priority=Priority.BATCH)
        self.assertEqual(narrow.state, TicketState.PARKED)

    def test_long_ones(self) -> None:
        """A long prefill of several first waits for an empty engine, as any."""
        gate = self.gate(4, ordering=Ordering.COST, prefill_tokens_per_second=525.0)
        self.told(gate, 0.0)
        (wide,) = self.submit(gate, 1, 0.0, n=3, prompt_tokens=525 * 100)
        self.assertEqual(self.after(gate, wide, 250), 160)


class OneLedger(Replicated):
    """Two gates in front of one engine: a reload has retired one of them."""

    def setUp(self) -> None:
        super().setUp()
        policy = Policy(max_inflight=6, replicas=ASKED, ordering=Ordering.FIFO)
        self.ledger = Ledger()
        self.retired = Gate(policy, ledgers=[self.ledger])
        self.waiting = self.submit(self.retired, 9, 0.0)
        self.fresh = Gate(policy, ledgers=[self.ledger])
        self.newcomers = self.submit(self.fresh, 9, 0.0)

    def told(self, now: float, *order: Gate, held: int = 0) -> None:
        """A round in which three replicas more say that they hold so many."""
        views = {peer: holding(held) for peer in "bcd"}
        for gate in order:
            gate.peers(views, now, current=True)

    def in_engine(self) -> int:
        return self.sent(self.waiting) + self.sent(self.newcomers)

    def as_one(self, *rounds: tuple[Gate, ...]) -> None:
        """In these rounds, one after another, both take together as much as one gate would."""
        alone = self.gate(6)
        tickets = self.submit(alone, 9, 0.0)
        for number, order in enumerate(rounds, 1):
            self.told(number / 4, alone)
            self.told(number / 4, *order)
            self.assertEqual(self.in_engine(), self.sent(tickets), f"round {number}")
        self.assertGreater(self.sent(tickets), 3)

    def test_one_gift(self) -> None:
        """What a round gives, it gives to both together."""
        self.as_one(*[(self.retired, self.fresh)] * 12)

    def test_any_order(self) -> None:
        """The same whoever is told first, and whether that changes or not."""
        self.as_one(*[(self.fresh, self.retired), (self.retired, self.fresh)] * 6)

    def test_one_has_gone(self) -> None:
        """When one is told no longer, the other goes on alone."""
        self.as_one(*[(self.retired, self.fresh)] * 3, *[(self.fresh,)] * 9)

    def test_whose_views_count(self) -> None:
        """Peers that have reloaded have no gate like the retired one: it hears that they hold 0."""
        self.told(0.25, self.fresh, held=1)
        self.told(0.25, self.retired, held=0)
        self.assertEqual(self.retired.engine_view(0, 0.3).peers, 3)
        self.told(0.5, self.retired, held=0)
        self.told(0.5, self.fresh, held=1)
        self.assertEqual(self.retired.engine_view(0, 0.6).peers, 3)

    def test_no_replicas_any_more(self) -> None:
        """What peers told the retired gate keeps no place from one that asks nobody."""
        self.told(0.25, self.fresh, held=2)
        fresh = Gate(Policy(max_inflight=6, ordering=Ordering.FIFO), ledgers=[self.ledger])
        self.told(0.5, self.retired, self.fresh, held=2)
        before = self.in_engine()
        self.assertEqual(self.sent(self.submit(fresh, 9, 0.5)), 6 - before)

    def test_taken_back(self) -> None:
        """A gate that is put in force again counts what peers tell it."""
        self.told(0.25, self.fresh, held=1)
        self.retired.adopt(Policy(max_inflight=6, replicas=ASKED, ordering=Ordering.FIFO), 0.3)
        self.told(0.5, self.retired, held=0)
        self.assertEqual(self.retired.engine_view(0, 0.6).peers, 0)


class Heads(Replicated):
    """Whose head is served."""

    def test_better_head_takes_the_place(self) -> None:
        """A place that is free goes to a peer's better head, however long it was full before."""
        for full_seconds in (1, 10):
            first, second = gates = [self.gate(3), self.gate(3)]
            self.rounds(gates, 0.0)
            tickets = self.submit(first, 5, 0.0, priority=Priority.BATCH)
            self.submit(second, 1, 0.0)
            for quarter in range(4 * full_seconds):
                self.rounds(gates, quarter / 4)
            self.assertEqual(self.sent(tickets), 2)
            better = self.submit(second, 1, full_seconds)
            self.rounds(gates, full_seconds)
            self.rounds(gates, full_seconds + 5)
            self.assertEqual(first.finished(tickets[0], full_seconds + 5), [])
            self.rounds(gates, full_seconds + 5.25)
            self.assertEqual((self.sent(better), self.sent(tickets)), (1, 1))

    def test_passed_over(self) -> None:
        """One that does not take its place is passed over after 2 s."""
        gate = self.gate(3)
        first = head(9.0)
        gate.peers({"b": holding(1, first=first)}, 0.0, current=True)
        tickets = self.submit(gate, 3, 0.0, priority=Priority.BATCH)
        taken = []
        for quarter in range(12):
            now = quarter / 4
            view = holding(1, first=head(9.0 + now))
            gate.peers({"b": view}, now, current=True)
            taken.append(self.sent(tickets))
        self.assertEqual((taken[7], taken[8]), (1, 2))

    def test_worse_head(self) -> None:
        """A worse one is not waited for."""
        gate = self.gate(3)
        tickets = self.submit(gate, 3, 0.0)
        worse = holding(1, first=head(priority=Priority.BATCH))
        for quarter in range(3):
            gate.peers({"b": worse}, quarter / 4, current=True)
        self.assertEqual(self.sent(tickets), 2)


class Reports(Replicated):
    """What a gate says of itself."""

    def test_nothing(self) -> None:
        """A gate that holds nothing says so."""
        self.assertEqual(
            self.gate().report(0.0), GateReport(in_flight=(0,), long_prefill_seconds=(0.0,))
        )

    def test_in_flight(self) -> None:
        """It says how many sequences are in each engine."""
        gate = Gate(Policy(max_inflight=4), engines=2)
        self.submit(gate, 1, 0.0, n=3)
        self.assertEqual(gate.report(0.0).in_flight, (3, 0))

    def test_head(self) -> None:
        """It says who is to be served next, and for how long that one has waited."""
        gate = self.gate(1)
        self.submit(gate, 1, 0.0)
        self.submit(gate, 1, 1.0, tenant="aa", priority=Priority.BATCH)
        first = gate.report(3.5).head
        assert first is not None
        self.assertEqual(
            (first.age_seconds, first.tenant, first.priority, first.long),
            (2.5, "aa", Priority.BATCH, False),
        )

    def test_use_decays(self) -> None:
        """What tenants have used is told decayed."""
        gate = self.gate(1, prefill_tokens_per_second=525.0)
        self.submit(gate, 1, 0.0, tenant="aa", prompt_tokens=5250)
        self.assertAlmostEqual(gate.report(0.0).use["aa"], 10.0)
        self.assertAlmostEqual(gate.report(120.0).use["aa"], 10 / 2.718281828)

    def test_long_prefill(self) -> None:
        """How long a long prefill will keep others out, at most, counts down to 0."""
        gate = self.gate(4, ordering=Ordering.COST, prefill_tokens_per_second=525.0)
        (ticket,) = self.submit(gate, 1, 0.0, prompt_tokens=20 * 525, stream=True)
        told = [gate.report(now).long_prefill_seconds[0] for now in (0.0, 10.0, 60.0, 90.0)]
        self.assertEqual(told, [60.0, 50.0, 0.0, 0.0])
        gate = self.gate(4, ordering=Ordering.COST, prefill_tokens_per_second=525.0)
        (ticket,) = self.submit(gate, 1, 0.0, prompt_tokens=20 * 525, stream=True)
        gate.first_content(ticket, 5.0)
        self.assertEqual(gate.report(5.0).long_prefill_seconds, (0.0,))

    def test_wire(self) -> None:
        """A report is the same on the other side of the wire."""
        gate = self.gate(4, ordering=Ordering.COST, prefill_tokens_per_second=525.0)
        self.submit(gate, 1, 0.0, tenant="aa", prompt_tokens=20 * 525, stream=True)
        self.submit(gate, 2, 1.0, tenant="bb", priority=Priority.BATCH)
        report = gate.report(7.25)
        self.assertIsNotNone(report.head)
        view = PeerView("9f", {"http://engine": report})
        self.assertEqual(read_view(render_view(view)), view)


class LongPrefills(Replicated):
    """A peer's long prefill."""

    def gate(self, limit: int = 4, replicas: Replicas = ASKED, **keys: object) -> Gate:
        keys = {"ordering": Ordering.COST, "prefill_tokens_per_second": 525.0, **keys}
        return super().gate(limit, replicas, **keys)

    def tell(self, gate: Gate, now: float, lane: float) -> None:
        gate.peers({"b": holding(1, lane=lane)}, now, current=True)

    def test_narrow(self) -> None:
        """It keeps a narrow engine from us for as long as was told, and no longer."""
        gate = self.gate(8)
        self.tell(gate, 0.0, 1.5)
        (ticket,) = self.submit(gate, 1, 0.0)
        self.assertEqual(ticket.state, TicketState.PARKED)
        self.assertEqual(gate.wake_at(), 1.5)
        self.assertEqual(gate.tick(1.5), [Admitted(ticket, 0)])

    def test_silent(self) -> None:
        """One of which a peer has told nothing for 2 s keeps nobody out."""
        gate = self.gate(8)
        self.tell(gate, 0.0, 300.0)
        (ticket,) = self.submit(gate, 1, 0.0)
        self.assertEqual(gate.wake_at(), 2.0)
        self.assertEqual(gate.tick(2.0), [Admitted(ticket, 0)])

    def test_ends(self) -> None:
        """When a peer says that it has ended, places are free."""
        gate = self.gate(8)
        self.tell(gate, 0.0, 60.0)
        (ticket,) = self.submit(gate, 1, 0.0)
        self.tell(gate, 0.25, 0.0)
        self.assertEqual(ticket.state, TicketState.SENT)

    def test_wide(self) -> None:
        """It keeps a wide engine from long ones alone."""
        gate = self.gate(9)
        self.tell(gate, 0.0, 60.0)
        (long,) = self.submit(gate, 1, 0.0, prompt_tokens=20 * 525)
        (short,) = self.submit(gate, 1, 0.0)
        self.assertEqual((long.state, short.state), (TicketState.PARKED, TicketState.SENT))

    def test_ours_waits_for_peers(self) -> None:
        """A long one of ours has a narrow engine for itself: it waits for what peers hold."""
        gate = self.gate(8)
        self.tell(gate, 0.0, 0.0)
        (long,) = self.submit(gate, 1, 0.0, prompt_tokens=20 * 525)
        (short,) = self.submit(gate, 1, 0.0, priority=Priority.BATCH)
        self.assertEqual((long.state, short.state), (TicketState.PARKED, TicketState.PARKED))
        gate.peers({"b": holding(0)}, 0.25, current=True)
        self.assertEqual((long.state, short.state), (TicketState.SENT, TicketState.PARKED))
