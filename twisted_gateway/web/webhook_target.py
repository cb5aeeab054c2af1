"""What a webhook's event leads to: an operation of an adapter, its parameters from the event."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.web.http_headers import Headers

from twisted_gateway.config.inbound import WebhookTarget
from twisted_gateway.core.errors import Problem
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.core.template import Unfilled, render
from twisted_gateway.services.adapter import (
    Answer,
    BodyUse,
    Document,
    Operation,
    Passed,
    ServiceRequest,
)
from twisted_gateway.telemetry.log import RequestLogger
from twisted_gateway.telemetry.repeats import Repeats
from twisted_gateway.upstream.request_body import BytesProducer
from twisted_gateway.web.catalogue import Catalogue, Target
from twisted_gateway.web.errands import Errands
from twisted_gateway.web.exchange import Exchange
from twisted_gateway.web.parameters import check_parameters
from twisted_gateway.web.service_call import ServiceCall
from twisted_gateway.web.service_problems import ServiceRefusal, unfinished

MAX_ANSWER_BYTES = 1_048_576
"""How much of a service's answer is read; nobody is shown it."""


def identities(targets: Iterable[WebhookTarget]) -> dict[str, WebhookTarget]:
    """Give targets by what they are, wherever in the configuration they stand.

    One that is changed becomes another; of several that are the same each is one.
    """
    found: dict[str, WebhookTarget] = {}
    seen: Counter[str] = Counter()
    for target in targets:
        parameters = {name: template.text for name, template in target.parameters.items()}
        what = [target.event, target.service, target.resource, parameters]
        digest = hashlib.sha256(json.dumps(what, sort_keys=True).encode("ascii")).hexdigest()
        found[f"{digest} {seen[digest]}"] = target
        seen[digest] += 1
    return found


class TargetRuns:
    """Runs the operations that events lead to.

    They bear no token: whoever has signed the event, and the configuration, stand for it.

    Args:
        catalogue: the adapters in force.
        errands: asks them.
        clock: for the bound on the time, and the log.
    """

    _log = RequestLogger()

    def __init__(self, catalogue: Catalogue, errands: Errands, clock: IReactorTime) -> None:
        """Take what the class documents."""
        self._catalogue = catalogue
        self._errands = errands
        self._clock = clock
        self._repeats = Repeats(clock)

    def complaint(self, target: WebhookTarget) -> str:
        """Say what is wrong with a target whatever the event; "" for nothing."""
        try:
            operation = self._catalogue.find_any(target.service, target.resource).operation
            _refuse_streams(operation)
        except Problem as problem:
            return problem.detail
        if operation.body is BodyUse.HELD and not operation.parameters:
            return ""
        names = {one.name for one in operation.parameters}
        needed = {one.name for one in operation.parameters if one.required}
        unknown, missing = target.parameters.keys() - names, needed - target.parameters.keys()
        return "; ".join(
            f"{what}: {', '.join(sorted(wrong))}"
            for what, wrong in (("no such parameters", unknown), ("not given", missing))
            if wrong
        )

    async def run(self, exchange: Exchange, target: WebhookTarget, event: Any) -> Outcome:
        """Do what an event leads to, within the adapter's time bound.

        Cancelling it gives it up.

        Returns:
            How it ended; what was wrong is in the log.
        """
        try:
            found = self._catalogue.find_any(target.service, target.resource)
            _refuse_streams(found.operation)
            asked = _filled(target, event)
            return await self._ask(exchange, found, asked)
        except Problem as problem:
            self._complain(target, problem)
            return problem.outcome

    async def _ask(self, exchange: Exchange, target: Target, given: Mapping[str, str]) -> Outcome:
        """Ask the adapter.

        Raises:
            Problem: it could not be asked, refused, failed, was silent for too long, or had not
                ended by then: whoever sends the event again waits for it.
        """
        given_up: Problem | None = None

        def give_up(why: Problem) -> None:
            nonlocal given_up
            given_up = why
            work.cancel()

        call = self._errands.call(exchange, target.adapter, give_up)
        work = Deferred.fromCoroutine(
            self._errands.run(call, _answer(target.operation, target.method, given, call))
        )
        adapter = target.adapter
        # Unless something is seen to have come of it, it is a fault of ours.
        outcome = Outcome.INTERNAL_ERROR
        bound = self._clock.callLater(
            adapter.timeout_seconds, give_up, unfinished(adapter.name, adapter.timeout_seconds)
        )
        try:
            await work
            outcome = Outcome.OK
            return outcome
        except CancelledError:
            if given_up is None:
                # A drain has ended.
                outcome = Outcome.REJECTED
                raise
            outcome = given_up.outcome
            raise given_up from None
        except Problem as problem:
            outcome = problem.outcome
            raise
        finally:
            if bound.active():
                bound.cancel()
            call.end(outcome)

    def _complain(self, target: WebhookTarget, problem: Problem) -> None:
        self._repeats.say(
            f"{target.service}/{target.resource} {problem.kind}",
            self._log.warn,
            "the webhook's target {service}/{resource}: {why}",
            service=target.service,
            resource=target.resource,
            why=problem.wordless if isinstance(problem, ServiceRefusal) else problem.detail,
        )


def _filled(target: WebhookTarget, event: Any) -> Mapping[str, str]:
    """Fill in a target's parameters.

    Raises:
        Problem: the event has not what they want.
    """
    try:
        return {name: render(template, event) for name, template in target.parameters.items()}
    except Unfilled as fault:
        raise Problem(
            "bad_parameters",
            400,
            f"A parameter cannot be filled in: {fault}.",
            outcome=Outcome.BAD_REQUEST,
        ) from None


async def _answer(
    operation: Operation, method: str, given: Mapping[str, str], call: ServiceCall
) -> Answer:
    """Ask, and take in the whole answer, which nobody is shown."""
    body, headers, parameters = b"", Headers(), given
    if operation.body is BodyUse.HELD and not operation.parameters:
        # The service judges what it is sent.
        body, parameters = json.dumps(given).encode("ascii"), {}
        headers.setRawHeaders(b"Content-Type", [b"application/json"])
    call.begin()
    answer = await operation.run(
        ServiceRequest(
            method=method,
            parameters=check_parameters(parameters, operation.parameters),
            headers=headers,
            body=BytesProducer([body]),
            upstream=call,
        )
    )
    if isinstance(answer, Passed):
        await call.read(answer.answer, MAX_ANSWER_BYTES)
    return Document(None)


def _refuse_streams(operation: Operation) -> None:
    """No event is a body that could be passed on.

    Raises:
        Problem: this operation takes one.
    """
    if operation.body is BodyUse.STREAMED:
        raise Problem(
            "bad_parameters",
            400,
            "The operation takes a body, which an event is none of.",
            outcome=Outcome.BAD_REQUEST,
        )
