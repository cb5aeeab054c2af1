"""A bound from above: one gate that sees into the engine and knows how long answers will be."""

from __future__ import annotations

import math

from bench.simulate.clients import Client, World
from bench.simulate.jobs import Job
from bench.simulate.replicas import ParkingReplica

LONG_TOKENS = 4096
DEADLINE_SECONDS = 540.0
KV_PASS_SECONDS = 60.0
USE_STEP_SECONDS = 10.0
USE_TIME_CONSTANT_SECONDS = 120.0


class Oracle(ParkingReplica):
    """One central queue, by tenants' use and response ratio, with exact sizes and no lag."""

    def __init__(self, world: World) -> None:
        super().__init__(world, max_park_seconds=600.0)
        self._use: dict[str, tuple[float, float]] = {}
        self._limit = world.engine.model.sequences
        world.engine.on_step = self._drain

    def arrive(self, client: Client) -> None:
        """Queue it."""
        self.park(client)
        self._drain()

    def job_first(self, job: Job) -> None:
        """A long prefill may be over."""
        super().job_first(job)
        self._drain()

    def job_done(self, job: Job) -> None:
        """A place is free."""
        super().job_done(job)
        self._drain()

    def leave(self, client: Client) -> None:
        """A place may be free."""
        was_sent = client.job is not None
        super().leave(client)
        if was_sent:
            self._drain()

    def _drain(self) -> None:
        self._refuse_hopeless()
        while self.parked and self.engine.up and self.engine.held < self._limit:
            client = self._next()
            if client is None:
                return
            self._charge(client)
            self.forward(client)

    def _refuse_hopeless(self) -> None:
        now = self.timeline.now
        hopeless = [
            client
            for client, (since, _) in self.parked.items()
            if now - since > 1 and now - since + self._cost(client) > DEADLINE_SECONDS
        ]
        for client in hopeless:
            self.refuse(client)

    def _next(self) -> Client | None:
        """Who goes, if anyone may: a long prefill goes alone, and is waited for at the head."""
        model = self.engine.model
        if any(self._long(client) and job.first_at is None for job, client in self.own.items()):
            return None
        now = self.timeline.now
        for place, client in enumerate(sorted(self.parked, key=self._score)):
            waited = now - self.parked[client][0]
            if self._long(client) and self.engine.held > 0:
                reads = self._uncached(client) / model.beside_tokens_per_second
                answers = min(client.arrival.max_tokens, 512) * model.step_seconds
                if place == 0 and waited + reads + answers <= DEADLINE_SECONDS:
                    return None
                continue
            if self._fits(client):
                return client
            if waited > KV_PASS_SECONDS:
                return None
        return None

    # Sizes

    def _uncached(self, client: Client) -> int:
        group = client.arrival.group
        prefix = None if group is None else self.engine.groups.get(group)
        return client.arrival.prompt_tokens - (0 if prefix is None else prefix.tokens)

    def _long(self, client: Client) -> bool:
        return self._uncached(client) > LONG_TOKENS

    def _cost(self, client: Client) -> float:
        model = self.engine.model
        reads = self._uncached(client) / model.alone_tokens_per_second
        return reads + client.arrival.answer_tokens * model.step_seconds / 4

    def _fits(self, client: Client) -> bool:
        """Whether the KV cache holds it to its end, beside all that is in the engine."""
        engine = self.engine
        if engine.held == 0:
            return True
        used = {name: p.tokens for name, p in engine.groups.items() if p.users > 0}
        total = sum(used.values())
        for arrival in (*(job.arrival for job in engine.jobs), client.arrival):
            total += arrival.prompt_tokens + arrival.answer_tokens
            if arrival is not client.arrival and arrival.group in used:
                total -= arrival.prefix_tokens
        return total <= engine.model.kv_tokens

    # Tenants

    def _used(self, tenant: str) -> float:
        used, at = self._use.get(tenant, (0.0, 0.0))
        return used * math.exp((at - self.timeline.now) / USE_TIME_CONSTANT_SECONDS)

    def _charge(self, client: Client) -> None:
        tenant = client.arrival.tenant
        self._use[tenant] = (self._used(tenant) + self._cost(client), self.timeline.now)

    def _score(self, client: Client) -> tuple[int, float]:
        waited = self.timeline.now - self.parked[client][0]
        steps = round(self._used(client.arrival.tenant) / USE_STEP_SECONDS)
        return steps, -(waited + 1.0) / self._cost(client)
