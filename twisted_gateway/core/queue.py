"""Who is parked: those who stand in line, those who are held, and how much all of it may be.

* A ticket that the engine itself refused parks again in its old place, and may be held meanwhile:
  it is not in line until the hold ends.
* Warm-ups go only while nothing else is parked, held or not.
* Who has to leave a queue that is too long, too heavy or too much work: the newest ticket of the
  tenant with most parked work, and so on, under `fifo` the newcomer. One that is alone in the
  queue is never too heavy; those that have parked again are not made to leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from twisted_gateway.core.line import Agenda, FifoLine, Line
from twisted_gateway.core.order import CostLine, Costs, heaviest
from twisted_gateway.core.policy import Ordering, Policy
from twisted_gateway.core.ticket import Priority, Ticket, TicketState

_WARMUP = Priority.WARMUP


class Queue:
    """The parked tickets of one gate; a collection of them, in no order.

    Attributes:
        line: those that are not held, in the order of service.
        bytes: what the bodies of all occupy.
        work_seconds: engine time that all will cost.
        least_need_tokens: none of those in line needs less KV.
    """

    def __init__(self, policy: Policy, costs: Costs, use: Callable[[str, float], float]) -> None:
        """Start empty.

        Args:
            policy: the gate's.
            costs: what tickets cost.
            use: what a tenant has used, of all replicas: takes it and the time, gives seconds.
        """
        self._policy = policy
        self._costs = costs
        self._use = use
        self.line = self._new_line()
        self.bytes = 0
        self.work_seconds = 0.0
        self.least_need_tokens = 0
        self._holds = Agenda()  # those held, by the end of the hold
        self._bounds = Agenda()  # all, by the end of parking
        self._ahead_of_warmup = 0

    def __len__(self) -> int:
        """How many are parked."""
        return len(self._bounds)

    def __iter__(self) -> Iterator[Ticket]:
        """All who are parked."""
        return iter(self._bounds)

    def __contains__(self, ticket: Ticket) -> bool:
        """Whether a ticket is parked here."""
        return ticket in self._bounds

    def in_order(self, now: float) -> list[Ticket]:
        """All who are parked, in the order of service as it stands."""
        line = self.line
        held = ((line.rank(ticket, now), ticket.sequence, ticket) for ticket in self._holds)
        return [ticket for _, _, ticket in sorted([*line.ranks(now), *held])]

    @property
    def held(self) -> Iterable[Ticket]:
        """Those who do not stand in line yet, in no order."""
        return self._holds

    def adopt(self, policy: Policy) -> None:
        """Take another policy; everybody stays parked."""
        reordered = policy.ordering is not self._policy.ordering
        self._policy = policy
        if reordered:
            parked, self.line = list(self.line), self._new_line()
            for ticket in parked:
                self.line.restore(ticket)

    def _new_line(self) -> Line:
        cost = self._policy.ordering is Ordering.COST
        return CostLine(self._use) if cost else FifoLine()

    # Coming and going

    def park(self, ticket: Ticket) -> None:
        """Let a newcomer stand in line."""
        self._enter(ticket)
        self.line.append(ticket)
        self.least_need_tokens = min(self.least_need_tokens, ticket.kv_need_tokens)

    def repark(self, ticket: Ticket, held_until: float | None) -> None:
        """Take a ticket back that an engine has refused; hold it until then, or let it stand."""
        ticket.reparked = True
        self._enter(ticket)
        if held_until is None:
            self._return_to_line(ticket)
        else:
            self._holds.push(held_until, ticket)

    def remove(self, ticket: Ticket) -> None:
        """A ticket is parked no longer."""
        self._bounds.pop(ticket, None)
        if self._holds.pop(ticket, None) is None:
            self.line.remove(ticket)
        self.bytes -= ticket.body_bytes
        self.work_seconds = self.work_seconds - ticket.cost_seconds if self._bounds else 0.0
        self._ahead_of_warmup -= ticket.priority is not _WARMUP

    def take_late(self, now: float) -> Iterator[Ticket]:
        """Take out, one by one, those whose parking ends now or has ended."""
        while (ticket := self._bounds.due(now)) is not None:
            self.remove(ticket)
            yield ticket

    def end_holds(self, now: float) -> None:
        """Let those stand in line whose hold is over."""
        while (ticket := self._holds.due(now)) is not None:
            self._return_to_line(ticket)

    def _enter(self, ticket: Ticket) -> None:
        self._costs.price(ticket)
        ticket.state = TicketState.PARKED
        self._bounds.push(min(ticket.park_until, ticket.deadline_at), ticket)
        self.bytes += ticket.body_bytes
        self.work_seconds += ticket.cost_seconds
        self._ahead_of_warmup += ticket.priority is not _WARMUP

    def _return_to_line(self, ticket: Ticket) -> None:
        self.line.restore(ticket)
        self.least_need_tokens = min(self.least_need_tokens, ticket.kv_need_tokens)

    # Who may go, and when

    def somebody_may_go(self) -> bool:
        """Whether anybody stands in line who need not wait for who is held: warm-ups must."""
        foremost = self.line.foremost()
        return foremost is not None and (foremost is not _WARMUP or self.warmups_may_go())

    def warmups_may_go(self) -> bool:
        """Whether nothing but warm-ups is parked, held or not."""
        return not self._ahead_of_warmup

    def head(self, now: float) -> Ticket | None:
        """Who is to be served next; None where nobody may go."""
        return self.line.first(now) if self.somebody_may_go() else None

    def holds(self, ticket: Ticket) -> bool:
        """Whether a ticket is held."""
        return ticket in self._holds

    def hold_ends_at(self) -> float | None:
        """When the next hold ends."""
        return self._holds.least()

    def bound_at(self) -> float | None:
        """When the parking of somebody ends next."""
        return self._bounds.least()

    # How much it is

    def reprice(self) -> None:
        """Price anew who is parked, when what a price depends on has changed."""
        if not self._costs.changed:
            return
        self._costs.changed = False
        for ticket in self._bounds:
            before = ticket.cost_seconds, ticket.deadline_at
            self._costs.price(ticket)
            if before != (ticket.cost_seconds, ticket.deadline_at):
                self.work_seconds += ticket.cost_seconds - before[0]
                self._bounds.push(min(ticket.park_until, ticket.deadline_at), ticket)

    def too_many(self, newcomer: Ticket, replicas: int) -> list[Ticket]:
        """Who must leave a queue that a newcomer, parked here, has made too long or too heavy.

        Args:
            newcomer: the latest to be parked.
            replicas: how many gateways share the work that may be parked.

        Returns:
            The newcomer alone, or those who leave for it; empty where nobody must.
        """
        parked, size, work = len(self), self.bytes, self.work_seconds
        if not self._overfull(parked, size, work, replicas):
            return []
        if self._policy.ordering is Ordering.FIFO:
            return [newcomer]
        leaving: list[Ticket] = []
        heavy = heaviest(self)
        while self._overfull(parked, size, work, replicas):
            ticket = next(heavy)
            if ticket is newcomer:
                # Nobody leaves for one that would have no place all the same.
                return [newcomer]
            parked -= 1
            size -= ticket.body_bytes
            work -= ticket.cost_seconds
            leaving.append(ticket)
        return leaving

    def _overfull(self, parked: int, size: int, work: float, replicas: int) -> bool:
        """Whether a queue of so many tickets, bytes and seconds is more than may be."""
        policy = self._policy
        if parked > policy.max_queue_depth:
            return True
        most_work = policy.parked_work_seconds / replicas
        heavy = size > policy.parked_bytes or (self._costs.rates.learned and work > most_work)
        return heavy and parked > 1
