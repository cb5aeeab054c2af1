"""Whether what an adapter needs beyond the gateway's own requirements is installed."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

WORKFLOW = ("grpc", "temporalio")
"""The packages of the extra `workflow`."""


def missing(packages: Sequence[str]) -> list[str]:
    """Give those packages that are not installed; none is imported."""
    return [name for name in packages if find_spec(name) is None]
