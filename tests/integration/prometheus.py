"""Prometheus and its promtool, as operators run them."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.integration.cache import Unavailable
from tests.integration.processes import Process, free_port
from tests.integration.wire import get

SCRAPE_SECONDS = 0.5
NAMESPACE = "llm"
"""What Kubernetes' service discovery would put into the label."""


def program(name: str) -> str:
    """The path of `prometheus` or `promtool`.

    Raises:
        Unavailable: there is none here.
    """
    found = shutil.which(name)
    if found is None:
        raise Unavailable(f"there is no {name} on PATH (Debian: apt-get install prometheus)")
    return found


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run promtool; what it printed, errors included, is in `stdout`.

    Raises:
        Unavailable: there is none here.
    """
    return subprocess.run(
        [program("promtool"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )


class Prometheus:
    """A Prometheus that scrapes gateways.

    Args:
        targets: `HOST:PORT` of each.
        groups: of rules; they are evaluated at each scrape.
        directory: for its files.

    Raises:
        Unavailable: there is none here.
    """

    def __init__(
        self, targets: Iterable[str], groups: Sequence[Mapping[str, Any]], directory: Path
    ) -> None:
        home = directory / "prometheus"
        home.mkdir(parents=True, exist_ok=True)
        rules = home / "rules.yaml"
        rules.write_text(json.dumps({"groups": groups}))
        seconds = f"{int(SCRAPE_SECONDS * 1000)}ms"
        gateways = {"targets": list(targets), "labels": {"namespace": NAMESPACE}}
        config = {
            "global": {"scrape_interval": seconds, "evaluation_interval": seconds},
            "rule_files": [str(rules)],
            "scrape_configs": [
                {
                    "job_name": "gateways",
                    "scrape_timeout": seconds,
                    "static_configs": [gateways],
                }
            ],
        }
        file = home / "prometheus.yaml"
        file.write_text(json.dumps(config))
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [
            program("prometheus"),
            f"--config.file={file}",
            f"--storage.tsdb.path={home / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        self.process = Process("prometheus", command, directory)

    def start(self) -> None:
        """Start it and wait until it answers.

        Raises:
            NotReady: it does not in time, or has ended.
        """
        self.process.start()
        self.process.wait_ready(self._ready, 60.0)

    def query(self, expr: str) -> list[dict[str, Any]]:
        """What an expression comes to now: series with `metric` and `value`.

        Raises:
            AssertionError: Prometheus cannot evaluate it; the message says why.
        """
        result: list[dict[str, Any]] = self._ask("query", query=expr)["result"]
        return result

    def values(self, label: str, selector: str) -> list[str]:
        """The values that a label has among the selected series."""
        found: list[str] = self._ask(f"label/{label}/values", **{"match[]": selector})
        return found

    def alerts(self) -> list[dict[str, Any]]:
        """The alerts that fire, with their labels and annotations."""
        found = self._ask("alerts")["alerts"]
        return [alert for alert in found if alert["state"] == "firing"]

    def targets(self) -> list[dict[str, Any]]:
        """What is scraped: each with its `health` and `lastError`."""
        active: list[dict[str, Any]] = self._ask("targets")["activeTargets"]
        return active

    def rules(self) -> list[dict[str, Any]]:
        """Every rule, with the `health` and `lastError` of its evaluation."""
        return [rule for group in self._ask("rules")["groups"] for rule in group["rules"]]

    def _ask(self, path: str, **parameters: str) -> Any:
        answer = get(f"{self.url}/api/v1/{path}?{urlencode(parameters)}")
        assert answer.status == 200, f"{parameters}: {answer.body.decode()}"
        return answer.json()["data"]

    def _ready(self) -> bool:
        try:
            return get(f"{self.url}/-/ready").status == 200
        except OSError:
            return False
