"""What builds images here, behind programs of our own: what fails, hangs, or was left behind."""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.integration import container, image
from tests.integration.cache import Unavailable
from tests.integration.image import Image, Once, clear, storage_driver
from tests.integration.processes import wait_until


class BuilderTests(SynchronousTestCase):
    """tests/integration/image.py, of which test_image tries what goes well."""

    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)
        self.programs = self.directory / "programs"
        self.programs.mkdir()
        self.patch(os, "environ", {**os.environ, "PATH": f"{self.programs}:{os.environ['PATH']}"})

    def program(self, name: str, script: str) -> None:
        """Have a program of that name, which keeps what it was asked."""
        file = self.programs / name
        file.write_text(f'#!/bin/sh\necho "{name} $*" >>{self.directory}/asked\n{script}\n')
        file.chmod(0o755)

    def asked(self) -> list[str]:
        """What the programs were asked."""
        return (self.directory / "asked").read_text().splitlines()

    def test_no_layers(self) -> None:
        """Where the kernel refuses overlayfs, such as over another, layers are copied."""
        self.program("buildah", "exit 0")
        self.assertEqual(storage_driver(self.directory), "overlay")
        self.program("buildah", 'echo "overlay is not supported over overlayfs" >&2; exit 125')
        self.assertEqual(storage_driver(self.directory), "vfs")
        # Neither leaves a store that the other would find.
        self.assertEqual({one.name for one in self.directory.iterdir()}, {"programs", "asked"})

    def test_too_long(self) -> None:
        """What hangs is ended with its children, and is a failure like others."""
        pids = self.directory / "pids"
        self.program("hanging", f"sleep 600 & echo $! $$ >{pids}.part; mv {pids}.part {pids}; wait")
        # As long as it takes until there is a child.
        for seconds in (1.0, 10.0, 100.0):
            fault = self.assertRaises(AssertionError, image._run, ["hanging"], seconds)
            self.assertIn(f"hanging: over {seconds:g} s", str(fault))
            if pids.exists():
                break
        for pid in pids.read_text().split():
            wait_until(functools.partial(_ended, pid), 30, f"the end of {pid}")

    def test_once(self) -> None:
        """What cannot be built is not tried again by the next test, whichever way it failed."""
        for fault in (Unavailable("no mirror"), AssertionError("debootstrap: over 900 s")):
            tries: list[Exception] = []

            def built(fault: Exception = fault, tries: list[Exception] = tries) -> Image:
                tries.append(fault)
                raise fault

            once = Once(lambda made: None)
            self.patch(once, "_built", built)
            for _ in range(3):
                self.assertIs(self.assertRaises(type(fault), once.image), fault)
            self.assertEqual(len(tries), 1)

    def test_base(self) -> None:
        """It is made in namespaces of its own, of signed packages, from apt's first mirror."""
        self.program("apt-get", "echo trixie http://c/; echo bookworm http://a/ ; echo bookworm b")
        self.program("unshare", "exit 1")
        self.assertRaises(Unavailable, image._make_base, self.directory)
        command = self.asked()[-1].split()
        self.assertLessEqual(
            {"--mount", "--pid", "--kill-child", "--force-check-gpg"}, set(command)
        )
        self.assertEqual(command[-1], "http://a/")

    def test_left_behind(self) -> None:
        """Containers are ended, then images removed, then files, whatever fails of it."""
        place = self.directory / "place"
        (place / "runtime" / "image-crowd").mkdir(parents=True)
        (place / "layers" / "vfs").mkdir(parents=True)
        for name in ("runc", "buildah"):
            self.program(name, "exit 1")
        fault = self.assertRaises(AssertionError, clear, place)
        self.assertIn("rmi", str(fault))
        runc, containers, images = self.asked()
        self.assertTrue(runc.endswith("delete --force image-crowd"), runc)
        self.assertTrue(containers.endswith("--storage-driver vfs rm --all"), containers)
        self.assertTrue(images.endswith("--storage-driver vfs rmi --all --force"), images)
        self.assertFalse(place.exists())

    def test_places(self) -> None:
        """Of two at once each has a place of its own, and the next has the first again."""
        self.patch(os, "environ", {**os.environ, "XDG_CACHE_HOME": str(self.directory)})
        first, one = image._claimed()
        second, other = image._claimed()
        self.addCleanup(second.close)
        self.assertNotEqual(one, other)
        first.close()
        third, again = image._claimed()
        self.addCleanup(third.close)
        self.assertEqual(again, one)

    def test_no_limits(self) -> None:
        """A machine whose kernel sets no limits for us is told apart from an image that fails."""
        self.program(
            "runc", 'case "$*" in *run*) echo "cgroup.subtree_control: EBUSY"; exit 1;; esac'
        )
        config = {"User": "1:1", "Env": [], "Entrypoint": ["true"]}
        made = Image(self.directory, {"OCIv1": {"config": config}}, self.directory / "state")
        fault = self.assertRaises(Unavailable, container.usable, made, self.directory)
        self.assertIn("subtree_control", str(fault))


def _ended(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True
