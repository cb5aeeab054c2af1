"""Drives the real gate (`twisted_gateway/core/gate.py`) in simulated time.

What `web/admission.py` is to the gate in a process, with its Deferreds, and `engines/observer.py`
with its polls, this is in the simulator: it tells the gate every event and carries out what the
gate decides, outermost first.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Mapping
from zlib import crc32

from bench.simulate.clients import Client, Metrics, World
from bench.simulate.engine import Gauges
from bench.simulate.jobs import Job
from bench.simulate.timeline import Event, cancel
from twisted_gateway.core.decision import Admitted, Decision, Parked, Refused
from twisted_gateway.core.gate import Gate
from twisted_gateway.core.peers import GateReport
from twisted_gateway.core.policy import Policy
from twisted_gateway.core.sample import Sample
from twisted_gateway.core.ticket import Ticket, TicketState

POLL_TAKES_SECONDS = 0.01
BLOCK_TOKENS = 1024
"""What 4 KiB of a body come to."""
MOST_RETRY_AFTER_SECONDS = 60
MODEL = "reasoning"


class GatedReplica:
    """A gateway with our gate.

    Attributes:
        alive: whether its process lives.
        gate: the gate.
        longest_park_seconds: the longest that anyone was parked.
    """

    def __init__(self, world: World, policy: Policy) -> None:
        """Make a gateway of this world; each draws once from its randomness."""
        self.world = world
        self.timeline = world.timeline
        self.engine = world.engine
        self.rng = random.Random(world.rng.random())
        self.policy = policy
        self.alive = True
        self.longest_park_seconds = 0.0
        self.gate = Gate(policy)
        self._tickets: dict[Client, Ticket] = {}
        self._clients: dict[Ticket, Client] = {}
        self._own: dict[Job, Ticket] = {}
        self._parked: dict[Ticket, float] = {}
        self._pending: deque[Decision] = deque()
        self._applying = False
        self._wakes: Event | None = None
        self._wakes_at: float | None = None
        self._polling = False
        self._failed_in_a_row = 0
        self._page: tuple[Gauges, float] | None = None
        self.timeline.at(self.rng.random() * policy.poll_seconds, self._poll)

    # Clients

    def arrive(self, client: Client) -> None:
        """A client asks."""
        ticket = self._ticket(client)
        self._tickets[client] = ticket
        self._clients[ticket] = client
        self._tell(lambda now: self.gate.submit(ticket, now))

    def leave(self, client: Client) -> None:
        """A client hangs up; its job has been aborted already."""
        ticket = self._tickets.get(client)
        if ticket is not None:
            if client.job is not None:
                self._own.pop(client.job, None)
            self._forget(ticket)
            self._tell(lambda now: self.gate.client_gone(ticket, now))

    def die(self) -> None:
        """End, with all connections."""
        self.alive = False
        cancel(self._wakes)
        clients = list(self._tickets)
        for ticket in list(self._clients):
            self._forget(ticket)
        self._own.clear()
        for client in clients:
            if client.job is not None:
                self.engine.abort(client.job)
            self.world.broken(client)

    # Other replicas

    @property
    def idle(self) -> bool:
        """Whether nothing of this replica is parked or in the engine."""
        return not self._tickets

    def hear(self, views: Mapping[str, GateReport | None], *, current: bool) -> None:
        """A round of asking is over; see `Gate.peers`."""
        self._tell(lambda now: self.gate.peers(views, now, current=current))

    def _ticket(self, client: Client) -> Ticket:
        arrival = client.arrival
        return Ticket(
            model=MODEL,
            policy=self.policy,
            stream=arrival.stream,
            prompt_tokens=client.estimate,
            max_tokens=arrival.max_tokens,
            body_bytes=4 * client.estimate,
            tenant=arrival.tenant,
            blocks=blocks(client),
        )

    def _forget(self, ticket: Ticket) -> None:
        self._unpark(ticket)
        del self._tickets[self._clients.pop(ticket)]

    # Polls

    def _poll(self) -> None:
        """One tick of the observer: polls do not overlap."""
        if not self.alive:
            return
        self.timeline.after(self.policy.poll_seconds, self._poll)
        if self._polling:
            return
        self._polling = True
        self.gate.poll_sent(0, self.timeline.now)
        if self.world.metrics is Metrics.SLOW:
            self.timeline.after(self.policy.poll_timeout_seconds, self._poll_failed)
        elif self.world.metrics is Metrics.DOWN or not self.engine.up:
            self.timeline.after(POLL_TAKES_SECONDS, self._poll_failed)
        else:
            taken_at = self.timeline.now
            page = (self.engine.gauges, float(self.engine.prefix_hit_tokens))
            self.timeline.after(POLL_TAKES_SECONDS, self._poll_ok, page, taken_at)

    def _poll_ok(self, page: tuple[Gauges, float], taken_at: float) -> None:
        if not self.alive:
            return
        self._polling = False
        self._failed_in_a_row = 0
        gauges, hit_tokens = page
        sample = Sample(
            running=gauges.running,
            waiting=gauges.waiting,
            kv_usage=gauges.kv_usage,
            kv_tokens=self.engine.model.kv_tokens,
            prefix_hit_tokens=hit_tokens,
            changed=page != self._page,
            taken_at=taken_at,
        )
        self._page = page
        self._tell(lambda now: self.gate.poll_ok(0, sample, now))

    def _poll_failed(self) -> None:
        if not self.alive:
            return
        self._polling = False
        self._failed_in_a_row += 1
        stale = self._failed_in_a_row >= self.policy.stale_after_polls
        self._tell(lambda now: self.gate.poll_failed(0, now, stale=stale))

    # What the engine tells

    def job_first(self, job: Job) -> None:
        """See `engine.Owner`. Of an answer that is no stream a gateway sees only the end."""
        ticket = self._own[job]
        self.world.first(self._clients[ticket])
        if ticket.stream:
            ticket.generated_tokens = 1
            self._tell(lambda now: self.gate.first_content(ticket, now))

    def job_done(self, job: Job) -> None:
        """See `engine.Owner`."""
        ticket = self._own.pop(job)
        self.world.done(self._clients[ticket])
        self._forget(ticket)
        self._tell(lambda now: self.gate.finished(ticket, now))

    def job_refused(self, job: Job) -> None:
        """See `engine.Owner`; the client may have left meanwhile."""
        ticket = self._own.pop(job, None)
        if ticket is not None:
            self._clients[ticket].job = None
            self._tell(lambda now: self.gate.refused_by_engine(ticket, now, connected=False))

    def job_broken(self, job: Job) -> None:
        """See `engine.Owner`; a gateway cannot ask again for an answer that has begun."""
        ticket = self._own.pop(job)
        client = self._clients[ticket]
        self._forget(ticket)
        self._tell(lambda now: self.gate.broken(ticket, now))
        self._tell(lambda now: self.gate.finished(ticket, now))
        self.world.broken(client)

    # Decisions

    def _tell(self, event: Callable[[float], list[Decision]]) -> None:
        now = self.timeline.now
        for job, ticket in self._own.items():
            if ticket.stream:
                ticket.generated_tokens = self.engine.generated(job)
        self._pending.extend(event(now))
        if self._applying:
            return
        self._applying = True
        while self._pending:
            self._carry_out(self._pending.popleft())
        self._applying = False
        self._set_timer()

    def _carry_out(self, decision: Decision) -> None:
        ticket = decision.ticket
        client = self._clients.get(ticket)
        if client is None:
            return  # It left between the decision and now, and the gate has been told.
        if isinstance(decision, Parked):
            self._park(ticket)
        elif isinstance(decision, Admitted):
            self._unpark(ticket)
            job = client.job = Job(client.arrival, self, self.timeline.now)
            self._own[job] = ticket
            self.engine.submit(job)
        else:
            self._forget(ticket)
            if isinstance(decision, Refused):
                self.world.refused(client, self._retry_after(decision))
            else:
                self.world.broken(client)

    def _retry_after(self, refused: Refused) -> float:
        """The time until a place frees, jittered by a quarter, within bounds."""
        least = refused.ticket.policy.retry_after_seconds
        seconds = least if refused.place_seconds is None else refused.place_seconds
        jittered = math.ceil(seconds * self.rng.uniform(0.75, 1.25))
        return max(math.ceil(least), min(MOST_RETRY_AFTER_SECONDS, jittered))

    def _set_timer(self) -> None:
        wakes_at = self.gate.wake_at()
        if wakes_at == self._wakes_at or not self.alive:
            return
        cancel(self._wakes)
        self._wakes, self._wakes_at = None, wakes_at
        if wakes_at is not None:
            self._wakes = self.timeline.at(max(wakes_at, self.timeline.now), self._tick)

    def _tick(self) -> None:
        self._wakes = self._wakes_at = None
        self._tell(self.gate.tick)

    # Who is parked, for the truth

    def _park(self, ticket: Ticket) -> None:
        if ticket.state is TicketState.PARKED and ticket not in self._parked:
            self.world.truth.note(self.engine)
            self.world.truth.parked += 1
            self._parked[ticket] = self.timeline.now

    def _unpark(self, ticket: Ticket) -> None:
        since = self._parked.pop(ticket, None)
        if since is not None:
            self.world.truth.note(self.engine)
            self.world.truth.parked -= 1
            waited = self.timeline.now - since
            self.longest_park_seconds = max(self.longest_park_seconds, waited)


def blocks(client: Client) -> tuple[int, ...]:
    """Name the blocks of a client's body, as `core.prefix` would: those of its group's prefix
    are shared, the others its own."""
    arrival = client.arrival
    count = client.estimate // BLOCK_TOKENS
    shared = 0
    names: list[int] = []
    if arrival.group is not None:
        shared = min(count, arrival.prefix_tokens // BLOCK_TOKENS)
        group = crc32(arrival.group.encode())
        names = [(1 << 63) | (group << 16) | place for place in range(shared)]
    own = (client.number << 16) | (1 << 48)
    return (*names, *(own | place for place in range(shared, count)))
