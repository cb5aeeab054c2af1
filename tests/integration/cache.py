"""What is too large to make for every run lies in the user's cache directory, made when absent."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


class Unavailable(Exception):
    """A part cannot be had on this machine; the message says why."""


def directory() -> Path:
    """The project's directory in the user's cache, `$XDG_CACHE_HOME` or `~/.cache`."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "twisted-gateway"


def made(name: str, make: Callable[[Path], None]) -> Path:
    """The directory of that name in the cache, made when it is absent.

    It appears whole or not at all: `make` fills a temporary directory beside it, which is then
    renamed. One process makes it, others wait; what a killed one left half done is removed.

    Args:
        name: names the content with its version; other content needs another name.
        make: fills the directory that it is given; what it raises is passed on.

    Raises:
        Unavailable: the cache cannot be written.
    """
    cache = directory()
    target = cache / name
    if target.is_dir():
        return target
    try:
        cache.mkdir(parents=True, exist_ok=True)
        lock = (cache / f".{name}.lock").open("w")
    except OSError as fault:
        raise Unavailable(f"the cache {cache} cannot be written: {fault}") from fault
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.is_dir():
            return target
        prefix = f".{name}.part-"
        for left in cache.glob(f"{prefix}*"):
            shutil.rmtree(left)
        part = Path(tempfile.mkdtemp(prefix=prefix, dir=cache))
        try:
            make(part)
            part.chmod(0o755)
            part.rename(target)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return target
