"""How long it will take: what is parked, by the pace at which the engines have served lately."""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate

from twisted_gateway.core.line import Line, Rank
from twisted_gateway.core.ticket import Ticket

PACE_SECONDS = 120.0
"""Over how long the pace is taken; also what the learned rates weigh beside it."""
ENDS_COUNTED = 16
FRESH_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a ticket stands.

    Attributes:
        position: in the order of service, from 1.
        eta_seconds: until it is sent; None where nothing is known to tell it by.
    """

    position: int
    eta_seconds: float | None


class Pace:
    """Engine time served per second, while somebody waited for it."""

    def __init__(self) -> None:
        """Nothing has been served."""
        self._work = 0.0
        self._seconds = 0.0
        self._at: float | None = None
        self._ends: deque[float] = deque(maxlen=ENDS_COUNTED)

    def pass_time(self, now: float, *, waiting: bool) -> None:
        """Time has passed, during which somebody was waiting or nobody."""
        if self._at is not None and now > self._at and waiting:
            elapsed = now - self._at
            kept = math.exp(-elapsed / PACE_SECONDS)
            self._work *= kept
            self._seconds = self._seconds * kept + elapsed
        self._at = now

    def ended(self, cost_seconds: float, now: float, *, waiting: bool) -> None:
        """A ticket has ended, and its place is free."""
        self._ends.append(now)
        if waiting:
            self._work += cost_seconds

    def speed(self, expected: float | None) -> float | None:
        """Seconds of engine time served in a second.

        Args:
            expected: what it should be by the learned rates; None where they are not learned.
        """
        work, seconds = self._work, self._seconds
        if expected is not None:
            work += expected * PACE_SECONDS
            seconds += PACE_SECONDS
        return work / seconds if work > 0 and seconds > 0 else None

    def place_seconds(self, now: float) -> float | None:
        """How long it takes, on average, until a place is free; None before two have been lately.

        What ended before an idle time tells nothing: only the last `PACE_SECONDS` count.
        """
        while self._ends and self._ends[0] <= now - PACE_SECONDS:
            self._ends.popleft()
        if len(self._ends) < 2:
            return None
        return (now - self._ends[0]) / len(self._ends)


class Outlook:
    """The order of service at one moment, and how long it takes to come to each place in it."""

    def __init__(
        self,
        line: Line,
        now: float,
        *,
        ends_seconds: Iterable[float] = (0.0,),
        speed: float | None = None,
    ) -> None:
        """Put in order who stands in line.

        Args:
            line: who is parked.
            now: the time.
            ends_seconds: until each of those in an engine is done, at least one of them.
            speed: engine time that is served in a second; None for unknown.
        """
        self._ranked = ranked = sorted(line.ranks(now))
        self.at = now
        self._line = line
        self._places = {entry[2]: index for index, entry in enumerate(ranked)}
        self._ahead: list[float] | None = None
        if speed is not None:
            ends = sorted(ends_seconds)
            times = (entry[2].cost_seconds / speed for entry in ranked)
            self._ahead = list(accumulate(times, initial=ends[0]))
            # Who is among the first has a place by then at the latest.
            for place, (end, ahead) in enumerate(zip(ends, self._ahead, strict=False)):
                self._ahead[place] = min(end, ahead)

    def in_order(self, held: Iterable[Ticket]) -> Iterator[Ticket]:
        """All in the order of service, with those among them that do not stand in line."""
        others = sorted((*self._rank(ticket), ticket) for ticket in held)
        for entry in heapq.merge(self._ranked, others) if others else self._ranked:
            yield entry[2]

    def standing(self, ticket: Ticket, now: float) -> Standing:
        """Where a ticket stands, or would stand, in line."""
        place = self._places.get(ticket)
        if place is None:
            place = bisect_left(self._ranked, self._rank(ticket), key=_rank_alone)
        eta = None
        if self._ahead is not None:
            eta = max(0.0, self._ahead[place] - (now - self.at))
        return Standing(position=place + 1, eta_seconds=eta)

    def _rank(self, ticket: Ticket) -> tuple[Rank, int]:
        return self._line.rank(ticket, self.at), ticket.sequence


def _rank_alone(entry: tuple[Rank, int, Ticket]) -> tuple[Rank, int]:
    return entry[:2]
