"""What ours is compared with: no gate, a semaphore in each replica, and the predecessor's gate."""

from __future__ import annotations

from bench.simulate.clients import Client, Metrics, World
from bench.simulate.engine import Gauges
from bench.simulate.jobs import Job
from bench.simulate.replicas import ParkingReplica

POLL_SECONDS = 2.0
POLL_TAKES_SECONDS = 0.01
STALE_AFTER_SECONDS = 10.0
KV_THRESHOLD = 0.90


class Ungated(ParkingReplica):
    """Sends everything at once."""

    def __init__(self, world: World) -> None:
        super().__init__(world, max_park_seconds=0.0)

    def arrive(self, client: Client) -> None:
        """Send it."""
        self.forward(client)


class Semaphore(ParkingReplica):
    """Keeps `limit` of its own in the engine and `queue` waiting, whatever others do."""

    def __init__(
        self, world: World, *, limit: int = 4, queue: int = 8, max_park_seconds: float = 120.0
    ) -> None:
        super().__init__(world, max_park_seconds=max_park_seconds)
        self.limit = limit
        self.queue = queue

    def arrive(self, client: Client) -> None:
        """Queue it, or refuse it where the queue is full."""
        if len(self.parked) >= self.queue:
            self.refuse(client)
            return
        self.park(client)
        self._drain()

    def close(self, job: Job) -> None:
        """A place is free."""
        super().close(job)
        self._drain()

    def _drain(self) -> None:
        while self.alive and self.parked and len(self.own) < self.limit:
            self.forward(next(iter(self.parked)))


class Predecessor(ParkingReplica):
    """Parks while the last poll shows KV at 0.90 or `limit` requests in the engine.

    Before the first poll, and 10 s after the last that was answered, it lets all pass. All that
    are parked judge by the same page, so a page that shows room lets all of them go. That is the
    predecessor's rule; it keeps its parked ones in a queue of `queue`, None for no bound.
    """

    def __init__(
        self,
        world: World,
        *,
        limit: int = 4,
        queue: int | None = 8,
        max_park_seconds: float = 120.0,
    ) -> None:
        super().__init__(world, max_park_seconds=max_park_seconds)
        self.limit = limit
        self.queue = queue
        self._gauges = Gauges()
        self._answered_at = -STALE_AFTER_SECONDS
        self.timeline.at(self.rng.random() * POLL_SECONDS, self._poll)

    def arrive(self, client: Client) -> None:
        """Send it if the last poll shows room, else park it, else refuse it."""
        if self._room():
            self.forward(client)
        elif self.queue is not None and len(self.parked) >= self.queue:
            self.refuse(client)
        else:
            self.park(client)

    def _room(self) -> bool:
        now = self.timeline.now
        if now < POLL_SECONDS or now - self._answered_at > STALE_AFTER_SECONDS:
            return True
        gauges = self._gauges
        busy = gauges.running + gauges.waiting
        return gauges.kv_usage < KV_THRESHOLD and busy < self.limit

    def _poll(self) -> None:
        if not self.alive:
            return
        if self.world.metrics is Metrics.OK and self.engine.up:
            self.timeline.after(POLL_TAKES_SECONDS, self._judge, self.engine.gauges)
        self.timeline.after(POLL_SECONDS, self._poll)
        if self.timeline.now - self._answered_at > STALE_AFTER_SECONDS:
            self._drain()

    def _judge(self, gauges: Gauges) -> None:
        self._gauges = gauges
        self._answered_at = self.timeline.now
        self._drain()

    def _drain(self) -> None:
        if self.alive and self._room():
            for client in list(self.parked):
                self.forward(client)
