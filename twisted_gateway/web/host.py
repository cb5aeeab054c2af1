"""What a request needs of the site that it came to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from twisted.internet.interfaces import IReactorTime

from twisted_gateway.web.cors import Cors
from twisted_gateway.web.exchange import Exchange
from twisted_gateway.web.intake import BodyRule, HeldBytes

if TYPE_CHECKING:
    from twisted_gateway.web.request import GatewayRequest


class Host(Protocol):
    """What a request needs of its site.

    Attributes:
        reactor: for the timer of the body.
        held: bytes of request bodies held by the process.
        retry_after_seconds: what a client is told that comes when too much is held.
    """

    reactor: IReactorTime
    held: HeldBytes
    retry_after_seconds: float

    @property
    def max_body_bytes(self) -> int:
        """The largest body that any model takes."""

    @property
    def body_seconds(self) -> float:
        """The longest time that any model gives a whole body."""

    def body_rule(self, request: GatewayRequest) -> BodyRule:
        """What holds for the body of a request whose head has been read."""

    @property
    def cors(self) -> Cors:
        """The cross-origin policy."""

    def open_exchange(self, request: GatewayRequest) -> Exchange:
        """Begin the book of a request whose head has been read."""
