"""What npm has: the official OpenAI client for Node, and others for who asks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.integration.cache import Unavailable, made

OPENAI_VERSION = "7.59.0"


def modules(package: str, version: str) -> Path:
    """The `node_modules` that a package is installed in.

    Raises:
        Unavailable: there is no Node or npm, or the package cannot be had.
    """
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise Unavailable(f"there is no {program} on PATH (Debian: apt-get install nodejs npm)")

    def install(directory: Path) -> None:
        quiet = ["--no-audit", "--no-fund", "--no-save", "--ignore-scripts"]
        command = ["npm", "install", "--prefix", str(directory), *quiet]
        done = subprocess.run(
            [*command, f"{package}@{version}"], capture_output=True, text=True, timeout=300
        )
        if done.returncode != 0:
            raise Unavailable(f"npm install {package}@{version} failed: {done.stderr[-1000:]}")

    return made(f"node-{package}-{version}", install) / "node_modules"


def openai_modules() -> Path:
    """The directory that the client is installed in.

    Raises:
        Unavailable: see `modules`.
    """
    return modules("openai", OPENAI_VERSION)


def run(base_url: str, operation: str, **parameters: Any) -> Any:
    """Have the client do one thing; returns what it came to (see openai_client.cjs).

    Raises:
        AssertionError: it ended with more than what it had to say.
        Unavailable: see `openai_modules`.
    """
    environment = {**os.environ, "NODE_PATH": str(openai_modules())}
    script = Path(__file__).with_name("openai_client.cjs")
    done = subprocess.run(
        ["node", str(script), base_url, operation, json.dumps(parameters)],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )
    if done.returncode != 0:
        raise AssertionError(f"node ended with {done.returncode}\n{done.stderr[-3000:]}")
    return json.loads(done.stdout)
