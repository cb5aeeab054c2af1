"""An event stream, read to its end: what a client of a chat sees of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http import PotentialDataLoss

from twisted_gateway.core.events import classify
from twisted_gateway.core.sse import EventSplitter
from twisted_gateway.upstream.response import UpstreamResponse

MAX_STREAM_BYTES = 1024 * 1024
"""The longest stream that is read; one of a few tokens has some kB."""

# A comment of the gateway's to who stands in its queue.
_PLACE = b": keep-alive position="


@dataclass(slots=True)
class Stream:
    """What came.

    Attributes:
        contents: how many events that bear content.
        first_content_at: when the first of them came, on the clock; None while none has.
        error: the message of an error event; None where there was none.
        terminal: whether its last event (`[DONE]`) was there.
        queued: whether the gateway said that the request stands in its queue.
        fault: why it did not end as it should; "" where it did.
    """

    contents: int = 0
    first_content_at: float | None = None
    error: str | None = None
    terminal: bool = False
    queued: bool = False
    fault: str = ""


def read_stream(answer: UpstreamResponse, clock: IReactorTime, seconds: float) -> Deferred[Stream]:
    """Read a stream.

    Args:
        answer: whose body it is.
        clock: for the bound on the time.
        seconds: the bound on all of it; what takes longer, or is longer than `MAX_STREAM_BYTES`,
            is cut off.

    Returns:
        Fires with what came, however it ended. Cancelling it drops the connection.
    """
    reader = _Reader(clock, seconds)
    answer.deliverBody(reader)
    return reader.done


class _Reader(Protocol):
    """Cuts a stream into events, as the gateway itself does."""

    def __init__(self, clock: IReactorTime, seconds: float) -> None:
        self.stream = Stream()
        self.done: Deferred[Stream] = Deferred(self._cancelled)
        self._clock = clock
        self._splitter = EventSplitter()
        self._size = 0
        late = f"it had not ended after another {seconds:.0f} s"
        self._bound = clock.callLater(seconds, self._cut, late)

    def dataReceived(self, data: bytes) -> None:
        self._size += len(data)
        cut = self._splitter.feed(data)
        # What has passed is whole events and comments, in whatever pieces they came.
        if any(line.startswith(_PLACE) for line in cut.passed.splitlines()):
            self.stream.queued = True
        for event in cut.events:
            meaning = classify(event)
            if meaning.content:
                self.stream.contents += 1
                if self.stream.first_content_at is None:
                    self.stream.first_content_at = self._clock.seconds()
            if meaning.error is not None and self.stream.error is None:
                self.stream.error = meaning.error.message or "an error event"
            self.stream.terminal = self.stream.terminal or meaning.terminal
        if self._size > MAX_STREAM_BYTES:
            self._cut(f"it is longer than {MAX_STREAM_BYTES} bytes")

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        # A stream that ends with its connection (HTTP/1.0) is whole if its last event was there.
        whole = reason.check(ResponseDone, PotentialDataLoss)
        self._end("" if whole else "it broke off")

    def _cut(self, why: str) -> None:
        self._abort()
        self._end(why)

    def _end(self, fault: str) -> None:
        if self._bound.active():
            self._bound.cancel()
        if not self.done.called:
            self.stream.fault = fault
            self.done.callback(self.stream)

    def _cancelled(self, _: object) -> None:
        if self._bound.active():
            self._bound.cancel()
        self._abort()

    def _abort(self) -> None:
        transport: Any = self.transport
        transport.abortConnection()
