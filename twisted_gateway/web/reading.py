"""What an operation has read of its service's answers, counted while it has it."""

from __future__ import annotations

from twisted_gateway.web.intake import HeldBytes

UNCOUNTED_BYTES = 65_536
"""How long an answer, or a document, may be that counts nowhere: it does not stay for long.

What tells of a refusal, or of something that has to be undone, is no longer, so that it is read
however much is held.
"""


class Reading:
    """Counts an answer against `maxHeldBytes` as it comes in, but for its first `UNCOUNTED_BYTES`.

    Args:
        held: bytes held by the process.
    """

    def __init__(self, held: HeldBytes) -> None:
        """Begin with nothing."""
        self._held = held
        self._came = 0
        self._counted = 0

    def add(self, count: int) -> bool:
        """Count bytes that have come; False where the process holds too much already."""
        counted = max(0, self._came + count - UNCOUNTED_BYTES)
        if not self._held.take(counted - self._counted):
            return False
        self._came += count
        self._counted = counted
        return True

    def release(self) -> None:
        """Give back what was counted, and begin anew; idempotent."""
        self._held.give(self._counted)
        self._came = self._counted = 0
