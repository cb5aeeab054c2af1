"""What the kernel's control groups let this process use: CPU time and memory.

A container's share is no property of its machine: `os.cpu_count` counts the node's cores, of which
the quota may leave half a one. It is read once, at the start; nothing here waits or raises.

Sources: cgroups(7) for `/proc/self/cgroup`, proc(5) for `/proc/self/mountinfo`; of the kernel's
documentation admin-guide/cgroup-v2.rst for `cpu.max` and `memory.max`, scheduler/sched-bwc.rst for
`cpu.cfs_quota_us`, and admin-guide/cgroup-v1/memory.rst for `memory.limit_in_bytes`.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeVar

MAX_THREADS = 32
"""The most threads that the reactor's pool is given, however many CPUs there are."""

_Number = TypeVar("_Number", int, float)

_MIB = 1 << 20
# Of a node without namespaces there may be thousands of mounts; all the other files are one line.
_MOUNTS_BYTES = 1 << 20
_FILE_BYTES = 1 << 14
# Version 1 says "no limit" by the largest multiple of a page below 2**63.
_NO_LIMIT_BYTES = 1 << 60
# Kubernetes nests about six deep.
_MAX_DEPTH = 64
_NUMBER = re.compile(r"[0-9]{1,19}", re.ASCII)
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Limits:
    """What this process may use.

    Attributes:
        usable_cpus: how many CPUs it may run on at once (its affinity, so the cpuset too).
        quota_cpus: how many CPUs' time it gets; None: all of those.
        memory_bytes: what its memory may grow to before the kernel ends it; None: no limit.
    """

    usable_cpus: int
    quota_cpus: float | None = None
    memory_bytes: int | None = None

    @property
    def cpus(self) -> float:
        """How many CPUs' time it can have at most, a fraction where the quota is one."""
        return min(float(self.usable_cpus), self.quota_cpus or math.inf)

    @property
    def threads(self) -> int:
        """How many threads the reactor's pool may have.

        They wait for name servers more than they compute, so that a few more than there are CPUs
        keep one slow zone from holding up all others, and not so many more that a burst of look-ups
        spends the quota of the reactor's own thread. It is what `ThreadPoolExecutor` has by
        default, of the CPUs that there are here.
        """
        return min(MAX_THREADS, math.ceil(self.cpus) + 4)

    def describe(self) -> str:
        """Say it in words, for the log."""
        cpus = f"{self.usable_cpus} CPUs (no quota)"
        if self.quota_cpus is not None:
            cpus = f"{self.quota_cpus:.3g} CPUs by quota, of {self.usable_cpus}"
        memory = "no limit of memory"
        if self.memory_bytes is not None:
            memory = f"{self.memory_bytes / _MIB:.0f} MiB of memory"
        return f"{cpus}; {memory}; threads of the reactor's pool: {self.threads}"


def read_limits(root: Path = Path("/"), usable_cpus: int | None = None) -> Limits:
    """Read the limits of this process: the tightest of its own group and of all above it.

    Version 2, version 1 and both side by side ("hybrid") are read alike. What is not there, or says
    nothing that can be understood, is no limit: a gateway starts on a machine without `/proc` too.

    Args:
        root: where `proc` and the mount points are looked for.
        usable_cpus: how many CPUs it may run on; None: the kernel is asked.
    """
    groups = list(_groups(root))
    return Limits(
        usable_cpus=usable_cpus or _usable_cpus(),
        quota_cpus=_tightest(group.quota_cpus() for group in groups),
        memory_bytes=_tightest(group.memory_bytes() for group in groups),
    )


@dataclass(frozen=True, slots=True)
class _Group:
    """One control group; `controllers` are those of its hierarchy, empty for version 2."""

    directory: Path
    controllers: frozenset[str]

    def quota_cpus(self) -> float | None:
        if not self.controllers:
            words = _read(self.directory / "cpu.max").split()
        elif "cpu" in self.controllers:
            names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
            words = [_read(self.directory / name).strip() for name in names]
        else:
            return None
        if len(words) != 2:
            return None
        quota, period = map(_number, words)
        return quota / period if quota and period else None

    def memory_bytes(self) -> int | None:
        if not self.controllers:
            limit = _number(_read(self.directory / "memory.max").strip())
        elif "memory" in self.controllers:
            limit = _number(_read(self.directory / "memory.limit_in_bytes").strip())
        else:
            return None
        return limit if limit and limit < _NO_LIMIT_BYTES else None


def _groups(root: Path) -> Iterator[_Group]:
    """Give the groups that this process is in, of every hierarchy, up to what is mounted."""
    paths: dict[str, str] = {}
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        # Version 2 names no controller.
        paths.update(dict.fromkeys(names.split(","), path))
    for controllers, mounted, point in _mounts(root):
        # Controllers of one hierarchy have one path.
        known = [paths[name] for name in controllers or {""} if name in paths]
        for directory in _upwards(known[0], mounted) if known else ():
            yield _Group(root / point.relative_to("/") / directory, controllers)


def _mounts(root: Path) -> Iterator[tuple[frozenset[str], PurePosixPath, PurePosixPath]]:
    """Give each hierarchy that is mounted: controllers, the group that its mount shows, where."""
    for line in _read(root / "proc/self/mountinfo", _MOUNTS_BYTES).splitlines():
        left, _, right = line.partition(" - ")
        place, kind = left.split(), right.split()
        if len(place) < 5 or len(kind) < 3 or not place[4].startswith("/"):
            continue
        controllers = frozenset(kind[2].split(",")) & {"cpu", "memory"}
        if kind[0] == "cgroup2":
            controllers = frozenset()
        elif kind[0] != "cgroup" or not controllers:
            continue
        yield controllers, _path(place[3]), _path(place[4])


def _upwards(path: str, mounted: PurePosixPath) -> Iterator[PurePosixPath]:
    """Give the directories of a group and of those above it, relative to the mount point.

    The path may be one that only the node knows, or lead out of the namespace: what is mounted is
    then the group itself.
    """
    below = PurePosixPath(path)
    if ".." not in below.parts and below.is_relative_to(mounted):
        relative = below.relative_to(mounted)
        yield relative
        yield from relative.parents[:_MAX_DEPTH]
    else:
        yield PurePosixPath()


def _path(field: str) -> PurePosixPath:
    """A path of mountinfo, in which blanks and backslashes are written in octal."""
    return PurePosixPath(_OCTAL.sub(lambda found: chr(int(found[1], 8)), field))


def _tightest(limits: Iterable[_Number | None]) -> _Number | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _number(word: str) -> int | None:
    return int(word) if _NUMBER.fullmatch(word) else None


def _read(path: Path, most: int = _FILE_BYTES) -> str:
    """The beginning of a file; nothing where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(most).decode("utf-8", "surrogateescape")
    except (OSError, ValueError):
        return ""


def _usable_cpus() -> int:
    # macOS has no affinity.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
