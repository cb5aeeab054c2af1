"""How long those who are parked at one gate will wait, by all that is known of its engines."""

from __future__ import annotations

from collections.abc import Sequence

from twisted_gateway.core.ledger import Ledger
from twisted_gateway.core.outlook import FRESH_SECONDS, Outlook, Pace, Standing
from twisted_gateway.core.queue import Queue
from twisted_gateway.core.rates import Rates
from twisted_gateway.core.share import Share
from twisted_gateway.core.ticket import Ticket


class Forecast:
    """The pace of one gate's engines, and the order of service as it lately stood."""

    def __init__(self, queue: Queue, ledgers: Sequence[Ledger], share: Share, rates: Rates) -> None:
        """Watch these; nothing has been served."""
        self._queue = queue
        self._ledgers = ledgers
        self._share = share
        self._rates = rates
        self._pace = Pace()
        self._outlook: Outlook | None = None

    def pass_time(self, now: float) -> None:
        """Count the time up to now as waited through, or not: before the queue changes."""
        self._pace.pass_time(now, waiting=len(self._queue) > 0)

    def ended(self, ticket: Ticket, now: float) -> None:
        """A ticket has been served, and its place is free."""
        self._pace.ended(ticket.cost_seconds, now, waiting=len(self._queue) > 0)

    def place_seconds(self, now: float) -> float | None:
        """How long it takes on average until a place is free; None for unknown."""
        seconds = self._pace.place_seconds(now)
        # The others free places of the same engines, and the next try may come to any of them.
        return None if seconds is None else seconds / self._share.replicas(now)

    def standing(self, ticket: Ticket, now: float) -> Standing:
        """Where a ticket stands, or would stand, at most a second ago."""
        if self._outlook is None or now - self._outlook.at > FRESH_SECONDS:
            self._outlook = self.outlook(now)
        return self._outlook.standing(ticket, now, self.speed(now))

    def outlook(self, now: float) -> Outlook:
        """The order of service as it stands now."""
        sent = sum(ticket.cost_seconds for ledger in self._ledgers for ticket in ledger.own)
        # Those in an engine are half done, on average.
        return Outlook(self._queue.line, sent / 2, now)

    def speed(self, now: float) -> float | None:
        """Seconds of engine time served in a second; None where nothing tells."""
        # The engines serve the other replicas' requests as well.
        learned = self._rates.learned
        return self._pace.speed(len(self._ledgers) / self._share.replicas(now) if learned else None)
