"""What the fakes of JSON services share: a real socket, and the requests that came."""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass
class Came:
    """A request that came.

    Attributes:
        query: name -> value; one that stands twice makes the request bad.
        headers: names in lower case.
    """

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


@dataclass
class Said:
    """What is answered."""

    status: int
    tree: Any
    headers: dict[str, str] | None = None


class Refusal(Exception):
    """A request is refused."""

    def __init__(self, status: int, tree: Any) -> None:
        super().__init__(status)
        self.said = Said(status, tree)


class Server(ThreadingHTTPServer):
    """Serves each connection in a thread; that a client leaves in the middle is no news."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class FakeService:
    """A service on a port of loopback, until `stop`; subclasses have `answer`.

    Attributes:
        url: its base URL.
        came: what it was asked.
    """

    def __init__(self) -> None:
        self.came: list[Came] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                said = service.asked(self.command, self.path, dict(self.headers), body)
                content = b"" if said.tree is None else json.dumps(said.tree).encode()
                self.send_response(said.status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                for name, value in (said.headers or {}).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = handle_any

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._server.server_close()

    def asked(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Said:
        """Take a request."""
        parts = urlsplit(target)
        query = parse_qs(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        came = Came(
            method,
            parts.path,
            {name: values[0] for name, values in query.items()},
            {name.lower(): value for name, value in headers.items()},
            body,
        )
        self.came.append(came)
        if any(len(values) > 1 for values in query.values()):
            return Said(400, {"detail": "a parameter stands twice"})
        try:
            return self.answer(came)
        except Refusal as refusal:
            return refusal.said

    def answer(self, came: Came) -> Said:
        """Answer a request; raises `Refusal`."""
        raise NotImplementedError
