""".ci/cluster.py: a candidate in the cluster, behind a kubectl that answers as one would."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.cache import Unavailable
from tests.integration.case import unavailable
from tests.integration.manifests import program
from tests.integration.processes import wait_until
from tests.integration.test_pipeline import ENVIRON, IMAGE, OVERLAY, SECONDS, run
from tests.k8s.objects import TOP

REPORT = '<?xml version="1.0" encoding="UTF-8"?>\n<testsuites>\n<testsuite/>\n</testsuites>\n'
NEWEST, EVICTED = "llm-gateway-check-1-aa", "llm-gateway-check-1-zz"

# Answers as a cluster would that runs the Job at once; keeps what it was asked, and what it made.
# What is in `fails` it does not do, so many times; what an overlay is made of is kubectl's affair.
# A log is a pod's; of a Job kubectl takes the oldest pod's, here the evicted one's.
_KUBECTL = """\
#!{python}
import json, os, sys
from pathlib import Path
here = Path({directory!r})
words = sys.argv[1:]
if words[0] == "kustomize":
    os.execv({kubectl!r}, ["kubectl", *words])
with (here / "asked").open("a") as asked:
    asked.write(json.dumps(words) + "\\n")
verb, what = words[words.index("30s") + 1 :][:2]
for key in (verb, f"{{verb}} {{what}}"):
    fails = json.loads((here / "fails").read_text())
    if fails.get(key, 0) > 0:
        (here / "fails").write_text(json.dumps(fails | {{key: fails[key] - 1}}))
        sys.exit("Unable to connect to the server: net/http: TLS handshake timeout")
if verb == "create":
    tree = json.load(sys.stdin)
    (here / f"{{tree['kind']}}.json").write_text(json.dumps(tree))
    tree["metadata"]["uid"] = f"uid-of-{{tree['kind']}}"
    print(json.dumps(tree))
elif verb == "get":
    print((here / (what + ".json" * ("pods" == what and words[-1] == "json"))).read_text())
elif verb == "logs":
    if "DeadlineExceeded" in (here / "job").read_text():
        sys.exit("error: timed out waiting for the condition")
    whose = "log" if what == {newest!r} else "log-evicted"
    print((here / ("log-former" if "--previous" in words else whose)).read_text(), end="")
"""


class ClusterTests(SynchronousTestCase):
    """.ci/cluster.py, before a kubectl that answers as a cluster would."""

    def setUp(self) -> None:
        try:
            kubectl = program("kubectl")
        except Unavailable as fault:
            raise unavailable(fault) from None
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)
        file = self.directory / "kubectl"
        where = {"python": sys.executable, "directory": str(self.directory), "kubectl": kubectl}
        file.write_text(_KUBECTL.format(**where, newest=NEWEST))
        file.chmod(0o755)
        (self.directory / "log").write_text(f"NAME OK\n{REPORT}")
        (self.directory / "log-evicted").write_text("cut off\n")
        (self.directory / "pods").write_text("llm-gateway-check-1-x: {phase: Pending}")
        self.pods()
        (self.directory / "events").write_text("1m Warning BackOff pod/another")
        self.fails()
        self.ends("Complete")

    def pods(self, **status: Any) -> None:
        """What is said of the gateway's container of a Job's newest pod from here on."""
        status = {"name": "gateway", "restartCount": 0, "state": {"running": {}}} | status
        evicted = {"name": "gateway", "restartCount": 3, "state": {"terminated": {}}}
        items = []
        for name, minute, one in ((NEWEST, 10, status), (EVICTED, 9, evicted)):
            made = {"name": name, "creationTimestamp": f"2026-01-01T00:{minute:02}:00Z"}
            items.append({"metadata": made, "status": {"initContainerStatuses": [one]}})
        (self.directory / "pods.json").write_text(json.dumps({"items": items}))

    def ends(self, kind: str, reason: str = "") -> None:
        """How Jobs end from here on."""
        conditions = [{"type": kind, "status": "True", "reason": reason}] if kind else []
        (self.directory / "job").write_text(json.dumps({"status": {"conditions": conditions}}))

    def fails(self, **times: int) -> None:
        """What fails from here on, and how often."""
        failing = {name.replace("_", " "): count for name, count in times.items()}
        (self.directory / "fails").write_text(json.dumps(failing))

    def command(self, seconds: float, options: str) -> list[str]:
        """That of a try."""
        return [
            *(sys.executable, str(TOP / ".ci" / "cluster.py"), "--namespace", "llm-gateway"),
            *("--image", f"{IMAGE}:abc@sha256:{1:064x}", "--overlay", str(TOP / OVERLAY.parent)),
            *("--junit", str(self.directory / "check.xml"), f"--options={options}"),
            *("--seconds", str(seconds), "--pause", "0.05"),
        ]

    @property
    def path(self) -> str:
        return f"{self.directory}{os.pathsep}{os.environ['PATH']}"

    def attempt(
        self,
        *,
        seconds: float = SECONDS,
        options: str = "--models 'reasoning' --accept 400,404",
        **environment: str,
    ) -> subprocess.CompletedProcess[str]:
        """Try an image."""
        return run(*self.command(seconds, options), environ={"PATH": self.path, **environment})

    def asked(self) -> list[list[str]]:
        """The command lines of kubectl."""
        try:
            text = (self.directory / "asked").read_text()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text.splitlines()]

    def created(self, kind: str) -> dict[str, Any]:
        """What was made."""
        tree: dict[str, Any] = json.loads((self.directory / f"{kind}.json").read_text())
        return tree

    def test_passed(self) -> None:
        """A Job that passes: its report is there, and nothing of it stays in the cluster."""
        done = self.attempt()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual((self.directory / "check.xml").read_text(), REPORT)
        self.assertIn("NAME OK", done.stdout)
        made = self.created("Job")
        (check,) = made["spec"]["template"]["spec"]["containers"]
        self.assertEqual(check["args"][-4:], ["--models", "reasoning", "--accept", "400,404"])
        name = made["metadata"]["name"]
        deleted = [words for words in self.asked() if "delete" in words]
        self.assertEqual(len(deleted), 1)
        self.assertIn(name, deleted[0])
        self.assertTrue(all("llm-gateway" in words for words in self.asked()))

    def test_what_is_tried(self) -> None:
        """It is the overlay of the checkout: the ConfigMap goes as the Job goes."""
        self.assertEqual(self.attempt().returncode, 0)
        config, job = self.created("ConfigMap"), self.created("Job")
        text = (TOP / OVERLAY.parent / "config.yaml").read_text()
        self.assertEqual(config["data"]["config.yaml"], text)
        (owner,) = config["metadata"]["ownerReferences"]
        self.assertEqual((owner["kind"], owner["uid"]), ("Job", "uid-of-Job"))
        self.assertEqual(owner["name"], job["metadata"]["name"])
        (gateway,) = job["spec"]["template"]["spec"]["initContainers"]
        environ = {one["name"]: one.get("value") for one in gateway["env"]}
        # As the overlay's patch has it, and not the base.
        self.assertEqual(environ["OTEL_TRACES_EXPORTER"], "otlp")
        pod = job["spec"]["template"]["spec"]
        mounted = [one["configMap"]["name"] for one in pod["volumes"] if "configMap" in one]
        self.assertEqual(mounted, [config["metadata"]["name"]])

    def test_failed(self) -> None:
        """A Job that fails, or does not end, or leaves no report, is a failure that says so."""
        for end, log, expected in (
            ("Failed", f"chat FAILED\n{REPORT}", "Failed"),
            ("", f"under way\n{REPORT}", "not over after 0.3 s"),
            ("Complete", "nothing\n", "no report"),
        ):
            self.ends(end)
            (self.directory / "log").write_text(log)
            done = self.attempt(seconds=SECONDS if end else 0.3)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(expected, done.stdout)
            self.assertIn("--- the gateway that was tried:", done.stdout)
            self.assertIn("delete", self.asked()[-1])

    def test_does_not_start(self) -> None:
        """A gateway that crashes, or whose image is not there, is given up while it has a log."""
        self.ends("")
        (self.directory / "log").write_text("it has just been started\n")
        (self.directory / "log-former").write_text("config.yaml: line 3: unknown key\n")
        for state, restarts in (("CrashLoopBackOff", 3), ("ImagePullBackOff", 0)):
            self.pods(restartCount=restarts, state={"waiting": {"reason": state}})
            done = self.attempt()
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
            self.assertIn("it does not start (gateway: ", done.stdout)
            tried = done.stdout.partition("--- the gateway that was tried:")[2]
            self.assertIn("it has just been started", tried)
            self.assertEqual("config.yaml: line 3: unknown key" in tried, bool(restarts))
            self.assertIn("phase: Pending", tried)
            self.assertIn("delete", self.asked()[-1])

    def test_evicted(self) -> None:
        """Of a pod that was evicted no report counts: that of the pod in its place does."""
        done = self.attempt()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertNotIn("cut off", done.stdout)
        (self.directory / "log").write_text("nothing yet\n")
        (self.directory / "log-evicted").write_text(f"NAME OK\n{REPORT}")
        done = self.attempt()
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("nothing yet", done.stdout)
        self.assertIn("there is no report in its log", done.stdout)

    def test_too_late(self) -> None:
        """Once the Job's own time is over the log is gone, and that is said; nothing passes."""
        self.ends("Failed", "DeadlineExceeded")
        done = self.attempt()
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("there is no report in its log", done.stdout)

    def test_what_it_says_of_a_failure(self) -> None:
        """State and events of the Job alone: a specification would show the environment."""
        self.ends("Failed")
        done = self.attempt()
        self.assertIn("phase: Pending", done.stdout)
        self.assertNotIn("pod/another", done.stdout)
        for words in self.asked():
            self.assertNotIn("describe", words)
            if "pods" in words and words[-1] != "json":
                self.assertIn("{.status}", words[-1])
                self.assertNotIn(".spec", words[-1])

    def test_unanswered(self) -> None:
        """A question that the cluster does not answer is asked again, and is no end."""
        self.fails(get_job=2)
        done = self.attempt()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(sum("job" in words and "get" in words for words in self.asked()), 3)
        self.fails(get_job=10**6)
        done = self.attempt(seconds=0.3)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("not over after 0.3 s; last: Command", done.stdout)

    def test_not_removed(self) -> None:
        """What could not be removed is said, and is no verdict on the image."""
        self.fails(delete=1)
        done = self.attempt()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn(f"the Job {self.created('Job')['metadata']['name']} may still", done.stderr)

    def test_not_made(self) -> None:
        """What could be made in part alone is removed as well."""
        self.fails(create=1)
        done = self.attempt()
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertIn("could not be tried", done.stderr)
        self.assertIn("delete", self.asked()[-1])

    def test_ended(self) -> None:
        """Whoever cancels it finds neither the Job nor the kubeconfig afterwards."""
        self.ends("")
        process = subprocess.Popen(
            self.command(SECONDS, "--models=a"),
            env={**ENVIRON, "PATH": self.path, "CLUSTER_KUBECONFIG": "sesame"},
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        wait_until(lambda: any("get" in words for words in self.asked()), 30, "its first look")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(SECONDS), 128 + signal.SIGTERM)
        words = self.asked()[-1]
        self.assertIn("delete", words)
        self.assertFalse(Path(words[words.index("--kubeconfig") + 1]).exists())

    def test_kubeconfig(self) -> None:
        """The kubeconfig is a file of its own while it is needed, and in no message."""
        done = self.attempt(CLUSTER_KUBECONFIG="sesame")
        self.assertEqual(done.returncode, 0, done.stderr)
        files = {words[words.index("--kubeconfig") + 1] for words in self.asked()}
        (file,) = files
        self.assertFalse(Path(file).exists())
        self.assertNotIn("sesame", done.stdout + done.stderr)

    def test_refused(self) -> None:
        """Nothing is made where too little is said, or where it would be in another namespace."""
        path = {"PATH": self.path}
        for done, why in (
            (self.attempt(options=""), "--models"),
            (self.attempt(options="--models 'a"), "No closing quotation"),
            (
                run(*self.command(1, "--models=a"), "--namespace", "others", environ=path),
                "is in the namespace llm-gateway, not in others",
            ),
            (
                run(*self.command(1, "--models=a"), "--overlay", "absent", environ=path),
                "could not be tried",
            ),
            (
                run(*self.command(1, "--models=a"), environ={"PATH": "/nonexistent"}),
                "there is no kubectl (python -m pip install",
            ),
        ):
            self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
            self.assertIn(why, done.stderr)
        self.assertEqual(self.asked(), [])

    def test_empty(self) -> None:
        """What variables that nobody has set leave is refused before the cluster is asked."""
        digest = f"@sha256:{1:064x}"
        for name, values in {
            "--image": (
                *("", " ", f"{IMAGE}:abc@", f"{IMAGE}:{digest}", f":abc{digest}", IMAGE),
                *(f"{IMAGE}:abc@sha256:", f"/gateway:abc{digest}"),
            ),
            "--overlay": ("", " "),
            "--namespace": ("", " "),
            "--junit": ("", " ", str(self.directory), str(self.directory / "absent" / "x.xml")),
            "--seconds": ("", "0", "-1", "nan", "inf"),
            "--pause": ("", "-1", "nan"),
        }.items():
            for value in values:
                options = (f"{name}={value}", "--options=--models=a")
                done = run(*self.command(1, "--models=a"), *options, environ={"PATH": self.path})
                self.assertEqual(done.returncode, 2, options)
                self.assertIn(f"argument {name}", done.stderr)
                self.assertNotIn("Traceback", done.stderr)
        self.assertEqual(self.asked(), [])
        for image in (f"{IMAGE}:abc", f"{IMAGE}{digest}", f"a.example:5000/b/c:abc{digest}"):
            options = (f"--image={image}", "--options=--models=a")
            done = run(*self.command(SECONDS, "--models=a"), *options, environ={"PATH": self.path})
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_half_an_overlay(self) -> None:
        """What kustomize lets through and no cluster takes is said in a line."""
        overlay = self.directory / "overlay"
        overlay.mkdir()
        (overlay / "kustomization.yaml").write_text("resources: [deployment.yaml]\n")
        begin = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: llm-gateway}\n"
        pod = f"{begin}spec: {{template: {{spec: {{containers: [{{name: gateway}}], volumes: "
        for text, why in (
            (begin, "no container gateway"),
            (
                f"{begin}spec: {{template: {{spec: {{containers: [{{image: a}}]}}}}}}\n",
                "no list of items",
            ),
            (f"{pod}[{{name: a, configMap: }}]}}}}}}\n", "a configMap names no ConfigMap"),
            (f"{pod}[{{name: a, configMap: {{}}}}]}}}}}}\n", "a configMap names no ConfigMap"),
            (f"{pod}[null]}}}}}}\n", "is no list of items with a name"),
            ("", "0 Deployments"),
        ):
            (overlay / "deployment.yaml").write_text(text)
            if not text:
                (overlay / "kustomization.yaml").write_text("namespace: a\nresources: []\n")
            done = run(
                *self.command(1, "--models=a"),
                *("--overlay", overlay, "--namespace", "llm-gateway"),
                environ={"PATH": self.path},
            )
            self.assertEqual(done.returncode, 2, text)
            self.assertRegex(done.stderr, f"could not be tried: .*{why}", text)
            self.assertNotIn("Traceback", done.stderr)
        self.assertEqual(self.asked(), [])
