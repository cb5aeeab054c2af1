"""The last quarter of an hour, in memory: what the status page draws without a Prometheus.

Time is cut into slots of `SLOT_SECONDS`; of each set of engines `SLOTS` of them are kept, with the
most that was in the engine and parked, the refusals and ends by their bounded words, and times to
first token as a sparse histogram of some hundred buckets at most. So its size is bounded by the
configuration, whatever the traffic.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from twisted_gateway.core.outcome import Outcome

SLOT_SECONDS = 10.0
SLOTS = 90
WINDOW_SLOTS = 6
"""Of how many slots a quantile is taken: in one alone there may be a single stream, or none."""

_STEP = math.log(1.1)
_LEAST_SECONDS = 0.001
_MOST_SECONDS = 100_000.0

Key = Hashable


class Recorder(Protocol):
    """What the metrics pass on of what they count."""

    def first_token(self, model: str, seconds: float) -> None:
        """The first content event of a stream came, `seconds` after the request's head."""

    def rejected(self, model: str, reason: str) -> None:
        """A request was refused."""

    def ended(self, model: str, outcome: Outcome) -> None:
        """A request has ended."""

    def answered(self, model: str, code_class: str) -> None:
        """An engine has answered, with a status of this class."""


class NoRecorder:
    """Forgets everything: nobody looks back."""

    def first_token(self, model: str, seconds: float) -> None:
        """Forget it."""

    def rejected(self, model: str, reason: str) -> None:
        """Forget it."""

    def ended(self, model: str, outcome: Outcome) -> None:
        """Forget it."""

    def answered(self, model: str, code_class: str) -> None:
        """Forget it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """One set of engines over the time that is kept, oldest slot first; None: not known.

    Attributes:
        in_engine: the most sequences that were in the engine.
        parked: the most requests that were parked.
        ttft_p50_seconds: median time to first token of the minute that ends with the slot.
        ttft_p95_seconds: 95th percentile of the same.
        refused: requests refused.
        refused_by_reason: all refusals, by reason.
        ended: all requests that ended, by outcome.
        answered: all answers of engines, by the class of their status.
    """

    in_engine: tuple[int | None, ...]
    parked: tuple[int | None, ...]
    ttft_p50_seconds: tuple[float | None, ...]
    ttft_p95_seconds: tuple[float | None, ...]
    refused: tuple[int | None, ...]
    refused_by_reason: Mapping[str, int]
    ended: Mapping[str, int]
    answered: Mapping[str, int]


@dataclass(slots=True)
class _Slot:
    """What happened in one slot; the quantiles are fixed when it is over."""

    number: int
    in_engine: int | None = None
    parked: int | None = None
    ttft: Counter[int] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    answered: Counter[str] = field(default_factory=Counter)
    quantiles: tuple[float | None, float | None] = (None, None)


class _Line:
    """The slots of one set of engines."""

    def __init__(self) -> None:
        self.slots: deque[_Slot] = deque(maxlen=SLOTS)

    def at(self, number: int) -> _Slot:
        """The slot of this number, or the latest where the clock went back a little.

        Where it was set back by more than a minute, what was noted of times that are yet to come
        is forgotten: everything would else fall into one slot until they have come again.
        """
        while self.slots and self.slots[-1].number > number + WINDOW_SLOTS:
            self.slots.pop()
        if not self.slots or self.slots[-1].number < number:
            if self.slots:
                self.slots[-1].quantiles = self.quantiles()
            self.slots.append(_Slot(number))
        return self.slots[-1]

    def quantiles(self) -> tuple[float | None, float | None]:
        """Median and 95th percentile of the window that ends with the latest slot."""
        last = self.slots[-1].number
        together: Counter[int] = Counter()
        for index in range(len(self.slots) - 1, -1, -1):
            slot = self.slots[index]
            if slot.number <= last - WINDOW_SLOTS:
                break
            together.update(slot.ttft)
        return _quantile(together, 0.5), _quantile(together, 0.95)


class History:
    """What happened lately, by sets of engines.

    Args:
        seconds: gives the time.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        """Remember nothing yet."""
        self._seconds = seconds
        self._lines: dict[Key, _Line] = {}
        self._key_of: dict[str, Key] = {}

    def watch(self, groups: Mapping[Key, Collection[str]]) -> None:
        """Remember these from here on, and forget all others.

        Args:
            groups: of each set of engines, the models that it serves.
        """
        self._lines = {key: self._lines.get(key) or _Line() for key in groups}
        self._key_of = {name: key for key, names in groups.items() for name in names}

    def gauges(self, key: Key, *, in_engine: int, parked: int) -> None:
        """How much is in the engines and parked now; of a slot the most is kept."""
        slot = self._lines[key].at(self._number())
        slot.in_engine = max(in_engine, slot.in_engine or 0)
        slot.parked = max(parked, slot.parked or 0)

    def first_token(self, model: str, seconds: float) -> None:
        """See `Recorder`."""
        slot = self._slot(model)
        if slot is not None:
            slot.ttft[_bucket(seconds)] += 1

    def rejected(self, model: str, reason: str) -> None:
        """See `Recorder`."""
        slot = self._slot(model)
        if slot is not None:
            slot.refused[reason] += 1

    def ended(self, model: str, outcome: Outcome) -> None:
        """See `Recorder`."""
        slot = self._slot(model)
        if slot is not None:
            slot.ended[outcome.value] += 1

    def answered(self, model: str, code_class: str) -> None:
        """See `Recorder`."""
        slot = self._slot(model)
        if slot is not None:
            slot.answered[code_class] += 1

    def trend(self, key: Key) -> Trend:
        """What is remembered of this set of engines, up to now; nothing of one not watched yet."""
        line = self._lines.get(key) or _Line()
        now = self._number()
        if line.slots:
            line.at(now)
            line.slots[-1].quantiles = line.quantiles()
        by_number = {slot.number: slot for slot in line.slots if slot.number > now - SLOTS}
        row = [by_number.get(number) for number in range(now - SLOTS + 1, now + 1)]
        first = next((slot.number for slot in line.slots), now + 1)
        return Trend(
            in_engine=tuple(slot.in_engine if slot else None for slot in row),
            parked=tuple(slot.parked if slot else None for slot in row),
            ttft_p50_seconds=tuple(slot.quantiles[0] if slot else None for slot in row),
            ttft_p95_seconds=tuple(slot.quantiles[1] if slot else None for slot in row),
            refused=tuple(
                slot.refused.total() if slot else None if number < first else 0
                for number, slot in enumerate(row, now - SLOTS + 1)
            ),
            refused_by_reason=_total(slot.refused for slot in by_number.values()),
            ended=_total(slot.ended for slot in by_number.values()),
            answered=_total(slot.answered for slot in by_number.values()),
        )

    def _slot(self, model: str) -> _Slot | None:
        line = self._lines.get(self._key_of.get(model))
        return None if line is None else line.at(self._number())

    def _number(self) -> int:
        return int(self._seconds() // SLOT_SECONDS)


def _total(counters: Iterable[Counter[str]]) -> dict[str, int]:
    together: Counter[str] = Counter()
    for one in counters:
        together.update(one)
    return dict(sorted(together.items()))


def _bucket(seconds: float) -> int:
    return round(math.log(min(max(seconds, _LEAST_SECONDS), _MOST_SECONDS)) / _STEP)


def _quantile(buckets: Mapping[int, int], share: float) -> float | None:
    """The value below which this share lies, within five percent; None of nothing."""
    wanted = share * sum(buckets.values())
    if not wanted:
        return None
    seen = 0
    for bucket in sorted(buckets):
        seen += buckets[bucket]
        if seen >= wanted:
            return float(f"{math.exp(bucket * _STEP):.3g}")
    raise ValueError(f"{share} is no share")
