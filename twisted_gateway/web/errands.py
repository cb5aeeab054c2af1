"""Errands: services are asked something, and what goes wrong is a problem and a line in the log.

Whoever has one, a request with X-Service, a legacy route or a webhook, has it run here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime

from twisted_gateway.core.errors import Problem
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.services.adapter import Answer, Refused
from twisted_gateway.telemetry.log import RequestLogger
from twisted_gateway.telemetry.repeats import Repeats
from twisted_gateway.upstream.errors import UpstreamError
from twisted_gateway.web import service_problems as problems
from twisted_gateway.web.exchange import Exchange
from twisted_gateway.web.intake import HeldBytes
from twisted_gateway.web.request import GatewayRequest
from twisted_gateway.web.service_answer import send_answer
from twisted_gateway.web.service_call import Agents, Called, ServiceCall
from twisted_gateway.web.upload import Upload

Errand = Coroutine[Deferred[Any], Any, Answer]
Ask = Callable[[ServiceCall], Errand]


class ServiceEvents(Protocol):
    """What is counted of requests to services."""

    def entered(self, model: str) -> Callable[[], None]:
        """A request is under way; call what comes back, once, when it has ended."""

    def upstream(
        self, model: str, seconds: float, exemplar: Mapping[str, str] | None = None
    ) -> None:
        """A service has taken `seconds` from a request to its answer's end."""


_CODE = re.compile(r"(?:[A-Z][a-z0-9]+){2,8}(?=: |$)")
"""An error code as those of S3 and SQS (`SignatureDoesNotMatch`), before words or alone."""


class Errands:
    """Runs errands.

    Args:
        agents: reach the services.
        clock: for timers.
        events: the metrics.
        held: bytes held by the process.
    """

    _log = RequestLogger()

    def __init__(
        self, agents: Agents, clock: IReactorTime, events: ServiceEvents, held: HeldBytes
    ) -> None:
        """Take what the class documents."""
        self._agents = agents
        self._clock = clock
        self._events = events
        self._held = held
        self._repeats = Repeats(clock)

    async def answer(self, request: GatewayRequest, called: Called, ask: Ask) -> Outcome:
        """Have an errand run for a request, and send its client what comes of it.

        Args:
            request: the request.
            called: whose service it is.
            ask: does it; given the way to the service.

        Returns:
            How the request ends. Cancelling it cuts what is open.

        Raises:
            Problem: what the client is to be told.
        """
        exchange = request.exchange
        call = self.call(exchange, called, exchange.interrupt, request.upload)
        # Unless something is seen to have come of it, it is a fault of ours.
        outcome = Outcome.INTERNAL_ERROR
        try:
            # Nothing here keeps the answer while it is sent: it may be large.
            outcome = await send_answer(request, await self.run(call, ask(call)), call, self._clock)
            return outcome
        except Problem as problem:
            outcome = problem.outcome
            raise
        except CancelledError:
            outcome = exchange.interruption().outcome
            raise
        finally:
            call.end(outcome)

    def call(
        self,
        exchange: Exchange,
        called: Called,
        give_up: Callable[[Problem], object],
        upload: Upload | None = None,
    ) -> ServiceCall:
        """Make a request's way to a service; the caller ends it.

        Args:
            exchange: the book.
            called: whose service it is.
            give_up: called when nobody was heard for too long.
            upload: the request's body, where it is passed on.
        """
        return ServiceCall(
            self._agents,
            self._clock,
            called,
            exchange,
            upload,
            self._held,
            took=lambda seconds: self._events.upstream("", seconds, exchange.trace.exemplar),
            give_up=give_up,
        )

    async def run(self, call: ServiceCall, errand: Errand) -> Answer:
        """Have an errand run. Cancelling gives up what it waits for.

        What it has read counts no more when it has ended: what is left of that is its answer.

        Args:
            call: its way to the service.
            errand: what is done there.

        Raises:
            Problem: the service's own refusal; 502, 504; 503, what was read does not go into
                `maxHeldBytes`.
        """
        service = call.called.name
        try:
            return await errand
        except Refused as refusal:
            self._complain_of_refusal(service, refusal)
            raise problems.ServiceRefusal(service, refusal, call.hosts) from refusal
        except UpstreamError as fault:
            self._complain(service, type(fault).__name__, fault.reason)
            raise problems.failed(f"The service {service}", fault) from fault
        finally:
            call.let_go()

    def _complain_of_refusal(self, service: str, refusal: Refused) -> None:
        """Say what concerns the operator: the gateway's own key or token, and failures."""
        if refusal.status in (401, 403) or refusal.status >= 500:
            # Its words may quote what the client sent, so they are for the client alone.
            code = _CODE.match(refusal.message)
            said = f": {code[0]}" if code else ""
            self._complain(service, str(refusal.status), f"it answered {refusal.status}{said}")

    def _complain(self, service: str, kind: str, why: str) -> None:
        self._repeats.say(
            f"{service} {kind}", self._log.warn, "{service}: {why}", service=service, why=why
        )
