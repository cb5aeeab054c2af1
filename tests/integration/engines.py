"""The engines of the suite: real vLLMs, or the demo's simulations where none can be had."""

from __future__ import annotations

import os
import re
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.integration import vllm_cpu
from tests.integration.processes import Process, pause, wait_until
from tests.integration.wire import get, post

MODEL = "reasoning"
EMBEDDER = "embed"
MAX_NUM_SEQS = 4
MAX_TOKENS = 8192

# 24 to 42 s alone, up to 105 s with both cores busy.
START_SECONDS = 240.0
# About 125 tokens a second of each of four streams, like the real one with its tiny model.
SIMULATED_SPEED = 5.0
_LIMITS = ["--max-num-seqs", str(MAX_NUM_SEQS), "--max-model-len", str(MAX_TOKENS)]


@dataclass(frozen=True, slots=True)
class Gauges:
    """What the engine publishes of itself."""

    running: int
    waiting: int
    prompt_tokens: int


class Engine:
    """One engine on a port of its own.

    Args:
        name: of its process.
        command: starts it on `port`.
        environment: for it.
        real: whether it is a vLLM.
    """

    def __init__(
        self,
        name: str,
        command: list[str],
        port: int,
        logs: Path,
        *,
        real: bool,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.real = real
        self.url = f"http://127.0.0.1:{port}"
        self.process = Process(name, command, logs, environment=environment)

    def start(self) -> None:
        """Start it without waiting."""
        self.process.start()
        self.process.yield_to_others()

    def wait_ready(self, seconds: float = START_SECONDS) -> None:
        """Wait until it serves.

        Raises:
            NotReady: it does not in time, or has ended.
        """
        self.process.wait_ready(self._healthy, seconds)

    def serves(self, seconds: float) -> bool:
        """Whether it answers that it does, within that time."""
        try:
            wait_until(self._healthy, seconds, f"{self.process.name} serves")
        except AssertionError:
            return False
        return True

    def gauges(self) -> Gauges:
        """Its page's reading now.

        Raises:
            OSError: it does not answer.
        """
        page = get(f"{self.url}/metrics").body.decode()
        return Gauges(
            running=_sum(page, "vllm:num_requests_running"),
            waiting=_sum(page, "vllm:num_requests_waiting"),
            prompt_tokens=_sum(page, "vllm:prompt_tokens_total"),
        )

    def wait_idle(self, seconds: float = 30.0) -> None:
        """Wait until nothing runs or waits in it; fail with the end of its log."""
        try:
            wait_until(lambda: self._load() == 0, seconds, f"{self.process.name} idle")
        except (AssertionError, OSError) as fault:
            raise AssertionError(f"{fault}\n{self.process.tail()}") from None

    def kill(self) -> None:
        """End server and scheduler at once."""
        self.process.kill()

    def kill_scheduler(self) -> None:
        """End what computes; the server tells the streams of it in band, then ends too."""
        if self.real:
            for child in _children(self.process.pid):
                if "EngineCore" in _title(child):
                    _kill(child)
                    return
            raise AssertionError(f"no EngineCore among the children\n{self.process.tail()}")
        post(f"{self.url}/demo/faults", {"die": True})
        pause(0.5)
        self.process.kill()

    def _load(self) -> int:
        gauges = self.gauges()
        return gauges.running + gauges.waiting

    def _healthy(self) -> bool:
        try:
            return get(f"{self.url}/health").status == 200
        except OSError:
            return False


def real_engine(port: int, logs: Path) -> Engine:
    """The chat engine as a vLLM, not yet started.

    Raises:
        Unavailable: vLLM cannot be had here.
    """
    command = vllm_cpu.chat_command(port, MODEL, max_num_seqs=MAX_NUM_SEQS, max_tokens=MAX_TOKENS)
    environment = vllm_cpu.ENVIRONMENT
    return Engine("vllm", command, port, logs, real=True, environment=environment)


def real_slow_engine(port: int, logs: Path) -> Engine:
    """A chat engine whose long prefills take tens of seconds, as a vLLM, not yet started.

    Raises:
        Unavailable: vLLM cannot be had here.
    """
    command = vllm_cpu.slow_command(port, MODEL, max_num_seqs=MAX_NUM_SEQS, max_tokens=MAX_TOKENS)
    environment = vllm_cpu.SLOW_ENVIRONMENT
    return Engine("vllm-slow", command, port, logs, real=True, environment=environment)


def real_pooling_engine(port: int, logs: Path) -> Engine:
    """The engine for embeddings and rerank as a vLLM, not yet started.

    Raises:
        Unavailable: vLLM or the model cannot be had here.
    """
    command = vllm_cpu.pooling_command(port, EMBEDDER)
    environment = vllm_cpu.ENVIRONMENT
    return Engine("vllm-pooling", command, port, logs, real=True, environment=environment)


def simulated_engine(port: int, logs: Path) -> Engine:
    """The chat engine as the demo's simulation."""
    # Its KV blocks hold 16 tokens; as much room in all as the real one has.
    blocks = MAX_TOKENS * 3 // 2 // 16
    options = [*_LIMITS, "--num-gpu-blocks", str(blocks)]
    command = _simulated(port, "reasoning", MODEL, options)
    return Engine("simulated", command, port, logs, real=False)


def simulated_slow_engine(port: int, logs: Path) -> Engine:
    """The chat engine whose prefills take long as the demo's simulation."""
    command = _simulated(port, "reasoning", MODEL, _LIMITS, speed=1.0)
    return Engine("simulated-slow", command, port, logs, real=False)


def simulated_pooling_engine(port: int, logs: Path) -> Engine:
    """The engine for embeddings and rerank as the demo's simulation."""
    command = _simulated(port, "embeddings", EMBEDDER, [])
    return Engine("simulated-pooling", command, port, logs, real=False)


def _simulated(
    port: int, kind: str, model: str, options: list[str], *, speed: float = SIMULATED_SPEED
) -> list[str]:
    where = ["--kind", kind, "--model", model, "--port", str(port)]
    program = [sys.executable, "-m", "twisted_gateway.demo"]
    return [*program, *where, "--speed", str(speed), *options]


def _sum(page: str, name: str) -> int:
    found = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", page, re.MULTILINE)
    return int(sum(map(float, found)))


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(word) for task in tasks for word in task.read_text().split()]


def _title(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
