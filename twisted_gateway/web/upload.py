"""A request's body on its way through: passed on, or read, as it comes, at the taker's pace.

What nobody has taken yet waits here, and the client's connection is not read meanwhile: no more
waits than one read of it brings, and what `read` has been asked for. All that waits counts against
`maxHeldBytes`, and so does what `read` has given, until the next `read`, or `discard`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IConsumer, IPushProducer
from twisted.web.iweb import UNKNOWN_LENGTH, IBodyProducer
from zope.interface import implementer

from twisted_gateway.web.intake import HeldBytes


@implementer(IBodyProducer)
class Upload:
    """The body of a request whose operation takes it as it comes.

    Its bytes can be had once: either by `startProducing` or by `read`.

    Attributes:
        length: Content-Length, or UNKNOWN_LENGTH.
        received: how many bytes have come.
        ended: whether all have.
        on_progress: called when bytes have come, or were taken.

    Args:
        length: Content-Length; None for a chunked body.
        network: the client's connection, which is paused.
        held: bytes of request bodies held by the process.
    """

    def __init__(self, length: int | None, network: IPushProducer, held: HeldBytes) -> None:
        """Take what the class documents; the connection is being read."""
        self.length: Any = UNKNOWN_LENGTH if length is None else length
        self.received = 0
        self.ended = False
        self.on_progress: Callable[[], None] = _nobody
        self._network = network
        self._held = held
        self._network_paused = False
        self._waiting = bytearray()
        self._counted = 0
        self._given = 0
        self._consumer: IConsumer | None = None
        self._paused = False
        self._taken = False
        self._over = False
        self._done: Deferred[None] | None = None
        self._reader: tuple[int, Deferred[bytes]] | None = None

    @property
    def starved(self) -> bool:
        """Whether it is the client that is waited for, not who takes the body."""
        return not self.ended and not self._network_paused

    # The client's side

    def feed(self, data: bytes) -> bool:
        """Take bytes of the client; False: the process holds too much, and they are dropped."""
        if self._over:
            return True
        self.received += len(data)
        self.on_progress()
        if self._consumer is not None and not self._paused and not self._waiting:
            # The common case: nothing waits here, so nothing is copied.
            self._consumer.write(data)
            return True
        if not self._held.take(len(data)):
            return False
        if self._network_paused:
            # The channel reads on by itself once its own writes have drained.
            self._network.pauseProducing()
        self._counted += len(data)
        self._waiting += data
        self._move()
        return True

    def end(self) -> None:
        """The client has sent all of it; its leaving is to be noticed from here on."""
        self._read_on(True)
        self.ended = True
        self._move()

    def discard(self) -> None:
        """Let what waits and what comes run to nowhere."""
        self._over = True
        self._consumer = self._done = self._reader = None
        self._waiting.clear()
        self._given = 0
        self._recount()
        self._read_on(True)

    # Whoever takes it

    async def read(self, count: int) -> bytes:
        """Give the next `count` bytes; fewer only at the body's end, b"" behind it.

        Whoever has them lets go of the last ones before asking for more. Cancelling stops the
        waiting, and the bytes stay.
        """
        self._taken = True
        self._given = 0
        self._recount()
        if not (self.ended or len(self._waiting) >= count):
            waiter: Deferred[bytes] = Deferred(self._forget)
            self._reader = (count, waiter)
            self._move()
            return await waiter
        return self._lend(count)

    def startProducing(self, consumer: IConsumer) -> Deferred[None]:
        """Pass the body on to `consumer`.

        Returns:
            Fires when all of it has been; never, once `stopProducing` was called. Fails with
            RuntimeError when bytes of it have been taken before.
        """
        if self._taken:
            return fail(RuntimeError("a body that is passed on cannot be sent again"))
        self._taken = True
        self._consumer = consumer
        self._paused = False
        done: Deferred[None] = Deferred(lambda _: self.stopProducing())
        self._done = done
        self._move()
        return succeed(None) if done.called else done

    def pauseProducing(self) -> None:
        """Write nothing until `resumeProducing`."""
        self._paused = True
        self._read_on(False)

    def resumeProducing(self) -> None:
        """Go on."""
        self._paused = False
        self._move()

    def stopProducing(self) -> None:
        """Write nothing more; the Deferred of `startProducing` never fires."""
        self._consumer = self._done = None
        if not self.ended:
            self._read_on(False)

    # Within

    def _move(self) -> None:
        """Give on what waits, and read from the client if there is anyone to give it to."""
        if self._reader is not None:
            count, waiter = self._reader
            if self.ended or len(self._waiting) >= count:
                self._reader = None
                waiter.callback(self._lend(count))
        elif self._consumer is not None and not self._paused:
            if self._waiting:
                self._consumer.write(self._cut(len(self._waiting)))
            self._finish()
        self._read_on(self._reader is not None or self._flows())

    def _flows(self) -> bool:
        return self._consumer is not None and not self._paused

    def _finish(self) -> None:
        if self.ended and not self._waiting and self._flows():
            done, self._done, self._consumer = self._done, None, None
            if done is not None:
                done.callback(None)

    def _lend(self, count: int) -> bytes:
        self._given = min(count, len(self._waiting))
        return self._cut(count)

    def _cut(self, count: int) -> bytes:
        with memoryview(self._waiting) as view, view[:count] as piece:
            data = bytes(piece)
        del self._waiting[:count]
        self._recount()
        self.on_progress()
        return data

    def _recount(self) -> None:
        counted = len(self._waiting) + self._given
        self._held.give(self._counted - counted)
        self._counted = counted

    def _read_on(self, wanted: bool) -> None:
        # What is discarded runs on, however slowly whoever took it lets go of it.
        if self.ended or (self._over and not wanted):
            return
        if wanted and self._network_paused:
            self._network_paused = False
            self._network.resumeProducing()
        elif not (wanted or self._network_paused):
            self._network_paused = True
            self._network.pauseProducing()

    def _forget(self, _: Deferred[bytes]) -> None:
        self._reader = None


def _nobody() -> None:
    """Nobody asks."""
