"""One request's way to its service: traced, and bound by the silence of whoever is waited for."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.web.http_headers import Headers

from twisted_gateway.core.errors import Problem
from twisted_gateway.core.headers import pairs
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.services.adapter import BadAnswer, Pairs, Refused, RequestBody
from twisted_gateway.telemetry.log import RequestLogger
from twisted_gateway.telemetry.tracing import UpstreamSpan
from twisted_gateway.upstream.agent import UpstreamAgent
from twisted_gateway.upstream.errors import UpstreamError
from twisted_gateway.upstream.request_body import BytesProducer
from twisted_gateway.upstream.response import UpstreamResponse
from twisted_gateway.upstream.whole import ask, read_whole
from twisted_gateway.web.background import Afterwards, shielded
from twisted_gateway.web.exchange import Exchange
from twisted_gateway.web.intake import HeldBytes
from twisted_gateway.web.problems import HELD_RETRY_AFTER_SECONDS, held_too_much
from twisted_gateway.web.reading import Reading
from twisted_gateway.web.service_problems import client_silent, silent
from twisted_gateway.web.silence import Silence
from twisted_gateway.web.upload import Upload

AFTERWARDS_SECONDS = 10.0
"""How long a request may take that nobody waits for."""

_MOST_CONNECT_SECONDS = 5.0
_SMALL_BYTES = 65_536
_MOST_STATUS = 599

T = TypeVar("T")


class Called(Protocol):
    """Whom a call asks.

    Attributes:
        name: how problems, log and operators know it.
        timeout_seconds: how long nobody may be heard.
    """

    @property
    def name(self) -> str:
        """See the class."""

    @property
    def timeout_seconds(self) -> float:
        """See the class."""


@dataclass(frozen=True, slots=True)
class Agents:
    """How services are reached.

    Attributes:
        pooled: over kept-alive connections.
        fresh: over a new connection each: a body that is passed on cannot be sent again, so it
            must not meet a connection that may be dead already.
        afterwards: what goes on there when its request is over.
    """

    pooled: UpstreamAgent
    fresh: UpstreamAgent
    afterwards: Afterwards = field(default_factory=Afterwards)

    def close(self) -> list[Deferred[None]]:
        """Close both; see `UpstreamAgent.close`."""
        return [self.pooled.close(), self.fresh.close()]


class ServiceCall:
    """What an operation is given as its `Upstream` (services/adapter.py).

    From `begin` to `end` somebody must be heard every `timeoutSeconds`: the service, or, while a
    body is passed on, the client. Time stands still while the client does not take the answer.

    Attributes:
        called: whose service it is.
        hosts: the names of those that were asked, which no client is to see.

    Args:
        agents: send.
        clock: for the timer.
        called: whose service it is.
        exchange: the book.
        upload: the request's body, where it is passed on.
        held: bytes held by the process, which what is read counts towards.
        took: told how many seconds the service took, from the first request to its answer's end.
        give_up: called with what the client is to be told when nobody was heard.
    """

    _log = RequestLogger()

    def __init__(
        self,
        agents: Agents,
        clock: IReactorTime,
        called: Called,
        exchange: Exchange,
        upload: Upload | None,
        held: HeldBytes,
        took: Callable[[float], None],
        give_up: Callable[[Problem], object],
    ) -> None:
        """Wait for nobody yet."""
        self._agents = agents
        self._clock = clock
        self.called = called
        self.hosts: set[str] = set()
        self._exchange = exchange
        self._upload = upload
        self._reading = Reading(held)
        self._took = took
        self._give_up = give_up
        self._sent_at: float | None = None
        self._span: UpstreamSpan | None = None
        self._silence: Silence | None = None

    def begin(self) -> None:
        """From here on somebody must be heard."""
        self._silence = Silence(
            self._clock, self.called.timeout_seconds, self._nobody_heard, repeat=False
        )
        if self._upload is not None:
            self._upload.on_progress = self.heard

    def end(self, outcome: Outcome | None) -> None:
        """The service has said all that it had to say, or nobody waits for it any more."""
        self._unbind()
        self._end_span(outcome)
        if self._sent_at is not None:
            self._took(self._clock.seconds() - self._sent_at)

    def let_go(self) -> None:
        """What has been read is done with."""
        self._reading.release()

    def heard(self) -> None:
        """Bytes came, or were taken."""
        if self._silence is not None:
            self._silence.touch()

    def hold(self) -> None:
        """The client does not take the answer: the service's silence is ours."""
        if self._silence is not None:
            self._silence.hold()

    def release(self) -> None:
        """The client takes the answer again."""
        if self._silence is not None:
            self._silence.release()

    # What operations ask

    async def send(
        self,
        method: str,
        url: str,
        headers: Iterable[tuple[bytes, bytes]],
        body: RequestBody | None = None,
    ) -> UpstreamResponse:
        """See `Upstream.send`."""
        span = self._begin_span(url, method)
        fields = self._fields(headers)
        span.inject(fields)
        agents = self._agents
        agent = (agents.fresh if isinstance(body, Upload) else agents.pooled).bound(
            min(_MOST_CONNECT_SECONDS, self.called.timeout_seconds)
        )
        producer: Any = body
        if isinstance(body, BytesProducer):
            body.on_progress = self.heard
        answered: Deferred[Any] = agent.request(
            method.encode("ascii"), url.encode("ascii"), fields, producer
        )
        try:
            answer: UpstreamResponse = await answered
        except BaseException as fault:
            if isinstance(fault, UpstreamError):
                span.failed(type(fault).__name__)
            if isinstance(body, BytesProducer):
                # What is left of a request that was cut lies about until it is collected: not with
                # megabytes that nothing counts any more.
                body.release()
            raise
        self.heard()
        if answer.code > _MOST_STATUS:
            answer.abort()
            raise BadAnswer(f"its answer has the status {answer.code}, which is none of HTTP's")
        if self._span is span:
            # Else nobody waits for it any more, see `to_its_end`.
            span.status(answer.code)
        return answer

    async def call(self, url: str, start: Callable[[Pairs], Deferred[T]]) -> T:
        """See `Upstream.call`."""
        span = self._begin_span(url, "POST")
        fields = self._fields(())
        span.inject(fields)
        try:
            result = await start(pairs(fields.getAllRawHeaders()))
        except UpstreamError as fault:
            span.failed(type(fault).__name__)
            raise
        except Refused as refusal:
            span.status(refusal.status)
            raise
        self.heard()
        span.status(200)
        return result

    async def follow(self, method: str, url: str, work: Deferred[T]) -> T:
        """See `Upstream.follow`."""
        self._unbind()
        span = self._begin_span(url, method)
        try:
            result = await work
        except CancelledError:
            raise
        except Exception as fault:
            span.failed(type(fault).__name__)
            raise
        span.status(200)
        return result

    async def read(self, answer: UpstreamResponse, limit_bytes: int) -> bytes:
        """See `Upstream.read`."""
        self._reading.release()
        fits = True

        def came(count: int) -> bool:
            nonlocal fits
            self.heard()
            fits = self._reading.add(count)
            return fits

        body, whole = await read_whole(
            answer,
            self._clock,
            limit_bytes=limit_bytes,
            # Where silence is timed that is the bound: a store may send white space for minutes
            # while it puts an upload's parts together.
            seconds=None if self._silence is not None else self.called.timeout_seconds,
            admit=came,
        )
        if not fits:
            raise held_too_much(HELD_RETRY_AFTER_SECONDS)
        if not whole:
            raise BadAnswer("its answer is too long, too slow or broke off")
        self.heard()
        return body

    def count(self, size_bytes: int) -> None:
        """See `Upstream.count`."""
        if not self._reading.add(size_bytes):
            raise held_too_much(HELD_RETRY_AFTER_SECONDS)

    def afterwards(self, method: str, url: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """See `Upstream.afterwards`."""
        self._agents.afterwards.add(
            Deferred.fromCoroutine(self._send_alone(method, url, list(headers))),
            f"undoing something at {self.called.name}",
        )

    async def to_its_end(
        self, work: Coroutine[Deferred[Any], Any, T], undo: Callable[[T], object]
    ) -> T:
        """See `Upstream.to_its_end`."""
        going: Deferred[T] = Deferred.fromCoroutine(work)
        try:
            result: T = await shielded(going)
            return result
        except CancelledError:
            self._agents.afterwards.add(
                Deferred.fromCoroutine(self._undone(going, undo)),
                f"ending something at {self.called.name}",
            )
            raise

    async def _undone(self, going: Deferred[T], undo: Callable[[T], object]) -> None:
        bound = self._clock.callLater(AFTERWARDS_SECONDS, going.cancel)
        try:
            undo(await going)
        except Refused:
            # Nothing was begun.
            return
        except (CancelledError, Problem, UpstreamError):
            self._leave_undone("it did not say what it had begun")
        finally:
            if bound.active():
                bound.cancel()
            # It was read when the request that it was read for had let go of all.
            self.let_go()

    def _unbind(self) -> None:
        """From here on nobody need be heard."""
        silence, self._silence = self._silence, None
        if silence is not None:
            silence.stop()

    def _leave_undone(self, why: str) -> None:
        self._log.warn(
            "{service}: something may be left undone there ({why})",
            service=self.called.name,
            why=why,
            # It may be said by a timer, that works for nobody.
            about=self._exchange.about,
        )

    async def _send_alone(self, method: str, url: str, headers: list[tuple[bytes, bytes]]) -> None:
        try:
            answer = await ask(
                self._agents.pooled,
                self._clock,
                method.encode("ascii"),
                url,
                headers,
                limit_bytes=_SMALL_BYTES,
                seconds=AFTERWARDS_SECONDS,
            )
        except UpstreamError as fault:
            self._leave_undone(fault.reason)
            return
        # Of what is not there any more nothing is left.
        if answer.code >= 400 and answer.code not in (404, 410):
            self._leave_undone(f"it answered {answer.code}")

    def _fields(self, headers: Iterable[tuple[bytes, bytes]]) -> Headers:
        fields = Headers()
        for name, value in headers:
            fields.addRawHeader(name, value)
        fields.setRawHeaders(b"X-Request-ID", [self._exchange.request_id.encode("ascii")])
        return fields

    def _begin_span(self, url: str, method: str) -> UpstreamSpan:
        self._end_span(None)
        self.heard()
        self.hosts.add(urlsplit(url).hostname or "")
        self._span = span = self._exchange.trace.upstream(url, method)
        if self._sent_at is None:
            self._sent_at = self._clock.seconds()
        if self._exchange.sent_at is None:
            self._exchange.sent_at = self._sent_at
        return span

    def _end_span(self, outcome: Outcome | None) -> None:
        span, self._span = self._span, None
        if span is not None:
            span.end(outcome)

    def _nobody_heard(self) -> None:
        seconds = self.called.timeout_seconds
        if self._upload is not None and self._upload.starved:
            self._give_up(client_silent(seconds))
        else:
            self._give_up(silent(self.called.name, seconds))
