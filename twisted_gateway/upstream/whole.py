"""Small answers, read whole: within a bound on their size and another on the time."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent

from twisted_gateway.upstream.errors import AnswerTimedOut, BadResponse
from twisted_gateway.upstream.request_body import BytesProducer
from twisted_gateway.upstream.response import UpstreamResponse

_MOST_STATUS = 599


@dataclass(frozen=True, slots=True)
class WholeAnswer:
    """An answer, all of it.

    Attributes:
        code: its status.
        headers: its header fields, as they came.
        body: its body.
    """

    code: int
    headers: Headers
    body: bytes


def _all(_: int) -> bool:
    """Admit every piece."""
    return True


async def read_whole(
    answer: UpstreamResponse,
    clock: IReactorTime,
    *,
    limit_bytes: int,
    seconds: float | None,
    admit: Callable[[int], bool] = _all,
) -> tuple[bytes, bool]:
    """Read a body, and say whether what was read is all of it.

    What is longer than `limit_bytes`, or takes longer than `seconds`, is cut off, with its
    connection. Cancelling drops the connection.

    Args:
        answer: whose body it is.
        clock: for the bound on the time.
        limit_bytes: the bound on its size.
        seconds: the bound on all of it; None: whoever is told by `admit` bounds it.
        admit: called with the size in bytes of every piece that comes, up to the limit; where it
            says False there is no room for it: the connection is dropped, and b"" given.
    """
    reader = _Reader(limit_bytes, admit)
    answer.deliverBody(reader)
    bound = None if seconds is None else clock.callLater(seconds, reader.cut)
    try:
        whole = await reader.done
        return reader.taken(), whole
    finally:
        if bound is not None and bound.active():
            bound.cancel()


async def ask(
    agent: IAgent,
    clock: IReactorTime,
    method: bytes,
    url: str,
    headers: Iterable[tuple[bytes, bytes]],
    body: bytes | None = None,
    *,
    limit_bytes: int,
    seconds: float,
) -> WholeAnswer:
    """Send a request and read its answer whole.

    Args:
        agent: sends it.
        clock: for the bound on the time.
        method: a token.
        url: absolute, visible ASCII.
        headers: its header fields.
        body: its body; None for none.
        limit_bytes: the bound on the answer's body.
        seconds: the bound on all of it.

    Returns:
        The answer, whatever its status. Cancelling drops the connection.

    Raises:
        UpstreamError: there was none, or it was not whole, too long or too late.
    """
    fields = Headers()
    for name, value in headers:
        fields.addRawHeader(name, value)
    producer = None if body is None else BytesProducer([body])
    until = clock.seconds() + seconds
    asked: Deferred[Any] = agent.request(method, url.encode("ascii"), fields, producer)
    answer: UpstreamResponse = await within(asked, clock, seconds)
    if answer.code > _MOST_STATUS:
        answer.abort()
        raise BadResponse(f"the answer's status is {answer.code}, which is none of HTTP's")
    left = max(0.0, until - clock.seconds())
    content, whole = await read_whole(answer, clock, limit_bytes=limit_bytes, seconds=left)
    if not whole:
        raise BadResponse("the answer is too long, too slow or broke off")
    return WholeAnswer(answer.code, answer.headers, content)


async def within(asked: Deferred[Any], clock: IReactorTime, seconds: float) -> Any:
    """Await an answer's head for so long.

    Raises:
        AnswerTimedOut: it did not come in time.
    """
    late = False

    def give_up() -> None:
        nonlocal late
        late = True
        asked.cancel()

    bound: IDelayedCall = clock.callLater(seconds, give_up)
    try:
        return await asked
    except CancelledError:
        if late:
            raise AnswerTimedOut(f"no answer within {seconds:g} s") from None
        raise
    finally:
        if bound.active():
            bound.cancel()


class _Reader(Protocol):
    """Reads a body up to a limit; what is more is cut off, with the connection.

    Attributes:
        done: fires when no more comes, with whether that is all; cancelling drops the connection.
    """

    def __init__(self, limit_bytes: int, admit: Callable[[int], bool]) -> None:
        self._limit_bytes = limit_bytes
        self._admit = admit
        # One block that grows, for many small ones leave holes in memory that nobody gives back.
        self._come = io.BytesIO()
        self.done: Deferred[bool] = Deferred(self._abort)

    def taken(self) -> bytes:
        """Give what has come, once: whoever asks has the only copy, and frees it by letting go."""
        come, self._come = self._come, io.BytesIO()
        return come.getvalue()

    def dataReceived(self, data: bytes) -> None:
        if self.done.called:
            # The connection, which is cut, has had it already.
            return
        room = self._limit_bytes - self._come.tell()
        if len(data) > room:
            self._come.write(data[:room])
            self.cut()
        elif self._admit(len(data)):
            self._come.write(data)
        else:
            self._come = io.BytesIO()
            self.cut()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._finish(whole=bool(reason.check(ResponseDone, PotentialDataLoss)))

    def cut(self) -> None:
        """Do with what has come, and drop the connection."""
        self._abort(self.done)
        self._finish(whole=False)

    def _finish(self, *, whole: bool) -> None:
        if not self.done.called:
            self.done.callback(whole)

    def _abort(self, _: object) -> None:
        transport: Any = self.transport
        transport.abortConnection()
