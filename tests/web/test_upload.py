from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPushProducer
from twisted.web.iweb import UNKNOWN_LENGTH, IBodyProducer
from zope.interface import implementer
from zope.interface.verify import verifyObject

from tests.support import TestCase, examples
from twisted_gateway.web.intake import HeldBytes
from twisted_gateway.web.upload import Upload


@implementer(IPushProducer)
class Network:
    """The client's connection."""

    paused = False

    def pauseProducing(self) -> None:
        self.paused = True

    def resumeProducing(self) -> None:
        self.paused = False

    def stopProducing(self) -> None:
        raise AssertionError("nobody stops a client")


class Consumer:
    """Whoever the body is passed on to."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data


class UploadTestCase(TestCase):
    """A body, the connection it comes from, and who takes it."""

    def setUp(self) -> None:
        super().setUp()
        self.network, self.held, self.consumer = Network(), HeldBytes(1000), Consumer()
        self.upload = Upload(10, self.network, self.held)

    def produce(self) -> Deferred[None]:
        consumer: Any = self.consumer
        return self.upload.startProducing(consumer)


class PassingTests(UploadTestCase):
    """A body that is passed on."""

    def test_interface(self) -> None:
        """It is what an agent takes, with a length or without."""
        self.assertTrue(verifyObject(IBodyProducer, self.upload))
        self.assertEqual(self.upload.length, 10)
        self.assertIs(Upload(None, self.network, self.held).length, UNKNOWN_LENGTH)

    def test_waits_for_a_taker(self) -> None:
        """What comes before anybody takes it waits, and the client with it."""
        self.assertTrue(self.upload.feed(b"abc"))
        self.assertTrue(self.network.paused)
        self.assertEqual(self.held.now, 3)
        done = self.produce()
        self.assertEqual(self.consumer.data, b"abc")
        self.assertFalse(self.network.paused)
        self.assertEqual(self.held.now, 0)
        self.upload.feed(b"def")
        self.assertNoResult(done)
        self.upload.end()
        self.successResultOf(done)
        self.assertEqual(self.consumer.data, b"abcdef")

    def test_ended_before_it_begins(self) -> None:
        """A body that was whole before anybody took it is passed on at once."""
        self.upload.feed(b"abc")
        self.upload.end()
        self.assertFalse(self.network.paused)
        self.successResultOf(self.produce())
        self.assertEqual(self.consumer.data, b"abc")

    def test_pause(self) -> None:
        """The taker's pace is the client's."""
        done = self.produce()
        self.upload.pauseProducing()
        self.assertTrue(self.network.paused)
        self.upload.feed(b"late")
        self.assertEqual(self.consumer.data, b"")
        self.upload.resumeProducing()
        self.assertEqual(self.consumer.data, b"late")
        self.assertFalse(self.network.paused)
        self.upload.pauseProducing()
        self.upload.end()
        self.assertNoResult(done)
        self.upload.resumeProducing()
        self.successResultOf(done)

    def test_paused_again(self) -> None:
        """Where somebody else lets the client send on, it is stopped again."""
        self.upload.feed(b"abc")
        self.network.resumeProducing()
        self.upload.feed(b"def")
        self.assertTrue(self.network.paused)

    def test_once(self) -> None:
        """It cannot be sent again: what was passed on is not kept."""
        self.upload.feed(b"a")
        first = self.produce()
        self.upload.stopProducing()
        self.assertNoResult(first)
        self.failureResultOf(self.produce(), RuntimeError)

    def test_stop(self) -> None:
        """Once stopped nothing is written, and the client is not read."""
        done = self.produce()
        self.upload.stopProducing()
        self.assertTrue(self.network.paused)
        self.upload.feed(b"abc")
        self.upload.end()
        self.assertEqual(self.consumer.data, b"")
        self.assertNoResult(done)

    def test_discard(self) -> None:
        """What is discarded runs to nowhere, and counts no more."""
        self.upload.feed(b"abc")
        self.upload.discard()
        self.assertFalse(self.network.paused)
        self.assertEqual(self.held.now, 0)
        self.assertTrue(self.upload.feed(b"x" * 5000))
        self.assertEqual(self.held.now, 0)

    def test_discarded_before_it_is_let_go(self) -> None:
        """Whoever took it stops later: the client is not held up by that."""
        _ = self.produce()
        self.upload.discard()
        self.upload.pauseProducing()
        self.upload.stopProducing()
        self.assertFalse(self.network.paused)

    def test_too_much_held(self) -> None:
        """Past maxHeldBytes nothing more is taken."""
        self.assertFalse(self.upload.feed(b"x" * 1001))
        self.assertEqual(self.held.now, 0)

    def test_starved(self) -> None:
        """It says whether it is the client that is waited for."""
        done = self.produce()
        self.assertTrue(self.upload.starved)
        self.upload.pauseProducing()
        self.assertFalse(self.upload.starved)
        self.upload.resumeProducing()
        self.upload.end()
        self.assertFalse(self.upload.starved)
        self.successResultOf(done)


class ReadingTests(UploadTestCase):
    """A body that is read."""

    def read(self, count: int) -> Deferred[bytes]:
        return Deferred.fromCoroutine(self.upload.read(count))

    def test_pieces(self) -> None:
        """It comes in pieces of the size that is asked for, the last one smaller."""
        self.upload.feed(b"abc")
        self.assertEqual(self.successResultOf(self.read(2)), b"ab")
        waiting = self.read(4)
        self.assertFalse(self.network.paused)
        self.upload.feed(b"def")
        self.assertEqual(self.successResultOf(waiting), b"cdef")
        self.assertTrue(self.network.paused)
        last = self.read(4)
        self.upload.feed(b"g")
        self.upload.end()
        self.assertEqual(self.successResultOf(last), b"g")
        self.assertEqual(self.successResultOf(self.read(4)), b"")
        self.assertEqual(self.held.now, 0)

    def test_counted_until_the_next(self) -> None:
        """What was given counts as held until more is asked for, or all is let go."""
        self.upload.feed(b"abcdef")
        self.assertEqual(self.successResultOf(self.read(4)), b"abcd")
        self.assertEqual(self.held.now, 6)
        waiting = self.read(4)
        self.assertEqual(self.held.now, 2)
        self.upload.feed(b"gh")
        self.assertEqual(self.successResultOf(waiting), b"efgh")
        self.assertEqual(self.held.now, 4)
        self.upload.discard()
        self.assertEqual(self.held.now, 0)

    def test_cancelled(self) -> None:
        """Who stops waiting leaves the bytes there."""
        waiting = self.read(4)
        self.upload.feed(b"ab")
        waiting.cancel()
        self.failureResultOf(waiting)
        self.upload.feed(b"cd")
        self.assertEqual(self.successResultOf(self.read(4)), b"abcd")

    @examples(100)
    @given(st.lists(st.binary(min_size=1, max_size=20), max_size=10), st.integers(1, 30))
    def test_nothing_is_lost(self, chunks: list[bytes], count: int) -> None:
        """However it comes and is read, it is the same bytes."""
        upload = Upload(None, self.network, HeldBytes(10_000))
        pieces: list[bytes] = []
        for chunk in chunks:
            upload.feed(chunk)
        upload.end()
        while piece := self.successResultOf(Deferred.fromCoroutine(upload.read(count))):
            pieces.append(piece)
        self.assertEqual(b"".join(pieces), b"".join(chunks))
        self.assertTrue(all(len(piece) == count for piece in pieces[:-1]))
