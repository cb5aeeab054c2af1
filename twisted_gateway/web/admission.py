"""Drives the pure gate: a Deferred for each parked ticket, one timer for all of them.

The gate decides (core/gate.py); this turns its decisions into fired Deferreds and its events
into calls. Decisions are carried out one after another, outermost call first, so a handler that
runs because its ticket was admitted may finish, park again or submit without recursion.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from twisted_gateway.core.errors import Problem
from twisted_gateway.core.gate import Admitted, Decision, Gate, Parked, Reason, Refused
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.core.peers import GateReport
from twisted_gateway.core.sse import KEEP_ALIVE, comment
from twisted_gateway.core.ticket import Ticket, TicketState
from twisted_gateway.engines.observer import Observer
from twisted_gateway.web.background import in_background
from twisted_gateway.web.exchange import Exchange

RETRY_JITTER = 0.25
MOST_RETRY_SECONDS = 60


class AdmissionEvents(Protocol):
    """What the driver tells the metrics; every call names the ticket's model."""

    def parked(self, model: str, priority: str) -> None:
        """A request has to wait, for the first time."""

    def waited(self, model: str, outcome: str, seconds: float) -> None:
        """A wait has ended: `admitted`, `refused` or `left`."""


class Place:
    """A request's place in an engine, or its way there; an async context manager.

    Entering waits until the gate admits the ticket; leaving gives the place back, whatever
    happened. Cancelling the wait takes the ticket out of the queue.
    """

    def __init__(
        self,
        admission: Admission,
        ticket: Ticket,
        exchange: Exchange,
        upstreams: Sequence[str],
    ) -> None:
        """Made by `Admission.place`."""
        self._admission = admission
        self._upstreams = upstreams
        self._exchange = exchange
        self.ticket = ticket

    async def __aenter__(self) -> Place:
        """Wait for a place.

        Raises:
            Problem: the gate refused.
        """
        await self._admission.submit(self.ticket, self._exchange)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Give the place back."""
        self._admission.leave(self.ticket, finished=kind is None)

    @property
    def upstream(self) -> str:
        """The base URL of the engine that the ticket was admitted to."""
        assert self.ticket.engine is not None
        return self._upstreams[self.ticket.engine]

    async def again(self, *, connected: bool) -> bool:
        """The engine refused before a byte was relayed: park again, with the old place in line.

        Args:
            connected: False where not even a connection came about.

        Returns:
            True when admitted once more; False when the engine's own answer is to go on to the
            client.

        Raises:
            Problem: the gate refused (draining, or the park budget ended while parked).
        """
        return await self._admission.refused(self.ticket, self._exchange, connected=connected)

    def broken(self) -> None:
        """The engine's answer broke off: it may be dying."""
        self._admission.broken(self.ticket)

    def comment(self) -> bytes:
        """The comment that keeps a silent stream alive; while parked it says where it stands."""
        return self._admission.comment(self.ticket)

    def content(self) -> None:
        """An event that bears content came; the first one ends the prefill."""
        ticket = self.ticket
        ticket.generated_tokens += 1
        if ticket.generated_tokens == 1:
            self._admission.first_content(ticket)


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
        self._forget(ticket)

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
        started = self._clock.seconds()
        outcome = "left"
        try:
            with exchange.trace.park():
                decision = await answer
            outcome = "refused" if isinstance(decision, Refused) else "admitted"
            return decision
        except CancelledError:
            self._waiting.pop(ticket, None)
            self.leave(ticket, finished=False)
            raise
        finally:
            waited_seconds = self._clock.seconds() - started
            exchange.waited_seconds += waited_seconds
            self._events.waited(ticket.model, outcome, waited_seconds)

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


_WORDS = {
    Reason.PARK_TIMEOUT: "No place became free in the time that this request may wait",
    Reason.QUEUE_FULL: "As many requests wait for the engine as may wait",
    Reason.DEADLINE: "The request could not be served in the time that its client waits",
    Reason.DRAINING: "This gateway is shutting down; another one will answer",
}


def refusal(decision: Refused, chance: float) -> Problem:
    """The gate's refusal as a problem, with what the gate saw.

    Args:
        decision: the refusal.
        chance: from 0 up to 1: where in its jitter `Retry-After` lies.
    """
    reason = decision.reason
    engine = decision.seen
    standing = decision.standing
    retry_after = _retry_after(decision, chance)
    headers = {"Retry-After": str(retry_after), "X-Queue-Position": str(standing.position)}
    if standing.eta_seconds is not None:
        headers["X-Queue-Wait-Estimate"] = str(math.ceil(standing.eta_seconds))
    seen = {
        "running": engine.running,
        "waiting": engine.waiting,
        "kv_usage": engine.kv_usage,
        "max_inflight": engine.max_inflight,
        "in_engine": engine.in_engine,
        "sample_age_seconds": _rounded(engine.sample_age_seconds),
        "waited_seconds": _rounded(decision.waited_seconds),
        "position": standing.position,
        "wait_estimate_seconds": _rounded(standing.eta_seconds),
    }
    return Problem(
        reason.value,
        503,
        f"{_WORDS[reason]}; try again in {retry_after} s.",
        outcome=Outcome.REJECTED,
        members={"reason": reason.value, "retry_after": retry_after, **seen},
        headers=headers,
    )


def _retry_after(decision: Refused, chance: float) -> int:
    """Whole seconds until a place should be free, give or take a quarter, within bounds.

    The jitter keeps those who are refused together from coming back together.
    """
    least = math.ceil(decision.ticket.policy.retry_after_seconds)
    expected = decision.place_seconds if decision.place_seconds is not None else float(least)
    jittered = round(expected * (1 + RETRY_JITTER * (2 * chance - 1)))
    return max(1, least, min(MOST_RETRY_SECONDS, jittered))


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
