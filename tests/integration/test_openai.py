"""The official OpenAI client for Python, through nginx and the gateway."""

from __future__ import annotations

from tests.integration.case import MESSAGES, TestCase, openai_client, openai_errors
from tests.integration.engines import MAX_TOKENS, MODEL

LENGTH = {"ignore_eos": True}


class OpenAITests(TestCase):
    """What its users do with it."""

    def setUp(self) -> None:
        super().setUp()
        self.client = openai_client(self.front)

    def test_chat(self) -> None:
        """A chat completion comes whole, with the engine's own usage."""
        answer = self.client.chat.completions.create(
            model=MODEL, messages=MESSAGES, max_tokens=12, extra_body=LENGTH
        )
        self.assertEqual(answer.model, MODEL)
        self.assertEqual(answer.usage.completion_tokens, 12)
        self.assertEqual(answer.choices[0].finish_reason, "length")
        self.assertTrue(answer.choices[0].message.content)
        self.ended(ok=1)

    def test_chat_by_an_alias(self) -> None:
        """An alias reaches the engine as the name that the engine knows."""
        answer = self.client.chat.completions.create(
            model="gpt-4o", messages=MESSAGES, max_tokens=4, extra_body=LENGTH
        )
        self.assertEqual(answer.model, MODEL)
        self.ended(ok=1)

    def test_chat_stream(self) -> None:
        """A streamed chat comes in pieces, ends in its usage, and its tokens are counted."""
        before = self.gateway.metric("llm_tokens_total", model=MODEL)
        stream = self.client.chat.completions.create(
            model=MODEL,
            messages=MESSAGES,
            max_tokens=40,
            stream=True,
            stream_options={"include_usage": True},
            extra_body=LENGTH,
        )
        chunks = list(stream)
        pieces = [chunk for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]
        self.assertGreater(len(pieces), 10)
        self.assertEqual(chunks[-1].usage.completion_tokens, 40)
        self.ended(ok=1)
        self.assertEqual(self.gateway.metric("llm_tokens_total", model=MODEL) - before, 40)

    def test_completions(self) -> None:
        """Plain completions, streamed and not."""
        whole = self.client.completions.create(
            model=MODEL, prompt="import ", max_tokens=8, extra_body=LENGTH
        )
        self.assertEqual(whole.usage.completion_tokens, 8)
        stream = self.client.completions.create(
            model=MODEL, prompt="import ", max_tokens=8, stream=True, extra_body=LENGTH
        )
        self.assertTrue("".join(chunk.choices[0].text for chunk in stream))
        self.ended(ok=2)

    def test_responses(self) -> None:
        """A response comes whole."""
        answer = self.client.responses.create(model=MODEL, input="Hello", max_output_tokens=16)
        self.assertIn(answer.status, ("completed", "incomplete"))
        self.assertGreater(answer.usage.output_tokens, 0)
        self.ended(ok=1)

    def test_responses_stream(self) -> None:
        """A streamed response has its events from the first to the last, and a TTFT."""
        before = self.gateway.metric("llm_ttft_seconds_count", model=MODEL)
        stream = self.client.responses.create(
            model=MODEL, input="Hello", max_output_tokens=16, stream=True
        )
        kinds = [event.type for event in stream]
        self.assertEqual(kinds[0], "response.created")
        self.assertIn("response.output_text.delta", kinds)
        self.assertIn(kinds[-1], ("response.completed", "response.incomplete"))
        self.ended(ok=1)
        self.assertEqual(self.gateway.metric("llm_ttft_seconds_count", model=MODEL) - before, 1)

    def test_models(self) -> None:
        """The list of models has aliases, and is the gateway's own."""
        names = {model.id for model in self.client.models.list()}
        self.assertTrue({MODEL, "gpt-4o"} <= names)

    def test_unknown_model(self) -> None:
        """The client prints the gateway's words of a model that nobody serves."""
        fault = self.assertRaises(
            openai_errors().BadRequestError,
            self.client.chat.completions.create,
            model="gpt-99",
            messages=MESSAGES,
        )
        self.assertIn("gpt-99", fault.message)
        self.assertIn(MODEL, fault.response.json()["valid_models"])

    def test_engine_error(self) -> None:
        """What the engine finds wrong reaches the client as the engine said it."""
        fault = self.assertRaises(
            openai_errors().BadRequestError,
            self.client.chat.completions.create,
            model=MODEL,
            messages=MESSAGES,
            max_tokens=MAX_TOKENS + 1,
        )
        self.assertIn(f"max_tokens={MAX_TOKENS + 1}", fault.message)
        self.ended(upstream_status=1)
