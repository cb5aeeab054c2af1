"""Tests of the forms in which a simulated engine generates: those of a real vLLM 0.32."""

from __future__ import annotations

from typing import Any

from tests.demo.harness import CHAT, HELLO, EngineCase, Recorded, keys_in_order


class FormTests(EngineCase):
    """Each answer has the keys, in the order, that the recorded one has."""

    def like(self, name: str, path: str, document: Any, **headers: str) -> Any:
        recorded = Recorded(f"vllm_{name}")
        answer = self.ask(path, document, **headers)
        self.assertEqual(answer.status, recorded.status)
        self.assertEqual(answer.headers["content-type"], recorded.headers["content-type"])
        self.assertTrue(answer.whole)
        if "event-stream" not in answer.headers["content-type"]:
            self.assertEqual(keys_in_order(answer.json), keys_in_order(recorded.json))
            return answer.json
        events, wanted = answer.events, recorded.events
        self.assertEqual([name for name, _ in events], [name for name, _ in wanted])
        for (_, event), (_, model) in zip(events, wanted, strict=True):
            self.assertEqual(keys_in_order(event), keys_in_order(model))
        return [event for _, event in events]

    def test_chat(self) -> None:
        """A chat completion, with its usage."""
        answer = self.like(
            "chat_nonstream", CHAT, {"model": "reasoning", "messages": HELLO, "max_tokens": 12}
        )
        self.assertEqual(
            answer["usage"] | {"prompt_tokens_details": 0, "completion_tokens_details": 0},
            {"prompt_tokens": 12, "total_tokens": 24, "completion_tokens": 12}
            | {"prompt_tokens_details": 0, "completion_tokens_details": 0},
        )
        self.assertEqual(answer["choices"][0]["finish_reason"], "length")

    def test_chat_stream(self) -> None:
        """Role first, then a token a chunk, the last with its reason, then `[DONE]`."""
        events = self.like(
            "chat_stream", CHAT, {"messages": HELLO, "max_tokens": 5, "stream": True}
        )
        self.assertEqual(events[0]["choices"][0]["delta"], {"role": "assistant", "content": ""})
        self.assertEqual(events[-2]["choices"][0]["finish_reason"], "length")
        self.assertEqual(events[-1], "[DONE]")
        self.assertEqual(len({event["id"] for event in events[:-1]}), 1)

    def test_chat_stream_with_usage(self) -> None:
        """The last chunk bears the usage and no choices."""
        options = {"include_usage": True}
        document = {"messages": HELLO, "max_tokens": 3, "stream": True, "stream_options": options}
        events = self.like("chat_stream_include_usage", CHAT, document)
        self.assertEqual(events[-2]["choices"], [])
        self.assertEqual(events[-2]["usage"]["completion_tokens"], 3)

    def test_chat_stream_with_continuous_usage(self) -> None:
        """Every chunk bears the usage so far."""
        options = {"include_usage": True, "continuous_usage_stats": True}
        document = {"messages": HELLO, "max_tokens": 3, "stream": True, "stream_options": options}
        events = self.like("chat_stream_continuous_usage", CHAT, document)
        self.assertEqual(
            [event["usage"]["completion_tokens"] for event in events[:-1]], [0, 1, 2, 3, 3]
        )

    def test_chat_stream_of_two_choices(self) -> None:
        """Two roles, then the chunks of both, which read differently."""
        document = {"messages": HELLO, "max_tokens": 2, "stream": True, "n": 2}
        answer = self.ask(CHAT, document)
        recorded = Recorded("vllm_chat_stream_n2")
        self.assertEqual(
            sorted(keys_in_order(event) for _, event in answer.events),
            sorted(keys_in_order(event) for _, event in recorded.events),
        )
        self.assertEqual(self.host.engine.peak_in_engine, 2)

    def test_two_choices_whole(self) -> None:
        """`n` choices are numbered, differ, and are all counted."""
        answer = self.ask(CHAT, {"messages": HELLO, "max_tokens": 30, "n": 2}).json
        self.assertEqual([choice["index"] for choice in answer["choices"]], [0, 1])
        texts = {choice["message"]["content"] for choice in answer["choices"]}
        self.assertEqual(len(texts), 2)
        self.assertEqual(answer["usage"]["completion_tokens"], 60)

    def test_completions(self) -> None:
        """A text completion."""
        document = {"model": "reasoning", "prompt": "def main", "max_tokens": 4}
        self.like("completions_nonstream", "/v1/completions", document)

    def test_completions_stream(self) -> None:
        """A stream of text completions."""
        document = {"prompt": "def main", "max_tokens": 4, "stream": True}
        self.like("completions_stream", "/v1/completions", document)

    def test_completions_stream_with_usage(self) -> None:
        """The last chunk bears the usage and no choices."""
        options = {"include_usage": True}
        document = {"prompt": "x", "max_tokens": 2, "stream": True, "stream_options": options}
        events = self.ask("/v1/completions", document).events
        self.assertEqual(events[-2][1]["object"], "text_completion")
        self.assertEqual(events[-2][1]["usage"]["total_tokens"], 3)

    def test_completions_of_many_prompts(self) -> None:
        """Each prompt makes its choices; without `max_tokens` they have 16 tokens each."""
        answer = self.ask("/v1/completions", {"prompt": ["one", "two"], "n": 2}).json
        self.assertEqual([choice["index"] for choice in answer["choices"]], [0, 1, 2, 3])
        self.assertEqual(answer["usage"]["completion_tokens"], 64)
        tokens = self.ask("/v1/completions", {"prompt": [1, 2, 3]}).json
        self.assertEqual(tokens["usage"]["prompt_tokens"], 3)

    def test_responses(self) -> None:
        """A response that its bound has cut short."""
        answer = self.like("responses", "/v1/responses", {"input": "hello", "max_output_tokens": 5})
        self.assertEqual(answer["status"], "incomplete")
        self.assertEqual(answer["usage"]["output_tokens"], 5)

    def test_responses_stream(self) -> None:
        """Numbered events; the first two come at once, before any token."""
        document = {"input": "hello", "max_output_tokens": 2, "stream": True}
        early = self.send("POST", "/v1/responses", document).answer
        self.assertEqual(
            [name for name, _ in early.events], ["response.created", "response.in_progress"]
        )
        events = self.like("responses_stream", "/v1/responses", document)
        self.assertEqual([event["sequence_number"] for event in events], list(range(len(events))))
        text = events[-1]["response"]["output"][0]["content"][0]["text"]
        deltas = [event["delta"] for event in events if "delta" in event]
        self.assertEqual("".join(deltas), text)

    def test_responses_that_end_by_themselves(self) -> None:
        """A response of natural length is completed."""
        answer = self.ask("/v1/responses", {"input": [*HELLO], "instructions": "Be kind."}).json
        self.assertEqual((answer["status"], answer["incomplete_details"]), ("completed", None))

    def test_messages(self) -> None:
        """An Anthropic message."""
        document = {"model": "reasoning", "messages": HELLO, "max_tokens": 5}
        answer = self.like("anthropic_messages", "/v1/messages", document)
        self.assertEqual(answer["stop_reason"], "max_tokens")

    def test_messages_stream(self) -> None:
        """An Anthropic stream, without `[DONE]`."""
        document = {"messages": HELLO, "max_tokens": 3, "stream": True, "system": "Be kind."}
        events = self.like("anthropic_messages_stream", "/v1/messages", document)
        self.assertEqual(events[-2]["usage"]["output_tokens"], 3)

    def test_messages_stream_of_natural_length(self) -> None:
        """The end-of-sequence token is counted and is no delta."""
        document = {"messages": HELLO, "max_tokens": 500, "stream": True}
        events = [event for _, event in self.ask("/v1/messages", document).events]
        deltas = [event for event in events if event["type"] == "content_block_delta"]
        self.assertTrue(all(event["delta"]["text"] for event in deltas))
        self.assertEqual(events[-2]["delta"]["stop_reason"], "end_turn")
        self.assertEqual(events[-2]["usage"]["output_tokens"], len(deltas) + 1)

    def test_count_tokens(self) -> None:
        """Anthropic's count of a prompt's tokens."""
        self.like("anthropic_count_tokens", "/v1/messages/count_tokens", {"messages": HELLO})

    def test_tokenize(self) -> None:
        """A token for each four bytes; and back again."""
        recorded = self.like("tokenize", "/tokenize", {"prompt": "hello, wörld!!"})
        self.assertEqual(recorded["count"], 4)
        back = self.ask("/detokenize", {"tokens": recorded["tokens"]}).json
        self.assertEqual(back, {"prompt": "hello, wörld!!"})
        self.assertEqual(self.ask("/tokenize", {"messages": HELLO}).json["count"], 12)

    def test_request_id_becomes_part_of_the_id(self) -> None:
        """An X-Request-ID of the caller's names the completion."""
        document = {"messages": HELLO, "max_tokens": 2}
        answer = self.like("with_x_request_id", CHAT, document, X_Request_Id="abc-123")
        self.assertEqual(answer["id"], "chatcmpl-abc-123")
        long = self.ask(CHAT, document, X_Request_Id="a" * 200).json
        self.assertLess(len(long["id"]), 30)

    def test_errors(self) -> None:
        """Each complaint is vLLM's, word for word but for numbers and names."""
        long = "x" * (4 * 131_072 + 1)
        chat = {"model": "reasoning", "messages": HELLO}
        for name, path, document in (
            ("err_unknown_model", CHAT, {**chat, "model": "nope"}),
            ("err_missing_messages", CHAT, {"model": "reasoning"}),
            ("err_max_tokens_too_large", CHAT, {**chat, "max_tokens": 9_000_000}),
            ("err_prompt_too_long_nonstream", CHAT, {"messages": [{"content": long}]}),
            (
                "err_prompt_too_long_anthropic_stream",
                "/v1/messages",
                {"messages": [{"content": long}], "max_tokens": 1, "stream": True},
            ),
            (
                "anthropic_messages_unknown_model",
                "/v1/messages",
                {**chat, "model": "nope"} | {"max_tokens": 1},
            ),
            ("embeddings_on_generate_model", "/v1/embeddings", {"input": "x"}),
            ("err_404_path", "/v1/nope", {}),
        ):
            with self.subTest(name):
                answer = self.like(name, path, document)
                recorded = Recorded(f"vllm_{name}").json
                for tree in (answer, recorded):
                    error = tree.get("error", {})
                    message = "".join(c for c in error.get("message", "") if not c.isdigit())
                    error["message"] = message
                self.assertEqual(answer, recorded)

    def test_malformed_json(self) -> None:
        """JSON that is none is answered with the place of its fault."""
        body = b'{"model": "reasoning", "messages": '
        connection = self.send("POST", CHAT)
        connection.send("POST", CHAT, body)
        recorded = Recorded("vllm_err_malformed_json").json
        answer = connection.answer
        self.assertEqual(answer.status, 400)
        self.assertEqual(answer.json["error"]["param"], f"body.{len(body)}")
        self.assertEqual(
            answer.json["error"]["message"].replace("body.35", "body.33"),
            recorded["error"]["message"],
        )

    def test_wrong_content_type(self) -> None:
        """Only JSON is read."""
        answer = self.ask(CHAT, {"messages": HELLO}, Content_Type="text/plain")
        self.assertEqual(answer.json, Recorded("vllm_err_no_content_type").json)

    def test_wrong_method(self) -> None:
        """405 says what is allowed."""
        answer = self.send("GET", CHAT).answer
        recorded = Recorded("vllm_err_405_get_chat")
        self.assertEqual((answer.status, answer.json), (405, recorded.json))
        self.assertEqual(answer.headers["allow"], recorded.headers["allow"])


class RefusedTests(EngineCase):
    """Bodies that are JSON and no request."""

    def test_values_of_the_wrong_kind(self) -> None:
        """400 names the member at fault."""
        for path, document, param in (
            (CHAT, {"messages": "x"}, "body.messages"),
            (CHAT, {"messages": HELLO, "max_tokens": "many"}, "body.max_tokens"),
            (CHAT, {"messages": HELLO, "max_tokens": True}, "body.max_tokens"),
            (CHAT, {"messages": HELLO, "max_completion_tokens": 0}, "max_tokens"),
            (CHAT, {"messages": HELLO, "stream": "yes"}, "body.stream"),
            (CHAT, {"messages": HELLO, "n": 0}, "n"),
            (CHAT, {"messages": HELLO, "n": 129}, "n"),
            (CHAT, {"messages": HELLO, "max_tokens": 131_070}, "input_tokens"),
            (CHAT, [], "body"),
            ("/v1/completions", {"prompt": 7}, "body.prompt"),
            ("/v1/completions", {"prompt": []}, "prompt"),
            ("/v1/completions", {"prompt": [{}]}, "body.prompt"),
            ("/v1/responses", {}, "body.input"),
            ("/v1/messages", {"messages": HELLO}, None),
        ):
            with self.subTest(document):
                answer = self.ask(path, document)
                self.assertEqual(answer.status, 400)
                self.assertEqual(answer.json["error"].get("param"), param)
        self.assertEqual(self.host.engine.peak_in_engine, 0)

    def test_bodies_that_are_hard_to_read(self) -> None:
        """Bytes that are no UTF-8, and brackets without end, are 400."""
        nested = b'{"messages":' + b"[" * 900 + b"]" * 900 + b"}"
        for body, statuses in (
            (b"\xff\xfe{}", {400}),
            (b"[" * 200_000, {400}),
            (nested, {200, 400}),  # as deep as this Python's stack allows
        ):
            connection = self.send("POST", CHAT)
            connection.send("POST", CHAT, body)
            self.clock.advance(30)
            self.assertIn(connection.answer.status, statuses)
        self.assertEqual(self.ask(CHAT, {"messages": HELLO, "max_tokens": 1}).status, 200)

    def test_content_in_any_form(self) -> None:
        """Parts, nested content and nothing at all are prompts too."""
        content = [{"type": "text", "text": "12345678"}, {"type": "image_url"}]
        messages = [{"role": "user", "content": content}, {"role": "assistant", "content": None}]
        answer = self.ask(CHAT, {"messages": messages, "max_tokens": 1}).json
        self.assertEqual(answer["usage"]["prompt_tokens"], 2)
        self.assertEqual(self.ask(CHAT, {"messages": [], "max_tokens": 1}).status, 200)
        lone = self.ask(CHAT, {"messages": [{"content": "\ud800"}], "max_tokens": 1})
        self.assertEqual(lone.status, 200)
