"""Which `maxParkSeconds` and `maxQueueDepth` a run argues for.

`maxParkSeconds`: the smallest budget under which everybody whose request was served in the end
would have been served. That is the longest that one of those was kept waiting, from its first
asking until it was let in for good, rounded up; for nobody more than nine tenths of its patience,
for whoever is let in later leaves before the answer is whole. Where requests were refused because
the budget in force ran out and were never served, the run shows that it is too short, and not
what would be enough: it argues for those nine tenths.

`maxQueueDepth`: the most that were parked at once, together with those that were turned away just
then because the queue was full; shared between the gateways, rounded up to eights.

Where nothing was seen to park, a run says nothing about either.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from msgspec import Struct

from twisted_gateway.core.decision import Reason
from twisted_gateway.load.results import Ending, Request, Result, Sample, Try

PATIENCE_SHARE = 0.9
"""Of its patience, how much a client may spend parked and still get its answer."""
SILENT = "this run does not say"
_LEAST_PARKED_SECONDS = 1.0
_LEAST_PARKED_WALL_SECONDS = 0.1
_GATE = frozenset(reason.value for reason in Reason)
# How long one that the queue has no room for would have stayed, where no Retry-After says.
_TURNED_AWAY_SECONDS = 5.0


class Said(Struct, kw_only=True):
    """What a run argues for.

    Attributes:
        value: of the key; None where the run does not say.
        why: a sentence or two.
        in_force: what the gateway is configured with, in model seconds where it is a time; None
            if unknown.
        unit: of both: ` s`, or nothing.
        speed: of the run. A gateway that is to behave at that speed as it would at speed 1 has
            that fraction of a time in its configuration.
    """

    value: int | None
    why: str
    in_force: float | None = None
    unit: str = ""
    speed: float = 1.0

    @property
    def headline(self) -> str:
        """The value, in the key's unit, or that there is none."""
        return SILENT if self.value is None else self._text(self.value)

    @property
    def force(self) -> str:
        """What is in force, in the key's unit; empty if unknown."""
        return "" if self.in_force is None else self._text(self.in_force)

    def _text(self, value: float) -> str:
        if not self.unit or self.speed == 1:
            return f"{value:g}{self.unit}"
        return f"{value:g} model seconds, {value / self.speed:g} s on the wall"


class Advice(Struct, kw_only=True):
    """What a run argues for, key by key."""

    max_park_seconds: Said
    max_queue_depth: Said


def advise(result: Result) -> Advice:
    """Read a run; see the module."""
    least = max(_LEAST_PARKED_SECONDS, _LEAST_PARKED_WALL_SECONDS * result.settings.speed)
    past_gate = result.settings.direct_to is not None
    requests = [one for one in result.requests if not (one.direct and past_gate)]
    if not _gated(requests, result):
        requests = []
    park = _park(requests, result, least)
    depth = _depth(requests, result, least)
    park.unit, park.speed = " s", result.settings.speed
    gate = result.gate
    if gate is not None:
        if gate.max_park_seconds is not None:
            park.in_force = gate.max_park_seconds * result.settings.speed
        depth.in_force = gate.max_queue_depth
    return Advice(max_park_seconds=park, max_queue_depth=depth)


def _gated(requests: Sequence[Request], result: Result) -> bool:
    """Whether anything shows a gate at work; else a late head is the engine's own affair."""
    if result.places or any(one.reason in _GATE for each in requests for one in each.tries):
        return True
    return any(one.parked for one in result.samples)


def sentence(key: str, said: Said) -> str:
    """Say it in one line."""
    force = f" (in force: {said.force})" if said.force else ""
    return f"{key}: {said.headline}{force}: {said.why}"


def _park(requests: Sequence[Request], result: Result, least: float) -> Said:
    short = [one for one in requests if _ran_out(one)]
    if short:
        most = max(one.patience for one in short) * PATIENCE_SHARE
        kept = max(one.tries[-1].end - one.tries[-1].at for one in short)
        if kept < most - 1:
            return Said(
                value=math.floor(most),
                why=f"{len(short)} whose budget ran out, after {kept:.0f} s at most, were never "
                f"served; they would have waited longer. It takes a run with this value to see "
                "whether less is enough.",
            )
    served = [
        (min(one.waited, one.patience * PATIENCE_SHARE), one.patience * PATIENCE_SHARE)
        for one in requests
        if one.ending is Ending.COMPLETED and one.waited is not None and one.waited > least
    ]
    if served:
        longest, bound = max(served)
        return Said(
            value=max(1, min(_rounded(longest), math.floor(bound))),
            why=f"of those that were served in the end, the longest wait was {longest:.0f} s "
            f"({len(served)} waited at all).",
        )
    longest = max((one.longest_wait or 0.0 for one in result.samples), default=0.0)
    if longest > least:
        most = max((one.patience for one in requests), default=math.inf) * PATIENCE_SHARE
        return Said(
            value=max(1, min(_rounded(longest), math.floor(most))),
            why=f"the longest wait on the gateway's status page was {longest:.0f} s, whatever "
            "became of it; no client was told its place.",
        )
    return Said(value=None, why="nobody was seen to park.")


def _depth(requests: Sequence[Request], result: Result, least: float) -> Said:
    tries = [one for request in requests for one in request.tries]
    parked = [
        (one.at, one.at + one.kept) for one in tries if one.kept is not None and one.kept > least
    ]
    away = [span for request in requests for span in _turned_away(request.tries)]
    seen = max(peak(parked + away), _sampled(result.samples, away))
    if not seen:
        return Said(value=None, why="nobody was seen to park.")
    gateways = len(result.settings.to)
    deepest = max((one.deepest or 0 for one in result.samples), default=0)
    needed = max(math.ceil(seen / gateways), deepest)
    shared = f", {needed} of them at one of {gateways} gateways" if gateways > 1 else ""
    turned = f", {peak(away)} of whom at most were turned away at once" if away else ""
    return Said(
        value=8 * math.ceil(needed / 8),
        why=f"at most {seen} wanted to park at once{shared}{turned}.",
    )


def peak(spans: Iterable[tuple[float, float]]) -> int:
    """Give how many of these spans of time overlap at most; one that ends makes room first."""
    most = now = 0
    real = [(begin, end) for begin, end in spans if end > begin]
    for _, change in sorted([(begin, 1) for begin, _ in real] + [(end, -1) for _, end in real]):
        now += change
        most = max(most, now)
    return most


def _ran_out(request: Request) -> bool:
    last = request.tries[-1] if request.tries else None
    return (
        last is not None
        and request.ending is Ending.REFUSED
        and last.reason == Reason.PARK_TIMEOUT.value
    )


def _turned_away(tries: Sequence[Try]) -> Iterable[tuple[float, float]]:
    """When a client would have been parked, had the queue not been full."""
    for index, one in enumerate(tries):
        if one.reason == Reason.QUEUE_FULL.value:
            wait = _TURNED_AWAY_SECONDS if one.retry_after is None else one.retry_after
            yield one.end, tries[index + 1].at if index + 1 < len(tries) else one.end + wait


def _sampled(samples: Sequence[Sample], away: Sequence[tuple[float, float]]) -> int:
    """The most that the gateways had parked, with those turned away at that moment."""
    return max(
        (
            one.parked + sum(begin <= one.at < end for begin, end in away)
            for one in samples
            if one.parked
        ),
        default=0,
    )


def _rounded(seconds: float) -> int:
    step = 5 if seconds < 60 else 10
    return step * math.ceil(seconds / step)
