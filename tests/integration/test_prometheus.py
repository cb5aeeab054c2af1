"""A real Prometheus scrapes a real gateway: what dashboard and rules ask for is there."""

from __future__ import annotations

import copy
import hmac
import json
import math
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml
from twisted.trial.unittest import SynchronousTestCase

from k8s.monitoring.make import RULES
from tests.integration.cache import Unavailable
from tests.integration.case import chat, unavailable
from tests.integration.engines import MODEL, simulated_engine
from tests.integration.gateway import Gateway
from tests.integration.processes import free_port, wait_until
from tests.integration.prometheus import NAMESPACE, Prometheus, promtool
from tests.integration.wire import Call, post
from tests.integration.world import WORLD
from tests.monitoring import expressions

LOST = "lost"
"""A model whose engine is not there."""
OLD = "/old"
SECRET = "of-the-webhook"

# The engine runs four.
MAX_INFLIGHT = 6
DEPTH = 4
CHAT = "/v1/chat/completions"

# What the load brings about, and what the faults after it do: alerts with some of their labels.
LOAD = {
    "LLMGatewayEngineErrors": {"model": MODEL},
    "LLMGatewayEngineNeverRead": {"model": LOST},
    "LLMGatewayEngineDown": {"model": LOST},
    "LLMGatewayQueueStuck": {"model": MODEL},
    "LLMGatewayMaxInflightDrift": {"model": MODEL},
    "LLMGatewayRefusals": {"model": MODEL, "reason": "queue_full"},
}
FAULTS: dict[str, dict[str, str]] = {
    "LLMGatewayReplicaDown": {},
    "LLMGatewayConfigReloadFailed": {},
    "LLMGatewayObserverDegraded": {"model": MODEL},
}
# Which may come with them.
COMPANIONS = {"LLMGatewayMostRefused"}

_THRESHOLD = re.compile(r"\s(?:[<>]=?|[=!]=)\s*[\d.]+(?:\s*\*\s*[\d.]+)?")


def measured(expr: str) -> str:
    """What an alert compares with its thresholds."""
    return _THRESHOLD.sub("", expr.replace("absent(", "("))


def chosen(expr: str) -> str:
    """An expression of the dashboard with everything chosen that there is."""
    filled = expr.replace("$namespace", ".*").replace("$model", ".*")
    return filled.replace("$__rate_interval", "1m")


def impatient() -> list[dict[str, Any]]:
    """The rules, with alerts that fire as soon as they hold, and of a queue within seconds."""
    groups = copy.deepcopy(expressions.groups())
    for group in groups:
        for rule in group["rules"]:
            rule.pop("for", None)
            if rule.get("alert") == "LLMGatewayQueueStuck":
                rule["expr"] = rule["expr"].replace("[5m]", "[5s]")
    return groups


class PromtoolTests(SynchronousTestCase):
    """Rules and dashboard, by promtool."""

    def promtool(self, *arguments: str) -> str:
        """Run promtool, which has to succeed."""
        try:
            done = promtool(*arguments)
        except Unavailable as fault:
            raise unavailable(fault) from None
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_rules(self) -> None:
        """`promtool check rules` reads all of them and has nothing to say."""
        said = self.promtool("check", "rules", "--lint=all", "--lint-fatal", str(RULES))
        self.assertIn(f"SUCCESS: {len(expressions.rules())} rules found", said)

    def test_cases(self) -> None:
        """`promtool test rules`: each alert fires when it should, and not when it should not."""
        self.assertEqual(
            self.promtool("test", "rules", *map(str, expressions.CASES)).count("SUCC"), 2
        )

    def test_cases_can_fail(self) -> None:
        """Without its rules every case that expects an alert fails."""
        with tempfile.TemporaryDirectory() as directory:
            (Path(directory) / "rules.yaml").write_text("groups: []")
            for path in expressions.CASES:
                tree = yaml.safe_load(path.read_text("utf-8"))
                tree["rule_files"] = ["rules.yaml"]
                copied = Path(directory) / path.name
                copied.write_text(yaml.safe_dump(tree))
                try:
                    done = promtool("test", "rules", str(copied))
                except Unavailable as fault:
                    raise unavailable(fault) from None
                wanting = sum(
                    bool(check["exp_alerts"])
                    for case in tree["tests"]
                    for check in case["alert_rule_test"]
                )
                self.assertEqual(done.stdout.count("alertname:"), wanting, done.stdout)

    def test_dashboard(self) -> None:
        """Every expression of the dashboard parses."""
        rules = [
            {"record": f"panel:{number}", "expr": chosen(expr)}
            for number, (_, expr) in enumerate(expressions.of_dashboard())
        ]
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}, file)
            file.flush()
            said = self.promtool("check", "rules", file.name)
        self.assertIn(f"SUCCESS: {len(rules)} rules found", said)


class ScrapeTests(SynchronousTestCase):
    """One gateway that has met most of what can happen, and one that dies."""

    def setUp(self) -> None:
        self.calls: list[Call] = []
        self.engine = simulated_engine(free_port(), WORLD.logs)
        self.addCleanup(self.engine.process.stop)
        config = self.configuration()
        self.gateway = Gateway("gateway-scraped", config, WORLD.logs)
        self.addCleanup(self.gateway.process.stop)
        self.dying = Gateway("gateway-dying", config, WORLD.logs)
        self.addCleanup(self.dying.process.stop)
        targets = [f"127.0.0.1:{one.port}" for one in (self.gateway, self.dying)]
        try:
            self.prometheus = Prometheus(targets, impatient(), WORLD.logs)
        except Unavailable as fault:
            raise unavailable(fault) from None
        self.addCleanup(self.prometheus.process.stop)
        self.addCleanup(self._leave)
        self.engine.start()
        self.engine.wait_ready()
        for one in (self.gateway, self.dying, self.prometheus):
            one.start()
        # What is counted before the first scrape is no increase to Prometheus.
        wait_until(self._scraped, 30, "a first scrape of both gateways")

    def configuration(self) -> dict[str, Any]:
        """An engine that is there, told to run more than it does, and one that is not there."""
        admission = {"pollSeconds": 0.2, "keepAliveSeconds": 0.5, "maxQueueDepth": DEPTH}
        here = {"upstream": self.engine.url, "engine": "vllm"}
        lost = {"upstream": f"http://127.0.0.1:{free_port()}", "engine": "vllm"}
        return {
            "models": {
                MODEL: {**here, "admission": {**admission, "maxInflight": MAX_INFLIGHT}},
                LOST: {**lost, "admission": {**admission, "maxInflight": 4}},
            },
            # It knows neither path, and is asked all the same.
            "adapters": {"memory": {"upstream": self.engine.url, "requireAuth": False}},
            "webhooks": {
                "forgejo": {
                    "secret": SECRET,
                    "targets": [{"event": "push", "service": "memory", "resource": "ingest"}],
                }
            },
            "routes": [{"path": OLD, "upstream": self.engine.url, "requireAuth": False}],
        }

    def _scraped(self) -> bool:
        targets = self.prometheus.targets()
        return len(targets) == 2 and all(one["health"] == "up" for one in targets)

    def _leave(self) -> None:
        for call in self.calls:
            call.leave()

    def stream(self, tokens: int, model: str = MODEL, **headers: str) -> Call:
        """Ask for a stream and let it run."""
        body = chat(tokens, stream=True, model=model)
        call = Call(f"{self.gateway.url}{CHAT}", body, headers=headers)
        self.calls.append(call)
        return call

    def parked(self, model: str = MODEL) -> int:
        """How many wait at the gateway."""
        return len(self.gateway.status(model)["parked"])

    def work(self) -> None:
        """Have requests run, park, pass, leave and be refused, and the engine misbehave."""
        self.assertEqual(post(f"{self.gateway.url}{CHAT}", chat(20)).status, 200)
        self.assertEqual(post(f"{self.gateway.url}{CHAT}", chat(1, model="other")).status, 400)
        short = [self.stream(100) for _ in range(MAX_INFLIGHT)]
        passing = [self.stream(20), self.stream(20, **{"X-Priority": "warmup"})]
        for call in (*short, *passing):
            self.assertTrue(call.finish(60).whole, call.describe())

        self.assertEqual(post(f"{self.gateway.url}{OLD}", {}).status, 404)
        event = json.dumps({}).encode()
        signature = hmac.digest(SECRET.encode(), event, "sha256").hex()
        signed = {"X-Forgejo-Event": "push", "X-Forgejo-Delivery": "1"}
        hook = f"{self.gateway.url}/v1/webhooks/forgejo"
        answer = post(hook, {}, headers={**signed, "X-Forgejo-Signature": signature})
        self.assertEqual(answer.status, 502, answer)

        self.fault(cut_after_tokens=3)
        for _ in range(6):
            cut = self.stream(20).finish(20)
            self.assertIn("upstream_incomplete", cut.text)
        self.fault(cut_after_tokens=None)
        trusted = lambda: self.gateway.status()["engines"][0]["hold"] is None  # noqa: E731
        wait_until(trusted, 20, "a good poll after the last answer that broke off")

        # Whoever stays until the end of the test: six in the engine, as many parked as may be.
        running = [self.stream(8000) for _ in range(MAX_INFLIGHT)]
        wait_until(lambda: self.gateway.status()["own"] == len(running), 20, "a full engine")
        leaving = self.stream(20)
        wait_until(lambda: self.parked() == 1, 20, "one parked")
        leaving.leave()
        wait_until(lambda: self.parked() == 0, 20, "it has left")
        for _ in range(DEPTH):
            self.stream(20)
        wait_until(lambda: self.parked() == DEPTH, 20, "a full queue")
        for _ in range(8):
            self.refused("queue_full")
        self.refused("park_timeout", Prefer="wait=0")

        self.stream(20, LOST)
        wait_until(
            lambda: self.parked(LOST) == 1, 20, "one parked for the engine that is not there"
        )

    def fault(self, **faults: Any) -> None:
        """Have the engine do something wrong from now on."""
        self.assertEqual(post(f"{self.engine.url}/demo/faults", faults).status, 200)

    def refused(self, reason: str, **headers: str) -> None:
        """Ask once more than may be."""
        answer = post(f"{self.gateway.url}{CHAT}", chat(1), headers=headers)
        self.assertEqual((answer.status, answer.json()["reason"]), (503, reason))

    def test_everything(self) -> None:
        """What dashboard and rules ask for returns series, and the right alerts fire."""
        self.work()
        self._targets()
        self._dashboard()
        self._fires(LOAD)
        self._gateway_and_file_fail()
        self._fires(FAULTS)
        self._rules()
        self._others_are_silent()
        self.gateway.process.kill()
        self._fires({"LLMGatewayDown": {}})

    def _targets(self) -> None:
        """Prometheus finds nothing wrong in what it is given."""
        for target in self.prometheus.targets():
            self.assertEqual((target["health"], target["lastError"]), ("up", ""))
        for model in (MODEL, LOST):
            selector = f'gateway_inflight{{namespace="{NAMESPACE}"}}'
            self.assertIn(model, self.prometheus.values("model", selector))
        self.assertEqual(self.prometheus.values("namespace", "gateway_inflight"), [NAMESPACE])

    def _dashboard(self) -> None:
        # Of the annotation too: by now alerts fire.
        missing = dict(expressions.of_dashboard())

        def shown() -> bool:
            for title, expr in list(missing.items()):
                if any(_is_number(one) for one in self.prometheus.query(chosen(expr))):
                    del missing[title]
            return not missing

        self._until(shown, 30, lambda: f"panels without numbers: {missing}")

    def _gateway_and_file_fail(self) -> None:
        self.dying.process.kill()
        self.gateway.configure("models: {reasoning: {upstream: nowhere}}")
        self.gateway.reload()
        # A page that is torn: the engine answers, and its gauges cannot be read.
        self.fault(metrics="garble")
        wait_until(lambda: self.gateway.status()["degraded"], 20, "degraded")

    def _fires(self, alerts: Mapping[str, Mapping[str, str]]) -> None:
        def wanting() -> list[str]:
            firing = [alert["labels"] for alert in self.prometheus.alerts()]
            return [
                name
                for name, labels in alerts.items()
                if not any({"alertname": name, **labels}.items() <= one.items() for one in firing)
            ]

        self._until(lambda: not wanting(), 20, lambda: f"alerts wanting: {wanting()}")

    def _rules(self) -> None:
        """Prometheus finds nothing wrong in them, and can fill in what alerts say."""
        for rule in self.prometheus.rules():
            self.assertEqual((rule["health"], rule.get("lastError", "")), ("ok", ""), rule)
        for alert in self.prometheus.alerts():
            for text in alert["annotations"].values():
                self.assertNotIn("<error", text)
                self.assertNotIn("<no value>", text)

    def _others_are_silent(self) -> None:
        """What has not happened does not fire, though it has what it would judge."""
        silent = expressions.alerts().keys() - LOAD.keys() - FAULTS.keys() - COMPANIONS
        for name in silent:
            expr = measured(expressions.alerts()[name]["expr"])
            self.assertTrue(self.prometheus.query(expr), name)
        firing = {alert["labels"]["alertname"] for alert in self.prometheus.alerts()}
        self.assertFalse(silent & firing)

    def _until(
        self, condition: Callable[[], object], seconds: float, fault: Callable[[], str]
    ) -> None:
        try:
            wait_until(condition, seconds, "")
        except AssertionError:
            raise AssertionError(f"{fault()}\n{self.gateway.process.tail()}") from None


def _is_number(series: dict[str, Any]) -> bool:
    return not math.isnan(float(series["value"][1]))
