"""The container image, built from the Dockerfile as it stands: `python -m tests.integration.image`.

The suite must run where no registry of images can be reached. So the base is not the Dockerfile's
default but a Debian with Python, made by debootstrap from the system's own packages; everything
above it is as it will be anywhere else. buildah builds, in chroots, which needs root and no engine.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.integration.cache import Unavailable, made
from twisted_gateway import __version__

TOP = Path(__file__).resolve().parents[2]
BASE = "localhost/debian-python"
# Another content needs another name.
_BASE_DIRECTORY = "image-base-bookworm-1"
_PACKAGES = "ca-certificates,python3,python3-venv"
# What the official slim images leave out too.
_NOT_IN_A_BASE = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man")
_CA = "/etc/ssl/certs/ca-certificates.crt"
_BUILD_SECONDS = 900.0


class Image:
    """A built image.

    Attributes:
        root: its file system.
        config: the `config` of its OCI configuration: `User`, `Env`, `Entrypoint`, `Labels`.
        history: what made its layers.
    """

    def __init__(self, root: Path, inspected: dict[str, Any]) -> None:
        self.root = root
        self.config: dict[str, Any] = inspected["OCIv1"]["config"]
        self.history: list[dict[str, Any]] = inspected["OCIv1"].get("history", [])


class Builder:
    """buildah with a store of its own.

    Args:
        directory: for the store, which takes about a gigabyte.

    Raises:
        Unavailable: this is not root on a Linux with buildah and debootstrap.
    """

    def __init__(self, directory: Path) -> None:
        if os.geteuid() != 0:
            raise Unavailable("an image is built by root only")
        for program in ("buildah", "debootstrap"):
            if shutil.which(program) is None:
                raise Unavailable(f"there is no {program} (apt-get install {program})")
        self._directory = directory
        self._store = [
            *("--root", str(directory / "layers"), "--runroot", str(directory / "run")),
            *("--storage-driver", _storage_driver()),
        ]

    def base(self) -> None:
        """Have the base in the store.

        Raises:
            Unavailable: debootstrap cannot make it.
        """
        tree = made(_BASE_DIRECTORY, _make_base) / "base.tar"
        container = self._buildah("from", "scratch").strip()
        # A tarball is unpacked where it is added.
        self._buildah("add", "--quiet", container, str(tree), "/")
        self._buildah("commit", "--quiet", "--rm", container, BASE)

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
        return Image(Path(self._buildah("mount", container).strip()), inspected)

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
        """Remove all images and containers, and the store."""
        self._buildah("rm", "--all")
        self._buildah("rmi", "--all", "--force")
        shutil.rmtree(self._directory)

    def _buildah(self, *arguments: str) -> str:
        return _run(["buildah", *self._store, *arguments])


def _storage_driver() -> str:
    """Layers over each other where the kernel can, which saves half the time; else copies."""
    try:
        known = Path("/proc/filesystems").read_text().split()
    except OSError:
        known = []
    return "overlay" if "overlay" in known else "vfs"


def size_bytes(directory: Path) -> int:
    """What the files below a directory hold; links count once."""
    seen = {
        (status.st_dev, status.st_ino): status.st_size
        for path in directory.rglob("*")
        for status in [path.lstat()]
        if path.is_file() and not path.is_symlink()
    }
    return sum(seen.values())


def _make_base(directory: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / "tree"
        try:
            _run(
                [
                    "debootstrap",
                    "--variant=minbase",
                    f"--include={_PACKAGES}",
                    "bookworm",
                    str(tree),
                ]
            )
        except AssertionError as fault:
            raise Unavailable(str(fault)) from None
        for name in _NOT_IN_A_BASE:
            shutil.rmtree(tree / name, ignore_errors=True)
            (tree / name).mkdir()
        _run(
            [
                "tar",
                "--create",
                "--file",
                str(directory / "base.tar"),
                "--directory",
                str(tree),
                ".",
            ]
        )


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


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_BUILD_SECONDS,
    )
    if done.returncode != 0:
        words = "\n".join((done.stdout + done.stderr).splitlines()[-60:])
        raise AssertionError(f"{' '.join(command)}: exit {done.returncode}\n{words}")
    return done.stdout


def main() -> None:
    """Build the image and say how large it is."""
    parser = argparse.ArgumentParser(prog="python -m tests.integration.image", description=__doc__)
    parser.add_argument("--extras", default="workflow", help="extras of setup.cfg, or nothing")
    chosen = parser.parse_args()
    builder = Builder(Path(tempfile.mkdtemp(prefix="image-")))
    try:
        builder.base()
        image = builder.build(chosen.extras, "localhost/llm-gateway")
        base, *layers = builder.compressed_bytes("localhost/llm-gateway")
        whole, own = size_bytes(image.root), size_bytes(image.root / "opt/gateway")
        print(f"extras: {chosen.extras or 'none'}")
        print(f"unpacked: {whole / 1e6:.0f} MB, of which /opt/gateway {own / 1e6:.0f} MB")
        print(
            f"compressed: {(base + sum(layers)) / 1e6:.0f} MB, the base {base / 1e6:.0f} MB of it"
        )
    finally:
        builder.remove()


if __name__ == "__main__":
    main()
