"""Drives the pure gate: a Deferred for each parked ticket, one timer for all of them.

The gate decides (core/gate.py); this turns its decisions into fired Deferreds and its events
into calls. Decisions are carried out one after another, outermost call first, so a handler that
runs because its ticket was admitted may finish, park again or submit without recursion.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from twisted_gateway.core.decision import Admitted, Decision, Parked, Reason, Refused
from twisted_gateway.core.gate import Gate
from twisted_gateway.core.peers import GateReport
from twisted_gateway.core.sse import KEEP_ALIVE, comment
from twisted_gateway.core.ticket import Ticket, TicketState
from twisted_gateway.engines.observer import Observer
from twisted_gateway.web.background import in_background
from twisted_gateway.web.exchange import Exchange
from twisted_gateway.web.place import Place
from twisted_gateway.web.refusal import refusal


class AdmissionEvents(Protocol):
    """What the driver tells the metrics; every call names the ticket's model."""

    def parked(self, model: str, priority: str) -> None:
        """A request has to wait, for the first time."""

    def waited(
        self, model: str, outcome: str, seconds: float, exemplar: Mapping[str, str] | None
    ) -> None:
        """A request has waited, so long in all; once for each that had to.

        Args:
            model: whose.
            outcome: how its last wait ended: `admitted`, `refused` or `left`.
            seconds: time parked.
            exemplar: names its trace.
        """


class Admission:
    """One gate and its tickets.

    Args:
        gate: the pure gate.
        clock: for time and the one timer.
        events: the metrics.
        name: the models' names, for the log.
        chance: gives a random number from 0 up to 1.
    """

    _log = Logger()

    def __init__(
        self,
        gate: Gate,
        clock: IReactorTime,
        events: AdmissionEvents,
        *,
        name: str = "",
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Take what the class documents."""
        self.gate = gate
        self._clock = clock
        self._events = events
        self._name = name
        self._chance = chance
        self._learned: dict[int, int] = {}
        self._drifts: set[int] = set()
        self._tickets: set[Ticket] = set()
        self._waiting: dict[Ticket, Deferred[Decision]] = {}
        # Admitted after a wait, and not answered yet: the engine may send them back.
        self._unanswered: dict[Ticket, Exchange] = {}
        self._pending: deque[Decision] = deque()
        self._applying = False
        self._timer: IDelayedCall | None = None
        self._idle_waiters: list[Deferred[None]] = []

    # The request path

    def place(self, ticket: Ticket, exchange: Exchange, upstreams: Sequence[str]) -> Place:
        """A place for this ticket, to be entered.

        Args:
            ticket: a new one.
            exchange: the request's book.
            upstreams: base URLs of the gate's engines, in the gate's order.
        """
        return Place(self, ticket, exchange, upstreams)

    async def submit(self, ticket: Ticket, exchange: Exchange) -> None:
        """Return once admitted; see `Place.__aenter__`."""
        self._tickets.add(ticket)
        decision = await self._decided(ticket, exchange, lambda now: self.gate.submit(ticket, now))
        if isinstance(decision, Refused):
            self._forget(ticket)
            raise refusal(decision, self._chance())

    async def refused(self, ticket: Ticket, exchange: Exchange, *, connected: bool) -> bool:
        """See `Place.again`."""
        decision = await self._decided(
            ticket,
            exchange,
            lambda now: self.gate.refused_by_engine(ticket, now, connected=connected),
        )
        if isinstance(decision, Refused):
            if decision.reason is Reason.PARK_TIMEOUT:
                # The engine did answer this one, if only with a refusal: that is what it gets.
                return False
            raise refusal(decision, self._chance())
        return isinstance(decision, Admitted)

    def broken(self, ticket: Ticket) -> None:
        """See `Place.broken`."""
        self._tell(lambda now: self.gate.broken(ticket, now))

    def answered(self, ticket: Ticket) -> None:
        """See `Place.answered`.

        A wait counts as `admitted` only now: with a dead engine every trial is an admission, and
        none of them is one that anybody gains by.
        """
        exchange = self._unanswered.pop(ticket, None)
        if exchange is not None:
            self._count(ticket, exchange, "admitted")

    def first_content(self, ticket: Ticket) -> None:
        """The prefill of this ticket is over."""
        self._tell(lambda now: self.gate.first_content(ticket, now))

    def comment(self, ticket: Ticket) -> bytes:
        """See `Place.comment`."""
        if ticket.state is not TicketState.PARKED:
            return KEEP_ALIVE
        standing = self.gate.standing(ticket, self._clock.seconds())
        eta = standing.eta_seconds
        ends = "" if eta is None else f" eta={math.ceil(eta)}"
        return comment(f"keep-alive position={standing.position}{ends}")

    def leave(self, ticket: Ticket, *, finished: bool) -> None:
        """The request is over: give back what its ticket holds; idempotent."""
        if ticket.state is not TicketState.DONE:
            if finished and ticket.state is TicketState.SENT:
                self._tell(lambda now: self.gate.finished(ticket, now))
            else:
                self._tell(lambda now: self.gate.client_gone(ticket, now))
        self.answered(ticket)
        self._forget(ticket)

    def _count(self, ticket: Ticket, exchange: Exchange, outcome: str) -> None:
        self._events.waited(ticket.model, outcome, exchange.waited_seconds, exchange.trace.exemplar)

    def _forget(self, ticket: Ticket) -> None:
        self._tickets.discard(ticket)
        if not self._tickets:
            waiters, self._idle_waiters = self._idle_waiters, []
            for waiter in waiters:
                waiter.callback(None)

    # The engine's side

    def poll_sent(self, engine: int) -> None:
        """A poll of this engine leaves now."""
        self.gate.poll_sent(engine, self._clock.seconds())

    def watch(self, engine: int, observer: Observer) -> None:
        """Judge by each generation of this observer, chained onto the one before."""
        _, generation = observer.snapshot()
        self._chain(generation, engine, observer)

    def _polled(self, engine: int, observer: Observer) -> None:
        # State and next generation come from one call: no poll can fall between the two.
        observation, generation = observer.snapshot()
        self._chain(generation, engine, observer)
        sample = observation.sample
        if observation.ok and sample is not None:
            self._tell(lambda now: self.gate.poll_ok(engine, sample, now))
            self._log_limit(engine)
        else:
            stale = observation.stale
            self._tell(lambda now: self.gate.poll_failed(engine, now, stale=stale))

    def _log_limit(self, engine: int) -> None:
        """Say when S has been learned anew, and when the gauges contradict a configured one."""
        view = self.gate.engine_view(engine, self._clock.seconds())
        known = {
            "models": self._name,
            "number": engine,
            "limit": view.max_inflight,
            "running": view.running,
            "waiting": view.waiting,
        }
        if view.learned and self._learned.get(engine) != view.max_inflight:
            self._learned[engine] = view.max_inflight
            self._log.info(
                "{models}: engine {number} is seen to run {limit} sequences at once"
                " (running {running}, waiting {waiting})",
                **known,
            )
        if view.drift and engine not in self._drifts:
            self._log.warn(
                "{models}: maxInflight is {limit}, but engine {number} runs {running}"
                " with {waiting} waiting: it seems to run another number of sequences at once",
                **known,
            )
        elif not view.drift and engine in self._drifts:
            self._log.info("{models}: engine {number} agrees with maxInflight {limit}", **known)
        (self._drifts.add if view.drift else self._drifts.discard)(engine)

    # The other replicas

    def report(self) -> GateReport:
        """What the other replicas are to know of this one."""
        return self.gate.report(self._clock.seconds())

    def peers(self, views: Mapping[str, GateReport | None], *, current: bool) -> None:
        """A round of asking the other replicas has ended; see `Gate.peers`."""
        self._tell(lambda now: self.gate.peers(views, now, current=current))

    def follow(self, observer: Observer) -> None:
        """Look again at each generation of this observer, whose polls another gate judges.

        That is so for a gate that a reload has retired: its engine's ledger goes on elsewhere.
        """
        _, generation = observer.snapshot()
        followed = generation.addCallback(lambda _: self._followed(observer))
        in_background(followed, self._log, "following a poll")

    def _followed(self, observer: Observer) -> None:
        if self._tickets:
            self.follow(observer)
            self._tell(self.gate.tick)

    def _chain(self, generation: Deferred[None], engine: int, observer: Observer) -> None:
        in_background(
            generation.addCallback(lambda _: self._polled(engine, observer)),
            self._log,
            "judging a poll",
        )

    # The life of the process

    def adopt(self, change: Callable[[Gate, float], list[Decision]]) -> None:
        """Apply a change of the gate's policy (a reload); nobody is disturbed."""
        self._tell(lambda now: change(self.gate, now))

    def drain(self) -> None:
        """Refuse who has no status yet, and newcomers; the others keep their place."""
        self._tell(self.gate.stop)

    def close(self) -> None:
        """The time to drain is over: refuse all who are parked."""
        self._tell(self.gate.close)

    def when_idle(self) -> Deferred[None]:
        """Fire when no ticket is parked or in an engine; at once where none is now."""
        idle: Deferred[None] = Deferred()
        if self._tickets:
            self._idle_waiters.append(idle)
        else:
            idle.callback(None)
        return idle

    def stop(self) -> None:
        """Forget the timer; the process ends."""
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()

    # Decisions

    async def _decided(
        self, ticket: Ticket, exchange: Exchange, event: Callable[[float], list[Decision]]
    ) -> Decision:
        answer: Deferred[Decision] = Deferred()
        self._waiting[ticket] = answer
        self._tell(event)
        if answer.called:
            return await answer
        if not exchange.parked:
            exchange.parked = True
            self._events.parked(ticket.model, ticket.priority.name.lower())
        if ticket.reparked:
            exchange.trace.event("reparked")
        self._unanswered.pop(ticket, None)
        started = self._clock.seconds()
        outcome = "left"
        try:
            with exchange.trace.park(lambda: dict(self._seen(ticket))) as span:
                decision = await answer
                if isinstance(decision, Refused):
                    outcome = "refused"
                    span.decided(outcome, decision.reason.value)
                else:
                    outcome = "admitted"
                    span.decided(outcome)
            return decision
        except CancelledError:
            self._waiting.pop(ticket, None)
            self.leave(ticket, finished=False)
            raise
        finally:
            exchange.waited_seconds += self._clock.seconds() - started
            if outcome == "admitted":
                self._unanswered[ticket] = exchange
            else:
                self._count(ticket, exchange, outcome)

    def _seen(self, ticket: Ticket) -> Iterator[tuple[str, str | int | float | bool]]:
        """What is known where a ticket parks: it says why it has to wait."""
        now = self._clock.seconds()
        engine = self.gate.roomiest(now)
        standing = self.gate.standing(ticket, now)
        known = {
            "running": engine.running,
            "waiting": engine.waiting,
            "kv_usage": engine.kv_usage,
            "in_engine": engine.in_engine,
            "max_inflight": engine.max_inflight,
            "sample_age_seconds": engine.sample_age_seconds,
            "judged_by": engine.sight.value,
            "hold": None if engine.hold is None else engine.hold.value,
            "long_prefill": engine.long_prefill,
            "position": standing.position,
            "wait_estimate_seconds": standing.eta_seconds,
            "priority": ticket.priority.name.lower(),
            "prompt_tokens": ticket.prompt_tokens,
            "reparked": ticket.reparked,
        }
        return ((f"admission.{key}", value) for key, value in known.items() if value is not None)

    def _tell(self, event: Callable[[float], list[Decision]]) -> None:
        try:
            self._pending.extend(event(self._clock.seconds()))
        finally:
            # Also after a fault: who is parked depends on the timer.
            self._carry_on()

    def _carry_on(self) -> None:
        if not self._applying:
            self._applying = True
            try:
                while self._pending:
                    self._carry_out(self._pending.popleft())
            finally:
                self._applying = False
            self._set_timer()

    def _carry_out(self, decision: Decision) -> None:
        if isinstance(decision, Parked):
            return
        answer = self._waiting.pop(decision.ticket, None)
        # None: the ticket left between the decision and now, and the gate has been told.
        if answer is not None:
            answer.callback(decision)

    def _set_timer(self) -> None:
        wake_at = self.gate.wake_at()
        if self._timer is not None:
            if self._timer.active() and wake_at == self._timer.getTime():
                return
            self.stop()
        if wake_at is not None:
            delay = max(0.0, wake_at - self._clock.seconds())
            self._timer = self._clock.callLater(delay, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._tell(self.gate.tick)
