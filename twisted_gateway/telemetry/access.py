"""One log line per request, and the whole log as JSON.

A line holds what the contract lists and nothing else: no path with its query, no body, no
credential. In text it is `key=value` pairs; with `LOG_FORMAT=json` the process's log is one JSON
object a line, in which a request's fields stand at the top level beside `message`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TextIO, cast

from twisted.logger import ILogObserver, LogEvent, Logger, LogLevel, formatEvent
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_gateway.core.outcome import Outcome

# The key under which an event carries the fields of its request.
_FIELDS = "gateway_request"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessEntry:
    """What is said of one request.

    Attributes:
        request_id: its id, kept from the client or made.
        trace_id: 32 hex digits, "" without a trace.
        route: the bounded name of what handled it.
        model: the configured model, "" for none.
        tenant: who it counts as, by an HMAC with a key of this process; "" where that is unknown.
        outcome: how it ended.
        reason: why admission refused it; "" where it did not.
        status: the HTTP status that the client was sent, 0 for none.
        waited_seconds: time parked, in all.
        ttft_seconds: from its head to the first content event; None where there was none.
        duration_seconds: from its head to its outcome.
        bytes_sent: of its answer's body.
    """

    request_id: str
    trace_id: str
    route: str
    model: str
    tenant: str = ""
    outcome: Outcome
    reason: str = ""
    status: int
    waited_seconds: float
    ttft_seconds: float | None
    duration_seconds: float
    bytes_sent: int

    def fields(self) -> dict[str, Any]:
        """The fields under their names in the log; seconds to the millisecond."""
        ttft = self.ttft_seconds
        return {
            "request_id": self.request_id,
            "trace_id": self.trace_id,
            "route": self.route,
            "model": self.model,
            "tenant": self.tenant,
            "outcome": self.outcome.value,
            "reason": self.reason,
            "status": self.status,
            "waited_seconds": round(self.waited_seconds, 3),
            "ttft_seconds": None if ttft is None else round(ttft, 3),
            "duration_seconds": round(self.duration_seconds, 3),
            "bytes": self.bytes_sent,
        }


class AccessLog:
    """Writes one line per request."""

    _log = Logger()

    def ended(self, entry: AccessEntry) -> None:
        """A request has ended: say so, as a warning where something failed."""
        fields = entry.fields()
        level = LogLevel.warn if entry.outcome.is_error else LogLevel.info
        # The line is a field, not the format: braces in it mean nothing.
        self._log.emit(level, "{line}", line=_line(fields), **{_FIELDS: fields})


def _line(fields: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={_word(value)}" for key, value in fields.items())


def _word(value: object) -> str:
    """One word that no client can break out of: JSON's escapes where it is not plain."""
    text = "-" if value is None or value == "" else str(value)
    if text.isascii() and text.isprintable() and not any(each in text for each in ' "=\\'):
        return text
    return json.dumps(text)


@implementer(ILogObserver)
class _JSONObserver:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __call__(self, event: LogEvent) -> None:
        # Escaped to ASCII, so that no message can end its line or reach a terminal's controls;
        # in one write, so that threads don't mix theirs.
        self._stream.write(json.dumps(_tree(event), default=str) + "\n")
        self._stream.flush()


def json_observer(stream: TextIO) -> ILogObserver:
    """Make the observer that writes each event of the process's log as one JSON object a line.

    Its members: `time` (RFC 3339, UTC, milliseconds), `level`, `logger`, `message`; `traceback`
    where the event bears a failure; the request's fields in a request's line.
    """
    return cast(ILogObserver, _JSONObserver(stream))


def _tree(event: LogEvent) -> dict[str, Any]:
    level = event.get("log_level")
    when = datetime.fromtimestamp(event.get("log_time", 0.0), UTC)
    tree: dict[str, Any] = {
        "time": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": level.name if level is not None else "info",
        "logger": event.get("log_namespace", ""),
    }
    fields = event.get(_FIELDS)
    if isinstance(fields, dict):
        return {**tree, "message": "request", **fields}
    tree["message"] = formatEvent(event)
    failure = event.get("log_failure")
    if isinstance(failure, Failure):
        tree["message"] = tree["message"] or failure.getErrorMessage()
        tree["traceback"] = failure.getTraceback()
    return tree
