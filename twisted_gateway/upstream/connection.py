"""One HTTP/1.1 connection to an upstream: one exchange at a time, parsed by llhttp.

The parser's callbacks only take notes; what they noted is acted on after the parser has returned.
So whoever is told something may abort, pause or start another request on the same agent, and all
body pieces of one read leave as one.

    idle --exchange--> waiting for a head --head--> inside a body --end--> idle, or closed
      |                     |                            |
      '-- a byte, an end: closed                         '-- end, fault: the answer is broken
                            '-- end, fault: the exchange fails
"""

from __future__ import annotations

import re
from collections import deque
from typing import Any, NamedTuple, Protocol, cast

from httptools import HttpParserCallbackError, HttpParserError, HttpResponseParser
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IHandshakeListener, IPushProducer, ITCPTransport
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers
from twisted.web.iweb import UNKNOWN_LENGTH, IBodyProducer
from zope.interface import implementer

from twisted_gateway.upstream.errors import (
    Aborted,
    BadResponse,
    BodyFailed,
    Disconnected,
    Truncated,
    UpstreamError,
)
from twisted_gateway.upstream.request_body import RequestWriter
from twisted_gateway.upstream.response import SentRequest, UpstreamResponse

MAX_INTERIM = 16
"""How many 1xx answers may come before the final one."""

_VERSIONS = {"1.1": (b"HTTP", 1, 1), "1.0": (b"HTTP", 1, 0)}
_BODILESS = frozenset((204, 304))
_TIMEOUT = re.compile(rb"(?:^|[,;\s])timeout=(\d{1,9})(?![^,;\s])", re.IGNORECASE)


class Origin(NamedTuple):
    """What connections are shared by: the scheme (`http` or `https`), the host, the port."""

    scheme: bytes
    host: bytes
    port: int


class Exchange(Protocol):
    """Who is told how a request on a connection went; exactly one of the two, once."""

    def responded(self, response: UpstreamResponse) -> None:
        """The head of the final answer has come."""

    def failed(self, error: UpstreamError) -> None:
        """No answer will come."""


class Owner(Protocol):
    """Who is told what becomes of a connection."""

    def ready(self, connection: Connection) -> None:
        """The TLS handshake is complete (never called for plain connections)."""

    def idle(self, connection: Connection) -> None:
        """An exchange has ended whole and the connection can serve another."""

    def spoiled(self, connection: Connection) -> None:
        """Nothing more can be sent on it; it is about to close. May come more than once."""

    def lost(self, connection: Connection, reason: Failure) -> None:
        """It is gone."""


@implementer(IHandshakeListener)
class Connection(TwistedProtocol):
    """A connection to an upstream.

    Attributes:
        origin: what it is connected to.
        owner: who is told what becomes of it: at first whoever opens it, then the agent.
        keep_seconds: how long the server said that it keeps an idle connection; None if it did not.
    """

    def __init__(self, origin: Origin, owner: Owner, max_head_bytes: int) -> None:
        """Take the owner, and the bound on heads.

        Args:
            origin: what it is connected to.
            owner: who is told what becomes of it.
            max_head_bytes: bound on an answer's head (interim answers and trailers included), and
                on bytes that bring neither a head nor a piece of a body.
        """
        self.origin = origin
        self.keep_seconds: int | None = None
        self.owner = owner
        self._max_head_bytes = max_head_bytes
        self._parser = HttpResponseParser(self)
        self._closing = False
        self._paused = False
        self._dispatching = False
        self._backlog: deque[bytes] = deque()
        # The exchange: its call until there is a head, then its response.
        self._call: Exchange | None = None
        self._response: UpstreamResponse | None = None
        self._request: SentRequest | None = None
        self._writer: RequestWriter | None = None
        self._heard = False
        self._reset()

    def _reset(self) -> None:
        """Forget what the parser noted."""
        self._awaited = False
        self._interim = 0
        self._head_bytes = 0
        self._barren_bytes = 0
        self._phrase = b""
        self._fields: list[tuple[bytes, bytes]] = []
        self._opened: UpstreamResponse | None = None
        self._has_head = False
        self._complete = False
        self._keep_alive = False
        self._until_close = False
        self._pieces: list[bytes] = []
        self._refusal: BadResponse | None = None

    # What the agent does with it.

    def exchange(
        self, call: Exchange, request: SentRequest, head: bytes, producer: IBodyProducer | None
    ) -> None:
        """Send a request. The connection must be idle.

        Args:
            call: is told the answer or the failure, perhaps before this returns.
            request: what the answer will name as its request.
            head: the request's head, its blank line included.
            producer: the request's body.
        """
        self._reset()
        self._awaited = True
        self._heard = False
        self._call = call
        self._request = request
        assert self.transport is not None
        self._writer = RequestWriter(self.transport, head, producer, self._body_failed)
        self._writer.start()

    def drop(self) -> None:
        """Abort, and tell the exchange nothing: its caller has given it up."""
        self._call = None
        self.abort()

    def shut(self) -> None:
        """Abort; an exchange in flight fails with `Aborted`."""
        call, self._call = self._call, None
        self.abort()
        if call is not None:
            call.failed(Aborted("the gateway is shutting its upstream connections"))

    def close(self) -> None:
        """Close an idle connection."""
        if not self._closing and self.origin.scheme == b"http":
            self._closing = True
            assert self.transport is not None
            self.transport.loseConnection()
        else:
            # An orderly end of TLS waits for the peer, without any bound.
            self.abort()

    def abort(self) -> None:
        """Drop the socket at once and deliver no more; a response is told when it is gone."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.stop()
        if not self._closing:
            self._closing = True
            self.owner.spoiled(self)
            cast(ITCPTransport, self.transport).abortConnection()

    def pause(self) -> None:
        """Read no more."""
        if not self._paused and not self._closing:
            self._paused = True
            cast(IPushProducer, self.transport).pauseProducing()

    def resume(self) -> None:
        """Read on."""
        if self._paused and not self._closing:
            self._paused = False
            cast(IPushProducer, self.transport).resumeProducing()

    # What the transport says.

    def connectionMade(self) -> None:
        """Send small writes at once."""
        if ITCPTransport.providedBy(self.transport):
            self.transport.setTcpNoDelay(True)

    def handshakeCompleted(self) -> None:
        """The peer's certificate has been accepted, unless the transport is being closed."""
        # Older Twisted says so too when the certificate is for another name; it has aborted then.
        if not getattr(self.transport, "disconnecting", False):
            self.owner.ready(self)

    def dataReceived(self, data: bytes) -> None:
        """Take one read."""
        self._backlog.append(data)
        if self._dispatching:
            return
        self._dispatching = True
        try:
            while self._backlog:
                self._take(self._backlog.popleft())
        finally:
            self._dispatching = False

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """End whatever is in flight."""
        aborted, self._closing = self._closing, True
        call, self._call = self._call, None
        response, self._response = self._response, None
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.stop()
        self.owner.lost(self, reason)
        if call is not None:
            call.failed(
                Truncated("the connection ended inside the response head")
                if self._heard
                else Disconnected("the connection ended before any response")
            )
        elif response is not None:
            response.ended(self._end_of_body(aborted, reason))

    def _end_of_body(self, aborted: bool, reason: Failure) -> Exception:
        if aborted:
            return Aborted("the response was given up")
        if self._until_close and isinstance(reason.value, ConnectionDone):
            return PotentialDataLoss()
        return Truncated("the connection ended inside the response body")

    # One read, from the parser's notes to those who wait for them.

    def _take(self, data: bytes) -> None:
        if self._closing or (self._call is None and self._response is None):
            self.abort()
            return
        self._heard = True
        fault = self._feed(data)
        response, self._opened = self._opened, None
        if response is not None:
            self._open(response)
        else:
            response = self._response
        pieces = self._pieces
        if pieces and response is not None and self._is_open(response):
            self._pieces = []
            body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            response.received(body, more=not self._complete)
        if response is not None and not self._is_open(response):
            return
        if response is not None and self._complete:
            self._finish(response, clean=fault is None)
        elif fault is not None:
            self._break(fault)

    def _feed(self, data: bytes) -> BadResponse | None:
        """Let the parser take its notes; what it says against the data."""
        try:
            self._parser.feed_data(data)
        except HttpParserError as fault:
            if self._refusal is not None:
                return self._refusal
            if isinstance(fault, HttpParserCallbackError):
                raise
            return BadResponse(f"the response is not HTTP: {fault}")
        if self._opened is not None or self._pieces or self._complete:
            self._barren_bytes = 0
        else:
            self._barren_bytes += len(data)
            if self._barren_bytes > self._max_head_bytes:
                return BadResponse("the response head is too large")
        return None

    def _is_open(self, response: UpstreamResponse) -> bool:
        """Whether `response` still awaits its end, after somebody was told something."""
        return self._response is response and not self._closing

    def _open(self, response: UpstreamResponse) -> None:
        """Hand over the head. A request that is not yet out needs no more of its body."""
        call, self._call = self._call, None
        self._response = response
        if self._writer is not None and not self._writer.sent:
            self._writer.stop()
        if call is not None:
            call.responded(response)

    def _finish(self, response: UpstreamResponse, clean: bool) -> None:
        """End a whole answer; the connection is free, or closing, before its reader hears of it."""
        writer, self._writer = self._writer, None
        sent = writer is not None and writer.sent
        if writer is not None:
            writer.stop()
        self._response = self._request = None
        if clean and sent and self._keep_alive:
            self.resume()
            self.owner.idle(self)
        elif sent:
            self.close()
        else:
            self.abort()
        response.ended(ResponseDone("the response is whole"))

    def _break(self, error: UpstreamError) -> None:
        """Abort, and tell whoever waits why."""
        call, self._call = self._call, None
        response, self._response = self._response, None
        self.abort()
        if call is not None:
            call.failed(error)
        elif response is not None:
            response.ended(error)

    def _body_failed(self, error: BodyFailed) -> None:
        if not self._closing:
            self._break(error)

    # What the parser says.

    def _refuse(self, reason: str) -> BadResponse:
        self._refusal = BadResponse(reason)
        return self._refusal

    def on_message_begin(self) -> None:
        """A byte that can begin an answer has come."""
        if not self._awaited:
            raise self._refuse("data follows the response")
        self._awaited = False

    def on_status(self, phrase: bytes) -> None:
        """A part of the reason phrase."""
        self._phrase += phrase

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of the head, or of the trailer, which is counted and dropped."""
        self._head_bytes += len(name) + len(value) + 4
        if self._head_bytes > self._max_head_bytes:
            raise self._refuse("the response head is too large")
        if not self._has_head:
            self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        """The blank line after a head."""
        code = self._parser.get_status_code()
        if code >= 200:
            self._opened = self._final_head(code)
            self._has_head = True
            return
        self._interim += 1
        if code < 102 and code != 100:
            raise self._refuse(f"the response has status {code}")
        if self._interim > MAX_INTERIM:
            raise self._refuse("too many interim responses")
        self._phrase = b""
        self._fields = []

    def on_body(self, piece: bytes) -> None:
        """A piece of the body, without its framing."""
        if not self._has_head:
            raise self._refuse("an interim response has a body")
        if not self._complete:
            self._pieces.append(piece)

    def on_message_complete(self) -> None:
        """The end of an answer, interim or final."""
        if self._has_head:
            self._complete = True
        else:
            self._awaited = True

    def _final_head(self, code: int) -> UpstreamResponse:
        version = _VERSIONS.get(self._parser.get_http_version())
        if version is None:
            raise self._refuse("the response is in another version of HTTP")
        headers = Headers()
        for name, value in self._fields:
            headers.addRawHeader(name, value)
        self._fields = []
        length = self._frame(code, headers)
        kept = headers.getRawHeaders(b"Keep-Alive")
        if kept and (match := _TIMEOUT.search(kept[0])):
            self.keep_seconds = int(match[1])
        assert self._request is not None
        return UpstreamResponse(self, self._request, version, code, self._phrase, headers, length)

    def _frame(self, code: int, headers: Headers) -> Any:
        """How the body is delimited (RFC 9112 section 6.3); its length, if that is known."""
        self._keep_alive = self._parser.should_keep_alive()
        codings = headers.getRawHeaders(b"Transfer-Encoding")
        lengths = headers.getRawHeaders(b"Content-Length")
        if codings and (len(codings) > 1 or codings[0].strip().lower() != b"chunked"):
            raise self._refuse("the response has an unknown transfer coding")
        if codings and lengths:
            raise self._refuse("the response has both a length and a transfer coding")
        assert self._request is not None
        if self._request.method == b"HEAD":
            # llhttp cannot be told, and waits for the body that the head announces: its state,
            # and so the connection, is of no use afterwards.
            self._complete = True
            self._keep_alive = False
            return 0
        if code in _BODILESS:
            return 0
        if lengths:
            return int(lengths[0])
        self._until_close = not codings
        return UNKNOWN_LENGTH
