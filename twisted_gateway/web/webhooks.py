"""`POST /v1/webhooks/forgejo`: events of a Forgejo or Gitea server, each acted on once."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.python.failure import Failure
from twisted.web.http_headers import Headers

from twisted_gateway.config.inbound import Webhook, WebhookTarget
from twisted_gateway.core.deliveries import Deliveries
from twisted_gateway.core.errors import Problem
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.services.adapter import Document
from twisted_gateway.telemetry.inbound import InboundMetrics
from twisted_gateway.telemetry.log import RequestLogger
from twisted_gateway.web.background import shielded
from twisted_gateway.web.door import Door
from twisted_gateway.web.exchange import Cut, Exchange
from twisted_gateway.web.intake import BodyRule
from twisted_gateway.web.request import GatewayRequest
from twisted_gateway.web.service_answer import send_document
from twisted_gateway.web.serving import Entered, serve
from twisted_gateway.web.signature import BadSignature, check_signature
from twisted_gateway.web.webhook_target import TargetRuns

ROUTE = "/v1/webhooks/forgejo"
MOST_DELIVERIES = 10_000
"""How many deliveries are remembered; a busy server sends some hundreds an hour."""

_EVENT = (b"X-Forgejo-Event", b"X-Gitea-Event", b"X-GitHub-Event")
_DELIVERY = (b"X-Forgejo-Delivery", b"X-Gitea-Delivery", b"X-GitHub-Delivery")
_WORD = re.compile(rb"[A-Za-z0-9._-]{1,128}")


class Webhooks:
    """Takes events, and has done what they lead to.

    Args:
        door: lets them in.
        targets: does it.
        metrics: counts that.
        entered: counts requests under way.
    """

    _log = RequestLogger()

    def __init__(
        self, door: Door, targets: TargetRuns, metrics: InboundMetrics, entered: Entered
    ) -> None:
        """Take what the class documents; nothing is accepted before `adopt`."""
        self._door = door
        self._targets = targets
        self._metrics = metrics
        self._entered = entered
        self._webhook = Webhook()
        self._deliveries = Deliveries(MOST_DELIVERIES)

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

    def body_rule(self, request: GatewayRequest) -> BodyRule | None:
        """Say what holds for a request's body; None where it is no event.

        Its signature is one of the whole body, so it can be judged no sooner than that is there.
        """
        if request.path != ROUTE.encode("ascii") or request.method != b"POST":
            return None
        return BodyRule(request.owner.max_body_bytes, from_head=True)

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
        body = request.content.whole()
        headers = request.requestHeaders
        _authenticate(secret, headers, body)
        event, delivery = _word(headers, _EVENT), _word(headers, _DELIVERY)
        tree = _event_of(body)
        request.content.release()
        done = self._deliveries.begin(delivery)
        if done is None:
            said = {"delivery": delivery, "event": event, "duplicate": True, "targets": []}
            send_document(request, Document(said))
            return Outcome.OK
        wanted = {
            f"{number} {target.service}/{target.resource}": target
            for number, target in enumerate(webhook.targets)
            if target.takes(event)
        }
        left = {name: target for name, target in wanted.items() if name not in done}
        outcomes: Mapping[str, Outcome] = {}
        try:
            outcomes, cancelled = await self._act(request.exchange, left, tree)
        finally:
            good = frozenset(name for name, how in outcomes.items() if how is Outcome.OK)
            self._deliveries.end(delivery, good, complete=good == left.keys())
        if cancelled:
            # Now that all is done: whoever has cut the request knows how it ended.
            raise CancelledError
        return _answer(request, delivery, event, [(left[name], outcomes[name]) for name in left])

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


def _authenticate(secret: bytes, headers: Headers, body: bytes) -> None:
    """See to it that an event comes from who knows the secret.

    Raises:
        Problem: 401.
    """
    try:
        check_signature(headers, body, secret)
    except BadSignature as fault:
        raise Problem(
            "bad_signature",
            401,
            f"The event's signature is not accepted: {fault}.",
            outcome=Outcome.UNAUTHORIZED,
            headers={"WWW-Authenticate": "HMAC-SHA256"},
        ) from None


def _word(headers: Headers, names: Sequence[bytes]) -> str:
    """Give the value of the first of these fields that is there.

    Raises:
        Problem: 400, there is none, or it is no word.
    """
    for name in names:
        values = headers.getRawHeaders(name, [])
        if len(values) == 1 and _WORD.fullmatch(values[0]):
            return values[0].decode("ascii")
        if values:
            break
    raise Problem(
        "malformed_event",
        400,
        f"An event names itself once in {names[0].decode('ascii')}, in at most 128 letters, "
        "digits, '.', '_' and '-'.",
        outcome=Outcome.BAD_REQUEST,
    )


def _event_of(body: bytes) -> Any:
    try:
        tree = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError):
        tree = None
    if not isinstance(tree, dict):
        raise Problem(
            "malformed_event",
            400,
            "The event is not a JSON object in UTF-8; the webhook's content type is to be "
            "application/json.",
            outcome=Outcome.BAD_REQUEST,
        )
    return tree


def _answer(
    request: GatewayRequest,
    delivery: str,
    event: str,
    outcomes: Sequence[tuple[WebhookTarget, Outcome]],
) -> Outcome:
    """Tell the sender what became of its event.

    Raises:
        Problem: 502, something failed; when the delivery comes again that alone is tried again.
    """
    said = [
        {"service": target.service, "resource": target.resource, "outcome": outcome.value}
        for target, outcome in outcomes
    ]
    failed = [one for one in said if one["outcome"] != Outcome.OK.value]
    if failed:
        names = ", ".join(f"{one['service']}/{one['resource']}" for one in failed)
        raise Problem(
            "webhook_target_failed",
            502,
            f"The event was accepted, and what it leads to failed in part: {names}.",
            outcome=Outcome.UPSTREAM_ERROR,
            members={"delivery": delivery, "event": event, "targets": said},
        )
    send_document(request, Document({"delivery": delivery, "event": event, "targets": said}))
    return Outcome.OK
