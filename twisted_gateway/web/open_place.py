"""Where a request goes that no gate holds back."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from twisted_gateway.core.sse import KEEP_ALIVE


class OpenPlace:
    """A place in an engine that has no gate: always free.

    Of several engines the one with fewest of our requests in flight is asked first, and another
    only when one refuses the connection.
    """

    def __init__(self, loads: dict[str, int], upstreams: Sequence[str]) -> None:
        """Take the book of requests in flight and the engines' base URLs."""
        self._loads = loads
        self._untried = list(upstreams)
        self.upstream = ""

    async def __aenter__(self) -> OpenPlace:
        """Choose an engine."""
        self._choose()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Count the request out."""
        self._leave()

    async def again(self, *, connected: bool) -> bool:
        """Choose another engine after a refused connection, as long as there is one."""
        if connected or not self._untried:
            return False
        self._leave()
        self._choose()
        return True

    def broken(self) -> None:
        """The answer broke off; nobody waits here."""

    def content(self) -> None:
        """Content came; nobody counts it here."""

    def answered(self) -> None:
        """An answer has begun; nobody has waited for it here."""

    def comment(self) -> bytes:
        """The comment that keeps a silent stream alive."""
        return KEEP_ALIVE

    def _choose(self) -> None:
        self.upstream = min(self._untried, key=lambda url: self._loads.get(url, 0))
        self._untried.remove(self.upstream)
        self._loads[self.upstream] = self._loads.get(self.upstream, 0) + 1

    def _leave(self) -> None:
        left = self._loads.pop(self.upstream) - 1
        if left:
            self._loads[self.upstream] = left
