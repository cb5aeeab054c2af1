"""Measure W1 and W5 before real gateways; print tables, write a page, a picture and a JSON file."""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from bench.replicas.measure import MOST_BEHIND_SECONDS, Measured, Run, measure
from bench.replicas.report import Report, simulate
from bench.replicas.setups import SETUPS
from bench.replicas.stack import Broken
from bench.simulate.spread import number
from twisted_gateway import __version__
from twisted_gateway.console import values
from twisted_gateway.load.commandline import MAX_SPEED, MIN_SPEED

FIRST_SEED = 1000
"""The simulator's seed 0 draws the same clients."""
SPEED = 20.0
BURST_WALL_SECONDS = 1.0
"""W1 asks within so long, on the wall: see docs/replicas-bench.md."""
WORKLOADS = {
    "W1": ("none", "semaphore", "fifo", "alone", "static", "peers"),
    "W5": ("none", "alone", "static", "peers"),
}
"""With the setups that are measured unless others are named: each takes half a minute of W1, and
three minutes of W5."""
QUICK_SETUPS = ("none", "static", "peers")
QUICK_SECONDS = 400.0


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(
        prog="python -m bench replicas",
        description="Measure real gateways before a simulated engine that is sped up.",
    )
    add = options.add_argument
    add("workloads", nargs="*", metavar="W", help="of W1, W5; default: both")
    add("--setups", help=f"of {','.join(SETUPS)}; default: by workload")
    add(
        "--speed",
        type=values.number(MIN_SPEED, MAX_SPEED),
        default=SPEED,
        help="default: %(default)g",
    )
    add("--w1-seeds", type=values.whole(1, 100), default=3, help="default: %(default)s")
    add("--w5-seeds", type=values.whole(1, 100), default=1, help="default: %(default)s")
    add("--quick", action="store_true", help="three setups, a short W5, one seed")
    add("--again", type=values.whole(0, 10), default=1, help="for runs that were too slow")
    add("--out", type=Path, help="write page, picture and JSON here, as in docs/")
    add("--keep", type=Path, help="keep logs and the load tool's results here")
    return options


def runs(chosen: argparse.Namespace) -> Iterator[Run]:
    """What is to be measured, in order: all setups of a seed together, so that ratios are fair."""
    seeds = {"W1": chosen.w1_seeds, "W5": chosen.w5_seeds}
    options = {"W1": {"within_seconds": BURST_WALL_SECONDS * chosen.speed}, "W5": {}}
    if chosen.quick:
        seeds = dict.fromkeys(seeds, 1)
        options["W5"] = {"seconds": QUICK_SECONDS}
    for workload in chosen.workloads or WORKLOADS:
        setups = QUICK_SETUPS if chosen.quick else WORKLOADS[workload]
        if chosen.setups is not None:
            setups = tuple(name for name in SETUPS if name in chosen.setups.split(","))
        for seed in range(FIRST_SEED, FIRST_SEED + seeds[workload]):
            for setup in setups:
                yield Run(
                    workload=workload,
                    setup=setup,
                    seed=seed,
                    speed=chosen.speed,
                    options=options[workload],
                )


def measured(run: Run, directory: Path, again: int) -> Measured:
    """Measure; once more where the machine was too slow for it, and take the better of them.

    Raises:
        Broken: a process failed, or took too long.
    """
    tries = []
    for number_ in range(1 + again):
        tries.append(measure(run, directory / f"{run.workload}-{run.setup}-{run.seed}-{number_}"))
        behind = tries[-1].figures["engine_behind"]
        if behind <= MOST_BEHIND_SECONDS:
            break
        print(f"  too slow: the engine was {number(behind)} s behind", flush=True)
    return min(tries, key=lambda one: one.figures["engine_behind"])


def main(arguments: Sequence[str]) -> int:
    """Measure; returns the exit status: 0, 1 where a process failed, 2 for a wrong line."""
    chosen = parser().parse_args(arguments)
    unknown = [name for name in chosen.workloads if name not in WORKLOADS]
    unknown += [name for name in (chosen.setups or "").split(",") if name and name not in SETUPS]
    if unknown:
        parser().error(f"there is no {', '.join(unknown)}")
    signal.signal(signal.SIGTERM, _leave)
    conditions = {
        "command": shlex.join(["python", "-m", "bench", "replicas", *arguments]),
        "version": __version__,
        "python": platform.python_version(),
        "started": datetime.now(UTC).isoformat(" ", "seconds"),
        "cores": os.cpu_count(),
    }
    report = Report(judged=not chosen.quick)
    planned = list(runs(chosen))
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary) if chosen.keep is None else chosen.keep.resolve()
        for place, run in enumerate(planned, 1):
            words = f"{run.workload}, {SETUPS[run.setup].words}, seed {run.seed}"
            print(f"{place} of {len(planned)}: {words}", flush=True)
            try:
                one = measured(run, directory, chosen.again)
            except Broken as fault:
                print(fault, file=sys.stderr)
                return 1
            done, behind = one.figures["completed_percent"], one.figures["engine_behind"]
            print(f"  {done:.0f} % completed, engine {behind:.1f} s behind", flush=True)
            report.add(one, simulate(run))
    print("", report.sections(), sep="\n", end="\n\n")
    print(f"{len(planned)} runs in {(time.monotonic() - began) / 60:.0f} minutes")
    if chosen.out is not None:
        report.write(chosen.out, conditions, print)
    return 0


def _leave(signal_number: int, frame: object) -> NoReturn:
    """End as an exception does, so that all processes are ended."""
    raise SystemExit(128 + signal_number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
