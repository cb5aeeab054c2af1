"""Request bodies on their way in: bounded one by one and all together, in memory only."""

from __future__ import annotations

import io
from typing import NamedTuple


class BodyRule(NamedTuple):
    """What holds for the body of one request.

    Attributes:
        max_bytes: the largest that is taken.
        from_head: whether the request is handled from its head on, rather than from its body's
            end: so that who may not is told before its body is taken in.
    """

    max_bytes: int
    from_head: bool = False


MAX_IDLE_BODY_BYTES = 65_536
"""The largest body of a request for which a body means nothing."""


class HeldBytes:
    """How many bytes the process holds, of bodies and documents, against one bound for all.

    Attributes:
        now: bytes held.
        limit: the bound, `maxHeldBytes`.
    """

    def __init__(self, limit: int) -> None:
        """Start with nothing held."""
        self.now = 0
        self.limit = limit

    def take(self, count: int) -> bool:
        """Hold `count` more; False, and nothing held, where that would pass the bound.

        Nothing more may always be held, also where a reload has put the bound below what is.
        """
        if count and self.now + count > self.limit:
            return False
        self.now += count
        return True

    def give(self, count: int) -> None:
        """Give back what was taken."""
        self.now -= count


class Body(io.BytesIO):
    """A request's body, in the file form that twisted.web expects, never on disk.

    Its bytes count against `held` from the first to `release`, or to `close`, which twisted.web
    calls at the end of every request.
    """

    def __init__(self, held: HeldBytes) -> None:
        """Start empty."""
        super().__init__()
        self._held = held
        self._counted = 0

    def add(self, data: bytes) -> bool:
        """Append; False where the process holds too much already, and then nothing is added."""
        if not self._held.take(len(data)):
            return False
        self._counted += len(data)
        self.write(data)
        return True

    def __len__(self) -> int:
        """Bytes received so far."""
        return self._counted

    def whole(self) -> bytes:
        """The whole body; BytesIO shares its buffer with what it returns, so nothing is copied."""
        return self.getvalue()

    def recount(self, count: int) -> bool:
        """Drop the bytes and count `count` others (a body was decoded); False: that is too much."""
        self.release()
        if not self._held.take(count):
            return False
        self._counted = count
        return True

    def release(self) -> None:
        """Stop counting and drop the bytes; idempotent."""
        self._held.give(self._counted)
        self._counted = 0
        if not self.closed:
            self.seek(0)
            self.truncate()

    def close(self) -> None:
        """Release and close."""
        self.release()
        super().close()
