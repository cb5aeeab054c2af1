"""What the status of a pod says, read for one question: does it serve, and if not, why not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

MOST_SEEN_CHARACTERS = 300
"""How much is said of a pod that does not serve."""

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]{0,63}")


class Stage(Enum):
    """Where a pod is on its way."""

    STARTING = auto()
    """It may become Ready."""
    READY = auto()
    """It serves."""
    LEAVING = auto()
    """It is being deleted."""
    ENDED = auto()
    """It has succeeded or failed, and will not start again."""


def stage(pod: Mapping[str, Any]) -> Stage:
    """Say where a pod is."""
    if pod["metadata"].get("deletionTimestamp") is not None:
        return Stage.LEAVING
    status = _mapping(pod.get("status"))
    phase = status.get("phase")
    if phase in ("Succeeded", "Failed"):
        return Stage.ENDED
    ready = _condition(status, "Ready")
    if phase == "Running" and ready.get("status") == "True":
        return Stage.READY
    return Stage.STARTING


def readiness(pod: Mapping[str, Any]) -> str:
    """Give what stays the same for as long as a pod's readiness does, and the pod itself.

    It has a time of the pod's node in it, to be compared and not read: nobody knows its clock.
    """
    changed = _condition(_mapping(pod.get("status")), "Ready").get("lastTransitionTime")
    return f"{pod['metadata'].get('uid')} {changed}"


def seen(pod: Mapping[str, Any]) -> str:
    """Say why a pod does not serve, in Kubernetes' own words: `Pending, ImagePullBackOff`."""
    status = _mapping(pod.get("status"))
    said = [_word(status.get("phase")) or "Pending", _word(status.get("reason"))]
    for container in _list(status.get("containerStatuses")):
        for state in _mapping(_mapping(container).get("state")).values():
            said.append(_word(_mapping(state).get("reason")))
    if len([one for one in said if one]) == 1:
        unmet = (_condition(status, name) for name in ("PodScheduled", "Ready"))
        said += [_word(one.get("reason")) for one in unmet if one.get("status") == "False"]
    return ", ".join(dict.fromkeys(one for one in said if one))[:MOST_SEEN_CHARACTERS]


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    for one in _list(status.get("conditions")):
        if _mapping(one).get("type") == kind:
            return _mapping(one)
    return {}


def _word(value: object) -> str:
    # The reasons are single words (CamelCase). What they go with, messages, may tell of registries
    # and nodes, which are nothing to a client.
    return value if isinstance(value, str) and _WORD.fullmatch(value) else ""


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
