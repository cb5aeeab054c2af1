"""Where parked tickets stand: in the order of service, and by the times that concern them.

Both hold each ticket at most once and let it leave from any place in O(1), so that ten thousand
parked tickets can be woken, refused or abandoned without a scan for each.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterator

from twisted_gateway.core.ticket import Priority, Ticket


class Agenda(dict[Ticket, float]):
    """Tickets and a number of each, of which it tells the least.

    It is a dictionary, so that a ticket leaves at the cost of `pop`. What has left stays in the
    heap beside it until it comes up or outnumbers the rest.
    """

    def __init__(self) -> None:
        """Start empty."""
        super().__init__()
        self._heap: list[tuple[float, int, Ticket]] = []

    def push(self, key: float, ticket: Ticket) -> None:
        """Enter a ticket, or enter it anew with another number."""
        self[ticket] = key
        heapq.heappush(self._heap, (key, ticket.sequence, ticket))
        self._forget()

    def first(self) -> Ticket | None:
        """The ticket of the least number; the earlier arrival where two are equal."""
        if not self:
            return None
        self._forget()
        while True:
            key, _, ticket = self._heap[0]
            if self.get(ticket) == key:
                return ticket
            heapq.heappop(self._heap)

    def least(self) -> float | None:
        """The least number."""
        ticket = self.first()
        return None if ticket is None else self[ticket]

    def due(self, now: float) -> Ticket | None:
        """Take out the first ticket, if its number is `now` or less."""
        ticket = self.first()
        if ticket is None or self[ticket] > now:
            return None
        del self[ticket]
        return ticket

    def _forget(self) -> None:
        if len(self._heap) > 2 * len(self) + 64:
            self._heap = [(key, ticket.sequence, ticket) for ticket, key in self.items()]
            heapq.heapify(self._heap)


CLASSES = tuple(Priority)
"""The first is served first."""

Rank = tuple[int, int, float]
"""Where a ticket stands in line: the least is served first."""


class Line(ABC):
    """The parked tickets that may be sent, in the order of service: the least rank first.

    Of equal ranks the earlier arrival goes first.
    """

    @abstractmethod
    def __len__(self) -> int:
        """How many tickets stand in line."""

    @abstractmethod
    def __iter__(self) -> Iterator[Ticket]:
        """All tickets."""

    @abstractmethod
    def append(self, ticket: Ticket) -> None:
        """Put a newcomer in line."""

    @abstractmethod
    def restore(self, ticket: Ticket) -> None:
        """Put a ticket back that was in line before."""

    @abstractmethod
    def remove(self, ticket: Ticket) -> None:
        """Take a ticket out, if it is in."""

    @abstractmethod
    def foremost(self) -> Priority | None:
        """The class of the first ticket."""

    @abstractmethod
    def ranked(self, now: float) -> Iterator[Ticket]:
        """The tickets in order. Each may be taken out, and its tenant charged, when it is given."""

    @abstractmethod
    def rank_of(
        self, priority: Priority, tenant: str, waited: float, cost: float, now: float
    ) -> Rank:
        """Where a ticket of these facts stands, in this line or another replica's."""

    def rank(self, ticket: Ticket, now: float) -> Rank:
        """Where a ticket stands, or would."""
        return self.rank_of(
            ticket.priority, ticket.tenant, now - ticket.parked_at, ticket.cost_seconds, now
        )

    def ranks(self, now: float) -> Iterator[tuple[Rank, int, Ticket]]:
        """Where all stand, with their place in the order of arrival; unsorted."""
        for ticket in self:
            yield self.rank(ticket, now), ticket.sequence, ticket

    def first(self, now: float) -> Ticket | None:
        """The ticket to be served next."""
        return next(self.ranked(now), None)


class FifoLine(Line):
    """The order of service: class by class, within a class by arrival.

    Newcomers are appended. A ticket that comes back from an engine has an earlier place than some
    that stand there, so those are kept by arrival beside the newcomers; few are.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._lanes = tuple((OrderedDict[Ticket, None](), Agenda()) for _ in Priority)

    def __len__(self) -> int:
        """How many tickets stand in line."""
        return sum(len(newcomers) + len(returned) for newcomers, returned in self._lanes)

    def __iter__(self) -> Iterator[Ticket]:
        """All tickets, in order. The line must not change meanwhile."""
        for newcomers, returned in self._lanes:
            back = sorted(returned, key=_arrival)
            yield from heapq.merge(newcomers, back, key=_arrival)

    def append(self, ticket: Ticket) -> None:
        """Put a newcomer, the latest of all arrivals, at the end of its class."""
        self._lanes[ticket.priority][0][ticket] = None

    def restore(self, ticket: Ticket) -> None:
        """Put a ticket back into the place that its arrival gives it."""
        self._lanes[ticket.priority][1].push(ticket.sequence, ticket)

    def remove(self, ticket: Ticket) -> None:
        """Take a ticket out, if it is in."""
        newcomers, returned = self._lanes[ticket.priority]
        if ticket in newcomers:
            del newcomers[ticket]
        else:
            returned.pop(ticket, None)

    def foremost(self) -> Priority | None:
        """The class of the first ticket."""
        return next((cls for cls in CLASSES if any(self._lanes[cls])), None)

    def ranked(self, now: float) -> Iterator[Ticket]:
        """The tickets in order. Each may be taken out when it is given."""
        last = None
        while (ticket := self._first()) is not None:
            if ticket is last:
                # It was left where it is, so the rest is behind it and stays as it stands.
                yield from list(self)[1:]
                return
            yield ticket
            last = ticket

    def rank_of(
        self, priority: Priority, tenant: str, waited: float, cost: float, now: float
    ) -> Rank:
        """Where a ticket of these facts stands: by its class and age."""
        return (priority, 0, -waited)

    def _first(self) -> Ticket | None:
        for newcomers, returned in self._lanes:
            back = returned.first() if returned else None
            if newcomers:
                ticket = next(iter(newcomers))
                return ticket if back is None or ticket.sequence < back.sequence else back
            if back is not None:
                return back
        return None


def _arrival(ticket: Ticket) -> int:
    return ticket.sequence
