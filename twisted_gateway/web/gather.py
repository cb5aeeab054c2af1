"""An engine's small answer, read whole: a refusal, or an error behind a spent status."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http import PotentialDataLoss

from twisted_gateway.core.events import MAX_ERROR_BODY_BYTES
from twisted_gateway.upstream.response import UpstreamResponse

SMALL_ANSWER_SECONDS = 10.0
"""How long an engine's refusal may take to come whole."""


async def gather(answer: UpstreamResponse, clock: IReactorTime) -> tuple[bytes, bool]:
    """Read a small answer, and say whether what was read is all of it.

    What is longer than `MAX_ERROR_BODY_BYTES`, or takes longer than `SMALL_ANSWER_SECONDS`, is cut
    off, with its connection. Cancelling drops the connection.
    """
    gatherer = _Gatherer(MAX_ERROR_BODY_BYTES)
    answer.deliverBody(gatherer)
    bound = clock.callLater(SMALL_ANSWER_SECONDS, gatherer.cut)
    try:
        return await gatherer.done
    finally:
        if bound.active():
            bound.cancel()


class _Gatherer(Protocol):
    """Reads a body up to a limit; what is more is cut off, with the connection."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._pieces: list[bytes] = []
        self._size = 0
        self.done: Deferred[tuple[bytes, bool]] = Deferred(self._abort)

    def dataReceived(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)
        if self._size > self._limit_bytes:
            self.cut()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._finish(whole=bool(reason.check(ResponseDone, PotentialDataLoss)))

    def cut(self) -> None:
        """Do with what has come, and drop the connection."""
        self._abort(self.done)
        self._finish(whole=False)

    def _finish(self, *, whole: bool) -> None:
        if not self.done.called:
            self.done.callback((b"".join(self._pieces)[: self._limit_bytes], whole))

    def _abort(self, _: object) -> None:
        transport: Any = self.transport
        transport.abortConnection()
