"""An event stream as a client sees it, in whatever pieces it comes."""

from __future__ import annotations

from typing import Any, cast

from twisted.internet.protocol import Protocol
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone

from tests.support import TestCase
from twisted_gateway.check.stream import Stream, read_stream
from twisted_gateway.upstream.response import UpstreamResponse

PLACE = b": keep-alive position=3 eta=42\n\n"
CONTENT = b'data: {"choices":[{"index":0,"delta":{"content":"yes"}}]}\n\n'
DONE = b"data: [DONE]\n\n"


class _Body:
    """An answer whose body is the test's."""

    def deliverBody(self, reader: Protocol) -> None:
        self.reader = reader
        reader.makeConnection(StringTransport())


class StreamTests(TestCase):
    """What is seen of a stream."""

    def read(self, *pieces: bytes) -> Stream:
        """Read a stream that comes in these pieces, and ends well."""
        body = _Body()
        read = read_stream(cast(UpstreamResponse, body), self.clock, 10)
        for piece in pieces:
            body.reader.dataReceived(piece)
        body.reader.connectionLost(Failure(ResponseDone()))
        found: Any = self.successResultOf(read)
        assert isinstance(found, Stream)
        return found

    def test_queued(self) -> None:
        """That it stood in the queue is seen, wherever the comment is cut."""
        for cut in range(len(PLACE) + 1):
            found = self.read(PLACE[:cut], PLACE[cut:], CONTENT + DONE)
            self.assertTrue(found.queued, cut)
            self.assertEqual((found.contents, found.terminal, found.fault), (1, True, ""))

    def test_not_queued(self) -> None:
        """Neither another comment nor what a model says is such a place."""
        said = CONTENT.replace(b"yes", b": keep-alive position=3")
        self.assertFalse(self.read(b": keep-alive\n\n", said, DONE).queued)
