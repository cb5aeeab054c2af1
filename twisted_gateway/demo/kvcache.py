"""The KV cache of a simulated engine: blocks that grow with a request, and blocks that it shares.

A block is in one of three states: private to one job, shared (a full block of some prompt, held by
one or more jobs), or idle (a full block of some prompt that nobody holds: it can be hit again until
its room is wanted, least recently used first). Idle blocks do not count as usage, as in vLLM.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Holding:
    """What one job holds: `private` blocks and the keys of `shared` ones.

    `stored` counts the leading blocks of the prompt that have been offered for sharing.
    """

    private: int = 0
    shared: list[int] = field(default_factory=list)
    stored: int = 0

    @property
    def blocks(self) -> int:
        """How many blocks the job holds in all."""
        return self.private + len(self.shared)


class KvCache:
    """A pool of `total_blocks` blocks of `block_tokens` tokens each."""

    def __init__(self, total_blocks: int, block_tokens: int) -> None:
        """Start empty."""
        self._total = total_blocks
        self._block_tokens = block_tokens
        self._private = 0
        self._holders: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()

    @property
    def used_blocks(self) -> int:
        """The blocks that some job holds."""
        return self._private + len(self._holders)

    @property
    def usage(self) -> float:
        """The share of the blocks that some job holds, 0 to 1."""
        return self.used_blocks / self._total

    @property
    def idle_blocks(self) -> int:
        """The cached blocks that nobody holds; with the used ones never more than the total."""
        return len(self._idle)

    def match(self, keys: Sequence[int]) -> int:
        """How many of the leading `keys` are cached."""
        for index, key in enumerate(keys):
            if key not in self._holders and key not in self._idle:
                return index
        return len(keys)

    def take(self, holding: Holding, keys: Sequence[int], tokens: int) -> bool:
        """Let an empty `holding` share the cached blocks `keys` and have room for `tokens` in all.

        Returns:
            Whether there was room; if not, nothing has changed.
        """
        woken = sum(key in self._idle for key in keys)
        extra = self._blocks(tokens) - len(keys)
        if self.used_blocks + woken + extra > self._total:
            return False
        for key in keys:
            self._idle.pop(key, None)
            self._holders[key] = self._holders.get(key, 0) + 1
        holding.shared.extend(keys)
        holding.stored = len(keys)
        self._add(holding, extra)
        return True

    def grow(self, holding: Holding, tokens: int) -> bool:
        """Give `holding` room for `tokens` in all; False, and no change, where there is none."""
        extra = self._blocks(tokens) - holding.blocks
        if extra > 0 and self.used_blocks + extra > self._total:
            return False
        self._add(holding, max(0, extra))
        return True

    def store(self, holding: Holding, keys: Sequence[int], computed_tokens: int) -> None:
        """Offer the prompt blocks that are now computed to later prompts that begin alike."""
        full = min(len(keys), computed_tokens // self._block_tokens)
        for key in keys[holding.stored : full]:
            if key in self._holders or key in self._idle:
                continue  # another job computed the same block meanwhile: this copy stays private
            self._holders[key] = 1
            holding.shared.append(key)
            holding.private -= 1
            self._private -= 1
        holding.stored = max(holding.stored, full)

    def release(self, holding: Holding) -> None:
        """Give all blocks back; shared ones that nobody else holds become idle."""
        self._private -= holding.private
        # The tail first, so that it is evicted first: a prefix is worth more than what follows it.
        for key in reversed(holding.shared):
            self._holders[key] -= 1
            if not self._holders[key]:
                del self._holders[key]
                self._idle[key] = None
        holding.private = holding.stored = 0
        holding.shared.clear()

    def _add(self, holding: Holding, blocks: int) -> None:
        holding.private += blocks
        self._private += blocks
        while self.used_blocks + len(self._idle) > self._total:
            self._idle.popitem(last=False)

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self._block_tokens)
