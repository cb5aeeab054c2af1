"""Behaviour of `read_whole`."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone

from tests.support import TestCase
from twisted_gateway.upstream.errors import Truncated
from twisted_gateway.upstream.whole import read_whole

LIMIT = 10


class Answer:
    """An answer whose body the test delivers.

    Attributes:
        aborted: whether its connection was dropped.
    """

    def __init__(self) -> None:
        self.aborted = False
        self.protocol: Any = None

    def deliverBody(self, protocol: Any) -> None:
        self.protocol = protocol
        protocol.makeConnection(self)

    def abortConnection(self) -> None:
        self.aborted = True

    def more(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.protocol.dataReceived(piece)

    def end(self, why: Exception) -> None:
        self.protocol.connectionLost(Failure(why))


class ReadWholeTests(TestCase):
    """A body is read within bounds."""

    def read(self, room: int = 1000, seconds: float | None = 5) -> tuple[Answer, Deferred[Any]]:
        """Begin to read; there is room for so many bytes."""
        self.heard: list[int] = []

        def heard(count: int) -> bool:
            self.heard.append(count)
            return sum(self.heard) <= room

        answer: Any = Answer()
        reading = read_whole(answer, self.clock, limit_bytes=LIMIT, seconds=seconds, admit=heard)
        return answer, Deferred.fromCoroutine(reading)

    def test_whole(self) -> None:
        """What came is given when all has, and whoever asked is told of each piece."""
        answer, read = self.read()
        answer.more(b"abc", b"", b"defghij")
        self.assertNoResult(read)
        answer.end(ResponseDone())
        self.assertEqual(self.successResultOf(read), (b"abcdefghij", True))
        self.assertEqual((self.heard, answer.aborted), ([3, 0, 7], False))

    def test_broken_off(self) -> None:
        """What breaks off is not all of it."""
        answer, read = self.read()
        answer.more(b"abc")
        answer.end(Truncated("the connection ended"))
        self.assertEqual(self.successResultOf(read), (b"abc", False))

    def test_too_long(self) -> None:
        """What is longer is cut off, and what is cut off counts nowhere."""
        answer, read = self.read()
        answer.more(b"abcdefgh", b"ijk")
        self.assertEqual(self.successResultOf(read), (b"abcdefghij", False))
        answer.more(b"l")
        self.assertEqual((self.heard, answer.aborted), ([8], True))

    def test_no_room(self) -> None:
        """Where there is no room for a piece nothing is kept, and the connection is dropped."""
        answer, read = self.read(room=4)
        answer.more(b"abc", b"de", b"f")
        self.assertEqual(self.successResultOf(read), (b"", False))
        answer.end(ResponseDone())
        self.assertEqual((self.heard, answer.aborted), ([3, 2], True))

    def test_too_late(self) -> None:
        """What takes too long is cut off."""
        answer, read = self.read()
        answer.more(b"abc")
        self.clock.advance(5)
        self.assertEqual(self.successResultOf(read), (b"abc", False))
        self.assertTrue(answer.aborted)

    def test_cancelled(self) -> None:
        """Cancelling drops the connection, and what still comes counts nowhere."""
        answer, read = self.read()
        read.cancel()
        self.failureResultOf(read, CancelledError)
        answer.more(b"abc")
        self.assertEqual((self.heard, answer.aborted), ([], True))

    def test_handed_over(self) -> None:
        """Nothing keeps a body beside whoever has read it."""
        answer, read = self.read(seconds=None)
        answer.more(b"abc")
        answer.end(ResponseDone())
        self.successResultOf(read)
        self.assertEqual(answer.protocol.taken(), b"")
