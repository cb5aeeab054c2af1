"""The pipeline's programs: promotion with a real git, the cluster behind a kubectl of our own."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from twisted.trial.unittest import SynchronousTestCase

TOP = Path(__file__).resolve().parents[2]
OVERLAY = Path("k8s/overlays/example/kustomization.yaml")
IMAGE = "registry.example/gateway"
REPORT = '<?xml version="1.0" encoding="UTF-8"?>\n<testsuites>\n<testsuite/>\n</testsuites>\n'

# Answers as a cluster would that runs the Job at once; keeps what it was asked.
_KUBECTL = """\
#!{python}
import json, sys
from pathlib import Path
here = Path({directory!r})
words = sys.argv[1:]
with (here / "asked").open("a") as asked:
    asked.write(json.dumps(words) + "\\n")
if "create" in words:
    (here / "created.json").write_text(sys.stdin.read())
elif "deployment" in words:
    print((here / "deployment.json").read_text())
elif "get" in words:
    print((here / "job.json").read_text())
elif "logs" in words:
    print((here / "log").read_text(), end="")
"""


class PromotionTests(SynchronousTestCase):
    """.ci/promote.py."""

    def setUp(self) -> None:
        self.directory = Path(self._temporary())
        self.origin = self.directory / "origin.git"
        self.git("init", "--quiet", "--bare", str(self.origin), at=self.directory)
        self.work = self.directory / "work"
        self.git("clone", "--quiet", str(self.origin), str(self.work), at=self.directory)
        self.commit("first")

    def _temporary(self) -> str:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        return directory.name

    def git(self, *words: str, at: Path | None = None) -> str:
        """Run git; returns what it prints."""
        who = ["-c", "user.name=a", "-c", "user.email=a@example", "-c", "init.defaultBranch=main"]
        done = subprocess.run(
            ["git", *who, *words], cwd=at or self.work, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def commit(self, content: str) -> str:
        """A further commit on main; returns its hash."""
        file = self.work / OVERLAY
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text((TOP / OVERLAY).read_text())
        (self.work / "program").write_text(content)
        self.git("add", "--all")
        self.git("commit", "--quiet", "-m", content)
        self.git("push", "--quiet", "origin", "HEAD:main")
        return self.git("rev-parse", "HEAD")

    def promote(self, number: int, **environment: str) -> subprocess.CompletedProcess[str]:
        """Promote what is checked out, as an image with a digest of that number."""
        command = [sys.executable, str(TOP / ".ci" / "promote.py"), "--image", IMAGE]
        digest = f"sha256:{number:064x}"
        return subprocess.run(
            [*command, "--overlay", str(OVERLAY.parent), "--digest", digest],
            cwd=self.work,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    def deployed(self) -> tuple[dict[str, Any], str, list[str]]:
        """What is deployed: the image's entry, the program, and the commit's parents."""
        show = ("--git-dir", str(self.origin), "show")
        file = self.git(*show, f"deploy:{OVERLAY.as_posix()}")
        parents = self.git("--git-dir", str(self.origin), "log", "-1", "--format=%P", "deploy")
        (entry,) = yaml.safe_load(file)["images"]
        return entry, self.git(*show, "deploy:program"), parents.split()

    def test_promotions(self) -> None:
        """Each is the tested commit with the image in it, behind what was deployed before."""
        first = self.git("rev-parse", "HEAD")
        done = self.promote(1)
        self.assertEqual(done.returncode, 0, done.stderr)
        entry, program, parents = self.deployed()
        self.assertEqual((program, parents), ("first", [first]))
        self.assertEqual((entry["newName"], entry["newTag"]), (IMAGE, first))
        self.assertEqual(entry["digest"], f"sha256:{1:064x}")
        before = self.git("--git-dir", str(self.origin), "rev-parse", "deploy")
        second = self.commit("second")
        self.assertEqual(self.promote(2).returncode, 0)
        entry, program, parents = self.deployed()
        self.assertEqual((program, parents), ("second", [before, second]))
        self.assertEqual((entry["newTag"], entry["digest"]), (second, f"sha256:{2:064x}"))
        # Neither the checkout nor main has changed.
        self.assertEqual(self.git("status", "--porcelain"), "")
        self.assertEqual(self.git("rev-parse", "HEAD"), second)
        self.assertEqual(self.git("--git-dir", str(self.origin), "rev-parse", "main"), second)

    def test_older(self) -> None:
        """A run that was overtaken deploys nothing, nor does one that is repeated."""
        first = self.git("rev-parse", "HEAD")
        self.commit("second")
        self.assertEqual(self.promote(2).returncode, 0)
        self.assertEqual(self.promote(3).returncode, 0)
        self.git("checkout", "--quiet", first)
        done = self.promote(1)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("already", done.stdout)
        entry, program, _ = self.deployed()
        self.assertEqual((program, entry["digest"]), ("second", f"sha256:{2:064x}"))

    def test_back(self) -> None:
        """What docs/pipeline.md says of going back does so, and the next promotion goes on."""
        self.promote(1)
        self.commit("second")
        self.promote(2)
        self.git("fetch", "--quiet", "origin")
        self.git("checkout", "--quiet", "-b", "deploy", "origin/deploy")
        self.git("revert", "--no-edit", "-m", "1", "HEAD")
        self.git("push", "--quiet", "origin", "deploy")
        self.assertEqual(self.deployed()[1], "first")
        self.assertEqual(self.deployed()[0]["digest"], f"sha256:{1:064x}")
        self.git("checkout", "--quiet", "-")
        self.commit("third")
        self.assertEqual(self.promote(3).returncode, 0)
        self.assertEqual(self.deployed()[1], "third")

    def test_secret(self) -> None:
        """The password is in no message, also when pushing fails."""
        hook = self.origin / "hooks" / "update"
        hook.write_text("#!/bin/sh\necho no >&2\nexit 1\n")
        hook.chmod(hook.stat().st_mode | stat.S_IXUSR)
        done = self.promote(1, PUSH_TOKEN="sesame")
        self.assertEqual(done.returncode, 1)
        self.assertIn("not promoted", done.stderr)
        self.assertNotIn("sesame", done.stdout + done.stderr)


class ImageTests(SynchronousTestCase):
    """.ci/image, as far as it goes without a builder."""

    def test_usage(self) -> None:
        """Whoever asks for nothing it knows is told what there is."""
        for words in ([], ["build"], ["bake", "name"]):
            done = subprocess.run(
                [str(TOP / ".ci" / "image"), *words], capture_output=True, text=True, check=False
            )
            self.assertEqual(done.returncode, 2, words)
            self.assertIn(".ci/image push NAME", done.stderr)


class ClusterTests(SynchronousTestCase):
    """.ci/cluster.py, before a kubectl that answers as a cluster would."""

    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)
        kubectl = self.directory / "kubectl"
        kubectl.write_text(_KUBECTL.format(python=sys.executable, directory=str(self.directory)))
        kubectl.chmod(0o755)
        live = yaml.safe_load((TOP / "k8s" / "base" / "deployment.yaml").read_text())
        (self.directory / "deployment.json").write_text(json.dumps(live))
        (self.directory / "log").write_text(f"NAME OK\n{REPORT}")
        self.ends("Complete")

    def ends(self, kind: str) -> None:
        """How Jobs end from here on."""
        conditions = [{"type": kind, "status": "True"}] if kind else []
        (self.directory / "job.json").write_text(json.dumps({"status": {"conditions": conditions}}))

    def attempt(self, **environment: str) -> subprocess.CompletedProcess[str]:
        """Try an image."""
        command = [sys.executable, str(TOP / ".ci" / "cluster.py"), "--namespace", "gateways"]
        image = f"{IMAGE}:abc@sha256:{1:064x}"
        path = f"{self.directory}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            [
                *(*command, "--image", image, "--junit", str(self.directory / "check.xml")),
                *("--seconds", "0.3", "--pause", "0.05", "--", "--accept", "400,404"),
            ],
            env={**os.environ, "PATH": path, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    def asked(self) -> list[list[str]]:
        """The command lines of kubectl."""
        return [json.loads(line) for line in (self.directory / "asked").read_text().splitlines()]

    def test_passed(self) -> None:
        """A Job that passes: its report is there, and nothing of it stays in the cluster."""
        done = self.attempt()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual((self.directory / "check.xml").read_text(), REPORT)
        self.assertIn("NAME OK", done.stdout)
        made = json.loads((self.directory / "created.json").read_text())
        (check,) = made["spec"]["template"]["spec"]["containers"]
        self.assertEqual(check["args"][-2:], ["--accept", "400,404"])
        name = made["metadata"]["name"]
        deleted = [words for words in self.asked() if "delete" in words]
        self.assertEqual(len(deleted), 1)
        self.assertIn(name, deleted[0])
        self.assertTrue(all("gateways" in words for words in self.asked()))

    def test_failed(self) -> None:
        """A Job that fails, or does not end, or leaves no report, is a failure that says so."""
        for end, log, expected in (
            ("Failed", f"chat FAILED\n{REPORT}", "Failed"),
            ("", f"under way\n{REPORT}", "not over after 0.3 s"),
            ("Complete", "nothing\n", "no report"),
        ):
            self.ends(end)
            (self.directory / "log").write_text(log)
            done = self.attempt()
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(expected, done.stdout)
            self.assertIn("--- the gateway that was tried:", done.stdout)
            self.assertIn("delete", self.asked()[-1])

    def test_kubeconfig(self) -> None:
        """The kubeconfig is a file of its own while it is needed, and in no message."""
        done = self.attempt(CLUSTER_KUBECONFIG="sesame")
        self.assertEqual(done.returncode, 0, done.stderr)
        files = {words[words.index("--kubeconfig") + 1] for words in self.asked()}
        (file,) = files
        self.assertFalse(Path(file).exists())
        self.assertNotIn("sesame", done.stdout + done.stderr)

    def test_nothing_there(self) -> None:
        """Without a Deployment nothing is made, and the message says what could not be had."""
        (self.directory / "deployment.json").unlink()
        done = self.attempt()
        self.assertEqual(done.returncode, 2)
        self.assertIn("could not be tried", done.stderr)
        self.assertFalse((self.directory / "created.json").exists())
