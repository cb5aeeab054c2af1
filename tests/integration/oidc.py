"""A real OpenID provider (npm oidc-provider), with keys that can be rotated."""

from __future__ import annotations

import base64
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.integration.cache import Unavailable, made
from tests.integration.processes import Process, free_port
from tests.integration.wire import Answer, exchange, get

VERSION = "9.13.3"
CLIENT, SECRET = "tester", "s3cret/%"


def modules() -> Path:
    """The directory that the provider is installed in.

    Raises:
        Unavailable: there is no Node or npm, or it cannot be had.
    """
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise Unavailable(f"there is no {program} on PATH (Debian: apt-get install nodejs npm)")

    def install(directory: Path) -> None:
        quiet = ["--no-audit", "--no-fund", "--no-save", "--ignore-scripts"]
        command = ["npm", "install", "--prefix", str(directory), *quiet]
        done = subprocess.run(
            [*command, f"oidc-provider@{VERSION}"], capture_output=True, text=True, timeout=300
        )
        if done.returncode != 0:
            raise Unavailable(f"npm install oidc-provider@{VERSION}: {done.stderr[-1000:]}")

    return made(f"node-oidc-provider-{VERSION}", install) / "node_modules"


class Provider:
    """The provider, on a port of its own.

    Args:
        logs: for its log.
    """

    def __init__(self, logs: Path) -> None:
        self.port = free_port()
        self.issuer = f"http://127.0.0.1:{self.port}"
        script = Path(__file__).with_name("oidc_provider.mjs")
        self.process = Process("oidc", ["node", str(script), str(modules()), str(self.port)], logs)

    def start(self) -> None:
        """Start it, and wait until it gives its keys."""
        self.process.start()
        self.process.wait_ready(self._ready, 30.0)

    def auth(self) -> dict[str, Any]:
        """The gateway's `auth` for it."""
        return {
            "issuer": self.issuer,
            "audience": "gateway",
            "jwksUrl": f"{self.issuer}/jwks",
            "tokenUrl": f"{self.issuer}/token",
            "jwksCooldownSeconds": 2,
        }

    def token(self, base: str = "", scope: str = "", resource: str = "urn:gateway") -> Answer:
        """Ask for a token, at the provider itself or through a gateway's address."""
        form = f"grant_type=client_credentials&resource={resource}&scope={scope.replace(' ', '+')}"
        pair = base64.b64encode(f"{CLIENT}:s3cret%2F%25".encode()).decode()
        return exchange(
            f"{base}/v1/auth/token" if base else f"{self.issuer}/token",
            "POST",
            form.encode(),
            {"Content-Type": "application/x-www-form-urlencoded", "Authorization": f"Basic {pair}"},
        )

    def bearer(self, scope: str = "storage.read", resource: str = "urn:gateway") -> str:
        """The value of an Authorization field with a new token."""
        answer = self.token(scope=scope, resource=resource)
        assert answer.status == 200, answer.body
        return f"Bearer {answer.json()['access_token']}"

    def rotate(self, *, retire: bool = False) -> None:
        """Sign with new keys from now on; the old ones stay in the set, or are retired."""
        exchange(f"{self.issuer}/rotate{'?retire' if retire else ''}", "POST", b"", {})

    def key_fetches(self) -> int:
        """How often its keys were asked for."""
        return int(get(f"{self.issuer}/asked").json())

    def _ready(self) -> bool:
        try:
            return get(f"{self.issuer}/jwks").status == 200
        except OSError:
            return False
