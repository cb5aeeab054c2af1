"""The Dockerfile and its locks agree with setup.cfg, and with what a cluster asks of an image."""

from __future__ import annotations

import configparser
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.integration import image
from tests.support import TestCase
from tests.test_docs import TOP
from tests.test_docs import read as text

LOCKS = TOP / "docker"
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)((?: ;.*)?) \\$", re.MULTILINE)


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, comments and line ends taken out."""
    lines = [line for line in text("Dockerfile").splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [
        (word, rest.strip())
        for word, _, rest in (line.partition(" ") for line in joined.splitlines())
        if word
    ]


def locked(name: str) -> dict[str, str]:
    """The releases of a lock, by the packages' names."""
    return {canonicalize_name(one[1]): one[2] for one in _PINNED.finditer(text(f"docker/{name}"))}


def wanted(*extras: str) -> list[Requirement]:
    """What setup.cfg asks for, with these extras."""
    setup = configparser.ConfigParser()
    setup.read(TOP / "setup.cfg", encoding="utf-8")
    sections = [setup["options"]["install_requires"]]
    sections += [setup["options.extras_require"][extra] for extra in extras]
    return [Requirement(line) for one in sections for line in one.splitlines() if line.strip()]


def unmet(requirements: Iterable[Requirement], lock: dict[str, str]) -> list[str]:
    """The requirements that a lock does not satisfy."""
    releases = [(one, lock.get(canonicalize_name(one.name))) for one in requirements]
    return [
        str(one)
        for one, release in releases
        if release is None or not one.specifier.contains(release)
    ]


class LockTests(TestCase):
    """docker/*.txt; what they must hold beyond setup.cfg, the build itself finds out."""

    def test_they_satisfy_setup_cfg(self) -> None:
        """Every requirement has a release, within its bounds; docs/image.md says how to lock."""
        self.assertEqual(unmet(wanted(), locked("requirements.txt")), [])
        self.assertEqual(unmet(wanted("workflow"), locked("requirements-workflow.txt")), [])
        build = tomllib.loads(text("pyproject.toml"))["build-system"]["requires"]
        self.assertEqual(unmet(map(Requirement, build), locked("build.txt")), [])

    def test_a_bound_that_moved_is_noticed(self) -> None:
        """A release below the bound, and a package that is not there, are unmet."""
        lock = {"twisted": "24.7.0", "treq": "24.9.1"}
        asked = [Requirement(one) for one in ("twisted[tls] >= 24.11", "treq >= 24.9.1", "klein")]
        self.assertEqual(unmet(asked, lock), ["twisted[tls]>=24.11", "klein"])

    def test_they_differ_by_the_extra_alone(self) -> None:
        """Both images have the same releases of what both have."""
        small, whole = locked("requirements.txt"), locked("requirements-workflow.txt")
        self.assertEqual({name: whole.get(name) for name in small}, small)
        self.assertLessEqual({"grpcio", "temporalio"}, whole.keys() - small.keys())

    def test_everything_has_a_hash(self) -> None:
        """Nothing in them is taken on trust, and no index or address is named."""
        for path in sorted(LOCKS.glob("*.txt")):
            blocks = re.split(r"\n(?=\S)", path.read_text(encoding="utf-8"))
            for block in blocks:
                if not block.startswith("#"):
                    self.assertRegex(
                        block, r"^\S+==.*\\\n    --hash=sha256:[0-9a-f]{64}", path.name
                    )
            self.assertNotIn("://", path.read_text(encoding="utf-8"))


class DockerfileTests(TestCase):
    """What can be seen without building; tests/integration/test_image.py builds."""

    def test_every_base_is_the_one_that_can_be_pinned(self) -> None:
        """All stages are of BASE, whose default has a version and is not `latest`."""
        bases = [rest.split()[0] for word, rest in instructions() if word == "FROM"]
        self.assertEqual(set(bases), {"${BASE}"})
        (default,) = (
            rest for word, rest in instructions() if word == "ARG" and rest.startswith("BASE=")
        )
        self.assertRegex(default, r"^BASE=docker\.io/library/python:3\.\d+-slim-[a-z]+$")

    def test_the_user_is_a_number(self) -> None:
        """`runAsNonRoot` is checked by number only; nothing runs as root after it."""
        words = [word for word, _ in instructions()]
        users = [rest for word, rest in instructions() if word == "USER"]
        self.assertEqual(users, ["10001:10001"])
        self.assertNotIn("RUN", words[words.index("USER") :])

    def test_locks_are_held_to(self) -> None:
        """Every install is by hash, or of what the build itself has made."""
        for word, rest in instructions():
            if word == "RUN":
                for command in rest.split("&&"):
                    if re.search(r"\bpip\b.* (install|wheel) ", command):
                        self.assertRegex(command, r"--require-hashes|--no-index")

    def test_files_keep_their_times(self) -> None:
        """Of one time, the plugins are as old as twistd's cache of them, which is then not used."""
        lines = [
            line for line in text(".ci/image").splitlines() if not line.strip().startswith("#")
        ]
        self.assertIn("buildah build", "\n".join(lines))
        self.assertNotIn("--timestamp", "\n".join(lines))
        self.assertIn("SOURCE_DATE_EPOCH=", "\n".join(lines))
        self.assertIn("touch -d @0 ", text("Dockerfile"))

    def test_a_base_by_hand(self) -> None:
        """The commands of docs/image.md make the base whose sizes that page has: the suite's."""
        page = text("docs/image.md")
        (packages,) = re.findall(r"(?m)^ +debootstrap .*--include=(\S+) ", page)
        self.assertEqual(packages, image.PACKAGES)
        (removed,) = re.findall(r"(?m)^ +rm -rf ((?:base/\S+/\* )+)", page)
        directories = {one.removeprefix("base/").removesuffix("/*") for one in removed.split()}
        self.assertEqual(directories, set(image.NOT_IN_A_BASE))

    def test_what_a_second_build_has_otherwise(self) -> None:
        """Other bytes, more files and fewer; links are left aside."""
        first, second = Path(self.mktemp()), Path(self.mktemp())
        for root, files in (
            (first, {"a": "1", "b": "1", "c/d": "1"}),
            (second, {"a": "1", "b": "2"}),
        ):
            for name, content in files.items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content, encoding="utf-8")
        (second / "e").write_text("", encoding="utf-8")
        (second / "link").symlink_to("nowhere")
        self.assertEqual(image.differing(first, second), ["b", "c/d", "e"])

    def test_the_context_is_named_file_by_file(self) -> None:
        """Of the checkout the builder is sent what .dockerignore names, all of which is there."""
        lines = [line for line in text(".dockerignore").splitlines() if line and line[0] != "#"]
        self.assertEqual(lines[0], "*")
        for line in lines[1:]:
            if line.startswith("!"):
                self.assertTrue((TOP / line[1:]).exists(), line)
        self.assertNotIn("!.", "\n".join(lines))
