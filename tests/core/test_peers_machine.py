"""Several replicas in front of one engine: real gates, and an engine that knows the truth.

All callers are theirs, and each ticket is one sequence. Time goes in steps of 1/32 s, so that
nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tests.support import TestCase, examples
from twisted_gateway.core.decision import Admitted, Decision, Parked, Refused
from twisted_gateway.core.gate import Gate
from twisted_gateway.core.peers import GateReport
from twisted_gateway.core.policy import Ordering, Policy, Replicas
from twisted_gateway.core.sample import Sample
from twisted_gateway.core.ticket import Priority, Ticket, TicketState

STEPS = 32  # of a second
ROUND = STEPS // 4  # between the beginnings of two rounds of asking
IDLE = 2.25 * STEPS + 2 * ROUND  # for how long a place may be left free
PREFILL = 525


@dataclass(eq=False)
class Round:
    """A round of asking: what has been read so far, and for how many steps it will go on."""

    begun: int
    lasts: int
    views: dict[int, GateReport] = field(default_factory=dict)


class World:
    """Gates, their rounds of asking each other, and what is really in the engine."""

    def __init__(self, policy: Policy, count: int) -> None:
        assert policy.max_inflight is not None
        self.policy = policy
        self.limit = policy.max_inflight
        self.count = count
        self.step = 0
        self.gates = [Gate(policy) for _ in range(count)]
        self.rounds: list[Round | None] = [None] * count
        self.next_round = [0] * count
        self.lateness = [0] * count
        self.sent: list[list[Ticket]] = [[] for _ in range(count)]
        self.parked: list[list[Ticket]] = [[] for _ in range(count)]
        self.truths = [0]
        self.idle = 0

    @property
    def now(self) -> float:
        return 1000 + self.step / STEPS

    def in_engine(self) -> int:
        return sum(map(len, self.sent))

    def room(self, replica: int) -> int:
        """What is free as this replica sees it."""
        engine = self.gates[replica].engine_view(0, self.now)
        return engine.max_inflight - engine.in_engine

    def carry_out(self, replica: int, decisions: Sequence[Decision]) -> None:
        """Do what a gate has decided, and check that it had reason to."""
        sent, parked = self.sent[replica], self.parked[replica]
        room = self.room(replica) + sum(isinstance(one, Admitted) for one in decisions)
        for decision in decisions:
            ticket = decision.ticket
            if isinstance(decision, Parked):
                parked.append(ticket)
                continue
            if ticket in parked:
                parked.remove(ticket)
            if isinstance(decision, Admitted):
                assert room >= 1 or not sent, "took a place where it saw none"
                room -= 1
                sent.append(ticket)
                self.idle = 0
            else:
                assert isinstance(decision, Refused)
        assert len(sent) <= self.limit, "more than S of one replica"
        assert self.in_engine() <= self.count * self.limit

    # Tickets

    def submit(self, replica: int, ticket: Ticket) -> None:
        self.carry_out(replica, self.gates[replica].submit(ticket, self.now))

    def first_content(self, replica: int) -> None:
        """All that this replica has in the engine is being answered."""
        for ticket in list(self.sent[replica]):
            self.carry_out(replica, self.gates[replica].first_content(ticket, self.now))

    def end(self, replica: int, *, left: bool = False) -> None:
        """The oldest in the engine of one replica's ends, if there is any."""
        if self.sent[replica]:
            ticket = self.sent[replica].pop(0)
            gate = self.gates[replica]
            end = gate.client_gone if left else gate.finished
            self.carry_out(replica, end(ticket, self.now))

    def leave(self, replica: int) -> None:
        """The client of the first parked leaves, if there is any."""
        if self.parked[replica]:
            ticket = self.parked[replica].pop(0)
            self.carry_out(replica, self.gates[replica].client_gone(ticket, self.now))

    # Rounds of asking

    def begin(self, replica: int) -> None:
        """Begin a round where none is under way and the last began long enough ago."""
        if self.rounds[replica] is None and self.step >= self.next_round[replica]:
            self.rounds[replica] = Round(self.step, self.lateness[replica])
            self.next_round[replica] = self.step + ROUND

    def read(self, replica: int, other: int) -> None:
        """Another replica answers in the round that is under way."""
        under_way = self.rounds[replica]
        if under_way is not None and other != replica and other not in under_way.views:
            under_way.views[other] = self.gates[other].report(self.now)

    def deliver(self, replica: int) -> None:
        """The round that is under way ends."""
        under_way = self.rounds[replica]
        if under_way is None:
            return
        for other in range(self.count):
            self.read(replica, other)
        self.rounds[replica] = None
        views = {str(other): report for other, report in under_way.views.items()}
        self.carry_out(replica, self.gates[replica].peers(views, self.now, current=True))

    # Time

    def pass_steps(self, steps: int, order: Sequence[int], *, asking: bool = True) -> None:
        """Let time pass, with rounds of asking as they are due."""
        order = [replica for replica in order if replica < self.count]
        for _ in range(steps):
            self.step += 1
            self.wake(order)
            for replica in order if asking else ():
                under_way = self.rounds[replica]
                if under_way is not None and self.step >= under_way.begun + under_way.lasts:
                    self.deliver(replica)
                self.begin(replica)
                if self.rounds[replica] is not None and not self.lateness[replica]:
                    self.deliver(replica)
            self.truths.append(self.in_engine())
            self.idle = self.idle + 1 if self.idles() else 0
            assert not asking or self.idle <= IDLE, "a place is left free"

    def wake(self, order: Iterable[int]) -> None:
        for replica in order:
            wake_at = self.gates[replica].wake_at()
            if wake_at is not None and wake_at <= self.now:
                self.carry_out(replica, self.gates[replica].tick(self.now))

    def idles(self) -> bool:
        """Whether somebody is parked who could be served by what his replica knows."""
        if self.in_engine() >= self.limit or self.any_long():
            return False
        return any(self.parked[one] and self.room(one) >= 1 for one in range(self.count))

    def any_long(self) -> bool:
        """Whether a long prefill, sent or parked, keeps others back."""
        return any(t.long for tickets in (*self.sent, *self.parked) for t in tickets)

    # Polls

    def page(self, age_steps: int) -> Sample:
        """What a page shows that is so old."""
        true = self.truths[-1 - min(age_steps, len(self.truths) - 1)]
        running = min(true, self.limit)
        return Sample(running=running, waiting=true - running, taken_at=self.now)

    def poll(self, replica: int, age_steps: int = 0) -> None:
        gate = self.gates[replica]
        self.truths[-1] = self.in_engine()
        gate.poll_sent(0, self.now)
        self.carry_out(replica, gate.poll_ok(0, self.page(age_steps), self.now))


tickets: st.SearchStrategy[dict[str, object]] = st.builds(
    dict,
    priority=st.sampled_from([Priority.INTERACTIVE, *Priority]),
    tenant=st.sampled_from(["a", "b"]),
    stream=st.just(True),
    prompt_tokens=st.sampled_from([0, PREFILL, 5 * PREFILL, 20 * PREFILL]),
    max_tokens=st.sampled_from([0, 64, 512]),
)
replicas = st.integers(0, 3)
orders = st.permutations(range(4))


class Replicated(RuleBasedStateMachine):
    """What happens at replicas whether they hear of each other or not."""

    world: World

    @initialize(
        limit=st.integers(1, 9),
        count=st.integers(2, 4),
        ordering=st.sampled_from(Ordering),
        rate=st.sampled_from([None, float(PREFILL)]),
    )
    def open(self, limit: int, count: int, ordering: Ordering, rate: float | None) -> None:
        addresses = tuple((f"10.0.0.{number}", 8081) for number in range(count))
        policy = Policy(
            max_inflight=limit,
            ordering=ordering,
            prefill_tokens_per_second=rate,
            replicas=Replicas(addresses=addresses),
        )
        self.world = World(policy, count)

    @rule(at=replicas, values=tickets, count=st.sampled_from([1, 1, 2, 5, 12]))
    def arrive(self, at: int, values: dict[str, object], count: int) -> None:
        for _ in range(count):
            self.submit(at % self.world.count, values)

    @rule(values=tickets, count=st.sampled_from([1, 4]))
    def arrive_everywhere(self, values: dict[str, object], count: int) -> None:
        for number in range(count * self.world.count):
            self.submit(number % self.world.count, values)

    def submit(self, replica: int, values: dict[str, object]) -> None:
        if len(self.world.parked[replica]) < 20:
            ticket = Ticket(model="m", policy=self.world.policy, **values)  # type: ignore[arg-type]
            self.world.submit(replica, ticket)

    @rule(at=replicas, count=st.sampled_from([1, 1, 2, 9]), left=st.booleans())
    def end(self, at: int, count: int, left: bool) -> None:
        for _ in range(count):
            self.world.end(at % self.world.count, left=left)

    @rule(at=replicas)
    def answer(self, at: int) -> None:
        self.world.first_content(at % self.world.count)

    @rule(at=replicas, count=st.sampled_from([1, 20]))
    def leave(self, at: int, count: int) -> None:
        for _ in range(count):
            self.world.leave(at % self.world.count)

    @invariant()
    def nothing_is_lost(self) -> None:
        for sent, parked in zip(self.world.sent, self.world.parked, strict=True):
            assert all(ticket.state is TicketState.SENT for ticket in sent)
            assert all(ticket.state is TicketState.PARKED for ticket in parked)

    @invariant()
    def nobody_waits_beyond_the_bound(self) -> None:
        for gate, parked in zip(self.world.gates, self.world.parked, strict=True):
            wake_at = gate.wake_at()
            assert all(wake_at is not None and wake_at <= one.park_until for one in parked)

    def serve_all(self, order: Sequence[int]) -> None:
        """Let tickets end one by one until nobody is parked, with rounds and true gauges."""
        world = self.world
        world.lateness = [0] * world.count
        for turn in range(4000):
            if not any(world.parked) and not any(world.sent):
                return
            world.first_content(turn % world.count)
            world.end(turn % world.count)
            if turn % 8 == 0:
                for replica in range(world.count):
                    world.poll(replica)
            world.pass_steps(ROUND, order)
        raise AssertionError("somebody is never served")


class CurrentViews(Replicated):
    """Replicas that hear of each other in time."""

    @invariant()
    def at_most_one_more_for_each_other_replica(self) -> None:
        world = self.world
        assert world.in_engine() <= world.limit + world.count - 1

    @rule(steps=st.sampled_from([1, 1, 3, ROUND, 2 * STEPS, 10 * STEPS]), order=orders)
    def time_passes(self, steps: int, order: Sequence[int]) -> None:
        self.world.pass_steps(steps, order)

    @rule(at=replicas)
    def ask(self, at: int) -> None:
        """A round between those that are due."""
        replica = at % self.world.count
        self.world.next_round[replica] = 0
        self.world.begin(replica)
        self.world.deliver(replica)

    @rule(at=replicas, age_steps=st.sampled_from([0, 0, 1, ROUND, 2 * STEPS, 16 * STEPS]))
    def poll(self, at: int, age_steps: int) -> None:
        self.world.poll(at % self.world.count, age_steps)

    def teardown(self) -> None:
        """With tickets ending, everybody is served or refused."""
        if hasattr(self, "world"):
            self.serve_all(range(4))


class LateViews(CurrentViews):
    """Replicas whose rounds take any part of the time between two, and hear others at any of it."""

    @rule(at=replicas, lasts=st.integers(0, ROUND - 1))
    def be_late(self, at: int, lasts: int) -> None:
        self.world.lateness[at % self.world.count] = lasts

    @rule(at=replicas)
    def begin(self, at: int) -> None:
        self.world.begin(at % self.world.count)

    @rule(at=replicas, other=replicas)
    def read(self, at: int, other: int) -> None:
        self.world.read(at % self.world.count, other % self.world.count)

    @rule(at=replicas)
    def deliver(self, at: int) -> None:
        self.world.deliver(at % self.world.count)

    @rule(at=replicas)
    def ask(self, at: int) -> None:
        """No more rounds than are due."""


class AnyViews(Replicated):
    """Replicas that hear of each other late, wrongly, or not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[GateReport | None] = [None]

    @rule(at=replicas)
    def say(self, at: int) -> None:
        """A report goes out, to be heard by anybody as anybody's, at any time."""
        self.said.append(self.world.gates[at % self.world.count].report(self.world.now))

    @rule(at=replicas, data=st.data(), current=st.booleans())
    def hear(self, at: int, data: st.DataObject, current: bool) -> None:
        world, replica = self.world, at % self.world.count
        others = data.draw(st.lists(replicas, max_size=3, unique=True))
        views = {str(other): data.draw(st.sampled_from(self.said)) for other in others}
        world.carry_out(replica, world.gates[replica].peers(views, world.now, current=current))

    @rule(at=replicas)
    def restart(self, at: int) -> None:
        """A replica dies, and what it had in the engine with it; another takes its place."""
        world, replica = self.world, at % self.world.count
        world.sent[replica].clear()
        world.parked[replica].clear()
        world.gates[replica] = Gate(world.policy)

    @rule(
        steps=st.sampled_from([1, ROUND, 2 * STEPS, 35 * STEPS, 7200 * STEPS]),
        order=orders,
    )
    def time_passes(self, steps: int, order: Sequence[int]) -> None:
        world = self.world
        world.step += steps - 1
        world.pass_steps(1, order, asking=False)

    @rule(at=replicas, running=st.integers(0, 9), waiting=st.integers(0, 40))
    def poll(self, at: int, running: int, waiting: int) -> None:
        """A page that may say anything."""
        world, replica = self.world, at % self.world.count
        gate = world.gates[replica]
        gate.poll_sent(0, world.now)
        sample = Sample(running=running, waiting=waiting, taken_at=world.now)
        world.carry_out(replica, gate.poll_ok(0, sample, world.now))

    @rule(at=replicas, stale=st.booleans())
    def poll_fails(self, at: int, stale: bool) -> None:
        world, replica = self.world, at % self.world.count
        gate = world.gates[replica]
        world.carry_out(replica, gate.poll_failed(0, world.now, stale=stale))

    def teardown(self) -> None:
        """Once views return, what is over S is over when it ends, and everybody is served."""
        if not hasattr(self, "world"):
            return
        world = self.world
        most = world.limit + world.count - 1
        # What was heard of others than there are is to be forgotten first.
        world.step += 34 * STEPS
        world.pass_steps(2 * ROUND, range(4))
        for turn in range(2 * world.count * world.limit):
            before = world.in_engine()
            world.end(turn % world.count)
            # One place is always a replica's own, however full the engine is.
            before += sum(not sent for sent in world.sent)
            for replica in range(world.count):
                world.poll(replica)
            world.pass_steps(2 * ROUND, range(4))
            assert world.in_engine() <= max(before, most), "further over S"
        assert world.in_engine() <= max(world.limit, world.count), "over S to the end"
        self.serve_all(range(4))


class ManyReplicas(TestCase):
    """Replicas act as one."""

    def run_machine(self, machine: type[RuleBasedStateMachine], count: int = 40) -> None:
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=examples(count).max_examples, stateful_step_count=30, deadline=None
            ),
        )

    def test_current_views(self) -> None:
        """At most N - 1 over S, no place idle for long, and nobody starves."""
        self.run_machine(CurrentViews)

    def test_late_views(self) -> None:
        """The same where a round takes any part of its time."""
        self.run_machine(LateViews)

    def test_any_views(self) -> None:
        """Whatever is heard: at most S of one replica; and within S again once views return."""
        self.run_machine(AnyViews)
