"""One engine as this replica knows it: what was sent to it, what its gauges say, what it can take.

Own tickets count from the moment they are sent to the moment they end, whatever the gauges say, so
that no burst hides in their lag. The gauges serve for what is not ours:

    own_then  = the most own sequences in flight at once between a poll's sending and its answer
    foreign   = max(0, running + waiting - own_then)
    in_engine = own sequences in flight now + foreign
    room      = S - in_engine       # less what peers hold; foreign is then what is not theirs
    kv_fits   = kv_usage < kvThreshold and (nothing of ours in the engine, or
                max(kv_usage * kv_tokens, own started) + own unstarted + need <= 0.95 * kv_tokens)

`core.quota` says what several replicas make of `room`.

`need` is prompt + min(max_tokens, 1024). A ticket has *started* at its first content, or when its
estimated prefill and one poll have passed since it was sent: then its prompt and content so far
count, before that its `need`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from twisted_gateway.core.learner import Learner, contradicts, counts
from twisted_gateway.core.policy import Ordering, Policy, WhenStale
from twisted_gateway.core.quota import Quota, own_share
from twisted_gateway.core.sample import Sample
from twisted_gateway.core.ticket import Ticket
from twisted_gateway.core.view import EngineView, Hold, Sight

KV_FILL = 0.95
PROBE_AFTER_SECONDS = 60.0
NARROW = 8
"""Of so many sequences or fewer, a long prefill has the engine for itself."""
LANE_PREFILLS = 3.0
"""After so many times its estimate a long prefill counts as over."""

_BY_GAUGES = frozenset({Sight.FRESH, Sight.HELD})


class Verdict(Enum):
    """Whether an engine takes a ticket."""

    TAKES = auto()
    FULL = auto()
    KV = auto()
    LANE = auto()
    """It is a long one, and must let others pass until it may go."""


_TAKES, _FULL, _KV = Verdict.TAKES, Verdict.FULL, Verdict.KV


@dataclass(slots=True)
class Bay:
    """What one engine can take during one `admit()`.

    Attributes:
        sight: by what it is judged.
        limit: S, or this replica's share of it: a ticket of more sequences needs no more room.
        room: S less what is in the engine, as far as this replica may take it; also where it
            does not bind.
        shut: nothing may go.
        bounded: whether `room` binds.
        laned: whether a long prefill is in flight, of this replica or another.
        narrow: whether a long prefill has it for itself.
        empty: whether nothing of any replica is in it.
        probing: its connections were refused, and one ticket may go to see whether they still are.
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
    shut: bool
    bounded: bool
    laned: bool
    narrow: bool
    empty: bool
    probing: bool
    kv_binds: bool = False
    kv_full: bool = False
    kv_committed: float = 0.0
    kv_capacity: float | None = None
    kv_eases_at: float | None = None

    def verdict(self, ticket: Ticket) -> Verdict:
        """Whether the engine takes this ticket now."""
        room = self.room
        if self.shut or (room < ticket.n and room < self.limit and self.bounded):
            return _FULL
        return _TAKES if not self.kv_binds or self.kv_fits(ticket.kv_need_tokens) else _KV

    def kv_fits(self, need_tokens: int) -> bool:
        """Whether so many tokens fit into the KV cache."""
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
        return self.open and self.kv_fits(need_tokens)

    def probe_due(self, now: float) -> bool:
        """Whether an unchanged page has shut the engine for so long that a ticket must try it."""
        since = self.ledger.frozen_since
        return not self.shut and since is not None and now >= since + PROBE_AFTER_SECONDS

    def better_than(self, other: Bay) -> bool:
        """Whether a ticket that both take goes here: probes last, most room, fewest own."""
        return self._rank() > other._rank()

    def _rank(self) -> tuple[bool, int, int]:
        return not self.probing, self.room, -self.ledger.in_flight

    def send(self, ticket: Ticket, policy: Policy, now: float) -> None:
        """Take a ticket, and count it."""
        self.ledger.send(ticket, now)
        self.ledger.frozen_since = None
        if policy.replicas.exchanged:
            self.ledger.quota.take(ticket.n)
        self.room -= ticket.n
        self.empty = False
        if ticket.long:
            self.laned = True
            self.shut = self.shut or self.narrow
        if self.kv_capacity is not None:
            self.kv_committed += ticket.kv_need_tokens
            self.kv_eases_at = _earlier(self.kv_eases_at, _starts_at(ticket, policy))
        if self.probing:
            self.ledger.probe_at = now + policy.poll_seconds
            self.shut = True


class Ledger:
    """The facts of one engine.

    Attributes:
        own: tickets of ours that were sent and have not ended.
        in_flight: their sequences.
        sample: the last good page.
        foreign: sequences of others by that page, of peers as well.
        peers: sequences of other replicas, as far as they tell.
        peers_then: the most of that between the sending of the last good page's poll and its
            answer.
        quota: what this replica may take of the room, where there are several.
        lane: the long prefill in flight, until its first content or end, or `lane_until`.
        peer_lane_until: until when a peer's long prefill keeps others out.
        failing: whether the last poll failed.
        stale_since: since when the observer calls it stale.
        refused_since: when it last refused a connection; None once it is known to take them.
        probe_at: from when one ticket may try whether it still does.
        frozen_since: since when an unchanged page has shut out a ticket while nothing of ours was
            in the engine.
        drift: whether the last page that counts contradicts a configured S.
        learner: S under `auto`.
    """

    def __init__(self) -> None:
        """Know nothing yet."""
        self.own: dict[Ticket, None] = {}
        self.in_flight = 0
        self.sample: Sample | None = None
        self.foreign = 0
        self.peers = 0
        self.peers_then = 0
        self.quota = Quota()
        self.lane: Ticket | None = None
        self.lane_until = 0.0
        self.peer_lane_until: float | None = None
        self.failing = False
        self.stale_since: float | None = None
        self.refused_since: float | None = None
        self.probe_at = 0.0
        self.frozen_since: float | None = None
        self.drift = False
        self.learner = Learner()
        self._observed = True
        self._awaiting = 0
        self._alone: Ticket | None = None
        self._most_in_flight = 0
        self._most_awaiting = 0
        self._most_peers = 0
        self._polled_at: float | None = None
        self._sampled_at = 0.0

    def observe(self, observed: bool) -> None:
        """From here on the engine is polled, or is not: then probes are all there is."""
        if observed is not self._observed:
            self._observed = observed
            self.failing = not observed

    # Own tickets

    def send(self, ticket: Ticket, now: float) -> None:
        """Count a ticket that goes to the engine."""
        self._alone = None if self._awaiting else ticket
        if ticket.long:
            self.lane = ticket
            self.lane_until = now + LANE_PREFILLS * ticket.prefill_seconds
        self.own[ticket] = None
        self.in_flight += ticket.n
        self._awaiting += ticket.n
        # Ten thousand may be sent at once: this is cheaper than max().
        if self.in_flight > self._most_in_flight:
            self._most_in_flight = self.in_flight
        if self._awaiting > self._most_awaiting:
            self._most_awaiting = self._awaiting

    def first_content(self, ticket: Ticket, now: float) -> None:
        """A ticket's answer begins."""
        self._end_lane(ticket)
        waited = ticket.awaits_content
        ticket.first_content_at = now
        if waited and not ticket.awaits_content:
            self._awaiting -= ticket.n

    def drop(self, ticket: Ticket) -> None:
        """Count a ticket no longer."""
        self._end_lane(ticket)
        del self.own[ticket]
        self.in_flight -= ticket.n
        if ticket.awaits_content:
            self._awaiting -= ticket.n

    def was_alone(self, ticket: Ticket) -> bool:
        """Whether no other own ticket has awaited content since this one was sent."""
        return self._alone is ticket

    def note_peers(self, sequences: int, lane_until: float | None) -> None:
        """What other replicas hold, as far as they tell; and their long prefill's latest end."""
        self.peers = sequences
        self.peer_lane_until = lane_until
        self._most_peers = max(self._most_peers, sequences)

    def alone(self) -> None:
        """The replicas ask each other no longer."""
        self.peers = self.peers_then = self._most_peers = 0
        self.peer_lane_until = None
        self.quota = Quota()

    def _end_lane(self, ticket: Ticket) -> None:
        if self.lane is ticket:
            self.lane = None

    def lane_seconds(self, now: float) -> float:
        """How much longer, at most, a long prefill of ours keeps others out; 0 where none does."""
        return 0.0 if self.lane is None else max(0.0, self.lane_until - now)

    def laned(self, now: float) -> bool:
        """Whether a long prefill is in flight."""
        if self.lane is not None and now >= self.lane_until:
            self.lane = None
        theirs = self.peer_lane_until
        return self.lane is not None or (theirs is not None and now < theirs)

    def answered(self, ticket: Ticket) -> None:
        """The engine has answered a ticket, so it takes connections if this one is young enough."""
        if self.refused_since is not None and ticket.sent_at > self.refused_since:
            self.refused_since = None

    def refused_connection(self, policy: Policy, now: float) -> None:
        """The engine takes no connections. One that is held already keeps the time of its probe."""
        if self.refused_since is None:
            self.probe_at = now + policy.poll_seconds
        self.refused_since = now

    # Polls

    def poll_sent(self, now: float) -> None:
        """Begin to watch how many own tickets are in flight at once until the answer."""
        self._polled_at = now
        self._most_in_flight = self.in_flight
        self._most_awaiting = self._awaiting
        self._most_peers = self.peers

    def poll_ok(self, sample: Sample, policy: Policy, now: float, *, parked: bool) -> None:
        """Take in a good page."""
        self._sampled_at = now if self._polled_at is None else self._polled_at
        self.sample = sample
        self.foreign = max(0, (sample.running or 0) + sample.waiting - self._most_in_flight)
        self.peers_then = self._most_peers
        self.failing = False
        self.stale_since = None
        self.refused_since = None
        if sample.changed:
            self.frozen_since = None
        # Of what peers hold it is not known how much awaits its content: it may be all.
        awaiting = self._most_awaiting + self.peers_then
        if policy.max_inflight is None:
            self.learner.learn(sample, awaiting=awaiting, parked=parked)
        elif counts(sample, awaiting):
            self.drift = contradicts(sample, policy.max_inflight)

    def poll_failed(self, now: float, *, stale: bool) -> None:
        """Note that no page was to be had."""
        self.failing = True
        # Only a good page ends it: after a reload another observer counts its failures from 0.
        if stale and self.stale_since is None:
            self.stale_since = now

    # Judgement

    def limit(self, policy: Policy) -> int:
        """S."""
        return self.learner.limit if policy.max_inflight is None else policy.max_inflight

    def sight(self, policy: Policy, now: float) -> Sight:
        """By what the engine is judged now."""
        if not self._observed:
            return Sight.UNOBSERVED
        if self.stale_since is None:
            return Sight.UNKNOWN if self.sample is None else Sight.FRESH
        if policy.when_stale is WhenStale.CLOSED:
            return Sight.CLOSED
        if (
            policy.when_stale is WhenStale.HOLD
            and self.sample is not None
            and now < self.stale_since + policy.hold_seconds
        ):
            return Sight.HELD
        if policy.max_inflight is None and not self.learner.learned:
            return Sight.NO_GATE
        return Sight.LEDGER

    def others(self, sight: Sight) -> int:
        """Sequences in the engine of neither this replica nor its peers, as far as they count."""
        return max(0, self.foreign - self.peers_then) if sight in _BY_GAUGES else 0

    def in_engine(self, sight: Sight) -> int:
        """Sequences in the engine, as far as they count."""
        return self.in_flight + self.peers + self.others(sight)

    def _replicas_hold(self, policy: Policy, sight: Sight) -> bool:
        """Whether other replicas have anything in the engine, or may have for all that is known."""
        if policy.replicas.count > 1:
            return self.others(sight) > 0
        return self.peers > 0

    def room(self, policy: Policy, now: float) -> int:
        """S less what is in the engine."""
        return self.limit(policy) - self.in_engine(self.sight(policy, now))

    def bay(self, policy: Policy, now: float) -> Bay:
        """What the engine can take now."""
        sight = self.sight(policy, now)
        limit = self.limit(policy)
        held = self.refused_since is not None
        probing = held and self.failing and now >= self.probe_at
        bounded = sight is not Sight.NO_GATE
        laned = bounded and policy.ordering is Ordering.COST and self.laned(now)
        narrow = limit <= NARROW
        bay = Bay(
            ledger=self,
            sight=sight,
            limit=limit if policy.replicas.exchanged else own_share(policy.replicas, limit),
            room=self.quota.room(
                policy.replicas,
                limit=limit,
                own=self.in_flight,
                peers=self.peers,
                others=self.others(sight),
                now=now,
            ),
            shut=sight is Sight.CLOSED or (held and not probing) or (laned and narrow),
            bounded=bounded,
            laned=laned,
            narrow=narrow,
            empty=not self.own and not self._replicas_hold(policy, sight),
            probing=probing,
        )
        if sight in _BY_GAUGES:
            self._weigh_kv(bay, policy, now)
        return bay

    def _weigh_kv(self, bay: Bay, policy: Policy, now: float) -> None:
        sample = self.sample
        if sample is None or sample.kv_usage is None:
            return
        bay.kv_binds = True
        bay.kv_full = sample.kv_usage >= policy.kv_threshold
        if sample.kv_tokens is None:
            return
        started = unstarted = 0
        for ticket in self.own:
            starts_at = _starts_at(ticket, policy)
            if now >= starts_at:
                started += ticket.prompt_tokens + ticket.generated_tokens
            else:
                unstarted += ticket.kv_need_tokens
                bay.kv_eases_at = _earlier(bay.kv_eases_at, starts_at)
        bay.kv_committed = max(sample.kv_usage * sample.kv_tokens, started) + unstarted
        bay.kv_capacity = KV_FILL * sample.kv_tokens

    def watch(self, bay: Bay, policy: Policy, now: float) -> float | None:
        """Note that a ticket was not taken, and say when time alone may change that.

        Returns:
            A time later than `now`, or None where only an event can change it.
        """
        times: list[float | None] = [bay.kv_eases_at]
        if self.own or bay.sight not in _BY_GAUGES:
            self.frozen_since = None
        elif self.frozen_since is None:
            self.frozen_since = now
        if self.frozen_since is not None:
            times.append(self.frozen_since + PROBE_AFTER_SECONDS)
        if self.refused_since is not None and self.failing:
            times.append(self.probe_at)
        if self.lane is not None:
            times.append(self.lane_until)
        times.append(self.peer_lane_until)
        if bay.sight is Sight.HELD and self.stale_since is not None:
            times.append(self.stale_since + policy.hold_seconds)
        return min((time for time in times if time is not None and time > now), default=None)

    def view(self, policy: Policy, now: float) -> EngineView:
        """The facts, frozen."""
        sample = self.sample
        sight = self.sight(policy, now)
        hold = None
        if sight is Sight.CLOSED:
            hold = Hold.STALE_CLOSED
        elif self.refused_since is not None:
            hold = Hold.REFUSED_CONNECTION
        in_engine = self.in_engine(sight)
        return EngineView(
            running=None if sample is None else sample.running,
            waiting=None if sample is None else sample.waiting,
            kv_usage=None if sample is None else sample.kv_usage,
            kv_tokens=None if sample is None else sample.kv_tokens,
            sample_age_seconds=None if sample is None else now - self._sampled_at,
            max_inflight=self.limit(policy),
            learned=policy.max_inflight is None and self.learner.learned,
            drift=self.drift,
            own=self.in_flight,
            own_requests=len(self.own),
            peers=self.peers,
            foreign=self.others(sight),
            long_prefill=policy.ordering is Ordering.COST and self.laned(now),
            in_engine=in_engine,
            sight=sight,
            stale=self.stale_since is not None,
            hold=hold,
        )


def _starts_at(ticket: Ticket, policy: Policy) -> float:
    """When a sent ticket counts as started: at its first content, or when it must have been."""
    if ticket.first_content_at is not None:
        return ticket.first_content_at
    return ticket.sent_at + ticket.prefill_seconds + policy.poll_seconds


def _earlier(one: float | None, other: float) -> float:
    return other if one is None else min(one, other)
