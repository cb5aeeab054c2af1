"""Draw the README's picture of W1: who waited and who was served, simulated.

    python -m bench w1                        # docs/w1.svg
    python -m bench w1 --seed 3 /tmp/w1.svg

Three gateways, and the same seventeen clients each time: with no gate, with the predecessor's
gate, with ours. Of the simulator's seven seeds it takes the first at which each of the three
answers as many as its median; the same code draws the same picture, byte for byte.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.replicas.lanes import Lane, Panel, picture
from bench.simulate.clients import Client, End, World
from bench.simulate.exchange import Network
from bench.simulate.policies import POLICIES
from bench.simulate.runs import SPARE_SECONDS
from twisted_gateway.load.workloads import LONG_TOKENS, duration, estimated

ROOT = Path(__file__).resolve().parent.parent
SEEDS = range(7)
REPLICAS = 3
PANELS = {
    "none": "No gate",
    "predecessor": "The predecessor's gate",
    "peers": "This gateway",
}
TITLE = "Two prompts of 65,000 tokens and fifteen of 8,000 at once, before an engine that runs four"


class Watched(World):
    """A world that notes when clients are refused for good."""

    left_at: dict[Client, float]

    def refused(self, client: Client, retry_after_seconds: float) -> None:
        """A gateway refuses a client, which may end it."""
        super().refused(client, retry_after_seconds)
        if client.end is not End.OPEN:
            self.left_at[client] = self.timeline.now


def play(policy: str, seed: int) -> Panel:
    """Simulate W1 under a policy."""
    world = Watched(estimated("W1", random.Random(1000 + seed)), seed)
    world.left_at = {}
    world.replicas = POLICIES[policy].make(world, REPLICAS, Network())
    world.run(duration("W1") + SPARE_SECONDS)
    return Panel(PANELS[policy], [lane(client, world.left_at) for client in world.clients])


def lane(client: Client, left_at: dict[Client, float]) -> Lane:
    """What became of a client."""
    arrival = client.arrival
    gave_up_at = arrival.at + arrival.patience_seconds
    end = left_at.get(client, gave_up_at) if client.done_at is None else client.done_at
    return Lane(
        label="65k" if arrival.prompt_tokens > LONG_TOKENS else "8k",
        at=arrival.at,
        first=client.first_at,
        end=end,
        answered=client.end is End.OK,
    )


def typical(played: Sequence[Sequence[Panel]]) -> int:
    """The first seed at which every policy answers as many as its median; else the nearest.

    Args:
        played: for each seed the panels of all policies.
    """
    counts = [[panel.answered for panel in panels] for panels in played]
    medians = [statistics.median(column) for column in zip(*counts, strict=True)]

    def off(seed: int) -> float:
        return math.fsum(abs(a - b) for a, b in zip(counts[seed], medians, strict=True))

    return min(range(len(played)), key=off)


def main(arguments: Sequence[str]) -> int:
    """Simulate and draw; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench w1", description="Draw W1.")
    parser.add_argument("to", nargs="?", type=Path, default=ROOT / "docs" / "w1.svg")
    parser.add_argument("--seed", type=int, help="default: a typical one of seven")
    options = parser.parse_args(arguments)
    if options.seed is None:
        played = [[play(policy, seed) for policy in PANELS] for seed in SEEDS]
        panels = played[typical(played)]
    else:
        panels = [play(policy, options.seed) for policy in PANELS]
    options.to.write_text(picture(TITLE, panels), encoding="utf-8")
    answered = ", ".join(f"{panel.title}: {panel.answered}" for panel in panels)
    print(f"{options.to}: {answered}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
