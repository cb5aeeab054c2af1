"""One request from its head to its one outcome, and the book of those under way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from twisted_gateway.core.account import Account
from twisted_gateway.core.errors import Problem
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.telemetry.log import About

if TYPE_CHECKING:
    from twisted_gateway.telemetry.tracing import RequestTrace


class Cut(Exception):
    """The client's connection is to be aborted: it can be told nothing more.

    Attributes:
        outcome: how the request ends.
    """

    def __init__(self, outcome: Outcome) -> None:
        """Take the outcome."""
        super().__init__(outcome.value)
        self.outcome = outcome


class Exchange:
    """What is known of one request; written by the request path, read by log, metrics and trace.

    Attributes:
        request_id: kept from the client or made; safe to print.
        trace: its trace; a null object when tracing is off.
        started_at: when its head was read, on the reactor's clock.
        route: the bounded name of what handled it (`/v1/chat/completions`, `/metrics`, ...).
        model: the configured model, "" while none is known.
        provider: `gen_ai.provider.name` of its engine, "" while none is known.
        stream: whether an event stream was asked for; None while nobody knows.
        client: the client's address, "" where it is not to be told or has none.
        subject: whose token the gateway has checked; None where it has checked none.
        api_key: the name of the key that the gateway has checked; None where it has checked none.
        tenant: who it counts as, in the form that may be shown; "" while nobody has asked.
        status: the HTTP status that the client was sent, 0 while none was.
        meant_status: the status of what failed behind one that was sent, 0 where nothing did.
        parked: whether it has had to wait.
        waited_seconds: time parked, in all.
        sent_at: when its latest try was sent to an engine; None where none was.
        account: what the engine's answer said of itself.
        ttft_seconds: time to the first event that bears content; None where there was none.
        last_token_seconds: time to the last such event; None where there was no second one.
        content_events: how many such events there were.
        bytes_sent: body bytes handed to the client's transport.
        reason: why admission refused it, one of the contract's words; "" where it did not.
        outcome: set once, by `end`.
        work: the handler's Deferred, once it waits for something.
        ends_itself: whether the handler says how the request ended; else a written answer is `ok`
            and a lost connection a disconnect.
    """

    def __init__(
        self,
        clock: IReactorTime,
        request_id: str,
        trace: RequestTrace,
        ended: Callable[[Exchange], None],
    ) -> None:
        """Open the exchange; `ended` is called with it once, when its outcome is known."""
        self.request_id = request_id
        self.trace = trace
        self.started_at = clock.seconds()
        self.method = ""
        self.reason = ""
        self.route = ""
        self.model = ""
        self.provider = ""
        self.stream: bool | None = None
        self.client = ""
        self.subject: str | None = None
        self.api_key: str | None = None
        self.tenant = ""
        self.status = 0
        self.meant_status = 0
        self.parked = False
        self.waited_seconds = 0.0
        self.sent_at: float | None = None
        self.account = Account()
        self.ttft_seconds: float | None = None
        self.last_token_seconds: float | None = None
        self.content_events = 0
        self.bytes_sent = 0
        self.outcome: Outcome | None = None
        self.ended_at: float | None = None
        self.work: Deferred[None] | None = None
        self.ends_itself = False
        self._interruption: Problem | Cut | None = None
        self._clock = clock
        self._ended = ended

    @property
    def about(self) -> About:
        """How log lines name it."""
        return About(self.request_id, self.trace.trace_id, self.trace.span_id)

    @property
    def duration_seconds(self) -> float:
        """From the head to the outcome, or to now."""
        until = self._clock.seconds() if self.ended_at is None else self.ended_at
        return until - self.started_at

    def end(self, outcome: Outcome, status: int | None = None) -> None:
        """Fix the outcome; the first call decides, later ones change nothing.

        Args:
            outcome: how the request ended.
            status: the status sent, where it was not noted when the head was written.
        """
        if self.outcome is None:
            self.outcome = outcome
            if status is not None:
                self.status = status
            self.ended_at = self._clock.seconds()
            self._ended(self)

    def interrupt(self, why: Problem | Cut) -> None:
        """Stop the request's work wherever it waits; its handler then answers with `why`.

        The handler's pending await is cancelled, which gives up the parked place or the
        connection to the engine. The first interruption decides.
        """
        if self._interruption is None and self.outcome is None:
            self._interruption = why
            if self.work is not None:
                self.work.cancel()

    def interruption(self) -> Problem | Cut:
        """Why the handler was cancelled: what interrupted it, else that the client has left."""
        return self._interruption or Cut(Outcome.CLIENT_DISCONNECT)


class Exchanges:
    """The exchanges that are under way, so that a drain can wait for their end."""

    def __init__(self) -> None:
        """Start empty."""
        self._open: set[Exchange] = set()
        self._waiters: list[Deferred[None]] = []

    def __len__(self) -> int:
        """How many are under way."""
        return len(self._open)

    def __iter__(self) -> Iterator[Exchange]:
        """A copy: exchanges may end while one walks over them."""
        return iter(list(self._open))

    def opened(self, exchange: Exchange) -> None:
        """Note that this one is under way."""
        self._open.add(exchange)

    def closed(self, exchange: Exchange) -> None:
        """Note that this one has ended."""
        self._open.discard(exchange)
        if not self._open:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                waiter.callback(None)

    def when_empty(self) -> Deferred[None]:
        """Fire when none is under way; at once when none is now. Cancelling only forgets it."""
        waiter: Deferred[None] = Deferred(self._forget)
        if self._open:
            self._waiters.append(waiter)
        else:
            waiter.callback(None)
        return waiter

    def _forget(self, waiter: Deferred[None]) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)
