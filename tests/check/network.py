"""The way from the check to servers in memory: both ends of a connection are here."""

from __future__ import annotations

from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.interfaces import IProtocol
from twisted.web.client import URI
from twisted.web.iweb import IAgentEndpointFactory
from zope.interface import implementer

from tests.stack import Wire


class Link(Wire):
    """One end of a connection whose other end is in memory too."""

    other: Link

    def write(self, data: bytes) -> None:
        open_ = not (self.closed or self.disconnecting or self.aborted)
        super().write(data)
        if open_ and data:
            self.clock.callLater(0, self.other.arrive, data)

    def arrive(self, data: bytes) -> None:
        """Take what the other end has written."""
        if not self.closed:
            self.deliver(data)

    def lose(self, why: Exception | None = None) -> None:
        if not self.closed:
            super().lose(why)
            self.clock.callLater(0, self.other.lose)


def linked(clock: Any, client: Any, server: Any) -> IProtocol:
    """Connect a client's protocol factory with a server's; gives the client's protocol."""
    address = IPv4Address("TCP", "192.0.2.7", 40000)
    ends = Link(clock, address), Link(clock, address)
    ends[0].other, ends[1].other = ends[1], ends[0]
    for end, factory in zip(ends, (client, server), strict=True):
        end.protocol = factory.buildProtocol(address)
    # The server is there first.
    for end in reversed(ends):
        end.protocol.makeConnection(end)
    protocol: IProtocol = ends[0].protocol
    return protocol


@implementer(IAgentEndpointFactory)
class Network:
    """The way to servers in memory.

    Attributes:
        servers: port -> the factory of who listens there; None: nobody.
    """

    def __init__(self, clock: Any, servers: dict[int, Any]) -> None:
        self.servers = servers
        self._clock = clock

    def endpointForURI(self, uri: URI) -> Any:
        return _Endpoint(self, self._clock, uri.port)


class _Endpoint:
    def __init__(self, network: Network, clock: Any, port: int) -> None:
        self._network = network
        self._clock = clock
        self._port = port

    def connect(self, factory: Any) -> Deferred[IProtocol]:
        server = self._network.servers.get(self._port)
        if server is None:
            return fail(ConnectionRefusedError())
        return succeed(linked(self._clock, factory, server))
