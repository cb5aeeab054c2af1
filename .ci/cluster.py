"""Tries an image in the cluster, beside what runs there: k8s/integration-test-job.yaml.

    python .ci/cluster.py --image NAME:TAG@DIGEST --overlay k8s/overlays/NAME
        --namespace NAMESPACE --junit FILE --options='--models=… --services=…'

The Job's pod is the overlay's, as `kubectl kustomize` makes it of the checkout, with the new image
and the ConfigMaps of the same checkout; beside the gateway runs llm-gateway-check, which asks it
by loopback. No client sees it, and the old version need not pass the new version's tests. What is
tried is so what is promoted, but for what the cluster has to have already: Secrets, the
ServiceAccount, NetworkPolicies.

The options go to the check, split as a shell would; they have to say what must be there. The
kubeconfig is the text in CLUSTER_KUBECONFIG, else kubectl's own; docs/pipeline.md says what it may
do. Exit status: 0 all passed, 1 something did not, 2 it could not be tried, 143 it was ended.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

MANIFEST = Path(__file__).parents[1] / "k8s" / "integration-test-job.yaml"
DEPLOYMENT = "llm-gateway"
CONTAINER = "gateway"
Tree = dict[str, Any]
_LOOPBACK = "127.0.0.1"
_KUBECTL_SECONDS = 60.0
# The check starts when the gateway has; how long it then takes is no reason to restart it.
_NOT_OF_A_CANDIDATE = ("livenessProbe", "readinessProbe", "lifecycle")
# The Job's own: the gateway's would have the pod start anew, or wait as long as a drain may take.
_OF_THE_JOB = ("restartPolicy", "terminationGracePeriodSeconds")
# Where a pod names a ConfigMap: a volume and a part of one, a whole environment, and one variable.
_CONFIG_MAPS = ("configMap", "configMapRef", "configMapKeyRef")


def candidate(
    job: Tree, objects: list[Tree], image: str, name: str, options: list[str]
) -> tuple[Tree, list[Tree]]:
    """The Job with the overlay's pod beside its check, and the ConfigMaps that the pod mounts.

    Args:
        job: the manifest in the repository.
        objects: the overlay's.
        image: of the gateway and of the check.
        name: of this Job; a Job can't be changed, so each try needs one of its own.
        options: for the check, behind those of the manifest.

    Returns:
        The Job, and the ConfigMaps, whose names begin with the Job's.

    Raises:
        ValueError: the overlay has not one such Deployment with such a container, both pods have a
            volume of one name, or the check is not told what must be there.
    """
    made = copy.deepcopy(job)
    made["metadata"]["name"] = name
    made["metadata"].pop("namespace", None)
    pod = copy.deepcopy(_deployment(objects)["spec"]["template"]["spec"])
    own = made["spec"]["template"]["spec"]
    (check,) = own["containers"]
    check["image"] = image
    check["args"] = [_by_loopback(one) for one in check.get("args", [])] + options
    if not any(re.match("--(models|services)(=|$)", one) for one in check["args"]):
        raise ValueError("the options name no --models and no --services: nothing need be there")
    beside = [_beside(container) for container in pod["containers"]]
    found = [one for one in beside if one["name"] == CONTAINER]
    if not found:
        raise ValueError(f"the Deployment {DEPLOYMENT} has no container {CONTAINER}")
    found[0]["image"] = image
    volumes = [*pod.get("volumes", []), *own.get("volumes", [])]
    names = [volume["name"] for volume in volumes]
    if len(names) != len(set(names)):
        raise ValueError(f"a volume of the Job has the name of one of the gateway's: {names}")
    made["spec"]["template"]["spec"] = {
        **own,
        **pod,
        **{key: own[key] for key in _OF_THE_JOB},
        "initContainers": [*pod.get("initContainers", []), *beside],
        "containers": [check],
        "volumes": volumes,
    }
    return made, _config_maps(made["spec"]["template"]["spec"], objects, name)


def _deployment(objects: list[Tree]) -> Tree:
    kind = ("Deployment", DEPLOYMENT)
    found = [one for one in objects if (one["kind"], one["metadata"]["name"]) == kind]
    if len(found) != 1:
        raise ValueError(f"the overlay has {len(found)} Deployments {DEPLOYMENT}")
    return found[0]


def _beside(container: Tree) -> Tree:
    """A container that starts before the check, and ends when it has (Kubernetes 1.29)."""
    kept = {key: value for key, value in container.items() if key not in _NOT_OF_A_CANDIDATE}
    return {**kept, "restartPolicy": "Always"}


def _config_maps(pod: Tree, objects: list[Tree], prefix: str) -> list[Tree]:
    """Those of the overlay that a pod names, by names of the candidate's own in both."""
    there = {one["metadata"]["name"]: one for one in objects if one["kind"] == "ConfigMap"}
    made: dict[str, Tree] = {}
    for reference in _references(pod):
        if (name := reference["name"]) in there:
            reference["name"] = f"{prefix}-{name}"
            config = copy.deepcopy(there[name])
            config["metadata"] = {"name": reference["name"]}
            made[name] = config
    return list(made.values())


def _references(tree: object) -> Iterator[Tree]:
    if isinstance(tree, list):
        for one in tree:
            yield from _references(one)
    elif isinstance(tree, dict):
        for key, value in tree.items():
            if key in _CONFIG_MAPS:
                yield value
            else:
                yield from _references(value)


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


class Unanswered(Exception):
    """kubectl has failed, or given no answer; the message is its command and how it ended.

    What it wrote has gone to standard error by then.
    """


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
            Unanswered: it failed, or took more than a minute.
        """
        return _kubectl(*self._command, *arguments, stdin=stdin)

    def create(self, tree: Tree) -> Tree:
        """Make an object; returns it as it then is."""
        text = self.run("create", "--filename", "-", "--output", "json", stdin=json.dumps(tree))
        created: Tree = json.loads(text)
        return created

    def wait(self, name: str, seconds: float, pause: float) -> str:
        """Wait for a Job's end; returns how it ended, or that it did not in time.

        A question that is not answered is asked again: it says nothing of the Job.
        """
        until = time.monotonic() + seconds
        said = f"not over after {seconds:g} s"
        while time.monotonic() < until:
            try:
                end = ended(json.loads(self.run("get", "job", name, "--output", "json")))
            except (Unanswered, json.JSONDecodeError) as fault:
                said = f"not over after {seconds:g} s; last: {fault}"
            else:
                if end is not None:
                    return end
            time.sleep(pause)
        return said

    def log(self, name: str, container: str) -> str:
        """The log of a container of the Job's pod, or why there is none."""
        return self._or_why("logs", f"job/{name}", "--container", container, "--tail", "-1")

    def state(self, name: str) -> str:
        """What became of a Job's pods, without their specifications: those have values in them."""
        of_the_job = ("--selector", f"batch.kubernetes.io/job-name={name}")
        status = 'jsonpath={range .items[*]}{.metadata.name}: {.status}{"\\n"}{end}'
        pods = self._or_why("get", "pods", *of_the_job, "--output", status)
        events = self._or_why("get", "events", "--sort-by", "{.lastTimestamp}")
        # An event names the Job, or the pod, whose name begins with the Job's.
        return "\n".join([pods, *(line for line in events.splitlines() if name in line)])

    def _or_why(self, *arguments: str) -> str:
        try:
            return self.run(*arguments)
        except Unanswered as fault:
            return f"({fault})\n"


def _kubectl(*command: str, stdin: str | None = None) -> str:
    try:
        done = subprocess.run(
            command,
            input=stdin,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=_KUBECTL_SECONDS,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as fault:
        raise Unanswered(str(fault)) from None
    return done.stdout


def attempt(cluster: Cluster, job: Tree, configs: list[Tree], chosen: argparse.Namespace) -> bool:
    """Run the Job; returns whether everything passed. What was made is removed again.

    Raises:
        Unanswered: it could not be made.
    """
    name = job["metadata"]["name"]
    (check,) = job["spec"]["template"]["spec"]["containers"]
    try:
        uid = cluster.create(job)["metadata"]["uid"]
        owner = {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": name, "uid": uid}
        for config in configs:
            # They go when the Job goes, whoever removes it; its pod waits for them until then.
            config["metadata"]["ownerReferences"] = [owner]
            cluster.create(config)
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
        print(cluster.state(name))
        return False
    finally:
        try:
            cluster.run(
                *("delete", "job", name, "--ignore-not-found"),
                *("--cascade=foreground", "--wait=false"),
            )
        except Unanswered as fault:
            print(f"the Job {name} may still be there: {fault}", file=sys.stderr)


def main() -> int:
    """Try what the command line says."""
    parser = argparse.ArgumentParser(description="Try an image in the cluster.")
    parser.add_argument("--image", required=True)
    parser.add_argument("--overlay", required=True, type=Path, help="the directory")
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--junit", required=True, type=Path)
    parser.add_argument("--options", default="", help="for llm-gateway-check; --options='--a --b'")
    parser.add_argument("--seconds", type=float, default=2400.0, help="for the Job to end")
    parser.add_argument("--pause", type=float, default=5.0, help="between two looks")
    chosen = parser.parse_args()
    # By itself SIGTERM, by which a pipeline is cancelled, ends Python without a `finally`.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with tempfile.TemporaryDirectory() as directory:
        text = os.environ.pop("CLUSTER_KUBECONFIG", "")
        file = Path(directory) / "kubeconfig" if text else None
        if file is not None:
            file.touch(0o600)
            file.write_text(text)
        try:
            objects = _overlay(chosen.overlay, chosen.namespace)
            manifest = yaml.safe_load(MANIFEST.read_text())
            name = f"llm-gateway-check-{os.urandom(4).hex()}"
            options = shlex.split(chosen.options)
            job, configs = candidate(manifest, objects, chosen.image, name, options)
            cluster = Cluster(chosen.namespace, file)
            return 0 if attempt(cluster, job, configs, chosen) else 1
        except (OSError, ValueError, Unanswered) as fault:
            print(f"could not be tried: {fault}", file=sys.stderr)
            return 2


def _overlay(directory: Path, namespace: str) -> list[Tree]:
    """The objects of an overlay, whose gateway is in that namespace.

    Raises:
        Unanswered: kustomize refuses.
        ValueError: it is in another.
    """
    text = _kubectl("kubectl", "kustomize", str(directory))
    objects = [one for one in yaml.safe_load_all(text) if one]
    its = _deployment(objects)["metadata"].get("namespace")
    if its not in (None, namespace):
        raise ValueError(f"the overlay's gateway is in the namespace {its}, not in {namespace}")
    return objects


if __name__ == "__main__":
    sys.exit(main())
