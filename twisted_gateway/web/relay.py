"""Bytes through: the engine's body to the client, with back-pressure, and what is read off it.

`Relay` passes bytes. `StreamRelay` cuts an event stream into whole events on the way, so that
comments and an error always find an event boundary, and reads off it what the metrics need.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Protocol as TypingProtocol
from typing import cast

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPushProducer
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http import PotentialDataLoss

from twisted_gateway.core.events import Meaning, classify
from twisted_gateway.core.sse import Event, EventSplitter
from twisted_gateway.telemetry.log import carried
from twisted_gateway.web.reply import Reply


class End(Enum):
    """How the engine's body ended."""

    WHOLE = auto()
    """As its framing promised."""
    CLOSED = auto()
    """By a close, where the framing promised nothing: whole or not, nobody can tell."""
    BROKEN = auto()
    """Before its framing was satisfied."""


class _BodyTransport(TypingProtocol):
    def abortConnection(self) -> None: ...


class Relay(Protocol):
    """Passes the engine's body on as it comes, one write for each read.

    Attributes:
        done: fires with an `End`; cancelling it aborts the engine's connection.
    """

    def __init__(
        self,
        reply: Reply,
        heard: Callable[[], None],
        look: Callable[[bytes], None] | None = None,
    ) -> None:
        """Take the client's side, what to call for every read, and who looks at its bytes."""
        self._reply = reply
        self._heard = heard
        self._look = look
        # The reactor calls in a context of its own; what is logged on the way is the request's.
        self._passed = carried(self._pass)
        self.done: Deferred[End] = Deferred(self._abort)

    def connectionMade(self) -> None:
        """The body begins: from here on the client's pace is the engine's."""
        self._reply.flow_from(cast(IPushProducer, self.transport))

    def dataReceived(self, data: bytes) -> None:
        """One read of the engine's connection."""
        self._passed(data)

    def _pass(self, data: bytes) -> None:
        self._heard()
        self._reply.write(data)
        if self._look is not None:
            self._look(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The body has ended, one way or another."""
        self._reply.flow_from(None)
        if self.done.called:
            return
        if reason.check(ResponseDone):
            self.done.callback(End.WHOLE)
        elif reason.check(PotentialDataLoss):
            self.done.callback(End.CLOSED)
        else:
            self.done.callback(End.BROKEN)

    def cut(self) -> None:
        """Take the body as ended here, and drop the connection."""
        self._abort(self.done)
        if not self.done.called:
            self.done.callback(End.BROKEN)

    def _abort(self, _: Deferred[End]) -> None:
        cast(_BodyTransport, self.transport).abortConnection()


class StreamRelay(Relay):
    """Passes whole events on, and tells `watch` of each one and what it means.

    Args:
        reply: the client's side.
        heard: called for every read.
        splitter: the one that `reply` asks for boundaries.
        watch: called with each event and its meaning, in order.
    """

    def __init__(
        self,
        reply: Reply,
        heard: Callable[[], None],
        splitter: EventSplitter,
        watch: Callable[[Event, Meaning], None],
    ) -> None:
        """Take what the class documents."""
        super().__init__(reply, heard)
        self._splitter = splitter
        self._watch = watch

    def _pass(self, data: bytes) -> None:
        # What is whole leaves in one write, the rest is held.
        self._heard()
        cut = self._splitter.feed(data)
        if cut.passed:
            self._reply.write(cut.passed)
        for event in cut.events:
            self._watch(event, classify(event))
