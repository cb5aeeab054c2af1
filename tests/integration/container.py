"""The image's processes as a cluster runs them: runc, with limits and a read-only root."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.integration.cache import Unavailable
from tests.integration.image import Image
from tests.integration.processes import Process

MEMORY_BYTES = 512 << 20
CPUS = 0.5
_PERIOD_MICROSECONDS = 100_000
_NOTHING_SECONDS = 60.0
_HIDDEN = ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"]
_READ_ONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]


class Container:
    """One container of the image, on the network of this machine.

    It has what the manifests of k8s/base ask for: half a core, 512 MiB, a root that is read-only,
    an empty /tmp, no capability, no new privileges, the image's own user. It has no seccomp
    profile, and no network of its own, so that the suite reaches it on loopback.

    Args:
        name: of its process.
        image: whose file system and configuration it has.
        arguments: those of the entry point.
        directory: for the runtime's files and the log.
        files: what is mounted, read-only: path within -> path here.
        environment: added to the image's.
        command: runs instead of the entry point.

    Raises:
        Unavailable: there is no runc.
    """

    def __init__(
        self,
        name: str,
        image: Image,
        arguments: Sequence[str],
        directory: Path,
        *,
        files: Mapping[str, Path] | None = None,
        environment: Mapping[str, str] | None = None,
        command: Sequence[str] | None = None,
    ) -> None:
        # crun would do, but not where version 2 of control groups lies beside version 1.
        runtime = shutil.which("runc")
        if runtime is None:
            raise Unavailable("there is no runc (apt-get install runc)")
        self.id = f"{name}-{uuid.uuid4().hex[:8]}"
        bundle = (directory / self.id).absolute()
        bundle.mkdir(parents=True)
        self._pid_file = bundle / "pid"
        # Where the next builder finds it, whatever becomes of this process.
        self._runtime = [runtime, "--root", str(image.state)]
        first = command if command is not None else image.config["Entrypoint"]
        spec = _spec(self.id, image, [*first, *arguments], files or {}, environment or {})
        (bundle / "config.json").write_text(json.dumps(spec))
        run = ["run", "--bundle", str(bundle), "--pid-file", str(self._pid_file), self.id]
        self.process = Process(name, [*self._runtime, *run], directory)

    @property
    def pid(self) -> int:
        """The first process of the container, by its number here."""
        return int(self._pid_file.read_text())

    def stop(self, seconds: float) -> int:
        """Ask it to end as a cluster does; returns its exit status.

        Raises:
            AssertionError: it goes on for longer than that.
        """
        subprocess.run([*self._runtime, "kill", self.id, "TERM"], check=True, timeout=10)
        return self.process.wait(seconds)

    def remove(self) -> None:
        """End it at once, with everything that the runtime holds for it."""
        subprocess.run(
            [*self._runtime, "delete", "--force", self.id], capture_output=True, timeout=30
        )
        self.process.stop()

    def status(self) -> dict[str, str]:
        """What the kernel says of its first process (proc(5), `status`)."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

    def peak_bytes(self) -> int:
        """The most memory that its control group has had, page cache and sockets included."""
        # By its name, which is no other's: /proc has paths of the node's, of which a container sees
        # the end alone.
        for directory, _, files in os.walk("/sys/fs/cgroup"):
            if Path(directory).name == self.id:
                for name in ("memory.max_usage_in_bytes", "memory.peak"):
                    if name in files:
                        return int(Path(directory, name).read_text())
        raise AssertionError(f"no control group {self.id} counts memory")


def usable(image: Image, directory: Path) -> None:
    """Look whether containers with these limits can be had here, by running one that does nothing.

    Raises:
        Unavailable: they cannot, in the words of runtime and kernel.
    """
    container = Container("image-nothing", image, [], directory, command=["true"])
    try:
        container.process.start()
        if container.process.wait(_NOTHING_SECONDS) != 0:
            raise Unavailable(f"runc cannot run what it is to run here\n{container.process.tail()}")
    finally:
        container.remove()


def _spec(
    name: str,
    image: Image,
    command: Sequence[str],
    files: Mapping[str, Path],
    environment: Mapping[str, str],
) -> dict[str, Any]:
    """The bundle's config.json, as the OCI's runtime specification has it."""
    uid, gid = map(int, image.config["User"].split(":"))
    set_ = [f"{key}={value}" for key, value in environment.items()]
    # Not every root may raise its own.
    files_most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return {
        "ociVersion": "1.0.2",
        "process": {
            "args": list(command),
            "cwd": image.config.get("WorkingDir") or "/",
            "env": [*image.config["Env"], *set_],
            "user": {"uid": uid, "gid": gid},
            "capabilities": {},
            "noNewPrivileges": True,
            "rlimits": [{"type": "RLIMIT_NOFILE", "soft": files_most, "hard": files_most}],
        },
        "root": {"path": str(image.root), "readonly": True},
        "hostname": "gateway",
        "mounts": [
            _mount("/proc", "proc"),
            _mount("/dev", "tmpfs", "nosuid", "mode=755", "size=65536k"),
            _mount("/dev/shm", "tmpfs", "nosuid", "noexec", "nodev", "mode=1777", "size=64m"),
            _mount("/sys", "none", "rbind", "nosuid", "noexec", "nodev", "ro", source="/sys"),
            _mount("/sys/fs/cgroup", "cgroup", "nosuid", "noexec", "nodev", "ro"),
            _mount("/tmp", "tmpfs", "nosuid", "nodev", "mode=1777", "size=64m"),
            *(
                _mount(inside, "none", "bind", "ro", source=str(path.absolute()))
                for inside, path in files.items()
            ),
        ],
        "linux": {
            "cgroupsPath": f"/{name}",
            "namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts")],
            "resources": {
                "memory": {"limit": MEMORY_BYTES},
                "cpu": {
                    "quota": round(CPUS * _PERIOD_MICROSECONDS),
                    "period": _PERIOD_MICROSECONDS,
                },
            },
            "maskedPaths": [path for path in _HIDDEN if os.path.exists(path)],
            "readonlyPaths": [path for path in _READ_ONLY if os.path.exists(path)],
        },
    }


def _mount(inside: str, kind: str, *options: str, source: str | None = None) -> dict[str, Any]:
    return {
        "destination": inside,
        "type": kind,
        "source": source or kind,
        "options": list(options),
    }
