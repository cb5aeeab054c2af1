"""Who asks, how often and for how long, and what befalls the engine and the gateways meanwhile."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from bench.simulate.engine import Engine, Model
from bench.simulate.jobs import Job
from bench.simulate.timeline import Event, Timeline, cancel
from bench.simulate.truth import Truth
from twisted_gateway.load.arrivals import Arrival

SILENCE_SECONDS = 60.0
"""A client that gets no bytes (no stream, or past the gateway) gives a try up after so long."""


class End(Enum):
    """How a client ended."""

    OPEN = "open"
    OK = "ok"
    REFUSED = "refused"
    """Its last try was refused, or an earlier one was and the last failed."""
    FAILED = "failed"
    GAVE_UP = "gave up"
    """Its patience was over."""


class Metrics(Enum):
    """How the engine's `/metrics` answers."""

    OK = "ok"
    DOWN = "down"
    SLOW = "slow"
    """Not within the time that a poll may take."""


class Client:
    """One arrival and what becomes of it.

    Attributes:
        number: its place among the arrivals.
        arrival: what it wants.
        estimate: how many prompt tokens a gateway takes it for.
        end: how it ended.
        ends: how often it ended, which is once.
        attempts: how often it has asked.
        refusals: how often it was refused.
        first_at: when its first token came, at whichever try.
        done_at: when its answer was complete.
        replica: the gateway that has its try.
        job: its try in the engine.
    """

    __slots__ = (
        *("arrival", "attempts", "done_at", "end", "ends", "estimate", "first_at", "gives_up"),
        *("hangs_up", "job", "number", "refusals", "replica"),
    )

    def __init__(self, number: int, arrival: Arrival, estimate: int) -> None:
        self.number = number
        self.arrival = arrival
        self.estimate = estimate
        self.end = End.OPEN
        self.ends = self.attempts = self.refusals = 0
        self.first_at: float | None = None
        self.done_at: float | None = None
        self.replica: Replica | None = None
        self.job: Job | None = None
        self.gives_up: Event | None = None
        self.hangs_up: Event | None = None


class Replica(Protocol):
    """One gateway, as clients and faults see it."""

    alive: bool
    longest_park_seconds: float

    def arrive(self, client: Client) -> None:
        """A client asks."""

    def leave(self, client: Client) -> None:
        """A client hangs up; its job has been aborted already."""

    def die(self) -> None:
        """The process ends, with all its connections."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that befalls the world at a time, in seconds."""

    at: float
    befall: Callable[[World], None]


class World:
    """An engine, gateways before it, and clients.

    Attributes:
        timeline: the time.
        rng: of everything but the workload.
        engine: the engine.
        truth: what really happened.
        metrics: how the engine's gauges answer just now.
        clients: by arrival.
        replicas: the gateways; to be filled before `run`.
        retries: tries beyond the first.
    """

    def __init__(
        self,
        arrivals: Sequence[tuple[Arrival, int]],
        seed: int,
        *,
        model: Model | None = None,
        faults: Sequence[Fault] = (),
    ) -> None:
        """Nothing happens before `run`.

        Args:
            arrivals: each with the gateways' estimate of its prompt.
            seed: of all that is random here.
            model: what the engine can do.
            faults: what is to happen.
        """
        self.timeline = Timeline()
        self.rng = random.Random(seed * 7919 + 13)
        model = Model() if model is None else model
        self.truth = Truth(model.sequences)
        self.engine = Engine(self.timeline, model, self.truth)
        self.metrics = Metrics.OK
        self.replicas: Sequence[Replica] = ()
        self.clients = [Client(n, one, estimate) for n, (one, estimate) in enumerate(arrivals)]
        self.retries = 0
        self._faults = faults
        self._open = len(self.clients)
        self._turn = 0
        self._direct: dict[Job, Client] = {}

    def run(self, until: float) -> None:
        """Let it happen: to its end, which is when all clients have ended and the engine is idle.

        Raises:
            AssertionError: it is not over at `until`.
        """
        for client in self.clients:
            self.timeline.at(client.arrival.at, self._attempt, client)
        for fault in self._faults:
            self.timeline.at(fault.at, fault.befall, self)
        self.timeline.run(until, self._over)
        self.truth.note(self.engine)
        if not self._over():
            raise AssertionError(f"{self._open} clients have not ended in {until:g} s")

    def _over(self) -> bool:
        return not self._open and self.engine.idle

    # What gateways tell

    def first(self, client: Client) -> None:
        """A client has its first token."""
        if client.first_at is None:
            client.first_at = self.timeline.now

    def done(self, client: Client) -> None:
        """A client has its answer."""
        if client.end is End.OPEN:
            client.done_at = self.timeline.now
            self._end(client, End.OK)

    def refused(self, client: Client, retry_after_seconds: float) -> None:
        """A gateway answers 503; the client tries again within a second after it may."""
        client.refusals += 1
        self._again(client, retry_after_seconds + self.rng.random())

    def broken(self, client: Client) -> None:
        """A try failed; the client tries again within three seconds."""
        self._again(client, 2.0 + self.rng.random())

    # Past the gateways: the world itself owns the jobs of direct callers

    def job_first(self, job: Job) -> None:
        """See `engine.Owner`."""
        self.first(self._direct[job])

    def job_done(self, job: Job) -> None:
        """See `engine.Owner`."""
        self.done(self._direct.pop(job))

    def job_refused(self, job: Job) -> None:
        """See `engine.Owner`."""
        self.broken(self._direct.pop(job))

    def job_broken(self, job: Job) -> None:
        """See `engine.Owner`."""
        self.broken(self._direct.pop(job))

    # Clients

    def _attempt(self, client: Client) -> None:
        if client.end is not End.OPEN:
            return
        arrival = client.arrival
        if client.attempts:
            self.retries += 1
        else:
            until = arrival.at + arrival.patience_seconds
            client.gives_up = self.timeline.at(until, self._give_up, client)
        client.attempts += 1
        if arrival.direct or not arrival.stream:
            client.hangs_up = self.timeline.after(SILENCE_SECONDS, self._hang_up, client)
        if arrival.direct:
            job = client.job = Job(arrival, self, self.timeline.now)
            self._direct[job] = client
            self.engine.submit(job)
            return
        replica = client.replica = self._next_replica()
        replica.arrive(client)

    def _next_replica(self) -> Replica:
        """The balancer's choice: each in its turn, of those that live."""
        while True:
            replica = self.replicas[self._turn % len(self.replicas)]
            self._turn += 1
            if replica.alive:
                return replica

    def _hang_up(self, client: Client) -> None:
        """Nothing has come for a while: try again."""
        job = client.job
        if client.end is not End.OPEN:
            return
        if client.arrival.stream and job is not None and job.first_at is not None:
            return
        self._withdraw(client)
        self._again(client, 1.0)

    def _give_up(self, client: Client) -> None:
        if client.end is End.OPEN:
            self._end(client, End.GAVE_UP)
            self._withdraw(client)

    def _withdraw(self, client: Client) -> None:
        job, replica = client.job, client.replica
        if job is not None:
            self.engine.abort(job)
            self._direct.pop(job, None)
        if replica is not None:
            replica.leave(client)
        client.job = client.replica = None

    def _again(self, client: Client, seconds: float) -> None:
        client.job = client.replica = None
        cancel(client.hangs_up)
        arrival = client.arrival
        too_late = self.timeline.now + seconds >= arrival.at + arrival.patience_seconds
        if client.attempts >= arrival.tries or too_late:
            self._end(client, End.REFUSED if client.refusals else End.FAILED)
        else:
            self.timeline.after(seconds, self._attempt, client)

    def _end(self, client: Client, end: End) -> None:
        client.end = end
        client.ends += 1
        self._open -= 1
        cancel(client.gives_up)
        cancel(client.hangs_up)
