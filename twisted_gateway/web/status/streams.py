"""Those who watch: event streams to which the same events go, bounded in number and in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPushProducer, IReactorTime
from zope.interface import implementer

from twisted_gateway.core.errors import Problem
from twisted_gateway.core.outcome import Outcome

if TYPE_CHECKING:
    from twisted_gateway.web.request import GatewayRequest

MOST_STREAMS = 20
STALL_SECONDS = 30.0
"""How long a reader may take nothing before it is dropped."""
RETRY_MILLISECONDS = 2000

_HEADERS = [
    (b"Content-Type", b"text/event-stream; charset=utf-8"),
    (b"Cache-Control", b"no-store"),
    (b"X-Accel-Buffering", b"no"),
]


@implementer(IPushProducer)
class _Stream:
    """One reader. While it takes nothing it is sent nothing: the next event holds all there is.

    What waits for it is so at most what its transport buffers before it pauses us, and one event.
    """

    def __init__(self, request: GatewayRequest, clock: IReactorTime) -> None:
        self._request = request
        self._clock = clock
        self._paused = False
        self._waiting_bytes: int | None = None
        self._taken_at = 0.0
        request.registerProducer(self, True)

    def pauseProducing(self) -> None:
        if not self._paused:
            self._paused = True
            self._waiting_bytes = self._request.waiting_bytes()
            self._taken_at = self._clock.seconds()

    def resumeProducing(self) -> None:
        self._paused = False

    def stopProducing(self) -> None:
        """The connection is lost; the request tells `Streams`."""

    def send(self, event: bytes) -> None:
        if not self._paused:
            self._request.write(event)
            return
        waiting, now = self._request.waiting_bytes(), self._clock.seconds()
        if waiting != self._waiting_bytes:
            # It takes bytes, if slowly: a board is on its way to it.
            self._waiting_bytes, self._taken_at = waiting, now
        elif now - self._taken_at >= STALL_SECONDS:
            self._request.exchange.end(Outcome.CLIENT_STALLED)
            self._request.abort()

    def end(self) -> None:
        self._request.unregisterProducer()
        self._request.exchange.end(Outcome.OK)
        self._request.finish()


class Streams:
    """All readers of `/status/events`.

    Args:
        clock: tells how long a reader has taken nothing.
    """

    def __init__(self, clock: IReactorTime) -> None:
        """Start with none."""
        self._clock = clock
        self._streams: dict[GatewayRequest, _Stream] = {}

    def __len__(self) -> int:
        """How many there are."""
        return len(self._streams)

    def open(
        self, request: GatewayRequest, first: Callable[[], bytes], *, goes_on: bool
    ) -> Deferred[None]:
        """Begin a stream with an event.

        Args:
            request: it is answered.
            first: gives the event, framed; nobody asks it for a reader who is refused.
            goes_on: False to end it at once: the reader comes again by itself.

        Returns:
            Fires with None when the stream is over, by whoever's doing. Its outcome is `ok` also
            when the reader leaves: a stream of the kind has no other end.

        Raises:
            Problem: 503, there are `MOST_STREAMS` already.
        """
        if len(self._streams) >= MOST_STREAMS:
            raise _too_many()
        # Before anything is written: what it raises is then answered.
        event = first()
        exchange = request.exchange
        exchange.ends_itself = True
        exchange.status = 200
        closed = request.closed().addCallback(lambda _: self._closed(request))
        request.send_head(200, b"OK", _HEADERS)
        stream = self._streams[request] = _Stream(request, self._clock)
        stream.send(b"retry: %d\n\n" % RETRY_MILLISECONDS + event)
        if not goes_on or request.method == b"HEAD":
            stream.end()
        return closed

    def send(self, event: bytes) -> None:
        """Send an event, framed, to all who take any."""
        for stream in list(self._streams.values()):
            stream.send(event)

    def end(self) -> None:
        """End all of them."""
        for stream in list(self._streams.values()):
            stream.end()

    def _closed(self, request: GatewayRequest) -> None:
        self._streams.pop(request, None)
        request.exchange.end(Outcome.OK)


def _too_many() -> Problem:
    return Problem(
        "too_many_status_streams",
        503,
        f"{MOST_STREAMS} streams of the status page are open, which is the most; close one, or "
        "load the page itself, which is as current.",
        outcome=Outcome.REJECTED,
        members={"retry_after": 10},
        headers={"Retry-After": "10"},
    )
