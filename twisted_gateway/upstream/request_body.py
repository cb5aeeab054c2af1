"""Request bodies: where the bytes come from, and how they get onto an upstream connection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from twisted.internet.defer import Deferred, fail, maybeDeferred
from twisted.internet.interfaces import IConsumer, IPushProducer, ITransport
from twisted.python.failure import Failure
from twisted.web.iweb import UNKNOWN_LENGTH, IBodyProducer
from zope.interface import implementer

from twisted_gateway.upstream.errors import BodyFailed

WRITE_BYTES = 65536
"""The most that `BytesProducer` writes at once."""


@implementer(IBodyProducer)
class BytesProducer:
    """A body of pieces that are already in memory.

    A body of up to `WRITE_BYTES` goes out in one write; a longer one in slices of that size, so
    that never more than a slice is copied. Producing can be started again, from the beginning,
    which a silent retry does.

    Attributes:
        length: bytes in all; it stays when the pieces are released.
        on_progress: called when the consumer has taken bytes and asks for more.
    """

    def __init__(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Take the pieces, in order; they are not copied."""
        self._pieces: list[bytes | memoryview] | None = [
            piece if isinstance(piece, bytes) else piece.cast("B") for piece in pieces
        ]
        self.length: int = sum(map(len, self._pieces))
        self.on_progress: Callable[[], None] = _nobody
        self._index = 0
        self._offset = 0
        self._paused = False
        self._consumer: IConsumer | None = None
        self._done: Deferred[None] | None = None

    @property
    def pieces(self) -> Sequence[bytes | memoryview]:
        """The pieces, in order; none once they are released."""
        return self._pieces or ()

    def release(self) -> None:
        """Drop the bytes, and stop producing: from now on there is nothing to send again."""
        self.stopProducing()
        self._pieces = None

    def startProducing(self, consumer: IConsumer) -> Deferred[None]:
        """Write the body to `consumer`, from its first byte.

        Returns:
            Fires when all is written; never, once `stopProducing` was called. Cancelling it stops
            the production. Fails with RuntimeError when the bytes have been released.
        """
        if self._pieces is None:
            return fail(RuntimeError("the body has been released"))
        self._index = self._offset = 0
        self._paused = False
        self._consumer = consumer
        done: Deferred[None] = Deferred(lambda _: self.stopProducing())
        self._done = done
        self._produce()
        return done

    def pauseProducing(self) -> None:
        """Write nothing until `resumeProducing`."""
        self._paused = True

    def resumeProducing(self) -> None:
        """Go on writing."""
        self._paused = False
        self.on_progress()
        self._produce()

    def stopProducing(self) -> None:
        """Write nothing more; the Deferred of `startProducing` never fires."""
        self._consumer = self._done = None

    def _produce(self) -> None:
        while self._consumer is not None and not self._paused:
            data = self._next()
            if not data:
                done, self._consumer, self._done = self._done, None, None
                if done is not None:
                    done.callback(None)
                return
            self._consumer.write(data)

    def _next(self) -> bytes:
        """The next slice, b"" at the end. The position moves on before anyone can re-enter."""
        pieces = self._pieces or []
        taken: list[bytes | memoryview] = []
        room = WRITE_BYTES
        while room and self._index < len(pieces):
            piece = pieces[self._index]
            end = min(self._offset + room, len(piece))
            whole = self._offset == 0 and end == len(piece)
            taken.append(piece if whole else memoryview(piece)[self._offset : end])
            room -= end - self._offset
            if end == len(piece):
                self._index, self._offset = self._index + 1, 0
            else:
                self._offset = end
        if len(taken) == 1 and isinstance(taken[0], bytes):
            return taken[0]
        return b"".join(taken)


def _nobody() -> None:
    """Nobody asks."""


@implementer(IConsumer, IPushProducer)
class RequestWriter:
    """Puts one request on a transport: the head with the body's first bytes, then the rest.

    It stands between the transport and the body producer: it frames and counts what the producer
    writes, and passes the transport's back-pressure on. After `stop` neither hears of the other.

    Attributes:
        sent: whether the whole request has been handed to the transport.
    """

    def __init__(
        self,
        transport: ITransport,
        head: bytes,
        producer: IBodyProducer | None,
        failed: Callable[[BodyFailed], None],
    ) -> None:
        """Take the parts of the request.

        Args:
            transport: also an IConsumer.
            head: the request head, its blank line included.
            producer: the body, if there is one.
            failed: called, at most once, when the body breaks; the request cannot go on then.
        """
        self.sent = False
        self._transport = transport
        self._head = head
        self._producer = producer
        self._failed = failed
        self._left: int | None = None
        self._stopped = False
        self._started: Deferred[None] | None = None

    def start(self) -> None:
        """Write the head, and start the producer."""
        producer = self._producer
        if producer is None:
            self.sent = True
            self._transport.write(self._head)
            return
        length = producer.length
        self._left = None if length is UNKNOWN_LENGTH else int(length)
        cast(IConsumer, self._transport).registerProducer(self, True)
        if self._stopped:
            return
        started = maybeDeferred(producer.startProducing, self)
        if self._head and not self._stopped:
            self._flush(())
        self._started = started.addCallbacks(self._finished, self._broken)

    def stop(self) -> None:
        """Send no more of the body; the producer is stopped if it was still at it."""
        producer = self._detach()
        if producer is not None:
            producer.stopProducing()

    def write(self, data: bytes) -> None:
        """Take body bytes from the producer. What comes after `stop` is dropped."""
        if self._stopped or not data:
            return
        if self._left is None:
            self._flush((b"%x\r\n" % len(data), data, b"\r\n"))
        elif len(data) > self._left:
            self._break(BodyFailed("the request body is longer than was promised"))
        else:
            self._left -= len(data)
            # All is out: an answer that comes before the producer's Deferred fires is not early.
            self.sent = self._left == 0
            self._flush((data,))

    def registerProducer(self, producer: object, streaming: bool) -> None:
        """Refuse: a body producer is registered by being passed to the agent."""
        raise RuntimeError("a body producer does not register itself")

    def unregisterProducer(self) -> None:
        """Refuse, as `registerProducer` does."""
        raise RuntimeError("a body producer does not unregister itself")

    def pauseProducing(self) -> None:
        """Pass on that the transport's buffer is full."""
        if self._producer is not None:
            self._producer.pauseProducing()

    def resumeProducing(self) -> None:
        """Pass on that the transport's buffer has room again."""
        if self._producer is not None:
            self._producer.resumeProducing()

    def stopProducing(self) -> None:
        """Pass on that the transport is gone, which will tell its protocol too."""
        self.stop()

    def _flush(self, pieces: tuple[bytes, ...]) -> None:
        """Write the head, if it is not yet out, and `pieces` in one go."""
        head, self._head = self._head, b""
        self._transport.writeSequence((head, *pieces) if head else pieces)

    def _detach(self) -> IBodyProducer | None:
        """Let go of transport and producer, once; the producer, if it has not finished."""
        producer, self._producer = self._producer, None
        self._stopped = True
        if producer is not None:
            cast(IConsumer, self._transport).unregisterProducer()
        return producer

    def _finished(self, _: object) -> None:
        if self._stopped:
            return
        if self._left:
            self._break(BodyFailed("the request body is shorter than was promised"))
            return
        if self._left is None:
            self._flush((b"0\r\n\r\n",))
        self.sent = True
        self._detach()

    def _broken(self, failure: Failure) -> None:
        if self._stopped:
            return
        self._detach()
        if self.sent:
            return
        error = BodyFailed("the request body could not be produced")
        error.__cause__ = failure.value
        self._failed(error)

    def _break(self, error: BodyFailed) -> None:
        self.stop()
        self._failed(error)
