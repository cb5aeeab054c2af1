"""Who is served first: classes, then tenants by what they have used, then the response ratio.

class      interactive, batch, warmup
tenant     engine time used lately (each ticket's cost when it is sent, decaying with a time
           constant of 120 s, replicas together), rounded down to steps of 10 s, so that light
           users tie
ratio      (waited + 1) / cost, highest first: short ones go first, and all who wait come up
arrival    among equals

cost       = prefill + min(max_tokens, 512) * n / (decode rate * S), in seconds of engine time
prefill    = prompt tokens, less the blocks of it that were read lately, / prefill rate
service    = prefill + min(max_tokens, 512) / decode rate
long       when prefill > longPrefillSeconds, once the rates are learned
deadline   when max(1, 0.9 * patienceSeconds - service) seconds have been waited, once the rates
           are learned: what starts later than that is served to nobody
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator

from twisted_gateway.core.estimate import BYTES_PER_TOKEN
from twisted_gateway.core.line import CLASSES, Line, Rank
from twisted_gateway.core.policy import Ordering, Policy
from twisted_gateway.core.prefix import BLOCK_BYTES, Prefixes
from twisted_gateway.core.rates import Rates
from twisted_gateway.core.ticket import Priority, Ticket

USE_SECONDS = 120.0
USE_STEP_SECONDS = 10.0
MOST_TENANTS = 4096
_FORGOTTEN_SECONDS = 0.01
ANSWER_TOKENS_COUNTED = 512
PATIENCE_SHARE = 0.9
LEAST_WAIT_SECONDS = 1.0
LEAST_COST_SECONDS = 1e-3
BLOCK_TOKENS = BLOCK_BYTES // BYTES_PER_TOKEN


class Costs:
    """What tickets cost the engines behind one gate.

    Attributes:
        rates: how fast the engines are.
        prefixes: what they have read lately.
        changed: whether anything has changed that the price of a parked ticket depends on.
    """

    def __init__(self, policy: Policy) -> None:
        """Know only what the policy says."""
        self.rates = Rates(policy)
        self.prefixes = Prefixes()
        self.changed = False
        self._policy = policy
        self._sequences = 1

    def adopt(self, policy: Policy) -> None:
        """Take another policy."""
        self._policy = policy
        self.rates.adopt(policy)
        self.changed = True

    def share(self, sequences: int) -> None:
        """So many sequences share an engine (S)."""
        if sequences != self._sequences:
            self._sequences = max(1, sequences)
            self.changed = True

    def price(self, ticket: Ticket) -> None:
        """Say on a ticket what it costs, as far as is known at this moment."""
        rates = self.rates
        shared = self.prefixes.shared(ticket.blocks) if ticket.blocks else 0
        ticket.shared_tokens = shared * BLOCK_TOKENS
        answer = min(ticket.max_tokens, ANSWER_TOKENS_COUNTED)
        # An estimate that the engine's limit has cut does not count the blocks beyond it, either.
        whole = max(ticket.prompt_tokens, ticket.body_bytes // BYTES_PER_TOKEN)
        tokens = min(ticket.prompt_tokens, max(0, whole - ticket.shared_tokens))
        ticket.prefill_seconds = prefill = tokens / rates.prefill
        decode = answer * ticket.n / (rates.decode * self._sequences)
        ticket.cost_seconds = max(LEAST_COST_SECONDS, prefill + decode)
        if rates.learned and self._policy.ordering is Ordering.COST:
            ticket.long = prefill > self._policy.long_prefill_seconds
            latest = PATIENCE_SHARE * ticket.policy.patience_seconds
            latest -= prefill + answer / rates.decode
            ticket.deadline_at = ticket.parked_at + max(LEAST_WAIT_SECONDS, latest)
        else:
            ticket.long = False
            ticket.deadline_at = math.inf

    def prefill_ended(self, ticket: Ticket, now: float, *, alone: bool) -> None:
        """The engine has read a ticket's prompt; `alone` says that it read no other of ours."""
        if ticket.blocks and self.prefixes.note(ticket.blocks):
            self.changed = True
        if ticket.stream and alone:
            ticket.read_seconds = now - ticket.sent_at
            # Of a prompt that begins as one before nobody knows how much the engine had of it.
            if not ticket.shared_tokens:
                self._prefill_took(ticket, ticket.prompt_tokens, confirmed=False)

    def answer_ended(self, ticket: Ticket, now: float) -> None:
        """The engine has written a ticket's answer to its end, and told what it told."""
        told, cached = ticket.told_tokens, ticket.cached_tokens
        if told is not None and (cached is not None or not ticket.shared_tokens):
            self._prefill_took(ticket, told - (cached or 0), confirmed=True)
        began = ticket.first_content_at
        # Of several sequences it is not known whose the tokens are.
        if ticket.stream and ticket.n == 1 and began is not None:
            tokens = ticket.generated_tokens - 1
            self.changed |= self.rates.decode_took(tokens, now - began)

    def _prefill_took(self, ticket: Ticket, tokens: int, *, confirmed: bool) -> None:
        if ticket.read_seconds is not None:
            took = ticket.read_seconds
            self.changed |= self.rates.prefill_took(tokens, took, confirmed=confirmed, of=ticket)


class Tenants:
    """Engine time that tenants have used lately, in seconds; bounded in memory."""

    def __init__(self) -> None:
        """Know of none."""
        self._used: dict[str, tuple[float, float]] = {}

    def charge(self, tenant: str, seconds: float, now: float) -> None:
        """A ticket of this tenant is sent; or, less than nothing, an engine has refused it."""
        used = max(0.0, self.use(tenant, now) + seconds)
        self._used.pop(tenant, None)
        self._used[tenant] = (used, now)
        if len(self._used) > MOST_TENANTS:
            self._forget(now)

    def use(self, tenant: str, now: float) -> float:
        """What it has used, decayed."""
        entry = self._used.get(tenant)
        if entry is None:
            return 0.0
        used, at = entry
        # Thousands may be sent at one moment.
        return used if at == now else used * math.exp((at - now) / USE_SECONDS)

    def all(self, now: float) -> dict[str, float]:
        """What each has used that is still known of."""
        return {tenant: self.use(tenant, now) for tenant in self._used}

    def _forget(self, now: float) -> None:
        """Forget who has used next to nothing, and of the rest the half of least use."""
        used = sorted(self.all(now).items(), key=lambda item: -item[1])
        kept = {tenant for tenant, use in used[: MOST_TENANTS // 2] if use > _FORGOTTEN_SECONDS}
        self._used = {tenant: entry for tenant, entry in self._used.items() if tenant in kept}


class CostLine(Line):
    """The parked tickets, in the order that this module describes.

    A ratio grows with time and at another pace for each ticket, so nothing is kept sorted: the
    order is made when it is asked for.
    """

    def __init__(self, use: Callable[[str, float], float]) -> None:
        """Start empty.

        Args:
            use: what a tenant has used, of all replicas: takes it and the time, gives seconds.
        """
        self._use = use
        self._classes: tuple[dict[Ticket, None], ...] = tuple({} for _ in Priority)

    def __len__(self) -> int:
        """How many tickets stand in line."""
        return sum(map(len, self._classes))

    def __iter__(self) -> Iterator[Ticket]:
        """All tickets, in no order."""
        for tickets in self._classes:
            yield from tickets

    def append(self, ticket: Ticket) -> None:
        """Put a newcomer in line."""
        self._classes[ticket.priority][ticket] = None

    restore = append

    def remove(self, ticket: Ticket) -> None:
        """Take a ticket out, if it is in."""
        self._classes[ticket.priority].pop(ticket, None)

    def foremost(self) -> Priority | None:
        """The class of the first ticket."""
        return next((cls for cls in CLASSES if self._classes[cls]), None)

    def ranked(self, now: float) -> Iterator[Ticket]:
        """The tickets in order. Each may be taken out, and its tenant charged, when it is given."""
        for tickets in self._classes:
            if tickets:
                yield from self._ranked_class(tickets, now)

    def rank_of(
        self, priority: Priority, tenant: str, waited: float, cost: float, now: float
    ) -> Rank:
        """Where a ticket of these facts stands."""
        # A peer may tell of a cost of nothing.
        urgency = _urgency(waited, max(cost, LEAST_COST_SECONDS))
        return (priority, self._step(tenant, now), urgency)

    def ranks(self, now: float) -> Iterator[tuple[Rank, int, Ticket]]:
        """Where all stand, with their place in the order of arrival; unsorted."""
        for priority, tickets in zip(CLASSES, self._classes, strict=True):
            steps = self._steps(tickets, now)
            for one in tickets:
                urgency = _urgency(now - one.parked_at, one.cost_seconds)
                yield (priority, steps[one.tenant], urgency), one.sequence, one

    def first(self, now: float) -> Ticket | None:
        """The ticket to be served next."""
        tickets = next(filter(None, self._classes), None)
        if tickets is None:
            return None
        steps = self._steps(tickets, now)
        least = min(steps.values())
        return min(
            (ticket for ticket in tickets if steps[ticket.tenant] == least),
            key=lambda one: (_urgency(now - one.parked_at, one.cost_seconds), one.sequence),
        )

    def _ranked_class(self, tickets: dict[Ticket, None], now: float) -> Iterator[Ticket]:
        queues: dict[str, list[tuple[float, int, Ticket]]] = {}
        for one in tickets:
            place = _urgency(now - one.parked_at, one.cost_seconds), one.sequence, one
            queues.setdefault(one.tenant, []).append(place)
        for queue in queues.values():
            heapq.heapify(queue)
        # Each tenant stands here with its first, so that a charge moves one entry, not its queue.
        firsts = [
            (self._step(tenant, now), queue[0], tenant, queue) for tenant, queue in queues.items()
        ]
        heapq.heapify(firsts)
        while firsts:
            step, place, tenant, queue = firsts[0]
            heapq.heappop(queue)
            yield place[2]
            if not queue:
                heapq.heappop(firsts)
                continue
            if place[2] not in tickets:
                step = self._step(tenant, now)
            heapq.heapreplace(firsts, (step, queue[0], tenant, queue))

    def _steps(self, tickets: Iterable[Ticket], now: float) -> dict[str, int]:
        """The step of each tenant that has a ticket among these."""
        return {tenant: self._step(tenant, now) for tenant in {one.tenant for one in tickets}}

    def _step(self, tenant: str, now: float) -> int:
        return int(self._use(tenant, now) / USE_STEP_SECONDS)


def _urgency(waited: float, cost: float) -> float:
    """The response ratio, negative: the least is served first."""
    return -(waited + 1.0) / cost


def heaviest(tickets: Iterable[Ticket]) -> Iterator[Ticket]:
    """Who is to leave first: the newest ticket of the tenant whose parked work is most, and so on.

    Those that an engine has sent back count as their tenant's work, and stay.

    Args:
        tickets: all who are parked; each that is given counts as gone when the next is asked for.
    """
    work: dict[str, float] = {}
    stay: dict[str, list[Ticket]] = {}
    for ticket in tickets:
        tenant = ticket.tenant
        work[tenant] = work.get(tenant, 0.0) + ticket.cost_seconds
        if not ticket.reparked:
            stay.setdefault(tenant, []).append(ticket)
    for theirs in stay.values():
        theirs.sort(key=_arrival)
    queue = [(-work[tenant], -theirs[-1].sequence, tenant) for tenant, theirs in stay.items()]
    heapq.heapify(queue)
    while queue:
        tenant = heapq.heappop(queue)[2]
        theirs = stay[tenant]
        ticket = theirs.pop()
        yield ticket
        work[tenant] -= ticket.cost_seconds
        if theirs:
            heapq.heappush(queue, (-work[tenant], -theirs[-1].sequence, tenant))


def _arrival(ticket: Ticket) -> int:
    return ticket.sequence
