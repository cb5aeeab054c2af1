"""Who of the parked goes now, and when time alone may let another go.

* The head goes to the engine with most room, then fewest own, then first in the list. A head
  without room is passed by nobody; one that lacks nothing but KV is passed for 60 s, then by
  nobody. Where replicas ask each other, one of several sequences that finds nothing of ours in an
  engine, and yet no room, because peers say that they fill it, goes there all the same after 60 s.
* A long prefill (`cost`, rates learned) waits for the one before it; others pass. Where S <= 8 it
  has the engine for itself: at the head it holds others back from one engine until nothing of
  any replica is in that, at most for 200 s or as long as it will take itself; then it goes when
  there is room. Nothing else is sent there until its first content or end, or three times its
  estimate. One that is not at the head is passed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from twisted_gateway.core.bay import Bay, Verdict, best_of
from twisted_gateway.core.ledger import Ledger
from twisted_gateway.core.policy import Policy
from twisted_gateway.core.queue import Queue
from twisted_gateway.core.ticket import Priority, Ticket

KV_PASS_SECONDS = 60.0
CROWDED_SECONDS = 60.0
"""How long a head of several sequences believes peers that they leave it no room."""
MOST_HOLD_SECONDS = 200.0
"""How long a long prefill holds others back at most, until it has an engine for itself."""
_WARMUP = Priority.WARMUP
_FULL, _KV, _LANE = Verdict.FULL, Verdict.KV, Verdict.LANE


class Selection:
    """One look through a queue, from its head on, at one moment."""

    def __init__(self, queue: Queue, ledgers: Sequence[Ledger], policy: Policy, now: float) -> None:
        """See what each engine can take, where anybody may go."""
        self._queue = queue
        self._ledgers = ledgers
        self._policy = policy
        self._now = now
        self._bays: list[Bay] = []
        if queue.somebody_may_go():
            self._bays = [Bay.of(ledger, policy, now) for ledger in ledgers]
        self._held_until: float | None = None  # the long head holds others back
        self._overtaken_at: float | None = None  # others may have come before the head
        self._uncrowded_at: float | None = None  # the head goes whatever peers say

    def turns(self) -> Iterator[tuple[Ticket, Bay]]:
        """Who goes, in order, and where; each is to be sent before the next is asked for."""
        now = self._now
        queue = self._queue
        if not self._any_open():
            return
        at_head = True
        lacked_kv = False
        least_need_tokens: float = math.inf
        for ticket in queue.line.ranked(now):
            if ticket.priority is _WARMUP and not queue.warmups_may_go():
                return
            bay, verdict = self._choose(ticket, at_head=at_head)
            if bay is None and at_head:
                bay = self._last_resort(ticket)
            if bay is not None:
                yield ticket, bay
            elif not self._may_be_passed(ticket, verdict, first=not lacked_kv):
                return
            else:
                at_head = False
                lacked_kv = lacked_kv or verdict is _KV
                least_need_tokens = min(least_need_tokens, ticket.kv_need_tokens)
            if not (bay is not None and bay.open) and not self._any_open():
                return
        if least_need_tokens < math.inf:
            queue.least_need_tokens = int(least_need_tokens)

    def changes_at(self, peers_change_at: float | None) -> float | None:
        """When time alone may let another go, once all turns have been taken.

        Args:
            peers_change_at: when what other replicas count as changes.

        Returns:
            A time that is yet to come; None where only an event can let anybody go.
        """
        now = self._now
        times = [self._queue.hold_ends_at()]
        if self._queue.somebody_may_go():
            times += [self._held_until, self._overtaken_at, self._uncrowded_at, peers_change_at]
            for bay in self._bays:
                times += bay.leave_waiting(self._policy, now)
        else:
            for ledger in self._ledgers:
                ledger.frozen_since = None
        return min((time for time in times if time is not None and time > now), default=None)

    def _any_open(self) -> bool:
        return any(bay.open or bay.probe_due(self._now) for bay in self._bays)

    def _choose(self, ticket: Ticket, *, at_head: bool) -> tuple[Bay | None, Verdict]:
        """The engine that takes a ticket; else why none does."""
        if not ticket.long:
            return best_of(self._bays, ticket)
        now = self._now
        free = [bay for bay in self._bays if not bay.laned and not bay.shut]
        if not at_head or not free:
            ticket.held_since = None
            return None, _LANE
        bay, verdict = best_of((bay for bay in free if bay.empty or not bay.lanes), ticket)
        if bay is not None:
            return bay, verdict
        if ticket.held_since is None:
            ticket.held_since = now
        held_until = ticket.held_since + min(MOST_HOLD_SECONDS, ticket.prefill_seconds)
        if now >= held_until:
            return best_of(free, ticket)
        self._held_until = held_until
        # Time may bring one before it, whom it does not hold back.
        self._overtaken_at = now + self._policy.poll_seconds
        if verdict is _KV:
            return None, verdict
        # Others are held back from one engine, so that it empties.
        min(free, key=lambda bay: bay.ledger.in_flight + bay.ledger.peers).shut = True
        return None, _LANE

    def _last_resort(self, ticket: Ticket) -> Bay | None:
        """Where the head goes that no engine takes, if what is known of one may be wrong."""
        now = self._now
        probed = next((bay for bay in self._bays if bay.probe_due(now)), None)
        if probed is not None or ticket.n == 1 or not self._policy.replicas.exchanged:
            return probed
        crowded = next((bay for bay in self._bays if bay.crowds(ticket)), None)
        if crowded is None:
            return None
        if ticket.crowded_since is None:
            ticket.crowded_since = now
        self._uncrowded_at = ticket.crowded_since + CROWDED_SECONDS
        return crowded if now >= self._uncrowded_at else None

    def _may_be_passed(self, ticket: Ticket, verdict: Verdict, *, first: bool) -> bool:
        """Whether others may pass a ticket that was not taken, and anybody could.

        Of those that lack nothing but KV, only the first in order has a say.
        """
        now = self._now
        if verdict is _FULL:
            # It wants room for several sequences. Time may bring one before it that has room.
            self._overtaken_at = now + self._policy.poll_seconds
            return False
        if verdict is _LANE or not first:
            return True
        if ticket.kv_blocked_since is None:
            ticket.kv_blocked_since = now
        least = self._queue.least_need_tokens
        return now < ticket.kv_blocked_since + KV_PASS_SECONDS and any(
            bay.could_take(least) for bay in self._bays
        )
