"""The series of a metric that a value of one label has made."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram


def forget(family: Counter | Gauge | Histogram, label: str, value: str) -> None:
    """Remove every series of `family` in which `label` has this value."""
    # `remove` wants every label; `remove_by_labels` is younger than the oldest release supported.
    samples = [sample.labels for metric in family.collect() for sample in metric.samples]
    mine = [labels for labels in samples if labels[label] == value]
    for values in {tuple(v for k, v in labels.items() if k != "le") for labels in mine}:
        family.remove(*values)
