"""The container image, built from the Dockerfile as it stands: `python -m tests.integration.image`.

The suite must run where no registry of images can be reached. So the base is not the Dockerfile's
default but a Debian with Python, made by debootstrap, of the mirror that apt has here for the same
release, else of Debian's own; everything above it is as it will be anywhere else. buildah builds,
in chroots, which needs root and no engine.
"""

from __future__ import annotations

import argparse
import ast
import atexit
import fcntl
import filecmp
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.integration import cache
from tests.integration.cache import Unavailable
from tests.k8s.objects import TOP
from twisted_gateway import __version__

BASE = "localhost/debian-python"
# Another content needs another name.
_BASE_DIRECTORY = "image-base-bookworm-1"
_RELEASE = "bookworm"
PACKAGES = "ca-certificates,python3,python3-venv"
# What the official slim images leave out too; docs/image.md has the same.
NOT_IN_A_BASE = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man")
_CA = "/etc/ssl/certs/ca-certificates.crt"
_BUILD_SECONDS = 900.0
# So many runs at once.
_PLACES = 4


class Image:
    """A built image.

    Attributes:
        root: its file system.
        config: the `config` of its OCI configuration: `User`, `Env`, `Entrypoint`, `Labels`.
        history: what made its layers.
        state: where the runtime keeps what it knows of containers of this image.
    """

    def __init__(self, root: Path, inspected: dict[str, Any], state: Path) -> None:
        self.root = root
        self.state = state
        self.config: dict[str, Any] = inspected["OCIv1"]["config"]
        self.history: list[dict[str, Any]] = inspected["OCIv1"].get("history", [])


class Builder:
    """buildah with a store of its own, of about a gigabyte, in the user's cache.

    It is in one of few places, each for one process at a time. So what a run leaves that is killed,
    containers and mounts included, is removed by the next one, there and nowhere else.

    Raises:
        Unavailable: this is not root on a Linux with buildah and debootstrap, or no place is free.
        AssertionError: what was left cannot be removed.
    """

    def __init__(self) -> None:
        if os.geteuid() != 0:
            raise Unavailable("an image is built by root only")
        for program in ("buildah", "debootstrap"):
            if shutil.which(program) is None:
                raise Unavailable(f"there is no {program} (apt-get install {program})")
        self._lock, self._directory = _claimed()
        self._state = self._directory / "runtime"
        if self._directory.exists():
            clear(self._directory)
        self._directory.mkdir()
        self._store = _options(self._directory, storage_driver(self._directory))

    def base(self) -> None:
        """Have the base in the store.

        Raises:
            Unavailable: debootstrap cannot make it, or nothing can be run in it here: that takes
                mounts, which not every root may make.
        """
        tree = cache.made(_BASE_DIRECTORY, _make_base) / "base.tar"
        try:
            container = self._buildah("from", "scratch").strip()
            # A tarball is unpacked where it is added.
            self._buildah("add", "--quiet", container, str(tree), "/")
            self._buildah("run", "--isolation", "chroot", container, "true")
            self._buildah("commit", "--quiet", "--rm", container, BASE)
        except AssertionError as fault:
            raise Unavailable(str(fault)) from None

    def build(self, extras: str, name: str) -> Image:
        """Build the image with these extras, which may be none, from the checkout.

        Raises:
            AssertionError: it cannot be built; the message ends with the builder's last words.
        """
        with _secrets() as secrets:
            arguments = {"BASE": BASE, "EXTRAS": extras, "VERSION": __version__, "REVISION": "test"}
            self._buildah(
                *("build", "--isolation", "chroot", "--pull-never", "--layers=false"),
                *secrets,
                *(f"--build-arg={key}={value}" for key, value in arguments.items()),
                *("--tag", name, str(TOP)),
            )
        inspected = json.loads(self._buildah("inspect", "--type", "image", name))
        container = self._buildah("from", "--pull-never", name).strip()
        return Image(Path(self._buildah("mount", container).strip()), inspected, self._state)

    def compressed_bytes(self, name: str) -> list[int]:
        """The sizes of the layers of an image as a registry has them, the base's first."""
        target = self._directory / "pushed"
        self._buildah("push", "--quiet", name, f"oci:{target}:it")
        index = json.loads((target / "index.json").read_text())
        digest = index["manifests"][0]["digest"].partition(":")[2]
        manifest = json.loads((target / "blobs/sha256" / digest).read_text())
        shutil.rmtree(target)
        return [layer["size"] for layer in manifest["layers"]]

    def remove(self) -> None:
        """Remove all images and containers, and the store; another run may then have the place.

        Raises:
            AssertionError: something of it cannot be removed; the rest is.
        """
        with self._lock:
            clear(self._directory)

    def _buildah(self, *arguments: str) -> str:
        return _run(["buildah", *self._store, *arguments])


def _claimed() -> tuple[Any, Path]:
    """The lock of a place that nobody has, and its directory, which may have something in it.

    The kernel lets go of it with the process.
    """
    directory = cache.directory()
    directory.mkdir(parents=True, exist_ok=True)
    for number in range(_PLACES):
        lock = (directory / f".image-store-{number}.lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
        else:
            return lock, directory / f"image-store-{number}"
    raise Unavailable(f"{_PLACES} others build images in {directory}")


def _options(directory: Path, driver: str) -> list[str]:
    places = ("--root", str(directory / "layers"), "--runroot", str(directory / "run"))
    return [*places, "--storage-driver", driver]


def clear(directory: Path) -> None:
    """Remove a builder's directory, and what runs or is mounted from it.

    Raises:
        AssertionError: something cannot be ended or unmounted; all the rest is removed.
    """
    state = directory / "runtime"
    # The last first, each whatever has become of the others: containers are ended, then what they
    # ran from is unmounted and deleted.
    with ExitStack() as steps:
        steps.callback(shutil.rmtree, directory)
        for driver in ("overlay", "vfs"):
            if (directory / "layers" / driver).is_dir():
                buildah = ["buildah", *_options(directory, driver)]
                steps.callback(_run, [*buildah, "rmi", "--all", "--force"])
                steps.callback(_run, [*buildah, "rm", "--all"])
        for container in sorted(state.glob("*/")):
            runc = ["runc", "--root", str(state), "delete", "--force", container.name]
            steps.callback(_run, runc)


def storage_driver(directory: Path) -> str:
    """Layers over each other where that can be had, which saves half the time; else copies.

    Only trying tells: a kernel that knows overlayfs may refuse it, such as over another one, which
    is what a container's own files lie on.

    Args:
        directory: where the store will be.
    """
    with tempfile.TemporaryDirectory(dir=directory) as probe:
        try:
            _run(["buildah", *_options(Path(probe), "overlay"), "info"])
        except AssertionError:
            return "vfs"
    return "overlay"


def size_bytes(directory: Path) -> int:
    """What the files below a directory hold; links count once."""
    seen = {
        (status.st_dev, status.st_ino): status.st_size
        for path in directory.rglob("*")
        for status in [path.lstat()]
        if _is_file(path)
    }
    return sum(seen.values())


def differing(first: Path, second: Path) -> list[str]:
    """The paths of files that are not in both directories with the same bytes, links aside."""
    trees = [
        {path.relative_to(root).as_posix(): path for path in root.rglob("*") if _is_file(path)}
        for root in (first, second)
    ]
    return sorted(
        name
        for name in trees[0].keys() | trees[1].keys()
        if name not in trees[0]
        or name not in trees[1]
        or not filecmp.cmp(trees[0][name], trees[1][name], shallow=False)
    )


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _make_base(directory: Path) -> None:
    # Within what is removed when this is killed.
    tree = directory / "tree"
    # In namespaces of its own: what it mounts, and all its children, end with it.
    alone = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
    how = ["--variant=minbase", "--force-check-gpg", f"--include={PACKAGES}"]
    try:
        _run([*alone, "debootstrap", *how, _RELEASE, str(tree), *_mirror()])
    except AssertionError as fault:
        raise Unavailable(str(fault)) from None
    for name in NOT_IN_A_BASE:
        shutil.rmtree(tree / name, ignore_errors=True)
        (tree / name).mkdir()
    tarball = str(directory / "base.tar")
    _run(["tar", "--create", "--file", tarball, "--directory", str(tree), "."])
    shutil.rmtree(tree)


def _mirror() -> list[str]:
    """The first that apt has here for the release; nothing where there is none: Debian's own."""
    lines = "$(RELEASE) $(REPO_URI)"
    with suppress(AssertionError, OSError):
        said = _run(["apt-get", "indextargets", "--format", lines, "Created-By: Packages"])
        pairs = [line.split() for line in said.splitlines()]
        return [pair[1] for pair in pairs if len(pair) == 2 and pair[0] == _RELEASE][:1]
    return []


@contextmanager
def _secrets() -> Iterator[list[str]]:
    """The options that give the build what pip is told here of index, proxy and authority.

    Addresses of this machine's disk are left out, for the build sees none of it.
    """
    told = {}
    for line in _run([sys.executable, "-m", "pip", "config", "list"]).splitlines():
        key, _, value = line.partition("=")
        told[key.rpartition(".")[2]] = str(ast.literal_eval(value))
    lines = ["[global]"]
    for key in ("index-url", "extra-index-url", "proxy", "trusted-host"):
        places = [one for one in told.get(key, "").split() if not one.startswith("file:")]
        if places:
            lines.append(f"{key} = {' '.join(places)}")
    authorities = told.get("cert", _CA)
    with tempfile.TemporaryDirectory() as directory:
        options = []
        if Path(authorities).is_file():
            lines.append("cert = /run/secrets/ca.pem")
            options += [f"--secret=id=ca.pem,src={authorities}"]
        config = Path(directory, "pip.conf")
        config.write_text("\n".join(lines) + "\n")
        config.chmod(0o600)
        yield [f"--secret=id=pip.conf,src={config}", *options]


def _run(command: Sequence[str], seconds: float = _BUILD_SECONDS) -> str:
    """Run a program; returns what it prints.

    Raises:
        AssertionError: it failed, or was not over in time and was ended with all its children.
    """
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=seconds)
        except BaseException as fault:
            os.killpg(process.pid, signal.SIGKILL)
            if isinstance(fault, subprocess.TimeoutExpired):
                raise AssertionError(f"{' '.join(command)}: over {seconds:g} s") from None
            raise
    if process.returncode != 0:
        words = "\n".join((out + err).splitlines()[-60:])
        raise AssertionError(f"{' '.join(command)}: exit {process.returncode}\n{words}")
    return out


class Once:
    """The image, built when a test first asks for it and removed with the process.

    Args:
        usable: looks whether this machine can run it, and raises `Unavailable` where it cannot.
    """

    def __init__(self, usable: Callable[[Image], None]) -> None:
        self._usable = usable
        self._image: Image | None = None
        self._fault: Exception | None = None

    def image(self) -> Image:
        """The image with all adapters.

        Raises:
            Unavailable: this machine cannot build one, or cannot run it.
            AssertionError: it can, and this one cannot be built.
        """
        if self._fault is not None:
            raise self._fault
        if self._image is None:
            try:
                self._image = self._built()
            except (Unavailable, AssertionError) as fault:
                self._fault = fault
                raise
        return self._image

    def _built(self) -> Image:
        builder = Builder()
        atexit.register(builder.remove)
        builder.base()
        image = builder.build("workflow", "localhost/llm-gateway")
        self._usable(image)
        return image


def main() -> None:
    """Build the image and say how large it is."""
    parser = argparse.ArgumentParser(prog="python -m tests.integration.image", description=__doc__)
    parser.add_argument("--extras", default="workflow", help="extras of setup.cfg, or nothing")
    parser.add_argument(
        "--twice", action="store_true", help="say what a second build has otherwise"
    )
    chosen = parser.parse_args()
    # In the end, so that a fault of its own comes after the one that ended this.
    builder = Builder()
    atexit.register(builder.remove)
    builder.base()
    image = builder.build(chosen.extras, "localhost/llm-gateway")
    base, *layers = builder.compressed_bytes("localhost/llm-gateway")
    whole, own = size_bytes(image.root), size_bytes(image.root / "opt/gateway")
    print(f"extras: {chosen.extras or 'none'}")
    print(f"unpacked: {whole / 1e6:.0f} MB, of which /opt/gateway {own / 1e6:.0f} MB")
    print(f"compressed: {(base + sum(layers)) / 1e6:.0f} MB, the base {base / 1e6:.0f} MB of it")
    if chosen.twice:
        second = builder.build(chosen.extras, "localhost/second")
        files = [path for path in image.root.rglob("*") if _is_file(path)]
        other = differing(image.root, second.root)
        print(f"a second build differs in {len(other)} of {len(files)} files", *other, sep="\n")


if __name__ == "__main__":
    main()
