"""The engine and the clients of the bench, each in a process of its own.

python -m bench.tracing.parts serve PORT
python -m bench.tracing.parts load URL answer|stream REQUESTS CONCURRENT
"""

from __future__ import annotations

import json
import os
import sys
import time

from twisted.internet import reactor
from twisted.internet.protocol import Factory, Protocol
from twisted.web.http_headers import Headers

from twisted_gateway.upstream.agent import UpstreamAgent
from twisted_gateway.upstream.request_body import BytesProducer

EVENTS = 60
USAGE = {"prompt_tokens": 100, "completion_tokens": EVENTS, "total_tokens": 100 + EVENTS}
CHOICE = {"index": 0, "message": {"content": "x" * 800}, "finish_reason": "stop"}
BODY = json.dumps({"id": "c", "model": "m", "choices": [CHOICE], "usage": USAGE}).encode()
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
ANSWER %= (len(BODY), BODY)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def event(**members: object) -> bytes:
    """One event of a stream, as a chunk."""
    data = b"data: " + json.dumps({"id": "c", "model": "m", **members}).encode() + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(data), data)


TOKEN = event(choices=[{"index": 0, "delta": {"content": "token"}, "finish_reason": None}])
LAST = event(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}])
LAST += event(choices=[], usage=USAGE) + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


class Server(Protocol):
    """Answers a request, once its body is whole, by a stream where it asks for one."""

    def __init__(self) -> None:
        self.data = b""

    def dataReceived(self, data: bytes) -> None:
        self.data += data
        head, found, body = self.data.partition(b"\r\n\r\n")
        if not found or len(body) < int(_field(head, b"content-length")):
            return
        self.data = b""
        if b'"stream":true' in body:
            self.transport.write(HEAD)
            self.flow(EVENTS)
        else:
            self.transport.write(ANSWER)

    def flow(self, left: int) -> None:
        """An event a write, each in a turn of the reactor of its own."""
        if left:
            self.transport.write(TOKEN)
            reactor.callLater(0, self.flow, left - 1)
        else:
            self.transport.write(LAST)


class Reader(Protocol):
    """Reads an answer to nowhere, and asks for the next."""

    def __init__(self, load: Load) -> None:
        self.load = load

    def connectionLost(self, reason: object) -> None:
        self.load.ended()


class Load:
    """So many requests, so many at a time."""

    def __init__(self, url: str, kind: str, requests: int) -> None:
        self.agent = UpstreamAgent(reactor, connect_seconds=5)
        self.uri = f"{url}/v1/chat/completions".encode()
        stream = b'"stream":true,' if kind == "stream" else b""
        self.body = b'{"model":"m",%s"messages":[{"role":"user","content":"%s"}]}' % (
            stream,
            b"z" * 900,
        )
        self.to_send = self.to_end = requests
        self.began = 0.0

    def begin(self, concurrent: int) -> None:
        self.began = time.monotonic()
        for _ in range(concurrent):
            self.next()

    def next(self) -> None:
        if self.to_send:
            self.to_send -= 1
            headers = Headers({b"Content-Type": [b"application/json"]})
            answer = self.agent.request(b"POST", self.uri, headers, BytesProducer([self.body]))
            answer.addCallback(self.answered).addErrback(self.failed)

    def answered(self, response: object) -> None:
        if response.code != 200:
            raise AssertionError(f"answered {response.code}")
        response.deliverBody(Reader(self))

    def ended(self) -> None:
        self.to_end -= 1
        if self.to_end:
            self.next()
        else:
            print(time.monotonic() - self.began, flush=True)
            reactor.stop()

    def failed(self, failure: object) -> None:
        print(failure, file=sys.stderr)
        os._exit(1)


def main() -> None:
    part, *rest = sys.argv[1:]
    if part == "serve":
        factory = Factory.forProtocol(Server)
        reactor.listenTCP(int(rest[0]), factory, backlog=512, interface="127.0.0.1")
    else:
        url, kind, requests, concurrent = rest
        load = Load(url, kind, int(requests))
        reactor.callWhenRunning(load.begin, int(concurrent))
    reactor.run()


def _field(head: bytes, name: bytes) -> bytes:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(name + b":"):
            return line.partition(b":")[2]
    return b"0"


if __name__ == "__main__":
    main()
