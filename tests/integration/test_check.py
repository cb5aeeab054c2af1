"""`llm-gateway-check` as people run it: before the demo, real services, and gateways that fail."""

from __future__ import annotations

import atexit
import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, TypeVar
from xml.etree import ElementTree

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.cache import Unavailable
from tests.integration.case import unavailable
from tests.integration.fakes import authentik, forgejo, gotify
from tests.integration.fakes.web import Came, FakeService, Said, Server
from tests.integration.gateway import Gateway
from tests.integration.oidc import CLIENT, SECRET, Provider
from tests.integration.processes import Process, free_port, wait_until
from tests.integration.queues import REGION, Queues
from tests.integration.store import ACCESS_KEY, SECRET_KEY, Store
from tests.integration.temporal import NAMESPACE, Temporal
from tests.integration.test_adapters import module
from tests.integration.wire import get
from tests.integration.world import WORLD

S = TypeVar("S", bound="FakeService | SlowStore")

BUCKET = "checks"
SECONDS = 90.0
"""How long a check may take here before it counts as hanging."""


class Checked:
    """A run that has ended.

    Attributes:
        status: its exit status.
        out, err: what it wrote.
        verdicts: check and subject -> the verdict in the table.
    """

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status = status
        self.out = out
        self.err = err
        table, _, document = out.partition("\n<?xml ")
        self.suite = ElementTree.fromstring(f"<?xml {document}".encode())[0]
        self.cases = {
            (str(case.get("classname")).partition(".")[2], str(case.get("name"))): case
            for case in self.suite.iter("testcase")
        }
        self.rows = {line[10:28].strip(): line for line in table.splitlines() if line[:8].strip()}

    def failures(self) -> dict[str, str]:
        """What failed: the check and its subject -> why."""
        return {
            f"{name} {subject}": str(case[0].get("message"))
            for (name, subject), case in self.cases.items()
            if len(case) and case[0].tag == "failure"
        }

    def skipped(self) -> set[str]:
        """What was skipped: the check and its subject."""
        return {
            f"{name} {subject}"
            for (name, subject), case in self.cases.items()
            if len(case) and case[0].tag == "skipped"
        }

    def passed(self) -> set[str]:
        """What passed or was accepted: the checks."""
        return {name for (name, _), case in self.cases.items() if not len(case)}


class AdminGateway(Gateway):
    """A gateway whose operations endpoints are on a port of their own."""

    def __init__(self, name: str, config: Mapping[str, Any], directory: Path) -> None:
        port = free_port()
        self.admin = f"http://127.0.0.1:{port}"
        listen = {"adminListen": [f"tcp:{port}:interface=127.0.0.1"]}
        super().__init__(name, {**config, **listen}, directory)

    def ready(self) -> int | None:
        try:
            return get(f"{self.admin}/health/ready").status
        except OSError:
            return None


class CheckTestCase(SynchronousTestCase):
    """A test of the program in a process of its own."""

    def begin(self, url: str, *arguments: str, **environ: str) -> subprocess.Popen[str]:
        """Start it."""
        command = [sys.executable, "-m", "twisted_gateway.check.tool", url, "--junit", "-"]
        process = subprocess.Popen(
            [*command, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Nothing of this process's own: no proxies, no variables that it may lean on.
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", **environ},
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def end(self, process: subprocess.Popen[str]) -> Checked:
        """Wait for its end."""
        out, err = process.communicate(timeout=SECONDS)
        self.assertNotIn("Traceback", err)
        return Checked(process.returncode, out, err)

    def check(self, url: str, *arguments: str, **environ: str) -> Checked:
        """Run it to its end."""
        return self.end(self.begin(url, *arguments, **environ))

    def running(self, gateway: Gateway) -> Gateway:
        """Start a gateway for this test alone."""
        self.addCleanup(gateway.process.stop)
        gateway.start()
        return gateway

    def served(self, service: S) -> S:
        """A service for this test alone."""
        self.addCleanup(service.stop)
        return service


class DemoTests(CheckTestCase):
    """The demo, which needs nothing else."""

    def test_demo(self) -> None:
        """Every model is checked by what it can do, and the gateway's log has the requests."""
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        script = "from twisted.scripts.twistd import run; run()"
        listen = ["-l", f"tcp:{port}:interface=127.0.0.1"]
        demo = ["-n", "--pidfile=", "llm-gateway", "--demo", "--demo-speed", "20", *listen]
        process = Process("check-demo", [sys.executable, "-c", script, *demo], WORLD.logs)
        self.addCleanup(process.stop)
        process.start()
        # It waits by itself.
        done = self.check(url, "--wait", "60")
        self.assertEqual((done.status, done.failures()), (0, {}), done.out)
        for expected in (("chat", "reasoning"), ("stream", "reasoning"), ("rerank", "rerank")):
            self.assertIn(expected, done.cases)
        self.assertNotIn(("chat", "embeddings"), done.cases)
        ids = re.findall(r"^ok chat reasoning: .*\[(\S+)\]$", _log_of(done), re.M)
        self.assertEqual(len(ids), 1, _log_of(done))
        wait_until(lambda: ids[0] in process.log.read_text(), 5, "the request in the log")


class Parts:
    """All real services, fakes for the others, and a gateway before them."""

    def __init__(self) -> None:
        directory = Path(tempfile.mkdtemp(prefix="twisted-gateway-check-"))
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        self.store = Store(directory, WORLD.logs)
        self.bucket = self.store.bucket(BUCKET)
        self.provider = Provider(WORLD.logs)
        self.queues = Queues(WORLD.logs)
        self.temporal = Temporal(WORLD.logs)
        self.authentik = authentik.Authentik(3, module("authentik_client"))
        self.gotify = gotify.Gotify()
        self.forgejo = forgejo.Forgejo()
        self.memory = Memory()
        for part in (self.store, self.provider, self.queues, self.temporal):
            part.start()
        self.gateway = AdminGateway("check-gateway", self.configuration(), WORLD.logs)
        self.gateway.start()

    def configuration(self) -> dict[str, Any]:
        """One adapter of each kind but sandboxes, and a few that are configured wrongly."""
        store = {"upstream": self.store.url, "accessKey": ACCESS_KEY}
        queues = {"upstream": self.queues.url, "region": REGION}
        keys = {"accessKey": self.queues.access_key, "secretKey": self.queues.secret_key}
        return {
            "adapters": {
                "memory": {"upstream": self.memory.url},
                "s3": {**store, "secretKey": SECRET_KEY},
                "forged-s3": {"kind": "s3", **store, "secretKey": "another"},
                "sqs": {**queues, **keys},
                "forged-sqs": {"kind": "sqs", **queues, **keys, "secretKey": "another"},
                "workflow": {"upstream": self.temporal.address},
                "nowhere": {"kind": "workflow", "upstream": "127.0.0.1:9"},
                "iam": {"upstream": self.authentik.url, "token": authentik.TOKEN},
                "forged-iam": {"kind": "iam", "upstream": self.authentik.url, "token": "another"},
                "notification": {"upstream": self.gotify.url, "token": gotify.TOKEN},
                "registry": {"upstream": self.forgejo.url, "token": forgejo.TOKEN},
            },
            "webhooks": {"forgejo": {"secret": "hook-secret", "targets": []}},
            "auth": self.provider.auth(),
        }

    def objects(self) -> list[Path]:
        """What is in the bucket."""
        return [path for path in self.bucket.rglob("*") if path.is_file()]


class Memory(FakeService):
    """A memory service."""

    def answer(self, came: Came) -> Said:
        json.loads(came.body)
        return Said(200, {"results": []} if came.path == "/query" else {"id": 1})


GOOD = "memory,s3,sqs,workflow,iam,notification,registry"
TOKEN = [
    *("--client-id", CLIENT, "--client-secret-env", "SECRET"),
    *("--token-parameter", "resource=urn:gateway", "--token-parameter", "scope=storage.read"),
]


class ServicesTests(CheckTestCase):
    """A gateway before real services."""

    shared: Parts | None = None

    def setUp(self) -> None:
        try:
            if ServicesTests.shared is None:
                ServicesTests.shared = Parts()
        except Unavailable as fault:
            raise unavailable(fault) from None
        self.parts = ServicesTests.shared

    def check_parts(self, *arguments: str, token: bool = True) -> Checked:
        """Check the gateway, with a token that the provider gives."""
        gateway = self.parts.gateway
        given = TOKEN if token else []
        admin = ["--admin", gateway.admin, "--namespace", NAMESPACE, *given]
        return self.check(gateway.url, *admin, *arguments, SECRET=SECRET)

    def test_all(self) -> None:
        """Every service passes, with a token that was got through the gateway; nothing stays."""
        sent = len(self.parts.gotify.messages)
        done = self.check_parts("--services", GOOD, "--bucket", BUCKET, "--notify")
        self.assertEqual((done.status, done.failures()), (0, {}), done.out)
        names = {
            *("token", "health", "metrics", "admin-not-public", "unknown-model", "no-token"),
            *("memory-ingest", "memory-query", "s3-list", "s3-put", "s3-get", "s3-delete"),
            *("sqs-list", "workflow-list", "workflow-namespace", "iam-list", "registry-list"),
            *("notification-send", "webhook-signature", "request-id", "unknown-service"),
        }
        self.assertLessEqual(names, done.passed())
        self.assertEqual(self.parts.objects(), [])
        self.assertEqual(len(self.parts.gotify.messages), sent + 1)
        for secret in (SECRET, authentik.TOKEN, gotify.TOKEN, "user01", "user02"):
            self.assertNotIn(secret, done.out + done.err)

    def test_configured_wrongly(self) -> None:
        """Wrong keys and addresses fail, each in its service's words, and nothing else does."""
        bad = "forged-s3,forged-sqs,nowhere,forged-iam,absent"
        done = self.check_parts("--services", f"iam,{bad}", "--bucket", BUCKET)
        self.assertEqual(done.status, 1)
        failures = done.failures()
        expected = {
            "s3-list forged-s3": "SignatureDoesNotMatch",
            "sqs-list forged-sqs": "SignatureDoesNotMatch",
            "workflow-list nowhere": "status 502",
            "iam-list forged-iam": "status 403",
            "services absent": "not configured",
        }
        self.assertEqual(set(failures), set(expected), done.out)
        for name, why in expected.items():
            self.assertIn(why, failures[name])

    def test_no_bucket(self) -> None:
        """A bucket and a namespace that are not there fail, and say what to do."""
        done = self.check_parts(
            *("--services", "s3,workflow", "--bucket", "absent", "--namespace", "absent")
        )
        failures = done.failures()
        self.assertEqual(set(failures), {"s3-list s3", "workflow-list workflow"}, done.out)
        self.assertIn("--bucket", failures["s3-list s3"])
        self.assertIn("--namespace", failures["workflow-list workflow"])

    def test_without_a_token(self) -> None:
        """Nothing fails that needs a token, unless it was named; no door is open without one."""
        done = self.check_parts("--bucket", BUCKET, token=False)
        self.assertEqual((done.status, done.failures()), (0, {}), done.out)
        self.assertIn("s3-list s3", done.skipped())
        self.assertIn(("no-token", "sqs"), done.cases)
        self.assertIn("no-token", done.passed())
        named = self.check_parts("--services", "sqs", token=False)
        self.assertEqual(set(named.failures()), {"sqs-list sqs"})

    def test_wrong_client(self) -> None:
        """A client that the provider does not know gets no token, and its secret is in no text."""
        gateway = self.parts.gateway
        admin = ["--admin", gateway.admin, "--services", "iam"]
        done = self.check(gateway.url, *admin, *TOKEN, SECRET="mistaken-secret")
        self.assertEqual(done.status, 1)
        self.assertIn("invalid_client", done.failures()["token gateway"])
        self.assertNotIn("mistaken-secret", done.out + done.err)

    def test_public_side_alone(self) -> None:
        """From outside, what is for operators is not seen, and what is for clients is checked."""
        done = self.check(self.parts.gateway.url, "--services", "workflow", *TOKEN, SECRET=SECRET)
        self.assertIn("only the public side is seen", done.rows["ready"])
        self.assertLessEqual({"health gateway", "metrics gateway"}, done.skipped())
        self.assertIn("admin-not-public", done.passed())

    def test_wrong_admin_side(self) -> None:
        """An admin side that does not answer is told apart from a gateway that is not there."""
        url = self.parts.gateway.url
        nobody = f"http://127.0.0.1:{free_port()}"
        done = self.check(url, "--admin", nobody, "--wait", "2")
        self.assertEqual(done.status, 3)
        self.assertIn("the public side answers, the admin side", done.failures()["ready gateway"])
        done = self.check(nobody, "--wait", "2")
        self.assertEqual(done.status, 3)
        self.assertIn("refused", done.failures()["ready gateway"])


class Engine(FakeService):
    """An engine that answers chats as a test says; None: it hangs."""

    def __init__(self, said: Said | None) -> None:
        self.said = said
        self.over = threading.Event()
        super().__init__()

    def answer(self, came: Came) -> Said:
        if self.said is None:
            self.over.wait(SECONDS)
        return self.said or Said(503, {})

    def stop(self) -> None:
        self.over.set()
        super().stop()


class SlowStore:
    """A store that checks no signature, and hangs when an object is to be got.

    Attributes:
        url: its base URL.
        objects: path -> content.
        asked_for: set when an object is to be got.
        over: once it is set objects are given.
        refuses: how many deletes are refused at first.
        slow_deletes: whether the others take a moment.
        deleting: set when one of the others is under way.
    """

    listing = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.asked_for = threading.Event()
        self.over = threading.Event()
        self.deleting = threading.Event()
        self.refuses = 0
        self.slow_deletes = False
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_PUT(self) -> None:
                length = int(self.headers["Content-Length"])
                store.objects[self.path] = self.rfile.read(length)
                self.answer(200)

            def do_DELETE(self) -> None:
                if store.refuses:
                    store.refuses -= 1
                    self.answer(403)
                    return
                store.deleting.set()
                if store.slow_deletes:
                    time.sleep(2)
                store.objects.pop(self.path, None)
                self.answer(204)

            def do_GET(self) -> None:
                if "list-type" in self.path:
                    self.answer(200, store.listing)
                    return
                store.asked_for.set()
                if not store.over.wait(SECONDS) or self.path not in store.objects:
                    self.answer(404)
                    return
                self.answer(200, store.objects[self.path])

            def answer(self, status: int, body: bytes = b"") -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """Serve no more."""
        self.over.set()
        self._server.shutdown()
        self._server.server_close()


class BrokenTests(CheckTestCase):
    """Gateways and engines that fail."""

    def gateway(self, name: str, **config: Any) -> Gateway:
        return self.running(Gateway(f"check-{name}", config, WORLD.logs))

    def test_engines(self) -> None:
        """An engine that fails, one that hangs, one that is not there, and one that is well."""
        failing = self.served(Engine(Said(500, {"error": {"message": "out of memory"}})))
        hanging = self.served(Engine(None))
        nameless = self.served(
            Engine(Said(404, {"error": {"message": "The model `x` does not exist."}}))
        )
        good = self.served(Engine(Said(200, {"choices": [{"message": {"content": "Yes."}}]})))
        gateway = self.gateway(
            "engines",
            models={
                "failing": {"upstream": failing.url},
                "hanging": {"upstream": hanging.url},
                "nameless": {"upstream": nameless.url},
                "nowhere": {"upstream": f"http://127.0.0.1:{free_port()}"},
                "no-stream": {"upstream": good.url},
            },
        )
        done = self.check(gateway.url, "--timeout", "6")
        self.assertEqual(done.status, 1)
        expected = {
            "chat failing": "status 500: out of memory",
            "chat hanging": "no whole answer within 6 s",
            "chat nameless": "does not exist",
            "chat nowhere": "status 502",
            "stream no-stream": "no event stream",
        }
        failures = done.failures()
        self.assertEqual(set(failures), set(expected), done.out)
        for name, why in expected.items():
            self.assertIn(why, failures[name])

    def test_deadline(self) -> None:
        """However many hang, it ends when it was told to, and reports."""
        hanging = self.served(Engine(None))
        models = {f"m{number}": {"upstream": hanging.url} for number in range(9)}
        gateway = self.gateway("deadline", models=models)
        done = self.check(gateway.url, "--timeout", "4", "--deadline", "9")
        self.assertEqual(done.status, 1)
        self.assertIn("time for all checks", " ".join(done.failures().values()))
        self.assertIn("ended early", done.out)

    def test_interrupted(self) -> None:
        """Ctrl-C and SIGTERM end it in the middle, and what it has put is taken away."""
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            store = self.served(SlowStore())
            s3 = {"upstream": store.url, "accessKey": "a", "secretKey": "b", "requireAuth": False}
            gateway = self.gateway(f"store-{status}", adapters={"s3": s3})
            process = self.begin(gateway.url, "--bucket", BUCKET)
            self.assertTrue(store.asked_for.wait(30), "the object was not asked for")
            self.assertEqual(len(store.objects), 1)
            process.send_signal(number)
            done = self.end(process)
            self.assertEqual(done.status, status, done.out)
            self.assertEqual(store.objects, {})
            self.assertIn("under way", done.failures()["s3-get s3"])
            self.assertIn("cleanup", done.passed())

    def test_interrupted_while_it_cleans_up(self) -> None:
        """Ctrl-C that comes when all is checked leaves the time to take away what was put."""
        store = self.served(SlowStore())
        store.over.set()
        store.refuses = 1
        store.slow_deletes = True
        s3 = {"upstream": store.url, "accessKey": "a", "secretKey": "b", "requireAuth": False}
        gateway = self.gateway("store-cleanup", adapters={"s3": s3})
        process = self.begin(gateway.url, "--bucket", BUCKET)
        self.assertTrue(store.deleting.wait(30), "nothing was deleted")
        process.send_signal(signal.SIGINT)
        done = self.end(process)
        self.assertEqual(done.status, 130, done.out)
        self.assertEqual(store.objects, {})
        self.assertIn("cleanup", done.passed())

    def test_output_that_is_full(self) -> None:
        """Without room for the table it ends with its status, and not with a traceback."""
        good = self.served(Engine(Said(200, {"choices": [{"message": {"content": "Yes."}}]})))
        gateway = self.gateway("full", models={"m": {"upstream": good.url}})
        command = [sys.executable, "-m", "twisted_gateway.check.tool", gateway.url]
        with open("/dev/full", "wb") as full:
            done = subprocess.run(
                [*command, "--models", ""], stdout=full, stderr=subprocess.PIPE, text=True
            )
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn("No space left on device", done.stderr)

    def test_half_configured(self) -> None:
        """A file with a model and no more: what is not there is skipped, and nothing fails."""
        good = self.served(Engine(Said(404, {"detail": "Not Found"})))
        gateway = self.gateway("half", models={"whisper": {"upstream": good.url}})
        done = self.check(gateway.url)
        self.assertEqual((done.status, done.failures()), (0, {}), done.out)
        self.assertLessEqual({"chat whisper", "webhook-signature gateway"}, done.skipped())
        self.assertEqual(self.check(gateway.url, "--models", "whisper").status, 1)


class Predecessor(FakeService):
    """A gateway of another make: no list of services, and 404 where this one says 400."""

    def answer(self, came: Came) -> Said:
        headers = {"X-Request-ID": came.headers.get("x-request-id", "")}
        service = came.headers.get("x-service")
        if service == "workflow" and "namespace" in came.query:
            return Said(200, {"executions": []}, headers)
        if came.path in ("/health", "/health/live", "/health/ready") and not service:
            return Said(200, {"status": "ok"}, headers)
        if came.path == "/v1/models" and not service:
            return Said(200, {"object": "list", "data": []}, headers)
        return Said(404, {"error": "not found"}, headers)


class RolloutTests(CheckTestCase):
    """A rollout whose test runs against what is to be replaced."""

    def test_older(self) -> None:
        """It fails where nothing is accepted, and passes where the user says what may be so."""
        older = self.served(Predecessor())
        arguments = ["--services", "workflow", "--models", ""]
        strict = self.check(older.url, *arguments)
        self.assertEqual(strict.status, 1)
        self.assertIn("workflow-namespace workflow", strict.failures())
        accept = ["--accept", "400,404", "--accept", "services=404", "--skip", "metrics"]
        done = self.check(older.url, *arguments, *accept)
        self.assertEqual((done.status, done.failures()), (0, {}), done.out)
        self.assertIn("accepted", done.rows["workflow-namespace"])
        self.assertIn("workflow-list", done.passed())


def _log_of(done: Checked) -> str:
    return str(done.suite.findtext("system-out"))
