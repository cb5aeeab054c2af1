"""One try: a request on the wire, and what its answer says.

A stream is cut into events as the gateway itself cuts it; what counts as content, as an error and
as the end is what `core.events` says. A try has completed when its answer came whole: a stream
with its last event (`[DONE]`) and without an error, any other answer with a 2xx status.
"""

from __future__ import annotations

import re

import msgspec
from msgspec import Struct
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers

from twisted_gateway.core.decision import Reason
from twisted_gateway.core.events import MAX_ERROR_BODY_BYTES, classify, upstream_message
from twisted_gateway.core.sse import EVENT_STREAM, Event, EventSplitter
from twisted_gateway.load.pace import Pace
from twisted_gateway.load.results import Ending, Try
from twisted_gateway.upstream.agent import UpstreamAgent
from twisted_gateway.upstream.errors import UpstreamError
from twisted_gateway.upstream.request_body import BytesProducer
from twisted_gateway.upstream.response import UpstreamResponse

MAX_BODY_BYTES = 16 * 1024 * 1024
"""How much of an answer that is no stream is kept to read its usage."""
MAX_REASON_CHARS = 200

_REFUSALS = frozenset({429, 503})
_GATE = frozenset(reason.value for reason in Reason)
_KEEP_ALIVE = re.compile(
    rb"^: keep-alive(?: position=(\d{1,9}))?(?: eta=(\d{1,9}(?:\.\d{1,9})?))?[ \t]*$", re.M
)


class _Problem(Struct):
    """What a refusal says to machines."""

    reason: str | None = None
    retry_after: float | None = None


class Exchange(Protocol):
    """One try, from its request to the end of its answer.

    Attributes:
        record: what is known of it so far.
        held: whether its last news is that it stands in the gateway's queue.
    """

    def __init__(self, pace: Pace, *, direct: bool) -> None:
        """Take the time; `direct` says that no gateway is in between."""
        self.record = Try(at=pace.now())
        self.held = False
        self.places: list[tuple[float, int, float | None]] = []
        self._pace = pace
        self._direct = direct
        self._splitter: EventSplitter | None = None
        self._body = bytearray()
        self._media_type = ""
        self._ended = self._left = False
        self._terminal = False
        self._commented = False
        self._placed_at: float | None = None
        self._placed_every = 0.0
        self._passed_at: float | None = None
        self._over: Deferred[None] = Deferred()

    async def run(self, agent: UpstreamAgent, url: bytes, headers: Headers, body: bytes) -> None:
        """Ask, and read the answer to its end; `record` says how that went.

        Raises:
            CancelledError: it was cancelled; the connection is dropped.
        """
        try:
            response = await agent.request(b"POST", url, headers, BytesProducer([body]))
        except UpstreamError as fault:
            self._end(Ending.FAILED, fault.reason)
            return
        await self._read(response)

    def close(self, ending: Ending) -> None:
        """Say how it ended, if nothing else has: its client left."""
        if not self._ended:
            self._end(ending, "")

    def _read(self, response: UpstreamResponse) -> Deferred[None]:
        self.record.head = self._pace.now()
        self.record.status = response.code
        self._media_type = response.media_type
        kind = response.field(b"Content-Type").split(b";")[0].strip().lower()
        if response.code == 200 and kind == EVENT_STREAM:
            self._splitter = EventSplitter()
        self.record.retry_after = _seconds(response.headers.getRawHeaders(b"retry-after", [b""])[0])
        self._over = Deferred(lambda _: self._leave(response))
        response.deliverBody(self)
        return self._over

    def _leave(self, response: UpstreamResponse) -> None:
        # What the connection says of its end then is of no interest.
        self._left = True
        response.abort()

    # What the connection says.

    def dataReceived(self, data: bytes) -> None:
        """Take a piece of the answer."""
        if self._ended:
            return
        if self._splitter is None:
            room = MAX_BODY_BYTES if self.record.status == 200 else MAX_ERROR_BODY_BYTES
            self._body += data[: max(0, room - len(self._body))]
            return
        cut = self._splitter.feed(data)
        if self.record.content is None and b": keep-alive" in cut.passed:
            self._comments(cut.passed)
        for event in cut.events:
            self._event(event)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Take the end of the answer."""
        fault = reason.value
        if not (self._ended or self._left):
            if isinstance(fault, UpstreamError):
                self._end(Ending.FAILED, fault.reason)
            elif self._splitter is not None:
                self._end_stream()
            elif isinstance(fault, ResponseDone | PotentialDataLoss):
                self._end_whole()
            else:
                self._end(Ending.FAILED, "the answer is not whole")
        if not (self._over.called or self._left):
            self._over.callback(None)

    def _comments(self, passed: bytes) -> None:
        now = self._pace.now()
        for found in _KEEP_ALIVE.finditer(passed):
            self._commented = True
            if found[1] is None:
                self.held = False
                if self._placed_at is not None and self._passed_at is None:
                    self._passed_at = now
                continue
            position, eta = int(found[1]), None if found[2] is None else float(found[2])
            if self._placed_at is None:
                self.record.position, self.record.eta = position, eta
            since = self.record.at if self._placed_at is None else self._placed_at
            self._placed_at, self._placed_every = now, now - since
            self.held, self._passed_at = True, None
            self.places.append((now, position, eta))

    def _event(self, event: Event) -> None:
        if self._ended:
            return
        meaning = classify(event)
        record = self.record
        if meaning.content:
            if record.content is None:
                record.content = self._pace.now()
                self.held = False
            record.tokens += 1
        if meaning.completion_tokens is not None:
            record.tokens = meaning.completion_tokens
        self._terminal = self._terminal or meaning.terminal
        if meaning.error is not None:
            problem = _problem(event.data or b"")
            refused = problem.reason in _GATE
            record.retry_after = problem.retry_after
            reason = problem.reason if refused else meaning.error.message
            self._end(Ending.REFUSED if refused else Ending.FAILED, reason or "an error event")

    def _end_stream(self) -> None:
        if self._terminal:
            self._end(Ending.COMPLETED, "")
        else:
            self._end(Ending.FAILED, "the stream ended without its last event")

    def _end_whole(self) -> None:
        status, data = self.record.status or 0, bytes(self._body)
        if 200 <= status < 300:
            tokens = classify(Event(data)).completion_tokens
            self.record.tokens = tokens or 0
            self._end(Ending.COMPLETED, "")
            return
        problem = _problem(data)
        if self.record.retry_after is None:
            self.record.retry_after = problem.retry_after
        said = problem.reason or upstream_message(data, self._media_type).message
        reason = problem.reason or (f"status {status}: {said}" if said else f"status {status}")
        self._end(Ending.REFUSED if status in _REFUSALS else Ending.FAILED, reason)

    def _end(self, ending: Ending, reason: str) -> None:
        self._ended = True
        record = self.record
        record.end = max(self._pace.now(), record.at)
        record.ending = ending
        record.reason = reason[:MAX_REASON_CHARS]
        record.kept = self._kept()
        self.held = False
        self._body.clear()

    def _kept(self) -> float | None:
        """How long the gateway kept it waiting, as far as can be seen.

        The last place that was told was true for at most as long as the comments were apart. An
        engine's own head comes when the request is let in, if no comment has brought one before.
        """
        record = self.record
        if self._direct:
            return None
        if record.ending is Ending.REFUSED:
            return record.end - record.at
        if self._placed_at is not None:
            bounds = (self._passed_at, record.content, record.end)
            until = min(bound for bound in bounds if bound is not None)
            return min(self._placed_at + self._placed_every, until) - record.at
        if self._splitter is None or self._commented or record.head is None:
            return None
        return record.head - record.at


def _problem(data: bytes) -> _Problem:
    try:
        return msgspec.json.decode(data, type=_Problem)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _Problem()


def _seconds(value: bytes) -> float | None:
    """Read a `Retry-After` in seconds; the form that is a date is none that engines send."""
    return float(value) if value.isdigit() and len(value) <= 9 else None
