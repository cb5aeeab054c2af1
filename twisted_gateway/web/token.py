"""`POST /v1/auth/token`: a client's token request, passed to the issuer's token endpoint."""

from __future__ import annotations

from collections.abc import Iterable

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent

from twisted_gateway.auth.provider import ANSWER_SECONDS, MAX_TOKEN_ANSWER_BYTES
from twisted_gateway.config.schema import Auth
from twisted_gateway.core.errors import Problem
from twisted_gateway.core.headers import pairs
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.upstream.errors import UpstreamError
from twisted_gateway.upstream.whole import WholeAnswer, ask
from twisted_gateway.web.door import Door
from twisted_gateway.web.intake import BodyRule
from twisted_gateway.web.request import GatewayRequest
from twisted_gateway.web.service_answer import make_inert
from twisted_gateway.web.service_problems import failed
from twisted_gateway.web.serving import Entered, serve

MAX_REQUEST_BYTES = 65_536
"""The largest token request; one with a signed assertion has a few kilobytes."""

ROUTE = "/v1/auth/token"

_FORM = b"application/x-www-form-urlencoded"
_PASSED = (b"WWW-Authenticate", b"Retry-After")


class TokenEndpoint:
    """Passes OAuth 2.0 token requests (RFC 6749, section 3.2) on, and the answers back.

    Nothing of either is logged or kept. The issuer's errors pass as they are, for OAuth clients
    read them.

    Args:
        door: lets them in.
        agent: sends.
        clock: for the bound on the time.
        entered: counts requests under way.
    """

    def __init__(self, door: Door, agent: IAgent, clock: IReactorTime, entered: Entered) -> None:
        """Know no issuer yet."""
        self._door = door
        self._agent = agent
        self._clock = clock
        self._entered = entered
        self._url: str | None = None

    def adopt(self, auth: Auth | None) -> None:
        """Put `auth` in force."""
        self._url = None if auth is None else auth.token_url

    def body_rule(self, request: GatewayRequest) -> BodyRule:
        """Say what holds for the body of a token request."""
        return BodyRule(MAX_REQUEST_BYTES)

    def serve(self, request: GatewayRequest) -> Deferred[None]:
        """Pass one request on; see `serving.serve`.

        Cancelling it drops the issuer's connection.
        """
        make_inert(request)
        return serve(request, ROUTE, self._serve, self._entered)

    async def _serve(self, request: GatewayRequest) -> Outcome:
        await self._door.admit(request)
        return _answer(request, await self._ask(request))

    async def _ask(self, request: GatewayRequest) -> WholeAnswer:
        """Ask the issuer.

        Raises:
            Problem: there is none, the request is none for it, or it did not answer.
        """
        url = self._url
        if url is None:
            raise Problem(
                "not_found",
                404,
                "This gateway knows no token endpoint (auth.tokenUrl).",
                outcome=Outcome.BAD_REQUEST,
            )
        body = request.content.whole()
        fields = request.requestHeaders
        content_type = fields.getRawHeaders(b"Content-Type", [b""])[0]
        if content_type.partition(b";")[0].strip().lower() != _FORM:
            raise Problem(
                "token_request",
                415,
                f"A token request is a form: its Content-Type is {_FORM.decode('ascii')}.",
                outcome=Outcome.BAD_REQUEST,
            )
        headers = [(b"Content-Type", _FORM), (b"Accept", b"application/json")]
        # The client's own credentials, by which the issuer knows it; a bearer token is none.
        headers += [
            (b"Authorization", value)
            for value in fields.getRawHeaders(b"Authorization", [])[:1]
            if value[:6].lower() == b"basic "
        ]
        headers.append((b"X-Request-ID", request.exchange.request_id.encode("ascii")))
        return await self._traced(request, url, headers, body)

    async def _traced(
        self,
        request: GatewayRequest,
        url: str,
        headers: Iterable[tuple[bytes, bytes]],
        body: bytes,
    ) -> WholeAnswer:
        """Send it, as a client span of the request's trace.

        Raises:
            Problem: the issuer did not answer.
        """
        span = request.exchange.trace.upstream(url)
        fields = Headers()
        span.inject(fields)
        outcome: Outcome | None = None
        try:
            answer = await ask(
                self._agent,
                self._clock,
                b"POST",
                url,
                [*headers, *pairs(fields.getAllRawHeaders())],
                body,
                limit_bytes=MAX_TOKEN_ANSWER_BYTES,
                seconds=ANSWER_SECONDS,
            )
            span.status(answer.code)
            return answer
        except UpstreamError as fault:
            span.failed(type(fault).__name__)
            problem = failed("The issuer's token endpoint", fault)
            outcome = problem.outcome
            raise problem from fault
        finally:
            span.end(outcome)


def _answer(request: GatewayRequest, answer: WholeAnswer) -> Outcome:
    headers = [
        (name, value) for name in _PASSED for value in answer.headers.getRawHeaders(name, [])[:1]
    ]
    # Whatever the issuer says: RFC 6749, section 5.1.
    headers.append((b"Cache-Control", b"no-store"))
    kind = answer.headers.getRawHeaders(b"Content-Type", [b"application/octet-stream"])[0]
    outcome = Outcome.OK if answer.code < 400 else Outcome.UPSTREAM_STATUS
    request.answer(answer.code, kind, answer.body, headers, outcome)
    return outcome
