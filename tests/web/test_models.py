"""Tests of the path of a request to a model, through the whole stack."""

from __future__ import annotations

from tests.stack import DONE, ROLE, Stack, token
from tests.support import TestCase


class Relaying(TestCase):
    """What goes to the engine and comes back."""

    def test_a_stream_passes_byte_for_byte(self) -> None:
        """Every event of a stream reaches the client as the engine wrote it."""
        stack = Stack(self)
        client = stack.client().chat(stream=True)
        stack.engine().last.stream(ROLE, token("a"), token("b"), DONE).end()
        self.assertEqual(client.status, 200)
        self.assertEqual(client.body, ROLE + token("a") + token("b") + DONE)
        self.assertTrue(client.whole)
        self.assertEqual(stack.outcomes, ["ok"])
