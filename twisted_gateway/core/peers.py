"""What replicas of the gateway tell each other of an engine, and how much of it still counts.

All times in it are ages and durations, so no two clocks need agree. Tenants are HMACs.

    a peer that was last heard     counts as holding
    less than 2 s ago              what it said
    less than 30 s before that     max(1, S // N) sequences, and no long prefill
    earlier                        nothing, and N is one less: what it holds shows as foreign

A place goes to the best head of all replicas. A peer's head that is better than ours, while there
is room, is passed over once such heads of it have been that for 2 s and it took nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat

from twisted_gateway.core.ticket import Priority

HEARD_SECONDS = 2.0
SHARE_SECONDS = 30.0
HEAD_SECONDS = 2.0
MOST_SEQUENCES = 100_000
MOST_LANE_SECONDS = 1500.0
"""Three times what 128k tokens take on a slow engine: no prefill is believed to be longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadView:
    """The parked request that a replica would serve next.

    Attributes:
        age_seconds: how long it has waited.
        cost_seconds: what it costs, in seconds of engine time.
        tenant: whose it is.
        priority: its class.
        long: whether its prefill is a long one.
        sequences: how many it runs in the engine at once.
    """

    age_seconds: float
    cost_seconds: float
    tenant: str
    priority: Priority = Priority.INTERACTIVE
    long: bool = False
    sequences: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GateReport:
    """What a replica holds at the engines of one gate.

    Attributes:
        in_flight: sequences in each engine, in the gate's order of engines.
        long_prefill_seconds: for each engine how much longer, at most, a long prefill keeps it
            from others; 0 where none does.
        head: who is to be served next; None where nobody is parked.
        use: engine time that tenants have used lately, in seconds, decayed.
    """

    in_flight: tuple[int, ...] = ()
    long_prefill_seconds: tuple[float, ...] = ()
    head: HeadView | None = None
    use: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class _Peer:
    """A replica other than this one.

    Attributes:
        heard_at: when it last answered; of one that never did, when it was first asked.
        report: what it last said.
        better_since: since when its head has been better than ours and there was room for it.
        lanes: until when a long prefill of it counts, by engine; also past that, until it is over.
    """

    heard_at: float
    report: GateReport = GateReport()
    better_since: float | None = None
    lanes: dict[int, float] = field(default_factory=dict)

    def note_lanes(self, now: float) -> None:
        """Believe in a long prefill as long as was told at first, and if anything is in flight."""
        told = self.report.long_prefill_seconds
        for engine, left in enumerate(told):
            if left <= 0 or not _nth(self.report.in_flight, engine):
                self.lanes.pop(engine, None)
            else:
                until = now + min(left, MOST_LANE_SECONDS)
                self.lanes[engine] = min(until, self.lanes.get(engine, until))

    def counts(self, now: float) -> bool:
        """Whether it counts for anything."""
        return now < self.heard_at + HEARD_SECONDS + SHARE_SECONDS


class Peers:
    """The replicas in front of the same engines, as this one knows them.

    Attributes:
        asked: whether a round of asking has ended yet.
    """

    def __init__(self) -> None:
        """Know of none."""
        self.asked = False
        self._peers: dict[str, _Peer] = {}

    def counted(self, now: float) -> int:
        """How many count for anything."""
        return sum(map(_Peer.counts, self._peers.values(), repeat(now)))

    def heard(self, views: Mapping[str, GateReport | None], now: float) -> None:
        """A round of asking has ended.

        Args:
            views: what each replica that is known said, by its address; None for one that did not
                answer.
            now: the time.
        """
        self.asked = True
        for address, report in views.items():
            peer = self._peers.get(address)
            if peer is None:
                peer = self._peers[address] = _Peer(heard_at=now)
            if report is not None:
                if sum(report.in_flight) > sum(peer.report.in_flight):
                    # It takes places. One that does not is not waited for head after head.
                    peer.better_since = None
                peer.report = report
                peer.heard_at = now
                peer.note_lanes(now)
        # One that is asked in vain is remembered as such: it must not count as a new one.
        for address in self._peers.keys() - views.keys():
            if not self._peers[address].counts(now):
                del self._peers[address]

    def forget(self) -> None:
        """Know of none: the replicas ask each other no longer."""
        self.asked = False
        self._peers.clear()

    def held(self, engine: int, limit: int, now: float) -> list[int]:
        """How many sequences each peer that counts is taken to hold in an engine of S = `limit`."""
        share = max(1, limit // (1 + self.counted(now)))
        return [
            min(limit, int(_nth(peer.report.in_flight, engine)))
            if now < peer.heard_at + HEARD_SECONDS
            else share
            for peer in self._peers.values()
            if peer.counts(now)
        ]

    def long_until(self, engine: int, now: float) -> float | None:
        """Until when a peer's long prefill keeps an engine from others, at most."""
        ends = (
            peer.lanes.get(engine, 0.0)
            for peer in self._peers.values()
            if now < peer.heard_at + HEARD_SECONDS
        )
        return max((end for end in ends if end > now), default=None)

    def use(self, tenant: str, now: float) -> float:
        """What a tenant has used of all of them, in seconds."""
        return sum(
            peer.report.use.get(tenant, 0.0) for peer in self._peers.values() if peer.counts(now)
        )

    def better(
        self,
        is_better: Callable[[HeadView, float], bool],
        now: float,
        *,
        room: int,
        limit: int = MOST_SEQUENCES,
    ) -> int:
        """How many places peers may be about to take for heads that go before ours.

        Args:
            is_better: whether a head goes before ours; takes it, and how long ago it was told.
            now: the time.
            room: places that there are for them.
            limit: S: a head of more sequences wants no more places.
        """
        places = 0
        for peer in self._peers.values():
            head = peer.report.head
            age = now - peer.heard_at
            if head is None or age >= HEARD_SECONDS or not is_better(head, age):
                peer.better_since = None
                continue
            wanted = min(head.sequences, limit)
            if peer.better_since is None or room < wanted:
                peer.better_since = now
            if now < peer.better_since + HEAD_SECONDS:
                places += wanted
        return places

    def known(self, now: float) -> dict[str, float]:
        """How long ago each was last heard, by its address; also of those that count no longer."""
        return {address: now - peer.heard_at for address, peer in self._peers.items()}

    def next_change(self, now: float) -> float | None:
        """When silence alone will change what a peer counts as."""
        times = (
            peer.heard_at + after
            for peer in self._peers.values()
            for after in (HEARD_SECONDS, HEARD_SECONDS + SHARE_SECONDS)
        )
        return min((time for time in times if time > now), default=None)


def _nth(values: Sequence[float], index: int) -> float:
    return values[index] if index < len(values) else 0
