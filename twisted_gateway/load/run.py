"""A run: every client of a workload asks when it should, is patient, and asks again.

its time comes   -> it asks
whole answer     -> completed
refused, failed  -> it waits and asks again; without a try or patience left that is its end
patience is over -> it gave up, whatever it was at
`stop`           -> interrupted
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.http_headers import Headers

from twisted_gateway.load.arrivals import Arrival
from twisted_gateway.load.exchange import Exchange
from twisted_gateway.load.pace import Pace
from twisted_gateway.load.prompts import body
from twisted_gateway.load.results import Ending, Place, Request, Try
from twisted_gateway.upstream.agent import UpstreamAgent
from twisted_gateway.web.background import in_background

PATH = "/v1/chat/completions"
MAX_PLACES = 20_000
"""How many places in the queue are kept for the picture of them."""
# What OpenAI's clients wait where no Retry-After says otherwise.
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.5, 8.0
_LONGEST_RETRY_AFTER_SECONDS = 3600.0
# No key, a wrong one, no such model or path, nothing that can be asked: whoever asks, and however
# often. A 400 may be one prompt's own, such as one that is too long.
_UNSERVED = frozenset({401, 403, 404, 405})


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """Where requests go, and what they bear.

    Attributes:
        to: base URLs, without `/v1`; they take turns.
        direct_to: the engine's, for clients that go past the gateway; None: they do not.
        tenant_header: the header that names the tenant; empty for none.
        api_key: sent as Bearer; empty for none. Shown nowhere.
        exact: see `prompts.body`.
        retry_after_is_wall: whether a refusal's `Retry-After` is seconds on the wall; else they
            are model seconds, as all others of the workload.
    """

    to: tuple[str, ...]
    model: str
    seed: int = 1
    direct_to: str | None = None
    tenant_header: str = "X-Tenant"
    api_key: str = ""
    exact: bool = True
    retry_after_is_wall: bool = False


class Run:
    """Plays a workload.

    Attributes:
        requests: one for each client, by its number.
        places: what the gateways' comments told of the queue.
        pace: the model time; it starts when `start` is called.
        late: the most wall seconds by which a request was sent after its time.
        ended: how many requests have ended.
        completed: how many of them completed.
        unserved: why the run has stopped by itself: the first answer that an address gave says
            that it serves no such thing, or not to us; None: it has not.
        refused: how many tries were refused.
        ttfts: to the first content, of requests that have ended, in the order of their ends.
    """

    _log = Logger()

    def __init__(
        self, clock: IReactorTime, agent: UpstreamAgent, arrivals: Sequence[Arrival], wire: Wire
    ) -> None:
        """Prepare; `arrivals` are in the order of their times."""
        self.requests = [_request(number, each) for number, each in enumerate(arrivals)]
        self.places: list[Place] = []
        self.late = 0.0
        self.ended = self.completed = self.refused = self._tokens = 0
        self.ttfts: list[float] = []
        self.unserved: str | None = None
        self._heard: set[str] = set()
        self._clock = clock
        self._agent = agent
        self._arrivals = arrivals
        self._wire = wire
        self._turns = itertools.cycle(wire.to)
        self._waiting = deque(range(len(arrivals)))
        self._alarm: IDelayedCall | None = None
        self._clients: dict[int, Deferred[None]] = {}
        self._exchanges: dict[int, Exchange] = {}
        self._over: Deferred[None] = Deferred(lambda _: self.stop())
        self.pace = Pace(clock, 1.0)

    @property
    def open(self) -> int:
        """How many requests are on the wire."""
        return len(self._exchanges)

    @property
    def held(self) -> int:
        """How many of them are in a gateway's queue, by their last comment."""
        return sum(exchange.held for exchange in self._exchanges.values())

    @property
    def tokens(self) -> int:
        """Of all answers so far."""
        return self._tokens + sum(one.record.tokens for one in self._exchanges.values())

    def live_ttfts(self, most: int) -> list[float]:
        """Give the latest times to the first content: at most so many, and those under way."""
        begun = self._exchanges.items()
        return self.ttfts[-most:] + [
            one.record.content - self.requests[number].at
            for number, one in begun
            if one.record.content is not None
        ]

    def start(self, speed: float = 1.0) -> Deferred[None]:
        """Begin.

        Returns:
            Fires when every client has ended, or `stop` was called. Cancelling it stops.
        """
        self.pace = Pace(self._clock, speed)
        self._wake()
        return self._over

    def stop(self) -> None:
        """End all that is under way; who has not ended is `INTERRUPTED`."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        for number in self._waiting:
            self.requests[number].end = self.pace.now()
        self._waiting.clear()
        for client in list(self._clients.values()):
            client.cancel()
        self._look_whether_over()

    def _wake(self) -> None:
        """Send everybody off whose time has come, and sleep until the next one's."""
        self._alarm = None
        while self._waiting and self._arrivals[self._waiting[0]].at <= self.pace.now():
            number = self._waiting.popleft()
            late = (self.pace.now() - self._arrivals[number].at) / self.pace.speed
            self.late = max(self.late, late)
            self._begin(number)
        if self._waiting:
            self._alarm = self.pace.later(self._arrivals[self._waiting[0]].at, self._wake)
        self._look_whether_over()

    def _begin(self, number: int) -> None:
        arrival, request = self._arrivals[number], self.requests[number]
        client = Deferred.fromCoroutine(self._client(arrival, request))
        self._clients[number] = client
        gives_up_at = arrival.at + arrival.patience_seconds
        patience = self.pace.later(gives_up_at, lambda: self._give_up(number))

        def ended(result: object) -> None:
            if patience.active():
                patience.cancel()
            del self._clients[number]
            self._ended(result, request)

        in_background(client.addBoth(ended), self._log, "a client")

    def _give_up(self, number: int) -> None:
        self.requests[number].ending = Ending.GAVE_UP
        self._clients[number].cancel()

    def _ended(self, result: object, request: Request) -> None:
        if isinstance(result, Failure):
            self._log.failure("request {number} broke the tool", result, number=request.number)
            request.ending, request.end = Ending.FAILED, self.pace.now()
        self.ended += 1
        if request.ending is Ending.COMPLETED:
            self.completed += 1
        self._look_whether_over()

    def _look_whether_over(self) -> None:
        if not (self._waiting or self._clients or self._over.called):
            self._over.callback(None)

    async def _client(self, arrival: Arrival, request: Request) -> None:
        """Ask until there is an answer, or no more asking."""
        try:
            while True:
                one = await self._try(arrival, request)
                if one.ending is Ending.COMPLETED or len(request.tries) >= arrival.tries:
                    break
                again_at = one.end + self._wait(one, len(request.tries), request.number)
                hopeless = one.ending is Ending.FAILED and _is_final(one)
                if hopeless or again_at >= arrival.at + arrival.patience_seconds:
                    break
                await self.pace.until(again_at)
            request.ending, request.end = one.ending, one.end
        except CancelledError:
            request.end = self.pace.now()

    async def _try(self, arrival: Arrival, request: Request) -> Try:
        wire = self._wire
        direct = arrival.direct and wire.direct_to is not None
        base = wire.direct_to if direct and wire.direct_to is not None else next(self._turns)
        exchange = Exchange(self.pace, direct=direct)
        number = request.number
        request.tries.append(exchange.record)
        self._exchanges[number] = exchange
        try:
            await exchange.run(
                self._agent,
                f"{base}{PATH}".encode("ascii"),
                self._headers(arrival, number, len(request.tries)),
                body(arrival, number, wire.seed, wire.model, exact=wire.exact),
            )
        finally:
            # A client that left has said why before it was cancelled.
            exchange.close(request.ending)
            del self._exchanges[number]
            self._note(exchange, number)
            self._hear(base, exchange.record)
        return exchange.record

    def _hear(self, base: str, one: Try) -> None:
        """Stop where the first that an address says is that it will answer nobody."""
        if one.status is None or base in self._heard:
            return
        self._heard.add(base)
        if one.status in _UNSERVED and self.unserved is None:
            self.unserved = f"{base} serves nobody: {one.reason}"
            # Later: the client that hears this is among those who are ended.
            self._clock.callLater(0, self.stop)

    def _note(self, exchange: Exchange, number: int) -> None:
        self._tokens += exchange.record.tokens
        self.refused += exchange.record.ending is Ending.REFUSED
        if exchange.record.content is not None:
            self.ttfts.append(exchange.record.content - self.requests[number].at)
        room = MAX_PLACES - len(self.places)
        self.places.extend(
            Place(at, number, position, eta) for at, position, eta in exchange.places[:room]
        )

    def _headers(self, arrival: Arrival, number: int, tries: int) -> Headers:
        wire = self._wire
        headers = Headers()
        headers.addRawHeader(b"Content-Type", b"application/json")
        headers.addRawHeader(
            b"Accept", b"text/event-stream" if arrival.stream else b"application/json"
        )
        headers.addRawHeader(b"X-Request-ID", f"load-{wire.seed}-{number}-{tries}".encode("ascii"))
        if wire.tenant_header:
            headers.addRawHeader(wire.tenant_header.encode("ascii"), arrival.tenant.encode("utf-8"))
        if arrival.priority is not None:
            headers.addRawHeader(b"X-Priority", arrival.priority.encode("ascii"))
        if wire.api_key:
            headers.addRawHeader(b"Authorization", b"Bearer " + wire.api_key.encode("ascii"))
        return headers

    def _wait(self, one: Try, tries: int, number: int) -> float:
        """Model seconds to wait before asking again."""
        if one.retry_after is not None:
            seconds = min(one.retry_after, _LONGEST_RETRY_AFTER_SECONDS)
            return seconds * (self.pace.speed if self._wire.retry_after_is_wall else 1.0)
        seconds = min(_FIRST_WAIT_SECONDS * 2.0 ** (tries - 1), _LONGEST_WAIT_SECONDS)
        # As those clients do: up to a quarter less, so that they do not come back together.
        chance = random.Random(f"{self._wire.seed}/{number}/{tries}")
        return seconds * (1 - 0.25 * chance.random())


def _is_final(one: Try) -> bool:
    """Whether the server has said that asking again will not help."""
    return one.status is not None and 400 <= one.status < 500 and one.status not in (408, 409, 429)


def _request(number: int, arrival: Arrival) -> Request:
    return Request(
        number=number,
        kind=arrival.kind,
        tenant=arrival.tenant,
        at=arrival.at,
        prompt_tokens=arrival.prompt_tokens,
        answer_tokens=arrival.answer_tokens,
        patience=arrival.patience_seconds,
        stream=arrival.stream,
        direct=arrival.direct,
        priority=arrival.priority,
    )
