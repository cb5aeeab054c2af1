"""What the suite makes once and keeps."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Barrier

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.cache import Unavailable, directory, made
from tests.integration.case import together


class CacheTests(SynchronousTestCase):
    """A part is there whole, or not at all."""

    def setUp(self) -> None:
        self.home = Path(self.mktemp()).absolute()
        self.patch(os, "environ", {**os.environ, "XDG_CACHE_HOME": str(self.home)})

    def test_made_once(self) -> None:
        """Of several that want it at once one makes it, and it is kept."""
        at_once = Barrier(4)
        makes: list[Path] = []

        def make(path: Path) -> None:
            makes.append(path)
            (path / "file").write_text("whole")

        def want(number: int) -> Path:
            at_once.wait(10)
            return made("part-1", make)

        for future in together(4, want):
            self.assertEqual((future.result() / "file").read_text(), "whole")
        self.assertEqual(made("part-1", make), directory() / "part-1")
        self.assertEqual(len(makes), 1)

    def test_failure_leaves_nothing(self) -> None:
        """What could not be made whole is not there, and is made anew by the next who wants it."""

        def fail(path: Path) -> None:
            (path / "half").write_text("half")
            raise Unavailable("no")

        self.assertRaises(Unavailable, made, "part-1", fail)
        self.assertEqual([path.name for path in directory().iterdir()], [".part-1.lock"])
        self.assertEqual(list(made("part-1", lambda path: None).iterdir()), [])

    def test_remains_of_a_killed_one(self) -> None:
        """What a killed process has left half done is removed by the next."""
        left = directory() / ".part-1.part-xyz"
        left.mkdir(parents=True)
        made("part-1", lambda path: None)
        self.assertFalse(left.exists())

    def test_unwritable(self) -> None:
        """A cache that cannot be written says so."""
        self.home.write_text("a file, where the directory should be")
        self.assertRaises(Unavailable, made, "part-1", lambda path: None)
