"""Two runs side by side: their figures, and how many times the first's the second's are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from twisted_gateway.console.terminal import grid, plain, wrapped
from twisted_gateway.load.figures import Row, Summary, summarize
from twisted_gateway.load.results import Request, Result
from twisted_gateway.load.table import FOOTNOTE

_SETTINGS = {
    "workload": "workload",
    "options": "its options (--set)",
    "seed": "seed",
    "speed": "speed",
    "model": "model",
    "limit": "--limit",
    "duration": "--duration",
    "retry_after": "what Retry-After was taken for",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two runs.

    Attributes:
        names: what they are called, the files' names.
        rows: a name, both values and their ratio, as text.
        notes: in what they differ that they should not, sentence by sentence.
    """

    names: tuple[str, str]
    first: Result
    second: Result
    rows: tuple[tuple[str, str, str, str], ...]
    notes: tuple[str, ...]


def compare(names: tuple[str, str], first: Result, second: Result) -> Comparison:
    """Set two runs beside each other."""
    return Comparison(
        names=names,
        first=first,
        second=second,
        rows=tuple(_rows(summarize(first), summarize(second))),
        notes=tuple(_notes(first, second)),
    )


def render(compared: Comparison, *, columns: int | None = None) -> str:
    """Give what is printed: plain text, as wide as the terminal (None: as wide as it is)."""
    lines = [f"A: {compared.names[0]}", f"B: {compared.names[1]}"]
    lines += [f"Note: {note}" for note in compared.notes]
    rows = grid([("", "A", "B", "B / A"), *compared.rows])
    if columns is not None and max(map(len, rows.split("\n"))) > columns:
        rows = "\n".join(
            f"{row[0]}: {row[1]} and {row[2]}, B / A {row[3]}" for row in compared.rows
        )
    parts = ("\n".join(lines), rows, FOOTNOTE)
    return plain("\n\n".join(wrapped(part, columns) for part in parts)) + "\n"


def _rows(first: Summary, second: Summary) -> Iterable[tuple[str, str, str, str]]:
    yield _row("asked", first.all.asked, second.all.asked)
    yield _row("completed", first.all.completed, second.all.completed)
    yield from _group("", first.all, second.all)
    for what, ones, others in (
        ("", first.kinds, second.kinds),
        ("tenant ", first.tenants, second.tenants),
    ):
        known = {row.name: row for row in others}
        shared = [(row, known[row.name]) for row in ones if row.name in known]
        if len(shared) > 1:
            for one, other in shared:
                yield from _group(f"{what}{one.name}: ", one, other, few=True)
    yield _row("tries refused", first.refusals, second.refusals)
    yield _row("most parked at once", first.most_parked, second.most_parked)
    yield _row("most in the engine, by the gateway", first.most_in_engine, second.most_in_engine)
    yield _row("most in the engine, by itself", first.most_truly, second.most_truly)
    yield _row("tokens worked in vain, at least", first.wasted_tokens, second.wasted_tokens)


def _group(
    prefix: str, one: Row, other: Row, *, few: bool = False
) -> Iterable[tuple[str, str, str, str]]:
    yield _row(f"{prefix}completed, %", one.completed_percent, other.completed_percent)
    yield _row(f"{prefix}TTFT p50, s", one.ttft_p50, other.ttft_p50)
    yield _row(f"{prefix}TTFT p95, s", one.ttft_p95, other.ttft_p95)
    yield _row(f"{prefix}TTFT p95 of all*, s", one.ttft_all_p95, other.ttft_all_p95)
    if few:
        return
    yield _row("refused", one.refused, other.refused)
    yield _row("gave up", one.gave_up, other.gave_up)
    yield _row("failed", one.failed, other.failed)
    yield _row("whole answer p50, s", one.whole_p50, other.whole_p50)
    yield _row("whole answer p95, s", one.whole_p95, other.whole_p95)
    yield _row("answer tokens/s", one.tokens_per_second, other.tokens_per_second)


def _row(name: str, one: float | None, other: float | None) -> tuple[str, str, str, str]:
    ratio = "-" if one is None or other is None or one <= 0 else f"{other / one:,.2f}"
    return name, _text(one), _text(other), ratio


def _text(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def _notes(first: Result, second: Result) -> Iterable[str]:
    one, other = first.settings, second.settings
    for name, what in _SETTINGS.items():
        values = getattr(one, name), getattr(other, name)
        if values[0] != values[1]:
            yield f"They differ in {what}: {_said(values[0])} and {_said(values[1])}."
    if one.workload == other.workload and one.seed == other.seed and _other_clients(first, second):
        yield "Their clients are not the same, though workload and seed bear the same names."
    if one.exact_answers != other.exact_answers:
        yield "One had answers of exact length, the other had not."
    if (one.direct_to is None) != (other.direct_to is None):
        yield "In one of them clients went past the gateway (--direct-to), in the other none."
    for name, result in (("A", first), ("B", second)):
        if result.interrupted:
            yield f"{name} was ended early."


def _said(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={number:g}" for name, number in value.items()) or "none"
    return "none" if value is None else str(value)


def _other_clients(first: Result, second: Result) -> bool:
    """Whether any client asks at another time, or for something else; a limit takes the first."""
    pairs = zip(first.requests, second.requests, strict=False)
    return any(_client(one) != _client(other) for one, other in pairs)


def _client(request: Request) -> tuple[object, ...]:
    # Times are rounded in the file.
    at = round(request.at, 3)
    return at, request.kind, request.tenant, request.prompt_tokens, request.answer_tokens
