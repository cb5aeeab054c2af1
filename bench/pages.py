"""Pages of `docs/` whose figures a bench writes and whose words people do."""

from __future__ import annotations


def spliced(page: str, begins: str, ends: str, figures: str) -> str:
    """A page with other figures between two marks, and nothing else changed.

    Raises:
        ValueError: it has no such marks; the text names them.
    """
    before, found, rest = page.partition(begins)
    _, end, after = rest.partition(ends)
    if not (found and end):
        raise ValueError(f"expected {begins} and, after it, {ends}")
    return f"{before}{begins}\n\n{figures}\n\n{ends}{after}"
