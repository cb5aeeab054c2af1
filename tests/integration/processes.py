"""Servers that the suite starts: their logs, waiting for them with a bound, ending them by pid."""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType

_PORTS = range(20_000, 32_000)
_given: set[int] = set()
_NICE = 10
_running: list[Process] = []


class NotReady(Exception):
    """A process did not become what was waited for; the message ends with its last words."""


def free_port() -> int:
    """A port of loopback that nothing has, and that no client's connection will be given.

    It is outside the range that the kernel takes the ports of outgoing connections from, so it
    stays free for a server that is started later, or again.
    """
    for port in random.sample(_PORTS, 100):
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            if port not in _given:
                _given.add(port)
                return port
    raise AssertionError("no free port in a hundred tries")


def pause(seconds: float) -> None:
    """Wait; these tests own no reactor that this could block."""
    time.sleep(seconds)


class Stalls:
    """Notices when this machine has no time for us, so that nobody else is blamed for it.

    A thread sleeps for 20 ms over and over; what it oversleeps by more than as much again counts.
    """

    def __init__(self) -> None:
        self._total = 0.0
        threading.Thread(target=self._watch, daemon=True).start()

    def seconds(self) -> float:
        """How long nothing got on here, all in all, since the start."""
        return self._total

    def _watch(self) -> None:
        while True:
            started = time.monotonic()
            pause(0.02)
            late = time.monotonic() - started - 0.02
            if late > 0.02:
                self._total += late


STALLS = Stalls()


def wait_until(condition: Callable[[], object], seconds: float, what: str) -> float:
    """Wait until the condition holds, looking every 20 ms.

    Returns:
        How many seconds it took, less those in which this machine stood still.

    Raises:
        AssertionError: it did not within `seconds`; the message says `what` was waited for.
    """
    started, stalled = time.monotonic(), STALLS.seconds()
    while not condition():
        if time.monotonic() - started > seconds:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        pause(0.02)
    spent = time.monotonic() - started
    # A stall of which the watching thread has not heard yet ends with its next sleep.
    pause(0.05)
    return spent - (STALLS.seconds() - stalled)


class Process:
    """One server, in a process group of its own, with its output in a file.

    Args:
        name: for messages and the log's name.
        command: what to run.
        logs: the directory for its log, which goes on across restarts.
        environment: added to this process's own.
        cwd: where it runs.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        logs: Path,
        *,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log = logs / f"{name}.log"
        self._environment = {**os.environ, **(environment or {})}
        self._cwd = cwd
        self._popen: subprocess.Popen[bytes] | None = None

    @property
    def alive(self) -> bool:
        """Whether it has been started and has not ended."""
        return self._popen is not None and self._popen.poll() is None

    @property
    def pid(self) -> int:
        """Its process id, which is also that of its group."""
        assert self._popen is not None, f"{self.name} has not been started"
        return self._popen.pid

    def start(self) -> None:
        """Start it; it must not be running."""
        assert not self.alive, f"{self.name} runs already"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            log.write(f"\n$ {' '.join(self.command)}\n".encode())
            log.flush()
            self._popen = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                cwd=self._cwd,
                start_new_session=True,
            )
        _running.append(self)

    def yield_to_others(self) -> None:
        """Let all others that want the CPU have it first.

        An engine that computes on the CPU would else take what one elsewhere leaves to gateway,
        nginx and clients: vLLM's processes wait for each other in busy loops.
        """
        os.setpriority(os.PRIO_PROCESS, self.pid, _NICE)
        # Where Linux groups processes by session, niceness counts within the group alone, and the
        # group has one of its own.
        with contextlib.suppress(OSError):
            Path(f"/proc/{self.pid}/autogroup").write_text(str(_NICE))

    def wait_ready(self, ready: Callable[[], bool], seconds: float) -> None:
        """Wait until `ready()`.

        Raises:
            NotReady: it ended instead, or the time is over.
        """
        started = time.monotonic()
        while not ready():
            spent = time.monotonic() - started
            if not self.alive:
                raise NotReady(f"{self.name} ended instead of starting\n{self.tail()}")
            if spent > seconds:
                raise NotReady(f"{self.name} is not ready after {spent:.0f} s\n{self.tail()}")
            pause(0.05)

    def tail(self, lines: int = 40) -> str:
        """The end of its log, with the log's path."""
        try:
            text = self.log.read_text(errors="replace")
        except OSError as fault:
            return str(fault)
        return "\n".join([f"--- the end of {self.log}:", *text.splitlines()[-lines:], "---"])

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process, not to its children."""
        os.kill(self.pid, number)

    def wait(self, seconds: float) -> int:
        """Wait for its end; returns its exit code, negative for a signal.

        Raises:
            AssertionError: it goes on; the message ends with its last words.
        """
        assert self._popen is not None
        try:
            return self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            words = f"{self.name} still runs after {seconds:g} s\n{self.tail()}"
            raise AssertionError(words) from None

    def kill(self) -> None:
        """End it and its children at once, as an out-of-memory killer would."""
        if self._popen is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait(10)

    def stop(self, seconds: float = 10.0) -> None:
        """End it in order, and what is left of it after that time at once."""
        if self.alive:
            self.signal(signal.SIGTERM)
            with contextlib.suppress(AssertionError):
                self.wait(seconds)
        self.kill()
        if self in _running:
            _running.remove(self)


def stop_all() -> None:
    """End every process that was started here and still runs."""
    for process in list(reversed(_running)):
        if process.alive:
            process.signal(signal.SIGTERM)
    for process in list(reversed(_running)):
        process.stop(5.0)


def _on_sigterm(number: int, frame: FrameType | None) -> None:
    # By itself SIGTERM ends Python without its exit handlers, and would leave the servers behind.
    sys.exit(128 + number)


atexit.register(stop_all)
if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
    signal.signal(signal.SIGTERM, _on_sigterm)
