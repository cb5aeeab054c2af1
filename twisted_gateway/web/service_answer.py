"""An adapter's answer on its way to the client: a document, or the service's own, relayed."""

from __future__ import annotations

import json

from twisted.internet.defer import CancelledError
from twisted.internet.interfaces import IReactorTime

from twisted_gateway.core.outcome import Outcome
from twisted_gateway.services.adapter import Answer, Document, Passed
from twisted_gateway.web.relay import End, Relay
from twisted_gateway.web.reply import Reply
from twisted_gateway.web.request import GatewayRequest
from twisted_gateway.web.service_call import ServiceCall

STALL_SECONDS = 60.0
"""How long a client may take nothing while data waits for it."""


def make_inert(request: GatewayRequest) -> None:
    """Have a browser run nothing of an answer, on the origin of the gateway's own pages.

    What a service answers with may be anybody's: an object's content and type are whoever put it.
    """
    request.setHeader(b"X-Content-Type-Options", b"nosniff")
    request.setHeader(b"Content-Security-Policy", b"sandbox; default-src 'none'")


async def send_answer(
    request: GatewayRequest, answer: Answer, call: ServiceCall, clock: IReactorTime
) -> Outcome:
    """Send an answer to the client.

    Args:
        request: whose answer it is.
        answer: what to send.
        call: the way by which it came; time stands still there while the client takes nothing.
        clock: for the bound on that.

    Returns:
        How the request ends. Cancelling it cuts both connections.
    """
    if isinstance(answer, Document):
        send_document(request, answer)
        return Outcome.OK
    return await _relay(request, answer, call, clock)


def send_document(request: GatewayRequest, document: Document) -> None:
    """Send a document."""
    if document.tree is None:
        request.exchange.status = document.status
        request.send_head(document.status, b"No Content", ())
        request.finish()
        return
    body = json.dumps(document.tree, ensure_ascii=False).encode("utf-8", "replace")
    request.answer(document.status, b"application/json", body)


async def _relay(
    request: GatewayRequest, passed: Passed, call: ServiceCall, clock: IReactorTime
) -> Outcome:
    answer = passed.answer
    reply = Reply(
        request,
        request.exchange,
        clock,
        keep_alive_seconds=None,
        stall_seconds=STALL_SECONDS,
        spent=_nothing,
    )
    reply.on_pause, reply.on_resume = call.hold, call.release
    try:
        reply.begin(answer.code, answer.phrase, _head(request, passed))
        relay = Relay(reply, call.heard)
        answer.deliverBody(relay)
        if await relay.done is End.BROKEN:
            reply.abort()
            return Outcome.UPSTREAM_INCOMPLETE
        reply.finish()
        return Outcome.OK if answer.code < 400 else Outcome.UPSTREAM_STATUS
    except CancelledError:
        # The status is out: an answer that is not whole must not look whole.
        reply.abort()
        raise
    finally:
        reply.release()


def _head(request: GatewayRequest, passed: Passed) -> list[tuple[bytes, bytes]]:
    answer = passed.answer
    headers = [*passed.headers, (b"X-Request-ID", request.exchange.request_id.encode("ascii"))]
    if request.method == b"HEAD":
        lengths = answer.headers.getRawHeaders(b"Content-Length", [])
        headers += [(b"Content-Length", value) for value in lengths[:1]]
    elif isinstance(answer.length, int) and answer.code not in (204, 304):
        headers.append((b"Content-Length", b"%d" % answer.length))
    return headers


def _nothing() -> None:
    """No comment ever spends the status of a service's answer."""
