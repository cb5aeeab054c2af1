"""Where parked tickets stand: in the order of service, and by the times that concern them.

Both hold each ticket at most once and let it leave from any place in O(1), so that ten thousand
parked tickets can be woken, refused or abandoned without a scan for each.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterator

from twisted_gateway.core.ticket import Priority, Ticket


class Agenda:
    """Tickets by a number, least first.

    Entries of tickets that have left stay in the heap until they come up or outnumber the others.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._keys: dict[Ticket, float] = {}
        self._heap: list[tuple[float, int, Ticket]] = []

    def __len__(self) -> int:
        """How many tickets are in it."""
        return len(self._keys)

    def __iter__(self) -> Iterator[Ticket]:
        """All tickets, in no order."""
        return iter(self._keys)

    def __contains__(self, ticket: Ticket) -> bool:
        """Whether the ticket is in it."""
        return ticket in self._keys

    def push(self, key: float, ticket: Ticket) -> None:
        """Enter a ticket that is not in it."""
        self._keys[ticket] = key
        if len(self._heap) > 2 * len(self._keys) + 64:
            self._heap = [(key, ticket.sequence, ticket) for ticket, key in self._keys.items()]
            heapq.heapify(self._heap)
        else:
            heapq.heappush(self._heap, (key, ticket.sequence, ticket))

    def discard(self, ticket: Ticket) -> None:
        """Take a ticket out, if it is in."""
        self._keys.pop(ticket, None)
        if not self._keys:
            self._heap.clear()

    def first(self) -> Ticket | None:
        """The ticket of the least number; the earlier arrival where two are equal."""
        heap = self._heap
        while heap:
            key, _, ticket = heap[0]
            if self._keys.get(ticket) == key:
                return ticket
            heapq.heappop(heap)
        return None

    def due(self, now: float) -> Ticket | None:
        """Take out the first ticket, if its number is `now` or less."""
        ticket = self.first()
        if ticket is None or self._keys[ticket] > now:
            return None
        self.discard(ticket)
        return ticket

    def least(self) -> float | None:
        """The least number."""
        ticket = self.first()
        return None if ticket is None else self._keys[ticket]


class FifoLine:
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
            returned.discard(ticket)

    def first(self) -> Ticket | None:
        """The ticket to be served next."""
        for newcomers, returned in self._lanes:
            back = returned.first()
            if newcomers:
                ticket = next(iter(newcomers))
                return ticket if back is None or ticket.sequence < back.sequence else back
            if back is not None:
                return back
        return None

    def __iter__(self) -> Iterator[Ticket]:
        """All tickets, in order. The line must not change meanwhile."""
        for newcomers, returned in self._lanes:
            back = sorted(returned, key=_arrival)
            yield from heapq.merge(newcomers, back, key=_arrival)


def _arrival(ticket: Ticket) -> int:
    return ticket.sequence
