"""The admission gate: who goes to an engine now, who waits, who is refused.

Pure: no clock, no I/O. Every event is a method that takes `now` (seconds, on any clock that does
not go back) and returns the decisions that follow from it; a driver carries them out. One gate
serves all models that share an engine address; it has one queue, and a `Ledger` for each engine.

A ticket
    event                NEW                 PARKED            SENT                      DONE
    submit               SENT, PARKED, DONE  illegal           illegal                   illegal
    first_content        illegal             illegal           SENT                      illegal
    finished             illegal             illegal           DONE                      illegal
    refused_by_engine    illegal             illegal           SENT, PARKED, DONE        illegal
    broken               illegal             illegal           SENT                      illegal
    client_gone          DONE                DONE              DONE                      DONE
    any other event      NEW                 PARKED, SENT, DONE  SENT                    DONE

    A ticket that is DONE was finished, refused, passed or left by its client: one of these, once.
    After first content an engine can no longer refuse.

An engine
    sight        when                                                admits while
    UNOBSERVED   it is not polled                                    own tickets leave room in S
    UNKNOWN      no poll has answered yet (S = 2 under `auto`)       own tickets leave room in S
    FRESH        the last page is good, or not yet stale             room less foreign; KV fits
    HELD         stale, `hold`, for hold_seconds                     as FRESH, by the last page
    LEDGER       stale, `open` or hold over; S configured or learned own tickets leave room in S
    NO_GATE      the same, `auto` having learned nothing             always
    CLOSED       stale, `closed`                                     never

    A refused connection, or an answer that breaks off (the engine may be dying, and take what it
    will never answer), holds the engine, whatever its sight, until a good poll; while polls fail,
    and where there are none, one ticket goes every poll_seconds to try (not while CLOSED), and its
    answer ends the hold. An unchanged page that has shut an engine with nothing of ours in it for
    60 s lets one ticket try.

The queue
  * Order: `core.order` says who is served first under `ordering: cost`; `fifo` is by class, then
    by arrival. Warm-ups go only while nothing else is parked.
  * The head goes to the engine with most room, then fewest own, then first in the list. A head
    without room is passed by nobody; one that lacks nothing but KV is passed for 60 s, then by
    nobody.
  * A long prefill (`cost`, rates learned) waits for the one before it; others pass. Where S <= 8 it
    has the engine for itself: at the head it holds others back from one engine until nothing of
    any replica is in that, at most for 200 s or as long as it will take itself; then it goes when
    there is room. Nothing else is sent there until its first content or end, or three times its
    estimate. One that is not at the head is passed.
  * A ticket that the engine itself refused parks again in its old place, and is held for 1, 2, 4,
    8, 16 times poll_seconds, others passing; the sixth refusal is passed to the client, as is any
    when its park budget is spent. A refused connection counts for nothing: it holds the engine.
  * Bounds: the newcomer that cannot go at once is refused with `park_timeout` if it may not wait.
    Where it makes the queue longer than max_queue_depth, heavier than parked_bytes, or (rates
    learned) longer than parked_work_seconds over the replicas, somebody is refused with
    `queue_full`: the newest ticket of the tenant with most parked work, under `fifo` the newcomer.
    One that is alone in the queue is never too heavy; those that park again are refused for none.
  * Who parks until `park_until` is refused with `park_timeout`; who could be served to nobody any
    more, with `deadline`.
  * Every event ends in `_admit`, the only place that admits: nothing stays parked while it may go.

Several replicas: `core.peers` says what they know of each other, `core.quota` what each may take.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from twisted_gateway.core.decision import Admitted, Decision, Parked, Passed, Reason, Refused
from twisted_gateway.core.ledger import Bay, Ledger, Verdict
from twisted_gateway.core.line import Agenda, FifoLine, Line
from twisted_gateway.core.order import BLOCK_TOKENS, CostLine, Costs, Tenants, heaviest
from twisted_gateway.core.outlook import FRESH_SECONDS, Outlook, Pace, Standing
from twisted_gateway.core.peers import GateReport, HeadView, Peers
from twisted_gateway.core.policy import Ordering, Policy
from twisted_gateway.core.sample import Sample
from twisted_gateway.core.ticket import IllegalCall, Priority, Ticket, TicketState
from twisted_gateway.core.view import (
    EngineView,
    GateSummary,
    GateView,
    Hold,
    ModelTotals,
    ParkedView,
    Sight,
    TenantView,
)

__all__ = [
    "Admitted",
    "Decision",
    "EngineView",
    "Gate",
    "GateView",
    "Hold",
    "IllegalCall",
    "ModelTotals",
    "Parked",
    "ParkedView",
    "Passed",
    "Priority",
    "Reason",
    "Refused",
    "Sight",
    "Standing",
    "Ticket",
    "TicketState",
]

MOST_REFUSALS = 5
KV_PASS_SECONDS = 60.0
MOST_HOLD_SECONDS = 200.0
"""How long a long prefill holds others back at most, until it has an engine for itself."""
_WARMUP = Priority.WARMUP
_SENT = TicketState.SENT
_TAKES, _FULL, _KV, _LANE = Verdict.TAKES, Verdict.FULL, Verdict.KV, Verdict.LANE


class Gate:
    """The gate of one engine address, or of several that serve the same models.

    Its methods raise `IllegalCall`, having changed nothing, when what they are told cannot have
    happened.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        engines: int = 1,
        observed: bool = True,
        learns: bool = True,
        ledgers: Sequence[Ledger] | None = None,
    ) -> None:
        """Open the gate.

        Args:
            policy: the admission keys that all models behind this gate share.
            engines: how many engines there are; decisions and polls name them by index.
            observed: whether they are polled.
            learns: whether their kind publishes running and waiting, so that S can be learned.
            ledgers: the engines' ledgers, in their order, where another gate has been in front of
                them; its tickets count here too. Default: nothing is known of the engines.

        Raises:
            ValueError: if S is neither configured nor can be learned, or there is no engine.
        """
        if ledgers is None:
            ledgers = [Ledger() for _ in range(engines)]
        if not ledgers:
            raise ValueError("a gate needs at least one engine")
        self._learns = observed and learns
        self._check(policy)
        self._policy = policy
        self._observed = observed
        self._ledgers = tuple(ledgers)
        for ledger in self._ledgers:
            ledger.observe(observed)
        self._costs = Costs(policy)
        self._tenants = Tenants()
        self._peers = Peers()
        self._peers_change_at = -math.inf  # until then what they hold counts as noted
        self._pace = Pace()
        self._outlook: Outlook | None = None
        self._line = self._new_line()  # parked, not held
        self._holds = Agenda()  # parked, held, by the end of the hold
        self._bounds = Agenda()  # all parked, by the end of parking
        self._parked_bytes = 0
        self._parked_work = 0.0
        self._parked_ahead_of_warmup = 0
        self._least_need_tokens = 0  # no ticket in line needs less KV
        self._arrivals = 0
        self._draining = False
        self._closed = False
        self._admitting = False
        self._held_until: float | None = None  # the long head holds others back
        self._overtaken_at: float | None = None  # others may have come before the head
        self._wake_at: float | None = None

    # Tickets

    def submit(self, ticket: Ticket, now: float) -> list[Decision]:
        """A request asks to go to an engine."""
        _require(ticket, TicketState.NEW, "submit")
        self._arrivals += 1
        ticket.sequence = self._arrivals
        ticket.parked_at = now
        wait = ticket.policy.max_park_seconds
        if ticket.wait_seconds is not None:
            wait = min(wait, max(0.0, ticket.wait_seconds))
        ticket.park_until = now + wait
        if self._draining:
            return self._refuse([ticket], Reason.DRAINING, now)
        self._costs.price(ticket)
        self._park(ticket, now)
        self._line.append(ticket)
        self._least_need_tokens = min(self._least_need_tokens, ticket.kv_need_tokens)
        decisions = self._admit(now)
        if ticket.state is TicketState.PARKED and ticket.park_until <= now:
            decisions += self._refuse([ticket], Reason.PARK_TIMEOUT, now)
            decisions += self._admit(now)
        if ticket.state is TicketState.PARKED and self._overfull(
            len(self._bounds), self._parked_bytes, self._parked_work, now
        ):
            decisions += self._refuse(self._too_many(ticket, now), Reason.QUEUE_FULL, now)
            decisions += self._admit(now)
        if ticket.state is TicketState.PARKED:
            decisions.append(Parked(ticket))
        return decisions

    def first_content(self, ticket: Ticket, now: float) -> list[Decision]:
        """The first content of an answer has come; a second call changes nothing."""
        ledger = self._ledger_of(ticket, "first_content")
        if ticket.first_content_at is None:
            alone = ledger.was_alone(ticket)
            ledger.first_content(ticket, now)
            ledger.answered(ticket)
            self._costs.prefill_ended(ticket, now, alone=alone)
        return self._admit(now)

    def finished(self, ticket: Ticket, now: float) -> list[Decision]:
        """A request has ended at its engine, well or ill."""
        ledger = self._ledger_of(ticket, "finished")
        ticket.state = TicketState.DONE
        self._free(ticket, ledger, now)
        self._pace.ended(ticket.cost_seconds, now, waiting=len(self._bounds) > 0)
        ledger.answered(ticket)
        self._costs.answer_ended(ticket, now)
        return self._admit(now)

    def client_gone(self, ticket: Ticket, now: float) -> list[Decision]:
        """A client has left. Legal at any time, also for a ticket whose admission is on its way."""
        self._pass_time(now)
        if ticket.state is TicketState.PARKED:
            if ticket not in self._bounds:
                raise IllegalCall("client_gone: the ticket is another gate's")
            self._unpark(ticket)
        elif ticket.state is TicketState.SENT:
            ledger = self._ledger_of(ticket, "client_gone")
            ticket.state = TicketState.DONE
            self._free(ticket, ledger, now)
        ticket.state = TicketState.DONE
        return self._admit(now)

    def refused_by_engine(self, ticket: Ticket, now: float, *, connected: bool) -> list[Decision]:
        """An engine itself has refused a request, before any byte to the client.

        Args:
            ticket: a sent one without content.
            now: the time.
            connected: False if the engine did not even take the connection.
        """
        ledger = self._ledger_of(ticket, "refused_by_engine")
        if ticket.first_content_at is not None:
            raise IllegalCall("refused_by_engine: the engine's answer has begun")
        self._free(ticket, ledger, now)
        self._tenants.charge(ticket.tenant, -ticket.cost_seconds, now)
        if connected:
            ticket.refusals += 1
        else:
            ledger.refused_connection(self._policy, now)
        if self._closed or (self._draining and not ticket.head_sent):
            decisions = self._refuse([ticket], Reason.DRAINING, now)
        elif ticket.refusals > MOST_REFUSALS or now >= ticket.park_until:
            ticket.state = TicketState.DONE
            decisions = [Passed(ticket)]
        else:
            decisions = []
            self._repark(ticket, now, held=connected)
        decisions += self._admit(now)
        if ticket.state is TicketState.PARKED:
            decisions.append(Parked(ticket))
        return decisions

    def broken(self, ticket: Ticket, now: float) -> list[Decision]:
        """The engine's answer to a sent request broke off.

        It may be dying, and take connections that it will never answer: nobody else is sent
        until a poll shows that it lives, as after a refused connection.
        """
        self._ledger_of(ticket, "broken").refused_connection(self._policy, now)
        return self._admit(now)

    # Engines

    def poll_sent(self, engine: int, now: float) -> None:
        """A poll of an engine's gauges has been sent."""
        self._ledger(engine).poll_sent(now)

    def poll_ok(self, engine: int, sample: Sample, now: float) -> list[Decision]:
        """A poll has been answered with a page that can be read."""
        parked = len(self._bounds) > 0
        ledger = self._ledger(engine)
        ledger.poll_ok(sample, self._policy, now, parked=parked)
        if sample.kv_tokens is not None:
            self._costs.changed |= self._costs.prefixes.bound(sample.kv_tokens // BLOCK_TOKENS)
        return self._admit(now)

    def poll_failed(self, engine: int, now: float, *, stale: bool) -> list[Decision]:
        """A poll has failed; the observer says whether the engine counts as stale by now."""
        self._ledger(engine).poll_failed(now, stale=stale)
        return self._admit(now)

    # Replicas

    def report(self, now: float) -> GateReport:
        """What other replicas must know of this one."""
        head = self._line.first(now) if self._somebody_may_go() else None
        return GateReport(
            in_flight=tuple(ledger.in_flight for ledger in self._ledgers),
            long_prefill_seconds=tuple(ledger.lane_seconds(now) for ledger in self._ledgers),
            head=None
            if head is None
            else HeadView(
                age_seconds=now - head.parked_at,
                cost_seconds=head.cost_seconds,
                tenant=head.tenant,
                priority=head.priority,
                long=head.long,
                sequences=head.n,
            ),
            use=self._tenants.all(now),
        )

    def peers(
        self, views: Mapping[str, GateReport | None], now: float, *, current: bool
    ) -> list[Decision]:
        """A round of asking the other replicas has ended.

        Args:
            views: what each that is known said, by its address; None where none answered.
            now: the time.
            current: whether the answers are young enough to take places by.
        """
        self._peers.heard(views, now)
        self._peers_change_at = -math.inf
        self._count_peers(now)
        head = self._line.first(now)
        rooms = [ledger.room(self._policy, now) for ledger in self._ledgers]
        better = 0 if head is None else self._better(head, now, room=max(rooms))
        wanted = 0 if head is None else head.n
        for ledger, room in zip(self._ledgers, rooms, strict=True):
            ledger.quota.grant(
                room if wanted else 0,
                better,
                wanted,
                now,
                own=ledger.in_flight,
                current=current,
            )
        return self._admit(now)

    # The gate itself

    def tick(self, now: float) -> list[Decision]:
        """Time has passed: end the parking whose bound has come, and admit what may go."""
        self._pass_time(now)
        late: dict[Reason, list[Ticket]] = {Reason.PARK_TIMEOUT: [], Reason.DEADLINE: []}
        while (ticket := self._bounds.due(now)) is not None:
            timeout = now >= ticket.park_until
            late[Reason.PARK_TIMEOUT if timeout else Reason.DEADLINE].append(ticket)
            self._unpark(ticket)
        decisions = []
        for reason, tickets in late.items():
            decisions += self._refuse(tickets, reason, now)
        return decisions + self._admit(now)

    def wake_at(self) -> float | None:
        """When `tick` is next due, unless another event comes first; None for never."""
        times = (self._wake_at, self._bounds.least())
        return min((time for time in times if time is not None), default=None)

    def stop(self, now: float) -> list[Decision]:
        """Drain: refuse newcomers and all that are parked but those whose 200 is spent."""
        self._pass_time(now)
        self._draining = True
        unanswered = [ticket for ticket in self._in_order(now) if not ticket.head_sent]
        return self._refuse(unanswered, Reason.DRAINING, now) + self._admit(now)

    def close(self, now: float) -> list[Decision]:
        """The time for draining is over: refuse everything that is parked."""
        self._pass_time(now)
        self._draining = self._closed = True
        return self._refuse(self._in_order(now), Reason.DRAINING, now) + self._admit(now)

    def adopt(self, policy: Policy, now: float) -> list[Decision]:
        """Take a new policy. Who is parked stays, with the park budget that it has.

        Raises:
            ValueError: as the constructor does; the old policy stays in force.
        """
        self._check(policy)
        if policy.max_inflight != self._policy.max_inflight:
            for ledger in self._ledgers:
                ledger.drift = False
        if not policy.replicas.exchanged:
            self._peers.forget()
            self._peers_change_at = -math.inf
            for ledger in self._ledgers:
                ledger.alone()
        reordered = policy.ordering is not self._policy.ordering
        self._policy = policy
        self._costs.adopt(policy)
        if reordered:
            parked, self._line = list(self._line), self._new_line()
            for ticket in parked:
                self._line.restore(ticket)
        return self._admit(now)

    def summary(self, now: float) -> GateSummary:
        """The engines, and how much of each model is where, frozen."""
        totals: dict[str, list[int]] = {}
        for ledger in self._ledgers:
            for ticket in ledger.own:
                totals.setdefault(ticket.model, [0, 0, 0])[0] += 1
        for ticket in self._bounds:
            total = totals.setdefault(ticket.model, [0, 0, 0])
            total[1] += 1
            total[2] += ticket.body_bytes
        return GateSummary(
            engines=tuple(ledger.view(self._policy, now) for ledger in self._ledgers),
            models=MappingProxyType(
                {
                    model: ModelTotals(in_flight=sent, parked=parked, parked_bytes=size)
                    for model, (sent, parked, size) in totals.items()
                }
            ),
        )

    def view(self, now: float) -> GateView:
        """What is known, frozen."""
        summary = self.summary(now)
        tenants: dict[str, list[float]] = {}
        for ticket in self._bounds:
            parked = tenants.setdefault(ticket.tenant, [0, 0.0])
            parked[0] += 1
            parked[1] += ticket.cost_seconds
        used = {tenant: self._use(tenant, now) for tenant in (*self._tenants.all(now), *tenants)}
        outlook, speed = self._new_outlook(now), self._speed(now)
        standings = {ticket: outlook.standing(ticket, now, speed) for ticket in self._bounds}
        return GateView(
            engines=summary.engines,
            parked=tuple(
                ParkedView(
                    position=position,
                    model=ticket.model,
                    waited_seconds=now - ticket.parked_at,
                    priority=ticket.priority,
                    stream=ticket.stream,
                    prompt_tokens=ticket.prompt_tokens,
                    head_sent=ticket.head_sent,
                    reparked=ticket.reparked,
                    held=ticket in self._holds,
                    tenant=ticket.tenant,
                    cost_seconds=ticket.cost_seconds,
                    long=ticket.long,
                    eta_seconds=standings[ticket].eta_seconds,
                )
                for position, ticket in enumerate(self._in_order(now), 1)
            ),
            parked_bytes=self._parked_bytes,
            parked_work_seconds=self._parked_work,
            models=summary.models,
            tenants=MappingProxyType(
                {
                    tenant: TenantView(
                        used_seconds=seconds,
                        parked=int(tenants.get(tenant, (0, 0.0))[0]),
                        parked_work_seconds=tenants.get(tenant, (0, 0.0))[1],
                    )
                    for tenant, seconds in used.items()
                }
            ),
            prefill_tokens_per_second=self._costs.rates.prefill,
            decode_tokens_per_second=self._costs.rates.decode,
            rates_learned=self._costs.rates.learned,
            replicas=self._replicas(now),
            heard_seconds=MappingProxyType(self._peers.known(now)),
            draining=self._draining,
        )

    def engine_view(self, engine: int, now: float) -> EngineView:
        """What is known of one engine, frozen."""
        return self._ledgers[engine].view(self._policy, now)

    def standing(self, ticket: Ticket, now: float) -> Standing:
        """Where a parked ticket stands, at most a second ago."""
        if self._outlook is None or now - self._outlook.at > FRESH_SECONDS:
            self._outlook = self._new_outlook(now)
        return self._outlook.standing(ticket, now, self._speed(now))

    # Admission

    def _admit(self, now: float) -> list[Decision]:
        """Send what may go, in order, and note when time alone may let more go."""
        if self._admitting:
            raise IllegalCall("an event came while another was being decided")
        self._admitting = True
        try:
            self._end_holds(now)
            self._reprice()
            self._count_peers(now)
            decisions: list[Decision] = []
            bays: list[Bay] = []
            if self._somebody_may_go():
                bays = [ledger.bay(self._policy, now) for ledger in self._ledgers]
                self._serve(bays, now, decisions)
            self._watch(bays if self._somebody_may_go() else [], now)
            self._pass_time(now)
            return decisions
        finally:
            for ledger in self._ledgers:
                ledger.quota.lapse()
            self._admitting = False

    def _serve(self, bays: list[Bay], now: float, decisions: list[Decision]) -> None:
        """Send who may go, in order, until nobody may."""
        self._held_until = self._overtaken_at = None
        if not _any_open(bays, now):
            return
        at_head = True
        lacked_kv = False
        least_need_tokens: float = math.inf
        for ticket in self._line.ranked(now):
            if not self._may_go(ticket):
                return
            bay, verdict = self._choose(ticket, bays, now, at_head=at_head)
            if bay is None and at_head:
                bay = next((b for b in bays if b.probe_due(now)), None)
            if bay is not None:
                self._send(ticket, bay, now, decisions)
            elif not self._may_be_passed(ticket, verdict, bays, now, first=not lacked_kv):
                return
            else:
                at_head = False
                lacked_kv = lacked_kv or verdict is _KV
                least_need_tokens = min(least_need_tokens, ticket.kv_need_tokens)
            if not (bay is not None and bay.open) and not _any_open(bays, now):
                return
        if least_need_tokens < math.inf:
            self._least_need_tokens = int(least_need_tokens)

    def _somebody_may_go(self) -> bool:
        """Whether anybody stands in line who need not wait for who is held: warm-ups must."""
        foremost = self._line.foremost()
        return foremost is not None and (
            foremost is not _WARMUP or not self._parked_ahead_of_warmup
        )

    def _may_go(self, ticket: Ticket) -> bool:
        return ticket.priority is not _WARMUP or not self._parked_ahead_of_warmup

    def _choose(
        self, ticket: Ticket, bays: list[Bay], now: float, *, at_head: bool
    ) -> tuple[Bay | None, Verdict]:
        """The engine that takes a ticket; else why none does."""
        if not ticket.long:
            return _best(ticket, bays)
        free = [bay for bay in bays if not bay.laned and not bay.shut]
        if not at_head or not free:
            ticket.held_since = None
            return None, _LANE
        bay, verdict = _best(ticket, [bay for bay in free if bay.empty or not bay.lanes])
        if bay is not None:
            return bay, verdict
        if ticket.held_since is None:
            ticket.held_since = now
        held_until = ticket.held_since + min(MOST_HOLD_SECONDS, ticket.prefill_seconds)
        if now >= held_until:
            return _best(ticket, free)
        self._held_until = held_until
        # Time may bring one before it, whom it does not hold back.
        self._overtaken_at = now + self._policy.poll_seconds
        if verdict is _KV:
            return None, verdict
        # Others are held back from one engine, so that it empties.
        min(free, key=lambda bay: bay.ledger.in_flight + bay.ledger.peers).shut = True
        return None, _LANE

    def _may_be_passed(
        self, ticket: Ticket, verdict: Verdict, bays: list[Bay], now: float, *, first: bool
    ) -> bool:
        """Whether others may pass a ticket that was not taken, and anybody could.

        Of those that lack nothing but KV, only the first in order has a say.
        """
        if verdict is _FULL:
            # It wants room for several sequences. Time may bring one before it that has room.
            self._overtaken_at = now + self._policy.poll_seconds
            return False
        if verdict is _LANE or not first:
            return True
        if ticket.kv_blocked_since is None:
            ticket.kv_blocked_since = now
        return now < ticket.kv_blocked_since + KV_PASS_SECONDS and any(
            bay.could_take(self._least_need_tokens) for bay in bays
        )

    def _send(self, ticket: Ticket, bay: Bay, now: float, decisions: list[Decision]) -> None:
        self._unpark(ticket)
        ticket.state = _SENT
        ticket.sent_at = now
        ticket.kv_blocked_since = ticket.held_since = None
        ticket.engine = self._ledgers.index(bay.ledger)
        bay.send(ticket, self._policy, now)
        self._tenants.charge(ticket.tenant, ticket.cost_seconds, now)
        decisions.append(Admitted(ticket, ticket.engine))

    def _watch(self, bays: list[Bay], now: float) -> None:
        """Note when time alone may let another ticket go: `bays` took not the head."""
        times = [self._holds.least()]
        if bays:
            times += [self._held_until, self._overtaken_at]
            times.append(self._peers.next_change(now))
        else:
            for ledger in self._ledgers:
                ledger.frozen_since = None
        times += [bay.ledger.watch(bay, self._policy, now) for bay in bays]
        self._wake_at = min((time for time in times if time is not None), default=None)

    # The queue

    def _new_line(self) -> Line:
        cost = self._policy.ordering is Ordering.COST
        return CostLine(self._use) if cost else FifoLine()

    def _park(self, ticket: Ticket, now: float) -> None:
        self._pass_time(now)
        ticket.state = TicketState.PARKED
        self._bounds.push(min(ticket.park_until, ticket.deadline_at), ticket)
        self._parked_bytes += ticket.body_bytes
        self._parked_work += ticket.cost_seconds
        self._parked_ahead_of_warmup += ticket.priority is not _WARMUP

    def _unpark(self, ticket: Ticket) -> None:
        if self._holds.pop(ticket, None) is None:
            self._line.remove(ticket)
        self._bounds.pop(ticket, None)
        self._parked_bytes -= ticket.body_bytes
        self._parked_work = self._parked_work - ticket.cost_seconds if self._bounds else 0.0
        self._parked_ahead_of_warmup -= ticket.priority is not _WARMUP

    def _repark(self, ticket: Ticket, now: float, *, held: bool) -> None:
        ticket.reparked = True
        self._costs.price(ticket)
        self._park(ticket, now)
        if held:
            seconds = 2 ** (ticket.refusals - 1) * self._policy.poll_seconds
            self._holds.push(now + seconds, ticket)
        else:
            self._return_to_line(ticket)

    def _end_holds(self, now: float) -> None:
        while (ticket := self._holds.due(now)) is not None:
            self._return_to_line(ticket)

    def _return_to_line(self, ticket: Ticket) -> None:
        self._line.restore(ticket)
        self._least_need_tokens = min(self._least_need_tokens, ticket.kv_need_tokens)

    def _reprice(self) -> None:
        """Price anew who is parked, when what a price depends on has changed."""
        self._costs.share(self._ledgers[0].limit(self._policy))
        if not self._costs.changed:
            return
        self._costs.changed = False
        for ticket in self._bounds:
            before = ticket.cost_seconds, ticket.deadline_at
            self._costs.price(ticket)
            if before != (ticket.cost_seconds, ticket.deadline_at):
                self._parked_work += ticket.cost_seconds - before[0]
                self._bounds.push(min(ticket.park_until, ticket.deadline_at), ticket)

    def _overfull(self, parked: int, size: int, work: float, now: float) -> bool:
        """Whether a queue of so many tickets, bytes and seconds is more than may be."""
        policy = self._policy
        if parked > policy.max_queue_depth:
            return True
        most_work = policy.parked_work_seconds / self._replicas(now)
        heavy = size > policy.parked_bytes or (self._costs.rates.learned and work > most_work)
        return heavy and parked > 1

    def _too_many(self, newcomer: Ticket, now: float) -> list[Ticket]:
        """Who must leave a queue that a newcomer has made too long or too heavy."""
        if self._policy.ordering is Ordering.FIFO:
            return [newcomer]
        parked, size, work = len(self._bounds), self._parked_bytes, self._parked_work
        leaving: list[Ticket] = []
        heavy = heaviest(self._bounds)
        while self._overfull(parked, size, work, now):
            ticket = next(heavy)
            if ticket is newcomer:
                # Nobody leaves for one that would have no place all the same.
                return [newcomer]
            parked -= 1
            size -= ticket.body_bytes
            work -= ticket.cost_seconds
            leaving.append(ticket)
        return leaving

    def _in_order(self, now: float) -> list[Ticket]:
        """All who are parked, in the order of service as it stands."""
        return sorted(
            self._bounds, key=lambda ticket: (self._line.rank(ticket, now), ticket.sequence)
        )

    # Replicas and tenants

    def _replicas(self, now: float) -> int:
        replicas = self._policy.replicas
        return 1 + self._peers.counted(now) if replicas.exchanged else replicas.count

    def _use(self, tenant: str, now: float) -> float:
        """What a tenant has used of all replicas, as far as is known."""
        used = self._tenants.use(tenant, now)
        if self._policy.replicas.exchanged:
            return used + self._peers.use(tenant, now)
        # A load balancer spreads a tenant's requests, so the others have seen as much of it.
        return used * self._policy.replicas.count

    def _count_peers(self, now: float) -> None:
        """Note for each engine what peers hold in it."""
        if not self._policy.replicas.exchanged or now < self._peers_change_at:
            return
        self._peers_change_at = self._peers.next_change(now) or math.inf
        for engine, ledger in enumerate(self._ledgers):
            held = self._peers.held(engine, ledger.limit(self._policy), now)
            ledger.note_peers(sum(held), self._peers.long_until(engine, now))
            ledger.quota.replicas = 1 + len(held)
            ledger.quota.asked = self._peers.asked

    def _better(self, head: Ticket, now: float, *, room: int) -> int:
        """How many places peers may be about to take for heads that go before ours."""
        ours = self._line.rank(head, now)
        return self._peers.better(
            lambda view, age: (
                self._line.rank_of(
                    view.priority, view.tenant, view.age_seconds + age, view.cost_seconds, now
                )
                < ours
            ),
            now,
            room=room,
            limit=max(ledger.limit(self._policy) for ledger in self._ledgers),
        )

    def _free(self, ticket: Ticket, ledger: Ledger, now: float) -> None:
        """A place is free; ours to take again at once, unless a peer has a better use for it."""
        ledger.drop(ticket)
        self._pass_time(now)
        if self._policy.replicas.exchanged and (head := self._line.first(now)) is not None:
            self._count_peers(now)
            room = ledger.room(self._policy, now)
            left = room - self._better(head, now, room=room)
            if left > 0:
                ledger.quota.refill(min(ticket.n, left))

    # What will be

    def _pass_time(self, now: float) -> None:
        """Count the time up to now as waited through, or not: before the queue changes."""
        self._pace.pass_time(now, waiting=len(self._bounds) > 0)

    def _speed(self, now: float) -> float | None:
        learned = self._costs.rates.learned
        # The engines serve the other replicas' requests as well.
        expected = len(self._ledgers) / self._replicas(now) if learned else None
        return self._pace.speed(expected)

    def _new_outlook(self, now: float) -> Outlook:
        sent = sum(ticket.cost_seconds for ledger in self._ledgers for ticket in ledger.own)
        # Those in an engine are half done, on average.
        return Outlook(self._line, sent / 2, now)

    def _refuse(self, tickets: Iterable[Ticket], reason: Reason, now: float) -> list[Decision]:
        decisions: list[Decision] = []
        seen: EngineView | None = None
        place_seconds = self._pace.place_seconds(now)
        if place_seconds is not None:
            # The others free places of the same engines, and the next try may come to any of them.
            place_seconds /= self._replicas(now)
        for ticket in tickets:
            seen = seen or self._roomiest(now)
            standing = self.standing(ticket, now)
            if ticket in self._bounds:
                self._unpark(ticket)
            ticket.state = TicketState.DONE
            waited = now - ticket.parked_at
            decisions.append(Refused(ticket, reason, seen, waited, standing, place_seconds))
        return decisions

    def _roomiest(self, now: float) -> EngineView:
        views = [ledger.view(self._policy, now) for ledger in self._ledgers]
        return max(views, key=lambda view: view.max_inflight - view.in_engine)

    # Legality

    def _check(self, policy: Policy) -> None:
        if policy.max_inflight is None and not self._learns:
            raise ValueError("S cannot be learned from these engines; max_inflight must be set")

    def _ledger(self, engine: int) -> Ledger:
        if not self._observed or not 0 <= engine < len(self._ledgers):
            raise IllegalCall(f"no engine {engine} is observed here")
        return self._ledgers[engine]

    def _ledger_of(self, ticket: Ticket, event: str) -> Ledger:
        _require(ticket, TicketState.SENT, event)
        for ledger in self._ledgers:
            if ticket in ledger.own:
                return ledger
        raise IllegalCall(f"{event}: the ticket is another gate's")


def _any_open(bays: list[Bay], now: float) -> bool:
    return any(bay.open or bay.probe_due(now) for bay in bays)


def _best(ticket: Ticket, bays: list[Bay]) -> tuple[Bay | None, Verdict]:
    """The engine of these that takes a ticket; else whether somewhere only KV is lacking."""
    best: Bay | None = None
    verdict = _FULL if bays else _LANE
    for bay in bays:
        found = bay.verdict(ticket)
        if found is _TAKES:
            if best is None or bay.better_than(best):
                best = bay
        elif found is _KV:
            verdict = _KV
    return best, verdict


def _require(ticket: Ticket, state: TicketState, event: str) -> None:
    if ticket.state is not state:
        raise IllegalCall(f"{event}: the ticket is {ticket.state.value}, not {state.value}")
