"""One log line per request, and the whole log as JSON.

A line holds what the contract lists and nothing else: no path with its query, no body, no
credential. In text it is `key=value` pairs; with `LOG_FORMAT=json` the process's log is one JSON
object a line, in which a request's fields stand at the top level beside `message`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, TextIO, cast

from twisted.logger import ILogObserver, LogEvent, Logger, LogLevel
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_gateway.core.outcome import Outcome
from twisted_gateway.telemetry.log import ABOUT, About, plain_text

_ROUTINE_ROUTES = ("/health", "/metrics", "/status")
# A reader of the status stream leaves when it has read enough.
_ROUTINE_OUTCOMES = (Outcome.OK, Outcome.CLIENT_DISCONNECT)

# The key under which an event carries the fields of its request.
_FIELDS = "gateway_request"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessEntry:
    """What is said of one request.

    Attributes:
        request_id: its id, kept from the client or made.
        trace_id: 32 hex digits, "" without a trace.
        span_id: 16 hex digits of the gateway's own span, "" where none is recorded.
        client: the client's address, "" where it is not to be told.
        route: the bounded name of what handled it.
        model: the configured model, "" for none.
        stream: whether an event stream was asked for; None where nobody knows.
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
    span_id: str = ""
    client: str = ""
    route: str
    model: str
    stream: bool | None = None
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
            "span_id": self.span_id,
            "client": self.client,
            "route": self.route,
            "model": self.model,
            "stream": self.stream,
            "tenant": self.tenant,
            "outcome": self.outcome.value,
            "reason": self.reason,
            "status": self.status,
            "waited_seconds": round(self.waited_seconds, 3),
            "ttft_seconds": None if ttft is None else round(ttft, 3),
            "duration_seconds": round(self.duration_seconds, 3),
            "bytes": self.bytes_sent,
        }


def is_routine(route: str, outcome: Outcome) -> bool:
    """Whether a request was a probe, a scrape or a look at the status, answered as it should be."""
    return outcome in _ROUTINE_OUTCOMES and route.startswith(_ROUTINE_ROUTES)


class AccessLog:
    """Writes one line per request; of routine ones only where debugging is asked for.

    Args:
        debug: whether it is.
    """

    _log = Logger()

    def __init__(self, *, debug: bool = False) -> None:
        """Take what the class documents."""
        self._debug = debug

    def ended(self, entry: AccessEntry) -> None:
        """A request has ended: say so, as a warning where something failed."""
        level = LogLevel.warn if entry.outcome.is_error else LogLevel.info
        if is_routine(entry.route, entry.outcome):
            if not self._debug:
                return
            level = LogLevel.debug
        fields = entry.fields()
        # The line is a field, not the format: braces in it mean nothing.
        self._log.emit(level, "{line}", line=_line(fields), **{_FIELDS: fields})


def _line(fields: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={_word(value)}" for key, value in fields.items())


def _word(value: object) -> str:
    """One word that no client can break out of: JSON's escapes where it is not plain."""
    if isinstance(value, bool):
        return "true" if value else "false"
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
    where the event bears a failure; `request_id`, `trace_id` and `span_id` where it is about a
    request; all of the request's fields in a request's line.
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
    tree["message"] = plain_text(event)
    about = event.get(ABOUT)
    if isinstance(about, About):
        tree |= asdict(about)
    failure = event.get("log_failure")
    if isinstance(failure, Failure):
        tree["message"] = tree["message"] or failure.getErrorMessage()
        tree["traceback"] = failure.getTraceback()
    return tree
