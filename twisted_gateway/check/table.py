"""What is printed: a row for each check when it is made, and what they come to. Plain text."""

from __future__ import annotations

from collections.abc import Sequence

from twisted_gateway.check.catalogue import CHECKS
from twisted_gateway.check.results import Report, Result, Verdict
from twisted_gateway.console.terminal import wrapped

_WORDS = (
    (Verdict.PASSED, "passed"),
    (Verdict.ACCEPTED, "accepted"),
    (Verdict.FAILED, "failed"),
    (Verdict.SKIPPED, "skipped"),
)
_VERDICTS = max(len(verdict.value) for verdict in Verdict)
_NAMES = max(map(len, CHECKS))


def row(result: Result, columns: int | None = None) -> str:
    """Give the row of a check, which ends in a line break.

    Args:
        result: what came of it.
        columns: how wide the terminal is; None for a file, where lines are as long as they are.
    """
    took = f"{result.seconds:.1f} s" if result.request_ids else ""
    about = ": ".join(part for part in (result.subject, told(result)) if part)
    cells = f"{result.verdict.value:<{_VERDICTS}}  {result.name:<{_NAMES}}  {took:>7}  {about}"
    return wrapped(cells.rstrip(), columns) + "\n"


def footer(report: Report, columns: int | None = None) -> str:
    """Give what stands below the rows."""
    return f"\n{wrapped(summary(report), columns)}\n"


def told(result: Result) -> str:
    """Say what there is to say of a check; of one that is not as expected, by which requests."""
    if result.verdict in (Verdict.FAILED, Verdict.ACCEPTED) and result.request_ids:
        return f"{result.said} [{', '.join(result.request_ids)}]"
    return result.said


def summary(report: Report) -> str:
    """Say in a line or two how it went, and how to find its requests in the gateway's log."""
    counts = [
        f"{report.count(verdict)} {word}" for verdict, word in _WORDS if report.count(verdict)
    ]
    early = " It was ended early: the rest was not checked." if report.interrupted else ""
    found = (
        f" In the gateway's log the requests are {report.run_id}-1 and on."
        if report.traceable
        else ""
    )
    return f"{', '.join(counts) or 'nothing was checked'} in {report.seconds:.1f} s.{early}{found}"


def catalogue() -> str:
    """List the checks."""
    lines: Sequence[str] = [
        f"{check.name:<{_NAMES}}  {check.about}" + (" (a refusal)" if check.refusal else "")
        for check in CHECKS.values()
    ]
    return "\n".join([*lines, ""])
