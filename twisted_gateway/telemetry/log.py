"""Log lines that say which request they are about, whoever writes them.

A request's handler says once whom it works for (`work_for`). From there on the context of its
coroutine carries that: through every await, for Twisted resumes a coroutine in its own context. A
timer, a callback of the reactor's, or another thread runs in another context; what is handed to
them takes the request's along by `carried`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from typing import ParamSpec, TypeVar, cast

from twisted.logger import LogEvent, Logger, LogLevel, formatEvent

ABOUT = "gateway_about"
"""The key under which an event carries the request that it is about."""

_PLAIN_FORMAT = "gateway_plain_format"

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class About:
    """A request, as the log and the traces name it.

    Attributes:
        request_id: what the client was told.
        trace_id: 32 hex digits, "" without a trace.
        span_id: 16 hex digits of the gateway's own span, "" where none is recorded.
    """

    request_id: str
    trace_id: str = ""
    span_id: str = ""


_about: ContextVar[About | None] = ContextVar("gateway_about", default=None)


def work_for(about: About) -> None:
    """Say for which request the current coroutine works, to its end.

    It must be called within the coroutine: outside of one it would hold for whatever the reactor
    does next.
    """
    _about.set(about)


def worked_for() -> About | None:
    """Give the request that the current context works for, None for none."""
    return _about.get()


def carried(call: Callable[P, T]) -> Callable[P, T]:
    """Make a callable that runs in the context in which it was made, wherever it is called.

    For timers, callbacks of the reactor's and other threads.
    """
    context = copy_context()

    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        # A context can't be entered while it is entered: this may be called from within itself.
        return context.copy().run(call, *args, **kwargs)

    return run


class RequestLogger(Logger):
    """A `Logger` whose lines end with the request that they are about.

    That is the keyword `about` where it is given, else the one that the context works for.
    """

    def emit(self, level: LogLevel, format: str | None = None, **kwargs: object) -> None:
        """See `Logger.emit`."""
        about = cast("About | None", kwargs.pop("about", None)) or worked_for()
        if about is not None:
            kwargs[ABOUT] = about
            kwargs[_PLAIN_FORMAT] = format
            # Identifiers are letters, digits, `.`, `_` and `-`: no braces that would be a field.
            named = f"request_id={about.request_id} trace_id={about.trace_id or '-'}"
            format = f"{format or ''} ({named})"
        super().emit(level, format, **kwargs)


def plain_text(event: LogEvent) -> str:
    """Give an event's text without the request that it is about."""
    if _PLAIN_FORMAT in event:
        event = {**event, "log_format": event[_PLAIN_FORMAT]}
    return formatEvent(event)
