"""Alerts and recording rules name what there is, and each can be looked up."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from pathlib import Path

import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from k8s.monitoring.make import PROMETHEUS_RULE, RULES, made
from tests.monitoring import expressions
from tests.support import TestCase
from twisted_gateway.core.decision import Reason
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.core.sample import Sample
from twisted_gateway.telemetry.families import CODE_CLASSES, WAIT_OUTCOMES
from twisted_gateway.telemetry.metrics import Metrics, register_process
from twisted_gateway.telemetry.states import ModelState

DOCS = Path(__file__).parent.parent.parent / "docs"
OPERATING = DOCS / "operating.md"
RUNBOOK = DOCS / "runbook.md"
# What Prometheus adds to every series, or makes itself.
TARGET_LABELS = {"namespace", "job", "instance"}
OWN = {"up", "ALERTS"}
SECTION = re.compile(r"^## (\w+)$", re.MULTILINE)


def exported() -> dict[str, set[str]]:
    """Every series that a gateway exports, by name, with its labels."""
    registry = CollectorRegistry()
    register_process(registry)
    metrics = Metrics(registry)
    metrics.configure(["m"], ["m"])
    metrics.states = lambda: {"m": _full()}
    metrics.ended("/v1/*", "m", Outcome.OK)
    metrics.inbound.configure_targets(["s"])
    metrics.inbound.webhook_target("s", "r", Outcome.OK)
    metrics.inbound.configure_routes(["/old"])
    metrics.inbound.legacy_use("/old", "t")
    found: dict[str, set[str]] = defaultdict(set)
    for each in text_string_to_metric_families(metrics.render(None)[0].decode()):
        for sample in each.samples:
            found[sample.name] |= set(sample.labels)
    return found


def family(name: str) -> str:
    """The metric that a sample is of."""
    return re.sub("_(bucket|count|sum)$", "", name)


def own() -> set[str]:
    """The metrics that only a gateway has, less those that repeat others.

    gen_ai_* say under OpenTelemetry's names what llm_* say, and can be switched off.
    """
    foreign = ("process_", "python_", "gen_ai_")
    return {family(name) for name in exported() if not name.startswith(foreign)}


def _full() -> ModelState:
    return ModelState(
        sample=Sample(running=1, waiting=1, kv_usage=0.5),
        sample_age_seconds=1.0,
        parked_requests=1,
        parked_bytes=1,
        in_flight=1,
        max_inflight=1,
        drift=False,
    )


def every_expression() -> list[tuple[str, str]]:
    """Of rules and dashboard, each after its name."""
    return [*expressions.of_rules(), *expressions.of_dashboard()]


class NamesTests(TestCase):
    """Rules and dashboard read what a gateway exports."""

    def test_metrics(self) -> None:
        """Every metric is the gateway's own, a recording rule's, or Prometheus'."""
        recorded = {rule["record"] for rule in expressions.rules() if "record" in rule}
        known = exported().keys() | recorded | OWN
        for title, expr in every_expression():
            read = expressions.names(expr)
            self.assertTrue(read, title)
            self.assertLessEqual(read, known, title)

    def test_every_metric_is_shown(self) -> None:
        """The dashboard leaves out none of the gateway's own metrics."""
        shown = {name for _, expr in expressions.of_dashboard() for name in expressions.names(expr)}
        self.assertLessEqual(own(), {family(name) for name in shown})

    def test_every_metric_is_explained(self) -> None:
        """docs/operating.md says of each of them what it means, and of none that there is not."""
        section = OPERATING.read_text("utf-8").partition("\n## What each gauge means\n")[2]
        rows = re.findall(r"^\| (`.*?`) \|", section.partition("\n## ")[0], re.MULTILINE)
        self.assertEqual({name for row in rows for name in re.findall(r"`(\w+)`", row)}, own())

    def test_labels(self) -> None:
        """Every label is one that the series bear."""
        known = set.union(TARGET_LABELS, *exported().values()) | {"alertname", "alertstate"}
        for title, expr in every_expression():
            self.assertLessEqual(expressions.labels(expr), known, title)

    def test_values(self) -> None:
        """Outcomes, reasons and buckets that are asked for exist."""
        outcomes = {outcome.value for outcome in Outcome} | set(WAIT_OUTCOMES)
        buckets = self._buckets()
        for title, expr in every_expression():
            self.assertLessEqual(expressions.values(expr, "outcome"), outcomes, title)
            self.assertLessEqual(
                expressions.values(expr, "reason"), {one.value for one in Reason}, title
            )
            self.assertLessEqual(expressions.values(expr, "le"), buckets, title)
            self.assertLessEqual(expressions.values(expr, "code_class"), set(CODE_CLASSES), title)

    def _buckets(self) -> set[str]:
        registry = CollectorRegistry()
        Metrics(registry).first_token("", 1.0)
        text = "llm_ttft_seconds"
        (found,) = (one for one in registry.collect() if one.name == text)
        return {sample.labels["le"] for sample in found.samples if "le" in sample.labels}


class RulesTests(TestCase):
    """k8s/monitoring/rules.yaml and what is made of it."""

    def test_operators_form(self) -> None:
        """prometheusrule.yaml is current, and holds the very groups of rules.yaml."""
        text = PROMETHEUS_RULE.read_text("utf-8")
        self.assertEqual(text, made()[PROMETHEUS_RULE])
        tree = yaml.safe_load(text)
        self.assertEqual(tree["spec"], yaml.safe_load(RULES.read_text("utf-8")))
        self.assertEqual(tree["kind"], "PrometheusRule")

    def test_names(self) -> None:
        """No two rules, and no two groups, have the same name."""
        rules = Counter(rule.get("alert") or rule["record"] for rule in expressions.rules())
        groups = Counter(group["name"] for group in expressions.groups())
        self.assertEqual(set((rules + groups).values()), {1})

    def test_severity_and_words(self) -> None:
        """Each alert says how bad it is, in one line and in a sentence or two."""
        for name, rule in expressions.alerts().items():
            self.assertIn(rule["labels"]["severity"], ("critical", "warning"), name)
            self.assertEqual(
                sorted(rule["annotations"]), ["description", "runbook_url", "summary"], name
            )
            self.assertLess(len(rule["annotations"]["summary"]), 100, name)

    def test_pages_wait(self) -> None:
        """Nobody is woken for what a single evaluation has seen."""
        for name, rule in expressions.alerts().items():
            if rule["labels"]["severity"] == "critical":
                self.assertIn("for", rule, name)

    def test_runbook(self) -> None:
        """Each alert leads to an entry of its own in the runbook, and no entry is of none."""
        sections = SECTION.findall(RUNBOOK.read_text("utf-8"))
        self.assertEqual(sorted(sections), sorted(expressions.alerts()))
        for name, rule in expressions.alerts().items():
            anchor = f"docs/runbook.md#{name.lower()}"
            self.assertEqual(rule["annotations"]["runbook_url"], anchor)

    def test_runbook_entries(self) -> None:
        """Each entry says what it means, whom it hurts, how to look into it, and what mends it."""
        _, *parts = SECTION.split(RUNBOOK.read_text("utf-8"))
        for name, text in zip(parts[::2], parts[1::2], strict=True):
            for word in ("Meaning", "Impact", "Diagnose", "Mend"):
                self.assertIn(f"**{word}.**", text, name)

    def test_cases(self) -> None:
        """For each alert promtool has a case in which it fires, and one in which it does not."""
        fires: set[str] = set()
        silent: set[str] = set()
        for path in expressions.CASES:
            for case in yaml.safe_load(path.read_text("utf-8"))["tests"]:
                for check in case["alert_rule_test"]:
                    (fires if check["exp_alerts"] else silent).add(check["alertname"])
        self.assertEqual(fires, expressions.alerts().keys())
        self.assertEqual(silent, expressions.alerts().keys())


class ReadingTests(TestCase):
    """The reader of PromQL that these tests go by."""

    EXPR = """
        sum by (namespace, le) (rate(a_bucket{le="60.0", outcome=~"x|y"}[5m]))
        / on (model) group_left b:c:d5m > 0.5 * 1e3
        unless d offset 10m and histogram_quantile(0.9, e{text="f g{h}"}) == Inf
    """

    def test_names(self) -> None:
        """Metrics are told from functions, labels, words, durations and numbers."""
        self.assertEqual(expressions.names(self.EXPR), {"a_bucket", "b:c:d5m", "d", "e"})

    def test_labels(self) -> None:
        """Labels are those of selections and groupings."""
        self.assertEqual(
            expressions.labels(self.EXPR), {"namespace", "le", "outcome", "model", "text"}
        )

    def test_values(self) -> None:
        """Alternatives of a pattern are values of their own."""
        self.assertEqual(expressions.values(self.EXPR, "outcome"), {"x", "y"})
        self.assertEqual(expressions.values(self.EXPR, "le"), {"60.0"})
