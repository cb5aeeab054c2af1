"""Makes a Grafana dashboard of rows of panels, as `dashboard.yaml` describes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from string import ascii_uppercase
from typing import Any

COLUMNS = 24

_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_GATEWAY_OF = 'namespace=~"$namespace"'
_MODEL_OF = f'{_GATEWAY_OF}, model=~"$model"'
_FILLED = {
    "$traffic": f'{_MODEL_OF}, route!~"/health.*|/metrics|/status.*"',
    "$model_of": _MODEL_OF,
    # Everything exports process_*: gateways are told by a series of their own, whatever their job.
    "$gateways": f'and on (namespace, job, instance) gateway_inflight{{{_GATEWAY_OF}, model=""}}',
    "$gateway_of": _GATEWAY_OF,
}
# Quantiles of a few requests jump. With a step of a minute $__rate_interval is four or more.
_STEP_OF_QUANTILES = "1m"

_COLOURS = {
    "ok": "green",
    "rejected": "orange",
    "upstream_status": "yellow",
    "upstream_error": "red",
    "upstream_timeout": "dark-red",
    "upstream_incomplete": "light-red",
    "internal_error": "purple",
    "bad_request": "light-blue",
    "client_disconnect": "blue",
    "client_stalled": "dark-blue",
    "maxInflight": "text",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel.

    Attributes:
        description: what it shows and what is normal.
        kind: Grafana's panel type.
        queries: the legend's pattern -> PromQL with the words of `_FILLED`; of a table, the
            column's heading -> PromQL.
        of: a histogram with its selection, for `quantiles`.
        quantiles: in percent.
        unit: Grafana's id of the unit.
        decimals: None leaves them to Grafana.
        steps: the colour from each value on; below the first it is green.
        most: the top of the axis.
        stacked: whether series lie on each other.
        words: what each value is called, with its colour.
    """

    title: str
    description: str
    kind: str = "timeseries"
    queries: Mapping[str, str] = field(default_factory=dict)
    of: str = ""
    quantiles: Sequence[int] = ()
    unit: str = "short"
    decimals: int | None = None
    width: int = 12
    height: int = 8
    steps: Mapping[float, str] = field(default_factory=dict)
    most: float | None = None
    stacked: bool = False
    words: Mapping[int, Sequence[str]] = field(default_factory=dict)

    def expressions(self) -> dict[str, str]:
        """Give the legend's pattern -> the whole PromQL of each query."""
        if not self.quantiles:
            return {legend: _filled(expr) for legend, expr in self.queries.items()}
        name, _, selection = self.of.partition("{")
        rate = _filled(f"sum by (le) (rate({name}_bucket{{{selection}[$__rate_interval]))")
        return {f"p{one}": f"histogram_quantile({one / 100}, {rate})" for one in self.quantiles}


def dashboard(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Give the dashboard as Grafana imports it.

    Args:
        rows: mappings with a `title`, its `panels` as mappings of `Panel`'s attributes, and
            `repeat` where the row is to stand once for each value of a variable.

    Raises:
        TypeError: a panel has an attribute that there is not, or lacks one.
    """
    return {
        "annotations": {"list": [_alerts()]},
        "description": "What twisted-gateway runs, parks and refuses, and what it sees of engines.",
        "editable": True,
        "graphTooltip": 1,
        "id": None,
        "panels": list(_placed(rows)),
        "refresh": "30s",
        "schemaVersion": 39,
        "tags": ["llm", "gateway"],
        "templating": {"list": _variables()},
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "title": "LLM gateway",
        "uid": "llm-gateway",
        "version": 1,
    }


def _filled(expr: str) -> str:
    for word, text in _FILLED.items():
        expr = expr.replace(word, text)
    return expr


def _placed(rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    numbers, y = count(1), 0
    for row in rows:
        yield _row(row, next(numbers), y)
        x, y, tallest = 0, y + 1, 0
        for panel in (Panel(**attributes) for attributes in row["panels"]):
            if x + panel.width > COLUMNS:
                x, y, tallest = 0, y + tallest, 0
            place = {"h": panel.height, "w": panel.width, "x": x, "y": y}
            yield _panel(panel) | {"id": next(numbers), "gridPos": place}
            x, tallest = x + panel.width, max(tallest, panel.height)
        y += tallest


def _row(row: Mapping[str, Any], number: int, y: int) -> dict[str, Any]:
    made: dict[str, Any] = {
        "collapsed": False,
        "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": y},
        "id": number,
        "panels": [],
        "title": row["title"],
        "type": "row",
    }
    return made | ({"repeat": row["repeat"]} if "repeat" in row else {})


def _panel(panel: Panel) -> dict[str, Any]:
    made: dict[str, Any] = {
        "datasource": _DATASOURCE,
        "description": panel.description,
        "fieldConfig": {"defaults": _defaults(panel), "overrides": list(_overrides(panel))},
        "options": _OPTIONS[panel.kind],
        "targets": list(_targets(panel)),
        "title": panel.title,
        "type": panel.kind,
    }
    if panel.quantiles:
        made["interval"] = _STEP_OF_QUANTILES
    if panel.kind == "table":
        made["transformations"] = _side_by_side(list(panel.queries))
    return made


def _targets(panel: Panel) -> Iterator[dict[str, Any]]:
    now = panel.kind in ("stat", "table")
    for letter, (legend, expr) in zip(ascii_uppercase, panel.expressions().items(), strict=False):
        yield {
            "datasource": _DATASOURCE,
            "editorMode": "code",
            "expr": expr,
            "format": "table" if panel.kind == "table" else "time_series",
            "instant": now,
            "legendFormat": legend,
            "range": not now,
            "refId": letter,
        }


def _defaults(panel: Panel) -> dict[str, Any]:
    lowest = {"color": panel.steps.get(0, "green"), "value": None}
    higher = [{"color": c, "value": v} for v, c in sorted(panel.steps.items()) if v]
    by_value = panel.kind == "stat" or panel.words
    defaults: dict[str, Any] = {
        "color": {"mode": "thresholds" if by_value else "palette-classic"},
        "mappings": [],
        "min": 0,
        "thresholds": {"mode": "absolute", "steps": [lowest, *higher]},
        "unit": panel.unit,
    }
    if panel.most is not None:
        defaults["max"] = panel.most
    if panel.decimals is not None:
        defaults["decimals"] = panel.decimals
    if panel.kind == "timeseries":
        defaults["custom"] = {
            "drawStyle": "line",
            "fillOpacity": 25 if panel.stacked else 8,
            "lineWidth": 1,
            "showPoints": "never",
            "stacking": {"group": "A", "mode": "normal" if panel.stacked else "none"},
            "thresholdsStyle": {"mode": "line" if higher else "off"},
        }
    if panel.words:
        options = {
            str(value): {"color": colour, "index": value, "text": text}
            for value, (text, colour) in panel.words.items()
        }
        defaults["mappings"] = [{"options": options, "type": "value"}]
    return defaults


def _overrides(panel: Panel) -> Iterator[dict[str, Any]]:
    """Give series whose names say what is good and what is bad the same colours everywhere."""
    if panel.kind != "timeseries":
        return
    for name, colour in _COLOURS.items():
        if name in panel.queries or "{{outcome}}" in panel.queries:
            value = {"fixedColor": colour, "mode": "fixed"}
            properties: list[dict[str, Any]] = [{"id": "color", "value": value}]
            if name == "maxInflight":
                dashes = {"dash": [8, 6], "fill": "dash"}
                properties.append({"id": "custom.lineStyle", "value": dashes})
                properties.append({"id": "custom.fillOpacity", "value": 0})
            yield {"matcher": {"id": "byName", "options": name}, "properties": properties}


def _side_by_side(headings: Sequence[str]) -> list[dict[str, Any]]:
    """Lay the queries of a table side by side, in a line for each instance."""
    names = {f"Value #{one}": name for one, name in zip(ascii_uppercase, headings, strict=False)}
    return [
        {"id": "merge", "options": {}},
        {
            "id": "organize",
            "options": {
                "excludeByName": {"Time": True},
                "indexByName": {name: at for at, name in enumerate(["instance", *names])},
                "renameByName": {"instance": "gateway", **names},
            },
        },
    ]


_REDUCED = {"calcs": ["lastNotNull"], "fields": "", "values": False}
_OPTIONS: dict[str, dict[str, Any]] = {
    "timeseries": {
        "legend": {
            "calcs": ["lastNotNull", "max"],
            "displayMode": "table",
            "placement": "bottom",
            "showLegend": True,
        },
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {"colorMode": "value", "graphMode": "none", "reduceOptions": _REDUCED},
    "state-timeline": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False},
        "mergeValues": True,
        "showValue": "auto",
    },
    "table": {"cellHeight": "sm", "showHeader": True},
}


def _alerts() -> dict[str, Any]:
    return {
        "datasource": _DATASOURCE,
        "enable": True,
        "expr": f'ALERTS{{alertname=~"LLMGateway.+", alertstate="firing", {_GATEWAY_OF}}}',
        "iconColor": "red",
        "name": "Alerts",
        "step": "60s",
        "tagKeys": "alertname,severity",
        "textFormat": "{{model}} {{instance}}",
        "titleFormat": "{{alertname}}",
    }


def _variables() -> list[dict[str, Any]]:
    source = {
        "current": {},
        "includeAll": False,
        "label": "Data source",
        "multi": False,
        "name": "datasource",
        "query": "prometheus",
        "refresh": 1,
        "type": "datasource",
    }
    of_namespace = f"gateway_inflight{{{_GATEWAY_OF}}}"
    return [
        source,
        _values("namespace", "Namespace", "label_values(gateway_inflight, namespace)"),
        _values("model", "Model", f"label_values({of_namespace}, model)"),
    ]


def _values(name: str, label: str, query: str) -> dict[str, Any]:
    """A variable with the values of a label; `All` also matches what lacks the label."""
    return {
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "datasource": _DATASOURCE,
        "definition": query,
        "includeAll": True,
        "label": label,
        "multi": True,
        "name": name,
        "query": {"qryType": 5, "query": query, "refId": name},
        "refresh": 2,
        "regex": "/.+/",
        "sort": 1,
        "type": "query",
    }
