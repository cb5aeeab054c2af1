"""What an answer says of itself."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support import TestCase, examples
from twisted_gateway.core.account import MOST_REASONS, Account, read


def said(**members: Any) -> Account:
    """Read these members of a JSON object."""
    return read(json.dumps(members).encode())


class WholeTests(TestCase):
    """Whole answers."""

    def test_chat(self) -> None:
        """Model, identifier, reasons of all choices and usage of a chat completion."""
        account = said(
            id="chatcmpl-1",
            model="Qwen/Qwen3-32B",
            choices=[
                {"index": 0, "message": {"content": "a"}, "finish_reason": "stop"},
                {"index": 1, "message": {"content": "b"}, "finish_reason": "length"},
            ],
            usage={"prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 30},
        )
        self.assertEqual(
            account, Account("Qwen/Qwen3-32B", "chatcmpl-1", ("stop", "length"), 10, 20)
        )

    def test_embeddings(self) -> None:
        """They have a model and a prompt, and end for no reason."""
        account = said(model="bge", data=[[0.1]], usage={"prompt_tokens": 3, "total_tokens": 3})
        self.assertEqual(account, Account(model="bge", input_tokens=3))

    def test_messages(self) -> None:
        """Anthropic's names for the same."""
        account = said(
            id="msg_1",
            type="message",
            model="m",
            stop_reason="end_turn",
            usage={"input_tokens": 4, "output_tokens": 5},
        )
        self.assertEqual(account, Account("m", "msg_1", ("end_turn",), 4, 5))

    def test_responses(self) -> None:
        """A response ends by its state, or by what it lacks."""
        answer = {"id": "resp_1", "object": "response", "model": "m"}
        usage = {"usage": {"input_tokens": 4, "output_tokens": 5}}
        whole = said(**answer, status="completed", incomplete_details=None, **usage)
        self.assertEqual(whole, Account("m", "resp_1", ("completed",), 4, 5))
        cut = said(
            **answer, status="incomplete", incomplete_details={"reason": "max_output_tokens"}
        )
        self.assertEqual(cut.finish_reasons, ("max_output_tokens",))


class EventTests(TestCase):
    """Events of streams."""

    def test_chat(self) -> None:
        """A chunk names its model; one of them says why the choice has ended."""
        chunk = said(id="c", model="m", choices=[{"delta": {"content": "a"}}])
        self.assertEqual(chunk, Account("m", "c"))
        last = said(id="c", model="m", choices=[{"delta": {}, "finish_reason": "tool_calls"}])
        self.assertEqual(last.finish_reasons, ("tool_calls",))
        usage = said(model="m", choices=[], usage={"prompt_tokens": 1, "completion_tokens": 2})
        self.assertEqual((usage.input_tokens, usage.output_tokens), (1, 2))

    def test_messages(self) -> None:
        """The start holds the model and no count of output; the last delta holds the rest."""
        start = said(
            type="message_start",
            message={"id": "msg", "model": "m", "usage": {"input_tokens": 4, "output_tokens": 1}},
        )
        self.assertEqual(start, Account("m", "msg", (), 4, None))
        delta = said(
            type="message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 9}
        )
        self.assertEqual(start | delta, Account("m", "msg", ("end_turn",), 4, 9))

    def test_responses(self) -> None:
        """What the event holds of the response counts; one that goes on has not ended."""
        begun = said(
            type="response.created",
            response={"id": "r", "object": "response", "model": "m", "status": "in_progress"},
        )
        self.assertEqual(begun, Account("m", "r"))
        delta = said(type="response.output_text.delta", delta="text")
        self.assertEqual(delta, Account())
        ended = said(
            type="response.completed", response={"object": "response", "status": "completed"}
        )
        self.assertEqual(ended.finish_reasons, ("completed",))


class OddTests(TestCase):
    """What is odd says nothing."""

    def test_what_is_no_answer(self) -> None:
        """Text, lists, numbers, nothing."""
        for data in (b"", b"[DONE]", b"[]", b"7", b"{", b'{"model": "m"} more', b"\xff"):
            self.assertEqual(read(data), Account())

    def test_one_odd_member_spoils_no_other(self) -> None:
        """Members are read each by itself."""
        odd: list[Any] = [None, 1, "text", [1], {"a": 1}, -1, 1.5, True]
        for value in odd:
            for name in ("usage", "choices", "delta", "message", "response", "stop_reason"):
                account = said(**{"model": "m", "id": "i", name: value})
                self.assertIn(account.model, ("m", None), (name, value))
                self.assertIsNone(account.input_tokens, (name, value))
        self.assertEqual(said(model=7, id=["i"], usage={"prompt_tokens": 2}).input_tokens, 2)
        self.assertIsNone(said(usage={"prompt_tokens": 10**15}).input_tokens)
        self.assertEqual(said(message="text", model="m").model, "m")

    def test_everything_is_bounded(self) -> None:
        """Words are cut, and of thousands of choices a few are kept."""
        account = said(
            model="m" * 1000, choices=[{"finish_reason": "s" * 1000} for _ in range(1000)]
        )
        self.assertEqual(account.model, "m" * 200)
        self.assertEqual(account.finish_reasons, ("s" * 200,) * MOST_REASONS)
        both = account | account
        self.assertEqual(len(both.finish_reasons), MOST_REASONS)

    @examples(200)
    @given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists))
    def test_nothing_makes_it_raise(self, value: Any) -> None:
        """Whatever JSON a member is."""
        for name in ("model", "usage", "choices", "response", "incomplete_details"):
            self.assertIsInstance(said(object="response", **{name: value}), Account)
