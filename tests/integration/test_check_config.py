""".ci/check_config.py: what an overlay will have in force, with kubectl and --check itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import yaml
from twisted.trial.unittest import SynchronousTestCase

from tests.integration.cache import Unavailable
from tests.integration.case import unavailable
from tests.integration.manifests import program
from tests.integration.test_pipeline import OVERLAY, run
from tests.k8s import own
from tests.k8s.objects import TOP


class CheckConfigTests(SynchronousTestCase):
    """.ci/check_config.py, with kubectl and the gateway's own --check."""

    def setUp(self) -> None:
        try:
            kubectl = program("kubectl")
        except Unavailable as fault:
            raise unavailable(fault) from None
        self.path = f"{Path(kubectl).parent}{os.pathsep}{os.environ['PATH']}"

    def check(self, overlay: Path, **environ: str) -> subprocess.CompletedProcess[str]:
        """Check an overlay."""
        return run(
            *(sys.executable, TOP / ".ci" / "check_config.py", overlay),
            environ={"PATH": self.path, **environ},
        )

    def test_in_force(self) -> None:
        """What the pod will have is listed, whatever variables there are here."""
        mine = own.mine(Path(self.mktemp()).resolve())
        for environ in ({}, {"ADMISSION_OBSERVE_MODELS": "", "ADMISSION_MAX_INFLIGHT": "3"}):
            done = self.check(mine.path, **environ)
            self.assertEqual(done.returncode, 0, done.stderr)
            model = yaml.safe_load(done.stdout)["models"]["assistant"]
            self.assertEqual((model["engine"], model["admission"]["maxInflight"]), ("vllm", 8))
            for key in ("engine-key", "peer-token"):
                self.assertIn(f"the Secret llm-gateway has to have the key {key}\n", done.stderr)
            self.assertNotIn("made-up", done.stdout + done.stderr)

    def test_faulty(self) -> None:
        """A fault is said as --check says it, by the file's name and line alone."""
        mine = own.mine(Path(self.mktemp()).resolve())
        own.edit(mine.path, {"config.yaml": (("    engine: vllm", "    engin: vllm"),)})
        done = self.check(mine.path)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("engin", done.stderr)
        self.assertRegex(done.stderr, r"(?m)^config\.yaml: line \d+: ")
        self.assertNotIn("/tmp/", done.stderr)

    def test_refused(self) -> None:
        """No overlay, and no kubectl."""
        done = self.check(Path(self.mktemp()))
        self.assertEqual(done.returncode, 2)
        self.assertNotIn("Traceback", done.stderr)
        done = self.check(TOP / OVERLAY.parent, PATH="/nonexistent")
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no kubectl", done.stderr)
