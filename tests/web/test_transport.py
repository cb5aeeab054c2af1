from __future__ import annotations

import socket
from typing import Any

from tests.support import TestCase
from twisted_gateway.web.transport import LOOK_SECONDS, Watched, has_left


class Transport:
    """A transport over a real socket."""

    def __init__(self, handle: socket.socket) -> None:
        self.handle = handle
        self.paused = self.stopped = False

    def getHandle(self) -> socket.socket:
        return self.handle

    def pauseProducing(self) -> None:
        self.paused = True

    def resumeProducing(self) -> None:
        self.paused = False

    def stopProducing(self) -> None:
        self.stopped = True


class WatchedTests(TestCase):
    """A connection that is not read."""

    def setUp(self) -> None:
        super().setUp()
        self.far, near = socket.socketpair()
        self.addCleanup(self.far.close)
        self.addCleanup(near.close)
        self.transport = Transport(near)
        self.left = 0
        network: Any = self.transport
        self.watched = Watched(network, self.transport, self.clock.callLater, self.leave)

    def leave(self) -> None:
        self.left += 1

    def test_while_paused(self) -> None:
        """It is looked at every second while it is paused, and only then."""
        self.watched.pauseProducing()
        self.watched.pauseProducing()
        self.assertTrue(self.transport.paused)
        self.far.send(b"bytes that nobody reads")
        self.clock.pump([LOOK_SECONDS] * 5)
        self.assertEqual(self.left, 0)
        self.watched.resumeProducing()
        self.assertFalse(self.transport.paused)
        self.far.close()
        self.clock.pump([LOOK_SECONDS] * 5)
        self.assertEqual(self.left, 0)
        self.watched.pauseProducing()
        self.clock.advance(LOOK_SECONDS)
        self.assertEqual(self.left, 1)

    def test_stop(self) -> None:
        """Once stopped nothing is looked at."""
        self.watched.pauseProducing()
        self.watched.stopProducing()
        self.assertTrue(self.transport.stopped)

    def test_half_closed(self) -> None:
        """A peer that will send nothing more has left, as for a connection that is read."""
        self.assertFalse(has_left(self.transport))
        self.far.shutdown(socket.SHUT_WR)
        self.assertTrue(has_left(self.transport))

    def test_no_socket(self) -> None:
        """Of what is no open socket nothing is said."""
        self.transport.handle.close()
        self.assertFalse(has_left(self.transport))
        self.assertFalse(has_left(object()))
