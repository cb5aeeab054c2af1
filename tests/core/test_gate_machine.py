"""Any sequence of events, judged by a second, slow, plain reading of the gate's specification."""

from __future__ import annotations

import os
from collections.abc import Callable
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
from twisted_gateway.core.gate import (
    Admitted,
    Decision,
    Gate,
    IllegalCall,
    Parked,
    Passed,
    Priority,
    Reason,
    Refused,
    Ticket,
    TicketState,
)
from twisted_gateway.core.policy import Policy, WhenStale
from twisted_gateway.core.sample import Sample

# All times are multiples of a quarter, all prompts whole seconds of prefill, and all shares of KV
# sixteenths, so that both readings do the same arithmetic without rounding.
PREFILL = 525


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

    def flying(self) -> int:
        return sum(ticket.n for ticket in self.own)

    def awaiting(self) -> int:
        return sum(t.n for t in self.own if not t.stream or t.first_content_at is None)


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
        return ticket.sent_at + ticket.prompt_tokens / PREFILL + self.policy.poll_seconds

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

    def verdict(self, ticket: Ticket, engine: Engine, now: float) -> str:
        judged = self.judged(engine, now)
        if judged == "closed" or not self.connects(engine, now):
            return "no"
        if judged != "nothing" and self.room(engine, now) < min(ticket.n, self.s(engine)):
            return "no"
        return "yes" if self.kv_fits(ticket, engine, now) else "kv"

    def probes(self, engine: Engine, now: float) -> bool:
        return (
            self.judged(engine, now) == "gauges"
            and self.connects(engine, now)
            and engine.frozen_since is not None
            and now >= engine.frozen_since + 60
        )

    def standing(self, now: float) -> list[Ticket]:
        """Who may be served, in order."""
        others = any(t.priority is not Priority.WARMUP for t in self.parked)
        return sorted(
            (
                ticket
                for ticket in self.parked
                if self.hold.get(ticket, now) <= now
                and not (ticket.priority is Priority.WARMUP and others)
            ),
            key=lambda ticket: (ticket.priority, self.arrival[ticket]),
        )

    def kv_only(self, ticket: Ticket, now: float) -> bool:
        verdicts = {self.verdict(ticket, engine, now) for engine in self.engines}
        return "kv" in verdicts and "yes" not in verdicts

    def may_be_passed(self, head: Ticket, now: float) -> bool:
        since = self.kv_since.get(head, now)
        return self.kv_only(head, now) and now < since + 60

    def next(self, now: float) -> tuple[Ticket, int] | None:
        """Who goes next, and where."""
        standing = self.standing(now)
        for ticket in standing:
            takers = [e for e in self.engines if self.verdict(ticket, e, now) == "yes"]
            if takers:
                best = max(
                    takers,
                    key=lambda e: (e.refused_at is None, self.room(e, now), -e.flying()),
                )
                return ticket, self.engines.index(best)
            if ticket is standing[0]:
                for index, engine in enumerate(self.engines):
                    if self.probes(engine, now):
                        return ticket, index
                if not self.may_be_passed(ticket, now):
                    return None
            elif not self.kv_only(ticket, now):
                return None
        return None

    def send(self, ticket: Ticket, index: int, now: float) -> None:
        engine = self.engines[index]
        self.parked.remove(ticket)
        self.kv_since.pop(ticket, None)
        engine.own.append(ticket)
        engine.own_then = max(engine.own_then, engine.flying())
        engine.awaiting_then = max(engine.awaiting_then, engine.awaiting())
        engine.frozen_since = None
        if engine.refused_at is not None:
            engine.probe_at = now + self.policy.poll_seconds

    def settle(self, now: float) -> None:
        """Note what begins when an event has been dealt with: the two clocks of 60 s."""
        standing = self.standing(now)
        if standing and self.kv_only(standing[0], now):
            self.kv_since.setdefault(standing[0], now)
        for engine in self.engines:
            shut = standing and not engine.own and self.judged(engine, now) == "gauges"
            if not shut:
                engine.frozen_since = None
            elif engine.frozen_since is None:
                engine.frozen_since = now

    def poll_ok(self, engine: Engine, sample: Sample) -> None:
        running, waiting = sample.running, sample.waiting
        engine.sample = sample
        engine.foreign = max(0, (running or 0) + waiting - engine.own_then)
        engine.failing = False
        engine.stale_since = engine.refused_at = None
        if sample.changed:
            engine.frozen_since = None
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
        times = {self.until[t] for t in self.parked} | set(self.hold.values())
        for engine in self.engines:
            times |= {self.starts_at(ticket) for ticket in engine.own}
            times.add(engine.probe_at)
            if engine.frozen_since is not None:
                times.add(engine.frozen_since + 60)
            if engine.stale_since is not None:
                times.add(engine.stale_since + self.policy.hold_seconds)
        return times


tickets = st.builds(
    lambda park, **rest: Ticket(model="m", policy=Policy(max_park_seconds=park), **rest),
    park=st.sampled_from([0.0, 10.0, 540.0, 540.0, 540.0]),
    priority=st.sampled_from([Priority.INTERACTIVE, *Priority]),
    stream=st.booleans(),
    n=st.sampled_from([1, 1, 1, 2, 5]),
    prompt_tokens=st.sampled_from([0, PREFILL, 2 * PREFILL, 20 * PREFILL]),
    max_tokens=st.sampled_from([0, 64, 512, 4000]),
    body_bytes=st.sampled_from([0, 100, 400, 900]),
    wait_seconds=st.sampled_from([None, None, None, 0.0, 5.0, 1000.0]),
)
samples = st.builds(
    Sample,
    running=st.sampled_from([0, 0, 1, 2, 3, 4, 6, None]),
    waiting=st.sampled_from([0, 0, 0, 1, 3]),
    kv_usage=st.sampled_from([None, 0.0, 0.25, 0.5, 0.875, 0.9375]),
    kv_tokens=st.sampled_from([None, 1600, 1600, 16000]),
    changed=st.booleans(),
)
policies = st.builds(
    Policy,
    max_inflight=st.sampled_from([None, None, 1, 2, 4, 6]),
    kv_threshold=st.sampled_from([0.5, 0.9]),
    max_queue_depth=st.sampled_from([0, 3, 20, 20]),
    parked_bytes=st.sampled_from([500, 2000, 20000]),
    when_stale=st.sampled_from(WhenStale),
    hold_seconds=st.sampled_from([30.0, 100.0]),
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

    # Judging decisions

    def settled(self, decisions: list[Decision]) -> list[Decision]:
        """Check every admission, in order, and return the other decisions."""
        model = self.model
        rest: list[Decision] = []
        for decision in decisions:
            if not isinstance(decision, Admitted):
                rest.append(decision)
                if isinstance(decision, (Refused, Passed)) and decision.ticket in model.parked:
                    model.parked.remove(decision.ticket)
                continue
            ticket, index = decision.ticket, decision.engine
            assert ticket in model.parked, "admitted twice, or after it left"
            engine = model.engines[index]
            if model.judged(engine, self.now) != "nothing" and not model.probes(engine, self.now):
                s = model.s(engine)
                assert engine.flying() + min(ticket.n, s) <= s, "more of ours than S"
            assert model.next(self.now) == (ticket, index), "not the one whose turn it is"
            head = model.standing(self.now)[0]
            if head is not ticket:
                model.kv_since.setdefault(head, self.now)
            model.send(ticket, index, self.now)
            assert ticket.state is TicketState.SENT and ticket.engine == index
            assert ticket.sent_at == self.now and ticket.first_content_at is None
        assert model.next(self.now) is None, "stays parked although it may go"
        model.settle(self.now)
        return rest

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
        rest = self.settled(self.gate.submit(ticket, self.now))
        if ticket.state is TicketState.SENT:
            assert rest == []
            return
        parked = len(model.parked) + (ticket not in model.parked)
        held = sum(t.body_bytes for t in {*model.parked, ticket})
        policy = model.policy
        if bound <= 0:
            assert self.refusals(rest, Reason.PARK_TIMEOUT) == [ticket]
        elif parked > policy.max_queue_depth or (parked > 1 and held > policy.parked_bytes):
            assert self.refusals(rest, Reason.QUEUE_FULL) == [ticket]
        else:
            assert rest == [Parked(ticket)]

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
            self.answered(ticket, engine)
        assert self.settled(decisions) == []

    @precondition(lambda self: self.of(TicketState.SENT))
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(self.of(TicketState.SENT)))
        engine = self.engine_of(ticket)
        engine.own.remove(ticket)
        self.answered(ticket, engine)
        decisions = self.gate.finished(ticket, self.now)
        self.end(ticket, "finished")
        assert self.settled(decisions) == []

    @precondition(lambda self: self.of(TicketState.SENT))
    @rule(data=st.data())
    def breaks(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(self.of(TicketState.SENT)))
        engine = self.engine_of(ticket)
        if engine.refused_at is None:
            engine.probe_at = self.now + self.model.policy.poll_seconds
        engine.refused_at = self.now
        assert self.settled(self.gate.broken(ticket, self.now)) == []

    @precondition(lambda self: self.all)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(self.all))
        before = ticket.state
        if before is TicketState.PARKED:
            self.model.parked.remove(ticket)
        elif before is TicketState.SENT:
            self.engine_of(ticket).own.remove(ticket)
        decisions = self.gate.client_gone(ticket, self.now)
        if before is not TicketState.DONE:
            self.end(ticket, "left")
        assert self.settled(decisions) == []

    @precondition(lambda self: self.of(TicketState.SENT))
    @rule(data=st.data(), connected=st.booleans())
    def refuse(self, data: st.DataObject, connected: bool) -> None:
        model = self.model
        ticket = data.draw(st.sampled_from(self.of(TicketState.SENT)))
        if ticket.first_content_at is not None:
            self.forbidden(self.gate.refused_by_engine, ticket, self.now, connected=connected)
            return
        engine = self.engine_of(ticket)
        engine.own.remove(ticket)
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
            model.hold.pop(ticket, None)
            if connected:
                holds = [1, 2, 4, 8, 16]
                model.hold[ticket] = self.now + holds[refusals - 1] * model.policy.poll_seconds
        rest = self.settled(self.gate.refused_by_engine(ticket, self.now, connected=connected))
        if drained:
            assert self.refusals(rest, Reason.DRAINING) == [ticket]
        elif spent:
            assert rest == [Passed(ticket)]
            self.end(ticket, "passed")
        elif ticket.state is TicketState.PARKED:
            assert rest == [Parked(ticket)]
        else:
            assert rest == []

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
        assert self.settled(self.gate.poll_ok(index, sample, self.now)) == []

    @precondition(lambda self: self.model.observed)
    @rule(kv_usage=st.sampled_from([0.25, 0.5]), tokens=st.sampled_from([1600, 3200]))
    def calm_poll(self, kv_usage: float, tokens: int) -> None:
        """All engines show nobody but us, with little KV to spare."""
        for index, engine in enumerate(self.model.engines):
            engine.own_then, engine.awaiting_then = engine.flying(), engine.awaiting()
            self.gate.poll_sent(index, self.now)
            sample = Sample(running=engine.flying(), waiting=0, kv_usage=kv_usage, kv_tokens=tokens)
            self.model.poll_ok(engine, sample)
            assert self.settled(self.gate.poll_ok(index, sample, self.now)) == []

    @precondition(lambda self: self.model.observed)
    @rule(data=st.data(), stale=st.booleans())
    def poll_failed(self, data: st.DataObject, stale: bool) -> None:
        index, engine = self.polled(data)
        engine.failing = True
        if stale and engine.stale_since is None:
            engine.stale_since = self.now
        assert self.settled(self.gate.poll_failed(index, self.now, stale=stale)) == []

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
        expired = {t for t in model.parked if model.until[t] <= self.now}
        rest = self.settled_after_refusals(self.gate.tick(self.now), expired)
        assert set(self.refusals(rest, Reason.PARK_TIMEOUT)) == expired

    @precondition(lambda self: len(self.all) > 10)
    @rule()
    def stop(self) -> None:
        self.draining = True
        unanswered = {ticket for ticket in self.model.parked if not ticket.head_sent}
        rest = self.settled_after_refusals(self.gate.stop(self.now), unanswered)
        assert set(self.refusals(rest, Reason.DRAINING)) == unanswered

    @precondition(lambda self: len(self.all) > 14)
    @rule()
    def close(self) -> None:
        self.draining = self.closed = True
        everything = set(self.model.parked)
        rest = self.settled_after_refusals(self.gate.close(self.now), everything)
        assert set(self.refusals(rest, Reason.DRAINING)) == everything

    def settled_after_refusals(
        self, decisions: list[Decision], gone: set[Ticket]
    ) -> list[Decision]:
        self.model.parked = [ticket for ticket in self.model.parked if ticket not in gone]
        return self.settled(decisions)

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
        assert self.settled(self.gate.adopt(policy, self.now)) == []

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
        assert view.parked_bytes == sum(ticket.body_bytes for ticket in model.parked)
        assert len(view.parked) == len(model.parked)

    @invariant()
    def wake_at_never_lies(self) -> None:
        wake_at = self.gate.wake_at()
        model = self.model
        for time in sorted(model.turning_points()):
            if time <= self.now or (wake_at is not None and time >= wake_at):
                continue
            assert model.next(time) is None, f"admissible at {time}, to wake at {wake_at}"
            assert all(model.until[t] > time for t in model.parked), f"bound passed at {time}"


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
