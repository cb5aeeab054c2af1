"""Behaviour of request bodies that are in memory."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.web.iweb import IBodyProducer
from zope.interface.verify import verifyObject

from tests.support import TestCase, examples
from tests.upstream.network import MemoryTransport
from twisted_gateway.upstream.request_body import WRITE_BYTES, BytesProducer


class Consumer:
    """Keeps the writes; pauses the producer, from inside the write, after each `every`-th."""

    def __init__(self, producer: BytesProducer, every: int = 0) -> None:
        self.producer = producer
        self.every = every
        self.writes: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.writes.append(data)
        if self.every and len(self.writes) % self.every == 0:
            self.producer.pauseProducing()


class BytesProducerTests(TestCase):
    """`BytesProducer`."""

    def start(self, pieces: list[bytes | memoryview], every: int = 0) -> tuple[Any, Consumer, Any]:
        producer = BytesProducer(pieces)
        consumer = Consumer(producer, every)
        return producer, consumer, producer.startProducing(consumer)  # type: ignore[arg-type]

    def test_interface(self) -> None:
        """It is an IBodyProducer of known length."""
        producer = BytesProducer([b"ab", memoryview(b"cd")])
        verifyObject(IBodyProducer, producer)
        self.assertEqual(producer.length, 4)

    def test_small(self) -> None:
        """A small body is one write, of the very same object when it is one piece of bytes."""
        piece = b"x" * WRITE_BYTES
        _, consumer, done = self.start([piece])
        self.assertIs(consumer.writes[0], piece)
        self.assertIsNone(self.successResultOf(done))
        _, consumer, _ = self.start([b"a", memoryview(b"b"), b"", b"c"])
        self.assertEqual(consumer.writes, [b"abc"])

    def test_empty(self) -> None:
        """An empty body is no write, and done at once."""
        for pieces in ([], [b""]):
            _, consumer, done = self.start(list(pieces))
            self.assertEqual(consumer.writes, [])
            self.successResultOf(done)

    def test_wide_items(self) -> None:
        """The length of a memoryview is in bytes, whatever its items are."""
        producer, consumer, _ = self.start([memoryview(b"abcdefgh").cast("I")])
        self.assertEqual((producer.length, consumer.writes), (8, [b"abcdefgh"]))

    @examples(30)
    @given(
        st.lists(
            st.one_of(st.binary(max_size=9), st.integers(0, 3 * WRITE_BYTES).map(bytes)),
            max_size=5,
        ),
        st.integers(0, 3),
    )
    def test_slices(self, pieces: list[bytes], every: int) -> None:
        """Whatever the pieces and pauses, all bytes go out once, in full slices, in bytes."""
        producer, consumer, done = self.start(list(pieces), every)
        turns = 0
        while not done.called:
            written = len(consumer.writes)
            self.assertEqual(written % every, 0)
            producer.resumeProducing()
            turns += 1
            self.assertLess(turns, 100)
        body = b"".join(pieces)
        self.assertEqual(b"".join(consumer.writes), body)
        self.assertEqual(producer.length, len(body))
        self.assertEqual({type(data) for data in consumer.writes} - {bytes}, set())
        self.assertEqual([len(data) for data in consumer.writes[:-1]],
                         [WRITE_BYTES] * (len(consumer.writes) - 1))  # fmt: skip

    def test_resumed_within_the_write(self) -> None:
        """A consumer that pauses and resumes inside a write neither loses nor repeats bytes."""
        producer = BytesProducer([bytes(WRITE_BYTES), b"b" * WRITE_BYTES, b"c"])
        writes: list[bytes] = []

        class Hasty:
            def write(self, data: bytes) -> None:
                writes.append(data[:1])
                producer.pauseProducing()
                producer.resumeProducing()

        done = producer.startProducing(Hasty())  # type: ignore[arg-type]
        self.assertEqual(writes, [b"\0", b"b", b"c"])
        self.successResultOf(done)

    def test_stop(self) -> None:
        """After a stop nothing is written and the Deferred never fires; it can start again."""
        producer, consumer, done = self.start([bytes(3 * WRITE_BYTES)], 1)
        producer.stopProducing()
        producer.resumeProducing()
        self.assertEqual(len(consumer.writes), 1)
        self.assertNoResult(done)
        again = Consumer(producer)
        self.successResultOf(producer.startProducing(again))
        self.assertEqual(len(again.writes), 3)
        self.assertNoResult(done)

    def test_cancel(self) -> None:
        """Cancelling the Deferred stops the production."""
        producer, consumer, done = self.start([bytes(3 * WRITE_BYTES)], 1)
        failures: list[object] = []
        done.addErrback(failures.append)
        done.cancel()
        producer.resumeProducing()
        self.assertEqual((len(consumer.writes), len(failures)), (1, 1))

    def test_release(self) -> None:
        """Released, it writes nothing more, keeps its length and cannot start again."""
        producer, consumer, done = self.start([bytes(3 * WRITE_BYTES)], 1)
        producer.release()
        producer.resumeProducing()
        self.assertEqual((len(consumer.writes), producer.length), (1, 3 * WRITE_BYTES))
        self.assertNoResult(done)
        self.failureResultOf(producer.startProducing(consumer), RuntimeError)

    def test_memory_transport_is_one(self) -> None:
        """The transport of these tests takes bytes only, as real ones do."""
        self.assertRaises(TypeError, MemoryTransport(self.clock).write, memoryview(b"a"))
