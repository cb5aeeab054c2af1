"""What an adapter is to the dispatcher (web/services.py), and what it is given.

An adapter turns a checked request into requests to its service. It knows nothing of clients,
tokens, metrics or time bounds; the dispatcher has seen to those:

    adapter                                  dispatcher
    -------------------------------------    --------------------------------------------------
    `operations`: what there is to ask       404 and 405, `GET /v1/services`
    an operation's `parameters`              400 with the names of those missing or bad
    `run(request)`                           awaited; cancelled when the client leaves, when the
                                             service is silent for too long
      returns `Document`                     sent as JSON
      returns `Passed`                       the service's answer, relayed with back-pressure
      raises `Refused`                       problem+json with the service's own status and words
      raises `UpstreamError`                 502, or 504 where no connection came about in time
      raises `Problem`                       that one

A new kind takes: a section in config/service_keys.py with a frozen value in config/schema.py, a
module here, and its line in `build.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Protocol, TypeVar, runtime_checkable

from twisted.internet.defer import Deferred
from twisted.web.http_headers import Headers

from twisted_gateway.upstream.errors import UpstreamError
from twisted_gateway.upstream.response import UpstreamResponse

Pairs = list[tuple[bytes, bytes]]
T = TypeVar("T")


class BadParameter(Exception):
    """A parameter's value is not what it takes.

    Attributes:
        expected: what is, as a clause.
    """

    def __init__(self, expected: str) -> None:
        """Say what was expected."""
        super().__init__(expected)
        self.expected = expected


class Refused(Exception):
    """The service has refused, or failed: its own 4xx or 5xx.

    Attributes:
        status: its status, 400 to 599.
        message: its own words, without the gateway's credentials; "" where it gave none. Whoever
            shows them takes addresses out, and only then cuts them short.
        headers: further fields for the client (`Retry-After`, `Content-Range`).
    """

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        """Take the status and the words."""
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message
        self.headers = dict(headers or {})


class BadAnswer(UpstreamError):
    """The service answered, and not as its protocol has it."""


def any_text(text: str) -> str:
    """Take any text (the form of a parameter that has no other)."""
    return text


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of an operation, from the request's query string or body.

    Attributes:
        name: its name there.
        required: whether it must be there and not empty.
        form: reads its value; raises `BadParameter`.
    """

    name: str
    required: bool = False
    form: Callable[[str], str] = any_text


class RequestBody(Protocol):
    """A request's body, whether it is held or still comes; an `IBodyProducer` too.

    Attributes:
        length: bytes in all, or `UNKNOWN_LENGTH`.
    """

    length: Any

    def startProducing(self, consumer: Any) -> Deferred[None]:
        """See `IBodyProducer`."""

    def pauseProducing(self) -> None:
        """See `IBodyProducer`."""

    def resumeProducing(self) -> None:
        """See `IBodyProducer`."""

    def stopProducing(self) -> None:
        """See `IBodyProducer`."""


class StreamedBody(RequestBody, Protocol):
    """A body that is passed on, or read, as it comes; either once."""

    async def read(self, count: int) -> bytes:
        """Give the next `count` bytes; fewer only at the body's end, b"" behind it.

        Cancelling stops the waiting.
        """


class Upstream(Protocol):
    """The way of one request to its service: traced, timed, and given up with the request."""

    async def send(
        self,
        method: str,
        url: str,
        headers: Iterable[tuple[bytes, bytes]],
        body: RequestBody | None = None,
    ) -> UpstreamResponse:
        """Send a request; returns with the head of the answer, whatever its status.

        Args:
            method: a token.
            url: absolute; all of it is configured or quoted, never a client's.
            headers: those of the service's protocol; the request's id and the trace context are
                added.
            body: its body.

        Raises:
            UpstreamError: there is no answer.
        """

    async def read(self, answer: UpstreamResponse, limit_bytes: int) -> bytes:
        """Read an answer's body whole.

        Beyond its first 64 KiB it counts against `maxHeldBytes` as it comes in, until the next one
        is read or the operation has ended: of all but the last an operation keeps little.

        Raises:
            BadAnswer: it is longer than `limit_bytes`, or broke off.
            Problem: 503, the process holds too much already; the connection is dropped.
        """

    def count(self, size_bytes: int) -> None:
        """Count an answer that came another way than by `read`, on top of what is counted.

        Raises:
            Problem: 503, the process holds too much already.
        """

    async def call(self, url: str, start: Callable[[Pairs], Deferred[T]]) -> T:
        """Have a call made that goes another way than HTTP, traced and timed as `send`.

        Args:
            url: whom it asks, and for what, for the trace.
            start: begins it, given the fields of its metadata: the request's id and the trace
                context. Its Deferred is cancelled with the request.

        Raises:
            Refused, UpstreamError: as its Deferred fails.
        """

    async def follow(self, method: str, url: str, work: Deferred[T]) -> T:
        """Await work of the adapter's own, which others may wait for too.

        It is traced and timed as one request to `url`. The work sees to its time itself: silence
        is no fault of its. Raises what the work does; cancelling cancels it.
        """

    async def to_its_end(
        self, work: Coroutine[Deferred[Any], Any, T], undo: Callable[[T], object]
    ) -> T:
        """Await work that begins something at the service, which would else be left there.

        Cancelling this leaves the work alone: it goes on for a bounded time when nobody waits for
        it any more, and `undo` is then called with what has come of it. Raises what it does.
        """

    def afterwards(self, method: str, url: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Send a request that nobody waits for, when this one may be over: to undo something.

        It is tried once, in bounded time, which a drain waits for; the log says when it failed.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRequest:
    """A request, checked, as an operation is given it.

    Attributes:
        method: `HEAD` where a client asks so of an operation for `GET`.
        parameters: name -> value, in the forms that the operation declares.
        headers: the client's; an adapter chooses from them by name what goes on.
        body: a `StreamedBody` where the operation has `BodyUse.STREAMED`, else one that is held.
        upstream: the way to the service.
    """

    method: str
    parameters: Mapping[str, str]
    headers: Headers
    body: Any
    upstream: Upstream


@dataclass(frozen=True, slots=True)
class Document:
    """An answer of the adapter's own making.

    Attributes:
        tree: what is sent as JSON; None: no body (204).
        status: 200 to 299.
    """

    tree: Any
    status: int = 200


@dataclass(frozen=True, slots=True)
class Passed:
    """The service's own answer, to be relayed.

    Attributes:
        answer: its body is not read yet.
        headers: what the client gets of its header fields; `Content-Length` comes of itself.
    """

    answer: UpstreamResponse
    headers: Pairs = field(default_factory=list)


Answer = Document | Passed
Run = Callable[[ServiceRequest], Coroutine[Deferred[Any], Any, Answer]]


class BodyUse(Enum):
    """What an operation does with the request's body."""

    NONE = auto()
    """Nothing: what a client sends all the same is small, or refused."""
    FIELDS = auto()
    """It is a JSON object with parameters, beside those of the query string."""
    HELD = auto()
    """It begins when the body is whole."""
    STREAMED = auto()
    """It begins when the request's head is there, and takes the body as it comes."""


@dataclass(frozen=True, slots=True)
class Operation:
    """What one method does to a resource.

    Attributes:
        run: does it; see the module.
        parameters: those of its query string, with `BodyUse.FIELDS` of its body too; others are
            refused.
        body: what becomes of the request's body.
    """

    run: Run
    parameters: tuple[Parameter, ...] = ()
    body: BodyUse = BodyUse.HELD


class Service(Protocol):
    """One configured adapter.

    Attributes:
        operations: resource -> method -> operation. `HEAD` is served where `GET` is.
    """

    operations: Mapping[str, Mapping[str, Operation]]


@runtime_checkable
class Retiring(Protocol):
    """A `Service` that holds something open."""

    def retire(self) -> None:
        """It is no longer in force: close that, as soon as the requests under way have ended."""


@runtime_checkable
class Active(Protocol):
    """A `Service` that also does something of its own accord."""

    def start(self) -> None:
        """It is in force from here on, until `retire`, if it is `Retiring`, or `stop`."""

    def stop(self) -> Deferred[Any]:
        """The process ends: give up what is under way.

        Returns:
            Fires when nothing is.
        """
