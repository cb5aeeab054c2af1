"""One request for text in a simulated engine: its sequences, and its answer as a stream or whole.

Tokens are not kept: a stream remembers how many each choice has and how many have been written,
and words them when its client can take them. So a client that reads slowly costs no memory; when it
reads on, one piece carries several tokens, as vLLM's do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from twisted.internet.interfaces import IPushProducer
from twisted.web.server import Request
from zope.interface import implementer

from twisted_gateway.demo.ask import ApiError, Ask
from twisted_gateway.demo.dialects import DIED, Dialect, Piece
from twisted_gateway.demo.engine import Engine
from twisted_gateway.demo.faults import Faults
from twisted_gateway.demo.scheduler import Job
from twisted_gateway.demo.words import Answer, block_keys, prompt_tokens

PIECE_TOKENS = 64
"""How many tokens one piece carries at most."""

_PIECES_AT_ONCE = 16

Reply = Callable[[Request, int, object], None]
"""Answer a request with a status and a JSON document, and finish it."""


@dataclass(eq=False, slots=True)
class _Choice:
    """One sequence. `reason` is set together with the last `made` token, never before."""

    index: int
    prompt: bytes
    answer: Answer
    job: Job | None = None
    made: int = 0
    written: int = 0
    reason: str | None = None

    @property
    def ended(self) -> bool:
        return self.reason is not None and self.written == self.made

    def piece(self, start: int, stop: int) -> Piece:
        reason = self.reason if stop == self.made else None
        # A sequence that stopped by itself did so with a token that is no text.
        worded = stop - 1 if reason == "stop" else stop
        return Piece(self.index, self.answer.text(start, worded), stop, reason)


@implementer(IPushProducer)
class Generation:
    """The answer to one request, from its submission to its last byte.

    It ends in one of four ways: written whole, cut by a fault, broken by the engine's death, or
    abandoned by its client, which aborts its sequences.
    """

    def __init__(
        self,
        request: Request,
        engine: Engine,
        ask: Ask,
        dialect: Dialect,
        *,
        faults: Faults,
        reply: Reply,
        cut: Callable[[Request], None],
    ) -> None:
        """Prepare to answer `ask` on `request` in the form of `dialect`, with these faults."""
        self._cut = cut
        self._request = request
        self._engine = engine
        self._ask = ask
        self._dialect = dialect
        self._faults = faults
        self._reply = reply
        bounds = (faults.cut_after_tokens, faults.error_after_tokens)
        self._break_at = min((bound for bound in bounds if bound is not None), default=None)
        self._over = self._paused = self._begun = False
        prompts = [prompt for prompt in ask.prompts for _ in range(ask.n)]
        self._choices = [
            _Choice(index, prompt, Answer(prompt, index % ask.n))
            for index, prompt in enumerate(prompts)
        ]

    def start(self) -> None:
        """Submit the sequences to a living engine. A stream has its head at once, queued or not."""
        if not self._faults.hang:
            for choice in self._choices:
                choice.job = self._submit(choice)
        _ = self._request.notifyFinish().addBoth(lambda _: self._leave())
        if self._ask.stream:
            self._request.setHeader(b"content-type", b"text/event-stream; charset=utf-8")
            self._request.registerProducer(self, True)
            self._request.write(self._dialect.head())

    def pauseProducing(self) -> None:
        """The client has enough for now; the engine goes on."""
        self._paused = True

    def resumeProducing(self) -> None:
        """The client takes more: what has gathered meanwhile is written."""
        self._paused = False
        self._pump()

    def stopProducing(self) -> None:
        """The connection is gone."""
        self._leave()

    def _submit(self, choice: _Choice) -> Job:
        def on_token(index: int) -> None:
            if choice.job is not None and index + 1 < choice.job.output_tokens:
                choice.made = index + 1
                self._pump()

        def on_done(reason: str) -> None:
            choice.reason = reason
            if choice.job is not None and reason != "error":
                choice.made = choice.job.output_tokens
            self._pump()

        return self._engine.submit(
            prompt_tokens(choice.prompt),
            self._ask.max_tokens,
            on_token,
            on_done,
            natural_tokens=None if self._ask.ignore_eos else choice.answer.natural_tokens,
            keys=block_keys(choice.prompt, self._engine.profile.block_tokens),
        )

    def _pump(self) -> None:
        if self._over or self._paused:
            return
        if any(choice.reason == "error" for choice in self._choices):
            self._die()
        elif self._ask.stream:
            self._write()
        elif all(choice.reason for choice in self._choices):
            pieces = [choice.piece(0, choice.made) for choice in self._choices]
            self._leave()
            self._reply(self._request, 200, self._dialect.whole(pieces))

    def _write(self) -> None:
        while not self._over and not self._paused:
            events = b"".join(islice(self._events(), _PIECES_AT_ONCE))
            if not events and not self._more():
                break
            self._request.write(events)
        if self._over or self._paused:
            return
        if self._written == self._break_at:
            self._break()
        elif all(choice.ended for choice in self._choices):
            self._request.write(self._dialect.last())
            self._finish()

    def _events(self) -> Iterator[bytes]:
        for choice in self._choices:
            while (stop := self._stop(choice)) > choice.written:
                if not self._begun:
                    self._begun = True
                    yield self._dialect.first()
                start, choice.written = choice.written, stop
                yield self._dialect.piece(choice.piece(start, stop))

    def _stop(self, choice: _Choice) -> int:
        """Up to which token the next piece of a choice goes."""
        stop = min(choice.made, choice.written + PIECE_TOKENS)
        if self._break_at is not None:
            stop = min(stop, choice.written + self._break_at - self._written)
        return stop

    def _more(self) -> bool:
        return any(self._stop(choice) > choice.written for choice in self._choices)

    @property
    def _written(self) -> int:
        return sum(choice.written for choice in self._choices)

    def _break(self) -> None:
        if self._written == self._faults.cut_after_tokens:
            self._leave()
            self._cut(self._request)
        else:
            self._die()

    def _die(self) -> None:
        """End as an engine's death ends: a stream in band, anything else with a 500."""
        if self._ask.stream:
            self._request.write(self._dialect.failure())
            self._finish()
        else:
            self._leave()
            error = ApiError(500, DIED, "InternalServerError")
            self._reply(self._request, 500, self._dialect.error(error))

    def _finish(self) -> None:
        self._leave()
        self._request.unregisterProducer()
        self._request.finish()

    def _leave(self) -> None:
        self._over = True
        for choice in self._choices:
            if choice.job is not None:
                self._engine.abort(choice.job)
