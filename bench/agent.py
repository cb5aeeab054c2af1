"""What one upstream request costs: our agent against Twisted's own, on the same little server.

    python -m bench.agent [--seconds 2] [--rounds 3] [--concurrent 16]

CPU time of the client's process over the requests that it got answered, on loopback; the agents
take turns and the medians are compared. `json` is a 1 kB POST answered with 1 kB; `chunks` is a
stream of 200 chunks of 150 bytes that the server flushes ten at a time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time

from twisted.internet import reactor
from twisted.internet.protocol import Factory, Protocol
from twisted.web.client import Agent, HTTPConnectionPool
from twisted.web.http_headers import Headers

from twisted_gateway.upstream.agent import UpstreamAgent
from twisted_gateway.upstream.request_body import BytesProducer

CHUNKS = 200
JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nServer: bench\r\n"
JSON += b"Date: Sun, 29 Nov 2026 12:00:00 GMT\r\nContent-Length: 1024\r\n\r\n" + b"x" * 1024
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNK = b"96\r\n" + b"y" * 150 + b"\r\n"


class Server(Protocol):
    """Answers whatever ends in the bench's body."""

    def __init__(self) -> None:
        self.left = 0

    def dataReceived(self, data: bytes) -> None:
        self.left -= len(data)
        if self.left < 0:
            head, _, body = data.partition(b"\r\n\r\n")
            self.left = 1024 - len(body)
            self.stream = head.startswith(b"POST /chunks")
        if self.left == 0 and self.stream:
            self.transport.write(STREAM)
            self.flush(CHUNKS)
        elif self.left == 0:
            self.transport.write(JSON)

    def flush(self, left: int) -> None:
        if left:
            self.transport.write(CHUNK * 10)
            reactor.callLater(0, self.flush, left - 10)
        else:
            self.transport.write(b"0\r\n\r\n")


class Reader(Protocol):
    """Counts, and asks for the next."""

    def __init__(self, load: Load) -> None:
        self.load = load

    def dataReceived(self, data: bytes) -> None:
        self.load.pieces += 1

    def connectionLost(self, reason: object) -> None:
        self.load.done += 1
        self.load.next()


class Load:
    """Requests, `concurrent` at a time, until the time is over."""

    def __init__(self, agent: object, uri: bytes, seconds: float) -> None:
        self.agent = agent
        self.uri = uri
        self.done = self.pieces = 0
        self.over = False
        self.body = b'{"model":"m","messages":"' + b"z" * 997 + b'"}'
        self.until = time.monotonic() + seconds

    def next(self) -> None:
        if time.monotonic() > self.until:
            if not self.over:
                self.over = True
                reactor.callLater(0, reactor.stop)
            return
        headers = Headers()
        for name in (b"content-type", b"accept", b"authorization", b"x-request-id"):
            headers.addRawHeader(name, b"some-value-of-a-header")
        answer = self.agent.request(b"POST", self.uri, headers, BytesProducer([self.body]))
        answer.addCallback(lambda response: response.deliverBody(Reader(self)))
        answer.addErrback(self.failed)

    def failed(self, failure: object) -> None:
        if self.over:
            return
        print(failure, file=sys.stderr)
        os._exit(1)


def client(kind: str, uri: bytes, seconds: float, concurrent: int) -> None:
    """Run the load; print microseconds of CPU per request, and pieces per request."""
    if kind == "own":
        agent: object = UpstreamAgent(reactor, connect_seconds=5)
    else:
        pool = HTTPConnectionPool(reactor)
        pool.maxPersistentPerHost = concurrent
        agent = Agent(reactor, pool=pool)
    load = Load(agent, uri, seconds)
    for _ in range(concurrent):
        reactor.callWhenRunning(load.next)
    began = time.process_time()
    reactor.run()
    spent = time.process_time() - began
    print(spent / load.done * 1e6, load.pieces / load.done)


def serve() -> None:
    """Serve on a free port of loopback, which is printed, until stdin ends."""
    from twisted.internet.stdio import StandardIO

    class Parent(Protocol):
        def connectionLost(self, reason: object) -> None:
            if reactor.running:
                reactor.stop()

    port = reactor.listenTCP(0, Factory.forProtocol(Server), interface="127.0.0.1")
    print(port.getHost().port, flush=True)
    StandardIO(Parent())
    reactor.run()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--concurrent", type=int, default=16)
    parser.add_argument("--part", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        part, *rest = options.part
        if part == "serve":
            serve()
        else:
            client(part, rest[0].encode(), options.seconds, options.concurrent)
        return
    again = [sys.executable, "-m", "bench.agent", "--seconds", str(options.seconds)]
    again += ["--concurrent", str(options.concurrent), "--part"]
    with subprocess.Popen(
        [*again, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        port = int(server.stdout.readline())
        for path in ("json", "chunks"):
            figures: dict[str, list[float]] = {"own": [], "stock": []}
            pieces: dict[str, float] = {}
            for _ in range(options.rounds):
                for kind, costs in figures.items():
                    run = [*again, kind, f"http://127.0.0.1:{port}/{path}"]
                    cost, pieces[kind] = map(float, subprocess.check_output(run).split())
                    costs.append(cost)
            own, stock = (statistics.median(figures[kind]) for kind in ("own", "stock"))
            print(
                f"{path:7} own {own:7.1f} us ({pieces['own']:.1f} pieces)   "
                f"stock {stock:7.1f} us ({pieces['stock']:.1f} pieces)   ratio {stock / own:.2f}"
            )
        server.stdin.close()


if __name__ == "__main__":
    main()
