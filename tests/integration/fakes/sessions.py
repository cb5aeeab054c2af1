"""A fleet controller and a memory service on real sockets."""

from __future__ import annotations

import hashlib
import json
import threading
from typing import Any

from tests.integration.fakes.serving import Handler, Server


class FleetServer(Server):
    """A fleet controller with a few warm pods.

    Attributes:
        warm: how many there are.
        assigned: session -> the DNS name of its pod.
        mood: `well`, `refuses`, `hangs`, `lies`.
        released: who was given back, in order.
    """

    def __init__(self, warm: int) -> None:
        self.warm = warm
        self.assigned: dict[str, str] = {}
        self.released: list[str] = []
        self.mood = "well"
        self.over = threading.Event()
        self._lock = threading.Lock()
        super().__init__()

    def answer(
        self, handler: Handler, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> None:
        """Assign or release."""
        _, sessions, session, verb = path.split("/")
        assert (method, sessions) == ("POST", "sessions")
        if self.mood == "hangs":
            self.over.wait(30)
            return
        if self.mood == "lies":
            handler.send(200, b"<html>ready</html>")
            return
        with self._lock:
            status, tree = self._release(session) if verb == "release" else self._assign(session)
        handler.send(status, json.dumps(tree).encode())

    def _assign(self, session: str) -> tuple[int, dict[str, Any]]:
        if self.mood == "refuses" or (session not in self.assigned and not self.warm):
            return 503, {"error": "no warm pod"}
        if session not in self.assigned:
            self.warm -= 1
            self.assigned[session] = f"warm-{self.warm}.poimen.svc.cluster.local"
        dns = self.assigned[session]
        return 200, {"svc_dns": dns, "pod_name": dns.partition(".")[0]}

    def _release(self, session: str) -> tuple[int, dict[str, Any]]:
        self.released.append(session)
        if self.assigned.pop(session, None) is None:
            return 404, {"error": "not assigned"}
        self.warm += 1
        return 200, {}


class EntityServer(Server):
    """A memory service whose entities have versions.

    Attributes:
        entities: path -> entity.
    """

    def __init__(self) -> None:
        self.entities: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()
        super().__init__()

    def answer(
        self, handler: Handler, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> None:
        """Give an entity, or replace it if it is still of the version that is named."""
        with self._lock:
            found = self.entities.get(path)
            tag = None if found is None else _tag(found)
            if method == "GET":
                status = 404 if found is None else 200
            elif headers.get("if-match", tag) != tag or (found and "if-none-match" in headers):
                status = 412
            else:
                status, self.entities[path] = 200, json.loads(body)
                found = self.entities[path]
        fields = {} if found is None else {"ETag": _tag(found)}
        handler.send(status, json.dumps(found or {}).encode(), **fields)


def _tag(entity: dict[str, Any]) -> str:
    text = json.dumps(entity, sort_keys=True).encode()
    return f'"{hashlib.sha256(text).hexdigest()[:16]}"'
