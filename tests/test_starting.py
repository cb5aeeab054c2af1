"""When .ci/cluster.py gives a candidate up that does not start, in time, and what it has of it."""

from __future__ import annotations

import argparse
import io
import json
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
OLD, NEW = "llm-gateway-check-1-zz", "llm-gateway-check-1-aa"


def pod(
    reason: str = "", restarts: int = 0, key: str = "initContainerStatuses", name: str = "gateway"
) -> dict[str, Any]:
    """A list with one pod, whose container waits for that reason, else runs."""
    state = {"waiting": {"reason": reason}} if reason else {"running": {}}
    status = {"name": name, "restartCount": restarts, "state": state}
    return {"items": [{"status": {"phase": "Pending", key: [status]}}]}


def evicted(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """A list with two pods of one Job, of which the second was made in place of the first."""
    made = []
    for pods, name, minute in ((new, NEW, 10), (old, OLD, 9)):
        time = f"2026-01-01T00:{minute:02}:00Z"
        made.append({**pods["items"][0], "metadata": {"name": name, "creationTimestamp": time}})
    return {"items": made}


def unprepared(phase: str = "Pending", scheduled: str = "True", ready: str = "False") -> Any:
    """A list with one pod, whose volumes are not there yet; else as is said."""
    conditions = {"PodScheduled": scheduled, "PodReadyToStartContainers": ready}
    pods = pod("PodInitializing")
    pods["items"][0]["status"] |= {
        "phase": phase,
        "conditions": [{"type": key, "status": value} for key, value in conditions.items()],
    }
    return pods


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

    def test_unprepared(self) -> None:
        """Without a volume, as one of a Secret that is missing, no container has a reason."""
        times, said = self.looks(unprepared())
        self.assertEqual(times, 36)
        self.assertIn("is a Secret missing?", str(said))
        for pods in (
            unprepared(phase="Succeeded"),
            unprepared(scheduled="False"),
            unprepared(ready="True"),
        ):
            self.start = self.starting.Start()
            self.assertEqual(self.looks(pods), (100, None), pods)
        for pods in (unprepared(), unprepared(ready="True"), unprepared()):
            self.assertIsNone(self.looks(pods, most=35)[1])

    def test_newest(self) -> None:
        """What an evicted pod had come to says nothing of the one in its place, which is anew."""
        for bad in (pod("ErrImagePull"), pod("CrashLoopBackOff", restarts=3), unprepared()):
            self.start = self.starting.Start()
            self.assertEqual(self.looks(evicted(bad, pod())), (100, None))
            self.assertIn("does not start", str(self.looks(evicted(pod(), bad))[1]))
        self.start = self.starting.Start()
        before = pod("ErrImagePull")
        before["items"][0]["metadata"] = {"name": OLD}
        self.assertIsNone(self.looks(before, most=11)[1])
        self.assertEqual(self.looks(evicted(pod(), pod("ErrImagePull")))[0], 12)


class LogTests(TestCase):
    """Whose log is asked for, and which."""

    def setUp(self) -> None:
        super().setUp()
        self.program = program("cluster")
        self.cluster = self.program.Cluster("llm-gateway", None)
        self.patch(self.cluster, "run", self.run_kubectl)
        self.asked: list[tuple[str, ...]] = []
        self.pods: dict[str, Any] = {"items": []}
        self.logs = {OLD: "a report of the evicted\n", NEW: "of the newest\n"}
        self.former = "config.yaml: line 3: unknown key\n"

    def run_kubectl(self, *words: str) -> str:
        """Answer as it would."""
        self.asked.append(words)
        if words[0] == "get":
            return json.dumps(self.pods)
        if "--previous" in words:
            return self.former
        return next(log for name, log in self.logs.items() if name in words)

    def test_newest(self) -> None:
        """It is the newest pod's, whatever their names and in whatever order they come."""
        two = evicted(pod(key="containerStatuses", restarts=1), pod())
        for items in (two["items"], two["items"][::-1]):
            self.pods = {"items": items}
            self.assertEqual(self.cluster.log("llm-gateway-check-1", "gateway"), "of the newest\n")
        selector = "batch.kubernetes.io/job-name=llm-gateway-check-1"
        self.assertEqual(self.asked[0][:4], ("get", "pods", "--selector", selector))
        self.assertEqual(self.asked[1], ("logs", NEW, "--container", "gateway", "--tail", "-1"))
        self.assertFalse([words for words in self.asked if "--previous" in words])

    def test_crashed(self) -> None:
        """Of a container that was started again, why it ended comes first; the same once only."""
        self.pods = evicted(pod(), pod(restarts=1))
        said = self.cluster.log("llm-gateway-check-1", "gateway")
        self.assertEqual(said, f"{self.former}--- started again:\nof the newest\n")
        self.assertIn(NEW, self.asked[-1])
        self.assertEqual(self.cluster.log("llm-gateway-check-1", "check"), "of the newest\n")
        self.former = "of the newest\n"
        self.assertEqual(self.cluster.log("llm-gateway-check-1", "gateway"), "of the newest\n")

    def test_none(self) -> None:
        """Where there is no pod, or no answer, that is said."""
        self.assertIn("has no pod", self.cluster.log("llm-gateway-check-1", "gateway"))
        self.patch(self.cluster, "run", mock.Mock(side_effect=self.program.Unanswered("away")))
        self.assertEqual(self.cluster.log("llm-gateway-check-1", "gateway"), "(away)\n")


class WaitTests(TestCase):
    """How long the Job is waited for, by a clock of its own."""

    def setUp(self) -> None:
        super().setUp()
        self.now = 1000.0
        self.program = program("cluster")
        self.patch(self.program, "time", mock.Mock(monotonic=lambda: self.now, sleep=self.takes))
        self.cluster = self.program.Cluster("llm-gateway", None)

    def takes(self, seconds: float) -> None:
        """Let time go by."""
        self.now += seconds

    def test_over(self) -> None:
        """When the time is over no question is begun, and no pause goes beyond; since it began."""
        for question, since, end in (
            (1.0, 1000.0, 1030.0),
            (20.0, 1000.0, 1040.0),
            (40.0, 1000.0, 1040.0),
            (1.0, 980.0, 1010.0),
        ):
            self.now = 1000.0
            begun: list[float] = []

            def run(*words: str, takes: float = question, begun: list[float] = begun) -> str:
                begun.append(self.now)
                self.takes(takes)
                return "{}"

            self.patch(self.cluster, "run", run)
            said = self.cluster.wait("llm-gateway-check-1", 30.0, 7.0, since)
            self.assertEqual(said, "not over after 30 s")
            self.assertLess(max(begun), since + 30.0)
            self.assertEqual(self.now, end)

    def test_begins_before(self) -> None:
        """The time in which the Job is made counts: Kubernetes counts from within it."""

        def create(tree: dict[str, Any]) -> dict[str, Any]:
            self.takes(45.0)
            return {"metadata": {"uid": "1"}}

        cluster = mock.Mock()
        cluster.create.side_effect = create
        cluster.wait.return_value = "Complete"
        cluster.log.return_value = "nothing"
        job = yaml.safe_load(JOB.read_text(encoding="utf-8"))
        chosen = argparse.Namespace(seconds=math.inf, pause=5.0, junit=None)
        with redirect_stdout(io.StringIO()):
            self.assertFalse(self.program.attempt(cluster, job, [], chosen))
        self.assertEqual(cluster.wait.call_args.args[-1], 1000.0)


class PatienceTests(TestCase):
    """The numbers of the Job, of the check within, of the program, and of the pipeline."""

    def setUp(self) -> None:
        super().setUp()
        self.starting = program("starting")
        self.patience = self.starting.patience
        self.job = yaml.safe_load(JOB.read_text(encoding="utf-8"))

    def test_in_time(self) -> None:
        """The check has ended before the program stops waiting, and that before the pod is gone."""
        (container,) = self.job["spec"]["template"]["spec"]["containers"]
        args = container["args"]
        deadline = int(args[args.index("--deadline") + 1])
        seconds = self.patience(self.job)
        self.assertGreaterEqual(seconds, START_SECONDS + deadline + ALL_CLEANUP_SECONDS)
        # One that is under way, that for the pod, and that for its log.
        questions = 3 * self.starting.KUBECTL_SECONDS
        self.assertLessEqual(seconds + questions, self.job["spec"]["activeDeadlineSeconds"])
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
            name = self.job["metadata"]["name"]
            cluster.wait.assert_called_once_with(name, seconds, 5.0, mock.ANY)

    def test_no_time(self) -> None:
        """A Job that nothing ends, or that leaves no time to ask for its log."""
        for spec in (None, {}, {"activeDeadlineSeconds": 180}, {"activeDeadlineSeconds": "1200"}):
            fault = self.assertRaises(ValueError, self.patience, {"spec": spec})
            self.assertIn("activeDeadlineSeconds", str(fault))
