"""A kube-apiserver on a real socket, over TLS, and a kubelet behind it.

What it accepts and refuses is in tests/services/sessions/apiserver.py: strict schemas, RBAC by the
gateway's own manifest, conflicts, finalizers, graceful deletion, watches.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from pathlib import Path

from tests.integration.fakes.authority import Authority
from tests.integration.fakes.serving import Handler, Server
from tests.services.sessions.apiserver import ApiServer, Reply, Request, Watch, leaving

STEP_SECONDS = 0.02


class KubeServer(Server):
    """The API of one cluster, and a service account's directory for it.

    Attributes:
        api: the cluster.
        account: the directory, with `token` and `ca.crt`.
        lock: held by whoever looks at `api`, or changes it.
        start_seconds: how long a pod takes to become Ready.
        end_seconds: how long a pod takes to end.

    Args:
        directory: for the service account's and the certificate.
    """

    def __init__(self, directory: Path) -> None:
        self.api = ApiServer(time.time)
        self.lock = threading.RLock()
        self.start_seconds = 0.2
        self.end_seconds = 0.2
        self.account = directory / "serviceaccount"
        self.account.mkdir(parents=True, exist_ok=True)
        self.authority = Authority()
        self.authority.issue(directory / "apiserver.pem")
        (self.account / "ca.crt").write_bytes(self.authority.certificate)
        (self.account / "token").write_text("token-1")
        self._since: dict[tuple[str, str], float] = {}
        self._over = threading.Event()
        super().__init__(certificate=directory / "apiserver.pem")
        self._kubelet = threading.Thread(target=self._run, daemon=True)
        self._kubelet.start()

    def rotate(self, token: str) -> None:
        """The service account's token is another from now on."""
        with self.lock:
            (self.account / "token").write_text(token)
            self.api.tokens = {token}

    def answer(
        self, handler: Handler, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> None:
        """Answer a request; a watch goes on for as long as it was asked for."""
        lines: queue.Queue[bytes] = queue.Queue()
        with self.lock:
            reply = self.api.handle(Request(method, path, headers, body))
            if reply.watch is not None:
                reply.watch.send = lines.put
        if not reply.status:
            handler.close_connection = True
        elif reply.watch is None:
            _send(handler, reply)
        else:
            self._stream(handler, reply.watch, lines)

    def _stream(self, handler: Handler, watch: Watch, lines: queue.Queue[bytes]) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        until = time.monotonic() + watch.seconds
        try:
            for line in watch.backlog:
                _chunk(handler, line)
            while not (watch.over or self._over.is_set()):
                left = until - time.monotonic()
                if left <= 0:
                    break
                try:
                    _chunk(handler, lines.get(timeout=min(left, 0.2)))
                except queue.Empty:
                    continue
            _chunk(handler, b"")
        finally:
            watch.over = True

    # The kubelet

    def _run(self) -> None:
        while not self._over.wait(STEP_SECONDS):
            with self.lock:
                for kind, name in list(self.api.objects):
                    if kind == "pods":
                        self._step(name)

    def _step(self, name: str) -> None:
        session = name.removeprefix("pi-session-")
        pod = self.api.pod(session)
        going = leaving(pod)
        key = (pod["metadata"]["uid"], "end" if going else "start")
        took = time.monotonic() - self._since.setdefault(key, time.monotonic())
        if going and took >= self.end_seconds:
            self.api.finish(session)
        elif going or pod["status"]["phase"] != "Pending":
            return
        elif "unpullable" in pod["spec"]["containers"][0]["image"]:
            if "containerStatuses" not in pod["status"]:
                self.api.become_unpullable(session)
        elif took >= self.start_seconds and self.api.can_start(session):
            self.api.become_ready(session)

    def stop(self) -> None:
        """End the kubelet and every watch, too."""
        self._over.set()
        super().stop()


def _send(handler: Handler, reply: Reply) -> None:
    fields = {} if reply.retry_after is None else {"Retry_After": str(reply.retry_after)}
    handler.send(reply.status, json.dumps(reply.tree).encode(), **fields)


def _chunk(handler: Handler, data: bytes) -> None:
    handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
    handler.wfile.flush()
