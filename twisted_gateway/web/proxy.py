"""The request to the engine, tried as often as may be, and its answer on the way back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import CancelledError
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.web.http_headers import Headers

from twisted_gateway.config.schema import EngineKind
from twisted_gateway.core.errors import Problem, error_frame
from twisted_gateway.core.events import upstream_message
from twisted_gateway.core.headers import is_event_stream, is_json, pairs, response_headers
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.core.references import Places
from twisted_gateway.core.sse import EventSplitter
from twisted_gateway.telemetry.log import RequestLogger
from twisted_gateway.telemetry.repeats import Repeats
from twisted_gateway.telemetry.tracing import UpstreamSpan
from twisted_gateway.upstream.errors import (
    ConnectFailed,
    ConnectTimedOut,
    Disconnected,
    HandshakeFailed,
    Truncated,
    UpstreamError,
)
from twisted_gateway.upstream.response import UpstreamResponse
from twisted_gateway.web.call import Call
from twisted_gateway.web.exchange import Exchange
from twisted_gateway.web.gather import gather
from twisted_gateway.web.meter import AnswerMeter, StreamMeter
from twisted_gateway.web.patience import Patience
from twisted_gateway.web.place import PlaceLike
from twisted_gateway.web.problems import unreachable
from twisted_gateway.web.proxy_client import ProxyClient
from twisted_gateway.web.relay import End, Relay, StreamRelay
from twisted_gateway.web.reply import Reply
from twisted_gateway.web.tries import Try

AFTER_LAST_EVENT_SECONDS = 5.0
"""How long a stream may stay open after its last event, before it is taken to have ended."""


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """An engine's answer that was read whole, for it was a refusal that might be tried again."""

    response: UpstreamResponse
    body: bytes
    whole: bool


class Proxy:
    """One request's way to an engine and back.

    Args:
        client: sends.
        clock: for the time bounds.
        call: what is asked.
        exchange: the book.
        reply: the client's side.
        head: builds the headers of a request to the engine.
        meter: reads the metrics off the stream.
        release: lets the request's body go, once the engine's answer has begun.
        begin: opens the book of a try at the engine of this address.
        answered: told the status of each answer of the engine, of refusals as well.
        took: told how many seconds each try that was sent took, from there to its answer's end.
        repeats: lets a failing engine be complained of once in a while.
    """

    _log = RequestLogger()

    def __init__(
        self,
        client: ProxyClient,
        clock: IReactorTime,
        call: Call,
        exchange: Exchange,
        reply: Reply,
        head: Callable[[], Headers],
        meter: StreamMeter,
        release: Callable[[], None],
        begin: Callable[[str], Try],
        answered: Callable[[int], None],
        took: Callable[[float], None],
        repeats: Repeats,
    ) -> None:
        """Take what the class documents."""
        self._client = client
        self._clock = clock
        self._call = call
        self._exchange = exchange
        self._reply = reply
        self._head = head
        self._meter = meter
        self._release = release
        self._begin_try = begin
        self._answered = answered
        self._took = took
        self._repeats = repeats
        self._try_now: Try | None = None
        self._sent = False
        self._span: UpstreamSpan | None = None
        self._last_call: IDelayedCall | None = None
        self._patience = Patience(clock, call.model.timeouts, exchange.interrupt)
        reply.on_pause = self._pause
        reply.on_resume = self._resume

    async def carry(self, place: PlaceLike) -> Outcome:
        """Ask the engine and relay its answer.

        Returns:
            How it ended, the reply being finished or aborted.

        Raises:
            Problem: the engine failed before a byte of its answer was relayed.
        """
        # What ends in none of the ways below is a fault of ours.
        outcome = Outcome.INTERNAL_ERROR
        try:
            answer = await self._ask(place)
            place.answered()
            self._call.body.release()
            self._release()
            outcome = await self._pass_on(answer, place)
            return outcome
        except Problem as problem:
            outcome = problem.outcome
            raise
        except CancelledError:
            outcome = self._exchange.interruption().outcome
            raise
        finally:
            self._meter.end()
            self._exchange.trace.used(self._exchange.account)
            self._end_try(outcome)

    def _end_try(self, outcome: Outcome | None = None) -> None:
        """The engine has said all it had to say to this try, or nobody waits for it any more."""
        self._patience.stop()
        if self._try_now is not None:
            self._try_now.end()
        span, self._span = self._span, None
        if span is not None:
            span.end(outcome)
            if self._sent:
                self._took(self._clock.seconds() - (self._exchange.sent_at or 0.0))

    # To the engine

    async def _ask(self, place: PlaceLike) -> UpstreamResponse | KeptAnswer:
        while True:
            try:
                answer = await self._try(place.upstream)
            except (ConnectTimedOut, HandshakeFailed) as fault:
                raise self._unreachable(fault) from fault
            except ConnectFailed as fault:
                self._end_try()
                self._exchange.trace.event("connection_refused")
                if await place.again(connected=False):
                    continue
                raise self._unreachable(fault) from fault
            except UpstreamError as fault:
                if isinstance(fault, Disconnected | Truncated):
                    place.broken()
                raise self._unreachable(fault) from fault
            if not self._refuses(answer):
                if answer.code >= 500:
                    self._complain(place.upstream, answer.code)
                return answer
            self._exchange.trace.event("refused_by_engine", status=answer.code)
            self._complain(place.upstream, answer.code, "; what it refuses is sent again later")
            kept = KeptAnswer(answer, *await gather(answer, self._clock))
            self._end_try()
            if not await place.again(connected=True):
                return kept

    async def _try(self, upstream: str) -> UpstreamResponse:
        self._patience.sent()
        self._exchange.sent_at = self._clock.seconds()
        self._try_now = book = self._begin_try(upstream)
        self._sent = True
        self._span = span = self._exchange.trace.upstream(upstream)
        headers = self._head()
        span.inject(headers)
        try:
            answer = await self._client.request(
                "POST", upstream + self._call.path, headers=headers, data=self._call.body
            )
        except UpstreamError as fault:
            span.failed(type(fault).__name__)
            self._sent = not fault.never_sent
            book.failed(fault.reason)
            raise
        span.status(answer.code)
        book.answered(answer.code, own_key=self._call.model.api_key is not None)
        self._answered(answer.code)
        return answer

    def _refuses(self, answer: UpstreamResponse) -> bool:
        """Whether this is the engine's own admission that speaks."""
        if not (self._call.gated and self._call.model.gated):
            return False
        return answer.code == 503 or (
            answer.code == 429 and self._call.model.engine is EngineKind.TEI
        )

    def _complain(self, upstream: str, status: int, rest: str = "") -> None:
        self._repeats.say(
            f"{upstream} {status}",
            self._log.warn,
            "{model}: the engine at {upstream} answers with status {status}{rest}",
            model=self._call.model.name,
            upstream=upstream,
            status=status,
            rest=rest,
            about=self._exchange.about,
        )

    def _unreachable(self, fault: UpstreamError) -> Problem:
        model = self._call.model.name
        self._repeats.say(
            f"{model} {type(fault).__name__}",
            self._log.warn,
            "{model}: {reason}",
            model=model,
            reason=fault.reason,
            about=self._exchange.about,
        )
        return unreachable(model, fault)

    # And back

    async def _pass_on(self, answer: UpstreamResponse | KeptAnswer, place: PlaceLike) -> Outcome:
        if isinstance(answer, KeptAnswer):
            return self._pass_kept(answer)
        if is_event_stream(_readable_type(answer)) and answer.code < 300:
            return await self._pass_stream(answer, place)
        if self._reply.spent:
            return await self._frame(answer)
        return await self._pass_bytes(answer, place)

    def _pass_kept(self, kept: KeptAnswer) -> Outcome:
        if self._reply.spent:
            return self._frame_body(kept.response, kept.body)
        if not kept.whole:
            said = upstream_message(kept.body, kept.response.media_type).message
            raise Problem(
                "upstream_refused",
                503,
                f"The engine of {self._call.model.name} refused the request, in an answer that "
                f"is no longer whole: {said or 'no message'}",
                outcome=Outcome.UPSTREAM_STATUS,
                members={"upstream_status": kept.response.code},
            )
        self._begin(kept.response, len(kept.body))
        self._reply.write(kept.body)
        self._reply.finish()
        return Outcome.UPSTREAM_STATUS

    async def _pass_bytes(self, answer: UpstreamResponse, place: PlaceLike) -> Outcome:
        length = answer.length if isinstance(answer.length, int) else None
        self._begin(answer, length)
        self._patience.begun()
        meter = AnswerMeter(self._exchange)
        look = meter.data if answer.code < 300 and is_json(_readable_type(answer)) else None
        relay = Relay(self._reply, self._heard, look)
        answer.deliverBody(relay)
        if await relay.done is End.BROKEN:
            place.broken()
            self._reply.abort()
            return Outcome.UPSTREAM_INCOMPLETE
        meter.end()
        self._reply.finish()
        return Outcome.OK if answer.code < 400 else Outcome.UPSTREAM_STATUS

    async def _pass_stream(self, answer: UpstreamResponse, place: PlaceLike) -> Outcome:
        splitter = EventSplitter()
        self._reply.begin_stream(answer.code, answer.phrase, self._headers(answer), splitter)
        relay = StreamRelay(self._reply, self._heard, splitter, self._meter.event)
        self._meter.begin(self._content_begins, place.content, lambda: self._end_soon(relay))
        answer.deliverBody(relay)
        try:
            end = await relay.done
        except CancelledError:
            outcome = self._already_over()
            if outcome is None:
                raise
            return outcome
        finally:
            if self._last_call is not None and self._last_call.active():
                self._last_call.cancel()
        if end is not End.WHOLE and not self._meter.terminal:
            place.broken()
            self._reply.fail(
                Problem(
                    "upstream_incomplete",
                    502,
                    "The engine's answer broke off before it was whole.",
                    outcome=Outcome.UPSTREAM_INCOMPLETE,
                    members={"reason": "upstream_incomplete"},
                )
            )
            return Outcome.UPSTREAM_INCOMPLETE
        rest = splitter.finish()
        # Behind the last event of a stream that broke off there is nothing to be had.
        if rest and end is End.WHOLE:
            self._reply.write(rest)
        self._reply.finish()
        return Outcome.UPSTREAM_ERROR if self._meter.error is not None else Outcome.OK

    def _heard(self) -> None:
        self._patience.heard()
        if self._try_now is not None:
            self._try_now.heard()

    def _content_begins(self) -> None:
        self._patience.begun()
        if self._try_now is not None:
            self._try_now.content()

    def _pause(self) -> None:
        self._patience.hold()
        if self._try_now is not None:
            self._try_now.pause()

    def _resume(self) -> None:
        self._patience.release()
        if self._try_now is not None:
            self._try_now.resume()

    def _end_soon(self, relay: StreamRelay) -> None:
        """The last event has come: what keeps the connection open now is no answer any more."""
        self._patience.stop()
        self._last_call = self._clock.callLater(AFTER_LAST_EVENT_SECONDS, relay.cut)

    def _already_over(self) -> Outcome | None:
        """How a stream ended whose client left after its last event, before the engine's own end.

        OpenAI's clients leave as soon as they have read `[DONE]`, or an error.
        """
        if self._exchange.interruption().outcome is not Outcome.CLIENT_DISCONNECT:
            return None
        if self._meter.error is not None:
            return Outcome.UPSTREAM_ERROR
        return Outcome.OK if self._meter.terminal else None

    def _begin(self, answer: UpstreamResponse, length: int | None) -> None:
        headers = self._headers(answer)
        if length is not None and answer.code not in (204, 304):
            headers.append((b"Content-Length", b"%d" % length))
        self._reply.begin(answer.code, answer.phrase, headers)

    def _headers(self, answer: UpstreamResponse) -> list[tuple[bytes, bytes]]:
        return response_headers(
            pairs(answer.headers.getAllRawHeaders()),
            request_id=self._exchange.request_id,
            places=Places(self._call.model.upstreams, self._call.model.paths),
        )

    async def _frame(self, answer: UpstreamResponse) -> Outcome:
        """The 200 is spent, and this is no event stream: its one event is an error."""
        if answer.code < 400:
            # Nobody would read it: it is not what was asked for.
            answer.abort()
            return self._frame_body(answer, b"")
        body, _ = await gather(answer, self._clock)
        return self._frame_body(answer, body)

    def _frame_body(self, answer: UpstreamResponse, body: bytes) -> Outcome:
        failed = answer.code >= 400
        said = upstream_message(body if failed else b"", answer.media_type)
        default = (
            f"The engine answered {answer.code}."
            if failed
            else "The engine answered with something else where an event stream was expected."
        )
        members: Mapping[str, Any] = {
            "status": answer.code if failed else 502,
            "reason": "upstream_status" if failed else "upstream_not_a_stream",
            "upstream_status": answer.code,
            "request_id": self._exchange.request_id,
        }
        frame = error_frame(said.error_object(message=default), members)
        self._reply.last_words(frame, answer.code if failed else 502)
        return Outcome.UPSTREAM_STATUS if failed else Outcome.UPSTREAM_ERROR


def _readable_type(answer: UpstreamResponse) -> bytes:
    """The answer's media type; empty where its bytes are encoded."""
    encoded = answer.field(b"Content-Encoding").strip().lower() not in (b"", b"identity")
    return b"" if encoded else answer.field(b"Content-Type")
