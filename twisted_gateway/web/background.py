"""Deferreds that nobody awaits: their failure is a fault of ours, and is logged."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure


def in_background(work: Deferred[Any], log: Logger, what: str) -> None:
    """Let `work` run on by itself.

    Args:
        work: its result is dropped; its failure is logged, unless it was cancelled.
        log: where to.
        what: what failed then, for the log.
    """

    def failed(failure: Failure) -> None:
        if not failure.check(CancelledError):
            log.failure("{what} failed", what=what, failure=failure)

    _ = work.addErrback(failed)
