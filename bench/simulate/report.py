"""What is printed and written: for each workload one table of figures and one of targets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.simulate.chart import Bar, Panel, chart
from bench.simulate.figures import MEANINGS, Figures
from bench.simulate.policies import POLICIES
from bench.simulate.runs import Run
from bench.simulate.spread import Spread, number, spread
from bench.simulate.targets import OURS, TARGETS, Target

SHOWN = {
    "W1": ("completed_percent", "most_over", "wasted_percent", "short_ttft_p50", "refusals"),
    "W2": ("completed_percent", "short_ttft_p95", "long_ttft_p95", "most_over", "wasted_percent"),
    "W3": ("completed_percent", "light_ttft_p95", "short_ttft_p95", "most_over", "idle_percent"),
    "W4": ("answered_per_minute", "short_ttft_p95", "idle_percent", "most_over"),
    "W5": ("completed_percent", "light_ttft_p95", "wasted_percent", "most_over", "refusals"),
    "W6": ("completed_percent", "short_ttft_p95", "most_over", "idle_percent"),
}
TITLES = {
    "W1": "two prompts of 65,000 tokens and fifteen of 8,000 at once",
    "W2": "1.4 requests a minute, with a heavy tail of lengths",
    "W3": "bursts of thirty agents beside chats",
    "W4": "many short chats, near capacity",
    "W5": "one tenant that floods beside three that do not",
    "W6": "metrics outage, engine restart, slow metrics, a replica that dies",
}
HEADS = {
    "completed_percent": "completed, %",
    "short_ttft_p50": "TTFT p50 short, s",
    "short_ttft_p95": "TTFT p95 short, s",
    "long_ttft_p95": "TTFT p95 long, s",
    "light_ttft_p95": "TTFT p95 light, s",
    "answered_per_minute": "answers a minute",
    "wasted_percent": "wasted prefill, %",
    "most_over": "most over S",
    "idle_percent": "idle places, %",
    "refusals": "503 a request",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was found.

    Attributes:
        policies: those that were compared, in order.
        seeds: those that anyone may tune by.
        held_out: those that nobody has.
        replicas: how many gateways there were.
        found: figures by workload, policy and seed.
    """

    policies: Sequence[str]
    seeds: Sequence[int]
    held_out: Sequence[int]
    replicas: int
    found: dict[tuple[str, str, int], Figures] = field(default_factory=dict)

    def add(self, found: Mapping[Run, Figures]) -> None:
        """Take in the figures of runs: all policies and seeds of a workload, sooner or later."""
        for run, figures in found.items():
            self.found[run.workload, run.policy, run.seed] = figures

    @property
    def workloads(self) -> list[str]:
        """Those that were played, in order."""
        return sorted({workload for workload, _, _ in self.found})

    # One workload

    def figures_table(self, workload: str) -> str:
        """The figures of all policies, held-out seeds in columns of their own."""
        head = ["policy"]
        for name in SHOWN[workload]:
            head += [HEADS[name], *(["held out"] if self.held_out else [])]
        rows = []
        for policy in self.policies:
            row = [POLICIES[policy].words]
            for name in SHOWN[workload]:
                row += [str(self.spread(workload, policy, name, seeds)) for seeds in self._sets]
            rows.append(row)
        return table(head, rows)

    def targets_table(self, workload: str) -> str:
        """What ours was to reach, and whether it does; empty where no target can be judged."""
        rows = [
            row
            for target in TARGETS
            if target.workload == workload and target.against in (None, *self.policies)
            for row in self._target_rows(target)
        ]
        columns = ["seeds", *(["held out"] if self.held_out else [])]
        head = ["target", "policy", "bound"]
        for column in columns:
            head += [column, "reached"]
        return table(head, rows) if rows else ""

    def _target_rows(self, target: Target) -> Iterable[list[str]]:
        for policy in OURS:
            if policy in self.policies:
                bound = f"{'>=' if target.least else '<='} {number(target.bound(policy))}"
                row = [target.words, POLICIES[policy].words, bound]
                for seeds in self._sets:
                    measured = self.measured(target, policy, seeds)
                    reached = target.reached(measured.median, policy)
                    row += [measured.text(4), "yes" if reached else "**no**"]
                yield row

    def spread(self, workload: str, policy: str, name: str, seeds: Sequence[int]) -> Spread:
        """A figure of a policy over seeds."""
        return spread(self.found[workload, policy, seed][name] for seed in seeds)

    def measured(self, target: Target, policy: str, seeds: Sequence[int]) -> Spread:
        """A target's measure over seeds: each seed's own ratio, where it is one."""
        found, workload, against = self.found, target.workload, target.against
        return spread(
            target.measure(
                found[workload, policy, seed],
                None if against is None else found[workload, against, seed],
            )
            for seed in seeds
        )

    @property
    def _sets(self) -> list[Sequence[int]]:
        return [self.seeds, self.held_out] if self.held_out else [self.seeds]

    def picture(self, workload: str) -> str:
        """The first three figures of a workload as an SVG picture."""
        panels = [
            Panel(
                HEADS[name],
                tuple(
                    Bar(
                        POLICIES[policy].words.replace("`", ""),
                        self.spread(workload, policy, name, self.seeds),
                        self.spread(workload, policy, name, self.held_out),
                        policy in (*OURS, "fifo"),
                    )
                    for policy in self.policies
                ),
            )
            for name in SHOWN[workload][:3]
        ]
        return chart(f"{workload}: {TITLES[workload]}", panels)

    # All of them

    def section(self, workload: str) -> str:
        """What is printed of a workload."""
        parts = [f"## {workload}: {TITLES[workload]}", self.figures_table(workload)]
        return "\n\n".join([*parts, self.targets_table(workload)]).strip()

    def page(self, command: str) -> str:
        """The page for `docs/`."""
        meanings = "\n".join(
            f"* **{HEADS[name]}**: {words}." for name, words in MEANINGS.items() if name in HEADS
        )
        head = PAGE.format(
            command=command,
            replicas=self.replicas,
            seeds=len(self.seeds),
            held_out=len(self.held_out),
            meanings=meanings,
        )
        sections = [
            self.section(workload).replace(
                "\n\n", f"\n\n![{workload} in a picture](simulation/{workload}.svg)\n\n", 1
            )
            for workload in self.workloads
        ]
        return "\n\n".join([head.strip(), *sections, READING.strip()]) + "\n"

    def write(self, directory: Path, command: str, wrote: Callable[[Path], None]) -> None:
        """Write `simulation.md` and a picture of each workload into a directory."""
        pictures = directory / "simulation"
        pictures.mkdir(parents=True, exist_ok=True)
        files = {directory / "simulation.md": self.page(command)}
        for workload in self.workloads:
            files[pictures / f"{workload}.svg"] = self.picture(workload)
        for path, text in files.items():
            path.write_text(text, encoding="utf-8")
            wrote(path)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table that can be read as it stands."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    rule = ["-" * width for width in widths]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in (head, rule, *rows)
    )


READING = """
## Why a figure may miss its target

* **Wasted prefill in W1.** A long prompt that is refused for `deadline` comes again after
  `Retry-After`, and its client's patience has begun with the first try: what the gateway takes for
  600 s may be 100 s. So it reads a prompt that nobody waits for. Two replicas without an exchange
  may also read two long prompts at once, each at half the speed.
* **TTFT of short prompts in W2.** It is the ratio of two tails, and on seeds where nothing piles up
  before the predecessor a gate that knows everything does not halve it either; its own row says
  how far that comes.
"""

PAGE = """
# The gate in simulated time

The gate itself (`twisted_gateway/core/gate.py`), driven by a discrete-event model of an engine, of
clients that retry and lose patience, and of {replicas} replicas behind a balancer that deals
requests out in turn. It is played again, with the same numbers, by

    {command}

Every policy meets the same clients. Each figure is the median over {seeds} seeds, with quartiles;
ratios are taken seed by seed. *Held out* are {held_out} other seeds, by which nothing was tuned.

The engine is the predecessor's, as it was measured: it runs 4 sequences, its KV cache holds 152,432
tokens, and it reads prompts at 525 tokens a second, at 262 beside answers under way. It works in
steps of at most 2,048 tokens; what arrives during a step begins after it, and the gauges are
published at its end: a request shows in them up to 16 s after it was sent. Its clients ask 1, 3 or
6 times, wait 600 s in all, and try again after the time that `Retry-After` names. One in ten goes
past the gateway (none in W1 and W5). A gateway's estimate of a prompt is off by a fifth, up or
down.

{meanings}
"""
