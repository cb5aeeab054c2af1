"""What prompts begin with: engines keep the KV of prefixes, so a prompt seen lately costs less.

A body is read in blocks of 4 KiB. Each block is named by a hash of the body up to its end, so two
bodies share as many names as they share whole blocks from their start.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from hashlib import blake2b

BLOCK_BYTES = 4096
MOST_BLOCKS = 10_000
"""Of prefixes remembered, all together."""
MOST_BLOCKS_OF_ONE = 512
"""Of one body: some 500,000 tokens. What comes later is not named: a body of any size takes a
few milliseconds of a blocked reactor, and displaces a twentieth of what is remembered."""


def block_hashes(
    body: bytes | memoryview | Iterable[bytes | memoryview], key: bytes, model: str = ""
) -> tuple[int, ...]:
    """Name the whole blocks of a body, first to last, at most `MOST_BLOCKS_OF_ONE`.

    Args:
        body: the request's body, whole or in pieces; how it is cut makes no difference, and
            nothing is copied.
        key: of 16 to 64 bytes, secret to this process: nobody may find two bodies of one name.
        model: what the engine calls the model; models share no KV, not even adapters on one base.

    Returns:
        Numbers of 64 bits.
    """
    state = blake2b(model.encode("utf-8", "surrogatepass") + b"\0", digest_size=8, key=key)
    names: list[int] = []
    room = BLOCK_BYTES
    for piece in (body,) if isinstance(body, bytes | memoryview) else body:
        view = memoryview(piece).cast("B")
        start = 0
        while len(view) - start >= room:
            state.update(view[start : start + room])
            names.append(int.from_bytes(state.copy().digest(), "big"))
            if len(names) == MOST_BLOCKS_OF_ONE:
                return tuple(names)
            start, room = start + room, BLOCK_BYTES
        state.update(view[start:])
        room -= len(view) - start
    return tuple(names)


class Prefixes:
    """The blocks that an engine has read lately, the least recent forgotten first.

    Of whatever prefix it remembers a block, it remembers all before it: `note` is given the names
    of a body from its first block on, and a name stands for all the body up to its block.
    """

    def __init__(self) -> None:
        """Know of none."""
        self._seen: OrderedDict[int, None] = OrderedDict()
        self._most = MOST_BLOCKS

    def __len__(self) -> int:
        """How many blocks are remembered."""
        return len(self._seen)

    def bound(self, blocks: int) -> bool:
        """Remember at most so many blocks, where the engine's KV cache holds no more.

        At least one is remembered, and never more than `MOST_BLOCKS`. Say whether any is forgotten.
        """
        self._most = max(1, min(MOST_BLOCKS, blocks))
        known = len(self._seen)
        self._forget()
        return len(self._seen) < known

    def note(self, blocks: Sequence[int]) -> bool:
        """An engine has read these, just now. Say whether any of them is new."""
        known = len(self._seen)
        # From the last to the first: of one prefix the end is forgotten before its beginning.
        for block in reversed(blocks):
            self._seen[block] = None
            self._seen.move_to_end(block)
        new = len(self._seen) > known
        if new:
            self._forget()
        return new

    def shared(self, blocks: Sequence[int]) -> int:
        """How many blocks of this body, from its start, have been read lately."""
        for index, block in enumerate(blocks):
            if block not in self._seen:
                return index
        return len(blocks)

    def _forget(self) -> None:
        while len(self._seen) > self._most:
            self._seen.popitem(last=False)
