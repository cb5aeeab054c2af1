"""Any sequence of events, judged by a second, slow, plain reading of the gate's specification."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.support import TestCase, examples
from twisted_gateway.core.decision import Admitted, Decision, Parked, Passed, Reason, Refused
from twisted_gateway.core.gate import Gate
from twisted_gateway.core.policy import Ordering, Policy, WhenStale
from twisted_gateway.core.sample import Sample
from twisted_gateway.core.ticket import IllegalCall, Priority, Ticket, TicketState

# Both readings write each formula in the same way, so that they round alike and can be compared
# for equality; only sums of many costs are compared with a tolerance.
TOLERANCE = 1e-6


@dataclass(eq=False)
class Engine:
    """What the specification says of one engine."""

    own: list[Ticket] = field(default_factory=list)
    own_then: int = 0
    awaiting_then: int = 0
    foreign: int = 0
    sample: Sample | None = None
    failing: bool = False
    stale_since: float | None = None
    refused_at: float | None = None
    probe_at: float = 0.0
    frozen_since: float | None = None
    learned: int | None = None
    shown: bool = False
    most_running: int = 0
    drift: bool = False
    lane: Ticket | None = None

    def flying(self) -> int:
        return sum(ticket.n for ticket in self.own)

    def awaiting(self) -> int:
        return sum(t.n for t in self.own if not t.stream or t.first_content_at is None)


@dataclass(frozen=True)
class Price:
    """What a ticket costs, and what follows from that."""

    shared: int
    prefill: float
    cost: float
    long: bool
    deadline: float


class Model:
    """The specification, read plainly: every question is answered by looking at everything."""

    def __init__(self, policy: Policy, engines: int, observed: bool) -> None:
        self.policy = policy
        self.observed = observed
        self.engines = [Engine() for _ in range(engines)]
        self.parked: list[Ticket] = []
        self.arrival: dict[Ticket, int] = {}
        self.until: dict[Ticket, float] = {}
        self.hold: dict[Ticket, float] = {}
        self.refusals: dict[Ticket, int] = {}
        self.kv_since: dict[Ticket, float] = {}
        self.held_since: dict[Ticket, float] = {}
        self.held_back: Engine | None = None
        self.reparked: set[Ticket] = set()
        self.sent_for: dict[Ticket, Price] = {}
        self.contended: set[Ticket] = set()
        self.used: dict[str, tuple[float, float]] = {}
        self.read: list[int] = []  # the latest last
        self.most_blocks = 10_000
        self.reading: dict[Ticket, float] = {}
        self.prefill_rates: list[tuple[float, bool]] = []  # and whether the engine told of it
        self.decode_rates: list[float] = []

    # What is in force

    def s(self, engine: Engine) -> int:
        if self.policy.max_inflight is not None:
            return self.policy.max_inflight
        return 2 if engine.learned is None else engine.learned

    def judged(self, engine: Engine, now: float) -> str:
        if not self.observed or (engine.stale_since is None and engine.sample is None):
            return "ledger"
        if engine.stale_since is None:
            return "gauges"
        if self.policy.when_stale is WhenStale.CLOSED:
            return "closed"
        holding = self.policy.when_stale is WhenStale.HOLD and engine.sample is not None
        if holding and now < engine.stale_since + self.policy.hold_seconds:
            return "gauges"
        known = self.policy.max_inflight is not None or engine.learned is not None
        return "ledger" if known else "nothing"

    def room(self, engine: Engine, now: float) -> int:
        foreign = engine.foreign if self.judged(engine, now) == "gauges" else 0
        return self.s(engine) - engine.flying() - foreign

    def connects(self, engine: Engine, now: float) -> bool:
        if engine.refused_at is None:
            return True
        return (engine.failing or not self.observed) and now >= engine.probe_at

    def starts_at(self, ticket: Ticket) -> float:
        if ticket.first_content_at is not None:
            return ticket.first_content_at
        return ticket.sent_at + self.sent_for[ticket].prefill + self.policy.poll_seconds

    def kv_fits(self, ticket: Ticket, engine: Engine, now: float) -> bool:
        sample = engine.sample
        if self.judged(engine, now) != "gauges" or sample is None or sample.kv_usage is None:
            return True
        if sample.kv_usage >= self.policy.kv_threshold:
            return False
        if sample.kv_tokens is None or not engine.own:
            return True
        begun = [t for t in engine.own if now >= self.starts_at(t)]
        started = sum(t.prompt_tokens + t.generated_tokens for t in begun)
        others = [t for t in engine.own if t not in begun] + [ticket]
        promised = sum(t.prompt_tokens + min(t.max_tokens, 1024) for t in others)
        used = max(sample.kv_usage * sample.kv_tokens, started)
        return used + promised <= 0.95 * sample.kv_tokens

    # What it costs

    def rates(self) -> tuple[float, float, bool]:
        """Tokens a second of prefill and decode, and whether they count as learned."""
        named = (self.policy.prefill_tokens_per_second, self.policy.decode_tokens_per_second)
        told = self.tercile([rate for rate, confirmed in self.prefill_rates if confirmed])
        known = told or named[0] or None
        seen = [
            self.tercile(
                [
                    rate if confirmed or known is None else sorted((known / 4, rate, known * 4))[1]
                    for rate, confirmed in self.prefill_rates
                ]
            ),
            self.tercile(self.decode_rates),
        ]
        return (
            seen[0] or named[0] or 525.0,
            seen[1] or named[1] or 25.0,
            None not in seen or named != (None, None),
        )

    def tercile(self, rates: list[float]) -> float | None:
        """What the last 15 show, five at least."""
        last = sorted(rates[-15:], reverse=True)
        return last[-(-len(last) // 3) - 1] if len(rates) >= 5 else None

    def price(self, ticket: Ticket) -> Price:
        prefill_rate, decode_rate, known = self.rates()
        shared = 0
        while shared < len(ticket.blocks) and ticket.blocks[shared] in self.read:
            shared += 1
        answer = min(ticket.max_tokens, 512)
        prefill = max(0, ticket.prompt_tokens - 1024 * shared) / prefill_rate
        decode = answer * ticket.n / (decode_rate * self.s(self.engines[0]))
        counts = known and self.policy.ordering is Ordering.COST
        served_in = prefill + answer / decode_rate
        latest = max(1.0, 0.9 * ticket.policy.patience_seconds - served_in)
        return Price(
            shared=shared,
            prefill=prefill,
            cost=max(0.001, prefill + decode),
            long=counts and prefill > self.policy.long_prefill_seconds,
            deadline=ticket.parked_at + latest if counts else math.inf,
        )

    def use(self, tenant: str, now: float) -> float:
        seconds, at = self.used.get(tenant, (0.0, now))
        return seconds * math.exp((at - now) / 120)

    def bound(self, ticket: Ticket) -> float:
        """When a ticket is parked no longer, whatever happens."""
        return min(self.until[ticket], self.price(ticket).deadline)

    def work(self) -> float:
        return sum(self.price(ticket).cost for ticket in self.parked)

    def victims(self, newcomer: Ticket) -> list[Ticket]:
        """Who is refused for a newcomer that makes the queue too long or too heavy."""
        staying = list(self.parked)
        leaving: list[Ticket] = []
        while self.policy.ordering is Ordering.COST and (not leaving or self.overfull(staying) > 0):
            work: dict[str, float] = {}
            for ticket in staying:
                work[ticket.tenant] = work.get(ticket.tenant, 0) + self.price(ticket).cost
            victim = max(
                (ticket for ticket in staying if ticket not in self.reparked),
                key=lambda ticket: (work[ticket.tenant], self.arrival[ticket]),
                default=newcomer,
            )
            if victim is newcomer:
                return [newcomer]
            staying.remove(victim)
            leaving.append(victim)
        return leaving or [newcomer]

    def overfull(self, tickets: list[Ticket]) -> float:
        """Whether these are too many (1) or not (-1); 0 where that is a matter of rounding."""
        policy = self.policy
        if len(tickets) > policy.max_queue_depth:
            return 1
        if len(tickets) < 2:
            return -1
        if sum(ticket.body_bytes for ticket in tickets) > policy.parked_bytes:
            return 1
        over = sum(self.price(ticket).cost for ticket in tickets) - policy.parked_work_seconds
        if not self.rates()[2] or over < -TOLERANCE:
            return -1
        return 1 if over > TOLERANCE else 0

    # Who goes next

    def laned(self, engine: Engine, now: float) -> bool:
        """Whether a long prefill is in flight."""
        lane = engine.lane
        if lane is None or self.policy.ordering is Ordering.FIFO:
            return False
        return now < lane.sent_at + 3 * self.sent_for[lane].prefill

    def bars(self, engine: Engine, now: float) -> bool:
        """Whether the long prefill in flight keeps others out: no gate, no lane."""
        return self.laned(engine, now) and self.judged(engine, now) != "nothing"

    def shut(self, engine: Engine, now: float) -> bool:
        """Whether nobody goes there, however much room it has."""
        return (
            self.judged(engine, now) == "closed"
            or not self.connects(engine, now)
            or engine is self.held_back
            or (self.bars(engine, now) and self.s(engine) <= 8)
        )

    def verdict(self, ticket: Ticket, engine: Engine, now: float) -> str:
        if self.shut(engine, now):
            return "no"
        bounded = self.judged(engine, now) != "nothing"
        if bounded and self.room(engine, now) < min(ticket.n, self.s(engine)):
            return "no"
        return "yes" if self.kv_fits(ticket, engine, now) else "kv"

    def probes(self, engine: Engine, now: float) -> bool:
        return (
            self.judged(engine, now) == "gauges"
            and not self.shut(engine, now)
            and engine.frozen_since is not None
            and now >= engine.frozen_since + 60
        )

    def open(self, engine: Engine, now: float) -> bool:
        """Whether anybody at all may go there."""
        unbounded = self.judged(engine, now) == "nothing"
        roomy = not self.shut(engine, now) and (unbounded or self.room(engine, now) > 0)
        return roomy or self.probes(engine, now)

    def standing(self, now: float, order_at: float | None = None) -> list[Ticket]:
        """Who may be served, in order: in that of another time if that is given."""
        at = now if order_at is None else order_at
        others = any(t.priority is not Priority.WARMUP for t in self.parked)
        return sorted(
            (
                ticket
                for ticket in self.parked
                if self.hold.get(ticket, now) <= now
                and not (ticket.priority is Priority.WARMUP and others)
            ),
            key=lambda ticket: self.rank(ticket, at),
        )

    def rank(self, ticket: Ticket, now: float) -> tuple[float, ...]:
        """Of two the lesser goes first."""
        if self.policy.ordering is Ordering.FIFO:
            return (ticket.priority, self.arrival[ticket])
        ratio = (now - ticket.parked_at + 1) / self.price(ticket).cost
        step = int(self.use(ticket.tenant, now) / 10)
        return (ticket.priority, step, -ratio, self.arrival[ticket])

    def best(self, ticket: Ticket, engines: list[Engine], now: float) -> tuple[Engine | None, str]:
        """Where a ticket goes; else why it does not."""
        verdicts = {engine: self.verdict(ticket, engine, now) for engine in engines}
        takers = [engine for engine in engines if verdicts[engine] == "yes"]
        if takers:
            return max(
                takers, key=lambda e: (e.refused_at is None, self.room(e, now), -e.flying())
            ), "yes"
        return None, "kv" if "kv" in verdicts.values() else "no"

    def choose(self, ticket: Ticket, now: float, at_head: bool) -> tuple[Engine | None, str]:
        """As `best`, with the long lane."""
        price = self.price(ticket)
        if not price.long:
            return self.best(ticket, self.engines, now)
        free = [e for e in self.engines if not self.bars(e, now) and not self.shut(e, now)]
        if not at_head or not free:
            self.held_since.pop(ticket, None)
            return None, "lane"
        alone = [e for e in free if not e.own or self.s(e) > 8 or self.judged(e, now) == "nothing"]
        engine, why = self.best(ticket, alone, now)
        if engine is not None:
            return engine, why
        since = self.held_since.setdefault(ticket, now)
        if now >= since + min(200, price.prefill):
            return self.best(ticket, free, now)
        if why == "kv" and alone:
            return None, why
        self.held_back = min(free, key=lambda engine: engine.flying())
        return None, "lane"

    def turns(self, now: float, order_at: float | None = None) -> Iterator[tuple[Ticket, Engine]]:
        """Who goes next, and where; each is to be sent before the next is asked for."""
        passed: list[Ticket] = []
        lacked_kv = False
        self.held_back = None
        while any(self.open(engine, now) for engine in self.engines):
            left = [ticket for ticket in self.standing(now, order_at) if ticket not in passed]
            if not left:
                break
            ticket, at_head = left[0], not passed
            engine, why = self.choose(ticket, now, at_head)
            if engine is None and at_head:
                engine = next((e for e in self.engines if self.probes(e, now)), None)
            if engine is not None:
                yield ticket, engine
                continue
            if why == "kv" and not lacked_kv:
                lacked_kv = True
                since = self.kv_since.setdefault(ticket, now)
                why = "kv" if now < since + 60 else "no"
            if why == "no":
                break
            passed.append(ticket)
        self.held_back = None

    def next(self, now: float, order_at: float | None = None) -> Ticket | None:
        """Who would go next at some time; nothing changes by the question."""
        clocks = dict(self.kv_since), dict(self.held_since)
        turn = next(self.turns(now, order_at), None)
        self.kv_since, self.held_since = clocks
        self.held_back = None
        return None if turn is None else turn[0]

    def send(self, ticket: Ticket, engine: Engine, now: float) -> None:
        price = self.sent_for[ticket] = self.price(ticket)
        self.parked.remove(ticket)
        self.kv_since.pop(ticket, None)
        self.held_since.pop(ticket, None)
        self.contended.discard(ticket)
        awaiting = [t for t in engine.own if not t.stream or t.first_content_at is None]
        if awaiting:
            self.contended |= {ticket, *awaiting}
        engine.own.append(ticket)
        engine.own_then = max(engine.own_then, engine.flying())
        engine.awaiting_then = max(engine.awaiting_then, engine.awaiting())
        engine.frozen_since = None
        if engine.refused_at is not None:
            engine.probe_at = now + self.policy.poll_seconds
        if price.long:
            engine.lane = ticket
        self.used[ticket.tenant] = (self.use(ticket.tenant, now) + price.cost, now)

    def settle(self, now: float) -> None:
        """Note since when an unchanged page has kept an engine shut."""
        standing = self.standing(now)
        for engine in self.engines:
            shut = standing and not engine.own and self.judged(engine, now) == "gauges"
            if not shut:
                engine.frozen_since = None
            elif engine.frozen_since is None:
                engine.frozen_since = now

    # What happens

    def began(self, ticket: Ticket, engine: Engine, now: float) -> None:
        """First content of a ticket, which the gate has been told of."""
        if engine.lane is ticket:
            engine.lane = None
        read = [block for block in self.read if block not in ticket.blocks]
        self.read = [*read, *reversed(ticket.blocks)][-self.most_blocks :]
        if ticket.stream and ticket not in self.contended:
            self.reading[ticket] = max(0.001, now - ticket.sent_at)

    def ended(self, ticket: Ticket, now: float) -> None:
        """The end of a ticket's answer."""
        told, cached = ticket.told_tokens, ticket.cached_tokens
        if ticket in self.reading and (
            not self.sent_for[ticket].shared or (told is not None and cached is not None)
        ):
            read = ticket.prompt_tokens if told is None else told - (cached or 0)
            if read >= 1000:
                self.prefill_rates.append((read / self.reading[ticket], told is not None))
        tokens = ticket.generated_tokens - 1
        began = ticket.first_content_at
        if ticket.stream and ticket.n == 1 and began is not None and tokens >= 32:
            self.decode_rates.append(tokens / max(0.001, now - began))

    def drop(self, ticket: Ticket, engine: Engine) -> None:
        engine.own.remove(ticket)
        if engine.lane is ticket:
            engine.lane = None

    def poll_ok(self, engine: Engine, sample: Sample) -> None:
        running, waiting = sample.running, sample.waiting
        engine.sample = sample
        engine.foreign = max(0, (running or 0) + waiting - engine.own_then)
        engine.failing = False
        engine.stale_since = engine.refused_at = None
        if sample.changed:
            engine.frozen_since = None
        if sample.kv_tokens is not None:
            self.most_blocks = max(1, sample.kv_tokens // 1024)
            self.read = self.read[-self.most_blocks :]
        blurred = engine.awaiting_then > waiting or (sample.kv_usage or 0) > 0.85
        if running is None:
            if self.policy.max_inflight is not None and not blurred:
                engine.drift = False
        elif self.policy.max_inflight is not None:
            s = self.policy.max_inflight
            if not blurred:
                engine.drift = running > s or (waiting > 0 and running < s)
        else:
            self.learn(engine, running, waiting, blurred)

    def learn(self, engine: Engine, running: int, waiting: int, blurred: bool) -> None:
        engine.most_running = max(engine.most_running, running)
        s = self.s(engine)
        if waiting and not blurred:
            engine.learned, engine.shown = max(1, engine.most_running), True
        elif waiting:
            if engine.most_running > s:
                engine.learned = engine.most_running
        elif self.parked and running >= s and not (engine.shown and running == s):
            engine.learned, engine.shown = 2 * s, False

    def turning_points(self) -> set[float]:
        """Every time at which something may change although nothing happens."""
        times = {self.bound(t) for t in self.parked} | set(self.hold.values())
        for ticket in self.parked:
            if ticket in self.held_since:
                seconds = min(200, self.price(ticket).prefill)
                times.add(self.held_since[ticket] + seconds)
        for engine in self.engines:
            times |= {self.starts_at(ticket) for ticket in engine.own}
            times.add(engine.probe_at)
            if engine.lane is not None:
                times.add(engine.lane.sent_at + 3 * self.sent_for[engine.lane].prefill)
            if engine.frozen_since is not None:
                times.add(engine.frozen_since + 60)
            if engine.stale_since is not None:
                times.add(engine.stale_since + self.policy.hold_seconds)
        return times - {math.inf}


SECOND = 525
"""Tokens of prefill, where rates are not learned."""
tickets = st.builds(
    lambda park, patience, **rest: Ticket(
        model="m", policy=Policy(max_park_seconds=park, patience_seconds=patience), **rest
    ),
    park=st.sampled_from([0.0, 10.0, *[540.0] * 8]),
    patience=st.sampled_from([5.0, 60.0, 600.0, 600.0]),
    priority=st.sampled_from([Priority.INTERACTIVE, *Priority]),
    tenant=st.sampled_from(["", "", "one", "two"]),
    stream=st.booleans(),
    n=st.sampled_from([1, 1, 1, 2, 5]),
    prompt_tokens=st.sampled_from([SECOND * seconds for seconds in (0, 1, 2, 4, 20, 20, 300)]),
    max_tokens=st.sampled_from([0, 64, 512, 4000]),
    blocks=st.sampled_from([(), (), (1,), (1, 2), (1, 2, 3), (1, 4), (5,)]),
    body_bytes=st.sampled_from([0, 100, 100, 900]),
    wait_seconds=st.sampled_from([*[None] * 8, 0.0, 5.0, 1000.0]),
)
samples = st.builds(
    Sample,
    running=st.sampled_from([0, 0, 1, 2, 3, 4, 6, None]),
    waiting=st.sampled_from([0, 0, 0, 1, 3]),
    kv_usage=st.sampled_from([None, 0.0, 0.0, 0.25, 0.5, 0.875, 0.9375]),
    kv_tokens=st.sampled_from([None, 1600, 8192, 8192, 16384]),
    changed=st.booleans(),
)
policies = st.builds(
    Policy,
    ordering=st.sampled_from([Ordering.COST, Ordering.COST, Ordering.FIFO]),
    max_inflight=st.sampled_from([None, None, 1, 2, 4, 6, 12]),
    kv_threshold=st.sampled_from([0.5, 0.9]),
    max_queue_depth=st.sampled_from([0, 3, *[20] * 6]),
    parked_bytes=st.sampled_from([500, *[20000] * 4]),
    when_stale=st.sampled_from(WhenStale),
    hold_seconds=st.sampled_from([30.0, 100.0]),
    long_prefill_seconds=st.sampled_from([1.5, 15.0]),
    prefill_tokens_per_second=st.sampled_from([None, 525.0, 1050.0]),
    decode_tokens_per_second=st.sampled_from([None, None, 32.0]),
    parked_work_seconds=st.sampled_from([20.3, 600.0, 600.0]),
)


class GateMachine(RuleBasedStateMachine):
    """Drives a gate and the model side by side."""

    gate: Gate
    model: Model

    @initialize(policy=policies, engines=st.sampled_from([1, 1, 2]), observed=st.booleans())
    def open(self, policy: Policy, engines: int, observed: bool) -> None:
        if not observed and policy.max_inflight is None:
            policy = replace(policy, max_inflight=2)
        self.now = 1000.0
        self.gate = Gate(policy, engines=engines, observed=observed)
        self.model = Model(policy, engines, observed)
        self.all: list[Ticket] = []
        self.outcomes: dict[Ticket, str] = {}
        self.draining = self.closed = False
        self.judged_at = self.now

    # Judging decisions

    def served(self, decisions: list[Decision]) -> list[Decision]:
        """Check who is admitted, in order, and return the decisions that come after these."""
        model = self.model
        rest = list(decisions)
        for ticket, engine in model.turns(self.now):
            index = model.engines.index(engine)
            assert rest and rest[0] == Admitted(ticket, index), (rest[:1], ticket, index)
            del rest[0]
            self.is_in_bounds(ticket, engine)
            model.send(ticket, engine, self.now)
            assert ticket.state is TicketState.SENT and ticket.engine == index
            assert ticket.sent_at == self.now and ticket.first_content_at is None
        assert not (rest and isinstance(rest[0], Admitted)), (rest[0], "goes although it may not")
        model.settle(self.now)
        self.judged_at = self.now
        return rest

    def is_in_bounds(self, ticket: Ticket, engine: Engine) -> None:
        """Check what must hold of an admission, however the order came about."""
        model, now = self.model, self.now
        s, price = model.s(engine), model.price(ticket)
        assert ticket.priority is not Priority.WARMUP or all(
            other.priority is Priority.WARMUP for other in model.parked
        ), "a warm-up before others"
        if model.probes(engine, now):
            return
        if model.judged(engine, now) == "nothing":
            return
        assert engine.flying() + min(ticket.n, s) <= s, "more of ours than S"
        if model.bars(engine, now):
            assert s > 8 and not price.long, "a long prefill does not go alone"
        if price.long and s <= 8 and engine.own:
            held = now - model.held_since[ticket]
            assert held >= min(200, price.prefill) - TOLERANCE, "goes in among others"

    def end(self, ticket: Ticket, outcome: str) -> None:
        assert ticket not in self.outcomes, "a second outcome"
        assert ticket.state is TicketState.DONE
        self.outcomes[ticket] = outcome

    def refusals(self, rest: list[Decision], reason: Reason) -> list[Ticket]:
        """Check that all of these are refusals for one reason."""
        for decision in rest:
            assert isinstance(decision, Refused) and decision.reason is reason, rest
            assert decision.waited_seconds == self.now - decision.ticket.parked_at
            self.end(decision.ticket, reason.value)
        return [decision.ticket for decision in rest]

    def of(self, *states: TicketState) -> list[Ticket]:
        return [ticket for ticket in self.all if ticket.state in states]

    # Events of tickets

    @rule(ticket=tickets)
    def submit_one(self, ticket: Ticket) -> None:
        self.submit(ticket)

    def submit(self, ticket: Ticket) -> None:
        model = self.model
        self.all.append(ticket)
        model.arrival[ticket] = len(self.all)
        bound = ticket.policy.max_park_seconds
        if ticket.wait_seconds is not None:
            bound = min(bound, ticket.wait_seconds)
        model.until[ticket] = self.now + bound
        if self.draining:
            assert self.refusals(self.gate.submit(ticket, self.now), Reason.DRAINING) == [ticket]
            return
        model.parked.append(ticket)
        rest = self.served(self.gate.submit(ticket, self.now))
        if ticket in model.parked and bound <= 0:
            rest = self.refused(rest, [ticket], Reason.PARK_TIMEOUT)
        if ticket in model.parked:
            over = model.overfull(model.parked)
            if over > 0 or (over == 0 and isinstance(rest[0], Refused)):
                rest = self.refused(rest, model.victims(ticket), Reason.QUEUE_FULL)
        assert rest == ([Parked(ticket)] if ticket in model.parked else []), rest

    def refused(self, rest: list[Decision], gone: list[Ticket], reason: Reason) -> list[Decision]:
        """Check that these are refused, and who is served then."""
        assert self.refusals(rest[: len(gone)], reason) == gone
        self.model.parked = [ticket for ticket in self.model.parked if ticket not in gone]
        return self.served(rest[len(gone) :])

    @rule(burst=st.lists(tickets, min_size=3, max_size=6))
    def submit_many(self, burst: list[Ticket]) -> None:
        for ticket in burst:
            self.submit(ticket)

    @precondition(lambda self: self.of(TicketState.SENT))
    @rule(data=st.data(), tokens=st.sampled_from([1, 500]))
    def first_content(self, data: st.DataObject, tokens: int) -> None:
        ticket = data.draw(st.sampled_from(self.of(TicketState.SENT)))
        engine = self.engine_of(ticket)
        first = ticket.first_content_at is None
        ticket.generated_tokens += tokens
        decisions = self.gate.first_content(ticket, self.now)
        if first:
            self.model.began(ticket, engine, self.now)
            self.answered(ticket, engine)
        assert self.served(decisions) == []

    @precondition(lambda self: self.of(TicketState.SENT))
    @rule(
        data=st.data(),
        told=st.sampled_from([None, 100, 1050, 9000]),
        cached=st.sampled_from([None, 0, 40, 2000]),
    )
    def finish(self, data: st.DataObject, told: int | None, cached: int | None) -> None:
        ticket = data.draw(st.sampled_from(self.of(TicketState.SENT)))
        ticket.told_tokens, ticket.cached_tokens = told, cached
        self.finish_one(ticket)

    def finish_one(self, ticket: Ticket) -> None:
        engine = self.engine_of(ticket)
        self.model.drop(ticket, engine)
        self.model.ended(ticket, self.now)
        self.answered(ticket, engine)
        decisions = self.gate.finished(ticket, self.now)
        self.end(ticket, "finished")
        assert self.served(decisions) == []

    @precondition(lambda self: not self.of(TicketState.SENT, TicketState.PARKED))
    @rule(
        prefill=st.sampled_from([0.5, 1.0, 10.0]),
        decode=st.sampled_from([1.0, 8.0]),
        count=st.sampled_from([1, 5]),
        told=st.sampled_from([None, 1050, 20_000]),
    )
    def serve_alone(self, prefill: float, decode: float, count: int, told: int | None) -> None:
        """Long prompts, one after the other, by which rates can be learned."""
        for _ in range(count):
            ticket = Ticket(
                model="m", policy=Policy(), stream=True, prompt_tokens=1050, max_tokens=64
            )
            self.submit(ticket)
            if ticket.state is not TicketState.SENT:
                return
            self.now += prefill
            ticket.generated_tokens += 1
            engine = self.engine_of(ticket)
            decisions = self.gate.first_content(ticket, self.now)
            self.model.began(ticket, engine, self.now)
            self.answered(ticket, engine)
            assert self.served(decisions) == []
            self.now += decode
            ticket.generated_tokens += 64
            ticket.told_tokens = told
            self.finish_one(ticket)

    @precondition(lambda self: self.of(TicketState.SENT))
    @rule(data=st.data())
    def breaks(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(self.of(TicketState.SENT)))
        engine = self.engine_of(ticket)
        if engine.refused_at is None:
            engine.probe_at = self.now + self.model.policy.poll_seconds
        engine.refused_at = self.now
        assert self.served(self.gate.broken(ticket, self.now)) == []

    @precondition(lambda self: self.all)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(self.all))
        before = ticket.state
        if before is TicketState.PARKED:
            self.model.parked.remove(ticket)
        elif before is TicketState.SENT:
            self.model.drop(ticket, self.engine_of(ticket))
        decisions = self.gate.client_gone(ticket, self.now)
        if before is not TicketState.DONE:
            self.end(ticket, "left")
        assert self.served(decisions) == []

    @precondition(lambda self: self.of(TicketState.SENT))
    @rule(data=st.data(), connected=st.booleans())
    def refuse(self, data: st.DataObject, connected: bool) -> None:
        model = self.model
        ticket = data.draw(st.sampled_from(self.of(TicketState.SENT)))
        if ticket.first_content_at is not None:
            self.forbidden(self.gate.refused_by_engine, ticket, self.now, connected=connected)
            return
        engine = self.engine_of(ticket)
        model.drop(ticket, engine)
        unused = model.use(ticket.tenant, self.now) - model.sent_for[ticket].cost
        model.used[ticket.tenant] = (max(0.0, unused), self.now)
        refusals = model.refusals.get(ticket, 0) + connected
        model.refusals[ticket] = refusals
        if not connected:
            if engine.refused_at is None:
                engine.probe_at = self.now + model.policy.poll_seconds
            engine.refused_at = self.now
        drained = self.closed or (self.draining and not ticket.head_sent)
        spent = refusals > 5 or self.now >= model.until[ticket]
        if not drained and not spent:
            model.parked.append(ticket)
            model.reparked.add(ticket)
            model.hold.pop(ticket, None)
            if connected:
                holds = [1, 2, 4, 8, 16]
                model.hold[ticket] = self.now + holds[refusals - 1] * model.policy.poll_seconds
        rest = self.gate.refused_by_engine(ticket, self.now, connected=connected)
        if drained:
            assert self.refusals(rest[:1], Reason.DRAINING) == [ticket]
            del rest[0]
        elif spent:
            assert rest[:1] == [Passed(ticket)]
            self.end(ticket, "passed")
            del rest[0]
        rest = self.served(rest)
        assert rest == ([Parked(ticket)] if ticket in model.parked else []), rest

    @precondition(lambda self: self.of(TicketState.PARKED))
    @rule(data=st.data())
    def spend_the_200(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.of(TicketState.PARKED))).head_sent = True

    @precondition(lambda self: self.all)
    @rule(
        data=st.data(),
        event=st.sampled_from(["submit", "first_content", "finished", "broken", "refuse"]),
    )
    def illegal(self, data: st.DataObject, event: str) -> None:
        ticket = data.draw(st.sampled_from(self.all))
        if event == "submit":
            self.forbidden(self.gate.submit, ticket, self.now)
        elif ticket.state is TicketState.SENT:
            return
        elif event == "refuse":
            self.forbidden(self.gate.refused_by_engine, ticket, self.now, connected=True)
        else:
            self.forbidden(getattr(self.gate, event), ticket, self.now)

    def forbidden(self, method: Callable[..., object], *arguments: object, **named: bool) -> None:
        before = self.gate.view(self.now)
        try:
            method(*arguments, **named)
        except IllegalCall:
            assert self.gate.view(self.now) == before
        else:
            raise AssertionError(f"{method} was legal")

    def engine_of(self, ticket: Ticket) -> Engine:
        return next(engine for engine in self.model.engines if ticket in engine.own)

    def answered(self, ticket: Ticket, engine: Engine) -> None:
        if engine.refused_at is not None and ticket.sent_at > engine.refused_at:
            engine.refused_at = None

    # Events of engines

    def polled(self, data: st.DataObject) -> tuple[int, Engine]:
        index = data.draw(st.integers(0, len(self.model.engines) - 1))
        return index, self.model.engines[index]

    @precondition(lambda self: self.model.observed)
    @rule(data=st.data())
    def poll_sent(self, data: st.DataObject) -> None:
        index, engine = self.polled(data)
        engine.own_then, engine.awaiting_then = engine.flying(), engine.awaiting()
        self.gate.poll_sent(index, self.now)

    @precondition(lambda self: self.model.observed)
    @rule(data=st.data(), sample=samples, again=st.booleans(), fresh=st.booleans())
    def poll_ok(self, data: st.DataObject, sample: Sample, again: bool, fresh: bool) -> None:
        index, engine = self.polled(data)
        if fresh:
            engine.own_then, engine.awaiting_then = engine.flying(), engine.awaiting()
            self.gate.poll_sent(index, self.now)
        if again and engine.sample is not None:
            sample = replace(engine.sample, changed=False)
        self.model.poll_ok(engine, sample)
        assert self.served(self.gate.poll_ok(index, sample, self.now)) == []

    @precondition(lambda self: self.model.observed)
    @rule(kv_usage=st.sampled_from([0.25, 0.5]), tokens=st.sampled_from([8192, 16384]))
    def calm_poll(self, kv_usage: float, tokens: int) -> None:
        """All engines show nobody but us, with little KV to spare."""
        for index, engine in enumerate(self.model.engines):
            engine.own_then, engine.awaiting_then = engine.flying(), engine.awaiting()
            self.gate.poll_sent(index, self.now)
            sample = Sample(running=engine.flying(), waiting=0, kv_usage=kv_usage, kv_tokens=tokens)
            self.model.poll_ok(engine, sample)
            assert self.served(self.gate.poll_ok(index, sample, self.now)) == []

    @precondition(lambda self: self.model.observed)
    @rule(data=st.data(), stale=st.booleans())
    def poll_failed(self, data: st.DataObject, stale: bool) -> None:
        index, engine = self.polled(data)
        engine.failing = True
        if stale and engine.stale_since is None:
            engine.stale_since = self.now
        assert self.served(self.gate.poll_failed(index, self.now, stale=stale)) == []

    # Events of the gate

    @rule(seconds=st.sampled_from([0.25, 1.0, 2.0, 5.0, 20.0, 60.0]), tick=st.booleans())
    def time_passes(self, seconds: float, tick: bool) -> None:
        self.now += seconds
        if tick:
            self.tick()

    @precondition(lambda self: self.gate.wake_at() is not None)
    @rule()
    def wake(self) -> None:
        wake_at = self.gate.wake_at()
        assert wake_at is not None
        self.now = max(self.now, wake_at)
        self.tick()
        again = self.gate.wake_at()
        assert again is None or again > self.now, "woken for nothing, again and again"

    def tick(self) -> None:
        model = self.model
        late = {ticket for ticket in model.parked if model.bound(ticket) <= self.now}
        timeouts = {ticket for ticket in late if model.until[ticket] <= self.now}
        rest = self.gate.tick(self.now)
        for gone, reason in ((timeouts, Reason.PARK_TIMEOUT), (late - timeouts, Reason.DEADLINE)):
            assert set(self.refusals(rest[: len(gone)], reason)) == gone
            del rest[: len(gone)]
        model.parked = [ticket for ticket in model.parked if ticket not in late]
        assert self.served(rest) == []

    @precondition(lambda self: len(self.all) > 20)
    @rule()
    def stop(self) -> None:
        self.draining = True
        unanswered = {ticket for ticket in self.model.parked if not ticket.head_sent}
        self.drained(self.gate.stop(self.now), unanswered)

    @precondition(lambda self: len(self.all) > 24)
    @rule()
    def close(self) -> None:
        self.draining = self.closed = True
        self.drained(self.gate.close(self.now), set(self.model.parked))

    def drained(self, decisions: list[Decision], gone: set[Ticket]) -> None:
        assert set(self.refusals(decisions[: len(gone)], Reason.DRAINING)) == gone
        self.model.parked = [ticket for ticket in self.model.parked if ticket not in gone]
        assert self.served(decisions[len(gone) :]) == []

    @rule(policy=policies)
    def adopt(self, policy: Policy) -> None:
        if not self.model.observed and policy.max_inflight is None:
            try:
                self.gate.adopt(policy, self.now)
            except ValueError:
                return
            raise AssertionError("adopted a policy without S")
        if policy.max_inflight != self.model.policy.max_inflight:
            for engine in self.model.engines:
                engine.drift = False
        self.model.policy = policy
        assert self.served(self.gate.adopt(policy, self.now)) == []

    # What always holds

    @invariant()
    def nothing_is_lost(self) -> None:
        sent = [ticket for engine in self.model.engines for ticket in engine.own]
        assert set(self.of(TicketState.PARKED)) == set(self.model.parked)
        assert set(self.of(TicketState.SENT)) == set(sent)
        assert set(self.of(TicketState.DONE)) == set(self.outcomes)

    @invariant()
    def the_view_is_true(self) -> None:
        view = self.gate.view(self.now)
        model = self.model
        for seen, engine in zip(view.engines, model.engines, strict=True):
            by_gauges = model.judged(engine, self.now) == "gauges"
            assert (seen.own, seen.own_requests) == (engine.flying(), len(engine.own))
            assert seen.foreign == (engine.foreign if by_gauges else 0)
            assert seen.in_engine == seen.own + seen.foreign
            assert seen.max_inflight == model.s(engine)
            assert seen.drift == engine.drift
            assert seen.stale == (engine.stale_since is not None)
            assert seen.long_prefill == model.laned(engine, self.now)
        assert view.parked_bytes == sum(ticket.body_bytes for ticket in model.parked)
        assert len(view.parked) == len(model.parked)
        assert abs(view.parked_work_seconds - model.work()) < TOLERANCE
        rates = (view.prefill_tokens_per_second, view.decode_tokens_per_second)
        assert (*rates, view.rates_learned) == model.rates()
        for tenant, lately in view.tenants.items():
            assert lately.used_seconds == model.use(tenant, self.now)

    @invariant()
    def prices_are_right(self) -> None:
        for ticket in self.model.parked:
            price = self.model.price(ticket)
            assert ticket.prefill_seconds == price.prefill
            assert ticket.cost_seconds == price.cost
            assert ticket.long == price.long
            assert ticket.deadline_at == price.deadline

    @invariant()
    def nobody_waits_in_vain(self) -> None:
        """What an event leaves parked would be left by another at the same time."""
        late = any(self.model.bound(ticket) <= self.now for ticket in self.model.parked)
        if late or self.judged_at != self.now:
            return
        again = copy.deepcopy(self.gate).tick(self.now)
        assert not any(isinstance(decision, Admitted) for decision in again)

    @invariant()
    def wake_at_never_lies(self) -> None:
        """Until it comes nothing changes by time alone, but for the order of who is parked."""
        wake_at = self.gate.wake_at()
        model = self.model
        bounds = [model.bound(ticket) for ticket in model.parked]
        if bounds:
            assert wake_at is not None and wake_at <= min(bounds), "a bound would be passed"
        for time in sorted(model.turning_points()):
            if time > self.now and (wake_at is None or time < wake_at):
                turn = model.next(time, order_at=self.now)
                assert turn is None, f"admissible at {time}, to wake at {wake_at}"

    def teardown(self) -> None:
        """Nobody starves: woken when it asks for it, the gate lets go of all whom it holds."""
        if not hasattr(self, "gate"):
            return
        while self.model.parked:
            last = max(self.model.bound(ticket) for ticket in self.model.parked)
            wake_at = self.gate.wake_at()
            assert wake_at is not None and wake_at <= last
            self.now = max(self.now, wake_at)
            self.tick()


class AnySequence(TestCase):
    """The gate and its specification agree."""

    def test_any_sequence_of_events(self) -> None:
        """Room, order, completeness, outcomes, view and wake-ups are as specified, always."""
        run_state_machine_as_test(
            GateMachine,
            settings=settings(
                max_examples=int(os.environ.get("GATE_MACHINE_EXAMPLES", "0"))
                or examples(60).max_examples,
                stateful_step_count=40,
                deadline=None,
            ),
        )
