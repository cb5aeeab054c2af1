"""A watch of the Kubernetes API: its answer is a line of JSON for each change, as it comes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent

from twisted_gateway.core import strict_json
from twisted_gateway.core.events import MAX_ERROR_BODY_BYTES
from twisted_gateway.upstream.response import UpstreamResponse
from twisted_gateway.upstream.whole import WholeAnswer, read_whole, within

MOST_LINE_BYTES = 2_097_152
"""The longest line that is read: etcd holds no object of more than 1.5 MiB."""
MOST_WAITING = 64
"""How many changes may wait before the socket is read no more."""
MOST_WAITING_BYTES = 2 * MOST_LINE_BYTES
"""How large they may be together."""


@dataclass(frozen=True, slots=True)
class Change:
    """What has become of an object.

    Attributes:
        kind: `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK`, `ERROR`.
        tree: the object; of an `ERROR` a `Status`.
    """

    kind: str
    tree: dict[str, Any]


class Watch:
    """Changes, one after the other, to the watch's end.

    Args:
        answer: a 200, whose body is not read yet.
    """

    def __init__(self, answer: UpstreamResponse) -> None:
        """Begin to read."""
        self._answer = answer
        self._lines = _Lines()
        answer.deliverBody(self._lines)

    async def next(self) -> Change | None:
        """Give the next change; None when the watch has ended, broken off or talks nonsense.

        Cancelling stops the waiting; `close` the watch.
        """
        line = await self._lines.next()
        if line is None:
            return None
        try:
            tree = strict_json.loads(line)
        except (ValueError, RecursionError):
            return None
        kind = tree.get("type") if isinstance(tree, dict) else None
        inner = tree.get("object") if isinstance(tree, dict) else None
        if not isinstance(kind, str) or not isinstance(inner, dict):
            return None
        return Change(kind, inner)

    def close(self) -> None:
        """End the watch, and its connection."""
        self._answer.abort()


async def open_watch(
    agent: IAgent,
    clock: IReactorTime,
    url: str,
    headers: Iterable[tuple[bytes, bytes]],
    seconds: float,
) -> Watch | WholeAnswer:
    """Open a watch.

    Returns:
        The watch, or the answer that is none. Cancelling drops the connection.

    Raises:
        UpstreamError: there is no answer within `seconds`.
    """
    fields = Headers()
    for name, value in headers:
        fields.addRawHeader(name, value)
    asked: Deferred[Any] = agent.request(b"GET", url.encode("ascii"), fields)
    answer: UpstreamResponse = await within(asked, clock, seconds)
    if answer.code == 200:
        return Watch(answer)
    body, _ = await read_whole(answer, clock, limit_bytes=MAX_ERROR_BODY_BYTES, seconds=seconds)
    return WholeAnswer(answer.code, answer.headers, body)


class _Lines(Protocol):
    """Takes a body apart into lines, of which a few wait, and one that is not whole yet."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._whole: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._ended = False
        self._paused = False
        self._waiter: Deferred[None] | None = None

    async def next(self) -> bytes | None:
        while not self._whole:
            if self._ended:
                return None
            self._resume()
            self._waiter = Deferred()
            try:
                await self._waiter
            finally:
                self._waiter = None
        line = self._whole.popleft()
        self._waiting_bytes -= len(line)
        return line

    def dataReceived(self, data: bytes) -> None:
        # What comes is gone through once, in however small pieces it comes.
        *whole, rest = data.split(b"\n")
        if whole:
            whole[0] = bytes(self._rest) + whole[0]
            self._rest.clear()
        self._rest += rest
        lines = [line for line in whole if line.strip()]
        self._whole += lines
        self._waiting_bytes += sum(map(len, lines))
        if len(self._rest) > MOST_LINE_BYTES:
            self._end()
            self._transport.abortConnection()
        elif self._is_full and not self._paused:
            self._paused = True
            self._transport.pauseProducing()
        self._wake()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._end()

    @property
    def _is_full(self) -> bool:
        return len(self._whole) > MOST_WAITING or self._waiting_bytes > MOST_WAITING_BYTES

    @property
    def _transport(self) -> Any:
        return self.transport

    def _resume(self) -> None:
        if self._paused:
            self._paused = False
            self._transport.resumeProducing()

    def _end(self) -> None:
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.called and (self._whole or self._ended):
            self._waiter.callback(None)
