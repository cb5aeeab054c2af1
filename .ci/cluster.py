"""Tries an image in the cluster, beside what runs there: k8s/integration-test-job.yaml.

    python .ci/cluster.py --image NAME:TAG@DIGEST --overlay k8s/overlays/NAME
        --namespace NAMESPACE --junit FILE --options='--models=… --services=…'

The Job's pod is the overlay's, as `kubectl kustomize` makes it of the checkout, with the new image
and the ConfigMaps of the same checkout; beside the gateway runs llm-gateway-check, which asks it
by loopback. No client sees it, and the old version need not pass the new version's tests. What is
tried is so what is promoted, but for what the cluster has to have already: Secrets, the
ServiceAccount, NetworkPolicies: those of the check's pods, which let it reach what the gateway may.

The options go to the check, split as a shell would; they have to say what must be there. The
kubeconfig is the text in CLUSTER_KUBECONFIG, else kubectl's own; docs/pipeline.md says what it may
do. One that cannot start is given up as soon as that is plain, and in any case before Kubernetes
deletes its pod, and with that its log, after `activeDeadlineSeconds`. Exit status: 0 all passed,
1 something did not, 2 it could not be tried, 143 it was ended.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml
from candidate import CONTAINER, KUBECTL, Tree, candidate, namespace, read
from starting import KUBECTL_SECONDS, Start, newest, patience, restarts

MANIFEST = Path(__file__).parents[1] / "k8s" / "integration-test-job.yaml"
_IMAGE = re.compile(
    r"([^\s:@/]+(:\d+)?/)?[^\s:@/]+(/[^\s:@/]+)*(?=[:@])(:\w[\w.-]*)?(@sha256:[0-9a-f]{64})?"
)


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
        """Make an object; returns it as it then is.

        Raises:
            Unanswered: it was not made, or what kubectl says of it is no JSON.
        """
        text = self.run("create", "--filename", "-", "--output", "json", stdin=json.dumps(tree))
        try:
            created: Tree = json.loads(text)
        except json.JSONDecodeError as fault:
            raise Unanswered(f"kubectl create has answered no JSON: {fault}") from None
        return created

    def wait(self, name: str, seconds: float, pause: float, since: float) -> str:
        """Wait for a Job's end; returns how it ended, or that it did not in time, or can not start.

        A question that is not answered is asked again: it says nothing of the Job.

        Args:
            name: the Job's.
            seconds: for how long; a question that is under way then is waited for.
            pause: between two looks, in seconds.
            since: when the seconds began, by `time.monotonic`.
        """
        until = since + seconds
        said = f"not over after {seconds:g} s"
        start = Start()
        while time.monotonic() < until:
            try:
                end = ended(self._got("job", name))
                if end is None and time.monotonic() < until:
                    end = start.look(self._got("pods", *_of_job(name)))
            except (Unanswered, json.JSONDecodeError) as fault:
                said = f"not over after {seconds:g} s; last: {fault}"
            else:
                if end is not None:
                    return end
            time.sleep(max(0.0, min(pause, until - time.monotonic())))
        return said

    def log(self, name: str, container: str) -> str:
        """The log of a container of the Job's newest pod, or why there is none.

        One that was started again has two: why it ended is in the former.
        """
        try:
            # `kubectl logs job/NAME` takes the oldest, which may be one that was evicted.
            pod = newest(self._got("pods", *_of_job(name)))
        except (Unanswered, json.JSONDecodeError) as fault:
            return f"({fault})\n"
        if pod is None:
            return f"(the Job {name} has no pod)\n"
        which = (pod["metadata"]["name"], "--container", container, "--tail", "-1")
        log = self._or_why("logs", *which)
        if not restarts(pod, container):
            return log
        former = self._or_why("logs", "--previous", *which)
        # Until it is started again, the log is that of the last time.
        return log if former == log else f"{former}--- started again:\n{log}"

    def state(self, name: str) -> str:
        """What became of a Job's pods, without their specifications: those have values in them."""
        status = 'jsonpath={range .items[*]}{.metadata.name}: {.status}{"\\n"}{end}'
        pods = self._or_why("get", "pods", *_of_job(name), "--output", status)
        events = self._or_why("get", "events", "--sort-by", "{.lastTimestamp}")
        # An event names the Job, or the pod, whose name begins with the Job's.
        return "\n".join([pods, *(line for line in events.splitlines() if name in line)])

    def _got(self, *what: str) -> Tree:
        tree: Tree = json.loads(self.run("get", *what, "--output", "json"))
        return tree

    def _or_why(self, *arguments: str) -> str:
        try:
            return self.run(*arguments)
        except Unanswered as fault:
            return f"({fault})\n"


def _of_job(name: str) -> tuple[str, str]:
    return "--selector", f"batch.kubernetes.io/job-name={name}"


def _kubectl(*command: str, stdin: str | None = None) -> str:
    try:
        done = subprocess.run(
            command,
            input=stdin,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=KUBECTL_SECONDS,
        )
    except FileNotFoundError:
        raise Unanswered(f"there is no kubectl ({KUBECTL})") from None
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as fault:
        raise Unanswered(str(fault)) from None
    return done.stdout


def attempt(cluster: Cluster, job: Tree, configs: list[Tree], chosen: argparse.Namespace) -> bool:
    """Run the Job; returns whether everything passed. What was made is removed again.

    It is waited for no longer than Kubernetes leaves its pod there, which has log and state.

    Raises:
        Unanswered: it could not be made.
        ValueError: nothing is said of how long it may take.
    """
    seconds = min(chosen.seconds, patience(job))
    # Kubernetes begins to count when it has the Job, and so later.
    since = time.monotonic()
    name = job["metadata"]["name"]
    (check,) = job["spec"]["template"]["spec"]["containers"]
    try:
        uid = cluster.create(job)["metadata"]["uid"]
        owner = {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": name, "uid": uid}
        for config in configs:
            # They go when the Job goes, whoever removes it; its pod waits for them until then.
            config["metadata"]["ownerReferences"] = [owner]
            cluster.create(config)
        end = cluster.wait(name, seconds, chosen.pause, since)
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


def _given(text: str) -> str:
    """What is not empty, as a variable is that nobody has set."""
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty: is the variable set?")
    return text


def _image(text: str) -> str:
    if not _IMAGE.fullmatch(_given(text)):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no NAME:TAG, NAME@DIGEST or NAME:TAG@DIGEST: is a variable of it empty?"
        )
    return text


def _path(text: str) -> Path:
    return Path(_given(text))


def _file(text: str) -> Path:
    path = _path(text)
    if path.is_dir() or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} can be no file: there has to be its directory")
    return path


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no time")
    return seconds


def main() -> int:
    """Try what the command line says."""
    parser = argparse.ArgumentParser(description="Try an image in the cluster.")
    parser.add_argument("--image", required=True, type=_image)
    parser.add_argument("--overlay", required=True, type=_path, help="the directory")
    parser.add_argument("--namespace", required=True, type=_given)
    parser.add_argument("--junit", required=True, type=_file)
    parser.add_argument("--options", default="", help="for llm-gateway-check; --options='--a --b'")
    parser.add_argument("--seconds", type=_seconds, default=math.inf, help="for the Job to end")
    parser.add_argument("--pause", type=_seconds, default=5.0, help="between two looks")
    chosen = parser.parse_args()
    # By itself SIGTERM, by which a pipeline is cancelled, ends Python without a `finally`.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with tempfile.TemporaryDirectory() as directory:
        text = os.environ.pop("CLUSTER_KUBECONFIG", "")
        file = Path(directory) / "kubeconfig" if text.strip() else None
        if file is not None:
            file.touch(0o600)
            file.write_text(text)
        try:
            objects = _overlay(chosen.overlay, chosen.namespace)
            name = f"llm-gateway-check-{os.urandom(4).hex()}"
            options = shlex.split(chosen.options)
            job, configs = candidate(_manifest(), objects, chosen.image, name, options)
            cluster = Cluster(chosen.namespace, file)
            return 0 if attempt(cluster, job, configs, chosen) else 1
        except (OSError, ValueError, Unanswered) as fault:
            print(f"could not be tried: {fault}", file=sys.stderr)
            return 2


def _manifest() -> Tree:
    try:
        tree = yaml.safe_load(MANIFEST.read_text())
    except yaml.YAMLError as fault:
        raise ValueError(f"{MANIFEST.name} is no YAML: {fault}") from None
    if not isinstance(tree, dict):
        raise ValueError(f"{MANIFEST.name} has no object in it")
    return tree


def _overlay(directory: Path, where: str) -> list[Tree]:
    """The objects of an overlay, whose gateway is in that namespace.

    Raises:
        Unanswered: kustomize refuses.
        ValueError: it is in another, or what kustomize prints is half an overlay.
    """
    objects = read(_kubectl("kubectl", "kustomize", str(directory)))
    its = namespace(objects)
    if its not in (None, where):
        raise ValueError(f"the overlay's gateway is in the namespace {its}, not in {where}")
    return objects


if __name__ == "__main__":
    sys.exit(main())
