"""docs/migrating.md says nothing of this gateway that is not so."""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml

from tests.support import TestCase
from tests.test_docs import TOP, code, metric_names, read, rows
from twisted_gateway.config.admission_keys import ADMISSION
from twisted_gateway.config.environment import OBSERVE_MODELS
from twisted_gateway.config.keys import ROOT
from twisted_gateway.config.load import load

PAGE = "docs/migrating.md"
# What the Go gateway read, after the notes on it.
PREDECESSOR = {
    "ADMISSION_MAX_INFLIGHT",
    "ADMISSION_MAX_PARK_SECONDS",
    "ADMISSION_OBSERVE_MODELS",
    "GOMAXPROCS",
    "MAX_BODY_BYTES",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "REGISTRY_BASE",
    "SANDBOX_REAPER_INTERVAL_MINUTES",
    "VLLM_MAX_NUM_SEQS",
    "VLLM_MAX_QUEUE_DEPTH",
}
MODEL = 'models: {reasoning: {upstream: "http://127.0.0.1:8000", engine: vllm}}'
# Read where the process starts, and by the file that the page has.
OF_THE_PROCESS = {"GATEWAY_CONFIG", "LOG_FORMAT", "LOG_LEVEL", "OTEL_EXPORTER_OTLP_ENDPOINT"}
OF_THE_FILE = {"REGISTRY_BASE", "PEER_TOKEN"}


def section(title: str) -> str:
    """What stands under a heading, of whatever depth."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#+ |\Z)", read(PAGE), re.M | re.S)
    assert found is not None, title
    return found[1]


def blocks() -> Iterator[str]:
    """The YAML examples that are not Kong's."""
    for block in re.findall(r"```yaml\n(.*?)```", read(PAGE), re.DOTALL):
        if "_format_version" not in yaml.safe_load(block):
            yield block


class ConfigurationTests(TestCase):
    """What it configures."""

    def test_examples_load(self) -> None:
        """Each example is a whole configuration that loads without a warning."""
        examples = list(blocks())
        self.assertEqual(len(examples), 3)
        for block in examples:
            config = load(block, name=PAGE, environ={}, read_file=str)
            self.assertEqual(config.warnings, ())

    def test_predecessors_environment(self) -> None:
        """The last example gates with the old variables, and without one of them too."""
        old = {
            "ADMISSION_MAX_INFLIGHT": "4",
            "ADMISSION_MAX_PARK_SECONDS": "120",
            "VLLM_MAX_QUEUE_DEPTH": "8",
            "MAX_BODY_BYTES": "1048576",
            "REGISTRY_BASE": "http://registry.example:3000",
        }
        *_, block = blocks()
        for observed in ({}, {OBSERVE_MODELS: "reasoning"}):
            config = load(block, name=PAGE, environ={**old, **observed}, read_file=str)
            model = config.models["reasoning"]
            self.assertTrue(model.gated)
            self.assertEqual(model.policy.max_inflight, 4)
            self.assertEqual(model.policy.max_park_seconds, 120)
            self.assertEqual(model.policy.max_queue_depth, 8)
            self.assertFalse(config.models["ornith:35b"].gated)
        off = load(block, name=PAGE, environ={**old, OBSERVE_MODELS: ""}, read_file=str)
        self.assertFalse(any(model.gated for model in off.models.values()))

    def test_defaults(self) -> None:
        """The numbers that it gives as defaults are those in force."""
        config = load(MODEL, name=PAGE, environ={}, read_file=str)
        policy = config.models["reasoning"].policy
        before = {row[0]: row[-1] for row in rows(section("Environment")) if len(row) == 3}
        self.assertIn(
            f"unset is {policy.max_park_seconds:g}", before["`ADMISSION_MAX_PARK_SECONDS`"]
        )
        self.assertIn(f"unset is {policy.max_queue_depth}", before["`VLLM_MAX_QUEUE_DEPTH`"])
        self.assertIn(f"`kvThreshold: {policy.kv_threshold:.2f}`", read(PAGE))


class NamesTests(TestCase):
    """What it names."""

    def test_environment(self) -> None:
        """Every variable of the predecessor has a row, and every one that is named is read."""
        table = section("Environment")
        first = set().union(*(code(row[0]) for row in rows(table) if len(row) == 3))
        self.assertLessEqual(PREDECESSOR, first)
        keys = [*ROOT.keys, *ADMISSION.keys]
        known = {name for key in keys for name in key.environment} | {OBSERVE_MODELS}
        known |= OF_THE_PROCESS | OF_THE_FILE | {"SANDBOX_REAPER_INTERVAL_MINUTES"}
        # There is nothing to set in place of this one.
        self.assertLessEqual(first - {"GOMAXPROCS", "variable"} - {"OTEL_*"}, known)

    def test_metrics(self) -> None:
        """Every metric that it sends dashboards to is one that the gateway has."""
        known = metric_names()
        for title, column in (("Metrics of Kong", 1), ("Metrics", 0), ("Metrics", 2)):
            named = set().union(*(code(row[column]) for row in rows(section(title))))
            names = {name for name in named if re.fullmatch(r"[a-z]+(_[a-z0-9]+){2,}", name)}
            # What every Python process has beside the gateway's own.
            own = {name for name in names if not name.startswith("process_")}
            self.assertTrue(own, title)
            self.assertLessEqual(own, known, title)

    def test_keys(self) -> None:
        """Every key of the configuration that it names in a table is one."""
        configuration = read("docs/configuration.md")
        described = {name for row in rows(configuration) for name in code(row[0])}
        for name in ("stripPrefix", "maxBodyBytes", "requireAuth", "upstreamModel", "adminListen"):
            self.assertIn(name, described)
        for row in rows(section("Services, routes, upstreams")):
            for name in code(row[1]):
                word = name.partition(":")[0]
                if re.fullmatch(r"[a-z]+[A-Z]\w+", word):
                    self.assertIn(word, described, name)

    def test_no_cluster_of_ones_own(self) -> None:
        """Names of one cluster stand in its overlay alone."""
        self.assertNotRegex(read(PAGE), r"riotpiao|poimen|llm-serving")
        self.assertNotRegex((TOP / "docs/nginx/nginx.conf").read_text(), r"riotpiao|poimen")
