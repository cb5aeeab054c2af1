"""The engine's own refusal of a prompt that is too long, in every form that it can take."""

from __future__ import annotations

import json
from typing import Any

from tests.integration.case import (
    TestCase,
    anthropic_client,
    anthropic_errors,
    long_text,
    openai_client,
    openai_errors,
)
from tests.integration.engines import MAX_TOKENS, MODEL
from tests.integration.gateway import PATIENT

TOO_LONG = [{"role": "user", "content": long_text(2 * MAX_TOKENS)}]
WORDS = "context length"


class TooLongTests(TestCase):
    """A prompt beyond the engine's context."""

    def ask(self, **members: Any) -> Any:
        """What the OpenAI client raises."""
        return self.raised(
            lambda: openai_client(self.front).chat.completions.create(
                **{"model": MODEL, "messages": TOO_LONG, "max_tokens": 8, **members}
            )
        )

    def raised(self, ask: Any) -> Any:
        """What a call raises, or reading the stream that it returns."""
        try:
            for _ in ask():
                pass
        except openai_errors().APIError as fault:
            return fault
        raise AssertionError("the client raised nothing")

    def test_whole(self) -> None:
        """The engine's 400 passes as it is."""
        fault = self.ask()
        self.assertIsInstance(fault, openai_errors().BadRequestError)
        self.assertIn(WORDS, fault.message)
        self.ended(upstream_status=1)

    def test_stream(self) -> None:
        """It passes as a 400 for a stream too, for nothing has been written yet."""
        fault = self.ask(stream=True)
        self.assertIsInstance(fault, openai_errors().BadRequestError)
        self.assertIn(WORDS, fault.message)
        self.ended(upstream_status=1)

    def test_stream_after_a_short_park(self) -> None:
        """A park that was shorter than `keepAliveSeconds` keeps the engine's true status."""
        running = self.fill(400)
        fault = self.ask(stream=True, model=PATIENT)
        self.assertIsInstance(fault, openai_errors().BadRequestError)
        for call in running:
            call.finish(120)
        self.ended(ok=4, upstream_status=1)

    def test_openai_behind_a_spent_200(self) -> None:
        """Behind a spent 200 the OpenAI client raises it, in the engine's words."""
        self.fill(1200)
        fault = self.ask(stream=True)
        self.assertNotIsInstance(fault, openai_errors().APIStatusError)
        self.assertIn(WORDS, fault.message)

    def test_responses_behind_a_spent_200(self) -> None:
        """It does so for responses too."""
        self.fill(1200)
        client = openai_client(self.front)
        fault = self.raised(
            lambda: client.responses.create(
                model=MODEL, input=TOO_LONG[0]["content"], max_output_tokens=8, stream=True
            )
        )
        self.assertNotIsInstance(fault, openai_errors().APIStatusError)
        self.assertIn(WORDS, fault.message)

    def test_anthropic_behind_a_spent_200(self) -> None:
        """So does the Anthropic client raise it."""
        self.fill(1200)
        client = anthropic_client(self.front)
        try:
            with client.messages.stream(model=MODEL, messages=TOO_LONG, max_tokens=8) as stream:
                stream.until_done()
        except anthropic_errors().APIError as fault:
            self.assertIn(WORDS, str(fault))
        else:
            raise AssertionError("the client raised nothing")

    def test_frame_behind_a_spent_200(self) -> None:
        """The frame names the engine's status and the request, and nothing follows it."""
        running = self.fill(1000)
        call = self.call(
            "/v1/chat/completions",
            {"model": MODEL, "messages": TOO_LONG, "stream": True},
            headers={"X-Request-ID": "the-long-one"},
        ).finish(120)
        self.assertIsNone(call.fault)
        lines = [line for _, line in call.lines if line]
        self.assertEqual(lines[-2], "event: error", call.describe())
        said = json.loads(lines[-1].removeprefix("data: "))
        self.assertEqual(said["type"], "error")
        self.assertEqual(said["upstream_status"], 400)
        self.assertEqual(said["request_id"], "the-long-one")
        self.assertIn(WORDS, said["error"]["message"])
        for other in running:
            other.finish(60)
        self.ended(ok=4, upstream_status=1)
