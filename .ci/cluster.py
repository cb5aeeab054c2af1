"""Tries an image in the cluster, beside what runs there: k8s/integration-test-job.yaml.

    python .ci/cluster.py --image NAME:TAG@DIGEST --namespace NAMESPACE --junit FILE [-- OPTION…]

The Job's pod is made of two containers of the new image: the gateway, with configuration, secrets
and environment of the Deployment that is in force, and llm-gateway-check, which asks it by
loopback. No client sees it, and the old version need not pass the new version's tests. Options go
to the check.

The kubeconfig is the text in CLUSTER_KUBECONFIG, else kubectl's own; docs/pipeline.md says what
it may do. Exit status: 0 all passed, 1 something did not, 2 it could not be tried.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

MANIFEST = Path(__file__).parents[1] / "k8s" / "integration-test-job.yaml"
DEPLOYMENT = "llm-gateway"
CONTAINER = "gateway"
Tree = dict[str, Any]
_LOOPBACK = "127.0.0.1"


def candidate(job: Tree, deployment: Tree, image: str, name: str, options: list[str]) -> Tree:
    """The Job with the image beside its check.

    Args:
        job: the manifest in the repository.
        deployment: what runs.
        image: in both containers.
        name: of this Job; a Job can't be changed, so each try needs one of its own.
        options: for the check, behind those of the manifest.

    Raises:
        ValueError: the Deployment has no container of that name.
    """
    made = copy.deepcopy(job)
    made["metadata"]["name"] = name
    made["metadata"].pop("namespace", None)
    live = copy.deepcopy(deployment["spec"]["template"]["spec"])
    found = [one for one in live["containers"] if one["name"] == CONTAINER]
    if not found:
        raise ValueError(f"the Deployment {DEPLOYMENT} has no container {CONTAINER}")
    (gateway,) = found
    gateway["image"] = image
    # A container that starts before the others, and ends when they have (Kubernetes 1.29).
    gateway["restartPolicy"] = "Always"
    # The check starts when the gateway has; how long it then takes is no reason to restart it.
    for probe in ("livenessProbe", "readinessProbe", "lifecycle"):
        gateway.pop(probe, None)
    pod = made["spec"]["template"]["spec"]
    (check,) = pod["containers"]
    check["image"] = image
    check["args"] = [_by_loopback(one) for one in check.get("args", [])] + options
    pod["initContainers"] = [*pod.get("initContainers", []), gateway]
    own = {volume["name"] for volume in pod.get("volumes", [])}
    shared = [volume for volume in live.get("volumes", []) if volume["name"] not in own]
    pod["volumes"] = [*pod.get("volumes", []), *shared]
    # Whoever may read the image and the mounted files.
    for key in ("serviceAccountName", "automountServiceAccountToken", "imagePullSecrets"):
        if key in live:
            pod[key] = live[key]
    pod["securityContext"] = {**live.get("securityContext", {}), **pod.get("securityContext", {})}
    return made


def _by_loopback(argument: str) -> str:
    return re.sub(r"^(http://)[^/:]+(:\d+)", rf"\g<1>{_LOOPBACK}\g<2>", argument)


def ended(job: Tree) -> str | None:
    """How a Job has ended: Complete or Failed; None while it has not."""
    for condition in job.get("status", {}).get("conditions", []):
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            return str(condition["type"])
    return None


def junit(log: str) -> str | None:
    """The JUnit XML that a log has in it."""
    found = re.search(r"^<\?xml .*?^</testsuites>$", log, re.MULTILINE | re.DOTALL)
    return None if found is None else found[0] + "\n"


class Cluster:
    """kubectl, in one namespace.

    Args:
        namespace: where.
        kubeconfig: a file; None: kubectl's own.
    """

    def __init__(self, namespace: str, kubeconfig: Path | None) -> None:
        where = [] if kubeconfig is None else ["--kubeconfig", str(kubeconfig)]
        self._command = ["kubectl", *where, "--namespace", namespace, "--request-timeout", "30s"]

    def run(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl; returns what it prints.

        Raises:
            subprocess.CalledProcessError: it failed.
        """
        done = subprocess.run(
            [*self._command, *arguments],
            input=stdin,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return done.stdout

    def get(self, kind: str, name: str) -> Tree:
        """An object."""
        tree: Tree = json.loads(self.run("get", kind, name, "--output", "json"))
        return tree

    def wait(self, name: str, seconds: float, pause: float) -> str:
        """Wait for a Job's end; returns how it ended, or that it did not in time."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            end = ended(self.get("job", name))
            if end is not None:
                return end
            time.sleep(pause)
        return f"not over after {seconds:g} s"

    def log(self, name: str, container: str) -> str:
        """The log of a container of the Job's pod, or why there is none."""
        try:
            return self.run("logs", f"job/{name}", "--container", container, "--tail", "-1")
        except subprocess.CalledProcessError as fault:
            return f"(no log: {fault})\n"


def attempt(cluster: Cluster, chosen: argparse.Namespace) -> bool:
    """Run the Job; returns whether everything passed. What was made is removed again."""
    job = yaml.safe_load(MANIFEST.read_text())
    live = cluster.get("deployment", DEPLOYMENT)
    name = f"llm-gateway-check-{os.urandom(4).hex()}"
    made = candidate(job, live, chosen.image, name, chosen.options)
    (check,) = made["spec"]["template"]["spec"]["containers"]
    cluster.run("create", "--filename", "-", stdin=json.dumps(made))
    try:
        end = cluster.wait(name, chosen.seconds, chosen.pause)
        said = cluster.log(name, check["name"])
        report = junit(said)
        print(said.replace(report, "") if report else said)
        if report:
            chosen.junit.write_text(report)
        if end == "Complete" and report:
            return True
        print(f"{name}: {end}" if report else f"{name}: {end}, and there is no report in its log")
        print("--- the gateway that was tried:", cluster.log(name, CONTAINER), sep="\n")
        print(cluster.run("describe", "job", name))
        return False
    finally:
        cluster.run("delete", "job", name, "--cascade=foreground", "--wait=false")


def main() -> int:
    """Try what the command line says."""
    parser = argparse.ArgumentParser(description="Try an image in the cluster.")
    parser.add_argument("--image", required=True)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--junit", required=True, type=Path)
    parser.add_argument("--seconds", type=float, default=2400.0, help="for the Job to end")
    parser.add_argument("--pause", type=float, default=5.0, help="between two looks")
    parser.add_argument("options", nargs="*")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        text = os.environ.pop("CLUSTER_KUBECONFIG", "")
        file = Path(directory) / "kubeconfig" if text else None
        if file is not None:
            file.touch(0o600)
            file.write_text(text)
        try:
            return 0 if attempt(Cluster(chosen.namespace, file), chosen) else 1
        except (OSError, ValueError, subprocess.CalledProcessError) as fault:
            print(f"could not be tried: {fault}", file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main())
