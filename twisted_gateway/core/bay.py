"""What one engine can take while the gate decides once.

Whoever goes needs room, and KV cache:

    kv_fits  = kv_usage < kvThreshold and (nothing of ours in the engine, or
               max(kv_usage * kv_tokens, own started) + own unstarted + need <= 0.95 * kv_tokens)

`need` is prompt + min(max_tokens, 1024). A ticket has *started* at its first content, or when its
estimated prefill and one poll have passed since it was sent: then its prompt and content so far
count, before that its `need`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from twisted_gateway.core.ledger import BY_GAUGES, Ledger
from twisted_gateway.core.policy import Ordering, Policy
from twisted_gateway.core.quota import Quota, own_share
from twisted_gateway.core.ticket import Ticket
from twisted_gateway.core.view import Sight

KV_FILL = 0.95
PROBE_AFTER_SECONDS = 60.0
NARROW = 8
"""Of so many sequences or fewer, a long prefill has the engine for itself."""


class Verdict(Enum):
    """Whether an engine takes a ticket."""

    TAKES = auto()
    FULL = auto()
    KV = auto()
    LANE = auto()
    """It is a long one, and must let others pass until it may go."""


_TAKES, _FULL, _KV, _LANE = Verdict.TAKES, Verdict.FULL, Verdict.KV, Verdict.LANE


@dataclass(slots=True)
class Bay:
    """One engine, as it takes tickets one after another.

    Attributes:
        ledger: the engine's.
        sight: by what it is judged.
        limit: S, or this replica's share of it: a ticket of more sequences needs no more room.
        room: S less what is in the engine, as far as this replica may take it; also where it
            does not bind.
        others: sequences in it of neither this replica nor its peers.
        shut: nothing may go.
        bounded: whether `room` binds.
        laned: whether a long prefill is in flight, of this replica or another.
        narrow: whether a long prefill has it for itself.
        empty: whether nothing of any replica is in it.
        quota: what counts how much of it this replica takes; None where replicas ask nobody.
        probing: its connections were refused, and one ticket may go to see whether they still are.
        kv_binds: whether KV is judged by, and known.
        kv_full: the KV threshold is passed.
        kv_committed: tokens of KV in use or promised.
        kv_capacity: tokens of KV that may be; None where it is not known, and so does not bind.
        kv_eases_at: when the next own ticket counts as started, which can only free KV; None
            for never.
    """

    ledger: Ledger
    sight: Sight
    limit: int
    room: int
    others: int
    shut: bool
    bounded: bool
    laned: bool
    narrow: bool
    empty: bool
    quota: Quota | None
    probing: bool
    kv_binds: bool = False
    kv_full: bool = False
    kv_committed: float = 0.0
    kv_capacity: float | None = None
    kv_eases_at: float | None = None

    @classmethod
    def of(cls, ledger: Ledger, policy: Policy, now: float) -> Bay:
        """What the engine of this ledger can take now."""
        sight = ledger.sight(policy, now)
        limit = ledger.limit(policy)
        replicas = policy.replicas
        exchanged = replicas.exchanged
        others = ledger.others(sight)
        held = ledger.refused_since is not None
        probing = held and ledger.failing and now >= ledger.probe_at
        bounded = sight is not Sight.NO_GATE
        laned = bounded and policy.ordering is Ordering.COST and ledger.laned(now)
        narrow = limit <= NARROW
        # Where the replicas do not tell what they hold, anything that is not ours may be theirs.
        shared = others > 0 if replicas.count > 1 else ledger.peers > 0
        bay = cls(
            ledger=ledger,
            sight=sight,
            limit=limit if exchanged else own_share(replicas, limit),
            room=ledger.quota.room(
                replicas,
                limit=limit,
                own=ledger.in_flight,
                peers=ledger.peers,
                others=others,
                now=now,
            ),
            others=others,
            shut=sight is Sight.CLOSED or (held and not probing) or (laned and narrow),
            bounded=bounded,
            laned=laned,
            narrow=narrow,
            empty=not ledger.own and not shared,
            quota=ledger.quota if exchanged else None,
            probing=probing,
        )
        if sight in BY_GAUGES:
            bay._weigh_kv(policy, now)
        return bay

    def _weigh_kv(self, policy: Policy, now: float) -> None:
        sample = self.ledger.sample
        if sample is None or sample.kv_usage is None:
            return
        self.kv_binds = True
        self.kv_full = sample.kv_usage >= policy.kv_threshold
        if sample.kv_tokens is None:
            return
        started = unstarted = 0
        for ticket in self.ledger.own:
            starts_at = _starts_at(ticket, policy)
            if now >= starts_at:
                started += ticket.prompt_tokens + ticket.generated_tokens
            else:
                unstarted += ticket.kv_need_tokens
                self.kv_eases_at = _earlier(self.kv_eases_at, starts_at)
        self.kv_committed = max(sample.kv_usage * sample.kv_tokens, started) + unstarted
        self.kv_capacity = KV_FILL * sample.kv_tokens

    # Who may go

    def verdict(self, ticket: Ticket) -> Verdict:
        """Whether the engine takes this ticket now."""
        room = self.room
        if self.shut or (room < ticket.n and room < self.limit and self.bounded):
            return _FULL
        return _TAKES if not self.kv_binds or self._kv_fits(ticket.kv_need_tokens) else _KV

    def _kv_fits(self, need_tokens: int) -> bool:
        if self.kv_full:
            return False
        if self.kv_capacity is None or not self.ledger.own:
            return True
        return self.kv_committed + need_tokens <= self.kv_capacity

    @property
    def lanes(self) -> bool:
        """Whether a long prefill has it for itself."""
        return self.narrow and self.bounded

    @property
    def open(self) -> bool:
        """Whether it takes anybody, but for KV."""
        return not self.shut and (not self.bounded or self.room > 0)

    def could_take(self, need_tokens: int) -> bool:
        """Whether a ticket of one sequence that needs so much KV would be taken."""
        return self.open and self._kv_fits(need_tokens)

    def probe_due(self, now: float) -> bool:
        """Whether an unchanged page has shut the engine for so long that a ticket must try it."""
        since = self.ledger.frozen_since
        return not self.shut and since is not None and now >= since + PROBE_AFTER_SECONDS

    def crowds(self, ticket: Ticket) -> bool:
        """Whether nothing of ours is in it, and only peers, as they say, leave no room for one."""
        return (
            self.open
            and not self.ledger.own
            and self.room < min(ticket.n, self.limit) <= self.limit - self.others
            and (not self.kv_binds or self._kv_fits(ticket.kv_need_tokens))
        )

    def better_than(self, other: Bay) -> bool:
        """Whether a ticket that both take goes here: probes last, most room, fewest own."""
        return self._rank() > other._rank()

    def _rank(self) -> tuple[bool, int, int]:
        return not self.probing, self.room, -self.ledger.in_flight

    # What comes of it

    def send(self, ticket: Ticket, policy: Policy, now: float) -> None:
        """Take a ticket, and count it."""
        self.ledger.send(ticket, now)
        self.ledger.frozen_since = None
        if self.quota is not None:
            self.quota.take(ticket.n)
        self.room -= ticket.n
        self.empty = False
        if ticket.long and self.bounded:
            self.laned = True
            self.shut = self.shut or self.narrow
        if self.kv_capacity is not None:
            self.kv_committed += ticket.kv_need_tokens
            self.kv_eases_at = _earlier(self.kv_eases_at, _starts_at(ticket, policy))
        if self.probing:
            self.ledger.probe_at = now + policy.poll_seconds
            self.shut = True

    def leave_waiting(self, policy: Policy, now: float) -> list[float | None]:
        """Note that a ticket was not taken.

        Returns:
            When time alone may change that; what has come already, and None, is to be left out.
        """
        ledger = self.ledger
        times = [self.kv_eases_at, ledger.peer_lane_until]
        if ledger.own or self.sight not in BY_GAUGES:
            ledger.frozen_since = None
        elif ledger.frozen_since is None:
            ledger.frozen_since = now
        if ledger.frozen_since is not None:
            times.append(ledger.frozen_since + PROBE_AFTER_SECONDS)
        if ledger.refused_since is not None and ledger.failing:
            times.append(ledger.probe_at)
        if ledger.lane is not None:
            times.append(ledger.lane_until)
        if self.sight is Sight.HELD and ledger.stale_since is not None:
            times.append(ledger.stale_since + policy.hold_seconds)
        return times


def best_of(bays: Iterable[Bay], ticket: Ticket) -> tuple[Bay | None, Verdict]:
    """The engine of these that takes a ticket; else whether somewhere only KV is lacking."""
    best: Bay | None = None
    verdict = _LANE
    for bay in bays:
        found = bay.verdict(ticket)
        if found is _TAKES:
            if best is None or bay.better_than(best):
                best = bay
        elif verdict is not _KV:
            verdict = found
    return best, verdict


def _starts_at(ticket: Ticket, policy: Policy) -> float:
    """When a sent ticket counts as started: at its first content, or when it must have been."""
    if ticket.first_content_at is not None:
        return ticket.first_content_at
    return ticket.sent_at + ticket.prefill_seconds + policy.poll_seconds


def _earlier(one: float | None, other: float) -> float:
    return other if one is None else min(one, other)
