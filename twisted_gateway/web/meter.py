"""What is read off an answer while it passes: TTFT, ITL, tokens, errors, what it says of itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

from twisted.internet.interfaces import IReactorTime

from twisted_gateway.core import account
from twisted_gateway.core.account import Account
from twisted_gateway.core.events import ErrorInfo, Meaning
from twisted_gateway.core.sse import Event
from twisted_gateway.telemetry.tracing import Exemplar
from twisted_gateway.web.exchange import Exchange

MOST_ANSWER_BYTES = 65_536
"""How much of an answer that is no stream is looked at; a longer one says nothing of itself."""

_MODEL_EVENTS = 4
# An event of a stream that says why the answer, or a choice of it, has ended.
_REASON = re.compile(rb"\"(?:finish|stop)_reason\"\s*:\s*\"")


class CallEvents(Protocol):
    """What a request to a model tells the metrics."""

    def entered(self, model: str) -> Callable[[], None]:
        """`gateway_inflight`; what comes back is to be called at the end."""

    def upstream(self, model: str, seconds: float, exemplar: Exemplar) -> None:
        """`gateway_upstream_seconds`."""

    def answered(self, model: str, status: int) -> None:
        """`gateway_upstream_responses_total`."""

    def first_token(self, model: str, seconds: float, exemplar: Exemplar) -> None:
        """`llm_ttft_seconds`."""

    def next_token(self, model: str, seconds: float) -> None:
        """`llm_itl_seconds`."""

    def tokens(self, model: str, count: int) -> None:
        """`llm_tokens_total`."""


class StreamMeter:
    """Times and counts the events of one stream.

    Attributes:
        terminal: whether the stream's last event has come (`[DONE]`, `message_stop`, ...).
        error: the error that the engine put into its stream.
        content_events: how many events bore content.
    """

    def __init__(self, exchange: Exchange, clock: IReactorTime, events: CallEvents) -> None:
        """Take the book, the clock and the metrics."""
        self.terminal = False
        self.error: ErrorInfo | None = None
        self.content_events = 0
        self._exchange = exchange
        self._clock = clock
        self._events = events
        self._account = Account()
        self._events_seen = 0
        self._last_content_at = 0.0
        self._on_first: Callable[[], None] = _nothing
        self._on_each: Callable[[], None] = _nothing
        self._on_last: Callable[[], None] = _nothing

    def begin(
        self,
        on_first: Callable[[], None],
        on_each: Callable[[], None],
        on_last: Callable[[], None],
    ) -> None:
        """The stream begins.

        Args:
            on_first: called at its first event that bears content.
            on_each: called at each of them, the first included.
            on_last: called once, at the stream's last event.
        """
        self._on_first = on_first
        self._on_each = on_each
        self._on_last = on_last

    def event(self, event: Event, meaning: Meaning) -> None:
        """One event has passed, and this is what it means."""
        if meaning.content:
            self._content()
        if meaning.completion_tokens is not None or meaning.prompt_tokens is not None:
            self._account |= Account(
                input_tokens=meaning.prompt_tokens,
                output_tokens=meaning.completion_tokens,
                cached_tokens=meaning.cached_tokens,
            )
        if self._exchange.trace.recording:
            self._look(event, meaning)
        if meaning.error is not None and self.error is None:
            self.error = meaning.error
        if meaning.terminal and not self.terminal:
            self.terminal = True
            self._on_last()

    def end(self) -> None:
        """Count the tokens: by the stream's own account where it gave one, else its events."""
        count = self._account.output_tokens
        if count is None:
            count = self.content_events
        if count:
            self._events.tokens(self._exchange.model, count)
        self._exchange.content_events = self.content_events
        # What the engine has said, and nothing that was counted: traces tell no other.
        self._exchange.account |= self._account

    def _look(self, event: Event, meaning: Meaning) -> None:
        """Read what only a trace tells, off the few events that may say it."""
        self._events_seen += 1
        unnamed = self._account.model is None and self._events_seen <= _MODEL_EVENTS
        if event.data and (unnamed or meaning.terminal or _REASON.search(event.data)):
            said = account.read(event.data)
            # Tokens are counted by the meaning of events, traced or not.
            self._account |= Account(said.model, said.answer_id, said.finish_reasons)

    def _content(self) -> None:
        now = self._clock.seconds()
        if self.content_events:
            self._events.next_token(self._exchange.model, now - self._last_content_at)
            self._exchange.last_token_seconds = now - self._exchange.started_at
        else:
            ttft_seconds = now - self._exchange.started_at
            self._exchange.ttft_seconds = ttft_seconds
            trace = self._exchange.trace
            trace.first_token(now - (self._exchange.sent_at or self._exchange.started_at))
            self._events.first_token(self._exchange.model, ttft_seconds, trace.exemplar)
        self._last_content_at = now
        self.content_events += 1
        if self.content_events == 1:
            self._on_first()
        self._on_each()


class AnswerMeter:
    """Keeps a JSON answer that is no stream, up to a bound, to read its account of itself."""

    def __init__(self, exchange: Exchange) -> None:
        """Take the book."""
        self._exchange = exchange
        self._pieces: list[bytes] = []
        self._size_bytes = 0

    def data(self, piece: bytes) -> None:
        """A piece of the body has passed."""
        self._size_bytes += len(piece)
        if self._size_bytes <= MOST_ANSWER_BYTES:
            self._pieces.append(piece)
        else:
            self._pieces.clear()

    def end(self) -> None:
        """The body is whole."""
        if self._pieces:
            self._exchange.account |= account.read(b"".join(self._pieces))


def _nothing() -> None:
    """Before the stream begins nobody listens."""
