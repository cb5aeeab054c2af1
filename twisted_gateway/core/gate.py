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

The queue
  * `core.order` says who is served first under `ordering: cost` (`fifo`: by class, then arrival),
    `core.selection` who goes where, and who is passed by others, `core.bay` and `core.ledger` what
    an engine takes, and `core.share` what of that is this replica's, where there are several.
  * A ticket that the engine itself refused parks again in its old place, and is held for 1, 2, 4,
    8, 16 times poll_seconds, others passing; the sixth refusal is passed to the client, as is any
    when its park budget is spent. A refused connection counts for nothing: it holds the engine.
  * The newcomer that cannot go at once is refused with `park_timeout` if it may not wait. Where it
    makes the queue longer than max_queue_depth, heavier than parked_bytes, or (rates learned)
    longer than parked_work_seconds over the replicas, somebody is refused with `queue_full`:
    `core.queue` says who.
  * Who parks until `park_until` is refused with `park_timeout`, past `deadline_at` with `deadline`.
  * Every event ends in `_admit`, the only place that admits: nothing stays parked while it may go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from twisted_gateway.core import status
from twisted_gateway.core.bay import Bay
from twisted_gateway.core.decision import Admitted, Decision, Parked, Passed, Reason, Refused
from twisted_gateway.core.forecast import Forecast
from twisted_gateway.core.ledger import Ledger
from twisted_gateway.core.order import BLOCK_TOKENS, Costs
from twisted_gateway.core.outlook import Standing
from twisted_gateway.core.peers import GateReport
from twisted_gateway.core.policy import Policy
from twisted_gateway.core.queue import Queue
from twisted_gateway.core.sample import Sample
from twisted_gateway.core.selection import Selection
from twisted_gateway.core.share import Share
from twisted_gateway.core.ticket import IllegalCall, Ticket, TicketState
from twisted_gateway.core.view import EngineView, GateSummary, GateView

MOST_REFUSALS = 5


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
        self._share = Share(policy, self._ledgers)
        self._queue = Queue(policy, self._costs, self._share.use)
        self._forecast = Forecast(self._queue, self._ledgers, self._share, self._costs.rates)
        self._arrivals = 0
        self._draining = False
        self._closed = False
        self._admitting = False
        self._changes_at: float | None = None  # when time alone may let another go

    # Tickets

    def submit(self, ticket: Ticket, now: float) -> list[Decision]:
        """A request asks to go to an engine."""
        _require(ticket, TicketState.NEW, "submit")
        self._arrivals += 1
        ticket.arrive(self._arrivals, now)
        if self._draining:
            return self._refuse([ticket], Reason.DRAINING, now)
        self._forecast.pass_time(now)
        self._queue.park(ticket)
        decisions = self._admit(now)
        if ticket.state is TicketState.PARKED and ticket.park_until <= now:
            decisions += self._refuse([ticket], Reason.PARK_TIMEOUT, now)
            decisions += self._admit(now)
        if ticket.state is TicketState.PARKED and (
            leaving := self._queue.too_many(ticket, self._share.replicas(now))
        ):
            decisions += self._refuse(leaving, Reason.QUEUE_FULL, now)
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
        self._forecast.ended(ticket, now)
        ledger.answered(ticket)
        self._costs.answer_ended(ticket, now)
        return self._admit(now)

    def client_gone(self, ticket: Ticket, now: float) -> list[Decision]:
        """A client has left. Legal at any time, also for a ticket whose admission is on its way."""
        self._forecast.pass_time(now)
        if ticket.state is TicketState.PARKED:
            if ticket not in self._queue:
                raise IllegalCall("client_gone: the ticket is another gate's")
            self._queue.remove(ticket)
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
        self._share.tenants.charge(ticket.tenant, -ticket.cost_seconds, now)
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
            hold_seconds = 2 ** (ticket.refusals - 1) * self._policy.poll_seconds
            self._queue.repark(ticket, now + hold_seconds if connected else None)
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
        ledger = self._ledger(engine)
        ledger.poll_ok(sample, self._policy, now, parked=len(self._queue) > 0)
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
        return self._share.report(self._queue.head(now), now)

    def peers(
        self, views: Mapping[str, GateReport | None], now: float, *, current: bool
    ) -> list[Decision]:
        """A round of asking the other replicas has ended.

        Args:
            views: what each that is known said, by its address; None where none answered.
            now: the time.
            current: whether the answers are young enough to take places by.
        """
        self._share.round_ended(views, self._queue.line, now, current=current)
        return self._admit(now)

    # The gate itself

    def tick(self, now: float) -> list[Decision]:
        """Time has passed: end the parking whose bound has come, and admit what may go."""
        self._forecast.pass_time(now)
        late: dict[Reason, list[Ticket]] = {Reason.PARK_TIMEOUT: [], Reason.DEADLINE: []}
        for ticket in self._queue.take_late(now):
            timeout = now >= ticket.park_until
            late[Reason.PARK_TIMEOUT if timeout else Reason.DEADLINE].append(ticket)
        decisions = []
        for reason, tickets in late.items():
            decisions += self._refuse(tickets, reason, now)
        return decisions + self._admit(now)

    def wake_at(self) -> float | None:
        """When `tick` is next due, unless another event comes first; None for never."""
        times = (self._changes_at, self._queue.bound_at())
        return min((time for time in times if time is not None), default=None)

    def stop(self, now: float) -> list[Decision]:
        """Drain: refuse newcomers and all that are parked but those whose 200 is spent."""
        self._forecast.pass_time(now)
        self._draining = True
        unanswered = [ticket for ticket in self._queue.in_order(now) if not ticket.head_sent]
        return self._refuse(unanswered, Reason.DRAINING, now) + self._admit(now)

    def close(self, now: float) -> list[Decision]:
        """The time for draining is over: refuse everything that is parked."""
        self._forecast.pass_time(now)
        self._draining = self._closed = True
        return self._refuse(self._queue.in_order(now), Reason.DRAINING, now) + self._admit(now)

    def adopt(self, policy: Policy, now: float) -> list[Decision]:
        """Take a new policy. Who is parked stays, with the park budget that it has.

        Raises:
            ValueError: as the constructor does; the old policy stays in force.
        """
        self._check(policy)
        if policy.max_inflight != self._policy.max_inflight:
            for ledger in self._ledgers:
                ledger.drift = False
        self._policy = policy
        self._costs.adopt(policy)
        self._share.adopt(policy)
        self._queue.adopt(policy)
        return self._admit(now)

    # What is known

    def summary(self, now: float) -> GateSummary:
        """The engines, and how much of each model is where, frozen."""
        return status.summary(self._ledgers, self._queue, self._policy, now)

    def view(self, now: float, most_parked: int | None = None) -> GateView:
        """What is known, frozen.

        Args:
            now: the time.
            most_parked: of how many of the parked, from the head, there is more than their number;
                None is of all.
        """
        return status.view(
            self.summary(now),
            self._queue,
            self._share,
            self._costs.rates,
            self._forecast,
            now,
            most_parked=most_parked,
            draining=self._draining,
        )

    def engine_view(self, engine: int, now: float) -> EngineView:
        """What is known of one engine, frozen."""
        return self._ledgers[engine].view(self._policy, now)

    def roomiest(self, now: float) -> EngineView:
        """What is known of the engine with most room, frozen."""
        views = [ledger.view(self._policy, now) for ledger in self._ledgers]
        return max(views, key=lambda view: view.max_inflight - view.in_engine)

    def standing(self, ticket: Ticket, now: float) -> Standing:
        """Where a parked ticket stands, at most a second ago."""
        return self._forecast.standing(ticket, now)

    # Decisions

    def _admit(self, now: float) -> list[Decision]:
        """Send what may go, in order, and note when time alone may let more go."""
        if self._admitting:
            raise IllegalCall("an event came while another was being decided")
        self._admitting = True
        try:
            self._forecast.pass_time(now)
            self._queue.end_holds(now)
            self._costs.share(self._ledgers[0].limit(self._policy))
            self._queue.reprice()
            self._share.count_peers(now)
            selection = Selection(self._queue, self._ledgers, self._policy, now)
            decisions = [self._send(ticket, bay, now) for ticket, bay in selection.turns()]
            self._changes_at = selection.changes_at(self._share.change_at(now))
            return decisions
        finally:
            self._share.lapse()
            self._admitting = False

    def _send(self, ticket: Ticket, bay: Bay, now: float) -> Decision:
        self._queue.remove(ticket)
        engine = self._ledgers.index(bay.ledger)
        ticket.send(engine, now)
        bay.send(ticket, self._policy, now)
        self._share.tenants.charge(ticket.tenant, ticket.cost_seconds, now)
        return Admitted(ticket, engine)

    def _free(self, ticket: Ticket, ledger: Ledger, now: float) -> None:
        """A ticket that was sent leaves its place, which is ours to take again."""
        ledger.drop(ticket)
        self._forecast.pass_time(now)
        self._share.freed(ledger, ticket.n, self._queue.line, now)

    def _refuse(self, tickets: Iterable[Ticket], reason: Reason, now: float) -> list[Decision]:
        decisions: list[Decision] = []
        seen: EngineView | None = None
        place_seconds = self._forecast.place_seconds(now)
        for ticket in tickets:
            seen = seen or self.roomiest(now)
            standing = self.standing(ticket, now)
            if ticket in self._queue:
                self._queue.remove(ticket)
            ticket.state = TicketState.DONE
            waited = now - ticket.parked_at
            decisions.append(Refused(ticket, reason, seen, waited, standing, place_seconds))
        return decisions

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


def _require(ticket: Ticket, state: TicketState, event: str) -> None:
    if ticket.state is not state:
        raise IllegalCall(f"{event}: the ticket is {ticket.state.value}, not {state.value}")
