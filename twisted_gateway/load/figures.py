"""What a run comes to: figures of all, of each kind and of each tenant."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence

from msgspec import Struct

from twisted_gateway.load.results import Ending, Request, Result

MAX_TENANTS = 20
"""How many tenants have a row of their own; the others, those that ask least, share one."""
MAX_REASONS = 30
"""How many reasons are told apart."""


class Row(Struct, kw_only=True):
    """The figures of some requests. Times are model seconds; None where nobody got that far.

    Attributes:
        interrupted: cut because the run was ended early.
        ttft_p50: to the first content of streams that completed.
        ttft_p95: of the same.
        ttft_all_p95: of all streams, where one without an answer counts with all its patience.
        whole_p50: to the whole answer of requests that completed.
        whole_p95: of the same.
        tokens_per_second: of completed answers, over the whole run.
    """

    name: str
    asked: int
    completed: int
    refused: int
    failed: int
    gave_up: int
    interrupted: int
    tries: int
    ttft_p50: float | None
    ttft_p95: float | None
    ttft_all_p95: float | None
    whole_p50: float | None
    whole_p95: float | None
    tokens_per_second: float

    @property
    def completed_percent(self) -> float | None:
        """Of those that were not interrupted; None where all were."""
        counted = self.asked - self.interrupted
        return 100 * self.completed / counted if counted else None


class Summary(Struct, kw_only=True):
    """The figures of a run.

    Attributes:
        reasons: why tries were refused or failed, the most frequent first.
        refusals: tries that were refused.
        wasted_tokens: of prompts and answers of tries that had first content and came to nothing:
            the least that the engine has worked in vain. What the end of the run cut is not
            among them: it might have come to something.
        cut_tokens: the same of tries that were cut because the run was ended early.
        not_come: clients whose time had not come when the run was ended early.
        most_parked: at once, by the gateways' account or by what clients were told.
        most_in_engine: at once, by the gateways' account.
        most_truly: at once, by a simulated engine's own account.
        eta_error: the median of how far the first told `eta` was off, in model seconds; positive
            where it took longer.
    """

    all: Row
    kinds: list[Row]
    tenants: list[Row]
    reasons: dict[str, int]
    refusals: int
    wasted_tokens: int
    cut_tokens: int
    not_come: int
    most_parked: int | None
    most_in_engine: int | None
    most_truly: int | None
    eta_error: float | None


def summarize(result: Result) -> Summary:
    """Work the figures out."""
    asked = [one for one in result.requests if one.tries]
    tries = [one for request in asked for one in request.tries]
    reasons = Counter(one.reason for one in tries if one.ending in (Ending.REFUSED, Ending.FAILED))
    return Summary(
        all=_row("all", asked, result.took),
        kinds=_rows(asked, lambda request: request.kind, result.took),
        tenants=_rows(asked, lambda request: request.tenant, result.took),
        reasons=dict(reasons.most_common(MAX_REASONS)),
        refusals=sum(one.ending is Ending.REFUSED for one in tries),
        wasted_tokens=_worked(asked, {Ending.REFUSED, Ending.FAILED, Ending.GAVE_UP}),
        cut_tokens=_worked(asked, {Ending.INTERRUPTED}),
        not_come=len(result.requests) - len(asked),
        most_parked=_most(
            [one.parked for one in result.samples] + [one.held or None for one in result.samples]
        ),
        most_in_engine=_most(one.in_engine for one in result.samples),
        most_truly=_most(one.truth for one in result.samples),
        eta_error=quantile(list(_eta_errors(result)), 0.5),
    )


def quantile(values: Sequence[float], share: float) -> float | None:
    """Give the smallest value that so large a share of all do not exceed; None for no values."""
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def _rows(requests: Iterable[Request], name: Callable[[Request], str], took: float) -> list[Row]:
    groups: dict[str, list[Request]] = {}
    for request in requests:
        groups.setdefault(name(request), []).append(request)
    by_size = sorted(groups, key=lambda each: (-len(groups[each]), each))
    rows = [_row(each, groups[each], took) for each in sorted(by_size[:MAX_TENANTS])]
    rest = [request for each in by_size[MAX_TENANTS:] for request in groups[each]]
    if rest:
        rows.append(_row(f"{len(by_size) - MAX_TENANTS} others", rest, took))
    return rows


def _row(name: str, requests: Sequence[Request], took: float) -> Row:
    endings = Counter(one.ending for one in requests)
    done = [one for one in requests if one.ending is Ending.COMPLETED]
    ttfts = [one.ttft for one in done if one.ttft is not None]
    wholes = [one.whole for one in done if one.whole is not None]
    lost = [
        one.patience
        for one in requests
        if one.stream and one.ending not in (Ending.COMPLETED, Ending.INTERRUPTED)
    ]
    return Row(
        name=name,
        asked=len(requests),
        completed=len(done),
        refused=endings[Ending.REFUSED],
        failed=endings[Ending.FAILED],
        gave_up=endings[Ending.GAVE_UP],
        interrupted=endings[Ending.INTERRUPTED],
        tries=sum(len(one.tries) for one in requests),
        ttft_p50=quantile(ttfts, 0.5),
        ttft_p95=quantile(ttfts, 0.95),
        ttft_all_p95=quantile(ttfts + lost, 0.95),
        whole_p50=quantile(wholes, 0.5),
        whole_p95=quantile(wholes, 0.95),
        tokens_per_second=sum(one.tries[-1].tokens for one in done) / took if took else 0.0,
    )


def _worked(requests: Iterable[Request], endings: Container[Ending]) -> int:
    """How many tokens the engine has worked at least on tries that had content and ended so."""
    return sum(
        request.prompt_tokens + one.tokens
        for request in requests
        for one in request.tries
        if one.content is not None and one.ending in endings
    )


def _eta_errors(result: Result) -> Iterable[float]:
    """How much later than first promised content came, for each try that was promised any."""
    firsts: dict[int, tuple[float, float]] = {}
    for place in result.places:
        if place.eta is not None and place.number not in firsts:
            firsts[place.number] = place.at, place.eta
    for number, (at, eta) in firsts.items():
        last = result.requests[number].tries[-1]
        if last.content is not None and last.at <= at:
            yield last.content - at - eta * result.settings.speed


def _most(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
