"""The gateway's request: twisted.web's, with a body that is bounded in memory, size and time.

twisted.web spools bodies of 100 kB and more to a file, has no bound on one, and lets the idle
timer alone guard a slow one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, AnyStr, cast

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.python.failure import Failure
from twisted.web import server
from twisted.web.http import datetimeToString

from twisted_gateway.core import caching
from twisted_gateway.core.errors import PROBLEM_TYPE, TITLES, Problem
from twisted_gateway.core.headers import Networks, is_trusted, is_websocket_handshake, pairs
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.telemetry.log import RequestLogger
from twisted_gateway.web.channel import GatewayChannel
from twisted_gateway.web.exchange import Exchange
from twisted_gateway.web.host import Host
from twisted_gateway.web.intake import Body
from twisted_gateway.web.problems import (
    body_too_large,
    body_too_slow,
    held_too_much,
    internal_error,
    no_path,
    no_websocket,
)
from twisted_gateway.web.target import (
    is_well_formed,
    malformed_host,
    malformed_target,
    split_target,
)
from twisted_gateway.web.transport import waiting_bytes
from twisted_gateway.web.upload import Upload

_OF_CHANNEL = frozenset({b"connection", b"content-length", b"date", b"server"})


class GatewayRequest(server.Request):
    """One request: its body in bounded memory, its exchange, and its answer.

    Attributes:
        exchange: opened when the head has been read.
        content: the body so far, where it is held.
        private: whether the answer is for this client alone, who has shown a token.
        upload: the body, while the request is handled and it may still come; None where it is
            held.
    """

    owner: Host
    exchange: Exchange
    content: Body
    _log = RequestLogger()
    defaultContentType = None
    _parsePOSTFormSubmission = False
    private = False
    upload: Upload | None = None
    _body_limit = 0
    _refused = False
    _body_timer: IDelayedCall | None = None
    _aborted = False

    def __repr__(self) -> str:
        """Name the request without its target, whose query may bear a credential."""
        exchange = getattr(self, "exchange", None)
        return f"<{type(self).__name__} {exchange.request_id if exchange else ''}>"

    def getHeader(self, key: AnyStr) -> AnyStr | None:
        """Give the last value of a field, None where there is none.

        As text each byte is a character (RFC 9110 section 5.5: beyond ASCII they mean nothing).
        Twisted takes them for UTF-8, and raises where they are not.
        """
        wanted: Any = key
        as_text = isinstance(wanted, str)
        values = self.requestHeaders.getRawHeaders(wanted.encode("ascii") if as_text else wanted)
        if not values:
            return None
        return cast(AnyStr, values[-1].decode("latin-1") if as_text else values[-1])

    # Coming in

    def gotLength(self, length: int | None) -> None:
        """The head is read: open the exchange, refuse at once what is too large already."""
        owner = self.owner = cast(Host, self._own_channel().site)
        self.content = Body(owner.held)
        self._read_head_line()
        self.exchange = owner.open_exchange(self)
        self.exchange.method = self.method.decode("ascii", "replace")
        self.setHeader(b"X-Request-ID", self.exchange.request_id)
        for name, value in owner.cors.headers(self.requestHeaders):
            self.setHeader(name, value)
        if length == 0:
            return
        rule = owner.body_rule(self)
        limit = self._body_limit = rule.max_bytes
        if length is not None and length > limit:
            self.refuse_early(body_too_large(limit, f"Content-Length says {length}"))
            return
        if rule.from_head and self._preflight() is None:
            self.upload = Upload(length, self._own_channel().network, owner.held)
            self.process()
            return
        seconds = owner.body_seconds
        self._body_timer = owner.reactor.callLater(seconds, self._body_too_slow, seconds)

    def handleContentChunk(self, data: bytes) -> None:
        """A piece of the body: count it, and refuse it as soon as it passes a bound."""
        if self._refused:
            return
        limit = self._body_limit
        if self.upload is not None:
            self._pass_on(self.upload, data, limit)
        elif len(self.content) + len(data) > limit:
            self.refuse_early(body_too_large(limit, "more bytes than that have come"))
        elif not self.content.add(data):
            self.refuse_early(held_too_much(self.owner.retry_after_seconds))

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        """The whole request has come: find its handler, unless it has been refused already."""
        self._stop_body_timer()
        if self._refused:
            return
        if self.upload is not None:
            self.upload.end()
        else:
            self.process()

    def process(self) -> None:
        """Answer what needs no handler, else hand on to the resource tree."""
        self.setHeader(b"Date", datetimeToString())
        if not is_well_formed(self.method, self.uri, self.path):
            self.answer_problem(malformed_target())
        elif not self._names_one_host():
            self.answer_problem(malformed_host())
        elif is_websocket_handshake(pairs(self.requestHeaders.getAllRawHeaders())):
            self.answer_problem(no_websocket())
        elif self.path == b"*":
            # Twisted would answer OPTIONS itself, whatever it is for, and nobody would know.
            self.answer_problem(no_path(self.method.decode("ascii")))
        elif (preflight := self._preflight()) is not None:
            self.exchange.route = "preflight"
            self.send_head(204, b"No Content", preflight)
            self.exchange.status = 204
            self.finish()
        else:
            super().process()

    async def receive(self) -> None:
        """Take in the body of a request that is handled from its head on: hold it in `content`.

        Cancelling stops the waiting.

        Raises:
            Problem: 503. A body that is too large or too slow interrupts the exchange.
        """
        upload = self.upload
        if upload is None:
            return
        seconds = self.owner.body_seconds
        self._body_timer = self.owner.reactor.callLater(seconds, self._body_too_slow, seconds)
        try:
            # One more than can come, so that it is not given before the body has ended.
            data = await upload.read(self._body_limit + 1)
        finally:
            self._stop_body_timer()
        self.upload = None
        upload.discard()
        if not self.content.add(data):
            raise held_too_much(self.owner.retry_after_seconds)

    def connectionLost(self, reason: Failure) -> None:
        """The client has left: whatever is still open ends as a disconnect."""
        self._stop_body_timer()
        if self.upload is not None:
            self.upload.discard()
        exchange = getattr(self, "exchange", None)
        super().connectionLost(reason)
        if exchange is not None and not exchange.ends_itself:
            exchange.end(Outcome.CLIENT_DISCONNECT)

    # Going out

    def make_private(self) -> None:
        """Have no shared cache keep the answer, whatever its origin says: a token was shown."""
        self.private = True
        self.setHeader(b"Cache-Control", caching.private())

    @property
    def gone(self) -> bool:
        """Whether nothing can be written any more."""
        return bool(self._disconnected or self.finished or self._aborted or self._refused)

    def send_head(self, code: int, phrase: bytes, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Write status line and headers now; the body follows by `write`."""
        if self.gone:
            return
        self.setResponseCode(code, phrase)
        seen: set[bytes] = set()
        for name, value in headers:
            key = name.lower()
            if self.private and key == b"cache-control":
                value = caching.private(value)
            if key in seen or key == b"vary":
                # What CORS has said varies goes on varying.
                self.responseHeaders.addRawHeader(name, value)
            else:
                seen.add(key)
                self.responseHeaders.setRawHeaders(name, [value])
        self.write(b"")

    def answer(
        self,
        code: int,
        content_type: bytes,
        body: bytes,
        headers: Iterable[tuple[bytes, bytes]] = (),
        outcome: Outcome = Outcome.OK,
    ) -> None:
        """Write a whole answer and end the request with this outcome."""
        if self.gone:
            return
        # None: twisted.web has a phrase for what the gateway itself never says.
        self.setResponseCode(code, TITLES.get(code, "").encode("ascii") or None)
        self.setHeader(b"Content-Type", content_type)
        self.setHeader(b"Content-Length", b"%d" % len(body))
        for name, value in headers:
            self.setHeader(name, value)
        self.write(body)
        self.exchange.end(outcome, code)
        self.finish()

    def answer_problem(self, problem: Problem) -> None:
        """Answer with a problem document and end the exchange with its outcome."""
        if self.upload is not None and not self.upload.ended:
            if not self.gone:
                self.refuse_early(problem)
            return
        self.exchange.reason = str(problem.members.get("reason", ""))
        self.answer(
            problem.status,
            PROBLEM_TYPE,
            problem.body(self.exchange.request_id),
            _encoded(problem.headers),
            problem.outcome,
        )

    def finish(self) -> None:
        """End the response; once the connection is gone or was aborted, nothing happens.

        An exchange whose outcome nobody has fixed by now went well.
        """
        if not self.gone:
            super().finish()
            if self.upload is not None:
                self.upload.discard()
            if not self.exchange.ends_itself:
                self.exchange.end(Outcome.OK)

    def write(self, data: bytes) -> None:
        """Write body bytes, and count them; once the connection is gone or cut, nothing happens."""
        if not self.gone:
            super().write(data)
            self.exchange.bytes_sent = self.sentLength

    def unregisterProducer(self) -> None:
        """Take the producer away; also after the connection was lost."""
        if self.channel is not None:
            super().unregisterProducer()
        self.producer = None

    def abort(self) -> None:
        """Cut the connection without another byte."""
        if not self.gone:
            self._aborted = True
            self._own_channel().abortConnection()

    def waiting_bytes(self) -> int | None:
        """Bytes that wait for the client, ours and the kernel's; None where nobody tells.

        See `transport.waiting_bytes`.
        """
        return waiting_bytes(self.transport)

    def getRequestHostname(self) -> bytes:
        """A constant: nothing here is routed by host, and a client's Host may be anything."""
        return b"gateway"

    def peer_host(self) -> str:
        """The address at the other end of the connection, "" where it has none (UNIX sockets)."""
        host = getattr(self.client, "host", "")
        return host if isinstance(host, str) else ""

    def peer_is_trusted(self, networks: Networks) -> bool:
        """Whether the other end of the connection is one of these proxies."""
        return is_trusted(self.peer_host(), networks)

    def closed(self) -> Deferred[None]:
        """Fire, with None, when the request has ended in whatever way."""
        if self._disconnected or self.finished:
            return succeed(None)
        done: Deferred[None] = self.notifyFinish()
        return done.addErrback(lambda _: None)

    def processingFailed(self, reason: Failure) -> Failure:
        """A fault of our own: log it, and answer without a traceback."""
        self._log.failure("a request failed", failure=reason, about=self.exchange.about)
        problem = internal_error()
        if self.startedWriting:
            self.abort()
            self.exchange.end(problem.outcome)
        else:
            self.answer_problem(problem)
        return reason

    def refused_by_channel(self) -> None:
        """Twisted has answered 400 by itself: that is how the request ends."""
        exchange = getattr(self, "exchange", None)
        if exchange is not None:
            exchange.end(Outcome.BAD_REQUEST, 400)

    def refuse_early(self, problem: Problem) -> None:
        """Answer before the whole request has come, then let the rest of it run to nowhere."""
        self._refused = True
        self._stop_body_timer()
        self.content.release()
        if self.upload is not None:
            self.upload.discard()
        # Else the channel would still say 100 Continue, behind the final answer.
        self.requestHeaders.removeHeader(b"Expect")
        body = problem.body(self.exchange.request_id)
        self.exchange.status = problem.status
        self.exchange.reason = str(problem.members.get("reason", ""))
        self.exchange.bytes_sent = self._own_channel().answer_and_drain(
            problem.status,
            [(b"Content-Type", PROBLEM_TYPE), *self._said(), *_encoded(problem.headers)],
            body,
            head_only=self.method == b"HEAD",
        )
        self.exchange.end(problem.outcome)

    def _said(self) -> list[tuple[bytes, bytes]]:
        """What has been set so far of the answer's head, less what is the channel's own."""
        return [
            (name, value)
            for name, value in pairs(self.responseHeaders.getAllRawHeaders())
            if name.lower() not in _OF_CHANNEL
        ]

    def _preflight(self) -> list[tuple[bytes, bytes]] | None:
        return self.owner.cors.preflight(self.method, self.requestHeaders)

    def _read_head_line(self) -> None:
        self.method, target, self.clientproto = self._own_channel().head_line
        self.uri, self.path = split_target(target)
        self.args = {}

    def _pass_on(self, upload: Upload, data: bytes, limit_bytes: int) -> None:
        """A piece of a body that is passed on; past a bound, whoever handles it is interrupted."""
        if upload.received + len(data) > limit_bytes:
            upload.discard()
            why = body_too_large(limit_bytes, "more bytes than that have come")
            self.exchange.interrupt(why)
        elif not upload.feed(data):
            self.exchange.interrupt(held_too_much(self.owner.retry_after_seconds))

    def _names_one_host(self) -> bool:
        # RFC 9112, section 3.2.
        hosts = self.requestHeaders.getRawHeaders(b"Host", [])
        return len(hosts) == 1 or (not hosts and self.clientproto != b"HTTP/1.1")

    def _own_channel(self) -> GatewayChannel:
        channel: Any = self.channel
        return cast(GatewayChannel, channel)

    def _body_too_slow(self, seconds: float) -> None:
        self._body_timer = None
        problem = body_too_slow(seconds)
        if self.upload is not None:
            self.exchange.interrupt(problem)
        else:
            self.refuse_early(problem)

    def _stop_body_timer(self) -> None:
        timer, self._body_timer = self._body_timer, None
        if timer is not None:
            timer.cancel()


def _encoded(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("ascii"), value.encode("utf-8")) for name, value in headers.items()]
