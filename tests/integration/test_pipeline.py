"""The pipeline's programs: promotion with a real git, what is pushed behind a buildah of ours."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from twisted.trial.unittest import SynchronousTestCase

from tests.k8s.objects import TOP
from tests.test_pipeline import program

OVERLAY = Path("k8s/overlays/example/kustomization.yaml")
IMAGE = "registry.example/gateway"

# Nothing of the user's own, and nobody to ask.
ENVIRON = {
    **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
}
SECONDS = 60.0
_NEW, _THERE = (f"sha256:{number:064x}" for number in (1, 2))


def run(
    *command: str | Path, cwd: Path = TOP, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; what is given is added to an environment without the user's git."""
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**ENVIRON, **(environ or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )


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
        done = run("git", *who, *words, cwd=at or self.work)
        self.assertEqual(done.returncode, 0, done.stderr)
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

    def promote(
        self, number: int, *options: str, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Promote what is checked out, as an image with a digest of that number."""
        return run(
            *(sys.executable, TOP / ".ci" / "promote.py", "--image", IMAGE),
            *("--overlay", OVERLAY.parent, "--digest", f"sha256:{number:064x}"),
            *options,
            cwd=self.work,
            environ=environment,
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

    def test_empty(self) -> None:
        """What a variable that nobody has set leaves is refused, and says which it may be."""
        for options, why in (
            (("--image", ""), "'' is no name of an image"),
            (("--digest", ""), "'' is no digest"),
            (("--overlay", ""), "is the overlay's variable set?"),
            # k8s/overlays/$OVERLAY
            (("--overlay", "k8s/overlays/"), "has no k8s/overlays/kustomization.yaml"),
        ):
            done = self.promote(1, *options)
            self.assertEqual(done.returncode, 1, options)
            self.assertRegex(done.stderr, f"^not promoted: .*{re.escape(why)}", options)
        self.assertEqual(self.git("--git-dir", str(self.origin), "branch", "--list", "deploy"), "")

    def test_helper(self) -> None:
        """git is given the password that there is, and no empty one."""
        helper = program("promote")._HELPER
        for token, user, expected in (
            ("sesame", "", ["username=token", "password=sesame"]),
            ("sesame", "ali", ["username=ali", "password=sesame"]),
            ("", "ali", []),
        ):
            done = run(
                *("sh", "-c", f"{helper.removeprefix('!')} get"),
                environ={"PUSH_TOKEN": token, "PUSH_USER": user},
            )
            self.assertEqual((done.returncode, done.stdout.split()), (0, expected))


# Keeps what it was asked, and with which of the secrets; has in its registry what is in `there`,
# and says of what is pushed the digest that is in `digest`.
_BUILDAH = """\
#!/bin/bash
echo "buildah $1 ${{REGISTRY_TOKEN:-}}${{REGISTRY_AUTH_FILE:+ with a login}}" >>{directory}/asked
case $1 in
pull) [ -e {directory}/there ] && echo id-of-what-is-there ;;
inspect) cat {directory}/there ;;
from) echo box ;;
push) while [ $# -gt 0 ]; do [ "$1" != --digestfile ] || cp {directory}/digest "$2"; shift; done ;;
esac
"""


class ImageTests(SynchronousTestCase):
    """.ci/image, as far as it goes without a builder."""

    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)
        self.output = self.directory / "output"
        for name in ("buildah", "syft"):
            file = self.directory / name
            file.write_text(_BUILDAH.format(directory=self.directory).replace("buildah", name))
            file.chmod(0o755)
        (self.directory / "digest").write_text(_NEW)

    def push(self, **environ: str) -> list[str]:
        """Push; returns what the programs were asked."""
        done = self.pushed(**environ)
        self.assertEqual(done.returncode, 0, done.stderr)
        return (self.directory / "asked").read_text().splitlines()

    def pushed(self, **environ: str) -> subprocess.CompletedProcess[str]:
        """Push; returns how that ended."""
        (self.directory / "asked").unlink(missing_ok=True)
        self.output.unlink(missing_ok=True)
        path = f"{self.directory}{os.pathsep}{os.environ['PATH']}"
        told = {"PATH": path, "GITHUB_OUTPUT": str(self.output), **environ}
        # A checkout may be another user's than the one who runs this.
        owner = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory"}
        done = run(
            *(TOP / ".ci" / "image", "push", "registry.example/gateway"),
            environ={**told, **owner, "GIT_CONFIG_VALUE_0": "*"},
        )
        self.assertNotIn("sesame", done.stdout + done.stderr)
        return done

    def test_usage(self) -> None:
        """Whoever asks for nothing it knows is told what there is."""
        for words in ([], ["build"], ["bake", "name"]):
            done = run(TOP / ".ci" / "image", *words)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn(".ci/image push NAME", done.stderr)

    def test_secret(self) -> None:
        """The scanner runs before there is a login, and no program is given the password."""
        asked = self.push(REGISTRY_USER="somebody", REGISTRY_TOKEN="sesame")
        (scanner,) = (number for number, line in enumerate(asked) if line.startswith("syft"))
        (login,) = (number for number, line in enumerate(asked) if line.startswith("buildah login"))
        self.assertLess(scanner, login)
        for line in asked[:login]:
            self.assertNotIn("with a login", line)
        self.assertNotIn("sesame", " ".join(asked))
        self.assertIn("buildah push  with a login", asked[login:])

    def test_a_tag_stays(self) -> None:
        """What is in the registry by that name is not replaced, and it is what goes on."""
        self.assertEqual(sum(line.startswith("buildah push") for line in self.push()), 3)
        self.assertEqual(self.output.read_text(), f"digest={_NEW}\n")
        (self.directory / "there").write_text(f"{_THERE}\n")
        asked = self.push()
        # The one into a file, for the bill.
        self.assertEqual(sum(line.startswith("buildah push") for line in asked), 1)
        self.assertEqual(self.output.read_text(), f"digest={_THERE}\n")

    def test_missing(self) -> None:
        """A program that is not there is named, with where to have it, before anything is made."""
        # Of the system's own only what .ci/image says before it looks.
        for name in ("bash", "dirname"):
            (self.directory / name).symlink_to(shutil.which(name) or name)
        for gone, what in (("syft", "push"), ("buildah", "push"), ("buildah", "build")):
            (self.directory / gone).unlink(missing_ok=True)
            done = run(
                *(self.directory / "bash", TOP / ".ci" / "image", what, "registry.example/gateway"),
                environ={"PATH": str(self.directory)},
            )
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(f"there is no {gone} (", done.stderr)
            self.assertIn("install", done.stderr)
        self.assertFalse((self.directory / "asked").exists())

    def test_no_digest(self) -> None:
        """An image that is in the registry, and nobody says by which digest, goes no further."""
        for name in ("digest", "there"):
            for said in ("", "\n", "sha256:\n", "latest\n", "<no value>\n"):
                (self.directory / name).write_text(said)
                done = self.pushed()
                self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
                self.assertIn("buildah says no digest of it", done.stderr)
                self.assertFalse(self.output.exists())
        # What is there is left alone: the one push is into a file, for the bill.
        asked = (self.directory / "asked").read_text().splitlines()
        self.assertEqual(sum(line.startswith("buildah push") for line in asked), 1)

    def test_empty(self) -> None:
        """What a variable that nobody has set leaves is refused, before anything is made."""
        for what in ("build", "push"):
            for name in ("", " ", "registry.example/", "/gateway", "a/b:tag", "a/b@c"):
                path = f"{self.directory}{os.pathsep}{os.environ['PATH']}"
                done = run(TOP / ".ci" / "image", what, name, environ={"PATH": path})
                self.assertEqual(done.returncode, 1, name)
                self.assertIn(f"'{name}' is no name of an image", done.stderr)
        self.assertFalse((self.directory / "asked").exists())
        done = self.pushed(REGISTRY_USER="", REGISTRY_TOKEN="sesame")
        self.assertEqual(done.returncode, 1)
        self.assertIn("a REGISTRY_TOKEN and no REGISTRY_USER", done.stderr)
        # Both empty are no login at all.
        self.push(REGISTRY_USER="", REGISTRY_TOKEN="")
        for words in ([], [""], ["bash", ""]):
            done = run(TOP / ".ci" / "packages", *words)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn("a name is empty", done.stderr)
