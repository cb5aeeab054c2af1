"""The site: connections and requests with their bounds, and the Klein app that routes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

from klein import Klein
from twisted.internet import protocol
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress, IReactorTime
from twisted.python.failure import Failure
from twisted.web.resource import IResource
from twisted.web.server import Site
from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound
from zope.interface import implementer

from twisted_gateway.config.schema import Config
from twisted_gateway.core.errors import Problem
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.telemetry.log import RequestLogger
from twisted_gateway.telemetry.repeats import Repeats
from twisted_gateway.web.channel import GatewayChannel
from twisted_gateway.web.cors import Cors
from twisted_gateway.web.exchange import Exchange
from twisted_gateway.web.intake import MAX_IDLE_BODY_BYTES, BodyRule, HeldBytes
from twisted_gateway.web.legacy import Legacy
from twisted_gateway.web.models import Models
from twisted_gateway.web.operations import Operations
from twisted_gateway.web.problems import HELD_RETRY_AFTER_SECONDS, internal_error
from twisted_gateway.web.request import GatewayRequest
from twisted_gateway.web.services import Services, is_for_service
from twisted_gateway.web.target import has_controls, malformed_target
from twisted_gateway.web.token import TokenEndpoint
from twisted_gateway.web.webhooks import ROUTE as WEBHOOKS
from twisted_gateway.web.webhooks import Webhooks

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


def _no_service(request: GatewayRequest) -> None:
    """Nothing here is a request to a service."""


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
        service_body: says what holds for the body of a request to a service; None for another
            request. Default: there are no services.
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
        service_body: Callable[[GatewayRequest], BodyRule | None] = _no_service,
    ) -> None:
        """Take what the class documents."""
        super().__init__(resource, timeout=IDLE_SECONDS, reactor=reactor)
        self._bounds = bounds
        self.held = held
        self._connections = connections
        self.open_exchange = open_exchange
        self._turned_away = turned_away
        self._service_body = service_body
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
        """What holds for this body: the service's rule, else `Bounds` where it is for a model."""
        rule = self._service_body(request)
        if rule is not None:
            return rule
        if request.method != b"POST" or not request.path.startswith(b"/v1/"):
            return BodyRule(min(MAX_IDLE_BODY_BYTES, self.max_body_bytes))
        return BodyRule(self.max_body_bytes, from_head=self._bounds().tokens_everywhere)

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


@implementer(IResource)
class _First:
    """Sends a request to the first resource whose condition holds for it."""

    isLeaf = True

    def __init__(self, *choices: tuple[Callable[[GatewayRequest], bool], IResource]) -> None:
        self._choices = choices

    def render(self, request: GatewayRequest) -> Any:
        resource = next(resource for holds, resource in self._choices if holds(request))
        return resource.render(request)

    def getChildWithDefault(self, name: bytes, request: GatewayRequest) -> IResource:
        raise RuntimeError("a leaf has no children")

    def putChild(self, path: bytes, child: IResource) -> None:
        raise RuntimeError("a leaf has no children")


@implementer(IResource)
class _Pathless:
    """Serves every path alike; a router would find nothing where one has a line break in it."""

    isLeaf = True

    def __init__(self, resource: IResource) -> None:
        self._resource = resource

    def render(self, request: GatewayRequest) -> Any:
        request.postpath = []
        return self._resource.render(request)

    def getChildWithDefault(self, name: bytes, request: GatewayRequest) -> IResource:
        raise RuntimeError("a leaf has no children")

    def putChild(self, path: bytes, child: IResource) -> None:
        raise RuntimeError("a leaf has no children")


class Doors(Protocol):
    """The handlers beside models and operations (service_side.py).

    Attributes:
        services: serves requests with X-Service.
        tokens: passes token requests on.
        webhooks: takes events.
        legacy: serves legacy routes.
    """

    services: Services
    tokens: TokenEndpoint
    webhooks: Webhooks
    legacy: Legacy


class Root:
    """The routes of the gateway.

    `public` serves clients, `admin` the operations endpoints; where no `adminListen` is configured
    one app serves both.
    """

    _log = RequestLogger()

    def __init__(self, models: Models, operations: Operations, doors: Doors) -> None:
        """Take the handlers."""
        self._models = models
        self._doors = doors
        self._operations = operations

    def public(self, *, with_operations: bool) -> IResource:
        """The resource of the listeners that clients use."""
        app, doors = self._app(), self._doors
        app.route("/v1/models", methods=["GET"])(self._models.index)
        app.route("/v1/models/<path:model_id>", methods=["GET"])(self._models.show)
        app.route("/v1/services", methods=["GET"], endpoint="services")(doors.services.index)
        app.route("/v1/auth/token", methods=["POST"], endpoint="token")(doors.tokens.serve)
        app.route(WEBHOOKS, methods=["POST"], endpoint="webhooks")(doors.webhooks.serve)
        app.route("/v1/<path:rest>", methods=["POST"])(self._models.serve)
        if with_operations:
            self._add_operations(app)
        return _First(
            (is_for_service, self._whole(doors.services.serve)),
            (doors.legacy.takes, self._whole(doors.legacy.serve)),
            (lambda request: True, app.resource()),
        )

    def _whole(self, serve: Callable[[GatewayRequest], Deferred[None]]) -> IResource:
        """Make the resource of a handler that serves every path."""
        app = self._app()
        app.route("/")(lambda request: serve(request))
        return _Pathless(app.resource())

    def admin(self) -> IResource:
        """The resource of `adminListen`."""
        app = self._app()
        self._add_operations(app)
        return app.resource()

    def _add_operations(self, app: Klein) -> None:
        operations = self._operations
        for path, handler in operations.routes().items():
            # By default Klein tells routes apart by their handler's name.
            app.route(path, methods=["GET"], endpoint=path)(handler)

    def _app(self) -> Klein:
        app = Klein()
        # Paths are normalised before they come here; a redirect would lose a POST's body.
        app.url_map.strict_slashes = False
        app.url_map.merge_slashes = False
        app.handle_errors(HTTPException)(cast(Any, self._refuse))
        app.handle_errors(Problem)(lambda request, failure: request.answer_problem(failure.value))
        app.handle_errors(Exception)(cast(Any, self._fault))
        return app

    def _refuse(self, request: GatewayRequest, failure: Failure) -> None:
        """The router found nothing: 404, or 405 with what is allowed."""
        request.answer_problem(routing_problem(failure.value, request))

    def _fault(self, request: GatewayRequest, failure: Failure) -> Deferred[None] | None:
        self._log.failure("a request failed", failure=failure, about=request.exchange.about)
        problem = internal_error()
        if request.startedWriting:
            request.abort()
            request.exchange.end(problem.outcome)
            return request.closed() if not request.finished else None
        request.answer_problem(problem)
        return None


def routing_problem(refusal: object, request: GatewayRequest) -> Problem:
    """The router's refusal as a problem document."""
    path = request.path.decode("utf-8", "replace")
    if isinstance(refusal, MethodNotAllowed):
        allowed = sorted(refusal.valid_methods or ())
        if path == "/v1/models" or path.startswith("/v1/models/"):
            # The route of everything below /v1 takes POST; the list of models does not.
            allowed = ["GET", "HEAD"]
        return Problem(
            "method_not_allowed",
            405,
            f"{path} takes {', '.join(allowed)}, not {request.method.decode('ascii', 'replace')}.",
            outcome=Outcome.BAD_REQUEST,
            headers={"Allow": ", ".join(allowed)},
        )
    if not isinstance(refusal, NotFound):
        return internal_error()
    if has_controls(request.path):
        return malformed_target()
    return Problem(
        "not_found",
        404,
        f"This listener serves nothing at {path}.",
        outcome=Outcome.BAD_REQUEST,
    )
