"""When .ci/cluster.py gives a candidate up that does not start, and that it does so in time."""

from __future__ import annotations

import argparse
import io
import math
from contextlib import redirect_stdout
from typing import Any
from unittest import mock

import yaml

from tests.k8s.objects import JOB
from tests.support import TestCase
from tests.test_pipeline import jobs, program
from twisted_gateway.check.runner import ALL_CLEANUP_SECONDS

# For an image to be pulled, and a gateway to start.
START_SECONDS = 180


def pod(
    reason: str = "", restarts: int = 0, key: str = "initContainerStatuses", name: str = "gateway"
) -> dict[str, Any]:
    """A list with one pod, whose container waits for that reason, else runs."""
    state = {"waiting": {"reason": reason}} if reason else {"running": {}}
    status = {"name": name, "restartCount": restarts, "state": state}
    return {"items": [{"status": {"phase": "Pending", key: [status]}}]}


class StartTests(TestCase):
    """The judgement of one look after the other."""

    def setUp(self) -> None:
        super().setUp()
        self.starting = program("starting")
        self.start = self.starting.Start()

    def looks(self, pods: dict[str, Any], most: int = 100) -> tuple[int, str | None]:
        """Look until something is said, and no oftener than that; how often, and what."""
        for number in range(1, most + 1):
            if said := self.start.look(pods):
                return number, said
        return most, None

    def test_may_start(self) -> None:
        """No pod yet, or one that is made, that runs, or that has crashed twice."""
        seen: list[dict[str, Any]] = [{}, {"items": []}, {"items": [{}]}]
        seen += [{"items": [{"status": {"phase": "Pending"}}]}, pod(), pod(restarts=2)]
        seen += [pod("PodInitializing"), pod("ContainerCreating"), pod("CrashLoopBackOff", 2)]
        for pods in seen:
            self.assertEqual(self.looks(pods), (100, None), pods)

    def test_crashes(self) -> None:
        """The third crash is enough, whatever it does now, in either kind of container."""
        for pods in (
            pod("CrashLoopBackOff", restarts=3),
            pod(restarts=3),
            pod(restarts=4, key="containerStatuses"),
        ):
            times, said = self.looks(pods)
            self.assertEqual(times, 1)
            self.assertIn("gateway: ended", str(said))

    def test_waits(self) -> None:
        """What may be over in a moment is looked at again, and then given up by its reason."""
        for reason in ("ErrImagePull", "InvalidImageName", "CreateContainerConfigError"):
            self.start = self.starting.Start()
            times, said = self.looks(pod(reason))
            self.assertEqual(times, 12)
            self.assertEqual(said, f"it does not start (gateway: {reason})")

    def test_in_a_row(self) -> None:
        """A look at which it does not wait begins anew; another such reason goes on."""
        for pods in (pod("ErrImagePull"), pod(), pod("ErrImagePull")):
            self.assertIsNone(self.looks(pods, most=11)[1])
        self.assertIn("ImagePullBackOff", str(self.start.look(pod("ImagePullBackOff"))))


class PatienceTests(TestCase):
    """The numbers of the Job, of the check within, of the program, and of the pipeline."""

    def setUp(self) -> None:
        super().setUp()
        self.patience = program("starting").patience
        self.job = yaml.safe_load(JOB.read_text(encoding="utf-8"))

    def test_in_time(self) -> None:
        """The check has ended before the program stops waiting, and that before the pod is gone."""
        (container,) = self.job["spec"]["template"]["spec"]["containers"]
        args = container["args"]
        deadline = int(args[args.index("--deadline") + 1])
        seconds = self.patience(self.job)
        self.assertGreaterEqual(seconds, START_SECONDS + deadline + ALL_CLEANUP_SECONDS)
        self.assertLessEqual(seconds + 120, self.job["spec"]["activeDeadlineSeconds"])
        self.assertLess(seconds, 60 * jobs()["cluster"]["timeout-minutes"])

    def test_waited_for(self) -> None:
        """The program waits so long, or as much less as it is told."""
        for told, seconds in ((math.inf, self.patience(self.job)), (30.0, 30.0)):
            cluster = mock.Mock()
            cluster.create.return_value = {"metadata": {"uid": "1"}}
            cluster.wait.return_value = "Complete"
            cluster.log.return_value = "nothing"
            chosen = argparse.Namespace(seconds=told, pause=5.0, junit=None)
            with redirect_stdout(io.StringIO()):
                self.assertFalse(program("cluster").attempt(cluster, self.job, [], chosen))
            cluster.wait.assert_called_once_with(self.job["metadata"]["name"], seconds, 5.0)

    def test_no_time(self) -> None:
        """A Job that nothing ends, or that leaves no time to ask for its log."""
        for spec in (None, {}, {"activeDeadlineSeconds": 120}, {"activeDeadlineSeconds": "1200"}):
            fault = self.assertRaises(ValueError, self.patience, {"spec": spec})
            self.assertIn("activeDeadlineSeconds", str(fault))
