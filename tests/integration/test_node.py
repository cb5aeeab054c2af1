"""The official OpenAI client for Node, through nginx and the gateway."""

from __future__ import annotations

from typing import Any

from tests.integration import node
from tests.integration.cache import Unavailable
from tests.integration.case import MESSAGES, TestCase, chat, long_text, unavailable
from tests.integration.engines import MAX_TOKENS, MODEL


class NodeTests(TestCase):
    """What its users do with it."""

    def setUp(self) -> None:
        try:
            node.openai_modules()
        except Unavailable as fault:
            raise unavailable(fault) from None
        super().setUp()

    def run_client(self, operation: str, **parameters: Any) -> Any:
        return node.run(f"{self.front}/v1", operation, **parameters)

    def test_chat(self) -> None:
        """A chat completion comes whole."""
        said = self.run_client("chat", **chat(12))
        self.assertEqual(said["result"]["usage"]["completion_tokens"], 12)
        self.ended(ok=1)

    def test_chat_stream(self) -> None:
        """A streamed chat comes in pieces and ends in its usage."""
        said = self.run_client("chat", **chat(40, stream=True, stream_options=_USAGE))
        events = said["result"]
        self.assertGreater(len(events), 10)
        self.assertEqual(events[-1]["usage"]["completion_tokens"], 40)
        self.ended(ok=1)

    def test_responses(self) -> None:
        """A response comes whole, and streamed from its first to its last event."""
        asked: dict[str, Any] = {"model": MODEL, "input": "Hello", "max_output_tokens": 16}
        whole = self.run_client("responses", **asked)
        self.assertEqual(whole["result"]["object"], "response")
        streamed = self.run_client("responses", **asked, stream=True)
        kinds = [event["type"] for event in streamed["result"]]
        self.assertEqual(kinds[0], "response.created")
        self.assertIn(kinds[-1], ("response.completed", "response.incomplete"))
        self.ended(ok=2)

    def test_models(self) -> None:
        """The list of models has aliases."""
        names = {model["id"] for model in self.run_client("models")["result"]}
        self.assertTrue({MODEL, "gpt-4o"} <= names)

    def test_unknown_model(self) -> None:
        """The client raises what the gateway refuses."""
        error = self.run_client("chat", model="gpt-99", messages=MESSAGES)["error"]
        self.assertEqual((error["name"], error["status"]), ("BadRequestError", 400))
        self.assertIn("gpt-99", error["message"])

    def test_late_error(self) -> None:
        """An error behind a spent 200 is one that the client raises."""
        self.fill(1500)
        messages = [{"role": "user", "content": long_text(2 * MAX_TOKENS)}]
        said = self.run_client("chat", model=MODEL, messages=messages, stream=True)
        self.assertIn("context length", said["error"]["message"])
        self.assertEqual(said["events"], [])


_USAGE = {"include_usage": True}
