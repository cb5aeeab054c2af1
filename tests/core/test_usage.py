"""What an engine's `usage` says, in the forms of three APIs."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from tests.support import TestCase, examples
from twisted_gateway.core.usage import Usage, read_usage

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
NAMES = (
    "prompt_tokens",
    "completion_tokens",
    "input_tokens",
    "output_tokens",
    "prompt_tokens_details",
    "input_tokens_details",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
)


def read(tree: Any) -> Usage:
    return read_usage(Raw(json.dumps(tree).encode()))


class Forms(TestCase):
    """Each API's own names."""

    def test_chat(self) -> None:
        """OpenAI's chat and completions; `null` details are what vLLM says by default."""
        counts = {"prompt_tokens": 900, "completion_tokens": 7, "total_tokens": 907}
        for details, cached in (({"cached_tokens": 512}, 512), (None, None), ({}, None)):
            found = read({**counts, "prompt_tokens_details": details})
            self.assertEqual(found, Usage(900, 7, cached))
        self.assertEqual(read(counts), Usage(900, 7))

    def test_responses(self) -> None:
        """OpenAI's responses."""
        details = {"cached_tokens": 64}
        found = read({"input_tokens": 90, "output_tokens": 7, "input_tokens_details": details})
        self.assertEqual(found, Usage(90, 7, 64))

    def test_messages(self) -> None:
        """Anthropic's messages count apart what was cached, and what goes into the cache."""
        counts = {"input_tokens": 90, "output_tokens": 7}
        for read_tokens, written, whole, cached in (
            (800, None, 890, 800),
            (0, 500, 590, 0),
            (800, 500, 1390, 800),
            (None, None, 90, None),
        ):
            apart = {
                "cache_read_input_tokens": read_tokens,
                "cache_creation_input_tokens": written,
            }
            self.assertEqual(read({**counts, **apart}), Usage(whole, 7, cached))

    def test_odd_details(self) -> None:
        """A surprise in the details spoils no count, nor the other details."""
        odds: list[Any] = [[], 7, "x", {"cached_tokens": -1}, {"cached_tokens": "9"}]
        for odd in odds:
            found = read({"prompt_tokens": 9, "prompt_tokens_details": odd})
            self.assertEqual(found, Usage(9), odd)
            both = {"prompt_tokens_details": odd, "input_tokens_details": {"cached_tokens": 3}}
            self.assertEqual(read(both), Usage(cached_tokens=3), odd)

    @examples(200)
    @given(st.dictionaries(st.sampled_from(NAMES), JSON) | JSON)
    def test_anything(self, tree: Any) -> None:
        """Whatever it is, what comes out is counts or nothing."""
        found = read(tree)
        for count in (found.input_tokens, found.output_tokens, found.cached_tokens):
            self.assertTrue(count is None or 0 <= count < 10**16)
