"""What is printed at the end of a run, and of a comparison: plain text."""

from __future__ import annotations

from collections.abc import Sequence

from twisted_gateway.console.terminal import grid, plain, wrapped
from twisted_gateway.load.advice import Advice, sentence
from twisted_gateway.load.figures import Row, Summary
from twisted_gateway.load.results import Result

_COUNTS = ("asked", "completed", "refused", "gave up", "failed")
_TIMES = ("TTFT p50", "TTFT p95", "p95 of all*", "whole p50", "whole p95", "tokens/s")
FOOTNOTE = (
    "* TTFT of all streams: one that got no answer counts with all of its patience. "
    "The other times are of requests that completed. All are model seconds."
)


def table(name: str, rows: Sequence[Row], *, cut: bool) -> list[tuple[str, ...]]:
    """Give the cells of a table, its head first.

    Args:
        name: what the rows are.
        rows: their figures.
        cut: whether to say how many were cut: the run was ended early.
    """
    head = (name, *_COUNTS, *(("cut",) if cut else ()), *_TIMES)
    return [head, *(_cells(row, cut) for row in rows)]


def _cells(row: Row, cut: bool) -> tuple[str, ...]:
    return (
        row.name,
        str(row.asked),
        percent(row.completed_percent),
        str(row.refused),
        str(row.gave_up),
        str(row.failed),
        *((str(row.interrupted),) if cut else ()),
        seconds(row.ttft_p50),
        seconds(row.ttft_p95),
        seconds(row.ttft_all_p95),
        seconds(row.whole_p50),
        seconds(row.whole_p95),
        f"{row.tokens_per_second:.1f}",
    )


def seconds(value: float | None) -> str:
    """Give seconds as text, with as many digits as mean anything."""
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}"


def percent(value: float | None) -> str:
    """Give a share as text."""
    return "-" if value is None else f"{value:.1f} %"


def number(value: int | None) -> str:
    """Give a count as text."""
    return "unknown" if value is None else f"{value:,}"


def facts(result: Result, summary: Summary) -> list[tuple[str, str]]:
    """Give what else there is to say of a run, as pairs of a name and a value."""
    reasons = ", ".join(f"{name} {count}" for name, count in summary.reasons.items())
    pairs = [
        ("model seconds", seconds(result.took)),
        ("tries refused", f"{summary.refusals}"),
        ("reasons", reasons or "none"),
        ("most parked at once", number(summary.most_parked)),
        ("most in the engine at once", number(summary.most_in_engine)),
        ("tokens worked in vain, at least", number(summary.wasted_tokens)),
    ]
    if result.interrupted:
        pairs.append(("tokens worked for those cut, at least", number(summary.cut_tokens)))
    if summary.most_truly is not None:
        pairs.append(("most in the engine by its own account", number(summary.most_truly)))
    if summary.eta_error is not None:
        pairs.append(("first token, against the first promise, median", _late(summary.eta_error)))
    return pairs


def _late(off: float) -> str:
    return f"{abs(off):.1f} s {'later' if off >= 0 else 'earlier'}"


def notes(result: Result, summary: Summary) -> list[str]:
    """Give what a reader must know to judge the figures."""
    settings, said = result.settings, []
    if result.interrupted:
        said.append(
            f"The run was ended early. Cut while they asked or waited: {summary.all.interrupted}; "
            f"not come yet: {summary.not_come}. Shares and times are those of the others, and "
            "what the run argues for is the least: who was cut might have waited longer."
        )
    if settings.speed != 1:
        meant = "wall" if settings.retry_after == "wall" else "model"
        said.append(
            f"Time ran {settings.speed:g} times as fast; every time here is in model seconds, and "
            f"Retry-After was taken for {meant} seconds. A gateway's own settings (park budget, "
            "polls, keep-alive comments) are in seconds on the wall."
        )
    if settings.direct_to is None and any(one.direct for one in result.requests):
        said.append("No --direct-to: clients that would go past the gateway went through it.")
    if result.gate is None:
        said.append("No /status.json of this model was to be had: no figures of the gateway's own.")
    if not settings.exact_answers:
        said.append("Answers ended where the engine liked (--no-max-tokens-as-answer).")
    if result.late > 0.1:
        said.append(
            f"The tool itself was late by up to {result.late:.2f} s on the wall: this machine may "
            "be too slow for this run."
        )
    return said


def render(result: Result, summary: Summary, advice: Advice, *, columns: int | None = None) -> str:
    """Give all that is printed at the end of a run.

    Args:
        result: the run.
        summary: its figures.
        advice: what it argues for.
        columns: how wide the terminal is; None for a file, where lines are as long as they are.
    """
    cut = result.interrupted
    parts = [grid(table("kind", [*summary.kinds, summary.all], cut=cut), columns)]
    if len(summary.tenants) > 1:
        parts.append(grid(table("tenant", summary.tenants, cut=cut), columns))
    pairs = "\n".join(f"{name}: {value}" for name, value in facts(result, summary))
    argues = [
        "This run argues for",
        "  " + sentence("maxParkSeconds", advice.max_park_seconds),
        "  " + sentence("maxQueueDepth", advice.max_queue_depth),
    ]
    told = [f"Note: {note}" for note in notes(result, summary)]
    parts += [wrapped(text, columns) for text in (FOOTNOTE, pairs, "\n".join(argues), *told)]
    return plain("\n\n".join(parts)) + "\n"
