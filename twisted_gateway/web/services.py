"""The path of a request to a service: what for, who asks, ask it, answer.

A request with `X-Service` comes here on whatever path, as soon as its head is read: a client that
may not is told before its body is taken in, be that a gigabyte.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from twisted.internet.defer import Deferred

from twisted_gateway.core.errors import Problem
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.services.adapter import Answer, BodyUse, Document, Passed, ServiceRequest
from twisted_gateway.upstream.request_body import BytesProducer
from twisted_gateway.web import service_problems as problems
from twisted_gateway.web.catalogue import Catalogue, Target
from twisted_gateway.web.door import Door
from twisted_gateway.web.errands import Errands
from twisted_gateway.web.intake import MAX_IDLE_BODY_BYTES, BodyRule
from twisted_gateway.web.parameters import read_fields, read_parameters
from twisted_gateway.web.request import GatewayRequest
from twisted_gateway.web.service_answer import make_inert, send_document
from twisted_gateway.web.service_call import ServiceCall
from twisted_gateway.web.service_list import described
from twisted_gateway.web.serving import Entered, serve

NOTHING_TAKEN = BodyRule(sys.maxsize, from_head=True)
"""For a request that is refused at its head: no bound of its body is why."""

NO_BODY = BodyRule(MAX_IDLE_BODY_BYTES, from_head=True)
"""For a request whose body means nothing."""

UNKNOWN_ROUTE = "services"
"""What metrics and log call a request that names no service, or no resource, that there is."""


class Services:
    """Serves requests with `X-Service`, and `GET /v1/services`.

    Args:
        door: lets them in.
        catalogue: the adapters in force.
        errands: has their operations carried out.
        entered: counts requests under way.
    """

    def __init__(
        self, door: Door, catalogue: Catalogue, errands: Errands, entered: Entered
    ) -> None:
        """Take what the class documents."""
        self._door = door
        self._catalogue = catalogue
        self._errands = errands
        self._entered = entered

    def body_rule(self, request: GatewayRequest) -> BodyRule:
        """Say what holds for the body of a request that asks for a service."""
        if request.method == b"OPTIONS":
            return NO_BODY
        try:
            return rule_of(self._find(request))
        except Problem:
            return NOTHING_TAKEN

    def serve(self, request: GatewayRequest) -> Deferred[None]:
        """Serve one request, to its one outcome; see `serving.serve`."""
        # The path says nothing of what is asked for: no cache may take the answer for the path's.
        request.responseHeaders.addRawHeader(b"Vary", b"X-Service, X-Resource, Authorization")
        make_inert(request)
        return serve(request, UNKNOWN_ROUTE, self._serve, self._entered)

    async def _serve(self, request: GatewayRequest) -> Outcome:
        if request.method == b"OPTIONS":
            service, resource = _only(request, b"X-Service"), _only(request, b"X-Resource")
            return await self.tell_methods(request, service, resource)
        target = self._find(request)
        request.exchange.route = target.route
        await self._door.admit(request, target)
        return await self.carry(request, target)

    def _find(self, request: GatewayRequest) -> Target:
        """Say what is asked for.

        Raises:
            Problem: 404, 405.
        """
        return self._catalogue.find(
            _only(request, b"X-Service"),
            _only(request, b"X-Resource"),
            request.method.decode("ascii", "replace"),
        )

    async def carry(self, request: GatewayRequest, target: Target) -> Outcome:
        """Have the operation of a request that was let in carried out, and answer.

        Its body is taken in first, unless the operation takes it as it comes.

        Raises:
            Problem: what the client is to be told.
        """
        if target.operation.body is not BodyUse.STREAMED:
            await request.receive()
        parameters = _parameters(request, target)
        return await self._errands.answer(
            request, target.adapter, lambda call: _ask(request, target, parameters, call)
        )

    async def tell_methods(
        self, request: GatewayRequest, service: str | None, resource: str | None
    ) -> Outcome:
        """Answer OPTIONS (RFC 9110, section 9.3.7): to anybody, as 405 would tell it too.

        Raises:
            Problem: 404, there is no such resource.
        """
        request.setHeader(b"Allow", ", ".join(self._catalogue.methods(service, resource)))
        await request.receive()
        send_document(request, Document(None, 204))
        return Outcome.OK

    # The list of services

    def index(self, request: GatewayRequest) -> Deferred[None]:
        """`GET /v1/services`: what is configured, and what of it the caller may use.

        It takes no token; one that is there and is not accepted is 401. See `serving.serve`.
        """
        return serve(request, "/v1/services", self._index, self._entered)

    async def _index(self, request: GatewayRequest) -> Outcome:
        request.responseHeaders.addRawHeader(b"Vary", b"Authorization")
        principal = await self._door.admit_anybody(request)
        services = {
            name: described(configured, self._door.guard, principal)
            for name, configured in self._catalogue.services.items()
        }
        send_document(request, Document({"services": services}))
        return Outcome.OK


def _parameters(request: GatewayRequest, target: Target) -> Mapping[str, str]:
    """Read the parameters of a request.

    Raises:
        Problem: 400, 415.
    """
    query = request.uri.partition(b"?")[2]
    operation = target.operation
    fields = None
    if operation.body is BodyUse.FIELDS:
        fields = read_fields(request.requestHeaders, request.content.whole())
    return read_parameters(query, operation.parameters, fields)


async def _ask(
    request: GatewayRequest, target: Target, parameters: Mapping[str, str], call: ServiceCall
) -> Answer:
    body: Any = request.upload or BytesProducer([request.content.whole()])
    call.begin()
    answer = await target.operation.run(
        ServiceRequest(
            method=target.method,
            parameters=parameters,
            headers=request.requestHeaders,
            body=body,
            upstream=call,
        )
    )
    request.content.release()
    if request.upload is not None and not request.upload.ended:
        # What it has not read it cannot have stored.
        if isinstance(answer, Passed):
            answer.answer.abort()
        raise problems.answered_early(target.adapter.name)
    return answer


def is_for_service(request: GatewayRequest) -> bool:
    """Whether a request asks for a service rather than for a path."""
    return bool(request.requestHeaders.hasHeader(b"X-Service"))


def rule_of(target: Target) -> BodyRule:
    """Say what holds for the body of a request for this operation."""
    use, limit_bytes = target.operation.body, target.adapter.max_body_bytes
    if use is BodyUse.NONE:
        limit_bytes = min(limit_bytes, MAX_IDLE_BODY_BYTES)
    return BodyRule(limit_bytes, from_head=True)


def _only(request: GatewayRequest, name: bytes) -> str | None:
    """Give the value of a field that stands once; None where it does not."""
    values = request.requestHeaders.getRawHeaders(name, [])
    return values[0].decode("latin-1").strip() if len(values) == 1 else None
