"""One run: the load tool before a stack, and the figures that come of it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.replicas.setups import MODEL, SEQUENCES, SETUPS
from bench.replicas.stack import Broken, Stack, running, wait_for
from bench.simulate.figures import Figures, percentile
from twisted_gateway.load.results import Ending, Request, Result, read
from twisted_gateway.load.workloads import duration

SPARE_SECONDS = 60.0
"""On the wall, for a run that takes longer than its workload."""
IDLE_SECONDS = 60.0
MOST_BEHIND_SECONDS = 10.0
"""Of model time; an engine that falls further behind its own is another engine."""
LIGHT = "interactive"
"""The kind of the clients beside the flood."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What is to be measured.

    Attributes:
        workload: its name.
        setup: its name.
        seed: of the workload, as `llm-gateway-load --seed` takes it.
        speed: how many times as fast time runs.
        options: numbers of the workload that are changed.
    """

    workload: str
    setup: str
    seed: int
    speed: float
    options: Mapping[str, float] = field(default_factory=dict)

    @property
    def most_wall_seconds(self) -> float:
        """How long it may take."""
        return duration(self.workload, **self.options) / self.speed + SPARE_SECONDS


@dataclass(frozen=True, slots=True)
class Measured:
    """A run that is over."""

    run: Run
    result: Result
    figures: Figures


def measure(run: Run, directory: Path) -> Measured:
    """Start everything, play the workload, end everything.

    Args:
        run: what.
        directory: for configurations, logs and the load tool's own result.

    Raises:
        Broken: a process failed, or took too long.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with running(SETUPS[run.setup], run.speed, directory) as stack:
        load, _, _ = os.getloadavg()
        tool_seconds = play(run, stack, directory)
        stack.check()
        # What clients who gave up have left in it, it drops at the end of a step.
        wait_for("the engine is idle", IDLE_SECONDS, lambda: idle(stack.state()))
        state = stack.state()
        cpu = {
            "engine_cpu_seconds": stack.engine.cpu_seconds,
            "gateways_cpu_seconds": sum(one.cpu_seconds for one in stack.gateways),
            "tool_cpu_seconds": tool_seconds,
        }
    result = read(directory / "result.json")
    machine = {"load_average": load, "took": result.took / run.speed, **cpu}
    return Measured(run, result, {**figures(result, state), **machine})


def play(run: Run, stack: Stack, directory: Path) -> float:
    """Play the workload; returns the seconds of the processor that the tool took.

    Raises:
        Broken: it failed, or took too long.
    """
    command = [sys.executable, "-m", "twisted_gateway.load.tool", run.workload]
    for url in stack.urls:
        command += ["--to", url]
    for name, value in run.options.items():
        command += ["--set", f"{name}={value:g}"]
    command += ["--model", MODEL, "--speed", f"{run.speed:g}", "--seed", str(run.seed)]
    # As they stand: the gateways reckon in seconds on the wall, and so do these clients.
    command += ["--retry-after", "wall", "--status", "none", "--no-progress"]
    command += ["--engine-state", f"{stack.engine_url}/demo/state"]
    command += ["--json", str(directory / "result.json")]
    before = sum(os.times()[2:4])
    log = directory / "load.log"
    with log.open("wb") as output:
        tool = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            until = time.monotonic() + run.most_wall_seconds
            while tool.poll() is None:
                stack.check()
                if time.monotonic() > until:
                    raise Broken(f"the load tool: not within {run.most_wall_seconds:.0f} s")
                time.sleep(0.2)
        finally:
            if tool.poll() is None:
                tool.kill()
                tool.wait()
    if tool.returncode:
        tail = log.read_text(errors="replace")[-2000:]
        raise Broken(f"the load tool ended with status {tool.returncode}:\n{tail}")
    return sum(os.times()[2:4]) - before


def idle(state: Mapping[str, Any]) -> bool:
    """Whether a simulated engine has nothing in it, and has dropped what was aborted."""
    published = state["published"]
    return not (state["in_engine_now"] or published["running"] or published["waiting"])


def figures(result: Result, state: Mapping[str, Any]) -> Figures:
    """The figures of a run, by the names that they have in `bench.simulate.figures`.

    Args:
        result: what the load tool has seen. Times are model seconds.
        state: what the engine says afterwards.
    """
    requests = result.requests
    light = [one for one in requests if one.kind == LIGHT]
    short = [one for one in requests if one.kind == "short"]
    tries = [one for request in requests for one in request.tries]
    refusals = sum(one.ending is Ending.REFUSED for one in tries)
    return {
        "requests": len(requests),
        "completed_percent": completed(requests),
        "light_completed_percent": completed(light),
        "light_ttft_p50": percentile(map(_ttft, light), 0.5),
        "light_ttft_p95": percentile(map(_ttft, light), 0.95),
        "short_ttft_p50": percentile(map(_ttft, short), 0.5),
        "wasted_percent": 100.0 * state["wasted_tokens"] / max(1, state["prefilled_tokens"]),
        "most_over": max(0, state["peak_in_engine"] - SEQUENCES),
        "refusals": refusals / len(requests),
        "failed": sum(one.ending is Ending.FAILED for one in requests),
        "tool_late": result.late * result.settings.speed,
        "engine_behind": state["most_behind_seconds"] * result.settings.speed,
    }


def completed(requests: Iterable[Request]) -> float:
    """What share of them was answered, in percent; NaN of none."""
    all_of_them = list(requests)
    if not all_of_them:
        return float("nan")
    done = sum(one.ending is Ending.COMPLETED for one in all_of_them)
    return 100.0 * done / len(all_of_them)


def _ttft(request: Request) -> float:
    """Time to first token, retries included; all the patience where nothing came of it."""
    return request.patience if request.ttft is None else request.ttft
