"""Says whether an overlay's configuration is right, and what will be in force: no cluster needed.

    python .ci/check_config.py k8s/overlays/NAME

Runs `twistd llm-gateway --check` on the file that `kubectl kustomize` puts into the gateway's
ConfigMap, with the environment of the Deployment's container and no other, for that wins over the
file. Each file of a Secret that the configuration names is made up; so is what the environment
takes from elsewhere (`valueFrom`). Standard error has the keys that the Secrets have to have.

Exit status: that of --check, and 2 where the overlay is half of one or kubectl refuses it.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from candidate import KUBECTL, Tree, config_map, gateway, mapping, named, read

_MADE_UP = "made-up-for-the-check-of-a-configuration"
_CONFIG = "config.yaml"
_WHOSE = "the gateway's pod"
# As kubelet has it in every pod.
_CLUSTER = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
_SECONDS = 120.0


class Prepared(NamedTuple):
    """What --check is run with.

    Attributes:
        environ: the variables of the gateway's container.
        keys: (Secret, key) of each file that the configuration names.
    """

    environ: dict[str, str]
    keys: list[tuple[str, str]]


def prepare(objects: list[Tree], directory: Path) -> Prepared:
    """Write an overlay's configuration into a directory, with the Secrets' files made up there.

    Raises:
        ValueError: the overlay has no gateway, or its file is in no ConfigMap of the overlay's.
    """
    pod, container = gateway(objects)
    if container.get("envFrom"):
        raise ValueError("its environment is in an envFrom, which this program does not look up")
    environ = dict(_environ(container))
    mounts = {
        one["name"]: str(one.get("mountPath")) for one in named(container, "volumeMounts", _WHOSE)
    }
    path = PurePosixPath(environ.get("GATEWAY_CONFIG", ""))
    text, keys = None, []
    for volume in named(pod, "volumes", _WHOSE):
        source = mapping(volume, "configMap", f"the volume {volume['name']}")
        if source and mounts.get(volume["name"]) == str(path.parent):
            text = config_map(objects, str(source.get("name"))).get(path.name)
    if not isinstance(text, str):
        raise ValueError(f"GATEWAY_CONFIG is {path}, which no ConfigMap of the overlay's holds")
    for volume in named(pod, "volumes", _WHOSE):
        name = volume["name"]
        source, mount = mapping(volume, "secret", f"the volume {name}"), mounts.get(name)
        if not source or mount is None:
            continue
        (directory / name).mkdir()
        for found in sorted(set(re.findall(rf"{re.escape(mount)}/([\w.-]+)", _uncommented(text)))):
            keys.append((str(source.get("secretName")), found))
            (directory / name / found).write_text(_MADE_UP)
        text = text.replace(f"{mount}/", f"{directory / name}/")
    (directory / _CONFIG).write_text(text)
    return Prepared(environ | _CLUSTER, keys)


def _environ(container: Tree) -> Iterator[tuple[str, str]]:
    """Each variable, with those in it that come before it: $(NAME), as Kubernetes does."""
    known: dict[str, str] = {}
    for one in named(container, "env", _WHOSE):
        text = str(one.get("value", "")) if "valueFrom" not in one else _MADE_UP
        known[one["name"]] = re.sub(r"\$\((\w+)\)", lambda it: known.get(it[1], it[0]), text)
        yield one["name"], known[one["name"]]


def _uncommented(text: str) -> str:
    return "\n".join(
        line.partition(" #")[0] for line in text.splitlines() if line.lstrip()[:1] != "#"
    )


def _twistd() -> str | None:
    """That of this Python's environment, else the one on PATH; from whatever directory it is run.

    Returns:
        The absolute path; None: there is none.
    """
    beside = Path(sys.executable).with_name("twistd")
    found = str(beside) if beside.exists() else shutil.which("twistd")
    return None if found is None else os.path.abspath(found)


def _kept() -> dict[str, str]:
    """The variables of whoever runs this by which programs are found, from any directory."""
    return {
        name: os.pathsep.join(map(os.path.abspath, os.environ[name].split(os.pathsep)))
        for name in ("PATH", "PYTHONPATH")
        if os.environ.get(name)
    }


def main() -> int:
    """Check the overlay that the command line names."""
    parser = argparse.ArgumentParser(description="Check an overlay's configuration.")
    parser.add_argument("overlay", type=Path, help="its directory")
    chosen = parser.parse_args()
    if shutil.which("kubectl") is None:
        print(f"there is no kubectl ({KUBECTL})", file=sys.stderr)
        return 2
    if (twistd := _twistd()) is None:
        print("there is no twistd (python -m pip install -e .)", file=sys.stderr)
        return 2
    built = subprocess.run(
        ["kubectl", "kustomize", str(chosen.overlay)],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=_SECONDS,
    )
    if built.returncode != 0:
        return 2
    with tempfile.TemporaryDirectory() as given:
        directory = Path(given)
        try:
            prepared = prepare(read(built.stdout), directory)
        except ValueError as fault:
            print(f"{chosen.overlay}: {fault}", file=sys.stderr)
            return 2
        done = subprocess.run(
            [twistd, "llm-gateway", "--check", "--config", str(directory / _CONFIG)],
            # Nothing else of whoever runs this: it would win over the file as well.
            env=prepared.environ | _kept(),
            cwd=directory,
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
        )
    print(done.stdout.replace(f"{directory}/", ""), end="")
    print(done.stderr.replace(f"{directory}/", ""), end="", file=sys.stderr)
    for secret, key in prepared.keys:
        print(f"the Secret {secret} has to have the key {key}", file=sys.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
