"""What a measurement says: a table, the facts beside it, and all of it as JSON."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.mid.scene import LONG, SCENES, SHORT, Answer, of_kind

DIRECT, GATEWAY = "direct", "gateway"
WAYS = {DIRECT: "straight to the engine", GATEWAY: "through the gateway"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run.

    Attributes:
        scene: its name.
        way: its name.
        repetition: from 0.
        load: the machine's load average over a minute, when it began.
        answers: what became of each request.
    """

    scene: str
    way: str
    repetition: int
    load: float
    answers: Sequence[Answer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """How fast the engine is with one request alone, in tokens a second."""

    prefill: float
    decode: float


@dataclass(slots=True, kw_only=True)
class Measurement:
    """Everything that was measured.

    Attributes:
        engine: what the engine is.
        cores: of the machine.
        start_seconds: how long the engine took to start.
        rates: as measured first.
        admission: how the gateway is configured.
        runs: in the order in which they were played.
    """

    engine: str
    cores: int
    start_seconds: float
    rates: Rates
    admission: dict[str, Any]
    runs: list[Run] = field(default_factory=list)

    def of(self, scene: str, way: str) -> list[Run]:
        """The runs of a scene in one way."""
        return [run for run in self.runs if (run.scene, run.way) == (scene, way)]

    @property
    def scenes(self) -> list[str]:
        """Those that were played."""
        return list(dict.fromkeys(run.scene for run in self.runs))

    @property
    def repetitions(self) -> int:
        """How often each was played in each way."""
        return 1 + max(run.repetition for run in self.runs)


def as_json(measurement: Measurement) -> dict[str, Any]:
    """All that was measured, with the figures."""
    rows = {
        scene: {name: figures(measurement, scene, row) for name, row in ROWS.items()}
        for scene in measurement.scenes
    }
    return {"schema": "bench-mid/1", **dataclasses.asdict(measurement), "figures": rows}


Value = Callable[[Answer], float]
Pick = Callable[[Sequence[float]], float]
Row = tuple[str, Value, Pick]

ROWS: dict[str, Row] = {
    "short, whole answer, median": (SHORT, lambda one: one.completion, statistics.median),
    "short, whole answer, worst": (SHORT, lambda one: one.completion, max),
    "short, first token, median": (SHORT, lambda one: one.ttft, statistics.median),
    "long, whole answer, median": (LONG, lambda one: one.completion, statistics.median),
    "long, whole answer, worst": (LONG, lambda one: one.completion, max),
}
"""What is told of each scene: whose, what, and which of them."""


def figures(measurement: Measurement, scene: str, row: Row) -> dict[str, Any]:
    """A row's figures of both ways, and their ratios.

    Returns:
        For each way the median over the repetitions; `ratios`, that of the gateway to that of the
        engine in each repetition, in order; `ratio`, the median of these. Runs of two
        repetitions are not compared with each other: other work may slow one of them.
    """
    kind, value, pick = row

    def each(way: str) -> list[float]:
        return [
            pick([value(one) for one in of_kind(kind, run.answers)])
            for run in measurement.of(scene, way)
        ]

    runs = {way: each(way) for way in WAYS}
    ratios = [one / other for one, other in zip(runs[GATEWAY], runs[DIRECT], strict=False)]
    medians = {way: statistics.median(runs[way]) for way in WAYS}
    return {**medians, "ratio": statistics.median(ratios), "ratios": ratios}


def table(measurement: Measurement, scene: str) -> str:
    """A scene's figures, as Markdown."""
    words = SCENES[scene].words
    lines = [
        f"| {words}; seconds | {' | '.join(WAYS.values())} | median ratio | of the repetitions |",
        "|---|---|---|---|---|",
    ]
    for name, row in ROWS.items():
        told = figures(measurement, scene, row)
        ratios = sorted(told["ratios"])
        spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
        cells = [f"{told[way]:.1f}" for way in WAYS]
        lines.append(f"| {name} | {' | '.join(cells)} | **{told['ratio']:.2f}** | {spread} |")
    return "\n".join(lines)


def facts(measurement: Measurement) -> str:
    """What has to be known of the figures."""
    loads = [run.load for run in measurement.runs]
    rates = measurement.rates
    named = ", ".join(f"{key}: {value:g}" for key, value in measurement.admission.items())
    return "\n".join(
        (
            f"* {measurement.engine}, on {measurement.cores} cores. It took"
            f" {measurement.start_seconds:.0f} s to start.",
            f"* With one request alone it reads {rates.prefill:.0f} prompt tokens a second and"
            f" writes {rates.decode:.1f}, measured before the first run.",
            f"* The gateway's `admission`: `{{{named}}}`.",
            f"* Repetitions: {measurement.repetitions}, in turns without the gateway and with it;"
            f" load average of the machine when a run began: {min(loads):.1f} to"
            f" {max(loads):.1f}, the engine's own included.",
        )
    )


def page(measurement: Measurement) -> str:
    """Tables and facts, as Markdown."""
    tables = [table(measurement, scene) for scene in measurement.scenes]
    return "\n\n".join([*tables, facts(measurement)])


def typical(measurement: Measurement, scene: str, way: str) -> Run:
    """The run whose short ones took about as long as they do in the median of all runs."""
    runs = measurement.of(scene, way)

    def taken(run: Run) -> float:
        return statistics.median(one.completion for one in of_kind(SHORT, run.answers))

    middle = statistics.median_low([taken(run) for run in runs])
    return next(run for run in runs if taken(run) == middle)
