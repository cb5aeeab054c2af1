"""The figures to reach, from the design of the admission gate."""

from __future__ import annotations

from dataclasses import dataclass

from bench.simulate.figures import Figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A figure that ours must reach.

    Attributes:
        workload: on which.
        figure: its name in `figures`.
        words: what it is.
        shared: the bound for one replica alone, and for replicas that only know their number.
        peers: the bound for replicas that ask each other.
        least: whether the bound is the least that will do; else it is the most.
        against: the policy that it is a ratio to; None for the figure itself.
    """

    workload: str
    figure: str
    words: str
    shared: float
    peers: float
    least: bool = False
    against: str | None = None

    def bound(self, policy: str) -> float:
        """What this policy must reach."""
        return self.peers if policy == "peers" else self.shared

    def measure(self, ours: Figures, other: Figures | None) -> float:
        """The figure of one run, or its ratio to the other policy's run of the same seed."""
        value = ours[self.figure]
        if other is None:
            return value
        base = other[self.figure]
        if base == 0:
            return 1.0 if value == 0 else float("inf")
        return value / base

    def reached(self, value: float, policy: str) -> bool:
        """Whether a measure is good enough."""
        bound = self.bound(policy)
        return value >= bound if self.least else value <= bound


TARGETS = (
    Target(
        workload="W1",
        figure="completed_percent",
        words="completed, to no gate",
        against="none",
        least=True,
        shared=1.5,
        peers=1.6,
    ),
    Target(workload="W1", figure="most_over", words="most over S", shared=4, peers=2),
    Target(
        workload="W1",
        figure="wasted_percent",
        words="wasted prefill, to no gate",
        against="none",
        shared=0.7,
        peers=0.3,
    ),
    Target(
        workload="W2",
        figure="short_ttft_p95",
        words="TTFT p95 of short prompts, to the predecessor",
        against="predecessor",
        shared=0.5,
        peers=0.45,
    ),
    Target(
        workload="W3",
        figure="completed_percent",
        words="completed, %",
        least=True,
        shared=99,
        peers=99,
    ),
    Target(
        workload="W3",
        figure="light_ttft_p95",
        words="TTFT p95 of chats, to no gate",
        against="none",
        shared=0.45,
        peers=0.35,
    ),
    Target(
        workload="W4",
        figure="answered_per_minute",
        words="answers a minute, to no gate",
        against="none",
        least=True,
        shared=0.99,
        peers=0.99,
    ),
    Target(
        workload="W4", figure="idle_percent", words="places idle while parked, %", shared=1, peers=1
    ),
    Target(
        workload="W5",
        figure="completed_percent",
        words="completed, to no gate",
        against="none",
        least=True,
        shared=3,
        peers=3,
    ),
    Target(
        workload="W5",
        figure="light_ttft_p95",
        words="TTFT p95 of light tenants, s",
        shared=200,
        peers=60,
    ),
    Target(
        workload="W6",
        figure="completed_percent",
        words="completed, %",
        least=True,
        shared=99,
        peers=99,
    ),
)
OURS = ("alone", "static", "peers")
"""The policies that must reach them."""
