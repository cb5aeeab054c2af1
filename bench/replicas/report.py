"""What is printed and written: figures, targets, how well the machine kept up, and a picture."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.pages import spliced
from bench.replicas.lanes import Lane, Panel, picture
from bench.replicas.measure import MOST_BEHIND_SECONDS, Measured, Run
from bench.replicas.setups import SETUPS
from bench.simulate.clients import World
from bench.simulate.exchange import Network
from bench.simulate.figures import Figures
from bench.simulate.figures import figures as simulated_figures
from bench.simulate.policies import POLICIES
from bench.simulate.report import HEADS, TITLES, table
from bench.simulate.runs import SPARE_SECONDS
from bench.simulate.spread import Spread, number, spread
from bench.simulate.targets import OURS, TARGETS, Target
from twisted_gateway.load.results import Ending, Request
from twisted_gateway.load.workloads import duration, estimated

SCHEMA = "replicas-bench/1"
SHOWN = {
    "W1": ("completed_percent", "most_over", "wasted_percent", "short_ttft_p50"),
    "W5": ("completed_percent", "light_ttft_p95", "most_over", "wasted_percent"),
}
PICTURED = ("none", "fifo", "peers")
BEGINS, ENDS = "<!-- figures -->", "<!-- end -->"


def simulate(run: Run) -> Figures:
    """Play the same clients in the simulator, at speed 1, before the same gates."""
    arrivals = estimated(run.workload, random.Random(run.seed), **run.options)
    world = World(arrivals, run.seed)
    world.replicas = POLICIES[run.setup].make(world, SETUPS[run.setup].gateways, Network())
    world.run(duration(run.workload, **run.options) + SPARE_SECONDS)
    return simulated_figures(world)


@dataclass(slots=True, kw_only=True)
class Report:
    """What was found.

    Attributes:
        judged: whether the runs are what the targets are meant for.
        measured: all runs that are over.
        simulated: the figures of the same ones in the simulator.
    """

    judged: bool
    measured: list[Measured] = field(default_factory=list)
    simulated: list[Figures] = field(default_factory=list)

    def add(self, measured: Measured, simulated: Figures) -> None:
        """Take in a run that is over."""
        self.measured.append(measured)
        self.simulated.append(simulated)

    @property
    def workloads(self) -> list[str]:
        """Those that were played, in order."""
        return list(dict.fromkeys(one.run.workload for one in self.measured))

    def setups(self, workload: str) -> list[str]:
        """Those that it was played before, in order."""
        return list(dict.fromkeys(m.run.setup for m in self.measured if m.run.workload == workload))

    def found(self, workload: str, setup: str, *, real: bool) -> dict[int, Figures]:
        """Figures by seed."""
        return {
            measured.run.seed: measured.figures if real else simulated
            for measured, simulated in zip(self.measured, self.simulated, strict=True)
            if (measured.run.workload, measured.run.setup) == (workload, setup)
        }

    # Tables

    def figures_table(self, workload: str) -> str:
        """The figures of each setup, beside the simulator's."""
        head = ["setup"]
        for name in SHOWN[workload]:
            head += [HEADS[name], "simulated"]
        rows = []
        for setup in self.setups(workload):
            row = [SETUPS[setup].words]
            for name in SHOWN[workload]:
                for real in (True, False):
                    found = self.found(workload, setup, real=real)
                    row.append(str(spread(one[name] for one in found.values())))
            rows.append(row)
        return table(head, rows)

    def targets_table(self, workload: str) -> str:
        """What ours is to reach, and whether it does."""
        rows = list(self._target_rows(workload))
        return table(["target", "setup", "bound", "measured", "reached", "simulated"], rows)

    def _target_rows(self, workload: str) -> Iterable[list[str]]:
        setups = self.setups(workload)
        for target in TARGETS:
            if target.workload != workload or target.against not in (None, *setups):
                continue
            for setup in OURS:
                if setup not in setups:
                    continue
                measured = self.measure(target, setup, real=True)
                reached = "yes" if target.reached(measured.median, setup) else "**no**"
                yield [
                    target.words,
                    SETUPS[setup].words,
                    f"{'>=' if target.least else '<='} {number(target.bound(setup))}",
                    measured.text(),
                    reached if self.judged else "not judged",
                    self.measure(target, setup, real=False).text(),
                ]

    def measure(self, target: Target, setup: str, *, real: bool) -> Spread:
        """A target's measure over seeds: each seed's own ratio, where it is one."""
        ours = self.found(target.workload, setup, real=real)
        other: dict[int, Figures] = {}
        if target.against is not None:
            other = self.found(target.workload, target.against, real=real)
        return spread(target.measure(one, other.get(seed)) for seed, one in ours.items())

    def machine_table(self) -> str:
        """How well the machine kept up."""
        rows = []
        for workload in self.workloads:
            for setup in self.setups(workload):
                runs = self.found(workload, setup, real=True).values()
                rows.append(
                    [
                        workload,
                        SETUPS[setup].words,
                        number(max(one["load_average"] for one in runs)),
                        number(max(one["engine_behind"] for one in runs)),
                        number(max(one["tool_late"] for one in runs)),
                        *(
                            f"{max(one[f'{name}_cpu_seconds'] / one['took'] for one in runs):.2f}"
                            for name in ("engine", "gateways", "tool")
                        ),
                    ]
                )
        head = ["", "setup", "load before", "engine behind, s", "tool late, s"]
        return table([*head, "engine, cores", "gateways, cores", "tool, cores"], rows)

    @property
    def too_slow(self) -> list[Measured]:
        """The runs in which the engine fell behind its own time: their figures mean little."""
        return [m for m in self.measured if m.figures["engine_behind"] > MOST_BEHIND_SECONDS]

    def sections(self) -> str:
        """All that is printed."""
        parts = []
        for workload in self.workloads:
            seeds = sorted({m.run.seed for m in self.measured if m.run.workload == workload})
            named = ", ".join(map(str, seeds))
            parts.append(f"## {workload}: {TITLES[workload]}")
            parts.append(f"Seed{'s' if len(seeds) > 1 else ''} {named}.")
            parts += [self.figures_table(workload), self.targets_table(workload)]
        parts += ["## The machine", self.machine_table()]
        for slow in self.too_slow:
            behind = number(slow.figures["engine_behind"])
            parts.append(
                f"**Too slow:** {slow.run.workload}, {SETUPS[slow.run.setup].words}, seed "
                f"{slow.run.seed}: the engine was {behind} s behind its own time."
            )
        return "\n\n".join(part for part in parts if part)

    # Files

    def tree(self, conditions: Mapping[str, Any]) -> dict[str, Any]:
        """Everything, for the JSON file."""
        runs = [
            {**asdict(measured.run), "figures": measured.figures, "simulated": simulated}
            for measured, simulated in zip(self.measured, self.simulated, strict=True)
        ]
        return {"schema": SCHEMA, **conditions, "runs": _finite(runs)}

    def drawn(self) -> str | None:
        """W1 of the first seed as a picture; None where it was not played."""
        runs = [one for one in self.measured if one.run.workload == "W1"]
        if not runs:
            return None
        first = runs[0].run.seed
        by_setup = {one.run.setup: one for one in runs if one.run.seed == first}
        panels = [
            Panel(SETUPS[name].words.replace("`", ""), [*map(lane, by_setup[name].result.requests)])
            for name in PICTURED
            if name in by_setup
        ]
        return picture(f"W1, measured: {TITLES['W1']}", panels) if panels else None

    def write(
        self, directory: Path, conditions: Mapping[str, Any], wrote: Callable[[Path], None]
    ) -> None:
        """Write the JSON file and the picture, and put the tables into the page."""
        directory.mkdir(parents=True, exist_ok=True)
        page = directory / "replicas-bench.md"
        text = page.read_text(encoding="utf-8") if page.exists() else f"{BEGINS}\n{ENDS}\n"
        files = {
            page: spliced(text, BEGINS, ENDS, self.sections()),
            directory / "replicas-bench.json": json.dumps(self.tree(conditions), indent=1) + "\n",
        }
        drawn = self.drawn()
        if drawn is not None:
            files[directory / "replicas-bench.svg"] = drawn
        for path, content in files.items():
            path.write_text(content, encoding="utf-8")
            wrote(path)


def lane(request: Request) -> Lane:
    """What became of a request, for the picture."""
    begun = [one.content for one in request.tries if one.content is not None]
    return Lane(
        label="65k" if request.kind == "long" else "8k",
        at=request.at,
        first=begun[-1] if begun else None,
        end=request.end,
        answered=request.ending is Ending.COMPLETED,
    )


def _finite(value: Any) -> Any:
    """A tree for JSON, which knows no NaN."""
    if isinstance(value, float):
        return round(value, 3) if value - value == 0 else None
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_finite(one) for one in value]
    if isinstance(value, Mapping):
        return {name: _finite(one) for name, one in value.items()}
    return value
