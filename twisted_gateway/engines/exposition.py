"""Pick the few wanted series out of a page of Prometheus exposition text.

Engines publish pages of 50 to 85 kB, most of it histograms. A general parser blocks the reactor
for 8 to 20 ms on such a page; this one looks at the start of each line and parses only the lines
whose metric name is wanted.

It reads what `prometheus_client.parser` reads of the text format 0.0.4 and 1.0.0 (the tests hold
the two against each other), and of OpenMetrics what they share: exemplars, timestamps and `# EOF`
are passed over. Quoted metric names (UTF-8 names) are not read; no engine has one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import nan
from typing import Final

MAX_PAGE_BYTES: Final = 4 * 1024 * 1024
"""A longer page is not read at all: a failed poll."""

MAX_LINES: Final = 50_000
"""A page of more lines is not parsed: it would block the reactor (16 ranks of vLLM have 7,000)."""

MAX_LINE_BYTES: Final = 65_536
"""A longer line of a series wanted cannot be read: it would cost the reactor seconds."""

MAX_SERIES: Final = 4_096
"""More wanted series than this are no engine's page."""


@dataclass(frozen=True, slots=True)
class Page:
    """One HTTP answer of an engine, as far as it was read.

    Attributes:
        status: the HTTP status.
        body: at most `MAX_PAGE_BYTES` and one byte of it, undecoded.
        too_long: whether the body was given up because it is longer than its bound.
    """

    status: int
    body: bytes
    too_long: bool = False


@dataclass(frozen=True, slots=True)
class Series:
    """One sample line.

    Attributes:
        labels: label name -> value, unescaped; empty where the line is garbled.
        value: the value; NaN as well when the line bears the wanted name but cannot be parsed.
        garbled: whether the line could not be parsed, so that nothing but its name is known.
    """

    name: str
    labels: Mapping[str, str]
    value: float
    garbled: bool = False


_LABEL = rb'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"([^"\\]*(?:\\.[^"\\]*)*)"[ \t]*(?:,|(?=\}))'
_ONE_LABEL = re.compile(_LABEL)
_ALL_LABELS = re.compile(rb"\{(?:" + _LABEL + rb")*[ \t]*\}")
# Possessive throughout: nothing is looked at twice, whatever an engine sends.
_NUMBER = rb"[+-]?+(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+"
_TAIL = re.compile(
    rb"[ \t]*+(" + _NUMBER + rb"|[+-]?+(?i:inf(?:inity)?+|nan))"  # the value
    rb"(?:[ \t]++" + _NUMBER + rb")?+"  # a timestamp
    rb"(?:[ \t]++#[ \t].*)?+"  # an exemplar
)
_ESCAPE = re.compile(rb'\\([\\n"])')
_ESCAPES = {b"\\": b"\\", b"n": b"\n", b'"': b'"'}


def parse(text: bytes, wanted: frozenset[str]) -> list[Series]:
    r"""Find the series whose metric name is wanted.

    A last line without its line feed is not trusted: a page that broke off in `1234` must not be
    read as 12. `_created` samples and anything else with a longer name are other names.

    Args:
        text: the page; bytes that are no exposition text give no series.
        wanted: whole metric names, as they stand in sample lines (`…_total`).

    Returns:
        The series in page order. A line that bears a wanted name but cannot be parsed is a series
        with `garbled` set, for what cannot be read must not look like what is not there.

    Raises:
        ValueError: the page is too long to be parsed; the message says by which bound.
    """
    if len(text) > MAX_PAGE_BYTES:
        raise ValueError(f"the page is longer than {MAX_PAGE_BYTES} bytes")
    if text.count(b"\n") > MAX_LINES:
        raise ValueError(f"the page has more than {MAX_LINES} lines")
    found = []
    for name, rest in _lines(wanted).findall(b"\n" + text):
        found.append(_series(name.decode("ascii"), rest))
        if len(found) > MAX_SERIES:
            raise ValueError(f"the page has more than {MAX_SERIES} of the series wanted")
    return found


@lru_cache(maxsize=32)
def _lines(wanted: frozenset[str]) -> re.Pattern[bytes]:
    """A pattern that finds the whole lines of the metrics wanted: name, and what follows it."""
    names = b"|".join(re.escape(name.encode("ascii")) for name in sorted(wanted))
    return re.compile(rb"\n[ \t]*(" + names + rb")(?![a-zA-Z0-9_:])([^\n]*+)(?=\n)")


def _series(name: str, rest: bytes) -> Series:
    """Read what follows the name: labels, value, and what may follow a value."""
    if len(rest) > MAX_LINE_BYTES:
        return Series(name, {}, nan, garbled=True)
    body = rest.strip()
    labels: dict[str, str] | None = {}
    end = 0
    if body.startswith(b"{"):
        labels, end = _labels(body)
    elif not rest.startswith((b" ", b"\t")):
        labels = None
    match = _TAIL.fullmatch(body, end)
    if labels is None or match is None:
        return Series(name, {}, nan, garbled=True)
    return Series(name, labels, float(match.group(1)))


def _labels(body: bytes) -> tuple[dict[str, str] | None, int]:
    """Read `{a="b",…}` at the start of `body`.

    Returns:
        The labels (None when they cannot be read) and the offset behind the closing brace.
    """
    block = _ALL_LABELS.match(body)
    if block is None:
        return None, 0
    pairs = _ONE_LABEL.findall(body, 1, block.end())
    labels = {name.decode("ascii"): _unescape(value) for name, value in pairs}
    return (labels if len(labels) == len(pairs) else None), block.end()


def _unescape(value: bytes) -> str:
    if b"\\" in value:
        value = _ESCAPE.sub(lambda match: _ESCAPES[match.group(1)], value)
    return value.decode("utf-8", "replace")
