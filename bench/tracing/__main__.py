"""What traces cost the gateway: its CPU time and throughput with none, some and all of them.

    python -m bench tracing [--requests 1000] [--rounds 5] [--concurrent 16]

One gateway for each manner of tracing, `twistd llm-gateway` as users run it, all in front of one
little engine on loopback and all up at once. They are loaded in turns, round after round, so that
whatever else the machine does falls on all of them alike; medians are compared, and the first
manner, off, is what the others are compared with. Where traces go is a real collector (rotel) that
throws them away. CPU time is that of the gateway's process, the exporter's thread included, until
its queue has been sent; a complaint in its log that spans were dropped ends the run.

`answer` is a chat that is answered by 1 kB of JSON, `stream` one of 60 events; no gate is in
between, which would make the rest dearer and the ratio smaller.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.integration.cache import Unavailable
from tests.integration.collector import Collector
from tests.integration.gateway import Gateway
from tests.integration.processes import free_port

MANNERS = {
    "off": None,
    "1 % of requests": "0.01",
    "every request": "1.0",
    "every request, collector down": "1.0",
}
DOWN = "every request, collector down"
KINDS = ("answer", "stream")
PARTS = [sys.executable, "-m", "bench.tracing.parts"]
# Longer than the exporter waits for a batch to fill.
SETTLE_SECONDS = 1.5
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Figures:
    """What one manner of tracing came to, a value a round."""

    cpu_us: list[float] = field(default_factory=list)
    per_second: list[float] = field(default_factory=list)


def main() -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench tracing", description=__doc__)
    parser.add_argument("--requests", type=int, default=1000, help="in a round, of each kind")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--concurrent", type=int, default=16)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-tracing-") as directory:
        try:
            collector = Collector(Path(directory), None)
        except Unavailable as fault:
            print(f"there is no collector to be had: {fault}", file=sys.stderr)
            return 1
        collector.start()
        port = free_port()
        engine = subprocess.Popen([*PARTS, "serve", str(port)])
        try:
            _measure(Path(directory), collector.url, f"http://127.0.0.1:{port}", options)
        finally:
            engine.terminate()
            engine.wait(10)
            collector.process.stop()
    return 0


def _measure(directory: Path, collector: str, engine: str, options: argparse.Namespace) -> None:
    gateways = {
        manner: _gateway(directory, f"gateway-{number}", engine, collector, manner, ratio)
        for number, (manner, ratio) in enumerate(MANNERS.items())
    }
    figures: dict[str, dict[str, Figures]] = {
        kind: {manner: Figures() for manner in MANNERS} for kind in KINDS
    }
    try:
        for number in range(options.rounds + 1):
            for kind in KINDS:
                for manner, gateway in gateways.items():
                    cpu_us, per_second = _round(gateway, kind, options)
                    # The first round warms up.
                    if number:
                        figures[kind][manner].cpu_us.append(cpu_us)
                        figures[kind][manner].per_second.append(per_second)
            print(f"round {number} of {options.rounds}", file=sys.stderr, flush=True)
        _print(figures)
        for manner, gateway in gateways.items():
            dropped = "Queue full" in gateway.process.log.read_text(errors="replace")
            if dropped and manner != DOWN:
                raise SystemExit(f"{manner}: spans were dropped, so the figures say too little")
    finally:
        for gateway in gateways.values():
            gateway.process.stop()


def _gateway(
    directory: Path, name: str, engine: str, collector: str, manner: str, ratio: str | None
) -> Gateway:
    environment = {"OTEL_SDK_DISABLED": "true"}
    if ratio is not None:
        down = f"http://127.0.0.1:{free_port()}"
        environment = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": down if manner == DOWN else collector,
            "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
            "OTEL_TRACES_SAMPLER_ARG": ratio,
            "OTEL_BSP_SCHEDULE_DELAY": "500",
        }
    gateway = Gateway(
        name, {"models": {"m": {"upstream": engine}}}, directory, environment=environment
    )
    gateway.start()
    return gateway


def _round(gateway: Gateway, kind: str, options: argparse.Namespace) -> tuple[float, float]:
    """Load one gateway; returns microseconds of its CPU a request, and requests a second."""
    before = _cpu_seconds(gateway.process.pid)
    count = [str(options.requests), str(options.concurrent)]
    seconds = float(subprocess.check_output([*PARTS, "load", gateway.url, kind, *count]))
    time.sleep(SETTLE_SECONDS)
    spent = _cpu_seconds(gateway.process.pid) - before
    return spent / options.requests * 1e6, options.requests / seconds


def _cpu_seconds(pid: int) -> float:
    """CPU time of a process and its threads, user and system (proc(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _print(figures: dict[str, dict[str, Figures]]) -> None:
    print("| requests | traces | CPU a request | ratio | requests a second | ratio |")
    print("|---|---|---|---|---|---|")
    for kind, manners in figures.items():
        base = manners["off"]
        for manner, one in manners.items():
            cpu, rate = statistics.median(one.cpu_us), statistics.median(one.per_second)
            print(
                f"| {kind} | {manner} | {cpu:.0f} µs | {_ratio(one.cpu_us, base.cpu_us)} "
                f"| {rate:.0f} | {_ratio(one.per_second, base.per_second)} |"
            )


def _ratio(values: list[float], base: list[float]) -> str:
    """The median of the rounds' own ratios, with the least and the greatest."""
    ratios = sorted(value / other for value, other in zip(values, base, strict=True))
    return f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"


if __name__ == "__main__":
    sys.exit(main())
