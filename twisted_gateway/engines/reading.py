"""What can be read of an engine's gauges, and the arithmetic that all kinds share.

A kind is a `Gauges` value: what its gauges are called and how its ranks are told apart. Whatever
is missing, NaN, negative, infinite, garbled, or not there for every rank is unknown (None), never
zero: a sum over the ranks that happen to be readable would understate what the engine does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite, nan
from typing import Final, TypeAlias

from twisted_gateway.engines.exposition import Series

_MOST_REQUESTS: Final = 1_000_000_000
_MOST_TOKENS: Final = 1_000_000_000_000
_MOST_USAGE: Final = 1.5
"""Engines over-allocate a little, so a share slightly above 1 is real and means full; more than
half above is no share at all (a percentage, a count) and unknown."""

_MODELS_NAMED: Final = 5

_Ranks: TypeAlias = dict[Hashable, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One page, read as one kind's gauges. None means unknown.

    Attributes:
        running: sequences in the batch, over all ranks; None as well for kinds without it.
        waiting: requests in the engine's queue, over all ranks.
        kv_usage: share of the KV cache in use, 0 to 1, of the fullest rank.
        kv_tokens: tokens that the KV caches of all ranks hold.
        prefix_hit_tokens: the counter of prefix-cache hits, in tokens, over all ranks.
        readable: whether the kind's busy gauges (running and waiting) could be read; where they
            could not, nothing else is told.
        fingerprint: every value that was read, progress counters among them; two equal ones
            mean that nothing on the page moved.
        problems: what could not be read of what the kind publishes, in words; empty when all
            is well.
    """

    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None
    kv_tokens: int | None = None
    prefix_hit_tokens: float | None = None
    readable: bool = False
    fingerprint: frozenset[object] = frozenset()
    problems: tuple[str, ...] = ()


def one_rank(labels: Mapping[str, str]) -> Hashable:
    """Tell no ranks apart: the engine is one process with one scheduler."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """What one kind of engine publishes, and under which names.

    Attributes:
        prefix: how the kind's metric names begin; serves to recognise another kind's page.
        waiting: the gauge of queued requests.
        running: the gauge of running sequences; None when the kind has none.
        usage: names of the gauge of KV usage, newest first; the first one published counts.
        usage_always: whether a page without that gauge lacks something.
        hits: the counter of prefix-cache hits in tokens.
        progress: counters that move when the engine does, for `Reading.fingerprint`.
        size: the series that `kv_tokens` reads.
        kv_tokens: a series of `size` -> tokens that this rank's KV cache holds.
        model_labels: labels that name the model, of which the first one present counts; empty
            when the kind has none.
        rank: labels of a series -> which data-parallel rank it belongs to.
        mirrored: whether several series of one rank say the same (the largest then counts);
            else a second series of a rank makes the value unknown.
        keep: which series count at all.
    """

    prefix: str
    waiting: str
    running: str | None = None
    usage: tuple[str, ...] = ()
    usage_always: bool = False
    hits: str | None = None
    progress: tuple[str, ...] = ()
    size: str | None = None
    kv_tokens: Callable[[Series], float] = field(default=lambda series: series.value)
    model_labels: tuple[str, ...] = ()
    rank: Callable[[Mapping[str, str]], Hashable] = one_rank
    mirrored: bool = False
    keep: Callable[[Mapping[str, str]], bool] = field(default=lambda labels: True)

    @property
    def wanted(self) -> frozenset[str]:
        """Every metric name that is read of a page."""
        single = [name for name in (self.running, self.hits, self.size) if name is not None]
        return frozenset([self.waiting, *single, *self.usage, *self.progress])

    def read(self, page: Sequence[Series], names: Collection[str]) -> Reading:
        """Read the gauges of one model out of a page's series.

        Args:
            page: the page's series whose names are `wanted`.
            names: what the engine may call the model: `upstreamModel`, the model's name.

        Returns:
            The reading; never raises for anything that stands on a page.
        """
        series, problem = self._of_model([one for one in page if self.keep(one.labels)], names)
        if problem:
            return Reading(problems=(problem,))
        problems: list[str] = []
        waiting = self._ranks(series, self.waiting)
        running = waiting if self.running is None else self._ranks(series, self.running)
        waiting_total = _total(self.waiting, waiting, running, problems)
        running_total = None
        if self.running is not None:
            running_total = _total(self.running, running, waiting, problems)
        if problems:
            return Reading(problems=tuple(problems))
        ranks = frozenset(waiting)
        return Reading(
            running=running_total,
            waiting=waiting_total,
            kv_usage=self._usage(series, ranks, problems),
            kv_tokens=self._tokens(series, ranks),
            prefix_hit_tokens=self._hits(series, ranks),
            readable=True,
            fingerprint=_fingerprint(series),
            problems=tuple(problems),
        )

    def _usage(
        self, series: list[Series], ranks: frozenset[Hashable], problems: list[str]
    ) -> float | None:
        """The share of the fullest rank."""
        for name in self.usage:
            values = self._ranks(series, name)
            if not values:
                continue
            if values.keys() != ranks:
                problems.append(f"{name} is not published for the same ranks as {self.waiting}")
                return None
            if not all(0 <= value <= _MOST_USAGE for value in values.values()):
                problems.append(f"{name} is no share of a cache")
                return None
            return min(1.0, max(values.values()))
        if self.usage_always:
            problems.append(f"the page has no {self.usage[0]}")
        return None

    def _tokens(self, series: list[Series], ranks: frozenset[Hashable]) -> int | None:
        """The sum over the ranks; without it only the threshold on usage counts, so no problem."""
        sizes = [
            Series(one.name, one.labels, self.kv_tokens(one), one.garbled)
            for one in series
            if one.name == self.size
        ]
        values = {} if self.size is None else self._ranks(sizes, self.size)
        if not values or values.keys() != ranks:
            return None
        if not all(0 < value <= _MOST_TOKENS for value in values.values()):
            return None
        return int(sum(values.values()))

    def _hits(self, series: list[Series], ranks: frozenset[Hashable]) -> float | None:
        """The sum over the ranks and over whatever else the counter is split by.

        A page that has only some of the ranks (it broke off) must not look like an engine that
        started again; a counter that is of no rank at all is of the whole engine.
        """
        values: _Ranks = {}
        for one in series:
            if one.name == self.hits:
                key = self.rank(one.labels)
                values[key] = values.get(key, 0.0) + one.value
        if not values or values.keys() not in (ranks, {self.rank({})}):
            return None
        total = sum(values.values())
        return total if isfinite(total) and min(values.values()) >= 0 else None

    def _ranks(self, series: list[Series], name: str) -> _Ranks:
        """Rank -> value; NaN where a rank's value cannot be told."""
        values: _Ranks = {}
        for one in series:
            if one.name != name:
                continue
            key = None if one.garbled else self.rank(one.labels)
            if key not in values:
                values[key] = one.value
            elif self.mirrored and isfinite(one.value) and isfinite(values[key]):
                values[key] = max(values[key], one.value)
            else:
                values[key] = nan
        return values

    def _of_model(self, series: list[Series], names: Collection[str]) -> tuple[list[Series], str]:
        """Choose the series that are the model's own.

        Those whose model label is one of `names`; if there is none and the page has one model,
        that one; a page without any model label is taken as it is. Series without the label
        (`vllm:cache_config_info`) belong to the one model of a page, or to nobody.

        Returns:
            The series chosen, and what is wrong in words, else "".
        """
        published: set[str] = set()
        for one in series:
            published.update(self._models(one))
        chosen = published.intersection(names)
        if not chosen and len(published) > 1:
            shown = sorted(published)
            more = "" if len(shown) <= _MODELS_NAMED else f" and {len(shown) - _MODELS_NAMED} more"
            listed = ", ".join(repr(name[:80]) for name in shown[:_MODELS_NAMED])
            return [], f"the page is of several models ({listed}{more}), none of which is asked for"
        chosen = chosen or published
        return [
            one
            for one in series
            if one.garbled or self._belongs(self._models(one), chosen, alone=len(published) <= 1)
        ], ""

    def _models(self, one: Series) -> set[str]:
        present = [one.labels[label] for label in self.model_labels if label in one.labels]
        return set(present[:1])

    @staticmethod
    def _belongs(models: set[str], chosen: set[str], *, alone: bool) -> bool:
        return not models.isdisjoint(chosen) if models else alone


def _total(name: str, values: _Ranks, others: _Ranks, problems: list[str]) -> int | None:
    """Add up one busy gauge over the ranks, or say why that cannot be done."""
    if not values:
        problems.append(f"the page has no {name}")
    elif others and values.keys() != others.keys():
        problems.append(f"{name} is not published for every rank")
    elif not all(_is_count(value) for value in values.values()):
        problems.append(f"{name} is no count, or stands there twice for one rank")
    else:
        return int(sum(values.values()))
    return None


def _is_count(value: float) -> bool:
    return 0 <= value <= _MOST_REQUESTS and value == int(value)


def _fingerprint(series: list[Series]) -> frozenset[object]:
    # repr, for NaN is not equal to itself; a set, for some exporters shuffle their series.
    return frozenset((one.name, frozenset(one.labels.items()), repr(one.value)) for one in series)
