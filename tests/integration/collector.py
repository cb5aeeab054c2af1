"""An OpenTelemetry collector, and where it sends what it was given: a sink that can be read."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.integration.cache import Unavailable, made
from tests.integration.processes import Process, free_port

VERSION = "0.0.1a15"
KINDS = {1: "internal", 2: "server", 3: "client"}


@dataclass(frozen=True, slots=True)
class Span:
    """One span, as it came out of the collector.

    Attributes:
        parent: the span id of its parent, "" for none.
        kind: `internal`, `server` or `client`.
        error: whether its status is an error.
        events: the names of its events.
        began, ended: Unix time in nanoseconds.
        resource: the attributes of what made it.
    """

    name: str
    trace_id: str
    span_id: str
    parent: str
    kind: str
    error: bool
    attributes: dict[str, Any]
    events: list[str]
    began: int
    ended: int
    resource: dict[str, Any]


class Sink:
    """Takes spans over OTLP/HTTP, as a tracing backend does, and keeps them.

    Attributes:
        url: its base URL.
    """

    def __init__(self) -> None:
        """Listen on a free port of loopback, until the process ends."""
        self._spans: list[Span] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def spans(self, trace_id: str = "") -> list[Span]:
        """Those of one trace, or all, in the order in which they came."""
        return [span for span in list(self._spans) if trace_id in ("", span.trace_id)]

    def close(self) -> None:
        """Listen no more."""
        self._server.shutdown()
        self._server.server_close()

    def _take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            of = _attributes(resource.resource.attributes)
            for scope in resource.scope_spans:
                self._spans += [_span(one, of) for one in scope.spans]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        sink = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                sink._take(body)
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *unused: object) -> None:
                pass

        return Handler


class Collector:
    """A rotel on ports of its own, in front of a sink, or of nothing.

    Args:
        logs: the directory for its log.
        sink: where it sends spans; None: it throws them away.

    Raises:
        Unavailable: it cannot be had here.
    """

    def __init__(self, logs: Path, sink: Sink | None) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        name = f"rotel-{port}"
        command = [str(_program()), "start", "--log-file", str(logs / f"{name}.own.log")]
        command += ["--pid-file", str(logs / f"{name}.pid"), "--traces-batch-timeout", "100ms"]
        command += ["--otlp-http-endpoint", f"127.0.0.1:{port}"]
        command += ["--otlp-grpc-endpoint", f"127.0.0.1:{free_port()}"]
        if sink is None:
            command += ["--exporter", "blackhole"]
        else:
            command += ["--exporter", "otlp", "--otlp-exporter-protocol", "http"]
            command += ["--otlp-exporter-endpoint", sink.url]
        self.process = Process(name, command, logs)

    def start(self) -> None:
        """Start it and wait until it takes spans.

        Raises:
            NotReady: it does not in time, or has ended.
        """
        self.process.start()
        self.process.wait_ready(self._answers, 20.0)

    def _answers(self) -> bool:
        empty = Request(f"{self.url}/v1/traces", b"", {"Content-Type": "application/x-protobuf"})
        try:
            with urlopen(empty, timeout=2):
                return True
        except HTTPError:
            return True
        except OSError:
            return False


def _program() -> Path:
    directory = made(f"rotel-{VERSION}", _install)
    return directory / "rotel" / "rotel-agent"


def _install(directory: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    done = subprocess.run(
        [*pip, "--target", str(directory), f"rotel=={VERSION}"],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )
    program = directory / "rotel" / "rotel-agent"
    if done.returncode or not program.exists():
        raise Unavailable(f"rotel {VERSION} cannot be installed: {done.stderr.strip()[-500:]}")
    program.chmod(0o755)


def _span(span: Any, resource: dict[str, Any]) -> Span:
    return Span(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        kind=KINDS.get(span.kind, str(span.kind)),
        error=span.status.code == 2,
        attributes=_attributes(span.attributes),
        events=[event.name for event in span.events],
        began=span.start_time_unix_nano,
        ended=span.end_time_unix_nano,
        resource=resource,
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    which = value.WhichOneof("value")
    readers: dict[str, Callable[[], Any]] = {
        "array_value": lambda: [_value(one) for one in value.array_value.values]
    }
    return readers.get(which, lambda: getattr(value, which))()
