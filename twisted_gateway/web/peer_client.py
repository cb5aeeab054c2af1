"""Ask one replica what it holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http_headers import Headers

from twisted_gateway.config.forms import peer_text
from twisted_gateway.core.peerwire import MAX_VIEW_BYTES, PATH, MalformedView, PeerView, read_view
from twisted_gateway.upstream.agent import UpstreamAgent
from twisted_gateway.upstream.errors import UpstreamError
from twisted_gateway.web.peer_addresses import Address


class NoView(Exception):
    """A replica did not answer with a view; the message says why, and repeats nothing of it."""


class PeerClient:
    """Asks replicas, over connections that are kept.

    Args:
        agent: does the requests, with a pool of its own.
        token: gives what replicas must be shown.
    """

    def __init__(self, agent: UpstreamAgent, token: Callable[[], bytes]) -> None:
        """Take what the class documents."""
        self._agent = agent
        self._token = token

    def view(self, address: Address) -> Deferred[PeerView]:
        """Ask the replica at this address.

        Returns:
            Fires with what it holds, or fails with NoView. It bounds no time: cancelling it gives
            the connection up, and fails with CancelledError.
        """
        return Deferred.fromCoroutine(self._view(address))

    def close(self) -> Deferred[None]:
        """Close what is connected; requests under way fail.

        Returns:
            Fires when no connection is left.
        """
        return self._agent.close()

    async def _view(self, address: Address) -> PeerView:
        try:
            answer = await self._agent.request(
                b"GET",
                f"http://{peer_text(address)}{PATH}".encode("ascii"),
                Headers(
                    {
                        b"Authorization": [b"Bearer " + self._token()],
                        b"Accept": [b"application/json"],
                        b"Accept-Encoding": [b"identity"],
                        b"User-Agent": [b"twisted-gateway"],
                    }
                ),
            )
            body = _Body()
            answer.deliverBody(body)
            data = await body.read
        except UpstreamError as fault:
            raise NoView(fault.reason) from None
        if answer.code != 200:
            raise NoView(f"it answered with status {answer.code}")
        try:
            return read_view(data)
        except MalformedView as fault:
            raise NoView(str(fault)) from None


class _Body(Protocol):
    """Reads a body that a view would fit into; a longer one is given up, with its connection."""

    def __init__(self) -> None:
        self.read: Deferred[bytes] = Deferred(lambda _: self._abort())
        self._pieces: list[bytes] = []
        self._size = 0

    def dataReceived(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)
        if self._size > MAX_VIEW_BYTES and not self.read.called:
            self._abort()
            self.read.errback(NoView(f"it sent more than {MAX_VIEW_BYTES} bytes"))

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self.read.called:
            return
        if reason.check(ResponseDone):
            self.read.callback(b"".join(self._pieces))
        elif reason.check(UpstreamError):
            self.read.errback(reason)
        else:
            # Without a length, nobody knows whether it is whole.
            self.read.errback(NoView("its answer has no end"))

    def _abort(self) -> None:
        transport: Any = self.transport
        transport.abortConnection()
