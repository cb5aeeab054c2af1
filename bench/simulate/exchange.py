"""Replicas ask each other what they hold, as `web/peer_rounds.py` does, with delay and loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.simulate.ours import GatedReplica
from bench.simulate.timeline import Timeline
from twisted_gateway.core.peers import GateReport

INTERVAL_SECONDS = 0.25
IDLE_SECONDS = 1.0
SECONDS_PER_PEER = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """What is between the replicas.

    Attributes:
        delay_seconds: how long an answer takes on average; each takes up to twice that.
        loss: the share of questions that are never answered.
    """

    delay_seconds: float = 0.005
    loss: float = 0.0


class Exchange:
    """Each replica asks all the others, round after round.

    A round is over when everyone has answered who did the last time, or with the interval; then
    the gate hears what came in time. What a replica says is at least half its answer's delay old.
    """

    def __init__(
        self, timeline: Timeline, replicas: Sequence[GatedReplica], network: Network
    ) -> None:
        self._timeline = timeline
        self._network = network
        self._replicas = {f"replica{n}:9000": replica for n, replica in enumerate(replicas)}
        self._silent: set[tuple[str, str]] = set()
        self._interval = max(INTERVAL_SECONDS, SECONDS_PER_PEER * len(replicas))
        for address, replica in self._replicas.items():
            timeline.after(
                replica.rng.random() * self._interval, self._next, address, -IDLE_SECONDS
            )

    def _next(self, asking: str, began: float) -> None:
        """Begin a round, or let it be while nothing of this replica is parked or in the engine."""
        replica = self._replicas[asking]
        if not replica.alive:
            return
        now = self._timeline.now
        if replica.idle and now < began + IDLE_SECONDS:
            self._timeline.after(self._interval, self._next, asking, began)
        else:
            self._begin(asking, replica)
            self._timeline.after(self._interval, self._next, asking, now)

    def _begin(self, asking: str, replica: GatedReplica) -> None:
        views: dict[str, GateReport | None] = {}
        took = 0.0
        for address, peer in self._replicas.items():
            if address == asking:
                continue
            views[address] = None
            delay = self._delay(replica, peer)
            if delay < self._interval:
                self._timeline.after(delay / 2, self._answer, address, views)
                self._silent.discard((asking, address))
                took = max(took, delay)
            elif (asking, address) not in self._silent:
                self._silent.add((asking, address))
                took = self._interval
        current = took < self._interval
        self._timeline.after(took, self._end, replica, views, current)

    def _delay(self, asking: GatedReplica, peer: GatedReplica) -> float:
        """How long an answer takes; longer than a round where none comes."""
        delay = asking.rng.random() * 2 * self._network.delay_seconds
        lost = asking.rng.random() < self._network.loss
        return self._interval if lost or not peer.alive else delay

    def _answer(self, address: str, views: dict[str, GateReport | None]) -> None:
        peer = self._replicas[address]
        if peer.alive:
            views[address] = peer.gate.report(self._timeline.now)

    def _end(
        self, replica: GatedReplica, views: dict[str, GateReport | None], current: bool
    ) -> None:
        if replica.alive:
            replica.hear(views, current=current)
