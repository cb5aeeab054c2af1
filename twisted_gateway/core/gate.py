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
  * Order: interactive, batch, warmup; within a class by arrival. Warm-ups go only while nothing
    else is parked. `FifoLine` knows the order; another order is another line.
  * The head goes to the engine with most room, then fewest own, then first in the list. A head
    without room is passed by nobody; one that lacks nothing but KV is passed for 60 s, then by
    nobody.
  * A ticket that the engine itself refused parks again in its old place, and is held for 1, 2, 4,
    8, 16 times poll_seconds, others passing; the sixth refusal is passed to the client, as is any
    when its park budget is spent. A refused connection counts for nothing: it holds the engine.
  * Bounds: the newcomer that cannot go at once is refused with `park_timeout` if it may not wait,
    with `queue_full` if it makes the queue longer than max_queue_depth, or heavier than
    parked_bytes (but not when it is alone in it). Those that park again are refused for neither.
  * Every event ends in `_admit`, the only place that admits: nothing stays parked while it may go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import MappingProxyType

from twisted_gateway.core.decision import Admitted, Decision, Parked, Passed, Reason, Refused
from twisted_gateway.core.ledger import Bay, Ledger, Verdict
from twisted_gateway.core.line import Agenda, FifoLine
from twisted_gateway.core.policy import Policy
from twisted_gateway.core.sample import Sample
from twisted_gateway.core.ticket import IllegalCall, Priority, Ticket, TicketState
from twisted_gateway.core.view import (
    EngineView,
    GateView,
    Hold,
    ModelTotals,
    ParkedView,
    Sight,
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
    "Ticket",
    "TicketState",
]

MOST_REFUSALS = 5
KV_PASS_SECONDS = 60.0
_WARMUP = Priority.WARMUP
_SENT = TicketState.SENT
_TAKES = Verdict.TAKES


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
        self._line = FifoLine()  # parked, not held
        self._holds = Agenda()  # parked, held, by the end of the hold
        self._bounds = Agenda()  # all parked, by the end of parking
        self._parked_bytes = 0
        self._parked_ahead_of_warmup = 0
        self._least_need_tokens = 0  # no ticket in line needs less KV
        self._arrivals = 0
        self._draining = False
        self._closed = False
        self._admitting = False
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
        self._park(ticket)
        self._line.append(ticket)
        self._least_need_tokens = min(self._least_need_tokens, ticket.kv_need_tokens)
        decisions = self._admit(now)
        if ticket.state is TicketState.PARKED:
            reason = self._no_place_for(ticket, now)
            if reason is None:
                decisions.append(Parked(ticket))
            else:
                decisions += self._refuse([ticket], reason, now)
                decisions += self._admit(now)
        return decisions

    def first_content(self, ticket: Ticket, now: float) -> list[Decision]:
        """The first content of an answer has come; a second call changes nothing."""
        ledger = self._ledger_of(ticket, "first_content")
        if ticket.first_content_at is None:
            ledger.first_content(ticket, now)
            ledger.answered(ticket)
        return self._admit(now)

    def finished(self, ticket: Ticket, now: float) -> list[Decision]:
        """A request has ended at its engine, well or ill."""
        ledger = self._ledger_of(ticket, "finished")
        ledger.drop(ticket)
        ledger.answered(ticket)
        ticket.state = TicketState.DONE
        return self._admit(now)

    def client_gone(self, ticket: Ticket, now: float) -> list[Decision]:
        """A client has left. Legal at any time, also for a ticket whose admission is on its way."""
        if ticket.state is TicketState.PARKED:
            if ticket not in self._bounds:
                raise IllegalCall("client_gone: the ticket is another gate's")
            self._unpark(ticket)
        elif ticket.state is TicketState.SENT:
            self._ledger_of(ticket, "client_gone").drop(ticket)
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
        ledger.drop(ticket)
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
        self._ledger(engine).poll_ok(sample, self._policy, now, parked=parked)
        return self._admit(now)

    def poll_failed(self, engine: int, now: float, *, stale: bool) -> list[Decision]:
        """A poll has failed; the observer says whether the engine counts as stale by now."""
        self._ledger(engine).poll_failed(now, stale=stale)
        return self._admit(now)

    # The gate itself

    def tick(self, now: float) -> list[Decision]:
        """Time has passed: end the parking whose bound has come, and admit what may go."""
        expired: list[Ticket] = []
        while (ticket := self._bounds.due(now)) is not None:
            self._unpark(ticket)
            expired.append(ticket)
        return self._refuse(expired, Reason.PARK_TIMEOUT, now) + self._admit(now)

    def wake_at(self) -> float | None:
        """When `tick` is next due, unless another event comes first; None for never."""
        times = (self._wake_at, self._bounds.least())
        return min((time for time in times if time is not None), default=None)

    def stop(self, now: float) -> list[Decision]:
        """Drain: refuse newcomers and all that are parked but those whose 200 is spent."""
        self._draining = True
        unanswered = [ticket for ticket in self._in_order() if not ticket.head_sent]
        return self._refuse(unanswered, Reason.DRAINING, now) + self._admit(now)

    def close(self, now: float) -> list[Decision]:
        """The time for draining is over: refuse everything that is parked."""
        self._draining = self._closed = True
        return self._refuse(self._in_order(), Reason.DRAINING, now) + self._admit(now)

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
        return self._admit(now)

    def view(self, now: float) -> GateView:
        """What is known, frozen."""
        totals: dict[str, list[int]] = {}
        for ledger in self._ledgers:
            for ticket in ledger.own:
                totals.setdefault(ticket.model, [0, 0, 0])[0] += 1
        for ticket in self._bounds:
            total = totals.setdefault(ticket.model, [0, 0, 0])
            total[1] += 1
            total[2] += ticket.body_bytes
        return GateView(
            engines=tuple(ledger.view(self._policy, now) for ledger in self._ledgers),
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
                )
                for position, ticket in enumerate(self._in_order(), 1)
            ),
            parked_bytes=self._parked_bytes,
            models=MappingProxyType(
                {
                    model: ModelTotals(in_flight=sent, parked=parked, parked_bytes=size)
                    for model, (sent, parked, size) in totals.items()
                }
            ),
            draining=self._draining,
        )

    # Admission

    def _admit(self, now: float) -> list[Decision]:
        """Send what may go, in order, and note when time alone may let more go."""
        if self._admitting:
            raise IllegalCall("an event came while another was being decided")
        self._admitting = True
        try:
            self._end_holds(now)
            decisions: list[Decision] = []
            head = self._head()
            bays = [] if head is None else [led.bay(self._policy, now) for led in self._ledgers]
            while head is not None:
                bay, lacks_kv = self._choose(head, bays)
                if bay is None:
                    bay = next((b for b in bays if b.probe_due(now)), None)
                if bay is None:
                    if lacks_kv:
                        self._pass(head, bays, now, decisions)
                    break
                self._send(head, bay, now, decisions)
                head = self._head()
            self._watch(bays if head is not None else [], now)
            return decisions
        finally:
            self._admitting = False

    def _head(self) -> Ticket | None:
        """The ticket that must go first, unless it is a warm-up and others are parked."""
        head = self._line.first()
        if head is None or not self._parked_ahead_of_warmup or head.priority is not _WARMUP:
            return head
        return None

    def _may_go(self, ticket: Ticket) -> bool:
        return ticket.priority is not _WARMUP or not self._parked_ahead_of_warmup

    def _choose(self, ticket: Ticket, bays: list[Bay]) -> tuple[Bay | None, bool]:
        """The engine that takes a ticket; else whether somewhere only KV is lacking."""
        best: Bay | None = None
        lacks_kv = False
        for bay in bays:
            verdict = bay.verdict(ticket)
            if verdict is _TAKES:
                if best is None or bay.better_than(best):
                    best = bay
            elif verdict is Verdict.KV:
                lacks_kv = True
        return best, lacks_kv

    def _pass(self, head: Ticket, bays: list[Bay], now: float, decisions: list[Decision]) -> None:
        """Let others pass a head that lacks nothing but KV, while its patience lasts."""
        if head.kv_blocked_since is None:
            head.kv_blocked_since = now
        if now >= head.kv_blocked_since + KV_PASS_SECONDS:
            return
        if not any(bay.could_take(self._least_need_tokens) for bay in bays):
            return
        least = head.kv_need_tokens
        for ticket in list(self._line)[1:]:
            if not self._may_go(ticket):
                return
            bay, lacks_kv = self._choose(ticket, bays)
            if bay is not None:
                self._send(ticket, bay, now, decisions)
            elif lacks_kv:
                least = min(least, ticket.kv_need_tokens)
            else:
                return
        self._least_need_tokens = least

    def _send(self, ticket: Ticket, bay: Bay, now: float, decisions: list[Decision]) -> None:
        self._unpark(ticket)
        ticket.state = _SENT
        ticket.sent_at = now
        ticket.kv_blocked_since = None
        ticket.engine = self._ledgers.index(bay.ledger)
        bay.send(ticket, self._policy, now)
        decisions.append(Admitted(ticket, ticket.engine))

    def _watch(self, bays: list[Bay], now: float) -> None:
        """Note when time alone may let another ticket go: `bays` took not the head."""
        self._wake_at = self._holds.least()
        if not bays:
            for ledger in self._ledgers:
                ledger.frozen_since = None
        for bay in bays:
            time = bay.ledger.watch(bay, self._policy, now)
            if time is not None and (self._wake_at is None or time < self._wake_at):
                self._wake_at = time

    # The queue

    def _park(self, ticket: Ticket) -> None:
        ticket.state = TicketState.PARKED
        self._bounds.push(ticket.park_until, ticket)
        self._parked_bytes += ticket.body_bytes
        self._parked_ahead_of_warmup += ticket.priority is not _WARMUP

    def _unpark(self, ticket: Ticket) -> None:
        if self._holds.pop(ticket, None) is None:
            self._line.remove(ticket)
        self._bounds.pop(ticket, None)
        self._parked_bytes -= ticket.body_bytes
        self._parked_ahead_of_warmup -= ticket.priority is not _WARMUP

    def _repark(self, ticket: Ticket, now: float, *, held: bool) -> None:
        ticket.reparked = True
        self._park(ticket)
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

    def _no_place_for(self, ticket: Ticket, now: float) -> Reason | None:
        """Why a newcomer that cannot go at once may not park either."""
        if ticket.park_until <= now:
            return Reason.PARK_TIMEOUT
        parked = len(self._bounds)
        too_heavy = parked > 1 and self._parked_bytes > self._policy.parked_bytes
        return Reason.QUEUE_FULL if too_heavy or parked > self._policy.max_queue_depth else None

    def _in_order(self) -> list[Ticket]:
        return sorted(self._bounds, key=lambda ticket: (ticket.priority, ticket.sequence))

    def _refuse(self, tickets: Iterable[Ticket], reason: Reason, now: float) -> list[Decision]:
        decisions: list[Decision] = []
        seen: EngineView | None = None
        for ticket in tickets:
            if ticket in self._bounds:
                self._unpark(ticket)
            ticket.state = TicketState.DONE
            seen = seen or self._roomiest(now)
            decisions.append(Refused(ticket, reason, seen, now - ticket.parked_at))
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


def _require(ticket: Ticket, state: TicketState, event: str) -> None:
    if ticket.state is not state:
        raise IllegalCall(f"{event}: the ticket is {ticket.state.value}, not {state.value}")
