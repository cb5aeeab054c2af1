"""The Job that runs the check in a cluster."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from tests.support import TestCase
from twisted_gateway.check import commandline, settings
from twisted_gateway.check.runner import ALL_CLEANUP_SECONDS
from twisted_gateway.console.values import MAX_MODEL_CHARS

FILE = Path(__file__).parents[2] / "k8s" / "integration-test-job.yaml"


class JobTests(TestCase):
    """k8s/integration-test-job.yaml."""

    def setUp(self) -> None:
        super().setUp()
        self.text = FILE.read_text(encoding="utf-8")
        self.job = yaml.safe_load(self.text)
        self.pod = self.job["spec"]["template"]["spec"]
        (self.container,) = self.pod["containers"]

    def options(self, arguments: list[str]) -> Any:
        self.assertEqual(self.container["command"], ["llm-gateway-check"])
        return commandline.options(arguments)

    def test_command(self) -> None:
        """The check understands what it is given, and writes its report into the log."""
        chosen = self.options(self.container["args"])
        self.assertEqual(chosen.junit, settings.STANDARD_OUTPUT)
        self.assertNotEqual(chosen.url, chosen.admin)

    def test_what_is_left_out(self) -> None:
        """So it does what stands there to be taken in."""
        more = re.findall(r"^ +# - (--\S+)$", self.text, re.M)
        self.assertGreater(len(more), 5)
        chosen = self.options([*self.container["args"], *more])
        self.assertIn("reasoning", chosen.models)
        self.assertLess(max(map(len, chosen.models)), MAX_MODEL_CHARS)
        mounted = re.search(r"mountPath: (\S+)", self.text)
        assert mounted is not None
        self.assertEqual(str(chosen.client_secret_file.parent), mounted[1])

    def test_ends_by_itself(self) -> None:
        """It reports before Kubernetes deletes the pod, and has time to clean up when it must."""
        chosen = self.options(self.container["args"])
        least = chosen.deadline + ALL_CLEANUP_SECONDS
        self.assertGreater(self.job["spec"]["activeDeadlineSeconds"], least + 60)
        self.assertGreater(self.pod["terminationGracePeriodSeconds"], ALL_CLEANUP_SECONDS + 10)
        self.assertGreater(chosen.deadline, chosen.wait)

    def test_tries_once(self) -> None:
        """A failure is not hidden by a second try, and the Job does not stay."""
        self.assertEqual(self.job["spec"]["backoffLimit"], 0)
        self.assertEqual(self.pod["restartPolicy"], "Never")
        self.assertGreater(self.job["spec"]["ttlSecondsAfterFinished"], 0)

    def test_is_no_gateway(self) -> None:
        """No Service takes its pod for a gateway."""
        labels = self.job["spec"]["template"]["metadata"]["labels"]
        self.assertEqual(labels, {"app.kubernetes.io/name": "llm-gateway-check"})
