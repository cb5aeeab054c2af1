"""The processes of one run: an engine and gateways, started, watched and ended by their ids."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.replicas.setups import MODEL, SEQUENCES, Place, Setup

START_SECONDS = 30.0
STOP_SECONDS = 10.0
FETCH_SECONDS = 10.0
ENGINE_NICENESS = -10
CLOCK_TICKS = 100
"""A second of CPU time, as Linux counts it in `/proc`."""
ROOT = Path(__file__).resolve().parent.parent.parent


class Broken(Exception):
    """A process has ended by itself, or not done in time what was expected; the text says which."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process of ours.

    Attributes:
        name: what it is.
        log: where its output goes.
    """

    name: str
    log: Path
    popen: subprocess.Popen[bytes]

    @property
    def cpu_seconds(self) -> float:
        """What it has used of the processor; 0 where the system does not say."""
        try:
            fields = Path(f"/proc/{self.popen.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS

    def hurry(self) -> None:
        """Let it go before others on this machine, where that is allowed.

        Linux weighs sessions against each other first (autogroup, sched(7)), and a process's own
        niceness within its session only: the session is raised with it.
        """
        with suppress(PermissionError, ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, self.popen.pid, ENGINE_NICENESS)
        with suppress(OSError):
            Path(f"/proc/{self.popen.pid}/autogroup").write_text(str(ENGINE_NICENESS))

    def check(self) -> None:
        """See that it lives.

        Raises:
            Broken: it has ended.
        """
        if self.popen.poll() is not None:
            tail = self.log.read_text(errors="replace")[-2000:]
            raise Broken(f"{self.name} ended with status {self.popen.returncode}:\n{tail}")

    def end(self) -> None:
        """Ask it to end; asked twice, a gateway that drains does so at once."""
        if self.popen.poll() is None:
            self.popen.terminate()

    def ended(self, seconds: float) -> bool:
        """Whether it has ended within so long."""
        try:
            self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """End it, if it will not by itself."""
        if self.popen.poll() is None:
            self.popen.kill()
            self.popen.wait()


def stop(processes: Sequence[Process]) -> None:
    """End processes; one that will not end in time is killed."""
    try:
        for patience in (STOP_SECONDS / 10, STOP_SECONDS):
            for process in processes:
                process.end()
            until = time.monotonic() + patience
            if all(process.ended(max(0.0, until - time.monotonic())) for process in processes):
                return
    finally:
        for process in processes:
            process.kill()


@dataclass(frozen=True, slots=True)
class Stack:
    """An engine and the gateways before it, all up.

    Attributes:
        engine: the engine's process.
        gateways: theirs.
        engine_url: its base URL.
        urls: the gateways' base URLs.
    """

    engine: Process
    gateways: Sequence[Process]
    engine_url: str
    urls: Sequence[str]

    def state(self) -> dict[str, Any]:
        """The engine's own account; see `twisted_gateway/demo/operations.py`."""
        state: dict[str, Any] = json.loads(fetch(f"{self.engine_url}/demo/state"))
        return state

    def check(self) -> None:
        """See that all live.

        Raises:
            Broken: one has ended.
        """
        for process in (self.engine, *self.gateways):
            process.check()


@contextmanager
def running(setup: Setup, speed: float, directory: Path) -> Iterator[Stack]:
    """Start an engine and gateways; end them, whatever happens.

    Args:
        setup: how many gateways, and how they are configured.
        speed: of the engine, and of the times in their configuration.
        directory: for their configurations and logs.

    Raises:
        Broken: one does not come up.
    """
    engine_port, *ports = free_ports(1 + 2 * setup.gateways)
    serving, peers = ports[: setup.gateways], ports[setup.gateways :]
    place = Place(f"http://127.0.0.1:{engine_port}", peers, speed)
    started: list[Process] = []
    try:
        engine = _start(started, directory, "engine", *_engine(engine_port, speed))
        # It stands for a GPU, which is no slower where the gateways' machine is busy.
        engine.hurry()
        answers(engine, f"{place.engine}/health")
        gateways = []
        for number, port in enumerate(serving):
            config = directory / f"gateway{number}.yaml"
            config.write_text(json.dumps(setup.configuration(place, number)), encoding="utf-8")
            command = _gateway(config, port, speed)
            gateways.append(_start(started, directory, f"gateway{number}", *command))
        urls = [f"http://127.0.0.1:{port}" for port in serving]
        for gateway, url in zip(gateways, urls, strict=True):
            answers(gateway, f"{url}/health/ready")
        yield Stack(engine, gateways, place.engine, urls)
    finally:
        stop(started)


def _engine(port: int, speed: float) -> Sequence[str]:
    return (
        *("twisted_gateway.demo", "--model", MODEL, "--port", str(port)),
        *("--speed", f"{speed:g}", "--max-num-seqs", str(SEQUENCES)),
    )


def _gateway(config: Path, port: int, speed: float) -> Sequence[str]:
    return (
        *("bench.replicas.gateway", f"{speed:g}", "-n", "--pidfile=", "llm-gateway"),
        *("--config", str(config), "-l", f"tcp:{port}:interface=127.0.0.1"),
    )


def _start(started: list[Process], directory: Path, name: str, *command: str) -> Process:
    """Run a Python module as a process of its own, and note it."""
    log = directory / f"{name}.log"
    with log.open("wb") as output:
        popen = subprocess.Popen(
            [sys.executable, "-m", *command], cwd=ROOT, stdout=output, stderr=subprocess.STDOUT
        )
    started.append(Process(name, log, popen))
    return started[-1]


def answers(process: Process, url: str) -> None:
    """Wait until a process answers.

    Raises:
        Broken: it has ended, or does not in time.
    """

    def does() -> bool:
        process.check()
        try:
            fetch(url)
        except OSError:
            return False
        return True

    wait_for(f"{process.name} answers", START_SECONDS, does)


def wait_for(what: str, seconds: float, holds: Callable[[], bool]) -> None:
    """Look ten times a second until something holds.

    Raises:
        Broken: it does not in time.
    """
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            raise Broken(f"{what}: not within {seconds:g} s")
        time.sleep(0.1)


def fetch(url: str) -> bytes:
    """What is at an address.

    Raises:
        OSError: it cannot be had.
    """
    with urllib.request.urlopen(url, timeout=FETCH_SECONDS) as response:
        body: bytes = response.read()
    return body


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on just now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
