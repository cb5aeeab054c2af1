"""Whether a candidate's pod starts, by what Kubernetes says of it: a part of .ci/cluster.py."""

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
_RESTARTS = 3
# Two questions to kubectl, the log and the state, and what clocks may differ.
_BEFORE_SECONDS = 120


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
        self._looks = 0

    def look(self, pods: Tree) -> str | None:
        """Look once more.

        Args:
            pods: a PodList.

        Returns:
            Why the pod will not start; None while it may.
        """
        waiting, crashed = [], []
        for status in _statuses(pods):
            name, restarts = status.get("name"), status.get("restartCount", 0)
            reason = status.get("state", {}).get("waiting", {}).get("reason")
            if reason in _REASONS:
                waiting.append(f"{name}: {reason}")
            if restarts >= _RESTARTS:
                crashed.append(f"{name}: ended {restarts} times, and was started again")
        self._looks = self._looks + 1 if waiting else 0
        found = crashed or (waiting if self._looks >= _LOOKS else [])
        return f"it does not start ({'; '.join(found)})" if found else None


def _statuses(pods: Tree) -> Iterator[Tree]:
    for pod in pods.get("items", []):
        for key in ("initContainerStatuses", "containerStatuses"):
            yield from pod.get("status", {}).get(key, [])
