"""The Grafana dashboard is whole, and readable by who has not made it."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import yaml

from k8s.monitoring.grafana import COLUMNS, dashboard
from k8s.monitoring.make import DASHBOARD, HERE, made
from tests.monitoring import expressions
from tests.support import TestCase

UNITS = {"short", "s", "bytes", "reqps", "percentunit"}
KINDS = {"timeseries", "stat", "table", "state-timeline"}


def overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    """Whether two places on the grid share a cell."""
    return (
        one["x"] < other["x"] + other["w"]
        and other["x"] < one["x"] + one["w"]
        and one["y"] < other["y"] + other["h"]
        and other["y"] < one["y"] + one["h"]
    )


def row(**attributes: Any) -> list[dict[str, Any]]:
    """A row with one panel."""
    return [{"title": "row", "panels": [{"title": "panel", "description": "text", **attributes}]}]


class DashboardTests(TestCase):
    """k8s/monitoring/llm-gateway.json."""

    def test_is_current(self) -> None:
        """It is what `python -m k8s.monitoring.make` makes."""
        self.assertEqual(DASHBOARD.read_text("utf-8"), made()[DASHBOARD])

    def test_identity(self) -> None:
        """It bears a fixed uid and no id, so that importing it again replaces it."""
        tree = expressions.dashboard()
        self.assertIsNone(tree["id"])
        self.assertEqual(tree["uid"], "llm-gateway")
        self.assertGreaterEqual(tree["schemaVersion"], 39)

    def test_panels_are_distinct(self) -> None:
        """Every panel and row has an id of its own, and every query of a panel its letter."""
        ids = [one["id"] for one in expressions.dashboard()["panels"]]
        self.assertEqual(len(ids), len(set(ids)))
        for panel in expressions.panels():
            letters = [target["refId"] for target in panel["targets"]]
            self.assertEqual(len(letters), len(set(letters)), panel["title"])
            legends = [target["legendFormat"] for target in panel["targets"]]
            self.assertEqual(len(legends), len(set(legends)), panel["title"])

    def test_places(self) -> None:
        """Every panel is on the grid, and none lies on another."""
        placed = expressions.dashboard()["panels"]
        for one in placed:
            self.assertLessEqual(one["gridPos"]["x"] + one["gridPos"]["w"], COLUMNS)
        for one, other in combinations(placed, 2):
            self.assertFalse(
                overlap(one["gridPos"], other["gridPos"]), f"{one['title']}, {other['title']}"
            )

    def test_panels_are_described(self) -> None:
        """Every panel is of a known kind, has a unit and says in words what it shows."""
        for panel in expressions.panels():
            self.assertIn(panel["type"], KINDS)
            self.assertIn(panel["fieldConfig"]["defaults"]["unit"], UNITS)
            self.assertGreater(len(panel["description"]), 20, panel["title"])
            self.assertTrue(panel["targets"], panel["title"])
            steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
            self.assertIsNone(steps[0]["value"])
            self.assertEqual(steps[1:], sorted(steps[1:], key=lambda step: step["value"]))

    def test_words(self) -> None:
        """What a value is called is text: YAML takes a bare `yes` for a truth value."""
        defaults = [panel["fieldConfig"]["defaults"] for panel in expressions.panels()]
        mapped = [
            option
            for one in defaults
            for mapping in one["mappings"]
            for option in mapping["options"].values()
        ]
        self.assertTrue(mapped)
        for option in mapped:
            self.assertIsInstance(option["text"], str)

    def test_source(self) -> None:
        """Everything asks the data source that is chosen, and nothing names one."""
        chosen = {"type": "prometheus", "uid": "${datasource}"}
        tree = expressions.dashboard()
        asking = [*expressions.panels(), *tree["annotations"]["list"]]
        asking += [one for one in tree["templating"]["list"] if one["type"] == "query"]
        asking += [target for panel in expressions.panels() for target in panel["targets"]]
        for one in asking:
            self.assertEqual(one["datasource"], chosen)

    def test_variables(self) -> None:
        """Every query asks for the chosen namespaces, and no variable is used but those defined."""
        defined = [one["name"] for one in expressions.dashboard()["templating"]["list"]]
        self.assertEqual(defined, ["datasource", "namespace", "model"])
        for title, expr in expressions.of_dashboard():
            self.assertIn('namespace=~"$namespace"', expr, title)
            rest = expr.replace("$namespace", "").replace("$model", "")
            self.assertNotIn("$", rest.replace("$__rate_interval", ""), title)

    def test_row_for_each_model(self) -> None:
        """One row is repeated for each model, and what is in it is of that model."""
        tree = expressions.dashboard()["panels"]
        repeated = [one for one in tree if one.get("repeat")]
        self.assertEqual([one["repeat"] for one in repeated], ["model"])
        start = tree.index(repeated[0]) + 1
        end = next(at for at in range(start, len(tree)) if tree[at]["type"] == "row")
        self.assertGreater(end, start)
        for panel in tree[start:end]:
            for target in panel["targets"]:
                self.assertIn('model=~"$model"', target["expr"], panel["title"])

    def test_label_for_the_sidecar(self) -> None:
        """kustomize puts it into a ConfigMap that Grafana's sidecar finds."""
        tree = yaml.safe_load((HERE / "kustomization.yaml").read_text("utf-8"))
        (config_map,) = tree["configMapGenerator"]
        self.assertEqual(config_map["files"], [DASHBOARD.name])
        self.assertEqual(config_map["options"]["labels"], {"grafana_dashboard": "1"})


class MakingTests(TestCase):
    """What dashboard.yaml may say."""

    def test_unknown_attribute(self) -> None:
        """A misspelt attribute of a panel is an error, not left out in silence."""
        with self.assertRaises(TypeError):
            dashboard(row(heigth=4))

    def test_quantiles(self) -> None:
        """`quantiles` are of the buckets of the histogram that `of` names, one query for each."""
        made = dashboard(row(of="h_seconds{$model_of}", quantiles=[50, 99]))["panels"][1]
        self.assertEqual(
            [(target["legendFormat"], target["expr"]) for target in made["targets"]],
            [
                (
                    f"p{percent}",
                    f"histogram_quantile({quantile}, sum by (le) (rate(h_seconds_bucket"
                    '{namespace=~"$namespace", model=~"$model"}[$__rate_interval])))',
                )
                for percent, quantile in ((50, 0.5), (99, 0.99))
            ],
        )
        self.assertEqual(made["interval"], "1m")

    def test_lines(self) -> None:
        """Panels stand beside each other while they fit, else below the tallest of the line."""
        places = [(16, 4), (8, 6), (12, 8)]
        shape = [
            {"title": str(at), "description": "", "width": width, "height": height}
            for at, (width, height) in enumerate(places)
        ]
        made = dashboard([{"title": "row", "panels": shape}, {"title": "next", "panels": []}])
        found = [(one["gridPos"]["x"], one["gridPos"]["y"]) for one in made["panels"]]
        self.assertEqual(found, [(0, 0), (0, 1), (16, 1), (0, 7), (0, 15)])
