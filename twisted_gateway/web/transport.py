"""What waits in a transport for a client that may not read it."""

from __future__ import annotations

import fcntl
import sys
import termios
from typing import Any


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
