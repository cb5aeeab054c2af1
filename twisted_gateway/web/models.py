"""The path of a request to a model: who asks, what for, wait for a place, relay the answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

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
from twisted_gateway.telemetry.log import work_for
from twisted_gateway.telemetry.repeats import Repeats
from twisted_gateway.web.call import Call, read_call
from twisted_gateway.web.exchange import Cut, Exchange
from twisted_gateway.web.fleet import Fleet
from twisted_gateway.web.meter import CallEvents, StreamMeter
from twisted_gateway.web.problems import draining, internal_error
from twisted_gateway.web.proxy import Proxy, ProxyClient
from twisted_gateway.web.reply import Reply
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
        exchange = request.exchange
        path = request.path.decode("utf-8", "replace")
        if path == "/v1/models" or path.startswith("/v1/models/"):
            raise MethodNotAllowed(["GET", "HEAD"])
        exchange.route = path if path in _ROUTES else "/v1/*"
        exchange.ends_itself = True
        exchange.work = Deferred.fromCoroutine(self._serve(request, exchange))
        return exchange.work

    async def _serve(self, request: GatewayRequest, exchange: Exchange) -> None:
        reply: Reply | None = None
        left: Callable[[], None] = _nothing
        work_for(exchange.about)
        try:
            tenant = self._who_asks(request)
            self._admit_newcomers()
            call = read_call(request, self._fleet.names)
            if call.model.require_auth:
                tenant = await self._check_token(request)
            left = self._entered(exchange, call)
            ticket = self._ticket(call, tenant)
            reply = self._reply(request, call, ticket)
            outcome = await self._carry(request, call, ticket, reply)
        except Problem as problem:
            outcome = _tell(request, reply, problem)
        except CancelledError:
            outcome = _tell(request, reply, exchange.interruption())
        except Exception:
            # A fault of ours: the client is told in whatever form is open, and the log knows.
            exchange.end(_tell(request, reply, internal_error()))
            raise
        finally:
            left()
            if reply is not None:
                reply.release()
        exchange.end(outcome)
        if not request.finished:
            # The connection was cut: returning now would have Klein finish the response.
            await request.closed()

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
                took=lambda seconds: self._events.upstream(
                    call.model.name, seconds, exchange.trace.exemplar
                ),
                repeats=self._repeats,
            )
            return await proxy.carry(place)

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
            prompt_tokens=estimate.prompt_tokens(
                call.body_bytes, self._fleet.max_model_len(call.model)
            ),
            max_tokens=call.max_tokens,
            body_bytes=call.body_bytes,
            tenant=tenant,
            blocks=self._blocks(call),
            wait_seconds=call.wait_seconds,
        )

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
        _answer_json(request, tree)

    def show(self, request: GatewayRequest, model_id: str) -> None:
        """`GET /v1/models/{id}`: one entry; ids may contain `/` and `:`.

        Raises:
            Problem: 404, there is no such model.
        """
        request.exchange.route = "/v1/models/{id}"
        if model_id not in self._fleet.names:
            raise Problem(
                "unknown_model",
                404,
                f"{model_id[:200]!r} is not served here; `valid_models` lists what is.",
                outcome=Outcome.BAD_REQUEST,
                members={"valid_models": sorted(self._fleet.names)},
                param="model",
            )
        _answer_json(request, _entry(model_id))


def _nothing() -> None:
    """Nothing was entered that could be left."""


def _tell(request: GatewayRequest, reply: Reply | None, why: Problem | Cut) -> Outcome:
    if reply is not None:
        reply.fail(why)
    elif isinstance(why, Problem):
        request.answer_problem(why)
    return why.outcome


def _entry(name: str) -> dict[str, object]:
    # OpenAI's clients want an integer; there is no meaningful date to a configured name.
    return {"id": name, "object": "model", "created": 0, "owned_by": "twisted-gateway"}


def _answer_json(request: GatewayRequest, tree: object) -> None:
    request.answer(200, b"application/json", json.dumps(tree).encode("ascii"))
