"""The order of service, rule by rule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.support import TestCase
from twisted_gateway.core.decision import Admitted, Decision, Parked, Passed, Reason, Refused
from twisted_gateway.core.gate import Gate
from twisted_gateway.core.order import MOST_TENANTS, CostLine, Costs, Tenants, heaviest
from twisted_gateway.core.policy import Ordering, Policy, Replicas, WhenStale
from twisted_gateway.core.sample import Sample
from twisted_gateway.core.ticket import Priority, Ticket, TicketState

# Prompts of 500 tokens take a second, and 100 tokens of an answer cost one of the engine's.
NAMED = Policy(max_inflight=4, prefill_tokens_per_second=500.0, decode_tokens_per_second=25.0)
ONE = replace(NAMED, max_inflight=1)
TWO_REPLICAS = replace(NAMED, max_inflight=2, replicas=Replicas(count=2))
WIDE = replace(NAMED, max_inflight=9)
UNNAMED = Policy(max_inflight=4)
PATIENT = Policy()
SECOND = 500
LONG = 20 * SECOND
"""A prompt that takes 20 s, where more than 15 is long."""


def ticket(policy: Policy = NAMED, *, seconds: float = 1, **named: Any) -> Ticket:
    """A request whose prompt takes so many seconds."""
    return Ticket(model="m", policy=policy, prompt_tokens=int(seconds * SECOND), **named)


def admitted(decisions: list[Decision]) -> list[Ticket]:
    return [decision.ticket for decision in decisions if isinstance(decision, Admitted)]


def refused(decisions: list[Decision]) -> list[tuple[Ticket, Reason]]:
    return [(d.ticket, d.reason) for d in decisions if isinstance(d, Refused)]


class OrderTests(TestCase):
    """What the rules' tests have in common."""

    def busy(self, policy: Policy = ONE, *, now: float = 0, **named: Any) -> tuple[Gate, Ticket]:
        """A gate whose engine is full of one ticket, which costs next to nothing, and that."""
        gate = Gate(policy, **named)
        limit = policy.max_inflight
        assert limit is not None
        first = ticket(seconds=0, n=limit, tenant="first")
        self.assertEqual(admitted(gate.submit(first, now)), [first])
        return gate, first

    def park(self, gate: Gate, now: float, *tickets: Ticket) -> None:
        for one in tickets:
            self.assertEqual(gate.submit(one, now), [Parked(one)])

    def served(self, gate: Gate, first: Ticket, now: float) -> list[Ticket]:
        """Who follows `first`, when each ends as soon as it is sent."""
        order: list[Ticket] = []
        ended = [first]
        while ended:
            ended = [one for end in ended for one in admitted(gate.finished(end, now))]
            order += ended
        return order

    def assertOrder(
        self, expected: Sequence[Ticket], gate: Gate, first: Ticket, now: float
    ) -> None:
        names = {id(one): index for index, one in enumerate(expected)}
        order = [names.get(id(one)) for one in self.served(gate, first, now)]
        self.assertEqual(order, list(range(len(expected))))


class Classes(OrderTests):
    """The class goes before everything else."""

    def test_classes_first(self) -> None:
        """A batch ticket that has waited long goes after an interactive one of a heavy user."""
        gate, first = self.busy()
        batch = ticket(priority=Priority.BATCH)
        self.park(gate, 0, batch)
        chat = ticket(seconds=100, tenant="first")
        self.park(gate, 100, chat)
        self.assertOrder([chat, batch], gate, first, 101)

    def test_warmups_last(self) -> None:
        """A warm-up goes when nothing else is parked, be that held."""
        gate, first = self.busy()
        warm, held = ticket(priority=Priority.WARMUP), ticket(priority=Priority.BATCH)
        self.park(gate, 0, warm, held)
        self.assertEqual(admitted(gate.finished(first, 1)), [held])
        self.assertEqual(admitted(gate.refused_by_engine(held, 1, connected=True)), [])
        self.assertEqual(admitted(gate.tick(2.5)), [])
        self.assertEqual(admitted(gate.tick(3)), [held])
        self.assertEqual(admitted(gate.finished(held, 4)), [warm])


class TenantsInTurn(OrderTests):
    """Within a class, who has used least lately goes first."""

    def used(self, gate: Gate, tenant: str, now: float) -> float:
        return gate.view(now).tenants[tenant].used_seconds

    def test_lighter_user_first(self) -> None:
        """Who has used 10 s goes after who has used less, whatever the ratio."""
        gate, first = self.busy()
        heavy = ticket(seconds=10, tenant="heavy")
        self.park(gate, 0, heavy)
        self.assertEqual(admitted(gate.finished(first, 0)), [heavy])
        again, light = ticket(tenant="heavy"), ticket(seconds=14, tenant="light")
        self.park(gate, 0, again, light)
        self.assertOrder([light, again], gate, heavy, 0)

    def test_light_users_tie(self) -> None:
        """Who has used less than 10 s ties with who has used nothing: the ratio decides."""
        gate, first = self.busy()
        light = ticket(seconds=9.9, tenant="light")
        self.park(gate, 0, light)
        self.assertEqual(admitted(gate.finished(first, 0)), [light])
        again, other = ticket(tenant="light"), ticket(seconds=14, tenant="other")
        self.park(gate, 0, again, other)
        self.assertOrder([again, other], gate, light, 0)

    def test_use_decays(self) -> None:
        """Use falls with a time constant of 120 s, and then counts for less."""
        gate, first = self.busy()
        heavy = ticket(seconds=14, tenant="heavy")
        self.park(gate, 0, heavy)
        gate.finished(first, 0)
        self.assertEqual(self.used(gate, "heavy", 0), 14)
        self.assertAlmostEqual(self.used(gate, "heavy", 120), 14 / math.e)
        below_ten = 120 * math.log(1.4)
        again, other = ticket(tenant="heavy"), ticket(seconds=14, tenant="other")
        self.park(gate, 0, again, other)
        self.assertIs(gate.report(below_ten - 0.1).head.tenant, "other")  # type: ignore[union-attr]
        self.assertOrder([again, other], gate, heavy, below_ten + 0.1)

    def test_charged_when_sent(self) -> None:
        """Of one tenant's two and another's one, sent at once, one of each goes first."""
        gate, first = self.busy(replace(NAMED, max_inflight=2))
        mine = [ticket(seconds=10, tenant="mine") for _ in range(2)]
        other = ticket(seconds=12, tenant="other")
        self.park(gate, 0, *mine, other)
        self.assertEqual(admitted(gate.finished(first, 1)), [mine[0], other])
        self.assertEqual(self.used(gate, "mine", 1), 10)
        self.assertEqual(admitted(gate.finished(other, 1)), [mine[1]])
        self.assertEqual(self.used(gate, "mine", 1), 20)

    def test_all_of_a_charged_tenant_stand_back(self) -> None:
        """One charge moves all that the tenant has parked, in their own order."""
        gate, first = self.busy()
        mine = [ticket(seconds=10 + step, tenant="mine") for step in range(3)]
        others = [ticket(seconds=14 + step / 4, tenant=f"other {step}") for step in range(3)]
        self.park(gate, 0, *mine, *others)
        self.assertOrder([mine[0], *others, *mine[1:]], gate, first, 1)

    def test_replicas_have_seen_as_much(self) -> None:
        """With bare N replicas a tenant's use counts N times, for it comes to all of them."""
        gate, first = self.busy(TWO_REPLICAS)
        light = ticket(seconds=5, n=2, tenant="light")
        self.park(gate, 0, light)
        gate.finished(first, 0)
        again, other = ticket(n=2, tenant="light"), ticket(seconds=14, n=2, tenant="other")
        self.park(gate, 0, again, other)
        self.assertOrder([other, again], gate, light, 0)

    def test_many_tenants(self) -> None:
        """Of many tenants those of most use are remembered, never more than 4,096."""
        tenants = Tenants()
        for number in range(MOST_TENANTS):
            tenants.charge(str(number), 1 + number % 2, 0)
        self.assertEqual(len(tenants.all(0)), MOST_TENANTS)
        tenants.charge("last", 5, 1)
        left = tenants.all(1)
        self.assertEqual(len(left), MOST_TENANTS // 2)
        self.assertEqual(left["last"], 5)
        self.assertGreater(min(left.values()), 1)

    def test_who_used_nothing_lately_is_forgotten(self) -> None:
        """Use that has decayed to next to nothing is not kept."""
        tenants = Tenants()
        for number in range(MOST_TENANTS):
            tenants.charge(str(number), 1, 0)
        tenants.charge("last", 5, 3600)
        self.assertEqual(tenants.all(3600), {"last": 5})
        self.assertEqual(tenants.use("0", 3600), 0)


class Ratio(OrderTests):
    """Within a tenant, who has waited longest for what it costs goes first."""

    def test_short_first(self) -> None:
        """Of those that came at once the cheapest goes first."""
        gate, first = self.busy()
        by_cost = {seconds: ticket(seconds=seconds) for seconds in (3, 1, 4, 2)}
        self.park(gate, 0, *by_cost.values())
        self.assertOrder([by_cost[seconds] for seconds in (1, 2, 3, 4)], gate, first, 1)

    def test_waiting_counts(self) -> None:
        """(waited + 1) / cost: 5 s of work after 31 s go before 1 s of work after 5 s."""
        gate, first = self.busy()
        patient, hasty = ticket(seconds=5), ticket(seconds=1)
        self.park(gate, 0, patient)
        self.park(gate, 26, hasty)
        self.assertIs(gate.report(31.4).head.cost_seconds, patient.cost_seconds)  # type: ignore[union-attr]
        self.assertOrder([patient, hasty], gate, first, 31.4)

    def test_waiting_counts_the_other_way(self) -> None:
        """A moment later the short one has caught up: its ratio grows faster."""
        gate, first = self.busy()
        patient, hasty = ticket(seconds=5), ticket(seconds=1)
        self.park(gate, 0, patient)
        self.park(gate, 26, hasty)
        self.assertOrder([hasty, patient], gate, first, 31.6)

    def test_arrival_among_equals(self) -> None:
        """Equals go by arrival, also one that comes back from the engine."""
        gate, first = self.busy()
        one, two, three = tickets = [ticket() for _ in range(3)]
        self.park(gate, 0, *tickets)
        self.assertEqual(admitted(gate.finished(first, 0)), [one])
        self.assertEqual(admitted(gate.client_gone(one, 0)), [two])
        self.assertEqual(admitted(gate.refused_by_engine(two, 0, connected=False)), [])
        self.assertEqual(admitted(gate.poll_ok(0, Sample(running=0, waiting=0), 0)), [two])
        self.assertOrder([three], gate, two, 0)

    def test_one_line(self) -> None:
        """A line tells of its tickets, its first and its classes, and lets any leave twice."""
        line = CostLine(lambda tenant, now: 0.0)
        self.assertEqual((line.foremost(), line.first(0), len(line)), (None, None, 0))
        batch, chat = ticket(priority=Priority.BATCH), ticket()
        line.append(batch)
        line.restore(chat)
        self.assertEqual((line.foremost(), line.first(0)), (Priority.INTERACTIVE, chat))
        self.assertEqual((set(line), len(line)), ({batch, chat}, 2))
        line.remove(chat)
        line.remove(chat)
        self.assertEqual((line.foremost(), list(line.ranked(0))), (Priority.BATCH, [batch]))


class Prices(OrderTests):
    """What a request costs the engine."""

    def test_prefill_and_its_share_of_decode(self) -> None:
        """Its prefill, and its answer at the rate at which S sequences are written."""
        gate = Gate(NAMED)
        one = ticket(seconds=2, max_tokens=100)
        gate.submit(one, 0)
        self.assertEqual((one.prefill_seconds, one.cost_seconds), (2, 2 + 100 / (25 * 4)))

    def test_answer_counts_to_512(self) -> None:
        """No more than 512 tokens of an answer count, each of n answers for itself."""
        gate = Gate(NAMED)
        one = ticket(seconds=0, max_tokens=100_000, n=2)
        gate.submit(one, 0)
        self.assertEqual(one.cost_seconds, 2 * 512 / 100)

    def test_nothing_is_free(self) -> None:
        """A request without prompt and answer costs a millisecond: its ratio is a number."""
        gate = Gate(NAMED)
        one = ticket(seconds=0)
        gate.submit(one, 0)
        self.assertEqual(one.cost_seconds, 0.001)

    def test_defaults_serve_the_order_alone(self) -> None:
        """By default rates there are costs, but nothing is long or late."""
        gate, first = self.busy(replace(UNNAMED, max_inflight=1))
        huge, small = ticket(seconds=1000), ticket(seconds=1)
        self.park(gate, 0, huge, small)
        self.assertEqual((huge.long, huge.deadline_at), (False, math.inf))
        self.assertEqual(huge.prefill_seconds, 500_000 / 525)
        self.assertOrder([small, huge], gate, first, 1)

    def test_prefix_read_lately(self) -> None:
        """Blocks of the prompt that the engine has read lately cost nothing."""
        gate, first = self.busy()
        gate.finished(first, 0)
        told = ticket(seconds=10, stream=True, blocks=(1, 2, 3))
        gate.submit(told, 0)
        self.assertEqual(told.shared_tokens, 0)
        gate.first_content(told, 10)
        alike = ticket(seconds=10, blocks=(1, 2, 4))
        self.park(gate, 11, alike)
        self.assertEqual(alike.shared_tokens, 2048)
        self.assertEqual(alike.prefill_seconds, (5000 - 2048) / 500)

    def test_prefix_longer_than_the_prompt(self) -> None:
        """A prompt that is shorter by estimate than its blocks costs no less than nothing."""
        gate = Gate(NAMED)
        told = ticket(seconds=1, stream=True, blocks=(1, 2))
        gate.submit(told, 0)
        gate.first_content(told, 1)
        again = ticket(seconds=1, blocks=(1, 2))
        gate.submit(again, 2)
        self.assertEqual(again.prefill_seconds, 0)

    def test_repriced_by_a_prefix(self) -> None:
        """Who is parked costs less as soon as the engine has read what it begins with."""
        gate, first = self.busy(replace(NAMED, max_inflight=2))
        told = ticket(seconds=10, stream=True, blocks=(1, 2, 3))
        alike, other = ticket(seconds=10, n=2, blocks=(1, 2, 3)), ticket(seconds=8, n=2)
        self.park(gate, 0, told)
        self.assertEqual(admitted(gate.finished(first, 0)), [told])
        self.park(gate, 0, alike, other)
        before = gate.view(0).parked_work_seconds
        gate.first_content(told, 1)
        self.assertEqual(alike.cost_seconds, (5000 - 3 * 1024) / 500)
        after = gate.view(1).parked_work_seconds
        self.assertAlmostEqual(before - after, 3 * 1024 / 500)
        self.assertOrder([alike, other], gate, told, 1)

    def test_repriced_by_s(self) -> None:
        """Where S is learned, the cost of an answer follows it."""
        policy = replace(NAMED, max_inflight=None)
        gate = Gate(policy)
        one = ticket(seconds=0, max_tokens=100)
        for full in (ticket(), ticket()):
            gate.submit(full, 0)
        self.park(gate, 0, one)
        self.assertEqual(one.cost_seconds, 2)
        gate.poll_sent(0, 1)
        gate.poll_ok(0, Sample(running=4, waiting=0), 1)
        self.assertEqual(one.cost_seconds, 1)

    def test_repriced_by_rates(self) -> None:
        """A start value that is adopted changes prices, lateness and bounds of the parked."""
        gate, _ = self.busy()
        one = ticket(seconds=14, max_tokens=100)
        self.park(gate, 0, one)
        self.assertEqual((one.long, one.deadline_at), (False, 540 - 14 - 4))
        slow = replace(ONE, prefill_tokens_per_second=250.0)
        gate.adopt(slow, 1)
        self.assertEqual((one.prefill_seconds, one.long, one.deadline_at), (28, True, 508))
        self.assertEqual(gate.view(1).parked_work_seconds, 28 + 4)
        self.assertEqual(gate.wake_at(), 508)

    def test_no_sequences(self) -> None:
        """Whatever S is said to be, an answer costs something finite."""
        costs = Costs(NAMED)
        costs.share(0)
        one = ticket(seconds=0, max_tokens=25)
        costs.price(one)
        self.assertEqual(one.cost_seconds, 1)


class Learning(OrderTests):
    """Rates are learned from what the gate's own tickets took."""

    def serve(self, gate: Gate, count: int, now: float = 0, **named: Any) -> None:
        """Serve so many one after another: prompts of 1,000 tokens in 4 s, 40 events in 2."""
        told, cached = named.pop("told", None), named.pop("cached", None)
        for number in range(count):
            one = ticket(seconds=2, **{"stream": True, **named})
            one.told_tokens, one.cached_tokens = told, cached
            start = now + 100 * number
            self.assertEqual(admitted(gate.submit(one, start)), [one])
            one.generated_tokens = 1
            gate.first_content(one, start + 4)
            one.generated_tokens = 41
            gate.finished(one, start + 6)

    def rates(self, gate: Gate) -> tuple[float, float, bool]:
        view = gate.view(1000)
        rates = (view.prefill_tokens_per_second, view.decode_tokens_per_second)
        return (*rates, view.rates_learned)

    def test_five_streams(self) -> None:
        """Five of our own streams teach both rates; four teach nothing."""
        gate = Gate(UNNAMED)
        self.serve(gate, 4)
        self.assertEqual(self.rates(gate), (525, 25, False))
        self.serve(gate, 1, 400)
        self.assertEqual(self.rates(gate), (250, 20, True))

    def test_what_is_learned_is_used(self) -> None:
        """With learned rates the parked are long, and late."""
        gate = Gate(replace(UNNAMED, max_inflight=1))
        self.serve(gate, 4)
        last = ticket(seconds=2, stream=True)
        gate.submit(last, 500)
        parked = ticket(seconds=8)
        self.park(gate, 500, parked)
        last.generated_tokens = 1
        gate.first_content(last, 504)
        self.assertEqual((parked.long, parked.deadline_at), (False, math.inf))
        patient = ticket(seconds=8, n=1)
        self.park(gate, 505, patient)
        last.generated_tokens = 41
        self.assertEqual(admitted(gate.finished(last, 506)), [parked])
        self.assertEqual((patient.long, patient.deadline_at), (True, 505 + 540 - 16))

    def test_not_alone_in_prefill(self) -> None:
        """A prefill beside another of ours is no sample; beside answers being written it is."""
        gate = Gate(UNNAMED)
        for number in range(5):
            now = 100 * number
            pair = [ticket(seconds=2, stream=True) for _ in range(2)]
            for one in pair:
                gate.submit(one, now)
            for one in pair:
                gate.first_content(one, now + 4)
                gate.finished(one, now + 6)
        self.assertEqual(self.rates(gate)[0], 525)
        beside = ticket(stream=True)
        gate.submit(beside, 600)
        gate.first_content(beside, 601)
        self.serve(gate, 5, 700)
        self.assertEqual(self.rates(gate)[0], 250)

    def test_not_beside_one_that_ended(self) -> None:
        """One that was sent while another awaited content is no sample, even if that has left."""
        gate = Gate(UNNAMED)
        for now in range(0, 500, 100):
            gone, one = ticket(stream=True), ticket(seconds=2, stream=True)
            gate.submit(gone, now)
            gate.submit(one, now)
            gate.client_gone(gone, now)
            gate.first_content(one, now + 4)
            gate.finished(one, now + 4)
        self.assertEqual(self.rates(gate)[0], 525)

    def test_no_stream_is_no_sample(self) -> None:
        """An answer that is no stream does not show when its prefill ended."""
        gate = Gate(UNNAMED)
        self.serve(gate, 9, stream=False)
        self.assertEqual(self.rates(gate), (525, 25, False))

    def test_several_sequences_are_no_sample_of_decode(self) -> None:
        """The events of n answers do not show how fast one is written."""
        gate = Gate(UNNAMED)
        self.serve(gate, 5, n=2)
        self.assertEqual(self.rates(gate), (250, 25, False))

    def test_a_known_prefix_is_no_sample(self) -> None:
        """A prompt that the engine had read in part does not show how fast it reads."""
        gate = Gate(UNNAMED)
        self.serve(gate, 5, blocks=(1,))
        self.assertEqual(self.rates(gate)[:2], (525, 20))

    def test_what_the_engine_tells(self) -> None:
        """Where the answer says how long its prompt was, that counts, less what was cached."""
        for told, cached, rate in (
            (2000, None, 500),
            (2000, 0, 500),
            (5000, 1000, 1000),
            (5000, 4001, 525),
            (999, None, 525),
        ):
            gate = Gate(UNNAMED)
            self.serve(gate, 5, told=told, cached=cached)
            self.assertEqual(self.rates(gate)[0], rate, f"{told} told, {cached} cached")

    def test_a_known_prefix_of_which_the_engine_tells(self) -> None:
        """What the engine says of its cache goes before what was read lately."""
        gate = Gate(UNNAMED)
        self.serve(gate, 5, blocks=(1,), told=2000)
        self.assertEqual(self.rates(gate)[0], 525)
        self.serve(gate, 5, 1000, blocks=(1,), told=5000, cached=1000)
        self.assertEqual(self.rates(gate)[0], 1000)

    def flood(self, gate: Gate, bytes_each: int, took: float, count: int = 60) -> None:
        """One client's streams: of so many bytes, read in so many seconds, and nothing told."""
        for number in range(count):
            one = Ticket(
                model="m", policy=PATIENT, stream=True, prompt_tokens=bytes_each // 4, tenant="evil"
            )
            now = 10_000.0 + 1000 * number
            self.assertEqual(admitted(gate.submit(one, now)), [one])
            one.generated_tokens = 1
            gate.first_content(one, now + took)
            gate.finished(one, now + took)

    def verdicts(self, gate: Gate, now: float = 1e6) -> tuple[bool, bool]:
        """Whether a prompt of 40 s counts as long, and whether one of 60 s could be in time."""
        for _ in range(gate.view(now).engines[0].max_inflight):
            gate.submit(ticket(), now)
        long, fair = (ticket(seconds=seconds, policy=PATIENT) for seconds in (40, 60))
        gate.submit(long, now)
        gate.submit(fair, now)
        return long.long, fair.deadline_at > now + 10

    def test_a_member_that_the_engine_ignores(self) -> None:
        """A client that makes its prompts look long does not make everybody's look short.

        Of a body of 4 MB the engine reads nearly nothing, in a tenth of a second.
        """
        learned = Gate(UNNAMED)
        self.serve(learned, 5, told=2000)
        self.assertEqual(self.verdicts(learned), (True, True))
        for gate in (Gate(UNNAMED), Gate(replace(UNNAMED, prefill_tokens_per_second=500.0))):
            self.serve(gate, 5, told=2000)
            self.flood(gate, 4_000_000, 0.1)
            self.assertEqual(self.rates(gate)[0], 2000)
        # Nothing is known that could contradict it where no answer tells.
        gate = Gate(UNNAMED)
        self.serve(gate, 5)
        self.flood(gate, 4_000_000, 0.1)
        self.assertGreater(self.rates(gate)[0], 9_000_000)

    def test_names_of_pictures(self) -> None:
        """A client whose prompts look short does not have others refused for their deadline.

        Of a body of 4 kB with the addresses of pictures the engine reads for a minute.
        """
        gate = Gate(UNNAMED)
        self.serve(gate, 5, told=2000)
        self.flood(gate, 4000, 60.0)
        self.assertEqual(self.rates(gate)[0], 125)
        self.assertEqual(self.verdicts(gate), (True, True))
        gate = Gate(replace(UNNAMED, prefill_tokens_per_second=500.0))
        self.flood(gate, 4000, 60.0)
        self.assertEqual(self.verdicts(gate), (True, True))
        # Where nothing is known better it does: 17 tokens a second, and nobody is in time.
        gate = Gate(UNNAMED)
        self.serve(gate, 5)
        self.flood(gate, 4000, 60.0)
        self.assertEqual(self.verdicts(gate), (True, False))

    def test_configured_count_as_learned(self) -> None:
        """Where the configuration names a rate, the first ticket is judged by it."""
        gate = Gate(replace(UNNAMED, decode_tokens_per_second=25.0))
        one = ticket(seconds=1000)
        gate.submit(one, 0)
        self.assertTrue(one.long)


class LongLane(OrderTests):
    """At most one long prefill is in flight, and alone where S is 8 or less."""

    def beside(self, policy: Policy = NAMED, **named: Any) -> tuple[Gate, Ticket]:
        """A gate with one short ticket in its engine, and that."""
        gate = Gate(policy, **named)
        short = ticket(stream=True)
        self.assertEqual(admitted(gate.submit(short, 0)), [short])
        return gate, short

    def test_what_is_long(self) -> None:
        """More than longPrefillSeconds is long; so much is not."""
        gate = Gate(NAMED)
        just, over = ticket(seconds=15), ticket(seconds=15.1)
        for one in (just, over):
            gate.submit(one, 0)
        self.assertEqual((just.long, over.long), (False, True))

    def test_goes_alone(self) -> None:
        """It waits for what is in the engine to end; nothing is sent while it is in prefill."""
        gate, short = self.beside()
        long, other = ticket(seconds=20, stream=True), ticket(tenant="other")
        self.park(gate, 1, long)
        self.assertEqual(admitted(gate.finished(short, 2)), [long])
        self.park(gate, 3, other)
        self.assertTrue(gate.view(3).engines[0].long_prefill)
        self.assertEqual(admitted(gate.first_content(long, 20)), [other])
        self.assertFalse(gate.view(20).engines[0].long_prefill)

    def test_holds_others_back(self) -> None:
        """At the head it lets nobody in, so that the engine empties."""
        gate, short = self.beside()
        long, batch = ticket(seconds=20), ticket(priority=Priority.BATCH)
        self.park(gate, 0, long, batch)
        self.assertEqual(admitted(gate.finished(short, 2)), [long])
        self.assertEqual(admitted(gate.finished(long, 22)), [batch])

    def test_better_ratio_is_not_held_back(self) -> None:
        """One that goes before it in the order is not held back by it."""
        gate, _ = self.beside()
        self.park(gate, 0, ticket(seconds=20))
        better = ticket(seconds=5)
        self.assertEqual(admitted(gate.submit(better, 1)), [better])

    def test_holds_for_as_long_as_it_takes(self) -> None:
        """It holds for as long as its own prefill takes, then goes in among others."""
        gate, _ = self.beside()
        long, batch = ticket(seconds=20), ticket(priority=Priority.BATCH)
        self.park(gate, 1, long, batch)
        self.assertEqual(gate.wake_at(), 3)  # in case that one overtakes it
        self.assertEqual(gate.tick(20.5), [])
        self.assertEqual(gate.wake_at(), 21)
        self.assertEqual(admitted(gate.tick(21)), [long])

    def test_a_holding_head_is_overtaken(self) -> None:
        """One whose ratio becomes the better while a long one holds goes when it does."""
        gate = Gate(NAMED, observed=False)
        gate.submit(ticket(seconds=1), 0)
        gate.submit(ticket(seconds=100), 0)
        short = ticket(seconds=10)
        self.assertEqual(admitted(gate.submit(short, 30)), [])
        now = 30.0
        while now < 40 and not short.sent_at:
            now = gate.wake_at() or 40.0
            gate.tick(now)
        self.assertLess(short.sent_at, 36)

    def test_empty_but_full(self) -> None:
        """Where direct callers fill an engine that is empty of ours, nobody need be held back."""
        gate = Gate(NAMED)
        gate.poll_ok(0, Sample(running=4, waiting=1), 0)
        gate.submit(ticket(seconds=100), 0)
        gate.poll_ok(0, Sample(running=2, waiting=0, kv_usage=0.95), 1)
        self.assertEqual(admitted(gate.submit(ticket(), 1)), [])
        self.assertEqual(len(admitted(gate.poll_ok(0, Sample(running=2, waiting=0), 2))), 1)

    def test_no_hold_without_a_gate(self) -> None:
        """Where there is no gate a long head holds nobody back."""
        gate = Gate(replace(NAMED, max_inflight=None))
        gate.poll_failed(0, 0, stale=True)
        gate.submit(ticket(), 0)
        long = ticket(seconds=100)
        self.assertEqual(admitted(gate.submit(long, 1)), [long])

    def test_holds_for_200_seconds_at_most(self) -> None:
        """Nobody is held back for more than 200 s."""
        gate, _ = self.beside()
        long = ticket(seconds=300)
        self.park(gate, 1, long)
        self.assertEqual(gate.tick(200.9), [])
        self.assertEqual(admitted(gate.tick(201)), [long])

    def test_then_it_goes_as_soon_as_it_has_room(self) -> None:
        """After its hold it is a head as any: nobody passes, and the first room is its own."""
        gate, short = self.beside(replace(NAMED, max_inflight=2))
        long, batch = ticket(seconds=20), ticket(priority=Priority.BATCH)
        self.park(gate, 1, long, batch)
        self.assertEqual(admitted(gate.poll_ok(0, Sample(running=1, waiting=1), 2)), [])
        self.assertEqual(admitted(gate.tick(21)), [])
        self.assertEqual(admitted(gate.poll_ok(0, Sample(running=1, waiting=0), 40)), [long])
        self.assertEqual(short.state, TicketState.SENT)

    def test_foreign_callers_do_not_count(self) -> None:
        """It does not wait for what is not ours, only for room."""
        gate = Gate(NAMED)
        gate.poll_ok(0, Sample(running=3, waiting=0), 0)
        self.assertEqual(len(admitted(gate.submit(ticket(seconds=20), 0))), 1)

    def test_passed_where_it_is_not_the_head(self) -> None:
        """One that is not at the head is passed over, and goes when it is."""
        gate, short = self.beside(replace(NAMED, kv_threshold=0.5))
        gate.poll_ok(0, Sample(running=1, waiting=0, kv_usage=0.25, kv_tokens=40_000), 0)
        head = ticket(seconds=14, max_tokens=0, tenant="head", n=1)
        head.kv_need_tokens = 50_000
        long = ticket(seconds=20, priority=Priority.BATCH)
        last = ticket(priority=Priority.BATCH, tenant="last")
        self.park(gate, 1, head, long)
        self.assertEqual(admitted(gate.submit(last, 2)), [last])
        self.assertEqual(admitted(gate.client_gone(head, 3)), [])
        gate.finished(short, 3)
        self.assertEqual(admitted(gate.finished(last, 4)), [long])

    def test_one_at_a_time_where_s_is_large(self) -> None:
        """Over S = 8 short ones go beside it, and another long one waits."""
        gate, _ = self.beside(WIDE)
        first, second = ticket(seconds=20, stream=True), ticket(seconds=20)
        self.assertEqual(admitted(gate.submit(first, 1)), [first])
        self.park(gate, 1, second)
        short = ticket(tenant="other")
        self.assertEqual(admitted(gate.submit(short, 2)), [short])
        self.assertEqual(admitted(gate.first_content(first, 20)), [second])

    def test_one_of_those_that_are_woken_at_once(self) -> None:
        """Of two long ones for which a place frees at the same moment one goes."""
        gate, first = self.busy(WIDE)
        one, two = ticket(seconds=20), ticket(seconds=20)
        self.park(gate, 0, one, two)
        self.assertEqual(admitted(gate.finished(first, 1)), [one])

    def test_lane_ends_with_its_ticket(self) -> None:
        """The lane ends when the long one is finished, lost, or refused by the engine."""
        for end in ("finished", "client_gone"):
            gate = Gate(NAMED)
            long, short = ticket(seconds=20), ticket()
            gate.submit(long, 0)
            self.park(gate, 1, short)
            self.assertEqual(admitted(getattr(gate, end)(long, 2)), [short])
        gate = Gate(NAMED)
        gate.submit(long := ticket(seconds=20), 0)
        self.park(gate, 1, short := ticket())
        decisions = gate.refused_by_engine(long, 2, connected=True)
        self.assertEqual((admitted(decisions), decisions[-1]), ([short], Parked(long)))

    def test_lane_ends_at_three_times_its_estimate(self) -> None:
        """A prefill that takes three times its estimate keeps others out no longer."""
        gate = Gate(NAMED)
        gate.submit(ticket(seconds=20), 0)
        short = ticket()
        self.park(gate, 1, short)
        self.assertEqual(gate.wake_at(), 60)
        self.assertEqual(gate.tick(59.9), [])
        self.assertEqual(admitted(gate.tick(60)), [short])

    def test_an_end_after_the_lane(self) -> None:
        """The end of one whose lane is over does not end that of the next."""
        gate = Gate(NAMED)
        slow, next_one = ticket(seconds=20), ticket(seconds=30)
        gate.submit(slow, 0)
        self.park(gate, 1, next_one)
        gate.tick(60)
        self.assertEqual(admitted(gate.tick(91)), [next_one])
        gate.finished(slow, 92)
        self.assertTrue(gate.view(92).engines[0].long_prefill)
        self.park(gate, 93, ticket())

    def test_two_engines(self) -> None:
        """A long one goes to the engine that is empty; each has a lane of its own."""
        gate, _ = self.beside(engines=2)
        one, two = ticket(seconds=20), ticket(seconds=25)
        self.assertEqual(gate.submit(one, 1), [Admitted(one, 1)])
        self.park(gate, 2, two)
        short = ticket(priority=Priority.BATCH)
        self.park(gate, 3, short)
        self.assertEqual(admitted(gate.tick(27)), [two])
        self.assertEqual(two.engine, 0)

    def test_two_engines_hold_back_from_one(self) -> None:
        """Where no engine is empty others are held back from that of fewest sequences alone."""
        gate = Gate(NAMED, engines=2)
        pair = ticket(n=2)
        single = ticket()
        gate.submit(pair, 0)
        gate.submit(single, 0)
        self.assertEqual((pair.engine, single.engine), (0, 1))
        long = ticket(seconds=20)
        self.park(gate, 1, long)
        batch = [ticket(priority=Priority.BATCH) for _ in range(3)]
        sent = [decision for one in batch for decision in gate.submit(one, 1)]
        self.assertEqual(sent, [Admitted(batch[0], 0), Admitted(batch[1], 0), Parked(batch[2])])
        self.assertEqual(gate.finished(single, 2), [Admitted(long, 1)])

    def test_two_engines_laned(self) -> None:
        """While all engines have a long one in prefill, a third waits and shorts may pass."""
        gate = Gate(WIDE, engines=2)
        sent = [ticket(seconds=20), ticket(seconds=20)]
        for one in sent:
            gate.submit(one, 0)
        self.assertEqual([one.engine for one in sent], [0, 1])
        third, short = ticket(seconds=20), ticket(priority=Priority.BATCH)
        self.park(gate, 1, third)
        self.assertEqual(admitted(gate.submit(short, 1)), [short])
        self.assertEqual(gate.finished(sent[1], 2), [Admitted(third, 1)])

    def test_without_a_gate_there_is_no_lane(self) -> None:
        """Where nothing bounds an engine, long ones go together, also those that go at once."""
        gate = Gate(replace(NAMED, max_inflight=None))
        gate.poll_failed(0, 0, stale=True)
        first, *others = (ticket(seconds=20) for _ in range(4))
        gate.submit(first, 0)
        self.assertEqual(gate.refused_by_engine(first, 0, connected=False), [Parked(first)])
        self.park(gate, 1, *others)
        self.assertEqual(admitted(gate.tick(2)), [first])
        self.assertCountEqual(admitted(gate.finished(first, 3)), others)

    def test_by_default_rates_nothing_is_long(self) -> None:
        """Where rates are neither learned nor named the rule is silent."""
        gate = Gate(UNNAMED)
        sent = [ticket(seconds=1000) for _ in range(4)]
        for one in sent:
            self.assertEqual(admitted(gate.submit(one, 0)), [one])

    def test_no_connection(self) -> None:
        """It holds nobody back from an engine that takes no connections."""
        gate, short = self.beside(engines=2)
        gate.refused_by_engine(short, 1, connected=False)
        gate.submit(ticket(), 1)
        long, batch = ticket(seconds=20), ticket(priority=Priority.BATCH)
        self.park(gate, 1, long, batch)
        self.assertEqual(admitted(gate.tick(21)), [long])
        self.assertEqual(long.engine, 1)

    def test_full_of_foreign_callers(self) -> None:
        """Where the empty engine has no room, it waits as any head, and nobody passes."""
        gate = Gate(NAMED)
        gate.poll_ok(0, Sample(running=4, waiting=0), 0)
        long, short = ticket(seconds=20), ticket(priority=Priority.BATCH)
        self.park(gate, 1, long, short)
        self.assertEqual(gate.tick(30), [])
        self.assertEqual(admitted(gate.poll_ok(0, Sample(running=3, waiting=0), 31)), [long])


class Deadlines(OrderTests):
    """Who can be served to nobody any more is refused."""

    def test_too_late_to_be_served(self) -> None:
        """When 0.9 of the client's patience would be over before its answer is."""
        gate, _ = self.busy()
        late = ticket(seconds=10, max_tokens=250)
        self.park(gate, 0, late)
        self.assertEqual(gate.wake_at(), 540 - 10 - 10)
        self.assertEqual(gate.tick(519.9), [])
        self.assertEqual(refused(gate.tick(520)), [(late, Reason.DEADLINE)])

    def test_hopeless(self) -> None:
        """One that never could be is sent if there is room, else refused when it waited for 1 s."""
        hasty = replace(NAMED, patience_seconds=60.0)
        sent = ticket(hasty, seconds=1000)
        self.assertEqual(admitted(Gate(NAMED).submit(sent, 0)), [sent])
        gate, _ = self.busy()
        late = ticket(hasty, seconds=1000)
        self.park(gate, 0, late)
        self.assertEqual(gate.tick(0.9), [])
        self.assertEqual(refused(gate.tick(1)), [(late, Reason.DEADLINE)])

    def test_park_timeout_first(self) -> None:
        """Where both bounds have come it is the park budget that is named."""
        gate, _ = self.busy()
        both = ticket(seconds=20)
        soon = ticket(wait_seconds=5)
        self.park(gate, 0, both, soon)
        self.assertEqual(refused(gate.tick(5)), [(soon, Reason.PARK_TIMEOUT)])
        self.assertEqual(refused(gate.tick(540)), [(both, Reason.PARK_TIMEOUT)])

    def test_none_under_fifo(self) -> None:
        """Under `fifo`, or by default rates, the park budget is the only bound."""
        for policy in (replace(ONE, ordering=Ordering.FIFO), replace(UNNAMED, max_inflight=1)):
            gate, _ = self.busy(policy)
            late = ticket(seconds=1000)
            self.park(gate, 0, late)
            self.assertEqual(gate.wake_at(), 540)

    def test_place_frees_at_the_deadline(self) -> None:
        """One whose deadline has come goes if a place frees before the gate is woken."""
        gate, first = self.busy()
        late = ticket(seconds=10)
        self.park(gate, 0, late)
        self.assertEqual(admitted(gate.finished(first, 530)), [late])

    def test_refused_by_the_engine_when_late(self) -> None:
        """What the engine refuses after its deadline parks, and is refused at the next tick."""
        gate, first = self.busy()
        late = ticket(seconds=10)
        self.park(gate, 0, late)
        gate.finished(first, 529)
        self.assertEqual(gate.refused_by_engine(late, 531, connected=True), [Parked(late)])
        self.assertEqual(gate.wake_at(), 530)
        self.assertEqual(refused(gate.tick(531)), [(late, Reason.DEADLINE)])

    def test_passed_when_its_park_budget_is_spent(self) -> None:
        """What the engine refuses when the park budget is spent gets the engine's answer."""
        gate, first = self.busy()
        late = ticket(seconds=1)
        self.park(gate, 0, late)
        gate.finished(first, 538)
        self.assertEqual(gate.refused_by_engine(late, 540, connected=True), [Passed(late)])


class Bounds(OrderTests):
    """When the queue is too long or too heavy, somebody is refused."""

    def test_victim_is_of_the_tenant_with_most_work(self) -> None:
        """The newest ticket of who has most parked makes room for a newcomer."""
        gate, _ = self.busy(replace(ONE, max_queue_depth=3))
        flood = [ticket(seconds=2, tenant="flood") for _ in range(3)]
        self.park(gate, 0, *flood)
        modest = ticket(seconds=5, tenant="modest")
        decisions = gate.submit(modest, 1)
        self.assertEqual(refused(decisions), [(flood[2], Reason.QUEUE_FULL)])
        self.assertEqual(decisions[-1], Parked(modest))

    def test_newcomer_of_the_heaviest_tenant(self) -> None:
        """A newcomer of the tenant with most work is refused itself."""
        gate, _ = self.busy(replace(ONE, max_queue_depth=2))
        self.park(gate, 0, ticket(tenant="one"), ticket(seconds=3, tenant="two"))
        newcomer = ticket(tenant="two")
        self.assertEqual(refused(gate.submit(newcomer, 1)), [(newcomer, Reason.QUEUE_FULL)])

    def test_parked_work(self) -> None:
        """More parked work than parkedWorkSeconds is too heavy; so much is not."""
        gate, _ = self.busy(replace(ONE, parked_work_seconds=20.0))
        self.park(gate, 0, ticket(seconds=10, tenant="a"), ticket(seconds=10, tenant="b"))
        newcomer = ticket(seconds=1, tenant="c")
        ((victim, reason),) = refused(gate.submit(newcomer, 1))
        self.assertEqual((victim.tenant, reason), ("b", Reason.QUEUE_FULL))

    def test_too_heavy_whoever_leaves(self) -> None:
        """A newcomer that is too heavy whoever leaves is refused, and nobody else is."""
        gate, _ = self.busy(replace(ONE, parked_work_seconds=20.0))
        self.park(gate, 0, ticket(seconds=4, tenant="a"), ticket(seconds=4, tenant="b"))
        newcomer = ticket(seconds=21, tenant="c")
        self.assertEqual(refused(gate.submit(newcomer, 1)), [(newcomer, Reason.QUEUE_FULL)])

    def test_blocks_beyond_the_engines_limit(self) -> None:
        """A prefix longer than what the engine can take hides nothing of what follows it."""
        gate = Gate(ONE)
        junk = tuple(range(200))
        first = ticket(seconds=1, stream=True, blocks=junk)
        gate.submit(first, 0)
        gate.first_content(first, 1)
        later = Ticket(
            model="m",
            policy=ONE,
            prompt_tokens=32_768,
            body_bytes=4 * (204_800 + 20_000),
            blocks=junk,
        )
        gate.submit(later, 2)
        self.assertEqual(later.prefill_seconds, 20_000 / gate._costs.rates.prefill)

    def test_thousands_of_small_ones(self) -> None:
        """Whoever must leave is found in one pass, however many there are."""
        flood = [ticket(seconds=1, tenant=str(n % 7)) for n in range(5000)]
        for number, one in enumerate(flood):
            one.sequence, one.cost_seconds = number, 1.0
        first, *rest = heaviest(flood)
        self.assertEqual((first.tenant, len(rest)), ("1", 4999))

    def test_nobody_leaves_for_want_of_those_who_may_not(self) -> None:
        """Where those that the engine sent back fill the queue, only the newcomer is refused."""
        gate, first = self.busy(replace(ONE, max_queue_depth=2))
        back = ticket(seconds=1, tenant="b")
        self.park(gate, 0, ticket(seconds=3, tenant="a"), ticket(seconds=3, tenant="a"))
        gate.finished(first, 1)
        for one in list(gate._queue):
            one.reparked = True
        gate.submit(back, 2)
        newcomer = ticket(seconds=1, tenant="c")
        decisions = gate.submit(newcomer, 2)
        self.assertEqual(refused(decisions), [(newcomer, Reason.QUEUE_FULL)])

    def test_as_many_as_it_takes(self) -> None:
        """One victim may not be enough."""
        gate, _ = self.busy(replace(ONE, parked_work_seconds=20.0))
        flood = [ticket(seconds=4, tenant="flood") for _ in range(5)]
        self.park(gate, 0, *flood)
        newcomer = ticket(seconds=9, tenant="modest")
        victims = [(one, Reason.QUEUE_FULL) for one in (flood[4], flood[3], flood[2])]
        self.assertEqual(refused(gate.submit(newcomer, 1)), victims)
        self.assertEqual(newcomer.state, TicketState.PARKED)

    def test_newcomer_who_would_be_next(self) -> None:
        """Where the newcomer would have to leave as well it is the only one that does."""
        gate, _ = self.busy(replace(ONE, parked_work_seconds=15.0))
        self.park(gate, 0, ticket(seconds=6, tenant="two"), ticket(seconds=6, tenant="two"))
        newcomer = ticket(seconds=11, tenant="one")
        self.assertEqual(refused(gate.submit(newcomer, 1)), [(newcomer, Reason.QUEUE_FULL)])

    def test_work_is_divided_by_replicas(self) -> None:
        """Of N replicas each parks an Nth of parkedWorkSeconds."""
        gate, _ = self.busy(replace(TWO_REPLICAS, parked_work_seconds=40.0))
        self.park(gate, 0, ticket(seconds=10), ticket(seconds=10))
        self.assertEqual(len(refused(gate.submit(ticket(), 0))), 1)

    def test_alone_it_is_never_too_heavy(self) -> None:
        """A lone ticket is not refused for its own cost or size."""
        gate, _ = self.busy(replace(ONE, parked_work_seconds=20.0, parked_bytes=100))
        self.park(gate, 0, ticket(seconds=100, body_bytes=1000))

    def test_too_many_bytes(self) -> None:
        """Bytes are bounded as work is, and the tenant with most work pays."""
        gate, _ = self.busy(replace(ONE, parked_bytes=100))
        heavy = ticket(seconds=10, tenant="heavy", body_bytes=10)
        self.park(gate, 0, heavy)
        decisions = gate.submit(ticket(tenant="light", body_bytes=95), 0)
        self.assertEqual(refused(decisions), [(heavy, Reason.QUEUE_FULL)])

    def test_unlearned_rates_bound_no_work(self) -> None:
        """By default rates nobody is refused for the work that is parked."""
        gate, _ = self.busy(replace(UNNAMED, max_inflight=1, parked_work_seconds=1.0))
        self.park(gate, 0, *[ticket(seconds=100) for _ in range(5)])

    def test_fifo_refuses_the_newcomer(self) -> None:
        """Under `fifo` the newcomer pays, for work too."""
        gate, _ = self.busy(replace(ONE, ordering=Ordering.FIFO, parked_work_seconds=20.0))
        self.park(gate, 0, ticket(seconds=20, tenant="heavy"))
        newcomer = ticket(tenant="light")
        self.assertEqual(refused(gate.submit(newcomer, 0)), [(newcomer, Reason.QUEUE_FULL)])

    def test_who_was_sent_before_is_spared(self) -> None:
        """One that an engine sent back counts as its tenant's work, and is not refused."""
        gate, first = self.busy(replace(ONE, max_queue_depth=2))
        back, mine = ticket(seconds=5, tenant="mine"), ticket(seconds=9, tenant="mine")
        self.park(gate, 0, back, mine)
        gate.finished(first, 0)
        gate.refused_by_engine(back, 0, connected=True)
        self.assertEqual(mine.state, TicketState.SENT)
        other = ticket(seconds=4, tenant="other")
        self.park(gate, 1, other)
        newcomer = ticket(seconds=1, tenant="third")
        self.assertEqual(refused(gate.submit(newcomer, 1)), [(other, Reason.QUEUE_FULL)])
        self.assertIs(back.state, TicketState.PARKED)

    def test_heaviest_of_nobody(self) -> None:
        """Where all were sent before there is nobody to refuse."""
        back = ticket()
        back.reparked = True
        self.assertEqual(list(heaviest([back])), [])

    def test_refusal_frees_the_way(self) -> None:
        """When the victim is the head that kept a newcomer waiting, that goes."""
        policy = replace(NAMED, max_queue_depth=1)
        gate = Gate(policy)
        gate.submit(ticket(n=3), 0)
        wide = ticket(seconds=10, n=2, tenant="wide")
        self.park(gate, 0, wide)
        gate.submit(ticket(tenant="wide", priority=Priority.BATCH, n=2, seconds=0), 0)
        narrow = ticket(priority=Priority.BATCH, tenant="narrow")
        decisions = gate.submit(narrow, 1)
        self.assertEqual(refused(decisions), [(wide, Reason.QUEUE_FULL)])
        self.assertEqual(admitted(decisions), [narrow])


class Adopting(OrderTests):
    """A reload may change the order of who is parked."""

    def test_fifo_to_cost(self) -> None:
        """Who came first under `fifo` stands by cost from then on, and may be too late."""
        gate, first = self.busy(replace(ONE, ordering=Ordering.FIFO))
        dear, cheap = ticket(seconds=10), ticket(seconds=1)
        self.park(gate, 0, dear, cheap)
        self.assertEqual(gate.wake_at(), 540)
        self.assertEqual(gate.adopt(ONE, 1), [])
        self.assertEqual(gate.wake_at(), 530)
        self.assertOrder([cheap, dear], gate, first, 2)

    def test_cost_to_fifo(self) -> None:
        """Who was long or late under `cost` is neither under `fifo`, and goes by arrival."""
        gate, first = self.busy()
        long, cheap = ticket(seconds=100), ticket(seconds=1)
        self.park(gate, 0, long, cheap)
        self.assertTrue(long.long)
        gate.adopt(replace(ONE, ordering=Ordering.FIFO), 1)
        self.assertEqual((long.long, gate.wake_at()), (False, 540))
        self.assertOrder([long, cheap], gate, first, 2)

    def test_held_tickets_come_too(self) -> None:
        """One that is held returns to the line that there is when its hold ends."""
        gate, first = self.busy()
        back, cheap = ticket(seconds=2), ticket(seconds=1, wait_seconds=100)
        self.park(gate, 0, back)
        gate.finished(first, 0)
        gate.submit(cheap, 0)
        gate.refused_by_engine(back, 0, connected=True)
        gate.adopt(replace(ONE, ordering=Ordering.FIFO), 1)
        gate.tick(2)
        self.assertOrder([back], gate, cheap, 3)

    def test_long_prefill_seconds(self) -> None:
        """What is long follows a reload, though no cost changes."""
        gate, _ = self.busy()
        one = ticket(seconds=10)
        self.park(gate, 0, one)
        gate.adopt(replace(ONE, long_prefill_seconds=5.0), 1)
        self.assertTrue(one.long)


class Watching(OrderTests):
    """When time alone changes who may go."""

    def test_hold_of_a_page_ends(self) -> None:
        """A long head beside a held page is woken when its own hold is over first."""
        policy = replace(NAMED, when_stale=WhenStale.HOLD)
        gate = Gate(policy)
        gate.poll_ok(0, Sample(running=0, waiting=0), 0)
        gate.submit(ticket(), 0)
        gate.poll_failed(0, 1, stale=True)
        long = ticket(seconds=20)
        self.park(gate, 2, long)
        gate.tick(21)
        self.assertEqual(gate.wake_at(), 22)
        self.assertEqual(admitted(gate.tick(22)), [long])

    def test_nobody_waits(self) -> None:
        """With nobody in line there is nothing to wake for, be a long prefill in flight."""
        gate = Gate(NAMED)
        gate.submit(ticket(seconds=20), 0)
        self.assertIsNone(gate.wake_at())
