"""The policies that are compared, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bench.simulate.baselines import Predecessor, Semaphore, Ungated
from bench.simulate.clients import Replica, World
from bench.simulate.exchange import Exchange, Network
from bench.simulate.oracle import Oracle
from bench.simulate.ours import GatedReplica
from twisted_gateway.core.policy import Ordering, Policy, Replicas

PREFILL_TOKENS_PER_SECOND = 525
DECODE_TOKENS_PER_SECOND = 25


@dataclass(frozen=True, slots=True)
class Contender:
    """A policy.

    Attributes:
        words: what it is, in a table's row.
        make: builds the gateways of it: so many, in a world, with a network between them.
    """

    words: str
    make: Callable[[World, int, Network], Sequence[Replica]]


def gated(ordering: Ordering, replicas: Replicas) -> Policy:
    """The gate's policy for the engine of the model."""
    return Policy(
        max_inflight=4,
        ordering=ordering,
        prefill_tokens_per_second=PREFILL_TOKENS_PER_SECOND,
        decode_tokens_per_second=DECODE_TOKENS_PER_SECOND,
        replicas=replicas,
    )


def _none(world: World, count: int, network: Network) -> Sequence[Replica]:
    return [Ungated(world) for _ in range(count)]


def _semaphore(world: World, count: int, network: Network) -> Sequence[Replica]:
    return [Semaphore(world) for _ in range(count)]


def _predecessor(world: World, count: int, network: Network) -> Sequence[Replica]:
    return [Predecessor(world) for _ in range(count)]


def _alone(world: World, count: int, network: Network) -> Sequence[Replica]:
    return [GatedReplica(world, gated(Ordering.COST, Replicas()))]


def _fifo(world: World, count: int, network: Network) -> Sequence[Replica]:
    policy = gated(Ordering.FIFO, Replicas(count=count))
    return [GatedReplica(world, policy) for _ in range(count)]


def _static(world: World, count: int, network: Network) -> Sequence[Replica]:
    policy = gated(Ordering.COST, Replicas(count=count))
    return [GatedReplica(world, policy) for _ in range(count)]


def _peers(world: World, count: int, network: Network) -> Sequence[Replica]:
    return _exchanging(world, count, network, _asking(count))


def _brief(world: World, count: int, network: Network) -> Sequence[Replica]:
    brief = replace(_asking(count), max_park_seconds=120.0, max_queue_depth=8)
    return _exchanging(world, count, network, brief)


def _asking(count: int) -> Policy:
    addresses = tuple((f"replica{number}", 9000) for number in range(count))
    return gated(Ordering.COST, Replicas(addresses=addresses))


def _exchanging(
    world: World, count: int, network: Network, policy: Policy
) -> Sequence[GatedReplica]:
    replicas = [GatedReplica(world, policy) for _ in range(count)]
    Exchange(world.timeline, replicas, network)
    return replicas


def _oracle(world: World, count: int, network: Network) -> Sequence[Replica]:
    return [Oracle(world)]


POLICIES = {
    "none": Contender("no gate", _none),
    "semaphore": Contender("a semaphore in each replica", _semaphore),
    "predecessor": Contender("the predecessor's gate", _predecessor),
    "fifo": Contender("ours, `ordering: fifo`", _fifo),
    "alone": Contender("ours, one replica", _alone),
    "static": Contender("ours, `replicas: N`", _static),
    "peers": Contender("ours, replicas ask each other", _peers),
    "oracle": Contender("a gate that knows everything", _oracle),
    "brief": Contender("ours, ask each other, 120 s and 8 parked at most", _brief),
}
"""By name, in the order in which they are shown."""

COMPARED = [name for name in POLICIES if name != "brief"]
"""Those of the page: `brief` has the bounds of the predecessor's manifests (docs/kubernetes.md)."""
