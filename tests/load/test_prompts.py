"""Prompts: their length, what they share, that they are the same every time."""

from __future__ import annotations

import json

from tests.load.harness import arrival
from tests.support import TestCase
from twisted_gateway.load.prompts import body, prompt


class Prompts(TestCase):
    """What the load test says."""

    def test_length(self) -> None:
        """A token has four bytes, so has each word."""
        self.assertEqual(len(prompt(arrival(prompt_tokens=1000), 0, 1)), 4000)

    def test_deterministic(self) -> None:
        """The same client of the same seed says the same."""
        one = arrival(prompt_tokens=50)
        self.assertEqual(prompt(one, 3, 1), prompt(one, 3, 1))
        self.assertEqual(prompt(one, 0, 1)[:40], " fit and bar fit bus car all got and and")

    def test_different(self) -> None:
        """Another client, or another seed, says something else."""
        one = arrival(prompt_tokens=50)
        self.assertEqual(len({prompt(one, 3, 1), prompt(one, 4, 1), prompt(one, 3, 2)}), 3)

    def test_prefix(self) -> None:
        """A group shares so much of its beginning, and no more."""
        one = arrival(prompt_tokens=50, prefix_tokens=30, group="g")
        texts = [prompt(one, number, 1) for number in (0, 1)]
        self.assertEqual(texts[0][:120], texts[1][:120])
        self.assertNotEqual(texts[0][120:], texts[1][120:])

    def test_prefix_longer_than_the_prompt(self) -> None:
        """A prefix is never longer than its prompt."""
        one = arrival(prompt_tokens=5, prefix_tokens=30, group="g")
        self.assertEqual(len(prompt(one, 0, 1)), 20)

    def test_whole_answer(self) -> None:
        """Who wants no stream asks for none, nor for its options."""
        tree = json.loads(body(arrival(stream=False), 0, 1, "m", exact=True))
        self.assertIs(tree["stream"], False)
        self.assertNotIn("stream_options", tree)
