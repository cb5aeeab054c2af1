"""What is read off an event stream while it passes: TTFT, ITL, tokens, errors in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from twisted.internet.interfaces import IReactorTime

from twisted_gateway.core.events import ErrorInfo, Meaning
from twisted_gateway.web.exchange import Exchange


class CallEvents(Protocol):
    """What a request to a model tells the metrics."""

    def entered(self, model: str) -> Callable[[], None]:
        """`gateway_inflight`; what comes back is to be called at the end."""

    def upstream(self, model: str, seconds: float) -> None:
        """`gateway_upstream_seconds`."""

    def first_token(self, model: str, seconds: float) -> None:
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
        self._usage_tokens: int | None = None
        self._prompt_tokens: int | None = None
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

    def event(self, meaning: Meaning) -> None:
        """One event has passed."""
        if meaning.content:
            self._content()
        if meaning.completion_tokens is not None:
            self._usage_tokens = meaning.completion_tokens
        if meaning.prompt_tokens is not None:
            self._prompt_tokens = meaning.prompt_tokens
        if meaning.error is not None and self.error is None:
            self.error = meaning.error
        if meaning.terminal and not self.terminal:
            self.terminal = True
            self._on_last()

    def end(self) -> None:
        """Count the tokens: by the stream's own account where it gave one, else its events."""
        count = self.content_events if self._usage_tokens is None else self._usage_tokens
        if count:
            self._events.tokens(self._exchange.model, count)
            self._exchange.trace.used(input_tokens=self._prompt_tokens, output_tokens=count)

    def _content(self) -> None:
        now = self._clock.seconds()
        if self.content_events:
            self._events.next_token(self._exchange.model, now - self._last_content_at)
        else:
            ttft_seconds = now - self._exchange.started_at
            self._exchange.ttft_seconds = ttft_seconds
            self._exchange.trace.event("first_token")
            self._events.first_token(self._exchange.model, ttft_seconds)
        self._last_content_at = now
        self.content_events += 1
        if self.content_events == 1:
            self._on_first()
        self._on_each()


def _nothing() -> None:
    """Before the stream begins nobody listens."""
