"""Simulated time: what is to happen, in order."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any


class Event:
    """Something that is to happen, unless it is cancelled."""

    __slots__ = ("arguments", "at", "callback")

    def __init__(self, at: float, callback: Callable[..., None], arguments: tuple[Any, ...]):
        self.at = at
        self.callback: Callable[..., None] | None = callback
        self.arguments = arguments

    def cancel(self) -> None:
        """See that it does not happen."""
        self.callback = None


class Timeline:
    """Events by their time, in seconds; those of one time in the order in which they were made.

    Attributes:
        now: the time.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Event]] = []
        self._made = 0

    def at(self, time: float, callback: Callable[..., None], *arguments: Any) -> Event:
        """Call back at a time."""
        event = Event(time, callback, arguments)
        self._made += 1
        heapq.heappush(self._heap, (time, self._made, event))
        return event

    def after(self, delay: float, callback: Callable[..., None], *arguments: Any) -> Event:
        """Call back after so many seconds."""
        return self.at(self.now + delay, callback, *arguments)

    def run(self, until: float, over: Callable[[], bool]) -> None:
        """Let time pass to `until`, or until `over` is true after an event."""
        heap = self._heap
        pop = heapq.heappop
        while heap and heap[0][0] <= until:
            time, _, event = pop(heap)
            callback = event.callback
            if callback is not None:
                self.now = time
                callback(*event.arguments)
                if over():
                    return
        self.now = until


def cancel(event: Event | None) -> None:
    """Cancel an event, if there is one."""
    if event is not None:
        event.callback = None
