"""A client that sees the bytes: when each line came, under which head, and how it ended."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from tests.integration.processes import wait_until

TLS = ssl.create_default_context()
"""What servers' certificates are checked with; a test has it trust its own authority."""


class Answer:
    """A whole answer."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    def json(self) -> Any:
        """The body, which is JSON."""
        return json.loads(self.body)


def get(url: str, *, seconds: float = 10.0) -> Answer:
    """Ask for a page."""
    return _whole(url, "GET", None, {}, seconds)


def post(
    url: str,
    body: Mapping[str, Any],
    *,
    headers: Mapping[str, str] | None = None,
    seconds: float = 60.0,
) -> Answer:
    """Send JSON and wait for the whole answer."""
    return _whole(url, "POST", json.dumps(body).encode(), headers or {}, seconds)


def exchange(
    url: str,
    method: str,
    body: bytes | Iterable[bytes] | None,
    headers: Mapping[str, str],
    *,
    seconds: float = 60.0,
) -> Answer:
    """Send a request as it stands and wait for the whole answer; an iterable goes out chunked."""
    connection, path = _connection(url, seconds)
    try:
        connection.request(method, path, body, dict(headers))
        response = connection.getresponse()
        return Answer(response.status, _lower(response), response.read())
    finally:
        connection.close()


def _whole(
    url: str, method: str, body: bytes | None, headers: Mapping[str, str], seconds: float
) -> Answer:
    connection, path = _connection(url, seconds)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json", **headers})
        response = connection.getresponse()
        return Answer(response.status, _lower(response), response.read())
    finally:
        connection.close()


def _connection(url: str, seconds: float) -> tuple[http.client.HTTPConnection, str]:
    parts = urlsplit(url)
    assert parts.hostname is not None
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        connection = http.client.HTTPSConnection(
            parts.hostname, parts.port, timeout=seconds, context=TLS
        )
    else:
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=seconds)
    return connection, f"{parts.path}?{parts.query}" if parts.query else parts.path


def _lower(response: http.client.HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.getheaders()}


class Call:
    """One request under way, read as it comes by a thread of its own.

    Attributes:
        status: once the head is there, else None.
        headers: by lower-case name.
        lines: what has been read, as (seconds since the request, line without its end).
        fault: what broke the answer off, None where it ended cleanly.
        done: set when it is over.
    """

    def __init__(
        self,
        url: str,
        body: Mapping[str, Any],
        *,
        headers: Mapping[str, str] | None = None,
        silence_seconds: float = 300.0,
    ) -> None:
        """Send it."""
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.lines: list[tuple[float, str]] = []
        self.fault: Exception | None = None
        self.done = threading.Event()
        self._started = time.monotonic()
        self._connection, path = _connection(url, silence_seconds)
        sent = {"Content-Type": "application/json", **(headers or {})}
        self._connection.request("POST", path, json.dumps(body).encode(), sent)
        # The connection forgets its socket once an answer is to be read to its close.
        self._socket = self._connection.sock
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def text(self) -> str:
        """Everything that has been read."""
        return "\n".join(line for _, line in self.lines)

    @property
    def comments(self) -> list[float]:
        """When each comment came."""
        return [at for at, line in self.lines if line.startswith(":")]

    @property
    def contents(self) -> list[float]:
        """When each event with content came (chat completions)."""
        return [at for at, line in self.lines if _bears_content(line)]

    @property
    def whole(self) -> bool:
        """Whether it is a stream that has ended as it should."""
        return (
            self.done.is_set() and self.fault is None and self.text.endswith("\ndata: [DONE]\n\n")
        )

    def expect(self, condition: Callable[[Call], object], seconds: float, what: str) -> float:
        """Wait until the condition holds of this; returns the seconds that it took.

        Raises:
            AssertionError: it does not in that time; the message shows what was read.
        """
        try:
            return wait_until(lambda: condition(self), seconds, what)
        except AssertionError as fault:
            raise AssertionError(f"{fault}\n{self.describe()}") from None

    def finish(self, seconds: float) -> Call:
        """Wait for its end."""
        self.expect(lambda call: call.done.is_set(), seconds, "the end of the answer")
        return self

    def leave(self) -> None:
        """Go away in the middle."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._connection.close()

    def describe(self) -> str:
        """For messages: how far it got."""
        last = [f"{at:.2f} {line[:200]}" for at, line in self.lines[-8:]]
        state = "over" if self.done.is_set() else "under way"
        head = f"{state}, status {self.status}, {len(self.lines)} lines, fault {self.fault!r}"
        return "\n".join([head, *last])

    def _read(self) -> None:
        try:
            response = self._connection.getresponse()
            self.headers = _lower(response)
            self.status = response.status
            zipped = self.headers.get("content-encoding") == "gzip"
            inflate = zlib.decompressobj(wbits=31).decompress if zipped else _as_it_is
            rest = b""
            while data := response.read1(65536):
                at = time.monotonic() - self._started
                *lines, rest = (rest + inflate(data)).split(b"\n")
                self.lines.extend((at, line.decode()) for line in lines)
            self.lines.append((time.monotonic() - self._started, rest.decode()))
        except (OSError, http.client.HTTPException, ValueError) as fault:
            self.fault = fault
        finally:
            self.done.set()


def _as_it_is(data: bytes) -> bytes:
    return data


def _bears_content(line: str) -> bool:
    if not line.startswith("data: {"):
        return False
    choices = json.loads(line[6:]).get("choices") or [{}]
    return bool(choices[0].get("delta", {}).get("content"))
