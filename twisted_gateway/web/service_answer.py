"""An adapter's answer on its way to the client: a document, or the service's own, relayed."""

from __future__ import annotations

import json

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.web.http import RESPONSES

from twisted_gateway.core.outcome import Outcome
from twisted_gateway.services.adapter import Answer, Document, Passed
from twisted_gateway.web.problems import held_too_much
from twisted_gateway.web.reading import UNCOUNTED_BYTES
from twisted_gateway.web.relay import End, Relay
from twisted_gateway.web.reply import Reply
from twisted_gateway.web.request import GatewayRequest
from twisted_gateway.web.service_call import ServiceCall

STALL_SECONDS = 60.0
"""How long a client may take nothing while data waits for it."""

_PIECE_BYTES = 131_072


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

    Raises:
        Problem: 503, a long document does not go into `maxHeldBytes`.
    """
    if isinstance(answer, Passed):
        return await _relay(request, answer, call, clock)
    status, body = answer.status, _written(answer)
    # Its tree, which is larger than what it is written as, does not wait for the client.
    del answer
    if body is None or len(body) <= UNCOUNTED_BYTES or request.method == b"HEAD":
        _send(request, status, body)
        return Outcome.OK
    return await _send_counted(request, status, body, call, clock)


def send_document(request: GatewayRequest, document: Document) -> None:
    """Send a document of the gateway's own, which is short."""
    _send(request, document.status, _written(document))


def _written(document: Document) -> bytes | None:
    if document.tree is None:
        return None
    return json.dumps(document.tree, ensure_ascii=False).encode("utf-8", "replace")


def _send(request: GatewayRequest, status: int, body: bytes | None) -> None:
    if body is None:
        request.exchange.status = status
        request.send_head(status, b"No Content", ())
        request.finish()
    else:
        request.answer(status, b"application/json", body)


async def _send_counted(
    request: GatewayRequest, status: int, body: bytes, call: ServiceCall, clock: IReactorTime
) -> Outcome:
    """Send a long document, which counts against `maxHeldBytes` until the client has it.

    Raises:
        Problem: 503.
    """
    held, size = request.owner.held, len(body)
    if not held.take(size):
        raise held_too_much(request.owner.retry_after_seconds)
    reply = _reply(request, clock)
    kind, length = (b"Content-Type", b"application/json"), (b"Content-Length", b"%d" % size)
    try:
        reply.begin(status, RESPONSES.get(status, b""), (kind, length))
        # In pieces: the transport copies what it is given, and is to hold no second document.
        for start in range(0, size, _PIECE_BYTES):
            reply.write(body[start : start + _PIECE_BYTES])
            await _caught_up(reply, call)
        reply.finish()
        return Outcome.OK
    except CancelledError:
        reply.abort()
        raise
    finally:
        reply.release()
        held.give(size)


async def _relay(
    request: GatewayRequest, passed: Passed, call: ServiceCall, clock: IReactorTime
) -> Outcome:
    answer, reply = passed.answer, _reply(request, clock)
    reply.on_pause, reply.on_resume = call.hold, call.release
    try:
        # The phrase is the service's own words: not all of them are for the client.
        reply.begin(answer.code, RESPONSES.get(answer.code, b""), _head(request, passed))
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


async def _caught_up(reply: Reply, call: ServiceCall) -> None:
    """Wait until nothing waits for the client; the service need not be heard meanwhile."""
    if not reply.paused:
        return
    call.hold()
    taken: Deferred[None] = Deferred()
    reply.on_resume = lambda: taken.callback(None)
    try:
        await taken
    finally:
        reply.on_resume = None
        call.release()


def _reply(request: GatewayRequest, clock: IReactorTime) -> Reply:
    return Reply(
        request,
        request.exchange,
        clock,
        keep_alive_seconds=None,
        stall_seconds=STALL_SECONDS,
        spent=_nothing,
    )


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
