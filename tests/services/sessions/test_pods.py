from __future__ import annotations

from typing import Any

from tests.support import TestCase
from twisted_gateway.services.sessions.names import (
    MOST_CHARACTERS,
    claim_name,
    pod_name,
    session_id,
)
from twisted_gateway.services.sessions.pods import (
    MOST_SEEN_CHARACTERS,
    Stage,
    readiness,
    seen,
    stage,
)


def pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "status": status}


class PodsTests(TestCase):
    """What the status of a pod says."""

    def test_stage(self) -> None:
        """A pod serves when it runs and is Ready, and not when it is being deleted."""
        ready = [{"type": "ContainersReady", "status": "True"}, {"type": "Ready", "status": "True"}]
        unready = [{"type": "Ready", "status": "False"}]
        for tree, expected in (
            (pod(), Stage.STARTING),
            (pod(phase="Pending"), Stage.STARTING),
            (pod(phase="Running"), Stage.STARTING),
            (pod(phase="Running", conditions=unready), Stage.STARTING),
            (pod(phase="Running", conditions=ready), Stage.READY),
            (pod(phase="Failed", conditions=ready), Stage.ENDED),
            (pod(phase="Succeeded"), Stage.ENDED),
            (pod(phase="Unknown"), Stage.STARTING),
            (pod(phase="Pending", conditions=ready), Stage.STARTING),
            ({"metadata": {}, "status": None}, Stage.STARTING),
        ):
            self.assertIs(stage(tree), expected, tree)
        leaving = pod(phase="Running", conditions=ready)
        leaving["metadata"]["deletionTimestamp"] = "x"
        self.assertIs(stage(leaving), Stage.LEAVING)

    def test_seen(self) -> None:
        """Why it does not serve is said in Kubernetes' words, without its sentences."""
        waiting = {"state": {"waiting": {"reason": "ErrImagePull", "message": "secret.example"}}}
        conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
        met = [{"type": "PodScheduled", "status": "True", "reason": "Scheduled"}]
        unready = [{"type": "Ready", "status": "False", "reason": "ContainersNotReady"}]
        for tree, expected in (
            (pod(), "Pending"),
            (pod(phase="Pending", containerStatuses=[waiting]), "Pending, ErrImagePull"),
            (pod(phase="Pending", conditions=conditions), "Pending, Unschedulable"),
            (pod(phase="Running", conditions=unready), "Running, ContainersNotReady"),
            (pod(phase="Pending", conditions=met), "Pending"),
            (pod(phase="Failed", reason="Evicted"), "Failed, Evicted"),
            (pod(phase="Pending", reason="a sentence <b>"), "Pending"),
            (pod(phase=5, conditions="x", containerStatuses=[5, {"state": 5}]), "Pending"),
        ):
            self.assertEqual(seen(tree), expected)

    def test_seen_is_bounded(self) -> None:
        """However much there is to say."""
        states = [{"state": {"waiting": {"reason": f"{'R' * 60}{number}"}}} for number in range(99)]
        said = seen(pod(phase="Pending", containerStatuses=states))
        self.assertEqual(len(said), MOST_SEEN_CHARACTERS)

    def test_readiness(self) -> None:
        """It is the same until the readiness changes, or the pod is another."""
        told = {"phase": "Running", "conditions": [{"type": "Ready", "lastTransitionTime": "a"}]}
        first = pod(**told)
        changed = pod(phase="Running", conditions=[{"type": "Ready", "lastTransitionTime": "b"}])
        another = pod(**told)
        another["metadata"]["uid"] = "another"
        longer = pod(**told, reason="x")
        self.assertEqual(readiness(first), readiness(longer))
        bare: dict[str, Any] = {"metadata": {}}
        keys = {readiness(one) for one in (first, changed, another, pod(), bare)}
        self.assertEqual(len(keys), 4)

    def test_names(self) -> None:
        """The longest id makes names of 63 characters at most."""
        longest = session_id("x" * MOST_CHARACTERS)
        self.assertEqual(len(claim_name(longest)), 63)
        self.assertLessEqual(len(pod_name(longest)), 63)
