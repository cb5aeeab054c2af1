"""How long the engine may keep silent: one bound until it has begun, another from there on."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IReactorTime

from twisted_gateway.config.schema import Timeouts
from twisted_gateway.core.errors import Problem
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.web.silence import Silence


class Patience:
    """`firstContentSeconds` until `begun`, then `idleSeconds` between any two things heard.

    Args:
        clock: for the timer.
        timeouts: the model's.
        lost: called once, with the problem, when the engine was silent for too long.
    """

    def __init__(
        self, clock: IReactorTime, timeouts: Timeouts, lost: Callable[[Problem], None]
    ) -> None:
        """Wait for nothing yet."""
        self._clock = clock
        self._timeouts = timeouts
        self._lost = lost
        self._silence: Silence | None = None
        self._begun = False
        self._held = False

    def sent(self) -> None:
        """A request leaves for the engine: wait for the first thing that counts."""
        self.stop()
        self._begun = False
        seconds = self._timeouts.first_content_seconds
        self._silence = Silence(
            self._clock, seconds, lambda: self._lost(_timeout("first", seconds)), repeat=False
        )

    def heard(self) -> None:
        """Bytes came. Before the answer has begun to bear content they are no reason to wait on."""
        if self._begun and self._silence is not None:
            self._silence.touch()

    def begun(self) -> None:
        """The first content came; from here on only idle time counts."""
        if self._begun:
            return
        self.stop()
        self._begun = True
        seconds = self._timeouts.idle_seconds
        self._silence = Silence(
            self._clock, seconds, lambda: self._lost(_timeout("idle", seconds)), repeat=False
        )
        if self._held:
            self._silence.hold()

    def hold(self) -> None:
        """The client's transport is paused, and so is the engine: its silence is ours."""
        self._held = True
        if self._begun and self._silence is not None:
            self._silence.hold()

    def release(self) -> None:
        """The client's transport takes bytes again."""
        self._held = False
        if self._silence is not None:
            self._silence.release()

    def stop(self) -> None:
        """Wait no more; idempotent."""
        silence, self._silence = self._silence, None
        if silence is not None:
            silence.stop()


def _timeout(which: str, seconds: float) -> Problem:
    words = {
        "first": f"The engine sent no content within {seconds:g} s.",
        "idle": f"The engine sent nothing for {seconds:g} s in the middle of its answer.",
    }
    return Problem(
        "upstream_timeout",
        504,
        words[which],
        outcome=Outcome.UPSTREAM_TIMEOUT,
        members={"reason": f"{which}_timeout" if which == "idle" else "first_content_timeout"},
    )
