"""Small answers: what a gateway lists, its status, a simulated engine's own account."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers

from twisted_gateway.upstream.agent import UpstreamAgent
from twisted_gateway.upstream.errors import ConnectFailed, UpstreamError

MAX_BYTES = 8 * 1024 * 1024
"""A longer answer is none."""
SECONDS = 10.0
"""How long one may take, unless it is said otherwise."""

T = TypeVar("T")


class NoAnswer(Exception):
    """There is no such answer; the text says why.

    Attributes:
        unreachable: whether no connection could be had.
    """

    def __init__(self, why: str, *, unreachable: bool = False) -> None:
        """Take what the class documents."""
        super().__init__(why)
        self.unreachable = unreachable


class Looker:
    """Fetches JSON."""

    def __init__(
        self,
        agent: UpstreamAgent,
        clock: IReactorTime,
        *,
        api_key: str = "",
        seconds: float = SECONDS,
    ) -> None:
        """Take what does the requests; `api_key` is sent as Bearer, where there is one."""
        self._seconds = seconds
        self._agent = agent
        self._clock = clock
        self._api_key = api_key

    async def fetch(self, url: str, kind: type[T]) -> T:
        """Fetch what is at `url`.

        Raises:
            NoAnswer: it cannot be had within its time, or is not of this kind.
            CancelledError: it was cancelled; the connection is dropped.
        """
        headers = Headers({b"Accept": [b"application/json"]})
        if self._api_key:
            headers.addRawHeader(b"Authorization", b"Bearer " + self._api_key.encode("ascii"))
        asked = Deferred.fromCoroutine(self._ask(url, headers))
        late = False

        def cut() -> None:
            nonlocal late
            late = True
            asked.cancel()

        bound = self._clock.callLater(self._seconds, cut)
        try:
            status, data = await asked
        except CancelledError:
            if late:
                raise NoAnswer(f"no answer within {self._seconds:g} s") from None
            raise
        except UpstreamError as fault:
            raise NoAnswer(fault.reason, unreachable=isinstance(fault, ConnectFailed)) from None
        finally:
            if bound.active():
                bound.cancel()
        return _read(status, data, kind)

    async def _ask(self, url: str, headers: Headers) -> tuple[int, bytes]:
        response = await self._agent.request(b"GET", url.encode("ascii"), headers)
        body = _Body()
        response.deliverBody(body)
        return response.code, await body.whole


class _Body(Protocol):
    """Gathers a body of at most `MAX_BYTES`."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._over = False
        self.whole: Deferred[bytes] = Deferred(self._cancelled)

    def dataReceived(self, data: bytes) -> None:
        self._received += data
        if len(self._received) > MAX_BYTES and not self._over:
            self._cancelled(None)
            self.whole.errback(NoAnswer(f"the answer is longer than {MAX_BYTES} bytes"))

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self._over:
            return
        self._over = True
        if isinstance(reason.value, ResponseDone | PotentialDataLoss):
            self.whole.callback(bytes(self._received))
        else:
            self.whole.errback(reason)

    def _cancelled(self, _: object) -> None:
        self._over = True
        transport: Any = self.transport
        transport.abortConnection()


def _read(status: int, data: bytes, kind: type[T]) -> T:
    if status != 200:
        raise NoAnswer(f"the answer has status {status}")
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as fault:
        raise NoAnswer(f"the answer is not as expected: {fault}") from None
