"""What gateways without our gate have in common: they park clients in a list and send jobs."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod

from bench.simulate.clients import Client, End, World
from bench.simulate.jobs import Job
from bench.simulate.timeline import Event, cancel

RETRY_AFTER_SECONDS = 5.0


class ParkingReplica(ABC):
    """A gateway that sends at once, parks or refuses; what it parks it refuses after a while.

    Attributes:
        alive: whether its process lives.
        own: the clients whose jobs are in the engine, by job.
        parked: those that wait, by arrival, with the time since when and the end of it.
        longest_park_seconds: the longest that anyone was parked.
    """

    def __init__(self, world: World, *, max_park_seconds: float) -> None:
        """Make a gateway of this world; each draws once from its randomness."""
        self.world = world
        self.timeline = world.timeline
        self.engine = world.engine
        self.rng = random.Random(world.rng.random())
        self.max_park_seconds = max_park_seconds
        self.alive = True
        self.own: dict[Job, Client] = {}
        self.parked: dict[Client, tuple[float, Event]] = {}
        self.longest_park_seconds = 0.0

    @abstractmethod
    def arrive(self, client: Client) -> None:
        """A client asks."""

    def leave(self, client: Client) -> None:
        """A client hangs up."""
        if client.job is not None:
            self.close(client.job)
        else:
            self.unpark(client)

    def die(self) -> None:
        """End, with all connections."""
        self.alive = False
        for client in list(self.parked):
            self.unpark(client)
            self.world.broken(client)
        own, self.own = self.own, {}
        for job, client in own.items():
            self.engine.abort(job)
            self.world.broken(client)

    # What the kinds do with clients

    def forward(self, client: Client) -> None:
        """Send a client's request to the engine."""
        self.unpark(client)
        job = client.job = Job(client.arrival, self, self.timeline.now)
        self.own[job] = client
        self.engine.submit(job)

    def park(self, client: Client) -> None:
        """Let a client wait."""
        self.world.truth.note(self.engine)
        self.world.truth.parked += 1
        until = self.timeline.after(self.max_park_seconds, self.refuse, client)
        self.parked[client] = (self.timeline.now, until)

    def unpark(self, client: Client) -> None:
        """Let a client wait no longer, if it does."""
        if client in self.parked:
            self.world.truth.note(self.engine)
            self.world.truth.parked -= 1
            since, until = self.parked.pop(client)
            cancel(until)
            waited = self.timeline.now - since
            self.longest_park_seconds = max(self.longest_park_seconds, waited)

    def refuse(self, client: Client) -> None:
        """Answer a client with a 503."""
        self.unpark(client)
        self.world.refused(client, RETRY_AFTER_SECONDS)

    def close(self, job: Job) -> None:
        """A job has ended, or its client has left."""
        self.own.pop(job, None)

    # What the engine tells

    def job_first(self, job: Job) -> None:
        """See `engine.Owner`."""
        self.world.first(self.own[job])

    def job_done(self, job: Job) -> None:
        """See `engine.Owner`."""
        self.world.done(self.own[job])
        self.close(job)

    def job_refused(self, job: Job) -> None:
        """See `engine.Owner`; the client may have left meanwhile."""
        client = self.own.get(job)
        if client is not None:
            self.close(job)
            if client.end is End.OPEN:
                self.world.broken(client)

    def job_broken(self, job: Job) -> None:
        """See `engine.Owner`."""
        client = self.own[job]
        self.close(job)
        self.world.broken(client)
