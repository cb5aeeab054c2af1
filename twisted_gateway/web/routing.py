"""Which route a request takes: asked at its head, for its body's bounds, and when it is served.

Both answers are the same one, whatever the spelling of the path (`target.routed_path`): nothing is
served under the bounds of something else, but where a reload came between them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, cast

from klein import Klein
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.web.resource import IResource
from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound
from zope.interface import implementer

from twisted_gateway.core.errors import Problem
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.telemetry.log import RequestLogger
from twisted_gateway.web.intake import BodyRule
from twisted_gateway.web.legacy import Legacy
from twisted_gateway.web.models import Models, is_list_of_models
from twisted_gateway.web.operations import Operations
from twisted_gateway.web.problems import internal_error
from twisted_gateway.web.request import GatewayRequest
from twisted_gateway.web.services import Services, is_for_service
from twisted_gateway.web.site import Bounds
from twisted_gateway.web.target import has_controls, malformed_target, routed_path
from twisted_gateway.web.token import ROUTE as TOKENS
from twisted_gateway.web.token import TokenEndpoint
from twisted_gateway.web.webhooks import ROUTE as WEBHOOKS
from twisted_gateway.web.webhooks import Webhooks

Handler = Callable[..., Deferred[None] | None]

Rule = Callable[[GatewayRequest], BodyRule | None]
"""Says what holds for the body of a request; None where a body means nothing."""


class Front(NamedTuple):
    """What a listener serves.

    Attributes:
        resource: answers requests.
        body_rule: says of each what holds for its body there.
    """

    resource: IResource
    body_rule: Rule


class Routes:
    """A Klein app, each of whose routes also says what holds for the bodies of its requests.

    Klein itself is asked only once a request is served, which is after its body has come.

    Args:
        app: gets the routes.
    """

    def __init__(self, app: Klein) -> None:
        """Start with none."""
        self._app = app
        self._rules: dict[bytes, Rule] = {}
        self._below: list[tuple[bytes, Rule]] = []

    def get(self, path: str, handler: Handler) -> None:
        """Serve GET and HEAD of a path, a pattern of werkzeug's; bodies mean nothing there."""
        # By default Klein tells routes apart by their handler's name.
        self._app.route(path, methods=["GET"], endpoint=f"GET {path}")(cast(Any, handler))

    def post(self, path: str, handler: Handler, rule: Rule) -> None:
        """Serve POST of a path, or of all below one where it ends in `<path:rest>`."""
        self._app.route(path, methods=["POST"], endpoint=f"POST {path}")(cast(Any, handler))
        above, pattern, _ = path.partition("<path:")
        if pattern:
            self._below.append((above.encode("ascii"), rule))
        else:
            self._rules[path.encode("ascii")] = rule

    def front(self) -> Front:
        """Give what has been put together."""
        return Front(self._app.resource(), self._body_rule)

    def _body_rule(self, request: GatewayRequest) -> BodyRule | None:
        if request.method != b"POST":
            return None
        path = routed_path(request.path)
        rule = self._rules.get(path)
        if rule is None:
            # As with Klein, a path of its own comes before all that is below another.
            rule = next((one for above, one in self._below if path.startswith(above)), None)
        return None if rule is None else rule(request)


Choice = tuple[Callable[[GatewayRequest], bool], Front]


@implementer(IResource)
class _First:
    """Sends a request to the first front whose condition holds for it."""

    isLeaf = True

    def __init__(self, *choices: Choice) -> None:
        self._choices = choices

    def render(self, request: GatewayRequest) -> Any:
        return self._find(request).resource.render(request)

    def body_rule(self, request: GatewayRequest) -> BodyRule | None:
        return self._find(request).body_rule(request)

    def _find(self, request: GatewayRequest) -> Front:
        return next(front for holds, front in self._choices if holds(request))

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

    Args:
        models: serves requests to models.
        operations: serves what operators ask.
        doors: serve the rest.
        bounds: says what the configuration in force allows a request to a model.
    """

    _log = RequestLogger()

    def __init__(
        self, models: Models, operations: Operations, doors: Doors, bounds: Callable[[], Bounds]
    ) -> None:
        """Take what the class documents."""
        self._models = models
        self._bounds = bounds
        self._doors = doors
        self._operations = operations

    def public(self, *, with_operations: bool) -> Front:
        """What the listeners serve that clients use."""
        models, doors = self._models, self._doors
        routes = Routes(self._app())
        routes.get("/v1/models", models.index)
        routes.get("/v1/models/<path:model_id>", models.show)
        routes.get("/v1/services", doors.services.index)
        routes.post(TOKENS, doors.tokens.serve, doors.tokens.body_rule)
        routes.post(WEBHOOKS, doors.webhooks.serve, doors.webhooks.body_rule)
        routes.post("/v1/<path:rest>", models.serve, self._model_rule)
        if with_operations:
            self._add_operations(routes)
        first = _First(
            (is_for_service, self._whole(doors.services.serve, doors.services.body_rule)),
            (doors.legacy.takes, self._whole(doors.legacy.serve, doors.legacy.body_rule)),
            (lambda request: True, routes.front()),
        )
        return Front(first, first.body_rule)

    def _model_rule(self, request: GatewayRequest) -> BodyRule | None:
        # Below /v1 all is posted to engines but the list of models, which is only to be read.
        return None if is_list_of_models(request) else self._bounds().body_rule

    def _whole(self, serve: Callable[[GatewayRequest], Deferred[None]], rule: Rule) -> Front:
        """Make the front of a handler that serves every path."""
        app = self._app()
        app.route("/")(lambda request: serve(request))
        return Front(_Pathless(app.resource()), rule)

    def admin(self) -> Front:
        """What `adminListen` serves."""
        routes = Routes(self._app())
        self._add_operations(routes)
        return routes.front()

    def _add_operations(self, routes: Routes) -> None:
        for path, handler in self._operations.routes().items():
            routes.get(path, handler)

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
        if is_list_of_models(request):
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
