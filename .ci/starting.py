"""Whether a candidate's pod starts, by what Kubernetes says of it: a part of .ci/cluster.py.

A Job has a second pod where Kubernetes has evicted the first, which stays there, failed. The newest
is the one that counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Tree = dict[str, Any]
# kubelet tries each of these for ever. A crash has its own, and is told by the restarts.
_REASONS = {
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "ErrImagePull",
    "ImageInspectError",
    "ImagePullBackOff",
    "InvalidImageName",
    "RunContainerError",
}
# A registry may be away for a moment, and ConfigMaps are made after the Job.
_LOOKS = 12
# What a volume is of may be slow, as may be the network of a node that has just come.
_LOOKS_UNPREPARED = 36
_RESTARTS = 3
# What one question to kubectl may take.
KUBECTL_SECONDS = 60
# The question that is under way when the time is over, that for the pod, and that for its log.
_BEFORE_SECONDS = 3 * KUBECTL_SECONDS


def patience(job: Tree) -> float:
    """For how many seconds a Job can be waited for while its pod, and so its log, is still there.

    Kubernetes deletes the pod when `activeDeadlineSeconds` are over.

    Raises:
        ValueError: the Job has no such number, or one that leaves no time.
    """
    spec = job.get("spec")
    allowed = spec.get("activeDeadlineSeconds") if isinstance(spec, dict) else None
    if not isinstance(allowed, int) or allowed <= _BEFORE_SECONDS:
        raise ValueError(
            f"activeDeadlineSeconds of the Job is {allowed}: not above {_BEFORE_SECONDS}"
        )
    return float(allowed - _BEFORE_SECONDS)


class Start:
    """Looks at the pods of a Job, one after the other.

    No crash of a container that is restarted counts towards `backoffLimit`: a candidate that cannot
    start would be waited for as long as the Job may take.
    """

    def __init__(self) -> None:
        self._pod = ""
        self._looks = 0
        self._unprepared = 0

    def look(self, pods: Tree) -> str | None:
        """Look once more.

        Args:
            pods: a PodList.

        Returns:
            Why the pod will not start; None while it may.
        """
        pod = newest(pods) or {}
        if self._pod != (name := _of(pod, "name")):
            self._pod, self._looks, self._unprepared = name, 0, 0
        waiting, crashed = [], []
        for status in _statuses(pod):
            reason = status.get("state", {}).get("waiting", {}).get("reason")
            if reason in _REASONS:
                waiting.append(f"{status.get('name')}: {reason}")
            if (times := status.get("restartCount", 0)) >= _RESTARTS:
                crashed.append(f"{status.get('name')}: ended {times} times, and was started again")
        self._looks = self._looks + 1 if waiting else 0
        self._unprepared = self._unprepared + 1 if _is_unprepared(pod) else 0
        found = crashed or (waiting if self._looks >= _LOOKS else [])
        if self._unprepared >= _LOOKS_UNPREPARED:
            found.append("a volume or the network of the pod is not there: is a Secret missing?")
        return f"it does not start ({'; '.join(found)})" if found else None


def newest(pods: Tree) -> Tree | None:
    """The pod of a PodList that was made last; None where there is none."""
    # Times of Kubernetes are all of one form, in UTC, so they are in order as texts.
    items: list[Tree] = pods.get("items", [])
    return max(items, key=lambda pod: _of(pod, "creationTimestamp"), default=None)


def restarts(pod: Tree, container: str) -> int:
    """How often a container of a pod was started again."""
    return sum(
        int(one.get("restartCount", 0)) for one in _statuses(pod) if one.get("name") == container
    )


def _is_unprepared(pod: Tree) -> bool:
    """Whether it has a node, and no sandbox there: before that come volumes, after it images.

    https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-has-network
    """
    status = pod.get("status", {})
    conditions = {one.get("type"): one.get("status") for one in status.get("conditions", [])}
    return (
        status.get("phase") == "Pending"
        and conditions.get("PodScheduled") == "True"
        and conditions.get("PodReadyToStartContainers") == "False"
    )


def _statuses(pod: Tree) -> Iterator[Tree]:
    for key in ("initContainerStatuses", "containerStatuses"):
        yield from pod.get("status", {}).get(key, [])


def _of(pod: Tree, key: str) -> str:
    return str(pod.get("metadata", {}).get(key) or "")
