"""The site: connections and requests with their bounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from twisted.internet import protocol
from twisted.internet.interfaces import IAddress, IReactorTime
from twisted.web.resource import IResource
from twisted.web.server import Site

from twisted_gateway.config.schema import Config
from twisted_gateway.core.errors import Problem
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.telemetry.repeats import Repeats
from twisted_gateway.web.channel import GatewayChannel
from twisted_gateway.web.cors import Cors
from twisted_gateway.web.exchange import Exchange
from twisted_gateway.web.intake import MAX_IDLE_BODY_BYTES, BodyRule, HeldBytes
from twisted_gateway.web.problems import HELD_RETRY_AFTER_SECONDS
from twisted_gateway.web.request import GatewayRequest
from twisted_gateway.web.target import routed_path

IDLE_SECONDS = 75.0
"""How long an idle keep-alive connection is kept; above nginx's own 60 s, so that nginx closes
first and never sends a request into a connection that is being closed here."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a configuration allows a request while its model is not known.

    Attributes:
        max_body_bytes: the largest body that any model takes.
        body_seconds: the longest time that any model gives a whole body.
        cors: the cross-origin policy.
        tokens_everywhere: whether every model takes a token, so that one can be asked for before
            the body says which model it is.
    """

    max_body_bytes: int
    body_seconds: float
    cors: Cors
    tokens_everywhere: bool = False

    @classmethod
    def of(cls, config: Config) -> Bounds:
        """Read them off a configuration."""
        models = config.models.values()
        return cls(
            max((model.max_body_bytes for model in models), default=config.max_body_bytes),
            max((model.timeouts.body_seconds for model in models), default=60.0),
            Cors(config.cors_origins),
            bool(models) and all(model.require_auth for model in models),
        )

    @property
    def body_rule(self) -> BodyRule:
        """What holds for the body of a request to a model."""
        return BodyRule(self.max_body_bytes, from_head=self.tokens_everywhere)


class Connections:
    """How many clients are connected, over all listeners of the process.

    Attributes:
        now: connections open.
        limit: the bound, `maxConnections`.
    """

    def __init__(self, limit: int) -> None:
        """Start with none."""
        self.now = 0
        self.limit = limit


def _none_wanted(request: GatewayRequest) -> None:
    """Nothing here wants a body."""


class GatewaySite(Site):
    """A site whose every bound is explicit.

    Args:
        resource: the root of the resource tree.
        reactor: for timers.
        bounds: says what the configuration in force allows.
        held: bytes of request bodies held by the process.
        connections: connections of the process.
        open_exchange: makes the exchange of a request whose head has been read.
        turned_away: told of each connection past the bound.
        body_rule: says what holds for the body of a request; None where a body means nothing, as
            by default.
    """

    protocol = cast(Any, GatewayChannel)
    requestFactory = GatewayRequest
    displayTracebacks = False
    retry_after_seconds = HELD_RETRY_AFTER_SECONDS
    noisy = False
    reactor: IReactorTime

    def __init__(
        self,
        resource: IResource,
        *,
        reactor: IReactorTime,
        bounds: Callable[[], Bounds],
        held: HeldBytes,
        connections: Connections,
        open_exchange: Callable[[GatewayRequest], Exchange],
        turned_away: Callable[[], None],
        body_rule: Callable[[GatewayRequest], BodyRule | None] = _none_wanted,
    ) -> None:
        """Take what the class documents."""
        super().__init__(resource, timeout=IDLE_SECONDS, reactor=reactor)
        self._bounds = bounds
        self.held = held
        self._connections = connections
        self.open_exchange = open_exchange
        self._turned_away = turned_away
        self._body_rule = body_rule
        self.closing = False
        self.repeats = Repeats(reactor)
        self._channels: set[GatewayChannel] = set()

    def startFactory(self) -> None:
        """No access-log file and no clock for one: the gateway logs by itself."""

    def stopFactory(self) -> None:
        """Nothing was started."""

    def log(self, request: object) -> None:
        """The gateway logs by itself, when an exchange ends."""

    def buildProtocol(self, addr: IAddress | None) -> Any:
        """A channel, or, past the bound, a protocol that says so and closes."""
        if self._connections.now >= self._connections.limit:
            self._turned_away()
            return _TooManyConnections(self._connections.limit)
        return super().buildProtocol(addr)

    def acceptableProtocols(self) -> list[bytes]:
        """HTTP/1.1 alone, whatever else is installed: the channel speaks nothing else."""
        return [b"http/1.1"]

    @property
    def open_connections(self) -> int:
        """How many clients are connected."""
        return len(self._channels)

    def connection_opened(self, channel: GatewayChannel) -> None:
        """A client has connected."""
        self._connections.now += 1
        self._channels.add(channel)

    def connection_closed(self, channel: GatewayChannel) -> None:
        """A channel has ended."""
        self._connections.now -= 1
        self._channels.discard(channel)

    def cut_connections(self) -> None:
        """Abort those with a request under way."""
        for channel in list(self._channels):
            if channel.requests:
                channel.abortConnection()

    def close_connections(self) -> None:
        """Close those that are idle, and each other one with the answer that is under way."""
        self.closing = True
        for channel in list(self._channels):
            channel.close_if_idle()

    @property
    def cors(self) -> Cors:
        """The cross-origin policy in force."""
        return self._bounds().cors

    @property
    def max_body_bytes(self) -> int:
        """See `Bounds`."""
        return self._bounds().max_body_bytes

    def body_rule(self, request: GatewayRequest) -> BodyRule:
        """What holds for this body, by the route that the request takes."""
        rule = self._body_rule(request)
        if rule is None:
            return BodyRule(min(MAX_IDLE_BODY_BYTES, self.max_body_bytes))
        return rule

    def getResourceFor(self, request: Any) -> IResource:
        """Find what serves a request, by the spelling of its path that its body was judged by.

        Twisted's own decoding joins a slash inside a segment to those between them.
        """
        request.postpath = routed_path(request.path)[1:].split(b"/")
        return cast(IResource, super().getResourceFor(request))

    @property
    def body_seconds(self) -> float:
        """See `Bounds`."""
        return self._bounds().body_seconds


class _TooManyConnections(protocol.Protocol):
    """Says 503 and closes; reads nothing."""

    def __init__(self, limit: int) -> None:
        self._limit = limit

    def connectionMade(self) -> None:
        problem = Problem(
            "too_many_connections",
            503,
            f"The gateway serves at most {self._limit} connections at once.",
            outcome=Outcome.REJECTED,
            members={"reason": "queue_full"},
        )
        body = problem.body("-")
        assert self.transport is not None
        self.transport.write(
            b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\n"
            b"Retry-After: 5\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
            % (len(body), body)
        )
        self.transport.loseConnection()
