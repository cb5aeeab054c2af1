"""`POST /v1/auth/token`: a client's token request, passed to the issuer's token endpoint."""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.web.iweb import IAgent

from twisted_gateway.auth.provider import ANSWER_SECONDS, MAX_TOKEN_ANSWER_BYTES
from twisted_gateway.config.schema import Auth
from twisted_gateway.core.errors import Problem
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.telemetry.log import work_for
from twisted_gateway.upstream.errors import UpstreamError
from twisted_gateway.upstream.whole import WholeAnswer, ask
from twisted_gateway.web.exchange import Cut
from twisted_gateway.web.problems import body_too_large
from twisted_gateway.web.request import GatewayRequest
from twisted_gateway.web.service_problems import failed

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
        agent: sends.
        clock: for the bound on the time.
    """

    def __init__(self, agent: IAgent, clock: IReactorTime) -> None:
        """Know no issuer yet."""
        self._agent = agent
        self._clock = clock
        self._url: str | None = None

    def adopt(self, auth: Auth | None) -> None:
        """Put `auth` in force."""
        self._url = None if auth is None else auth.token_url

    def serve(self, request: GatewayRequest) -> Deferred[None]:
        """Pass one request on.

        Returns:
            Fires with None when it is answered. Cancelling it drops the issuer's connection.
        """
        exchange = request.exchange
        exchange.route = ROUTE
        exchange.ends_itself = True
        exchange.work = Deferred.fromCoroutine(self._serve(request))
        return exchange.work

    async def _serve(self, request: GatewayRequest) -> None:
        work_for(request.exchange.about)
        try:
            answer = await self._ask(request)
        except Problem as problem:
            request.answer_problem(problem)
        except CancelledError:
            why = request.exchange.interruption()
            if isinstance(why, Cut):
                request.abort()
                request.exchange.end(why.outcome)
            else:
                request.answer_problem(why)
        else:
            _answer(request, answer)
        if not request.finished:
            await request.closed()

    async def _ask(self, request: GatewayRequest) -> WholeAnswer:
        """Ask the issuer.

        Raises:
            Problem: there is none, the request is none for it, or it did not answer.
        """
        if self._url is None:
            raise Problem(
                "not_found",
                404,
                "This gateway knows no token endpoint (auth.tokenUrl).",
                outcome=Outcome.BAD_REQUEST,
            )
        body = request.content.whole()
        if len(body) > MAX_REQUEST_BYTES:
            raise body_too_large(MAX_REQUEST_BYTES, f"this one has {len(body)}")
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
        try:
            return await ask(
                self._agent,
                self._clock,
                b"POST",
                self._url,
                headers,
                body,
                limit_bytes=MAX_TOKEN_ANSWER_BYTES,
                seconds=ANSWER_SECONDS,
            )
        except UpstreamError as fault:
            raise failed("The issuer's token endpoint", fault) from fault


def _answer(request: GatewayRequest, answer: WholeAnswer) -> None:
    headers = [
        (name, value) for name in _PASSED for value in answer.headers.getRawHeaders(name, [])[:1]
    ]
    # Whatever the issuer says: RFC 6749, section 5.1.
    headers.append((b"Cache-Control", b"no-store"))
    kind = answer.headers.getRawHeaders(b"Content-Type", [b"application/octet-stream"])[0]
    outcome = Outcome.OK if answer.code < 400 else Outcome.UPSTREAM_STATUS
    request.answer(answer.code, kind, answer.body, headers, outcome)
