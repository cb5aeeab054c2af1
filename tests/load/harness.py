"""What the tests of the load tool share: a run on a network in memory, and results to judge."""

from __future__ import annotations

import json
from typing import Any

from tests.upstream.network import AgentTestCase, Socket
from twisted_gateway.load.arrivals import Arrival
from twisted_gateway.load.results import Ending, Request, Result, Sample, Settings, Try
from twisted_gateway.load.run import Run, Wire

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
CONTENT = b'data: {"choices":[{"index":0,"delta":{"content":"word"}}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":9}}\n\n'
DONE = b"data: [DONE]\n\n"
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def answer(status: int, body: bytes = b"", **headers: str) -> bytes:
    """A whole answer that is no stream; header names have underscores for hyphens."""
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{lines}\r\n"
    return head.encode("ascii") + body


def refusal(reason: str, **members: Any) -> bytes:
    """What the gateway says of a refusal, as JSON."""
    error = {"message": "no place", "type": "server_error", "param": None, "code": reason}
    return json.dumps({"type": "error", "error": error, "reason": reason, **members}).encode()


def arrival(**changes: Any) -> Arrival:
    """A client."""
    facts: dict[str, Any] = {
        "at": 0.0,
        "tenant": "ann",
        "prompt_tokens": 20,
        "answer_tokens": 5,
        "max_tokens": 10,
    }
    return Arrival(**(facts | changes))


class RunTestCase(AgentTestCase):
    """A run against sockets whose other side is the test's."""

    def play(self, *arrivals: Arrival, speed: float = 1.0, **wire: Any) -> Run:
        """Start a run."""
        facts: dict[str, Any] = {"to": ("http://one:80",), "model": "m"}
        self.run_ = Run(self.clock, self.agent, arrivals, Wire(**(facts | wire)))
        self.over = self.run_.start(speed)
        return self.run_

    def request(self, index: int = -1) -> tuple[bytes, dict[str, Any]]:
        """What was last sent over a socket: the head, and the body as a tree."""
        head, _, body = self.socket(index).sent.partition(b"\r\n\r\n")
        return head, json.loads(body)

    def complete(self, socket: Socket | None = None) -> None:
        """Answer one stream whole."""
        (socket or self.socket()).say(HEAD + chunk(CONTENT + USAGE + DONE) + END)

    def one(self, run: Run) -> tuple[Request, Try]:
        """The first request, and its last try."""
        return run.requests[0], run.requests[0].tries[-1]


def request(number: int = 0, *tries: Try, **changes: Any) -> Request:
    """A request that completed, unless it is said otherwise."""
    facts: dict[str, Any] = {
        "kind": "chat",
        "tenant": "ann",
        "at": 0.0,
        "prompt_tokens": 100,
        "answer_tokens": 10,
        "patience": 600.0,
        "end": 20.0,
        "ending": Ending.COMPLETED,
    }
    return Request(number=number, tries=list(tries) or [tried()], **(facts | changes))


def tried(**changes: Any) -> Try:
    """A try that completed, unless it is said otherwise."""
    facts: dict[str, Any] = {
        "at": 0.0,
        "end": 20.0,
        "ending": Ending.COMPLETED,
        "head": 1.0,
        "content": 2.0,
        "status": 200,
        "tokens": 10,
    }
    return Try(**(facts | changes))


def result(*requests: Request, **changes: Any) -> Result:
    """A run of these requests, through a gateway that had one of them parked."""
    settings = Settings(
        workload=changes.pop("workload", "W1"),
        model=changes.pop("model", "m"),
        to=changes.pop("to", ["http://one:80"]),
        version="1",
        started="today",
        speed=changes.pop("speed", 1.0),
    )
    facts: dict[str, Any] = {"took": 100.0, "samples": [Sample(at=1.0, parked=1, deepest=1)]}
    return Result(settings=settings, requests=list(requests), **(facts | changes))
