"""What several replicas make of engines and tenants together.

`core.peers` says what they know of each other, `core.quota` what each may take; this puts the two
together for one gate, and counts for each tenant what it has used of all of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from twisted_gateway.core.ledger import Ledger
from twisted_gateway.core.line import Line
from twisted_gateway.core.order import Tenants
from twisted_gateway.core.peers import GateReport, HeadView, Peers
from twisted_gateway.core.policy import Policy
from twisted_gateway.core.ticket import Ticket


class Share:
    """This replica's share of the engines behind one gate, and the tenants' of all replicas.

    Attributes:
        tenants: engine time that they have used of this replica.
    """

    def __init__(self, policy: Policy, ledgers: Sequence[Ledger]) -> None:
        """Know of no other replica, and no use."""
        self.tenants = Tenants()
        self._policy = policy
        self._exchanged = policy.replicas.exchanged
        self._ledgers = ledgers
        self._peers = Peers()
        self._change_at: float  # until then what they hold counts as noted
        self._be_in_force()

    def adopt(self, policy: Policy) -> None:
        """Take another policy, as the gate that is in force."""
        self._policy = policy
        self._exchanged = policy.replicas.exchanged
        if not self._exchanged:
            self._peers.forget()
        self._be_in_force()

    def _be_in_force(self) -> None:
        """Of all gates in front of the same engines this is the one that peers have as well."""
        self._change_at = -math.inf
        for ledger in self._ledgers:
            ledger.in_force = self
            if not self._exchanged:
                ledger.alone()

    def replicas(self, now: float) -> int:
        """How many gateways are in front of the engines, this one included, as far as is known."""
        return 1 + self._peers.counted(now) if self._exchanged else self._policy.replicas.count

    def heard(self, now: float) -> dict[str, float]:
        """How long ago each other replica was last heard, by its address."""
        return self._peers.known(now)

    def change_at(self, now: float) -> float | None:
        """When silence alone will change what the others count as."""
        return self._peers.next_change(now)

    def use(self, tenant: str, now: float) -> float:
        """What a tenant has used of all replicas, as far as is known, in seconds."""
        used = self.tenants.use(tenant, now)
        if self._exchanged:
            return used + self._peers.use(tenant, now)
        # A load balancer spreads a tenant's requests, so the others have seen as much of it.
        return used * self._policy.replicas.count

    # Rounds of asking

    def report(self, head: Ticket | None, now: float) -> GateReport:
        """What the others must know of this replica, whose next to be served is `head`."""
        return GateReport(
            in_flight=tuple(ledger.in_flight for ledger in self._ledgers),
            long_prefill_seconds=tuple(ledger.lane_seconds(now) for ledger in self._ledgers),
            head=None
            if head is None
            else HeadView(
                age_seconds=now - head.parked_at,
                cost_seconds=head.cost_seconds,
                tenant=head.tenant,
                priority=head.priority,
                long=head.long,
                sequences=head.n,
            ),
            use=self.tenants.all(now),
        )

    def round_ended(
        self,
        views: Mapping[str, GateReport | None],
        line: Line,
        now: float,
        *,
        current: bool,
    ) -> None:
        """Take in what the others said, and see what may be taken by it; as `Gate.peers`."""
        self._peers.heard(views, now)
        self._change_at = -math.inf
        self.count_peers(now)
        head = line.first(now)
        rooms = [ledger.room(self._policy, now) for ledger in self._ledgers]
        better = 0 if head is None else self._better(head, line, now, room=max(rooms))
        wanted = 0 if head is None else head.n
        for ledger, room in zip(self._ledgers, rooms, strict=True):
            ledger.quota.grant(
                room if wanted else 0,
                better,
                wanted,
                now,
                own=ledger.in_flight,
                current=current,
                to=self,
            )

    def count_peers(self, now: float) -> None:
        """Note for each engine what the others hold in it."""
        if not self._exchanged or now < self._change_at:
            return
        self._change_at = self._peers.next_change(now) or math.inf
        for engine, ledger in enumerate(self._ledgers):
            if ledger.in_force is not self:
                # To peers that have reloaded as well, this gate's address list means nothing.
                continue
            held = self._peers.held(engine, ledger.limit(self._policy), now)
            ledger.note_peers(sum(held), self._peers.long_until(engine, now))
            ledger.quota.replicas = 1 + len(held)
            ledger.quota.asked = self._peers.asked

    # Places

    def freed(self, ledger: Ledger, sequences: int, line: Line, now: float) -> None:
        """So many places of ours are free, and ours again, unless a peer has a better use."""
        if not self._exchanged or (head := line.first(now)) is None:
            return
        self.count_peers(now)
        room = ledger.room(self._policy, now)
        left = room - self._better(head, line, now, room=room)
        if left > 0:
            ledger.quota.refill(min(sequences, left))

    def lapse(self) -> None:
        """What was to be taken at once, and was not, is not ours any more."""
        for ledger in self._ledgers:
            ledger.quota.lapse()

    def _better(self, head: Ticket, line: Line, now: float, *, room: int) -> int:
        """How many places peers may be about to take for heads that go before ours."""
        ours = line.rank(head, now)
        return self._peers.better(
            lambda view, age: (
                line.rank_of(
                    view.priority, view.tenant, view.age_seconds + age, view.cost_seconds, now
                )
                < ours
            ),
            now,
            room=room,
            limit=max(ledger.limit(self._policy) for ledger in self._ledgers),
        )
