"""Tests of the simulated KV cache."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.support import TestCase, examples
from twisted_gateway.demo.kvcache import Holding, KvCache


class KvCacheTests(TestCase):
    """Blocks that are private, shared or idle."""

    def test_grows_by_whole_blocks(self) -> None:
        """A holding has as many blocks as its tokens need, rounded up."""
        cache, holding = KvCache(4, 16), Holding()
        self.assertTrue(cache.grow(holding, 17))
        self.assertEqual((holding.blocks, cache.usage), (2, 0.5))
        self.assertTrue(cache.grow(holding, 32))
        self.assertEqual(holding.blocks, 2)

    def test_refuses_what_does_not_fit(self) -> None:
        """Where there is no room nothing changes."""
        cache, holding = KvCache(4, 16), Holding()
        cache.grow(holding, 16)
        self.assertFalse(cache.grow(holding, 65))
        self.assertFalse(cache.take(Holding(), (), 64))
        self.assertEqual(cache.used_blocks, 1)

    def test_released_prompt_blocks_stay_cached_and_count_no_more(self) -> None:
        """A prompt's full blocks outlive it as idle ones, which are no usage; the rest is free."""
        cache, holding = KvCache(4, 16), Holding()
        cache.grow(holding, 40)
        cache.store(holding, (1, 2), 40)
        cache.release(holding)
        self.assertEqual((cache.used_blocks, cache.idle_blocks), (0, 2))
        self.assertEqual(cache.match((1, 2, 3)), 2)
        self.assertEqual(cache.match((1, 3)), 1)

    def test_only_computed_blocks_are_shared(self) -> None:
        """A block is offered to others when all of its tokens have been computed."""
        cache, holding = KvCache(4, 16), Holding()
        cache.grow(holding, 40)
        cache.store(holding, (1, 2), 31)
        self.assertEqual(cache.match((1, 2)), 1)

    def test_shared_blocks_count_once(self) -> None:
        """Two holders of one prefix use its blocks once."""
        cache, one, other = KvCache(4, 16), Holding(), Holding()
        cache.grow(one, 32)
        cache.store(one, (1, 2), 32)
        self.assertTrue(cache.take(other, (1, 2), 48))
        self.assertEqual(cache.used_blocks, 3)
        cache.release(one)
        self.assertEqual((cache.used_blocks, cache.idle_blocks), (3, 0))

    def test_idle_blocks_that_are_hit_are_no_room(self) -> None:
        """Blocks that a prompt wakes cannot also be evicted for it."""
        cache, one, other = KvCache(4, 16), Holding(), Holding()
        cache.grow(one, 32)
        cache.store(one, (1, 2), 32)
        cache.release(one)
        cache.grow(other, 32)
        self.assertFalse(cache.take(one, (1, 2), 48))
        self.assertTrue(cache.take(one, (1, 2), 32))

    def test_the_tail_of_the_oldest_prefix_is_evicted_first(self) -> None:
        """Idle blocks give way, least recently used first, a prompt's end before its beginning."""
        cache, one, other = KvCache(4, 16), Holding(), Holding()
        cache.grow(one, 32)
        cache.store(one, (1, 2), 32)
        cache.release(one)
        self.assertTrue(cache.grow(other, 48))
        self.assertEqual(cache.match((1, 2)), 1)
        self.assertEqual(cache.idle_blocks, 1)

    def test_two_copies_of_one_block(self) -> None:
        """A block that two jobs computed at the same time is shared once; the copy is private."""
        cache, one, other = KvCache(4, 16), Holding(), Holding()
        for holding in (one, other):
            cache.grow(holding, 16)
            cache.store(holding, (1,), 16)
        self.assertEqual((cache.used_blocks, one.private, other.private), (2, 0, 1))
        cache.release(other)
        self.assertEqual((cache.used_blocks, cache.idle_blocks), (1, 0))

    @examples(40)
    @given(
        st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(1, 120)), max_size=40)
    )
    def test_never_more_than_there_is(self, moves: list[tuple[int, int, int]]) -> None:
        """Whatever is taken, stored and released, the blocks add up and never exceed the total."""
        cache = KvCache(10, 16)
        holdings = [Holding() for _ in range(3)]
        for who, prefix, tokens in moves:
            holding = holdings[who]
            keys = [prefix * 100 + index for index in range(tokens // 16)]
            if holding.blocks:
                cache.release(holding)
            elif cache.take(holding, keys[: cache.match(keys)], tokens):
                cache.store(holding, keys, tokens)
            held = {key for each in holdings for key in each.shared}
            self.assertEqual(cache.used_blocks, len(held) + sum(h.private for h in holdings))
            self.assertLessEqual(cache.used_blocks + cache.idle_blocks, 10)
        for holding in holdings:
            cache.release(holding)
        self.assertEqual(cache.used_blocks, 0)
