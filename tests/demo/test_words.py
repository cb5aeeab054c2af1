"""Tests of what a simulated engine says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.support import TestCase, examples
from twisted_gateway.demo.words import Answer, block_keys, prompt_tokens


class AnswerTests(TestCase):
    """The answers themselves."""

    @examples(30)
    @given(st.binary(max_size=20), st.lists(st.integers(1, 90), max_size=12))
    def test_any_cutting_gives_the_same_text(self, prompt: bytes, cuts: list[int]) -> None:
        """However an answer is cut into pieces, and however long it goes on, it is one text."""
        answer = Answer(prompt)
        parts, at = [], 0
        for cut in cuts:
            parts.append(answer.text(at, at + cut))
            at += cut
        self.assertEqual("".join(parts), Answer(prompt).text(0, at))

    def test_natural_length(self) -> None:
        """An answer has between 60 and 300 tokens, the last of which is no text."""
        for number in range(50):
            answer = Answer(b"%d" % number)
            self.assertTrue(60 < answer.natural_tokens < 300)
            text = answer.text(0, answer.natural_tokens - 1)
            self.assertEqual(text[-1], ".")
            self.assertEqual(len(text.split()), answer.natural_tokens - 1)


class PromptTests(TestCase):
    """How prompts are counted and cut into blocks."""

    def test_a_token_for_four_bytes(self) -> None:
        """Rounded up, and never none."""
        counted = [prompt_tokens(b"x" * size) for size in (0, 1, 4, 5, 260_000)]
        self.assertEqual(counted, [1, 1, 1, 2, 65_000])

    def test_keys_stand_for_all_that_comes_before(self) -> None:
        """Prompts share the keys of their common beginning, and none after they differ."""
        one = block_keys(b"a" * 64 + b"b" * 64 + b"c" * 64 + b"tail", 16)
        other = block_keys(b"a" * 64 + b"x" * 64 + b"c" * 64, 16)
        self.assertEqual((len(one), len(other)), (3, 3))
        self.assertEqual([a == b for a, b in zip(one, other, strict=True)], [True, False, False])
