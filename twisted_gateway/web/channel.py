"""The channel: twisted.web's, that also lets an early answer reach a client still sending.

twisted.web lets the idle timer alone guard a slow head, and stops reading from a client that sends
on behind an unanswered request, so that it would not notice it leave.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel, datetimeToString

from twisted_gateway.core.errors import TITLES

_EARLY_ANSWER_LINGER_SECONDS = 5.0
_MAX_LINE_BYTES = 16384


class ChannelOwner(Protocol):
    """What a channel needs of its site."""

    def connection_closed(self) -> None:
        """A connection has ended."""


class GatewayChannel(HTTPChannel):
    """twisted.web's channel; also lets an early answer reach a client that is still sending."""

    _log = Logger()
    MAX_LENGTH = _MAX_LINE_BYTES
    site: ChannelOwner
    _linger: IDelayedCall | None = None

    def dataReceived(self, data: bytes) -> None:
        """Feed the parser; the idle timer bounds a whole head, not the pause between its bytes."""
        if self._linger is not None:
            return
        if not self.line_mode:
            self.resetTimeout()
        super(HTTPChannel, self).dataReceived(data)

    def rawDataReceived(self, data: bytes) -> None:
        """Body bytes, or bytes behind a request that has no answer yet: those are bounded."""
        super().rawDataReceived(data)
        if self._handlingRequest and sum(map(len, self._dataBuffer)) > (
            self._optimisticEagerReadSize
        ):
            # From here on twisted.web would read no more, and so never notice the client leave.
            self._log.info("cut a client that sent on behind an unanswered request")
            self.abortConnection()

    def lineLengthExceeded(self, line: bytes) -> None:
        """A request or header line that is too long: 431, as RFC 6585 has it."""
        self.answer_and_drain(431, [], b"")

    def answer_and_drain(
        self, code: int, headers: Iterable[tuple[bytes, bytes]], body: bytes
    ) -> None:
        """Write a whole answer, close our half, and read the rest of the request to nowhere.

        Closing with unread input would send a reset, and the client might never see the answer.
        """
        head = [b"HTTP/1.1 %d %s\r\n" % (code, TITLES[code].encode("ascii"))]
        head += [b"%s: %s\r\n" % pair for pair in headers]
        head.append(
            b"Date: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
            % (datetimeToString(), len(body))
        )
        self.setTimeout(None)
        transport: Any = self.transport
        transport.write(b"".join(head) + body)
        self._linger = self.callLater(_EARLY_ANSWER_LINGER_SECONDS, self.abortConnection)
        half_close = getattr(transport, "loseWriteConnection", None)
        if half_close is not None:
            half_close()

    def abortConnection(self) -> None:
        """Cut the connection at once."""
        transport: Any = self.transport
        transport.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The client has gone."""
        if self._linger is not None and self._linger.active():
            self._linger.cancel()
        self.site.connection_closed()
        super().connectionLost(reason)
