"""`POST /v1/webhooks/forgejo`: events of a Forgejo or Gitea server, each acted on once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from twisted_gateway.config.inbound import Webhook, WebhookTarget
from twisted_gateway.core.deliveries import Conflict, Deliveries, Delivery
from twisted_gateway.core.errors import Problem
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.services.adapter import Document
from twisted_gateway.telemetry.inbound import InboundMetrics
from twisted_gateway.telemetry.log import RequestLogger
from twisted_gateway.telemetry.repeats import Repeats
from twisted_gateway.web.background import shielded
from twisted_gateway.web.door import Door
from twisted_gateway.web.exchange import Cut, Exchange
from twisted_gateway.web.intake import BodyRule
from twisted_gateway.web.request import GatewayRequest
from twisted_gateway.web.service_answer import send_document
from twisted_gateway.web.serving import Entered, serve
from twisted_gateway.web.webhook_event import Event, read_event
from twisted_gateway.web.webhook_target import TargetRuns, identities

ROUTE = "/v1/webhooks/forgejo"
MOST_DELIVERIES = 10_000
"""How many deliveries are remembered; a busy server sends some hundreds an hour."""

Outcomes = Sequence[tuple[WebhookTarget, Outcome]]
"""What became of the targets of an event."""


class Webhooks:
    """Takes events, and has done what they lead to.

    Args:
        door: lets them in.
        targets: does it.
        clock: for the log.
        metrics: counts that.
        entered: counts requests under way.
    """

    _log = RequestLogger()

    def __init__(
        self,
        door: Door,
        targets: TargetRuns,
        clock: IReactorTime,
        metrics: InboundMetrics,
        entered: Entered,
    ) -> None:
        """Take what the class documents; nothing is accepted before `adopt`."""
        self._door = door
        self._targets = targets
        self._metrics = metrics
        self._entered = entered
        self._repeats = Repeats(clock)
        self._webhook = Webhook()
        self._deliveries = Deliveries(MOST_DELIVERIES)
        self._waiting: dict[Delivery, list[Deferred[Outcomes]]] = {}

    def adopt(self, webhook: Webhook) -> None:
        """Put a webhook in force; what has been delivered stays known."""
        self._webhook = webhook
        self._metrics.configure_targets(target.service for target in webhook.targets)
        for target in webhook.targets:
            why = self._targets.complaint(target)
            if why:
                self._log.warn(
                    "the webhook's target {service}/{resource} will fail: {why}",
                    service=target.service,
                    resource=target.resource,
                    why=why,
                )

    def body_rule(self, request: GatewayRequest) -> BodyRule:
        """Say what holds for the body of an event.

        Its signature is one of the whole body, so it can be judged no sooner than that is there.
        """
        return BodyRule(self._webhook.max_body_bytes, from_head=True)

    def serve(self, request: GatewayRequest) -> Deferred[None]:
        """Take one event; see `serving.serve`.

        A sender that does not wait for the answer changes nothing: what the event leads to is done
        to its end.
        """
        return serve(request, ROUTE, self._serve, self._entered)

    async def _serve(self, request: GatewayRequest) -> Outcome:
        await self._door.admit(request)
        webhook = self._webhook
        secret = _secret(webhook)
        await request.receive()
        event = read_event(request.requestHeaders, request.content.whole(), secret)
        request.content.release()
        delivery = self._find(event)
        if delivery.under_way:
            return _answer(request, event, await self._outcomes_of(delivery), again=True)
        if delivery.complete:
            return _answer(request, event, (), again=True)
        outcomes = await self._act_on(delivery, request.exchange, webhook, event)
        return _answer(request, event, outcomes)

    def _find(self, event: Event) -> Delivery:
        """Say which delivery it is that comes.

        Raises:
            Problem: 409.
        """
        try:
            delivery = self._deliveries.find(event.delivery, event.name, event.digest)
        except Conflict:
            self._repeats.say(
                "conflict",
                self._log.warn,
                "delivery {delivery} of event {event} is refused: its body has come as another "
                "event, or its id with another body; somebody may be replaying what they have seen",
                delivery=event.delivery,
                event=event.name,
            )
            raise Problem(
                "conflicting_delivery",
                409,
                "The body of this delivery has come as another event before, or its id with "
                "another body; nothing is done for it.",
                outcome=Outcome.BAD_REQUEST,
            ) from None
        if delivery.digest != event.digest:
            # The id alone says what is a delivery, and anybody may have written it.
            self._repeats.say(
                "another body",
                self._log.warn,
                "delivery {delivery} of event {event} has come again with another body, and "
                "nothing is done for that: ids are used twice, or somebody sends what they have "
                "seen under the id of another event",
                delivery=event.delivery,
                event=event.name,
            )
        return delivery

    async def _outcomes_of(self, delivery: Delivery) -> Outcomes:
        """Wait for what becomes of a delivery that is under way; cancelling stops that alone."""
        waiting = self._waiting.setdefault(delivery, [])
        waiter: Deferred[Outcomes] = Deferred(waiting.remove)
        waiting.append(waiter)
        return await waiter

    async def _act_on(
        self, delivery: Delivery, exchange: Exchange, webhook: Webhook, event: Event
    ) -> Outcomes:
        """Do what is left to be done for a delivery, and tell whoever waits for it too.

        Cancelling: see `_act`; it is passed on when all is done.
        """
        wanted = identities(target for target in webhook.targets if target.takes(event.name))
        left = {name: target for name, target in wanted.items() if name not in delivery.done}
        outcomes: Mapping[str, Outcome] = dict.fromkeys(left, Outcome.INTERNAL_ERROR)
        delivery.begin()
        try:
            outcomes, cancelled = await self._act(exchange, left, event.tree)
        finally:
            good = frozenset(name for name, how in outcomes.items() if how is Outcome.OK)
            delivery.end(good, complete=good == left.keys())
            every = [(left[name], how) for name, how in outcomes.items()]
            for waiter in list(self._waiting.pop(delivery, ())):
                if not waiter.called:
                    # One that was told before has cancelled it.
                    waiter.callback(every)
        if cancelled:
            # Now that all is done: whoever has cut the request knows how it ended.
            raise CancelledError
        return every

    async def _act(
        self, exchange: Exchange, targets: Mapping[str, WebhookTarget], event: Any
    ) -> tuple[Mapping[str, Outcome], bool]:
        """Do what an event leads to, all at once.

        Cancelling it because the sender has left changes nothing but what comes back; for another
        reason (a drain has ended) it gives up what is not done yet.

        Returns:
            How each ended, and whether it was cancelled.
        """
        # `DeferredList` keeps the errors of single runs: none ends the others.
        every: Deferred[Any] = DeferredList(
            [
                Deferred.fromCoroutine(self._targets.run(exchange, target, event))
                for target in targets.values()
            ],
            consumeErrors=True,
        )
        cancelled = False
        try:
            results = await shielded(every)
        except CancelledError:
            cancelled = True
            if not isinstance(exchange.interruption(), Cut):
                every.cancel()
            results = await every
        outcomes = {
            name: self._outcome(target, *result)
            for (name, target), result in zip(targets.items(), results, strict=True)
        }
        return outcomes, cancelled

    def _outcome(self, target: WebhookTarget, good: bool, result: Any) -> Outcome:
        outcome: Outcome = result if good else self._outcome_of(target, result)
        self._metrics.webhook_target(target.service, target.resource, outcome)
        return outcome

    def _outcome_of(self, target: WebhookTarget, failure: Failure) -> Outcome:
        if failure.check(CancelledError):
            return Outcome.REJECTED
        self._log.failure(
            "the webhook's target {service}/{resource} failed",
            failure=failure,
            service=target.service,
            resource=target.resource,
        )
        return Outcome.INTERNAL_ERROR


def _secret(webhook: Webhook) -> bytes:
    """Give what senders sign with.

    Raises:
        Problem: 503, there is none.
    """
    if webhook.secret is None:
        raise Problem(
            "webhook_not_configured",
            503,
            "This gateway takes no events: it has no secret for this webhook.",
            outcome=Outcome.REJECTED,
        )
    return webhook.secret.value.encode("ascii")


def _answer(
    request: GatewayRequest, event: Event, outcomes: Outcomes, *, again: bool = False
) -> Outcome:
    """Tell the sender what became of its event.

    Args:
        request: whose answer it is.
        event: what came.
        outcomes: what became of the targets.
        again: whether it has come before, and this delivery has done nothing.

    Raises:
        Problem: 502, something failed; when the event is delivered again that alone is tried again.
    """
    targets = [
        {"service": target.service, "resource": target.resource, "outcome": outcome.value}
        for target, outcome in outcomes
    ]
    said: dict[str, Any] = {"delivery": event.delivery, "event": event.name, "targets": targets}
    if again:
        said["duplicate"] = True
    failed = [one for one in targets if one["outcome"] != Outcome.OK.value]
    if failed:
        names = ", ".join(f"{one['service']}/{one['resource']}" for one in failed)
        raise Problem(
            "webhook_target_failed",
            502,
            f"The event was accepted, and what it leads to failed in part: {names}.",
            outcome=Outcome.UPSTREAM_ERROR,
            members=said,
        )
    send_document(request, Document(said))
    return Outcome.OK
