"""Legacy routes: path prefixes that are kept working, and tell whoever uses them that they go.

Where they lead to an upstream this is a plain proxy: requests and answers pass as they are, less
what concerns one connection, with back-pressure on the way back.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from email.utils import format_datetime
from urllib.parse import unquote_to_bytes

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from twisted_gateway.config.inbound import LegacyRoute
from twisted_gateway.config.schema import Config
from twisted_gateway.core.errors import Problem
from twisted_gateway.core.headers import pairs, request_headers, response_headers
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.core.references import Places
from twisted_gateway.services.adapter import Answer, Pairs, Passed
from twisted_gateway.services.http import chosen
from twisted_gateway.telemetry.inbound import InboundMetrics
from twisted_gateway.telemetry.log import RequestLogger
from twisted_gateway.telemetry.repeats import Repeats
from twisted_gateway.upstream.request_body import BytesProducer
from twisted_gateway.upstream.response import UpstreamResponse
from twisted_gateway.web.catalogue import Catalogue
from twisted_gateway.web.door import Door
from twisted_gateway.web.errands import Errands
from twisted_gateway.web.intake import BodyRule
from twisted_gateway.web.request import GatewayRequest
from twisted_gateway.web.service_answer import make_inert
from twisted_gateway.web.service_call import ServiceCall
from twisted_gateway.web.service_problems import wrong_method
from twisted_gateway.web.services import NO_BODY, NOTHING_TAKEN, Services, rule_of
from twisted_gateway.web.serving import Entered, serve
from twisted_gateway.web.target import has_controls, malformed_target, readings

WARNING_SECONDS = 3600.0
"""How often the log says that a route is still used."""

METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")
"""What an upstream is asked. TRACE would tell what the gateway has added."""

_SLASHES = re.compile(rb"/{2,}")
_OWN = frozenset({b"deprecation", b"sunset", b"x-request-id"})
_SAID_TO_MODELS = (b"Prefer", b"X-Priority")


class Legacy:
    """Serves the legacy routes in force.

    Args:
        door: lets requests in.
        catalogue: the adapters that routes lead to.
        services: asks those.
        errands: asks the upstreams that routes lead to.
        clock: for the log.
        metrics: counts who still uses a route.
        entered: counts requests under way.
    """

    _log = RequestLogger()

    def __init__(
        self,
        door: Door,
        catalogue: Catalogue,
        services: Services,
        errands: Errands,
        clock: IReactorTime,
        *,
        metrics: InboundMetrics,
        entered: Entered,
    ) -> None:
        """Take what the class documents; there is no route before `adopt`."""
        self._door = door
        self._catalogue = catalogue
        self._services = services
        self._errands = errands
        self._metrics = metrics
        self._entered = entered
        self._repeats = Repeats(clock, interval_seconds=WARNING_SECONDS)
        self._config = Config()
        self._routes: Sequence[LegacyRoute] = ()

    def adopt(self, config: Config) -> None:
        """Put the routes of `config` in force; requests under way keep theirs."""
        self._config = config
        # The longest first: it is the one that is meant.
        self._routes = sorted(config.routes, key=lambda route: -len(route.path))
        self._metrics.configure_routes(route.path for route in config.routes)

    def takes(self, request: GatewayRequest) -> bool:
        """Whether a request's path is one of a legacy route."""
        return self._find(request) is not None

    def body_rule(self, request: GatewayRequest) -> BodyRule:
        """Say what holds for the body of a request that a legacy route takes."""
        route = self._find(request)
        assert route is not None
        if route.adapter is None:
            return BodyRule(route.max_body_bytes, from_head=True)
        if request.method == b"OPTIONS":
            return NO_BODY
        try:
            return rule_of(self._catalogue.find(*_asked(request, route)))
        except Problem:
            return NOTHING_TAKEN

    def serve(self, request: GatewayRequest) -> Deferred[None]:
        """Serve one request; see `serving.serve`."""
        route = self._find(request)
        assert route is not None
        for name, value in _notice(route):
            request.setHeader(name, value)
        if route.adapter is not None:
            make_inert(request)
        return serve(request, route.path, lambda one: self._serve(one, route), self._entered)

    async def _serve(self, request: GatewayRequest, route: LegacyRoute) -> Outcome:
        if not self._is_plainly_of(request, route):
            raise malformed_target()
        if route.adapter is not None:
            if request.method == b"OPTIONS":
                return await self._services.tell_methods(request, *_asked(request, route)[:2])
            target = self._catalogue.find(*_asked(request, route))
            await self._door.admit(request, target, require_auth=route.require_auth)
            self._used(request, route)
            return await self._services.carry(request, target)
        method = request.method.decode("ascii", "replace")
        if method not in METHODS:
            raise wrong_method(route.path, method, METHODS)
        await self._door.admit(request, require_auth=route.require_auth)
        self._used(request, route)
        await request.receive()
        return await self._errands.answer(
            request, route, lambda call: self._ask(request, route, call)
        )

    def _find(self, request: GatewayRequest) -> LegacyRoute | None:
        """Find the route of a request.

        Its path counts as whoever gets it reads it, without escapes: no spelling of it falls to a
        shorter prefix, which may let in whom this one would not.
        """
        return self._route_of(unquote_to_bytes(request.path))

    def _route_of(self, path: bytes) -> LegacyRoute | None:
        for route in self._routes:
            prefix = route.path.encode("ascii")
            if path == prefix or path.startswith(prefix + b"/"):
                return route
        return None

    def _is_plainly_of(self, request: GatewayRequest, route: LegacyRoute) -> bool:
        """Whether a request's path is of `route` to everybody, whatever its spelling is to them.

        The prefix stands in it segment by segment, no slash escaped; and no server finds in it the
        path of another route, whose rules the request would pass by.
        """
        if has_controls(request.path):
            return False
        prefix = route.path.encode("ascii").split(b"/")
        segments = request.path.split(b"/")[: len(prefix)]
        return [unquote_to_bytes(one) for one in segments] == prefix and all(
            self._route_of(b"/" + b"/".join(one)) is route for one in readings(request.path)
        )

    def _used(self, request: GatewayRequest, route: LegacyRoute) -> None:
        tenant = request.exchange.tenant
        self._metrics.legacy_use(route.path, tenant)
        self._repeats.say(
            route.path,
            self._log.warn,
            "the legacy route {route} is still used, now by tenant {tenant}; {plan}",
            route=route.path,
            tenant=tenant or "-",
            plan=_plan(route),
        )

    async def _ask(self, request: GatewayRequest, route: LegacyRoute, call: ServiceCall) -> Answer:
        upstream = route.upstream
        assert upstream is not None
        headers = request_headers(
            pairs(request.requestHeaders.getAllRawHeaders()),
            peer=request.peer_host(),
            scheme="https" if request.isSecure() else "http",
            request_id=request.exchange.request_id,
            trusted=self._config.trusted_proxies,
            token_checked=route.require_auth,
        )
        # To the gateway they mean something where it admits requests to models, and nothing here.
        headers += chosen(request.requestHeaders, _SAID_TO_MODELS)
        content = request.content.whole()
        has_body = bool(content) or request.method in (b"POST", b"PUT", b"PATCH")
        call.begin()
        answer = await call.send(
            request.method.decode("ascii"),
            upstream + _upstream_target(request, route),
            headers,
            BytesProducer([content]) if has_body else None,
        )
        request.content.release()
        return Passed(answer, _answer_headers(answer, request, route))


def _asked(request: GatewayRequest, route: LegacyRoute) -> tuple[str | None, str | None, str]:
    """Say what a request asks of an adapter: whom, what, how."""
    resource = route.resource
    if resource is None:
        rest = unquote_to_bytes(request.path)[len(route.path) + 1 :]
        resource = rest.decode("utf-8", "replace")
    return route.adapter, resource, request.method.decode("ascii", "replace")


def _upstream_target(request: GatewayRequest, route: LegacyRoute) -> str:
    """Give path and query for the upstream: as they came, or the path without the prefix."""
    raw, mark, query = request.uri.partition(b"?")
    path = _SLASHES.sub(b"/", raw)
    if route.strip_prefix:
        segments = path.split(b"/")[route.path.count("/") + 1 :]
        path = b"/" + b"/".join(segments)
    return (path + mark + query).decode("ascii")


def _answer_headers(answer: UpstreamResponse, request: GatewayRequest, route: LegacyRoute) -> Pairs:
    places = Places(
        [route.upstream or ""],
        prefix=route.path if route.strip_prefix else "",
        # Legacy services share machines, with each other and with whoever logs their users in.
        any_port=False,
    )
    passed = response_headers(
        pairs(answer.headers.getAllRawHeaders()),
        request_id=request.exchange.request_id,
        places=places,
    )
    return [*(pair for pair in passed if pair[0].lower() not in _OWN), *_notice(route)]


def _notice(route: LegacyRoute) -> Pairs:
    """Tell that a route is deprecated, when it goes, and what takes its place.

    RFC 9745 (Deprecation), RFC 8594 (Sunset), RFC 5829 (successor-version).
    """
    found: Pairs = []
    if route.deprecation is not None:
        found.append((b"Deprecation", b"@%d" % route.deprecation.timestamp()))
    if route.sunset is not None:
        found.append((b"Sunset", format_datetime(route.sunset, usegmt=True).encode("ascii")))
    if route.successor is not None:
        link = f'<{route.successor}>; rel="successor-version"'
        found.append((b"Link", link.encode("ascii")))
    return found


def _plan(route: LegacyRoute) -> str:
    """Say of a route what its headers say, for the log."""
    parts = [
        route.deprecation and f"deprecated from {route.deprecation:%Y-%m-%d}",
        route.sunset and f"gone from {route.sunset:%Y-%m-%d}",
        route.successor and f"its successor is {route.successor}",
    ]
    return ", ".join(part for part in parts if part) or "nothing is planned"
