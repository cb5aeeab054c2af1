"""One engine as this replica knows it: what was sent to it, what its gauges say, what it can take.

Own tickets count from the moment they are sent to the moment they end, whatever the gauges say, so
that no burst hides in their lag. The gauges serve for what is not ours:

    own_then  = the most own sequences in flight at once between a poll's sending and its answer
    foreign   = max(0, running + waiting - own_then)
    in_engine = own sequences in flight now + foreign
    room      = S - in_engine       # less what peers hold; foreign is then what is not theirs

`core.quota` says what several replicas make of `room`, `core.bay` what an engine can take.

    sight        when                                                admits while
    UNOBSERVED   it is not polled                                    own tickets leave room in S
    UNKNOWN      no poll has answered yet (S = 2 under `auto`)       own tickets leave room in S
    FRESH        the last page is good, or not yet stale             room less foreign; KV fits
    HELD         stale, `hold`, for hold_seconds                     as FRESH, by the last page
    LEDGER       stale, `open` or hold over; S configured or learned own tickets leave room in S
    NO_GATE      the same, `auto` having learned nothing             always
    CLOSED       stale, `closed`                                     never

A refused connection, or an answer that breaks off (the engine may be dying, and take what it will
never answer), holds the engine, whatever its sight, until a good poll; while polls fail, and where
there are none, one ticket goes every poll_seconds to try (not while CLOSED), and its answer ends
the hold. An unchanged page that has shut an engine with nothing of ours in it for 60 s lets one
ticket try.
"""

from __future__ import annotations

from twisted_gateway.core.learner import Learner, contradicts, counts
from twisted_gateway.core.policy import Ordering, Policy, WhenStale
from twisted_gateway.core.quota import Quota
from twisted_gateway.core.sample import Sample
from twisted_gateway.core.ticket import Ticket
from twisted_gateway.core.view import EngineView, Hold, Sight

LANE_PREFILLS = 3.0
"""After so many times its estimate a long prefill counts as over."""
BY_GAUGES = frozenset({Sight.FRESH, Sight.HELD})
"""While these hold, what the last page shows of others counts."""


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
        in_force: which gate's views of other replicas count; the others were retired by a reload.
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
        self.in_force: object = None
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
        return max(0, self.foreign - self.peers_then) if sight in BY_GAUGES else 0

    def in_engine(self, sight: Sight) -> int:
        """Sequences in the engine, as far as they count."""
        return self.in_flight + self.peers + self.others(sight)

    def room(self, policy: Policy, now: float) -> int:
        """S less what is in the engine."""
        return self.limit(policy) - self.in_engine(self.sight(policy, now))

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
