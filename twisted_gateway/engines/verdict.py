"""What one poll's answer means: pure, and the one place where that is decided.

    verdict     the engine's answer                                    poll     degraded
    -------     ---------------------------------------------------    ------   ---------
    FINE        200, every gauge of the kind is read                   good     0
    PARTIAL     200, busy gauges are read, KV usage is not             good     1
    UNREADABLE  200, busy gauges cannot be read, or over 4 MiB         failed   1
    UNREADABLE  any other status that is no passing one (404, 501 …)   failed   1
    SILENT      a passing status: 408, 425, 429, 5xx but for 501       failed   as it was
    SILENT      no answer: refused, reset, timed out                   failed   as it was

The passing statuses are what a proxy or a starting engine says in place of the engine: they tell
no more about its gauges than silence does. 501 is llama.cpp's answer when `--metrics` is missing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Final

from twisted.internet.error import ConnectError, ConnectionRefusedError, DNSLookupError
from twisted.python.failure import Failure

from twisted_gateway.config.schema import EngineKind
from twisted_gateway.engines.exposition import MAX_PAGE_BYTES, Page
from twisted_gateway.engines.kinds import read
from twisted_gateway.engines.reading import Reading
from twisted_gateway.upstream.errors import UpstreamError

_PASSING_STATUSES: Final = (frozenset(range(500, 600)) - {501}) | {408, 425, 429}
_LONGEST_MESSAGE: Final = 200


class Health(Enum):
    """How well an engine can be observed; the value is how the log puts it."""

    UNKNOWN = "not polled yet"
    FINE = "all gauges are read"
    PARTIAL = "some gauges are missing"
    UNREADABLE = "cannot be read"
    SILENT = "no answer"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one poll's answer means.

    Attributes:
        reading: what was read; None when the poll failed.
        reason: in words, why the poll failed or lacks something; "" when all is well.
    """

    health: Health
    reading: Reading | None = None
    reason: str = ""

    def degraded(self, before: bool) -> bool:
        """Whether the engine's answer lacks gauges; without an answer, as it was before."""
        if self.health is Health.SILENT:
            return before
        return self.health is not Health.FINE


def judge(kind: EngineKind, page: Page, names: Collection[str]) -> Verdict:
    """Judge the answer to one poll.

    Args:
        kind: one of `kinds.KINDS`.
        page: the answer.
        names: what the engine may call the model.
    """
    if page.status in _PASSING_STATUSES:
        return Verdict(Health.SILENT, None, f"/metrics answers status {page.status}")
    if page.status != 200:
        return Verdict(Health.UNREADABLE, None, f"/metrics answers status {page.status}")
    if page.too_long or len(page.body) > MAX_PAGE_BYTES:
        return Verdict(Health.UNREADABLE, None, f"the page is longer than {MAX_PAGE_BYTES} bytes")
    reading = read(kind, page.body, names)
    reason = "; ".join(reading.problems)
    if not reading.readable:
        return Verdict(Health.UNREADABLE, None, reason)
    return Verdict(Health.PARTIAL if reason else Health.FINE, reading, reason)


def words(failure: Failure) -> str:
    """Say in words why a request had no answer.

    Twisted wraps the reasons of a failed request, some of them twice.
    """
    error = failure.value
    if isinstance(error, UpstreamError):
        return error.reason
    while reasons := getattr(error, "reasons", None):
        error = reasons[0].value
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, DNSLookupError):
        return "its host name is not found"
    message = str(error)[:_LONGEST_MESSAGE]
    if isinstance(error, ConnectError):
        return f"cannot be connected to: {message}"
    return f"no whole answer: {type(error).__name__}: {message}"
