"""What a transport does not tell by itself: what waits in it, and that its peer has left."""

from __future__ import annotations

import fcntl
import select
import sys
import termios
from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IDelayedCall, IPushProducer
from zope.interface import implementer

LOOK_SECONDS = 1.0
"""How often it is looked whether the peer of a connection that is not read is still there."""

# Where there is no POLLRDHUP (it is Linux's), POLLHUP says the same; that is always reported.
_LEFT = getattr(select, "POLLRDHUP", 0)


@implementer(IPushProducer)
class Watched:
    """A connection whose peer's leaving is noticed while it is paused, too.

    The reactor does not look at a socket that is not read, so neither its end nor its reset shows.

    Args:
        network: what is paused and resumed.
        transport: its socket is looked at.
        call_later: sets a timer, as a reactor does.
        left: called when the peer has left; closes the connection.
    """

    def __init__(
        self,
        network: IPushProducer,
        transport: Any,
        call_later: Callable[..., IDelayedCall],
        left: Callable[[], object],
    ) -> None:
        """Take what the class documents; the connection is being read."""
        self._network = network
        self._transport = transport
        self._call_later = call_later
        self._left = left
        self._timer: IDelayedCall | None = None

    def pauseProducing(self) -> None:
        """Read no more, and look from time to time instead."""
        self._network.pauseProducing()
        if self._timer is None:
            self._timer = self._call_later(LOOK_SECONDS, self._look)

    def resumeProducing(self) -> None:
        """Read on."""
        self._rest()
        self._network.resumeProducing()

    def stopProducing(self) -> None:
        """Close."""
        self._rest()
        self._network.stopProducing()

    def _look(self) -> None:
        if has_left(self._transport):
            self._timer = None
            self._left()
        else:
            self._timer = self._call_later(LOOK_SECONDS, self._look)

    def _rest(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()


def has_left(transport: Any) -> bool:
    """Whether the peer has ended or reset a connection, though not all it sent was read yet."""
    look = select.poll()
    try:
        look.register(transport.getHandle().fileno(), _LEFT)
    except (AttributeError, OSError, ValueError):
        # No open socket: whoever closed it has noticed.
        return False
    return bool(look.poll(0))


def waiting_bytes(transport: Any) -> int | None:
    """Bytes that wait for the peer, ours and the kernel's; None where nobody tells.

    Both count, for the kernel takes ours in large steps, however steadily the peer reads.
    """
    try:
        ours = len(transport.dataBuffer) - int(transport.offset)
    except AttributeError:
        return None
    return ours + _unacknowledged_bytes(transport)


def _unacknowledged_bytes(transport: Any) -> int:
    """What the kernel holds that the peer has not acknowledged (Linux: SIOCOUTQ)."""
    count = bytearray(4)
    try:
        fcntl.ioctl(transport.getHandle().fileno(), termios.TIOCOUTQ, count)
    except (AttributeError, OSError, ValueError):
        # No open socket, or a system without it: our own buffer has to do.
        return 0
    return int.from_bytes(count, sys.byteorder)
