"""Six workloads: who asks for what, and when, drawn at random.

    W1  two prompts of 65,000 tokens and fifteen of 8,000 within a second
    W2  1.4 requests a minute for three hours, with a heavy tail of lengths
    W3  bursts of thirty agents that share a prefix, beside chats
    W4  many short chats, as fast as the engine can serve them
    W5  one tenant that floods beside three that do not
    W6  chats at half that rate and bursts of agents, timed to meet faults

They are made for an engine of 4 sequences that reads 525 tokens a second of a prompt alone. The
same state of the random generator means the same workload, whatever it is drawn for.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Protocol

from twisted_gateway.load.arrivals import MAX_SECONDS, MAX_TOKENS, Arrival
from twisted_gateway.load.drawing import Drawing

LONG_TOKENS = 16_384
"""A prompt that is longer is a long one in reports."""
_MOST = 1_000_000.0
"""Of an option that is neither a time, nor a length, nor a probability."""
_CHATS_PER_SECOND = 0.24
"""Of W4's kind, about what the engine serves."""
_LAST_ENDS_SECONDS = 60.0
"""After the patience of the last to come."""


def workload(name: str, rng: random.Random, **options: float) -> list[Arrival]:
    """Draw a workload.

    Args:
        name: one of `NAMES`.
        rng: where all randomness comes from.
        **options: fields of the workload's class in this module.

    Returns:
        The arrivals, by time.

    Raises:
        ValueError: there is no such workload, it has no such option, or it would come to too many
            clients, too long ones, or too late ones.
    """
    return [arrival for arrival, _ in estimated(name, rng, **options)]


def estimated(name: str, rng: random.Random, **options: float) -> list[tuple[Arrival, int]]:
    """Draw a workload, and with each arrival how many prompt tokens a gateway takes it for.

    Arguments, order and errors are those of `workload`, which draws the same numbers.
    """
    drawing = Drawing(rng)
    _made(name, options).draw(drawing)
    return sorted(drawing.drawn, key=lambda pair: pair[0].at)


def duration(name: str, **options: float) -> float:
    """After how many seconds every client of a workload has its answer or has given up.

    Arguments and errors are those of `workload`.
    """
    return _made(name, options).duration_seconds


class Workload(Protocol):
    """What the classes below have in common."""

    @property
    def duration_seconds(self) -> float:
        """When its last client has ended."""

    def draw(self, drawing: Drawing) -> None:
        """Draw its clients."""


@dataclass(frozen=True, kw_only=True)
class LoadTest:
    """W1: two long prompts among fifteen of 8,000 tokens, all within one second."""

    direct: float = 0.0
    patience_seconds: float = 600.0
    within_seconds: float = 1.0

    @property
    def duration_seconds(self) -> float:
        """When its last client has ended, with time to see the engine empty."""
        return 9 + self.within_seconds + self.patience_seconds + 800

    def draw(self, drawing: Drawing) -> None:
        """Draw its clients."""
        rng = drawing.rng
        prompts = [65_000] * 2 + [8_000] * 15
        rng.shuffle(prompts)
        for prompt in prompts:
            drawing.client(
                10 + rng.random() * self.within_seconds,
                "t",
                prompt * rng.uniform(0.98, 1.02),
                rng.randint(200, 400),
                kind="long" if prompt > LONG_TOKENS else "short",
                patience_seconds=self.patience_seconds,
                direct=self.direct,
            )


@dataclass(frozen=True, kw_only=True)
class HeavyTail:
    """W2: a working day's traffic; most prompts are short, a few are very long."""

    direct: float = 0.1
    patience_seconds: float = 600.0
    per_minute: float = 1.4
    hours: float = 3.0

    @property
    def duration_seconds(self) -> float:
        """When its last client has ended."""
        return self.hours * 3600 + self.patience_seconds + _LAST_ENDS_SECONDS

    def draw(self, drawing: Drawing) -> None:
        """Draw its clients."""
        rng = drawing.rng
        for at in drawing.times(self.per_minute / 60, self.hours * 3600):
            prompt = min(100_000, max(100, rng.lognormvariate(math.log(3000), 1.3)))
            drawing.client(
                at,
                f"t{rng.randint(0, 3)}",
                prompt,
                min(2000, rng.lognormvariate(math.log(200), 0.7)),
                kind="long" if prompt > LONG_TOKENS else "short",
                patience_seconds=self.patience_seconds,
                direct=self.direct,
                nonstream=0.1,
            )


@dataclass(frozen=True, kw_only=True)
class Agents:
    """W3: every 400 s thirty agents begin at once on one prefix, while people chat."""

    direct: float = 0.1
    patience_seconds: float = 600.0
    scale: float = 1
    agents: float = 30
    every_seconds: float = 400.0
    bursts: float = 8
    prompt_tokens: float = 8000
    prefix_tokens: float = 6000
    answer_tokens: float = 300
    chats_per_minute: float = 1.0

    @property
    def duration_seconds(self) -> float:
        """When its last client has ended."""
        return self.bursts * self.every_seconds + self.patience_seconds + _LAST_ENDS_SECONDS

    def draw(self, drawing: Drawing) -> None:
        """Draw its clients."""
        rng = drawing.rng
        for burst in range(int(self.bursts)):
            begins = 20 + burst * self.every_seconds + rng.uniform(0, 20)
            for _ in range(int(self.agents * self.scale)):
                drawing.client(
                    begins + rng.random(),
                    f"agent{burst % 3}",
                    self.prompt_tokens * rng.uniform(0.95, 1.05),
                    self.answer_tokens * rng.uniform(0.5, 1.5),
                    group=f"g{burst}",
                    prefix_tokens=int(self.prefix_tokens),
                    kind="agent",
                    patience_seconds=self.patience_seconds,
                    direct=self.direct,
                )
        per_second = self.chats_per_minute * self.scale / 60
        for at in drawing.times(per_second, self.bursts * self.every_seconds):
            drawing.client(
                at,
                "chat",
                rng.uniform(200, 1000),
                rng.uniform(100, 300),
                kind="chat",
                patience_seconds=self.patience_seconds,
                direct=self.direct,
            )


@dataclass(frozen=True, kw_only=True)
class Chats:
    """W4: short chats at `load` times what the engine serves."""

    direct: float = 0.1
    patience_seconds: float = 600.0
    load: float = 1.0
    per_second: float = _CHATS_PER_SECOND
    seconds: float = 3000.0
    prompt_tokens: float = 500
    answer_tokens: float = 200

    @property
    def duration_seconds(self) -> float:
        """When its last client has ended."""
        return self.seconds + self.patience_seconds + _LAST_ENDS_SECONDS

    def draw(self, drawing: Drawing) -> None:
        """Draw its clients."""
        rng = drawing.rng
        for at in drawing.times(self.per_second * self.load, self.seconds):
            drawing.client(
                at,
                f"t{rng.randint(0, 3)}",
                rng.lognormvariate(math.log(self.prompt_tokens * 0.9), 0.5),
                rng.lognormvariate(math.log(self.answer_tokens * 0.9), 0.5),
                kind="chat",
                patience_seconds=self.patience_seconds,
                direct=self.direct,
            )


@dataclass(frozen=True, kw_only=True)
class Flood:
    """W5: one tenant asks for more than the engine has; three others ask now and then."""

    direct: float = 0.0
    patience_seconds: float = 600.0
    seconds: float = 3000.0
    flood_per_minute: float = 12.0

    @property
    def duration_seconds(self) -> float:
        """When its last client has ended."""
        return self.seconds + self.patience_seconds + _LAST_ENDS_SECONDS

    def draw(self, drawing: Drawing) -> None:
        """Draw its clients."""
        rng = drawing.rng
        tenants = [("abuser", self.flood_per_minute, 2000, 300)]
        tenants += [(name, 1.5, 1000, 150) for name in ("i1", "i2", "i3")]
        for tenant, per_minute, prompt, answer in tenants:
            for at in drawing.times(per_minute / 60, self.seconds):
                drawing.client(
                    at,
                    tenant,
                    prompt * rng.lognormvariate(0, 0.3),
                    answer * rng.lognormvariate(0, 0.3),
                    kind="flood" if tenant == "abuser" else "interactive",
                    patience_seconds=self.patience_seconds,
                    direct=self.direct,
                )


@dataclass(frozen=True, kw_only=True)
class Faults:
    """W6: chats at half load, and a burst of sixteen agents at each of four faults.

    The faults themselves are up to who plays it: metrics that are down from 600 s to 630 s, an
    engine that restarts at 1200 s, metrics that are slow from 1800 s to 1860 s, and a gateway
    that dies at 2400 s.
    """

    direct: float = 0.1
    patience_seconds: float = 600.0
    per_second: float = _CHATS_PER_SECOND

    @property
    def duration_seconds(self) -> float:
        """When its last client has ended."""
        return 3000 + self.patience_seconds + _LAST_ENDS_SECONDS

    def draw(self, drawing: Drawing) -> None:
        """Draw its clients."""
        rng = drawing.rng
        Chats(
            direct=self.direct,
            patience_seconds=self.patience_seconds,
            load=0.5,
            per_second=self.per_second,
        ).draw(drawing)
        for begins in (595, 1195, 1805, 2395):
            for _ in range(16):
                drawing.client(
                    begins + rng.random() * 2,
                    "burst",
                    8000,
                    250 * rng.uniform(0.5, 1.5),
                    group=f"g{begins}",
                    prefix_tokens=6000,
                    kind="agent",
                    patience_seconds=self.patience_seconds,
                    direct=self.direct,
                )


_WORKLOADS: dict[str, Callable[..., Workload]] = {
    "W1": LoadTest,
    "W2": HeavyTail,
    "W3": Agents,
    "W4": Chats,
    "W5": Flood,
    "W6": Faults,
}
NAMES = tuple(_WORKLOADS)
"""Of the workloads, in their order."""


def _made(name: str, options: dict[str, float]) -> Workload:
    if name not in _WORKLOADS:
        raise ValueError(f"there is no workload {name!r}; there are {', '.join(NAMES)}")
    kind: Any = _WORKLOADS[name]
    known = [one.name for one in fields(kind)]
    unknown = [option for option in options if option not in known]
    if unknown:
        raise ValueError(
            f"{name} has no option {', '.join(unknown)}; it has {', '.join(sorted(known))}"
        )
    for option, value in options.items():
        least, most = _bounds(option)
        # NaN is in no range.
        if not least <= value <= most:
            raise ValueError(f"{option}: expected a number from {least:g} to {most:,.0f}")
    return _WORKLOADS[name](**options)


def _bounds(option: str) -> tuple[float, float]:
    """Give the least and the most that an option may be, which its name says."""
    if option == "direct":
        return 0.0, 1.0
    if option.endswith("_tokens"):
        return 1.0, float(MAX_TOKENS)
    if option == "seconds" or option.endswith("_seconds"):
        return 0.0, MAX_SECONDS
    return 0.0, _MOST
