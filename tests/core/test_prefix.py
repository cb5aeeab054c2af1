"""What prompts begin with: the names of blocks, and which of them are remembered."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tests.support import TestCase, examples
from twisted_gateway.core.prefix import (
    BLOCK_BYTES,
    MOST_BLOCKS,
    MOST_BLOCKS_OF_ONE,
    Prefixes,
    block_hashes,
)

KEY = bytes(range(16))
# Bodies of few blocks of few kinds, so that they often begin alike, with a rest that is no block.
BLOCKS = st.lists(st.sampled_from([b"a", b"b"]), max_size=5)
RESTS = st.binary(max_size=3)


def body(blocks: Sequence[bytes], rest: bytes = b"") -> bytes:
    """Blocks of one byte each, over and over, and what does not fill another."""
    return b"".join(block * BLOCK_BYTES for block in blocks) + rest


def common(one: Sequence[object], other: Sequence[object]) -> int:
    """How long both are the same, from their start."""
    count = 0
    while count < min(len(one), len(other)) and one[count] == other[count]:
        count += 1
    return count


class Names(TestCase):
    """The names of a body's blocks."""

    @examples(100)
    @given(BLOCKS, BLOCKS, RESTS, RESTS)
    def test_whole_blocks_from_the_start(
        self, one: list[bytes], other: list[bytes], rest: bytes, other_rest: bytes
    ) -> None:
        """Two bodies share as many names as they share whole blocks from their start, no more."""
        names = block_hashes(body(one, rest), KEY)
        others = block_hashes(body(other, other_rest), KEY)
        self.assertEqual((len(names), len(others)), (len(one), len(other)))
        self.assertEqual(len(set(names) & set(others)), common(one, other))
        self.assertEqual(common(names, others), common(one, other))

    @examples(100)
    @given(BLOCKS.filter(bool), st.integers(0, 5 * BLOCK_BYTES), st.integers(1, 255))
    def test_one_byte_changes_all_that_follows(
        self, blocks: list[bytes], place: int, change: int
    ) -> None:
        """Names before a byte that differs stay as they are; that block's and all later differ."""
        data = bytearray(body(blocks))
        place %= len(data)
        names = block_hashes(bytes(data), KEY)
        data[place] ^= change
        others = block_hashes(bytes(data), KEY)
        self.assertEqual(common(names, others), place // BLOCK_BYTES)
        self.assertEqual(len(set(names) & set(others)), place // BLOCK_BYTES)

    @examples(100)
    @given(BLOCKS, RESTS, st.lists(st.integers(0, 5 * BLOCK_BYTES + 3), max_size=6), st.booleans())
    def test_how_a_body_is_cut(
        self, blocks: list[bytes], rest: bytes, cuts: list[int], views: bool
    ) -> None:
        """The pieces in which a body is held make no difference."""
        data = body(blocks, rest)
        ends = [*sorted(min(cut, len(data)) for cut in cuts), len(data)]
        pieces: list[bytes | memoryview] = [
            memoryview(data)[start:end] if views else data[start:end]
            for start, end in zip([0, *ends], ends, strict=False)
        ]
        self.assertEqual(block_hashes(pieces, KEY), block_hashes(data, KEY))
        self.assertEqual(block_hashes(memoryview(data), KEY), block_hashes(data, KEY))

    def test_another_key_gives_other_names(self) -> None:
        """Without the key nobody can tell what a body's names are."""
        data = body([b"a", b"b"])
        self.assertFalse(set(block_hashes(data, KEY)) & set(block_hashes(data, KEY[::-1])))

    def test_models_share_nothing(self) -> None:
        """One body for two models has two sets of names, wherever the name ends."""
        data = body([b"a", b"b"])
        names = [set(block_hashes(data, KEY, model)) for model in ("", "m", "ma", "m\udc80")]
        self.assertEqual(len(set().union(*names)), 2 * len(names))
        self.assertEqual(block_hashes(data, KEY, "m"), block_hashes(data, KEY, "m"))

    def test_less_than_a_block_has_no_name(self) -> None:
        """A short prompt costs nothing that is worth a name."""
        self.assertEqual(block_hashes(b"", KEY), ())
        self.assertEqual(block_hashes([], KEY), ())
        self.assertEqual(block_hashes(b"x" * (BLOCK_BYTES - 1), KEY), ())

    def test_names_are_of_64_bits(self) -> None:
        """A name fits a machine word, and no two blocks of a monotonous body bear one."""
        names = block_hashes(bytes(64 * BLOCK_BYTES), KEY)
        self.assertEqual(len(set(names)), 64)
        self.assertTrue(all(0 <= name < 1 << 64 for name in names))

    def test_a_body_of_any_size_has_a_bounded_number(self) -> None:
        """What comes after the most blocks of one body is not looked at, in however many pieces."""
        data = bytes((MOST_BLOCKS_OF_ONE + 3) * BLOCK_BYTES)
        names = block_hashes(data, KEY)
        self.assertEqual(len(names), MOST_BLOCKS_OF_ONE)
        self.assertEqual(block_hashes([data[:5], data[5:], data], KEY), names)


# What happens to a memory: a body is read, or a smaller or larger bound comes.
EVENTS = st.lists(st.one_of(BLOCKS, st.integers(-1, 12)), max_size=30)


class Remembering(TestCase):
    """Which blocks count as read lately."""

    def test_shared_is_what_was_read(self) -> None:
        """Nothing is shared at first; then as many blocks as an earlier body began with."""
        seen = Prefixes()
        first = block_hashes(body([b"a", b"b", b"c"]), KEY)
        second = block_hashes(body([b"a", b"b", b"d", b"c"]), KEY)
        self.assertEqual(seen.shared(first), 0)
        seen.note(first)
        self.assertEqual((seen.shared(first), seen.shared(second), seen.shared(())), (3, 2, 0))

    def test_looking_is_not_reading(self) -> None:
        """What is only asked for is neither remembered nor kept longer."""
        seen = Prefixes()
        seen.bound(2)
        seen.note([1])
        seen.note([2])
        self.assertEqual((seen.shared([1]), seen.shared([3])), (1, 0))
        seen.note([3])
        self.assertEqual((seen.shared([1]), seen.shared([2]), seen.shared([3])), (0, 1, 1))

    def test_note_says_whether_any_is_new(self) -> None:
        """A body that was read as a whole before brings nothing new; one block more does."""
        seen = Prefixes()
        self.assertFalse(seen.note(()))
        self.assertTrue(seen.note([1, 2]))
        self.assertFalse(seen.note([1, 2]))
        self.assertFalse(seen.note([1]))
        self.assertTrue(seen.note([1, 2, 3]))

    def test_a_block_that_was_forgotten_is_new_again(self) -> None:
        """Also where the memory stays as large as it was."""
        seen = Prefixes()
        seen.bound(2)
        self.assertTrue(seen.note([1, 2]))
        self.assertTrue(seen.note([3]))
        self.assertTrue(seen.note([1, 2]))

    def test_the_end_is_forgotten_before_the_beginning(self) -> None:
        """Of a prefix that does not fit, the beginning stays, for only that is of use."""
        seen = Prefixes()
        seen.bound(2)
        seen.note([1, 2, 3])
        self.assertEqual((len(seen), seen.shared([1, 2, 3])), (2, 2))
        seen.bound(1)
        self.assertEqual(seen.shared([1, 2, 3]), 1)

    def test_what_was_read_again_stays(self) -> None:
        """The least recent goes first, and reading counts however long ago it was new."""
        seen = Prefixes()
        seen.bound(3)
        for block in (1, 2, 3, 1, 4):
            seen.note([block])
        self.assertEqual([seen.shared([block]) for block in (1, 2, 3, 4)], [1, 0, 1, 1])

    def test_the_most(self) -> None:
        """Never more than the most are remembered, whatever bound is asked for; at least one is."""
        seen = Prefixes()
        seen.bound(MOST_BLOCKS * 2)
        for start in range(0, MOST_BLOCKS + 500, 100):
            seen.note(range(start, start + 100))
        self.assertEqual(len(seen), MOST_BLOCKS)
        self.assertEqual((seen.shared([499]), seen.shared([500])), (0, 1))
        for bound in (0, -5):
            seen.bound(bound)
            self.assertEqual(len(seen), 1)

    @examples(200)
    @given(EVENTS)
    def test_whatever_is_read(self, events: list[list[bytes] | int]) -> None:
        """It is as a list with the latest first, cut at the bound, and no prefix has a hole."""
        seen = Prefixes()
        most = MOST_BLOCKS
        latest: list[int] = []
        bodies: list[tuple[int, ...]] = []
        for event in events:
            if isinstance(event, int):
                most = max(1, event)
                seen.bound(event)
            else:
                names = block_hashes(body(event), KEY)
                bodies.append(names)
                self.assertEqual(seen.note(names), not set(names) <= set(latest))
                latest = [*names, *(name for name in latest if name not in names)]
            del latest[most:]
            self.assertEqual(len(seen), len(latest))
            for names in bodies:
                known = [name in latest for name in names]
                self.assertEqual(seen.shared(names), sum(known))
                self.assertEqual(known, sorted(known, reverse=True))
