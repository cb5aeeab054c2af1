"""docs/nginx/nginx.conf in a real nginx: header fields, bodies and connections."""

from __future__ import annotations

import json
import re
import shutil
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

from tests.integration import wire
from tests.integration.nginx import HOST, Published
from tests.integration.processes import pause
from tests.integration.published import ECHO, NginxTestCase
from tests.integration.wire import Answer, exchange, get, post

MIB = 1 << 20
OBJECT_MIB = 100
# Far from 100: what nginx holds of a body on its way is some buffers.
MOST_GROWTH_MIB = 8
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRUSTING = {"# 10.20.0.0/16 1;": "127.0.0.0/8 1;"}


class FieldTests(NginxTestCase):
    """What of a request's head goes on, and comes back."""

    def _ask(
        self, nginx: Published | None = None, /, **headers: str
    ) -> tuple[Answer, dict[str, str]]:
        """The answer, and the header fields that the engine saw."""
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        url = f"{(nginx or self.nginx).url}/v1/chat/completions"
        answer = post(url, {"model": ECHO, "messages": []}, headers=fields)
        self.assertEqual(answer.status, 200, answer.body)
        return answer, self.shared.echo.came[-1]

    def test_request_id(self) -> None:
        """One id everywhere: the client's where it is well-formed, else one of nginx's making."""
        answer, _ = self._ask(X_Request_ID="order-66.a_b")
        self.assertEqual(answer.headers["x-request-id"], "order-66.a_b")
        self.logged("order-66.a_b")
        self.gateway_line("order-66.a_b")
        for given in ({}, {"X_Request_ID": 'a"b <c>'}, {"X_Request_ID": "x" * 129}):
            answer, _ = self._ask(**given)
            made = answer.headers["x-request-id"]
            self.assertRegex(made, r"^[0-9a-f]{32}$")
            self.assertEqual(self.logged(made)["status"], 200)
            self.gateway_line(made)

    def test_trace_of_strangers(self) -> None:
        """What strangers say of traces goes no further."""
        self._ask(X_Request_ID="stranger", traceparent=TRACEPARENT, tracestate="a=b", baggage="c=d")
        came = self.shared.echo.came[-1]
        self.assertFalse({"tracestate", "baggage"} & came.keys())
        self.assertNotIn("0af7651916cd43dd8448eb211c80319c", came.get("traceparent", ""))
        self.assertIn(" trace_id=- ", self.gateway_line("stranger"))

    def test_trace_of_friends(self) -> None:
        """What trusted clients say of traces reaches the engine."""
        friends = self.another("nginx-trusting", TRUSTING)
        given = {"traceparent": TRACEPARENT, "tracestate": "a=b", "baggage": "c=d"}
        _, came = self._ask(friends, X_Request_ID="friend", **given)
        self.assertEqual({name: came.get(name) for name in given}, given)
        trace = TRACEPARENT.split("-")[1]
        self.assertIn(f" trace_id={trace} ", self.gateway_line("friend"))

    def test_tenant(self) -> None:
        """Nobody but a trusted client can say whom a request counts for."""
        friends = self.another("nginx-trusting-tenants", TRUSTING)

        def tenants(nginx: Published, tag: str) -> set[str]:
            for name in ("red", "blue"):
                self._ask(nginx, X_Request_ID=f"{tag}-{name}", X_Tenant=name)
            lines = [self.gateway_line(f"{tag}-{name}") for name in ("red", "blue")]
            return {re.findall(r" tenant=(\S+)", line)[0] for line in lines}

        self.assertEqual(len(tenants(self.nginx, "strange")), 1)
        self.assertEqual(len(tenants(friends, "known")), 2)

    def test_forwarded(self) -> None:
        """The gateway's redirects and its word to engines name what the client asked."""
        _, came = self._ask(X_Forwarded_Host="evil.example", X_Forwarded_Proto="gopher")
        self.assertEqual((came["x-forwarded-host"], came["x-forwarded-proto"]), (HOST, "https"))

    def test_log(self) -> None:
        """The log has paths without query strings, and how long each side took."""
        url = f"{self.front}/v1/models?key=sesame"
        answer = exchange(url, "GET", None, {"X-Request-ID": "quiet"})
        self.assertEqual(answer.status, 200)
        line = self.logged("quiet")
        self.assertEqual((line["path"], line["status"]), ("/v1/models", 200))
        self.assertEqual(line["upstream_status"], "200")
        self.assertGreaterEqual(float(line["upstream_seconds"]), 0)
        self.assertNotIn("sesame", (self.nginx.home / "llm-gateway.log").read_text())


class BodyTests(NginxTestCase):
    """Large bodies, refusals before their end, and connections."""

    def test_large(self) -> None:
        """100 MiB in and out: nothing on nginx's disk, nothing kept in its memory."""
        nginx = self.another("nginx-large", {"worker_processes auto;": "worker_processes 1;"})
        # Where it would have to keep anything in a file, it now has to fail.
        nginx.forbid_files()
        bucket = self.shared.store.bucket("large")
        self.addCleanup(shutil.rmtree, bucket)
        (worker,) = nginx.workers()
        before = _most_rss_mib(worker)
        lines = {"X-Service": "s3", "X-Resource": "put", "Content-Length": str(OBJECT_MIB * MIB)}
        url = f"{nginx.url}/v1/?bucket=large&key=object"
        put = exchange(url, "PUT", _mebibytes(OBJECT_MIB), lines, seconds=120)
        self.assertEqual(put.status, 200, put.body)
        self.assertEqual((bucket / "object").stat().st_size, OBJECT_MIB * MIB)
        del lines["Content-Length"]
        chunked = exchange(url, "PUT", _mebibytes(20), lines, seconds=120)
        self.assertEqual(chunked.status, 200, chunked.body)
        self.assertEqual((bucket / "object").stat().st_size, 20 * MIB)
        # A client that takes its time: nginx reads on no faster than it does.
        (bucket / "object").write_bytes(b"x" * (OBJECT_MIB * MIB))
        self.assertEqual(_read_slowly(nginx.url, "/v1/?bucket=large&key=object"), OBJECT_MIB * MIB)
        growth = _most_rss_mib(worker) - before
        print(f"nginx: {before} MiB, and {growth} more for {OBJECT_MIB} MiB in and out")
        self.assertLess(growth, MOST_GROWTH_MIB)

    def test_too_large(self) -> None:
        """The gateway's own 413 arrives, early and for bodies without a length alike."""
        body = json.dumps({"model": ECHO, "padding": "x" * (2 * MIB)}).encode()
        url = f"{self.front}/v1/chat/completions"
        lines = {"Content-Type": "application/json"}
        for sent in (body, iter([body])):
            answer = exchange(url, "POST", sent, lines)
            self.assertEqual(answer.status, 413)
            self.assertEqual(answer.json()["type"], "urn:twisted-gateway:problem:body_too_large")

    def test_far_too_large(self) -> None:
        """What no adapter takes nginx refuses by itself, in the gateway's form."""
        connection = self._connect()
        connection.sendall(
            b"PUT /v1/?bucket=a&key=b HTTP/1.1\r\nHost: localhost\r\nX-Service: s3\r\n"
            b"X-Resource: put\r\nContent-Length: 5368709121\r\n\r\n"
        )
        head = connection.recv(65536).decode()
        self.assertTrue(head.startswith("HTTP/1.1 413 "), head)
        self.assertIn("application/problem+json", head)

    def test_long_token(self) -> None:
        """A token as long as the gateway takes passes."""
        token = {"Authorization": f"Bearer {'a' * 16_000}"}
        answer = exchange(f"{self.front}/v1/models", "GET", None, token)
        self.assertEqual(answer.status, 200)

    def test_connections_are_reused(self) -> None:
        """Requests one after another, each by a new client, share nginx's connections."""
        nginx = self.another("nginx-reuse", {"worker_processes auto;": "worker_processes 1;"})
        seen: set[int] = set()
        earlier = _ports_to(self.gateway.port)
        for _ in range(25):
            self.assertEqual(get(f"{nginx.url}/v1/models").status, 200)
            answer = post(f"{nginx.url}/v1/chat/completions", {"model": ECHO, "messages": []})
            self.assertEqual(answer.status, 200)
            seen |= _ports_to(self.gateway.port) - earlier
        self.assertEqual(len(seen), 1, seen)

    def _connect(self) -> ssl.SSLSocket:
        port = int(self.front.rpartition(":")[2])
        plain = socket.create_connection(("127.0.0.1", port), 10)
        connection = wire.TLS.wrap_socket(plain, server_hostname=HOST)
        self.addCleanup(connection.close)
        return connection


def _mebibytes(count: int) -> Iterator[bytes]:
    block = b"x" * MIB
    for _ in range(count):
        yield block


def _read_slowly(base: str, path: str) -> int:
    """Read an object through the s3 adapter with pauses; returns its size."""
    connection, _ = wire._connection(base, 60)
    connection.request("GET", path, headers={"X-Service": "s3", "X-Resource": "get"})
    response = connection.getresponse()
    size = 0
    while data := response.read(4 * MIB):
        size += len(data)
        pause(0.05)
    connection.close()
    return size


def _most_rss_mib(pid: int) -> int:
    """The most memory that a process has had so far."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) // 1024


def _ports_to(port: int) -> set[int]:
    """The ports from which there are connections to a port of loopback, of closed ones too."""
    found = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, *_ = line.split()
        if int(remote.rpartition(":")[2], 16) == port:
            found.add(int(local.rpartition(":")[2], 16))
    return found
