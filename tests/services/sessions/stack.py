"""A gateway in memory before a kube-apiserver, a fleet controller and a memory service."""

from __future__ import annotations

import json
from typing import Any, Self

from tests.services.sessions.apiserver import ApiServer, Reply, Request, Watch, leaving
from tests.stack import Asked, Client, Engine, Stack
from tests.support import TestCase

KUBERNETES = ("10.5.0.1", 8001)
FLEET = ("10.5.0.2", 8788)
MEMORY = ("10.5.0.3", 8080)

CONFIG = """
adapters:
  sessions:
    namespace: poimen
    image: registry.example/session-runtime:1.0
    imagePullSecret: registry
    storage: {class: longhorn, size: 1Gi}
    kubernetes: {server: "http://10.5.0.1:8001", token: token-1}
    requireAuth: false
    EXTRA
"""
WITH_FLEET = CONFIG.replace("EXTRA", 'fleet: "http://10.5.0.2:8788"')
WITH_ENTITY = CONFIG.replace(
    "EXTRA", 'memoryEntity: "http://10.5.0.3:8080/entities/session-{session_id}"'
)
PLAIN = CONFIG.replace("EXTRA", "")


class KubeEngine(Engine):
    """The API on a connection in memory.

    Attributes:
        held: requests that are not answered yet, where `holding`.
    """

    def __init__(self, stack: Stack, api: ApiServer) -> None:
        super().__init__(stack)
        self.api = api
        self.holding = False
        self.held: list[Asked] = []
        self.watches: list[tuple[Watch, Asked]] = []

    def _take(self, asked: Asked) -> None:
        self.asked.append(asked)
        if self.holding:
            self.held.append(asked)
        else:
            self.reply(asked)

    def step(self, count: int = 1) -> None:
        """Answer what is held, and hold what comes of it, so many times."""
        for _ in range(count):
            held, self.held = self.held, []
            for asked in held:
                self.reply(asked)
            self.stack.settle()

    def let_go(self) -> None:
        """Answer what is held, and everything from here on."""
        self.holding = False
        held, self.held = self.held, []
        for asked in held:
            self.reply(asked)
        self.stack.settle()

    def reply(self, asked: Asked) -> None:
        """Answer a request."""
        request = Request(asked.method, asked.path, asked.headers, asked.body)
        reply = self.api.handle(request)
        if asked.gone:
            return
        if not reply.status:
            asked.die()
            return
        if reply.watch is None:
            asked.wire.deliver(whole(reply))
            return
        watch = reply.watch
        self.watches.append((watch, asked))
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
        asked.wire.deliver(head + b"transfer-encoding: chunked\r\n\r\n")

        def send(line: bytes) -> None:
            if not asked.gone:
                asked.wire.deliver(b"%x\r\n%s\r\n" % (len(line), line))

        watch.send = send
        for line in watch.backlog:
            send(line)
        if watch.over:
            asked.wire.deliver(b"0\r\n\r\n")

    def end_watches(self) -> None:
        """Every watch has gone on for long enough, and ends."""
        watches, self.watches = self.watches, []
        for watch, asked in watches:
            watch.over = True
            if not asked.gone:
                asked.wire.deliver(b"0\r\n\r\n")
        self.stack.settle()

    @property
    def open_watches(self) -> int:
        """How many watches somebody still reads."""
        return len([watch for watch, asked in self.watches if not (asked.gone or watch.over)])


class SessionsTestCase(TestCase):
    """A test with a gateway before Kubernetes.

    Attributes:
        stack: the gateway.
        api: the cluster.
        kube: the cluster's API on its address.
    """

    config = PLAIN

    def setUp(self) -> None:
        super().setUp()
        self.stack = Stack(self, self.config)
        self.api = ApiServer(lambda: self.stack.now)
        self.kube = KubeEngine(self.stack, self.api)
        self.stack.engines[KUBERNETES] = self.kube

    @property
    def fleet(self) -> Engine:
        """The fleet controller."""
        return self.stack.engine(*FLEET)

    @property
    def memory(self) -> Engine:
        """The memory service."""
        return self.stack.engine(*MEMORY)

    def ask(self, method: str, session: str = "s1", query: str | None = None) -> Client:
        """Send a request for a session."""
        text = f"session_id={session}" if query is None else query
        lines = "Host: g\r\nX-Service: sessions\r\nX-Resource: sandbox\r\nContent-Length: 0\r\n"
        return self.stack.client().send(f"{method} /?{text} HTTP/1.1\r\n{lines}\r\n".encode())

    def post(self, session: str = "s1") -> Client:
        """Ask for a sandbox."""
        return self.ask("POST", session)

    def delete(self, session: str = "s1") -> Client:
        """Have a sandbox removed."""
        return self.ask("DELETE", session)

    def ready(self, session: str = "s1") -> None:
        """The session's pod becomes Ready."""
        self.api.become_ready(session)
        self.stack.settle()

    def replica(self) -> Self:
        """Another replica before the same cluster."""
        other = type(self)("setUp")
        # Not what a test prepares beyond it.
        SessionsTestCase.setUp(other)
        other.api = other.kube.api = self.api
        self.addCleanup(other.doCleanups)
        return other

    def running(self, session: str = "s1") -> Client:
        """Have a sandbox that runs."""
        client = self.post(session)
        self.ready(session)
        assert client.status == 200, client.received
        self.api.asked.clear()
        self.api.created.clear()
        return client


class ReaperTestCase(SessionsTestCase):
    """A test with sandboxes in several stages."""

    def look(self) -> None:
        """Let the reaper look once."""
        before = len([one for one in self.api.asked if one[1].startswith("leases/")])
        while len([one for one in self.api.asked if one[1].startswith("leases/")]) == before:
            self.stack.advance(20, step=20)

    def looks(self, count: int) -> None:
        """Let it look so many times."""
        for _ in range(count):
            self.look()

    def kept(self, kind: str, name: str) -> bool:
        """Whether an object is there, and stays."""
        found = self.api.objects.get((kind, name))
        return found is not None and not leaving(found)

    def lease(self) -> dict[str, object]:
        spec: dict[str, object] = self.api.objects["leases", "pi-session-reaper"]["spec"]
        return spec


def whole(reply: Reply) -> bytes:
    """An answer as it goes over the wire."""
    body = json.dumps(reply.tree).encode()
    retry = b"" if reply.retry_after is None else b"retry-after: %d\r\n" % reply.retry_after
    return (
        b"HTTP/1.1 %d Said\r\ncontent-type: application/json\r\n%scontent-length: %d\r\n\r\n"
        % (reply.status, retry, len(body))
    ) + body


def tree(asked: Asked) -> Any:
    """The body of a request, as JSON."""
    return json.loads(asked.body)
