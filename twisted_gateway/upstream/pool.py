"""Idle connections to upstreams, kept for a while."""

from __future__ import annotations

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from twisted_gateway.upstream.connection import Connection, Origin


class IdlePool:
    """Idle connections by origin, the one that was used last being taken first.

    So a burst's surplus ages at the bottom and goes, and what is taken is least likely to have been
    closed by the server. One timer serves all: it runs while there is anything idle.
    """

    def __init__(self, clock: IReactorTime, idle_seconds: float, max_idle_per_origin: int) -> None:
        """Take the bounds.

        Args:
            clock: its time is only compared with itself.
            idle_seconds: how long a connection stays; less where the server announces less
                (`Keep-Alive: timeout=N`, of which a second is kept as a margin). Zero or less:
                nothing is kept.
            max_idle_per_origin: how many stay; the longest idle one goes first.
        """
        self._clock = clock
        self._idle_seconds = idle_seconds
        self._max_idle = max_idle_per_origin
        # Of each origin, oldest first, with the time at which it goes.
        self._idle: dict[Origin, dict[Connection, float]] = {}
        self._sweeper: IDelayedCall | None = None

    def __len__(self) -> int:
        """How many are idle."""
        return sum(map(len, self._idle.values()))

    def take(self, origin: Origin) -> Connection | None:
        """Take out the connection to `origin` that was used last, if any is still good."""
        stack = self._idle.get(origin)
        now = self._clock.seconds()
        while stack:
            connection, until = stack.popitem()
            if not stack:
                del self._idle[origin]
            if now < until:
                return connection
            connection.close()
        return None

    def put(self, connection: Connection) -> None:
        """Keep an idle connection, or close it."""
        seconds = self._idle_seconds
        if connection.keep_seconds is not None:
            seconds = min(seconds, connection.keep_seconds - 1)
        if seconds <= 0 or self._max_idle <= 0:
            connection.close()
            return
        stack = self._idle.setdefault(connection.origin, {})
        stack[connection] = self._clock.seconds() + seconds
        if len(stack) > self._max_idle:
            oldest = next(iter(stack))
            del stack[oldest]
            oldest.close()
        if self._sweeper is None:
            self._sweeper = self._clock.callLater(seconds, self._sweep)

    def discard(self, connection: Connection) -> None:
        """Forget a connection that is, or is about to be, gone; it need not be here."""
        stack = self._idle.get(connection.origin)
        if stack is not None and stack.pop(connection, None) is not None and not stack:
            del self._idle[connection.origin]
            self.rest()

    def rest(self) -> None:
        """Stop the timer if nothing is idle."""
        if not self._idle and self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None

    def close(self) -> None:
        """Close all idle connections."""
        idle, self._idle = self._idle, {}
        self.rest()
        for stack in idle.values():
            for connection in stack:
                connection.close()

    def _sweep(self) -> None:
        self._sweeper = None
        now = self._clock.seconds()
        for origin, stack in list(self._idle.items()):
            for connection in [each for each, until in stack.items() if until <= now]:
                del stack[connection]
                connection.close()
            if not stack:
                del self._idle[origin]
        if self._idle:
            first = min(min(stack.values()) for stack in self._idle.values())
            self._sweeper = self._clock.callLater(max(0.0, first - now), self._sweep)
