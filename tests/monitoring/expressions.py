"""The PromQL of dashboard and rules, and what it speaks of."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from k8s.monitoring.make import DASHBOARD, RULES

CASES = sorted(Path(__file__).parent.glob("*_test.yaml"))
"""The files of cases for promtool."""

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_SELECTION = re.compile(r'\{((?:"(?:[^"\\]|\\.)*"|[^"}])*)\}')
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*("(?:[^"\\]|\\.)*")')
_NAME = re.compile(r"(?<![\w.:$])[a-zA-Z_:][\w:]*(?!\w*\s*\()")
_WORDS = {"and", "or", "unless", "offset", "bool", "group_left", "group_right", "Inf", "NaN"}


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    tree: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return tree


def panels() -> list[dict[str, Any]]:
    """The dashboard's panels, without the rows."""
    return [one for one in dashboard()["panels"] if one["type"] != "row"]


def of_dashboard() -> Iterator[tuple[str, str]]:
    """Each expression of the dashboard, after a name for messages."""
    for panel in panels():
        for target in panel["targets"]:
            yield f"{panel['id']} {panel['title']} {target['refId']}", target["expr"]
    for annotation in dashboard()["annotations"]["list"]:
        yield f"annotation {annotation['name']}", annotation["expr"]


def groups() -> list[dict[str, Any]]:
    """The groups of rules."""
    tree: list[dict[str, Any]] = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return tree


def rules() -> list[dict[str, Any]]:
    """All rules."""
    return [rule for group in groups() for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    """The alerting rules by their names."""
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def of_rules() -> Iterator[tuple[str, str]]:
    """Each expression of the rules, after the rule's name."""
    for rule in rules():
        yield rule.get("alert") or rule["record"], rule["expr"]


def names(expr: str) -> set[str]:
    """The metrics that an expression reads."""
    bare = _STRING.sub('""', expr)
    bare = re.sub(r"\[[^]]*\]", "", _SELECTION.sub("", _GROUPING.sub("", bare)))
    return {name for name in _NAME.findall(bare) if name not in _WORDS}


def labels(expr: str) -> set[str]:
    """The labels that an expression selects or groups by."""
    grouped = {
        name.strip() for listed in _GROUPING.findall(expr) for name in listed.split(",") if name
    }
    return grouped | {label for label, _, _ in _matchers(expr)}


def values(expr: str, label: str) -> set[str]:
    """The values that an expression compares a label with; of `a|b` in a pattern, each."""
    return {
        value
        for name, operator, text in _matchers(expr)
        if name == label
        for value in (text[1:-1].split("|") if "~" in operator else [text[1:-1]])
    }


def _matchers(expr: str) -> Iterator[tuple[str, str, str]]:
    for selection in _SELECTION.findall(expr):
        yield from _MATCHER.findall(selection)
