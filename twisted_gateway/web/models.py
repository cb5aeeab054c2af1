"""The path of a request to a model: who asks, what for, wait for a place, relay the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import unquote

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.web.http_headers import Headers
from werkzeug.exceptions import MethodNotAllowed

from twisted_gateway.auth.guard import Guard
from twisted_gateway.config.schema import Model
from twisted_gateway.core import estimate
from twisted_gateway.core.errors import Problem
from twisted_gateway.core.headers import pairs, request_headers
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.core.policy import Ordering
from twisted_gateway.core.prefix import block_hashes
from twisted_gateway.core.ticket import Ticket
from twisted_gateway.telemetry import conventions
from twisted_gateway.telemetry.repeats import Repeats
from twisted_gateway.web.call import Call, read_body, read_call
from twisted_gateway.web.exchange import Cut, Exchange
from twisted_gateway.web.fleet import Fleet
from twisted_gateway.web.json_answer import answer_json
from twisted_gateway.web.meter import CallEvents, StreamMeter
from twisted_gateway.web.problems import draining, internal_error
from twisted_gateway.web.proxy import Proxy
from twisted_gateway.web.proxy_client import ProxyClient
from twisted_gateway.web.reply import Reply
from twisted_gateway.web.serving import nothing_entered, serve
from twisted_gateway.web.target import routed_path
from twisted_gateway.web.tenancy import Tenancy

if TYPE_CHECKING:
    from twisted_gateway.web.request import GatewayRequest

_ROUTES = frozenset(
    f"/v1/{name}"
    for name in (
        *("chat/completions", "completions", "embeddings", "rerank", "score", "responses"),
        *("messages", "messages/count_tokens", "audio/transcriptions", "audio/translations"),
        *("audio/speech", "images/generations", "moderations", "tokenize", "detokenize"),
        *("classify", "pooling"),
    )
)


class Models:
    """Serves `POST /v1/*` and the list of models.

    Args:
        fleet: the engines and the configuration in force.
        client: makes the client of a model's engines; takes the model.
        clock: for timers.
        events: the metrics of streams.
        tenancy: names tenants.
        guard: judges the tokens of requests to models that require one.
        prefix_key: 16 random bytes, for the names of what prompts begin with.
    """

    def __init__(
        self,
        fleet: Fleet,
        client: Callable[[Model], ProxyClient],
        clock: IReactorTime,
        events: CallEvents,
        *,
        tenancy: Tenancy,
        guard: Guard,
        prefix_key: bytes,
    ) -> None:
        """Take what the class documents."""
        self._fleet = fleet
        self._client = client
        self._clock = clock
        self._events = events
        self._tenancy = tenancy
        self._guard = guard
        self._prefix_key = prefix_key
        self._repeats = Repeats(clock)

    def serve(self, request: GatewayRequest, rest: str = "") -> Deferred[None]:
        """Serve one request to a model, to its one outcome.

        Raises:
            MethodNotAllowed: the list of models is only to be read.

        Returns:
            Fires with None when the answer is written or the connection cut. Cancelling it (Klein
            does when the client leaves) gives up whatever the request waits for.
        """
        if is_list_of_models(request):
            raise MethodNotAllowed(["GET", "HEAD"])
        path = f"/v1/{rest}"
        route = path if path in _ROUTES else "/v1/*"
        return serve(request, route, self._serve, nothing_entered)

    async def _serve(self, request: GatewayRequest) -> Outcome:
        exchange = request.exchange
        call, tenant = await self._let_in(request)
        # From here on nothing is awaited until the request stands in line: what `call` says of the
        # model is what is in force.
        left = self._entered(exchange, call)
        reply: Reply | None = None
        try:
            ticket = self._ticket(call, tenant)
            reply = self._reply(request, call, ticket)
            return await self._carry(request, call, ticket, reply)
        except Exception as fault:
            if reply is None:
                raise
            # The reply alone knows what form is still open to tell the client in.
            why = _why(exchange, fault)
            reply.fail(why)
            exchange.end(why.outcome)
            if why is not fault and not isinstance(fault, CancelledError):
                raise
            return why.outcome
        finally:
            left()
            if reply is not None:
                reply.release()

    async def _carry(
        self, request: GatewayRequest, call: Call, ticket: Ticket | None, reply: Reply
    ) -> Outcome:
        exchange = request.exchange
        waiting = self._fleet.place(call.model, ticket, exchange)
        reply.comment = waiting.comment
        async with waiting as place:
            proxy = Proxy(
                self._client(call.model),
                self._clock,
                call,
                exchange,
                reply,
                lambda: self._head(request, call),
                StreamMeter(exchange, self._clock, self._events),
                release=request.content.release,
                begin=lambda upstream: self._fleet.tries.begin(
                    upstream,
                    prompt_tokens=self._prompt_tokens(call),
                    answer_tokens=0 if call.stream else call.max_tokens,
                ),
                answered=lambda status: self._events.answered(call.model.name, status),
                took=lambda seconds: self._events.upstream(
                    call.model.name, seconds, exchange.trace.exemplar
                ),
                repeats=self._repeats,
            )
            return await proxy.carry(place)

    async def _let_in(self, request: GatewayRequest) -> tuple[Call, str]:
        """Read a request, judge its token where its model takes one, and say who asks.

        Raises:
            Problem: it is not let in, or asks for nothing that there is.
        """
        tenant = self._who_asks(request)
        self._admit_newcomers()
        checked = request.upload is not None
        if checked:
            # Every model takes a token (`Bounds`): it is judged before the body is taken in.
            tenant = await self._check_token(request)
            await request.receive()
            self._admit_newcomers()
        posted, names = read_body(request), self._fleet.names
        call = read_call(request, posted, names)
        if call.model.require_auth and not checked:
            tenant = await self._check_token(request)
            self._admit_newcomers()
            if self._fleet.names is not names:
                # While the issuer's keys came a reload has moved the model, or taken it away.
                call = read_call(request, posted, self._fleet.names)
        return call, tenant

    def _who_asks(self, request: GatewayRequest) -> str:
        tenant = self._tenancy.tenant(request, self._fleet.config)
        request.exchange.tenant = self._tenancy.shown(tenant)
        return tenant

    async def _check_token(self, request: GatewayRequest) -> str:
        """Judge the token of a request, and say who asks now that its subject is known."""
        fields = request.requestHeaders.getRawHeaders(b"Authorization", [])
        request.exchange.subject = (await self._guard.principal(fields)).subject
        return self._who_asks(request)

    def _admit_newcomers(self) -> None:
        if self._fleet.draining:
            raise draining()

    def _entered(self, exchange: Exchange, call: Call) -> Callable[[], None]:
        exchange.stream = call.stream
        exchange.provider = conventions.provider(call.model.engine.value)
        exchange.trace.describe(
            route=exchange.route,
            model=call.model.name,
            provider=exchange.provider,
            stream=call.stream,
        )
        return self._events.entered(call.model.name)

    def _ticket(self, call: Call, tenant: str) -> Ticket | None:
        if not (call.gated and call.model.gated):
            return None
        return Ticket(
            model=call.model.name,
            policy=call.model.policy,
            priority=call.priority,
            stream=call.stream,
            n=call.n,
            prompt_tokens=self._prompt_tokens(call),
            max_tokens=call.max_tokens,
            body_bytes=call.body_bytes,
            tenant=tenant,
            blocks=self._blocks(call),
            wait_seconds=call.wait_seconds,
        )

    def _prompt_tokens(self, call: Call) -> int:
        return estimate.prompt_tokens(call.body_bytes, self._fleet.max_model_len(call.model))

    def _blocks(self, call: Call) -> tuple[int, ...]:
        if call.model.policy.ordering is not Ordering.COST:
            return ()
        # Of what the engine reads: a model's own name and an alias of it begin alike there.
        name = call.model.upstream_model or call.model.name
        return block_hashes(call.body.pieces, self._prefix_key, name)

    def _reply(self, request: GatewayRequest, call: Call, ticket: Ticket | None) -> Reply:
        if ticket is not None and call.wait_seconds is not None:
            wait_seconds = min(call.wait_seconds, int(call.model.policy.max_park_seconds))
            request.setHeader(b"Preference-Applied", b"wait=%d" % wait_seconds)

        def spent() -> None:
            if ticket is not None:
                ticket.head_sent = True

        return Reply(
            request,
            request.exchange,
            self._clock,
            keep_alive_seconds=call.model.policy.keep_alive_seconds if call.stream else None,
            stall_seconds=call.model.timeouts.client_stall_seconds,
            spent=spent,
        )

    def _head(self, request: GatewayRequest, call: Call) -> Headers:
        model = call.model
        out = Headers()
        for name, value in request_headers(
            pairs(request.requestHeaders.getAllRawHeaders()),
            peer=request.peer_host(),
            scheme="https" if request.isSecure() else "http",
            request_id=request.exchange.request_id,
            trusted=self._fleet.config.trusted_proxies,
            api_key=model.api_key.value if model.api_key is not None else None,
            token_checked=model.require_auth,
            stream=call.stream,
            body_decoded=call.decoded,
        ):
            out.addRawHeader(name, value)
        return out

    # The list of models

    def index(self, request: GatewayRequest) -> None:
        """`GET /v1/models`: the OpenAI list, aliases included."""
        request.exchange.route = "/v1/models"
        tree = {"object": "list", "data": [_entry(name) for name in sorted(self._fleet.names)]}
        answer_json(request, 200, tree)

    def show(self, request: GatewayRequest, model_id: str) -> None:
        """`GET /v1/models/{id}`: one entry; ids may contain `/` and `:`.

        Raises:
            Problem: 404, there is no such model.
        """
        request.exchange.route = "/v1/models/{id}"
        model_id = unquote(model_id)
        if model_id not in self._fleet.names:
            raise Problem(
                "unknown_model",
                404,
                f"{model_id[:200]!r} is not served here; `valid_models` lists what is.",
                outcome=Outcome.BAD_REQUEST,
                members={"valid_models": sorted(self._fleet.names)},
                param="model",
            )
        answer_json(request, 200, _entry(model_id))


def is_list_of_models(request: GatewayRequest) -> bool:
    """Whether a request's path is that of the list of models, or of an entry."""
    path = routed_path(request.path)
    return path == b"/v1/models" or path.startswith(b"/v1/models/")


def _why(exchange: Exchange, fault: Exception) -> Problem | Cut:
    """Say how a request ends whose serving has raised this."""
    if isinstance(fault, Problem):
        return fault
    return exchange.interruption() if isinstance(fault, CancelledError) else internal_error()


def _entry(name: str) -> dict[str, object]:
    # OpenAI's clients want an integer; there is no meaningful date to a configured name.
    return {"id": name, "object": "model", "created": 0, "owned_by": "twisted-gateway"}
