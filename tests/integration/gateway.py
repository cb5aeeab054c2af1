"""The gateway as its users run it: `twistd -n llm-gateway --config FILE`, a process of its own."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.integration.engines import EMBEDDER, MAX_NUM_SEQS, MODEL
from tests.integration.processes import Process, free_port
from tests.integration.wire import get

PATIENT = "patient"
"""The chat engine under a second name, whose parked streams stay silent."""

KEEP_ALIVE_SECONDS = 0.5


def configuration(
    engine: str, pooling: str, *, aliases: tuple[str, ...] = ("gpt-4o",)
) -> dict[str, Any]:
    """What the suite's gateways are configured with: two names of one engine, which share its gate.

    Args:
        engine: the chat engine's address.
        pooling: that of the engine for embeddings and rerank.
        aliases: further names of the chat model.
    """
    admission = {"maxInflight": MAX_NUM_SEQS, "pollSeconds": 0.5, "maxParkSeconds": 300}
    chat = {"upstream": engine, "engine": "vllm"}
    models = {
        MODEL: {
            **chat,
            "aliases": list(aliases),
            "admission": {**admission, "keepAliveSeconds": KEEP_ALIVE_SECONDS},
        },
        PATIENT: {
            **chat,
            "upstreamModel": MODEL,
            "admission": {**admission, "keepAliveSeconds": 60},
        },
        EMBEDDER: {"upstream": pooling, "engine": "vllm", "admission": {"maxInflight": 16}},
    }
    return {"models": models, "drainSeconds": 120}


class Gateway:
    """One gateway on a port of its own.

    Args:
        name: of its process and files.
        config: what its configuration file says, which is JSON and so YAML too.
        directory: for file and log.
        environment: added to this process's own.
        admin_port: where its health, metrics and status are, if the file's `adminListen` says so.

    Attributes:
        url: where clients connect.
        admin_url: where operators do.
    """

    def __init__(
        self,
        name: str,
        config: Mapping[str, Any],
        directory: Path,
        *,
        environment: Mapping[str, str] | None = None,
        admin_port: int | None = None,
    ) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.admin_url = f"http://127.0.0.1:{admin_port or self.port}"
        self.file = directory / f"{name}.yaml"
        self.configure(config)
        command = [*_twistd(), "-n", "--pidfile=", "llm-gateway", "--config", str(self.file)]
        listen = ["-l", f"tcp:{self.port}:interface=127.0.0.1"]
        self.process = Process(
            name, [*command, *listen], directory, environment=environment, cwd=directory
        )

    def configure(self, config: Mapping[str, Any] | str) -> None:
        """Write its file; what runs is not told."""
        text = config if isinstance(config, str) else json.dumps(config, indent=1)
        self.file.write_text(text)

    def start(self) -> None:
        """Start it and wait until it is ready.

        Raises:
            NotReady: it is not in time, or has ended.
        """
        self.process.start()
        self.process.wait_ready(lambda: self.ready() == 200, 60.0)

    def ready(self) -> int | None:
        """The status of its readiness; None where nobody answers."""
        try:
            return get(f"{self.admin_url}/health/ready").status
        except OSError:
            return None

    def reload(self) -> None:
        """Tell it to read its file again."""
        self.process.signal(signal.SIGHUP)

    def status(self, model: str = MODEL) -> dict[str, Any]:
        """What it says of one model."""
        facts: dict[str, Any] = get(f"{self.admin_url}/status.json").json()["models"][model]
        return facts

    def parked(self) -> list[dict[str, Any]]:
        """Who waits for the chat engine, under either of its names."""
        parked: list[dict[str, Any]] = self.status()["parked"]
        return parked

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that bear these labels."""
        page = get(f"{self.admin_url}/metrics").body.decode()
        return sum(
            sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def outcomes(self) -> dict[str, int]:
        """How many requests to models have ended in each outcome."""
        page = get(f"{self.admin_url}/metrics").body.decode()
        counts: dict[str, int] = {}
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                if sample.name == "gateway_requests_total" and sample.labels["model"]:
                    outcome = sample.labels["outcome"]
                    counts[outcome] = counts.get(outcome, 0) + int(sample.value)
        return counts


def _twistd() -> list[str]:
    beside = Path(sys.executable).with_name("twistd")
    program = str(beside) if beside.exists() else shutil.which("twistd")
    if program is not None:
        return [program]
    return [sys.executable, "-c", "from twisted.scripts.twistd import run; run()"]
