"""The official Anthropic client for Python, through nginx and the gateway."""

from __future__ import annotations

from tests.integration.case import MESSAGES, TestCase, anthropic_client, anthropic_errors
from tests.integration.engines import MODEL


class AnthropicTests(TestCase):
    """What its users do with it."""

    def setUp(self) -> None:
        super().setUp()
        self.client = anthropic_client(self.front)

    def test_messages(self) -> None:
        """A message comes whole."""
        answer = self.client.messages.create(model=MODEL, messages=MESSAGES, max_tokens=12)
        self.assertEqual(answer.type, "message")
        self.assertGreater(answer.usage.output_tokens, 0)
        self.ended(ok=1)

    def test_messages_stream(self) -> None:
        """A streamed message has its text, its end, and a TTFT."""
        before = self.gateway.metric("llm_ttft_seconds_count", model=MODEL)
        with self.client.messages.stream(model=MODEL, messages=MESSAGES, max_tokens=24) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        self.assertTrue(text)
        self.assertIn(final.stop_reason, ("end_turn", "max_tokens"))
        self.ended(ok=1)
        self.assertEqual(self.gateway.metric("llm_ttft_seconds_count", model=MODEL) - before, 1)

    def test_count_tokens(self) -> None:
        """Tokens are counted at once, however full the engine is."""
        self.fill(2000)
        answer = self.client.messages.count_tokens(model=MODEL, messages=MESSAGES)
        self.assertGreater(answer.input_tokens, 0)
        self.assertEqual(self.gateway.parked(), [])

    def test_unknown_model(self) -> None:
        """The client raises what the gateway refuses."""
        fault = self.assertRaises(
            anthropic_errors().BadRequestError,
            self.client.messages.create,
            model="claude-99",
            messages=MESSAGES,
            max_tokens=4,
        )
        self.assertIn("claude-99", str(fault))
