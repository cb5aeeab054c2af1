"""The channel: twisted.web's, that also lets an early answer reach a client still sending.

twisted.web lets the idle timer alone guard a slow head, and stops reading from a client that sends
on behind an unanswered request, so that it would not notice it leave.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from twisted.internet.interfaces import IDelayedCall, IPushProducer
from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel, datetimeToString

from twisted_gateway.core.errors import TITLES
from twisted_gateway.core.headers import tokens
from twisted_gateway.telemetry.repeats import Repeats
from twisted_gateway.web.transport import Watched, waiting_bytes

_EARLY_ANSWER_LINGER_SECONDS = 5.0
_MAX_LINE_BYTES = 16384
_MOST_DIGITS = 20

FAREWELL_SECONDS = 60.0
"""How long a client may take nothing of what is written before its connection closes."""


class ChannelOwner(Protocol):
    """What a channel needs of its site.

    Attributes:
        closing: whether connections are to end with the answers that are under way.
        repeats: keeps clients that misbehave from filling the log.
    """

    closing: bool
    repeats: Repeats

    def connection_opened(self, channel: GatewayChannel) -> None:
        """A connection has come about."""

    def connection_closed(self, channel: GatewayChannel) -> None:
        """A connection has ended."""


class Refusable(Protocol):
    """What a channel needs of a request that it refuses itself."""

    def refused_by_channel(self) -> None:
        """The HTTP layer has answered 400."""


class GatewayChannel(HTTPChannel):
    """twisted.web's channel, with a bound on everything that a client may leave undone.

    what a client does               what bounds it
    -----------------------------    --------------------------------------------------
    sends no head, or a slow one     the idle timer: a whole head within `timeOut`
    sends a slow body                the request's own timer (`bodySeconds`)
    sends on behind a request        16 kB, then the connection is cut
    sends many requests at once      one is served in each turn of the reactor, and none
                                     while answers wait for the client to read them
    reads no answer                  the Reply's stall timer; once the last answer of the
                                     connection is written, `FAREWELL_SECONDS`
    """

    _log = Logger()
    MAX_LENGTH = _MAX_LINE_BYTES
    site: ChannelOwner
    _linger: IDelayedCall | None = None
    _farewell: IDelayedCall | None = None
    _farewell_bytes: int | None = None
    _turn: IDelayedCall | None = None
    _idle_seconds: float | None = None

    def connectionMade(self) -> None:
        """A client has connected."""
        self._idle_seconds = self.timeOut
        self.site.connection_opened(self)
        super().connectionMade()

    # Coming in

    @property
    def head_line(self) -> tuple[bytes, bytes, bytes]:
        """Method, target and version of the request whose head is being read."""
        return self._command, self._path, self._version

    @property
    def network(self) -> IPushProducer:
        """The client's connection, to be paused while nobody takes a body.

        A client that leaves meanwhile is noticed all the same.
        """
        return Watched(self._networkProducer, self.transport, self.callLater, self.abortConnection)

    def dataReceived(self, data: bytes) -> None:
        """Feed the parser; the idle timer bounds a whole head, not the pause between its bytes."""
        if self._linger is not None:
            return
        if not self.requests and not self._buffer:
            self.resetTimeout()
        super(HTTPChannel, self).dataReceived(data)

    def rawDataReceived(self, data: bytes) -> None:
        """Body bytes, or bytes behind a request that has no answer yet: those are bounded."""
        super().rawDataReceived(data)
        if self._handlingRequest and sum(map(len, self._dataBuffer)) > (
            self._optimisticEagerReadSize
        ):
            # From here on twisted.web would read no more, and so never notice the client leave.
            self.site.repeats.say(
                "cut", self._log.info, "cut a client that sent on behind an unanswered request"
            )
            self.abortConnection()

    def headerReceived(self, line: bytes) -> bool:
        """One header field: a length that no integer type holds is merely far too large.

        Returns:
            Whether the request goes on.
        """
        name, _, value = line.partition(b":")
        value = value.strip(b" \t")
        if name.lower() == b"content-length" and value.isdigit() and len(value) > _MOST_DIGITS:
            # Python refuses to read thousands of digits, which would end in a traceback.
            line = b"Content-Length: " + b"9" * _MOST_DIGITS
        if name.lower() == b"transfer-encoding" and value.lower() != b"chunked":
            # Twisted passes over `identity`, and would take the body for the next request; it is
            # no transfer coding any more (RFC 9112, section 7).
            self._respondToBadRequestAndDisconnect()
            return False
        return bool(super().headerReceived(line))

    def allHeadersReceived(self) -> None:
        """The head is whole: from here on the request's own timer bounds what is to come."""
        self.setTimeout(None)
        super().allHeadersReceived()

    def checkPersistence(self, request: Any, version: bytes) -> bool:
        """Whether the connection is kept after this request (RFC 9112, section 9.3)."""
        asked = tokens(request.requestHeaders.getRawHeaders(b"Connection", []))
        if version != b"HTTP/1.1":
            return False
        if self.site.closing or b"close" in asked:
            request.responseHeaders.setRawHeaders(b"Connection", [b"close"])
            return False
        return True

    # A request has been answered

    def requestDone(self, request: Any) -> None:
        """Go on with what the client has sent behind it, in a turn of its own."""
        if self.site.closing:
            self.persistent = False
        self._savedTimeOut = self._idle_seconds
        more = self.persistent and (self._buffer or self._dataBuffer)
        # The parser stops here: else a client that sends a thousand requests at once would have
        # all of them served before anyone else, and their answers pile up.
        self.paused = bool(more)
        super().requestDone(request)
        if more:
            self._networkProducer.pauseProducing()
            self._next_turn()

    def resumeProducing(self) -> None:
        """The client has read what waited for it."""
        super().resumeProducing()
        if self.paused:
            self._networkProducer.pauseProducing()
            self._next_turn()

    def _next_turn(self) -> None:
        if self._turn is None and not self._waitingForTransport:
            self._turn = self.callLater(0, self._go_on)

    def _go_on(self) -> None:
        self._turn = None
        if self._waitingForTransport:
            return
        self.paused = False
        self._networkProducer.resumeProducing()
        self.dataReceived(b"")

    # The end

    def close_if_idle(self) -> None:
        """Close, unless a request is under way."""
        if not self.requests:
            self.loseConnection()

    def loseConnection(self) -> None:
        """Close once all is written; a client that does not take it is cut."""
        if self._farewell is None:
            super().loseConnection()
            self._look_at_farewell()

    def _look_at_farewell(self) -> None:
        waiting = waiting_bytes(self.transport)
        if self._farewell is not None and waiting == self._farewell_bytes:
            self._farewell = None
            self.abortConnection()
            return
        self._farewell_bytes = waiting
        self._farewell = self.callLater(FAREWELL_SECONDS, self._look_at_farewell)

    def lineLengthExceeded(self, line: bytes) -> None:
        """A request or header line that is too long: 431, as RFC 6585 has it."""
        self.answer_and_drain(431, [], b"")

    def _respondToBadRequestAndDisconnect(self) -> None:
        """Twisted's own 400, before there is a request that could be answered."""
        super()._respondToBadRequestAndDisconnect()
        for request in self.requests:
            refused: Refusable = request
            refused.refused_by_channel()

    def answer_and_drain(
        self,
        code: int,
        headers: Iterable[tuple[bytes, bytes]],
        body: bytes,
        *,
        head_only: bool = False,
    ) -> int:
        """Write a whole answer, close our half, and read the rest of the request to nowhere.

        Closing with unread input would send a reset, and the client might never see the answer.

        Args:
            code: its status.
            headers: its fields, less those of the connection.
            body: its body.
            head_only: whether it answers HEAD, and none of its body is written.

        Returns:
            How many bytes of the body are written.
        """
        head = [b"HTTP/1.1 %d %s\r\n" % (code, TITLES.get(code, "Error").encode("ascii"))]
        head += [b"%s: %s\r\n" % pair for pair in headers]
        head.append(
            b"Date: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
            % (datetimeToString(), len(body))
        )
        self.setTimeout(None)
        transport: Any = self.transport
        sent = b"" if head_only else body
        transport.write(b"".join(head) + sent)
        self._linger = self.callLater(_EARLY_ANSWER_LINGER_SECONDS, self.abortConnection)
        half_close = getattr(transport, "loseWriteConnection", None)
        if half_close is not None:
            half_close()
        return len(sent)

    def abortConnection(self) -> None:
        """Cut the connection at once."""
        transport: Any = self.transport
        transport.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The client has gone."""
        for timer in (self._linger, self._farewell, self._turn):
            if timer is not None and timer.active():
                timer.cancel()
        self.site.connection_closed(self)
        super().connectionLost(reason)
