"""Runs of the simulator: one, or many on all cores."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bench.simulate import faults
from bench.simulate.clients import World
from bench.simulate.exchange import Network
from bench.simulate.figures import Figures, figures
from bench.simulate.policies import POLICIES
from twisted_gateway.load.workloads import duration, estimated

DEFAULT_NETWORK = Network()
SPARE_SECONDS = 700.0
"""After the last client has ended, for an engine that still works for those who left."""


@dataclass(frozen=True, slots=True)
class Run:
    """What is to be simulated.

    Attributes:
        workload: its name, see `twisted_gateway.load.workloads`.
        policy: its name, see `policies`.
        seed: of all that is random; the same seed means the same workload for every policy.
        replicas: how many gateways there are.
        network: what is between them.
    """

    workload: str
    policy: str
    seed: int
    replicas: int = 3
    network: Network = DEFAULT_NETWORK


def simulate(run: Run) -> World:
    """Play a run to its end."""
    arrivals = estimated(run.workload, random.Random(1000 + run.seed))
    befall = faults.W6 if run.workload == "W6" else ()
    world = World(arrivals, run.seed, faults=befall)
    world.replicas = POLICIES[run.policy].make(world, run.replicas, run.network)
    world.run(duration(run.workload) + SPARE_SECONDS)
    return world


def play(run: Run) -> tuple[Run, Figures]:
    """Play a run, for its figures."""
    return run, figures(simulate(run))


def play_all(runs: Iterable[Run], jobs: int, played: Callable[[Run], None]) -> dict[Run, Figures]:
    """Play runs in so many processes; `played` is told of each that is over."""
    found = {}
    with multiprocessing.Pool(jobs) as pool:
        for run, comes_to in pool.imap_unordered(play, list(runs)):
            found[run] = comes_to
            played(run)
    return found
