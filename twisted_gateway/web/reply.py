"""The client's side of one exchange: the only writer of its connection.

state      what was written                       what may follow
-------    -----------------------------------    -----------------------------------------
UNSENT     nothing                                the engine's head, a problem, or comments
SPENT      200 text/event-stream and comments     events, comments, the error frame
STREAM     the engine's head and whole events     events, comments, the error frame
BODY       the engine's head and bytes            bytes, or an abort: no error can be told
ENDED      everything, or the abort               nothing
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto

from twisted.internet.interfaces import IPushProducer, IReactorTime
from zope.interface import implementer

from twisted_gateway.core.errors import Problem
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.core.sse import KEEP_ALIVE, EventSplitter
from twisted_gateway.web.exchange import Cut, Exchange
from twisted_gateway.web.request import GatewayRequest
from twisted_gateway.web.silence import Silence

STALL_LOOKS = 4
"""How often in `clientStallSeconds` it is looked whether a paused client has taken anything."""

_STREAM_HEAD = (
    (b"Content-Type", b"text/event-stream"),
    (b"Cache-Control", b"no-cache"),
    (b"X-Accel-Buffering", b"no"),
)


class _State(Enum):
    UNSENT = auto()
    SPENT = auto()
    STREAM = auto()
    BODY = auto()
    ENDED = auto()


@implementer(IPushProducer)
class Reply:
    """Writes the head once, whole events, comments between them, and one error at most.

    It is the producer of the client's transport: what the transport pauses is the engine's
    connection (`source`), and a client that takes no byte for `stall_seconds` while data waits
    for it is cut.

    Attributes:
        comment: makes the comment that keeps a silent stream alive.
        on_pause: called when the client does not keep up; None for nobody.
        on_resume: called when it has caught up; None for nobody.

    Args:
        request: the client's request.
        exchange: its book; `status` is kept here.
        clock: for the timers.
        keep_alive_seconds: longest silence towards the client of a stream; None: no comments.
        stall_seconds: how long a client may take nothing while data waits.
        spent: called once, when comments have spent the 200.
    """

    def __init__(
        self,
        request: GatewayRequest,
        exchange: Exchange,
        clock: IReactorTime,
        *,
        keep_alive_seconds: float | None,
        stall_seconds: float,
        spent: Callable[[], None],
    ) -> None:
        """Begin with nothing written."""
        self._request = request
        self._exchange = exchange
        self._clock = clock
        self._stall_seconds = stall_seconds
        self._spent = spent
        self._state = _State.UNSENT
        self._splitter: EventSplitter | None = None
        self._source: IPushProducer | None = None
        self._paused = False
        self._stall: Silence | None = None
        self._waiting_bytes: int | None = None
        self._taken_at = 0.0
        self.comment: Callable[[], bytes] = _keep_alive
        self.on_pause: Callable[[], object] | None = None
        self.on_resume: Callable[[], object] | None = None
        self._comments = (
            None
            if keep_alive_seconds is None
            else Silence(clock, keep_alive_seconds, self._comment, repeat=True)
        )
        request.registerProducer(self, True)

    # What the request path asks

    @property
    def head_sent(self) -> bool:
        """Whether a status is out: the engine's own, or the 200 that comments spent."""
        return self._state is not _State.UNSENT

    @property
    def spent(self) -> bool:
        """Whether comments have spent the 200 before the engine answered."""
        return self._state is _State.SPENT

    @property
    def paused(self) -> bool:
        """Whether data waits for the client."""
        return self._paused

    def begin(self, code: int, phrase: bytes, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Send the engine's head for an answer that is relayed as bytes: no more comments."""
        self._stop_comments()
        self._head(code, phrase, headers)
        self._state = _State.BODY

    def begin_stream(
        self,
        code: int,
        phrase: bytes,
        headers: Iterable[tuple[bytes, bytes]],
        splitter: EventSplitter,
    ) -> None:
        """Send the engine's head of an event stream, unless the 200 is spent already.

        Args:
            code: the engine's status.
            phrase: its reason phrase.
            headers: its end-to-end headers.
            splitter: tells where an event has ended; comments and errors go only there.
        """
        self._splitter = splitter
        if not self.head_sent:
            self._head(code, phrase, headers)
        self._state = _State.STREAM

    def write(self, data: bytes) -> None:
        """Pass body bytes on; on an ended reply they are dropped."""
        if self._state is _State.ENDED:
            return
        if self._comments is not None:
            self._comments.touch()
        self._request.write(data)

    def flow_from(self, source: IPushProducer | None) -> None:
        """Let the client's transport pause this source; None: nothing flows any more."""
        self._source = source
        if source is not None and self._paused:
            source.pauseProducing()

    def finish(self) -> None:
        """End the response cleanly."""
        if self._state is not _State.ENDED:
            self._close()
            self._request.finish()

    def fail(self, why: Problem | Cut) -> None:
        """Tell the client of a failure in whatever form is still open, and end.

        Before a status that is a problem document; in a stream at an event boundary it is the
        error frame; otherwise the connection is aborted, for an answer that is not whole must
        not look whole.
        """
        if self._state is _State.ENDED:
            return
        if isinstance(why, Problem):
            self._exchange.reason = str(why.members.get("reason", ""))
        if isinstance(why, Cut):
            self.abort()
        elif self._state is _State.UNSENT:
            self._close()
            self._request.answer_problem(why)
        elif self._state is not _State.BODY and self._at_boundary():
            self.last_words(why.frame(self._exchange.request_id), why.status)
        else:
            self.abort()

    def last_words(self, frame: bytes, status: int) -> None:
        """Write one last event into the stream and end it; the caller knows it is at a boundary.

        Args:
            frame: says what failed.
            status: what the answer would have been, were its 200 not on the wire.
        """
        self._exchange.meant_status = status
        self.write(frame)
        self.finish()

    def abort(self) -> None:
        """Cut the connection at once."""
        if self._state is not _State.ENDED:
            self._close()
            self._request.abort()

    def release(self) -> None:
        """Let go of timers and transport, whatever state this is in; writes nothing."""
        self._close()

    # The client's transport speaks (IPushProducer)

    def pauseProducing(self) -> None:
        """The client does not keep up: stop reading from the engine."""
        if self._paused or self._state is _State.ENDED:
            return
        self._paused = True
        self._waiting_bytes = self._request.waiting_bytes()
        self._taken_at = self._clock.seconds()
        self._stall = Silence(
            self._clock, self._stall_seconds / STALL_LOOKS, self._look_for_stall, repeat=True
        )
        if self._source is not None:
            self._source.pauseProducing()
        if self.on_pause is not None:
            self.on_pause()

    def resumeProducing(self) -> None:
        """The client has caught up."""
        if not self._paused:
            return
        self._paused = False
        self._stop_stall()
        if self._source is not None:
            self._source.resumeProducing()
        if self.on_resume is not None:
            self.on_resume()

    def stopProducing(self) -> None:
        """The connection is gone; the request's own notification tells the handler."""

    # Timers

    def _comment(self) -> None:
        if self._paused:
            return
        if self._state is _State.UNSENT:
            self._head(200, b"OK", _STREAM_HEAD)
            self._state = _State.SPENT
            self._spent()
        elif not self._may_comment():
            return
        self._exchange.trace.event("keep_alive")
        self.write(self.comment())

    def _look_for_stall(self) -> None:
        waiting, now = self._request.waiting_bytes(), self._clock.seconds()
        if waiting != self._waiting_bytes:
            # It takes bytes, if slowly: that is back-pressure and no stall.
            self._waiting_bytes, self._taken_at = waiting, now
        elif now - self._taken_at >= self._stall_seconds:
            self._exchange.interrupt(Cut(Outcome.CLIENT_STALLED))

    # Within

    def _at_boundary(self) -> bool:
        return self._splitter is None or self._splitter.at_boundary

    def _may_comment(self) -> bool:
        splitter = self._splitter
        return splitter is None or (splitter.at_boundary and not splitter.saw_id)

    def _head(self, code: int, phrase: bytes, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self._exchange.status = code
        self._request.send_head(code, phrase, headers)

    def _stop_comments(self) -> None:
        if self._comments is not None:
            self._comments.stop()

    def _stop_stall(self) -> None:
        if self._stall is not None:
            self._stall.stop()
            self._stall = None

    def _close(self) -> None:
        if self._state is _State.ENDED:
            return
        self._state = _State.ENDED
        self._source = None
        self._stop_comments()
        self._stop_stall()
        self._request.unregisterProducer()


def _keep_alive() -> bytes:
    return KEEP_ALIVE
