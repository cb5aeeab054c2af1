"""Play the workloads under every policy; print tables, write a page and pictures."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.simulate.exchange import Network
from bench.simulate.policies import COMPARED, POLICIES
from bench.simulate.report import Report
from bench.simulate.runs import Run, play_all
from twisted_gateway.console.values import number, whole
from twisted_gateway.load.workloads import NAMES

HELD_OUT_FROM = 500


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(
        prog="python -m bench simulate", description="Play workloads before a model of an engine."
    )
    add = options.add_argument
    add("workloads", nargs="*", metavar="W", help=f"of {', '.join(NAMES)}; all")
    add("--policies", default=",".join(COMPARED), help="default: %(default)s")
    add("--seeds", type=whole(1, HELD_OUT_FROM), default=7, help="default: %(default)s")
    add("--holdout", type=whole(0, 1000), default=7, help="held-out seeds, from 500 on")
    add("--replicas", type=whole(1, 100), default=3, help="default: %(default)s")
    add("--delay", type=number(0, 10), default=0.005, help="of replicas' answers, s")
    add("--loss", type=number(0, 1), default=0.0, help="of replicas' questions, 0 to 1")
    add("--jobs", type=whole(1, 1000), default=os.cpu_count() or 1, help="processes")
    add("--out", type=Path, help="write a page and pictures here, as in docs/")
    return options


def main(arguments: Sequence[str]) -> int:
    """Play; returns the exit status, which is 2 for a line that names what there is not."""
    options = parser().parse_args(arguments)
    workloads, policies = options.workloads or NAMES, options.policies.split(",")
    unknown = [name for name in workloads if name not in NAMES]
    unknown += [name for name in policies if name not in POLICIES]
    if unknown:
        parser().error(f"there is no {', '.join(unknown)}")
    seeds = range(options.seeds)
    held_out = range(HELD_OUT_FROM, HELD_OUT_FROM + options.holdout)
    network = Network(delay_seconds=options.delay, loss=options.loss)
    report = Report(policies=policies, seeds=seeds, held_out=held_out, replicas=options.replicas)
    played = 0
    began = time.monotonic()
    for workload in workloads:
        runs = [
            Run(workload, policy, seed, replicas=options.replicas, network=network)
            for seed in (*seeds, *held_out)
            for policy in policies
        ]
        report.add(play_all(runs, options.jobs, Progress(workload, len(runs))))
        print(report.section(workload), end="\n\n", flush=True)
        played += len(runs)
    seconds = time.monotonic() - began
    print(f"{played} runs in {seconds:.0f} s: {60 * played / seconds:.0f} a minute")
    if options.out is not None:
        command = shlex.join(["python", "-m", "bench", "simulate", *arguments])
        report.write(options.out, command, print)
    return 0


class Progress:
    """Says on a terminal how many runs are over."""

    def __init__(self, workload: str, runs: int) -> None:
        self._workload = workload
        self._runs = runs
        self._over = 0

    def __call__(self, run: Run) -> None:
        """One more is over."""
        self._over += 1
        if sys.stderr.isatty():
            line = f"\r{self._workload}: {self._over} of {self._runs} runs"
            end = "\n" if self._over == self._runs else ""
            print(line, end=end, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
