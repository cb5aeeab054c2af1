"""The check before the real gateway, whole, in memory: what it expects is what the gateway does."""

from __future__ import annotations

import json
from typing import Any

from tests.auth import issuer
from tests.check.harness import ToolTestCase
from tests.stack import DONE, ROLE, Asked, Stack, token
from twisted_gateway.check.catalogue import CHECKS

CONFIG = """
listen: [tcp:8080]
adminListen: [tcp:9090]
models:
  reasoning:
    upstream: http://10.0.0.1:8000
    engine: vllm
    aliases: [gpt-4o]
    admission: {maxInflight: 4}
  embeddings: {upstream: "http://10.0.0.2:80", engine: none}
  guarded: {upstream: "http://10.0.0.3:80", engine: none, requireAuth: true}
adapters:
  memory: {upstream: "http://10.2.0.1:80"}
  s3: {upstream: "http://10.2.0.2:80", accessKey: key, secretKey: secret}
  sqs: {upstream: "http://10.2.0.3:80", accessKey: key, secretKey: secret}
  iam: {upstream: "http://10.2.0.4:80", token: token}
  notification: {upstream: "http://10.2.0.5:80", token: token}
  registry: {upstream: "http://10.2.0.6:80"}
webhooks: {forgejo: {secret: hook}}
auth:
  issuer: https://issuer.example
  audience: gateway
  jwksUrl: http://10.9.0.1/jwks
  tokenUrl: http://10.9.0.1/token
"""
LISTING = """<ListBucketResult><Name>checks</Name><IsTruncated>false</IsTruncated>{}
</ListBucketResult>"""
OBJECT = "<Contents><Key>{}</Key><Size>1</Size></Contents>"


class Services:
    """What stands behind the gateway: each answers as its kind does.

    Attributes:
        objects: path -> content, of the store.
    """

    def __init__(self, stack: Stack) -> None:
        self.objects: dict[str, bytes] = {}
        self._stack = stack
        self._answered: set[int] = set()
        self._by_host: dict[str, Any] = {
            "10.0.0.1": self._chat,
            "10.0.0.2": self._embeddings,
            "10.0.0.3": self._chat,
            "10.2.0.1": lambda asked: asked.answer(body={"id": 1}),
            "10.2.0.2": self._store,
            "10.2.0.3": lambda asked: asked.answer(body={"QueueUrls": ["http://x/000/jobs"]}),
            "10.2.0.4": lambda asked: asked.answer(body={"results": [], "pagination": {}}),
            "10.2.0.5": lambda asked: asked.answer(body={"id": 3, "title": "x", "message": "y"}),
            "10.2.0.6": lambda asked: asked.answer(body={"ok": True, "data": []}),
            "10.9.0.1": self._issuer,
        }

    def serve(self) -> bool:
        """Answer what has been asked; says whether anything was."""
        progress = False
        for (host, _), engine in list(self._stack.engines.items()):
            for asked in list(engine.asked):
                if id(asked) not in self._answered:
                    self._answered.add(id(asked))
                    self._by_host[host](asked)
                    progress = True
        return progress

    def _chat(self, asked: Asked) -> None:
        if not asked.path.startswith("/v1/chat"):
            asked.answer(404, {"detail": "Not Found"})
        elif json.loads(asked.body).get("stream"):
            asked.stream(ROLE, token("Yes"), DONE).end()
        else:
            asked.answer(body={"choices": [{"message": {"content": "Yes."}}]})

    def _embeddings(self, asked: Asked) -> None:
        if asked.path == "/v1/embeddings":
            asked.answer(body={"data": [{"embedding": [0.5, -0.5]}]})
        else:
            asked.answer(404, {"detail": "Not Found"})

    def _store(self, asked: Asked) -> None:
        path = asked.path.partition("?")[0]
        if path == "/checks":
            keys = "".join(OBJECT.format(key.removeprefix("/checks/")) for key in self.objects)
            asked.answer(body=LISTING.format(keys).encode(), content_type="application/xml")
        elif asked.method == "PUT":
            self.objects[path] = asked.body
            asked.answer(body=b"", extra='ETag: "1"\r\n')
        elif asked.method == "DELETE":
            self.objects.pop(path, None)
            asked.send(b"HTTP/1.1 204 Gone\r\n\r\n")
        elif path in self.objects:
            asked.answer(body=self.objects[path], content_type="application/octet-stream")
        else:
            asked.answer(404, b"<Error><Code>NoSuchKey</Code></Error>", "application/xml")

    def _issuer(self, asked: Asked) -> None:
        if asked.path == "/jwks":
            asked.answer(body=issuer.jwks(issuer.ec_jwk("ec-1")))
        else:
            asked.answer(body={"access_token": issuer.token(now=self._stack.now)})


class WholeTests(ToolTestCase):
    """The check before the gateway as it is."""

    def setUp(self) -> None:
        super().setUp()
        self.stack = Stack(self, CONFIG)
        self.services = Services(self.stack)
        sites = [server[1] for server in self.stack.reactor.tcpServers]
        self.use(self.stack.reactor, dict(zip((8080, 9090), sites, strict=True)))

    def settle(self) -> None:
        self.stack.settle()
        while self.services.serve():
            self.stack.settle()

    def test_everything(self) -> None:
        """Every check passes that can be made without a Temporal; nothing is left behind."""
        self.environ["S"] = "client-secret"
        credentials = ["--client-id", "tester", "--client-secret-env", "S"]
        status = self.check(*credentials, "--bucket", "checks", "--notify", seconds=2)
        self.assertEqual(status, 0, self.printed.getvalue())
        verdicts = self.verdicts()
        self.assertEqual(set(verdicts.values()), {"ok"})
        names = {name.partition(" ")[0] for name in verdicts}
        absent = {"workflow-list", "workflow-namespace", "rerank", "sessions", "cleanup"}
        self.assertEqual(names, set(CHECKS) - absent)
        self.assertEqual(self.services.objects, {})
        for model in ("reasoning", "guarded"):
            self.assertEqual(verdicts[f"stream {model}"], "ok")
        self.assertNotIn("chat gpt-4o", verdicts)

    def test_ids_are_in_the_log(self) -> None:
        """Each id that the report names stands in the gateway's own account."""
        self.assertEqual(self.check("--services", "", seconds=2), 1, self.printed.getvalue())
        self.assertEqual(self.rows()["chat guarded"][0], "FAILED")
        logged = {entry.request_id for entry in self.stack.entries}
        (told,) = [line for line in self.printed.getvalue().splitlines() if "FAILED" in line]
        request_id = told.rpartition("[")[2].rstrip("]")
        self.assertIn(request_id, logged)

    def test_parked(self) -> None:
        """While the engine is full the check waits its turn, behind everybody."""
        self.stack.poll(running=4)
        made = self.begin("--services", "", "--models", "reasoning", "--timeout", "300")
        self.advance(30)
        self.assertNoResult(made)
        (parked,) = self.stack.facts()["parked"]
        self.assertEqual(parked["priority"], "batch")
        engine = self.stack.engine()
        engine.gauges = {"running": 0, "waiting": 0, "kv": 0.0}
        self.advance(10)
        self.assertEqual(self.status(made), 0, self.printed.getvalue())
        self.assertEqual(self.verdicts()["stream reasoning"], "ok")

    def test_draining(self) -> None:
        """A gateway that drains is not ready, and nothing else is asked of it."""
        self.stack.gateway.drain()  # type: ignore[unused-awaitable]
        status = self.check("--wait", "0")
        self.assertEqual(status, 3)
        self.assertIn("draining", self.rows()["ready"][1])
