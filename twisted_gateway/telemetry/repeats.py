"""A fault that comes with every request is said once in a while, with how often it came."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from twisted.internet.interfaces import IReactorTime

INTERVAL_SECONDS = 60.0
MOST_KEYS = 256

_COUNT, _SECONDS = "repeats_left_out", "repeats_seconds"
_MORE = f" ({{{_COUNT}}} more like it in the last {{{_SECONDS}:.0f}} s)"


@dataclass(slots=True)
class _Said:
    at: float
    left_out: int = 0


class Repeats:
    """Lets the same thing be said at most once in an interval.

    What was left out is counted, and said with the next line of its kind. Nothing is lost by it:
    each request has a line of its own in the access log, whatever became of it.

    Args:
        clock: for the time.
        interval_seconds: how long a thing that was said is not said again.
        most: how many things are remembered; what was said longest ago is forgotten first.
    """

    def __init__(
        self,
        clock: IReactorTime,
        *,
        interval_seconds: float = INTERVAL_SECONDS,
        most: int = MOST_KEYS,
    ) -> None:
        """Start with nothing said."""
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._most = most
        self._said: OrderedDict[str, _Said] = OrderedDict()

    def left_out(self, key: str, count: int) -> None:
        """Count so many more of what was said, which somebody else has left out already."""
        said = self._said.get(key)
        if said is not None:
            said.left_out += count

    def say(self, key: str, emit: Callable[..., None], format: str, /, **fields: object) -> None:
        """Say it, unless it was said less than an interval ago.

        Args:
            key: what makes two lines the same; bounded by the caller, never a client's word.
            emit: a method of a logger: `log.warn`.
            format: the line.
            fields: those of the format, and of the event; whatever they are called, none is taken
                for a word of this method's own.
        """
        now = self._clock.seconds()
        said = self._said.get(key)
        # A clock that was set back must not keep a line away for as long as it went back.
        if said is not None and 0 <= now - said.at < self._interval_seconds:
            said.left_out += 1
            return
        self._said[key] = _Said(now)
        self._said.move_to_end(key)
        if len(self._said) > self._most:
            self._said.popitem(last=False)
        if said is not None and said.left_out:
            own = {_COUNT: said.left_out, _SECONDS: max(0.0, now - said.at)}
            emit(format + _MORE, **fields | own)
        else:
            emit(format, **fields)
