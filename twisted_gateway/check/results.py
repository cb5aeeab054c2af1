"""What came of the checks."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

MAX_SAID_CHARS = 500
"""Of what is said of one check."""
MAX_IDS_SHOWN = 4
"""Of the requests of one check, the latest ones."""


class Verdict(Enum):
    """How a check ended; the value is its word in the table."""

    PASSED = "ok"
    ACCEPTED = "accepted"
    """Not as expected, and with a status that the user accepts."""
    SKIPPED = "skipped"
    FAILED = "FAILED"


class Failed(Exception):
    """A check has failed; the text says how."""


class Skipped(Exception):
    """A check cannot be made, and nothing is wrong with that; the text says why."""


class Tolerated(Exception):
    """An answer has a status that is not expected, and that the user accepts; the text says so."""


class Unable(Exception):
    """A model's engine does not do what it was asked for; the text says what it answered."""


class NotReady(Exception):
    """The gateway did not become ready in time; the text says what was seen last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How one check of one subject ended.

    Attributes:
        name: of the check.
        subject: the model or service that it was made of; "" for the gateway itself.
        verdict: how it ended.
        said: a sentence about it, in one line, without credentials; may be "".
        seconds: how long it took.
        request_ids: the `X-Request-ID` of each of its last requests, as in the gateway's log.
        internal: whether it has failed by a fault of the check itself, which says nothing of the
            gateway.
    """

    name: str
    subject: str = ""
    verdict: Verdict
    said: str = ""
    seconds: float = 0.0
    request_ids: tuple[str, ...] = ()
    internal: bool = False


@dataclass(slots=True, kw_only=True)
class Report:
    """A whole run.

    Attributes:
        url: of the gateway's public side.
        admin: of its admin side, "" where none was named.
        run_id: with which every request's id begins.
        started: when it began, in seconds since the epoch.
        seconds: how long it took.
        results: in the order in which the checks were made.
        interrupted: whether it was ended early, by a signal, the deadline or a fault of its own.
        traceable: whether the gateway's log has the ids of its requests, as far as is seen.
    """

    url: str
    run_id: str
    started: float
    admin: str = ""
    seconds: float = 0.0
    results: list[Result] = field(default_factory=list)
    interrupted: bool = False
    traceable: bool = True

    def count(self, verdict: Verdict) -> int:
        """Give how many checks ended so."""
        return sum(one.verdict is verdict for one in self.results)

    @property
    def errors(self) -> int:
        """How many of those that failed did so by a fault of the check itself."""
        return sum(one.internal for one in self.results)

    @property
    def failed(self) -> bool:
        """Whether any check has failed."""
        return self.count(Verdict.FAILED) > 0
