"""How long those who are parked at one gate will wait, by all that is known of its engines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from twisted_gateway.core.ledger import Ledger
from twisted_gateway.core.order import ANSWER_TOKENS_COUNTED
from twisted_gateway.core.outlook import FRESH_SECONDS, Outlook, Pace, Standing
from twisted_gateway.core.queue import Queue
from twisted_gateway.core.rates import Rates
from twisted_gateway.core.share import Share
from twisted_gateway.core.ticket import Ticket

LEAST_TOKENS_TOLD = 8
"""From so many on, an answer's own pace is taken, and not that of answers before."""


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
        return self._outlook.standing(ticket, now)

    def outlook(self, now: float) -> Outlook:
        """The order of service as it stands now."""
        # The engines serve the other replicas' requests as well.
        nominal = len(self._ledgers) / self._share.replicas(now)
        speed = self._pace.speed(nominal if self._rates.learned else None)
        if speed is None:
            return Outlook(self._queue.line, now)
        slowness = nominal / speed
        ends = [end for one in self._ledgers for end in self._ends_seconds(one, slowness, now)] or [
            self.place_seconds(now) or 0.0
        ]
        return Outlook(self._queue.line, now, ends_seconds=ends, speed=speed)

    def _ends_seconds(self, ledger: Ledger, slowness: float, now: float) -> Iterator[float]:
        """How long each request of ours in an engine should still take.

        Args:
            ledger: the engine's.
            slowness: by what the engines take longer than the rates say.
            now: the time.
        """
        to_read, reads_since = 0.0, 0.0
        for ticket in ledger.own:
            if not ticket.awaits_content and ticket.first_content_at is not None:
                reads_since = max(reads_since, ticket.first_content_at)
                yield self._answer_seconds(ticket, now - ticket.first_content_at, slowness)
        for ticket in ledger.own:
            if ticket.awaits_content:
                # Prompts are read one after another, as they came.
                reads_since = reads_since if to_read else max(reads_since, ticket.sent_at)
                to_read += ticket.prefill_seconds
                to_write = min(ticket.max_tokens, ANSWER_TOKENS_COUNTED) / self._rates.decode
                yield _left((to_read + to_write) * slowness, now - reads_since)

    def _answer_seconds(self, ticket: Ticket, took_seconds: float, slowness: float) -> float:
        """How long an answer that has begun should still take."""
        written = ticket.generated_tokens / ticket.n
        counted = min(ticket.max_tokens, ANSWER_TOKENS_COUNTED)
        rate = self._rates.decode / slowness
        if written >= LEAST_TOKENS_TOLD and took_seconds > 0:
            rate = written / took_seconds
        return min(_left(counted, written), max(0.0, ticket.max_tokens - written)) / rate


def _left(expected: float, done: float) -> float:
    """What is left of something; of what has overrun all expectation a quarter of what it was."""
    return expected - done if done < expected else done / 4
