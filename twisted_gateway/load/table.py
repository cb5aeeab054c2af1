"""What is printed at the end of a run, and of a comparison: plain text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from twisted_gateway.load.advice import Advice, sentence
from twisted_gateway.load.figures import Row, Summary
from twisted_gateway.load.results import Ending, Result

HEADS = (
    *("", "asked", "completed", "refused", "gave up", "failed", "TTFT p50", "TTFT p95"),
    *("p95 of all*", "whole p50", "whole p95", "tokens/s"),
)
FOOTNOTE = (
    "* TTFT of all streams: one that got no answer counts with all of its patience. "
    "The other times are of requests that completed. All are model seconds."
)


def cells(row: Row) -> tuple[str, ...]:
    """Give a row as text, in the order of `HEADS`."""
    return (
        row.name,
        str(row.asked),
        percent(row.completed_percent),
        str(row.refused),
        str(row.gave_up),
        str(row.failed),
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
    if summary.most_truly is not None:
        pairs.append(("most in the engine by its own account", number(summary.most_truly)))
    if summary.eta_error is not None:
        pairs.append(("promised times were off by (median)", f"{summary.eta_error:+.1f} s"))
    return pairs


def notes(result: Result) -> list[str]:
    """Give what a reader must know to judge the figures."""
    settings, said = result.settings, []
    if result.interrupted:
        under_way = sum(one.ending is Ending.INTERRUPTED for one in result.requests)
        said.append(
            f"The run was ended early: {under_way} clients had not come or were under way, and "
            "count for nothing."
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


def render(result: Result, summary: Summary, advice: Advice) -> str:
    """Give all that is printed at the end of a run."""
    rows = [*(cells(row) for row in summary.kinds), *(cells(row) for row in summary.tenants)]
    kinds = [("kind", *HEADS[1:]), *rows[: len(summary.kinds)], cells(summary.all)]
    tenants = [("tenant", *HEADS[1:]), *rows[len(summary.kinds) :]]
    parts = [grid(kinds)]
    if len(summary.tenants) > 1:
        parts.append(grid(tenants))
    parts.append(FOOTNOTE)
    parts.append("\n".join(f"{name}: {value}" for name, value in facts(result, summary)))
    parts.append(
        "This run argues for\n  "
        + sentence("maxParkSeconds", advice.max_park_seconds)
        + "\n  "
        + sentence("maxQueueDepth", advice.max_queue_depth)
    )
    parts += [f"Note: {note}" for note in notes(result)]
    return plain("\n\n".join(parts)) + "\n"


def plain(text: str) -> str:
    """Keep a server's words from steering the terminal."""
    return "".join(char if char.isprintable() or char == "\n" else " " for char in text)


def grid(rows: Sequence[Sequence[str]]) -> str:
    """Align cells in columns: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(_line(row, widths) for row in rows)


def _line(row: Sequence[str], widths: Iterable[int]) -> str:
    first, *rest = zip(row, widths, strict=True)
    cells = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)]
    return "  ".join(cells).rstrip()
