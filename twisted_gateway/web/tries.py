"""The tries at each engine that are under way, and what the engine has answered of late.

Gauges tell what an engine says of itself. These books tell what it does for us: whether anything
comes from it while requests of ours are in it, and whether its answers are any good. An engine may
publish the best of gauges while it hangs, or while it answers everything with an error.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from twisted_gateway.config.forms import engine_address

LATELY_SECONDS = 900.0
"""For how long a bad answer speaks of the engine: by then it may long have been mended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is known of an engine by our own requests; None means not known.

    Attributes:
        silent_seconds: for how long nothing has come while requests of ours wait for something;
            None where none does.
        expected_seconds: for how long that may be so, by estimate, if all is well; None like it.
        faults_in_a_row: latest answers that speak against the engine, with no good one between.
        fault: the status of the last of them.
        unreached: in words, why the last try brought no answer; "" where it brought one.
    """

    silent_seconds: float | None = None
    expected_seconds: float | None = None
    faults_in_a_row: int = 0
    fault: int | None = None
    unreached: str = ""


class Try:
    """One sending of a request to an engine, from its sending to its answer's end."""

    def __init__(self, engine: _Engine, prompt_tokens: int, answer_tokens: int) -> None:
        """Made by `Tries.begin`."""
        self.prompt_tokens = prompt_tokens
        self.answer_tokens = answer_tokens
        self.paused = False
        self._engine = engine

    def answered(self, status: int, *, own_key: bool) -> None:
        """The head of an answer has come.

        Args:
            status: of the answer.
            own_key: whether the credential was the gateway's own, so that a refusal of it is the
                configuration's fault and not the client's.
        """
        self._engine.unreached = ""
        if status < 400:
            self._engine.faults_in_a_row = 0
        elif is_fault(status, own_key=own_key):
            self._engine.faults_in_a_row += 1
            self._engine.fault = status
            self._engine.fault_at = self._engine.seconds()
        self.heard()

    def heard(self) -> None:
        """Something has come."""
        self._engine.heard_at = self._engine.seconds()

    def content(self) -> None:
        """An event that bears content has come: its prompt is read."""
        self.prompt_tokens = 0

    def failed(self, reason: str) -> None:
        """No answer came, or not all of it.

        Args:
            reason: a phrase without credentials.
        """
        self._engine.unreached = reason
        self._engine.unreached_at = self._engine.seconds()

    def pause(self) -> None:
        """The client reads no further: what does not come now is not the engine's fault."""
        self.paused = True

    def resume(self) -> None:
        """The client reads again."""
        self.paused = False
        self.heard()

    def end(self) -> None:
        """Nothing more is waited for; idempotent."""
        self._engine.tries.pop(self, None)


class _Engine:
    """The book of one engine."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self.seconds = seconds
        self.tries: dict[Try, None] = {}
        self.heard_at = 0.0
        self.faults_in_a_row = 0
        self.fault: int | None = None
        self.fault_at = 0.0
        self.unreached = ""
        self.unreached_at = 0.0

    def begin(self, one: Try) -> None:
        if not self.tries:
            # Silence is counted from where somebody began to wait.
            self.heard_at = self.seconds()
        self.tries[one] = None

    def standing(self, prefill_rate: float, decode_rate: float) -> Standing:
        now = self.seconds()
        waiting = [one for one in self.tries if not one.paused]
        faulty = self.faults_in_a_row and now - self.fault_at < LATELY_SECONDS
        return Standing(
            silent_seconds=now - self.heard_at if waiting else None,
            expected_seconds=_expected(waiting, prefill_rate, decode_rate) if waiting else None,
            faults_in_a_row=self.faults_in_a_row if faulty else 0,
            fault=self.fault if faulty else None,
            unreached=self.unreached if now - self.unreached_at < LATELY_SECONDS else "",
        )


class Tries:
    """The books of all engines, by scheme, host and port.

    Args:
        seconds: gives the time.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        """Start with empty books."""
        self._seconds = seconds
        self._engines: dict[str, _Engine] = {}

    def begin(self, upstream: str, *, prompt_tokens: int, answer_tokens: int) -> Try:
        """A request is sent to an engine.

        Args:
            upstream: the engine's base URL.
            prompt_tokens: how long its prompt is, by estimate.
            answer_tokens: how many tokens are written before anything is heard: of a stream 0, of
                any other answer all of them.
        """
        address = engine_address(upstream)
        engine = self._engines.setdefault(address, _Engine(self._seconds))
        made = Try(engine, prompt_tokens, answer_tokens)
        engine.begin(made)
        return made

    def standing(self, upstream: str, *, prefill_rate: float, decode_rate: float) -> Standing:
        """What is known of an engine.

        Args:
            upstream: its base URL.
            prefill_rate: tokens of a prompt that it reads in a second.
            decode_rate: tokens of an answer that it writes in a second.
        """
        engine = self._engines.get(engine_address(upstream))
        return Standing() if engine is None else engine.standing(prefill_rate, decode_rate)

    def keep(self, addresses: Collection[str]) -> None:
        """Forget the engines that are not among these, once nothing of ours is in them."""
        for address, engine in list(self._engines.items()):
            if address not in addresses and not engine.tries:
                del self._engines[address]


def is_fault(status: int, *, own_key: bool) -> bool:
    """Whether a status speaks against the engine, or against how it is configured.

    400 and 422 speak of the client's request. 404 is what an engine says that does not know the
    model's name, or the path.
    """
    return status >= 500 or status in (404, 405) or (own_key and status in (401, 403))


def _expected(waiting: Collection[Try], prefill_rate: float, decode_rate: float) -> float:
    """At worst all prompts are read one after another; then the shortest answer comes first."""
    prefill = sum(one.prompt_tokens for one in waiting) / max(prefill_rate, 1e-3)
    return prefill + min(one.answer_tokens for one in waiting) / max(decode_rate, 1e-3)
