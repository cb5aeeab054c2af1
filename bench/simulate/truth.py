"""The truth about what is in an engine, which no gauge says in time."""

from __future__ import annotations

from typing import Protocol

from bench.simulate.timeline import Timeline


class Watched(Protocol):
    """An engine, as far as the truth goes.

    Attributes:
        timeline: has the time.
        held: requests in it.
        held_gated: those of them that came through a gateway.
    """

    timeline: Timeline
    held: int
    held_gated: int


class Truth:
    """What really happened, over a whole run.

    Attributes:
        parked: requests parked in all gateways now.
        most_over: the most requests in the engine at once, less S; 0 where there was room for all.
        most_over_gated: the same of those that came through gateways.
        prefilled_tokens: prompt tokens computed.
        wasted_tokens: of them, and of those decoded, what was thrown away.
        preemptions: how often a request started over.
        idle_seconds: places left free while as many requests were parked, times seconds.
        parked_seconds: how long anything was parked.
        queued_seconds: requests in the engine beyond S, times seconds.
    """

    def __init__(self, sequences: int) -> None:
        self._sequences = sequences
        self._last = 0.0
        self.parked = 0
        self.most_over = self.most_over_gated = 0
        self.prefilled_tokens = self.wasted_tokens = self.preemptions = 0
        self.idle_seconds = self.parked_seconds = self.queued_seconds = 0.0

    def note(self, engine: Watched) -> None:
        """Account for the time since the last note; called before anything changes."""
        seconds = engine.timeline.now - self._last
        held = engine.held
        if seconds > 0:
            self._last = engine.timeline.now
            free = self._sequences - held
            if free < 0:
                self.queued_seconds -= seconds * free
            if self.parked:
                self.parked_seconds += seconds
                self.idle_seconds += seconds * max(0, min(free, self.parked))
        self.most_over = max(self.most_over, held - self._sequences)
        self.most_over_gated = max(self.most_over_gated, engine.held_gated - self._sequences)
