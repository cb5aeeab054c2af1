"""HTTP servers of the tests' own, each a thread of this process on a port of loopback."""

from __future__ import annotations

import atexit
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Handler(BaseHTTPRequestHandler):
    """Hands every request to its server's `answer`."""

    protocol_version = "HTTP/1.1"
    # A head and a body in two segments would otherwise wait for each other (Nagle).
    disable_nagle_algorithm = True
    server: Server

    def respond(self) -> None:
        """Read the body, and have it answered."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.answer(self, self.command, self.path, headers, body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = respond

    def send(self, status: int, body: bytes, **fields: str) -> None:
        """Send a whole answer."""
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **fields}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: what was asked is kept."""


class Server(ThreadingHTTPServer):
    """A server that runs until the tests end, or `stop`.

    Args:
        port: its port; 0 is any.
        certificate: a file with key and certificate, for HTTPS.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int = 0, certificate: Path | None = None) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.port: int = self.server_address[1]
        scheme = "http"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            # The handshake is made by the connection's own thread, at its first read.
            self.socket = context.wrap_socket(
                self.socket, server_side=True, do_handshake_on_connect=False
            )
            scheme = "https"
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        atexit.register(self.stop)

    def answer(
        self, handler: Handler, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> None:
        """Answer a request."""
        raise NotImplementedError

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of connections that are cut: tests cut them."""

    def stop(self) -> None:
        """Serve nobody any more."""
        atexit.unregister(self.stop)
        self.shutdown()
        self.server_close()
        self._thread.join(5)
