"""What events and error bodies of the engines mean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support import TestCase, examples
from twisted_gateway.core.errors import error_frame
from twisted_gateway.core.events import (
    DONE,
    MAX_MESSAGE_CHARS,
    NOTHING,
    ErrorInfo,
    Meaning,
    classify,
    upstream_message,
    upstream_words,
)
from twisted_gateway.core.sse import Event, EventSplitter

ODD_USAGE: list[Any] = [None, {}, [], 7, "x"]
ODD_COUNTS: list[Any] = [None, -1, 1.5, "7", [], True, 10**15]
ODD_RESPONSES: list[Any] = [None, [], {"usage": None}]
EMPTY: list[Any] = [None, {}, "", False, []]
FIXTURES = Path(__file__).parent / "fixtures"


def recorded(name: str) -> bytes:
    """The body of a recorded answer."""
    return (FIXTURES / f"{name}.http").read_bytes().partition(b"\r\n\r\n")[2]


def meanings(name: str) -> list[Meaning]:
    """What the events of a recorded stream mean, in order."""
    return [classify(event) for event in EventSplitter().feed(recorded(name)).events]


def of(tree: Any, name: str = "") -> Meaning:
    """What an event with this JSON means."""
    return classify(Event(json.dumps(tree).encode(), name.encode()))


def chat(**delta: Any) -> dict[str, Any]:
    """A chunk of a chat."""
    return {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


class Recordings(TestCase):
    """Streams of real engines."""

    def content(self, name: str) -> str:
        """One letter for each event: content, terminal or neither."""
        return "".join(
            "c" if seen.content else "t" if seen.terminal else "-" for seen in meanings(name)
        )

    def test_content_and_end(self) -> None:
        """The role delta, empty deltas and usage are no content; each stream ends in its way."""
        for name, expected in (
            ("vllm_chat_stream", "-ccccct"),
            ("vllm_chat_stream_include_usage", "-ccc-t"),
            ("vllm_chat_stream_continuous_usage", "-ccc-t"),
            ("vllm_chat_stream_n2", "--cccct"),
            ("vllm_completions_stream", "cccct"),
            ("vllm_responses_stream", "----cc---t"),
            ("vllm_anthropic_messages_stream", "--ccc--t"),
            ("llamacpp_chat_stream", "-ccc-t"),
            ("llamacpp_chat_stream_include_usage", "-ccc--t"),
        ):
            self.assertEqual((name, self.content(name)), (name, expected))

    def test_tokens(self) -> None:
        """The last usage that a stream gives is that of the whole."""
        for name, completion, prompt in (
            ("vllm_chat_stream", [], []),
            ("vllm_chat_stream_include_usage", [3], [13]),
            ("vllm_chat_stream_continuous_usage", [0, 1, 2, 3, 3], [13] * 5),
            ("vllm_responses_stream", [3], [13]),
            ("vllm_anthropic_messages_stream", [3], [13, 13]),
            ("llamacpp_chat_stream_include_usage", [3], [11]),
        ):
            seen = meanings(name)
            counts = [one.completion_tokens for one in seen if one.completion_tokens is not None]
            prompts = [one.prompt_tokens for one in seen if one.prompt_tokens is not None]
            self.assertEqual((name, counts, prompts), (name, completion, prompt))

    def test_error_in_the_stream(self) -> None:
        """A killed vLLM says so in an event, and ends the stream as if nothing had happened."""
        error, end = meanings("vllm_stream_engine_killed_excerpt")[-2:]
        self.assertEqual(
            error,
            Meaning(
                error=ErrorInfo(
                    "EngineCore encountered an issue. See stack trace (above) for the root cause.",
                    "InternalServerError",
                    code=500,
                )
            ),
        )
        self.assertEqual(end, DONE)


class Content(TestCase):
    """What bears content."""

    def test_bears(self) -> None:
        """Text, reasoning, refusals, tool calls and audio, in each API's own place."""
        block = "content_block_delta"
        for tree in (
            chat(content="x"),
            chat(content=[{"type": "thinking", "thinking": []}]),
            chat(role="assistant", content="x"),
            chat(reasoning="x"),
            chat(reasoning_content="x", content=None),
            chat(refusal="no"),
            chat(tool_calls=[{"index": 0, "function": {"arguments": ""}}]),
            chat(function_call={"arguments": "{"}),
            chat(audio={"data": "AAAA"}),
            {"choices": [{"delta": {"content": ""}}, {"delta": {"content": "x"}}]},
            {"choices": [{"text": "x"}], "usage": {"completion_tokens": 1}},
            {"type": "response.output_text.delta", "delta": "x"},
            {"type": "response.function_call_arguments.delta", "delta": "{"},
            {"type": block, "delta": {"type": "text_delta", "text": "x"}},
            {"type": block, "delta": {"type": "thinking_delta", "thinking": "x"}},
            {"type": block, "delta": {"type": "input_json_delta", "partial_json": "{"}},
            {"type": block, "delta": {"type": "signature_delta", "signature": "x"}},
        ):
            self.assertTrue(of(tree).content, tree)
            self.assertIsNone(of(tree).error, tree)
        self.assertTrue(of({"delta": "x"}, "response.output_text.delta").content)

    def test_does_not(self) -> None:
        """Roles, empty strings, usage, pings, starts and ends do not."""
        block = "content_block_delta"
        trees: list[Any] = [
            chat(role="assistant", content=""),
            chat(role="assistant", content=None),
            chat(content="", reasoning="", tool_calls=[], refusal=None, function_call=None),
            chat(),
            {"choices": []},
            {"choices": None},
            {"choices": [{"text": ""}]},
            {"choices": [{"delta": None}]},
            {"choices": [], "usage": {"completion_tokens": 5}},
            {"type": "ping"},
            {"type": "message_start", "message": {"content": [], "usage": {"input_tokens": 1}}},
            {"type": "content_block_start", "content_block": {"type": "text", "text": ""}},
            {"type": block, "delta": {"type": "text_delta", "text": ""}},
            {"type": block, "delta": "x"},
            {"type": block},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
            {"type": "response.output_text.delta", "delta": ""},
            {"type": "response.output_text.done", "text": "x"},
        ]
        for tree in trees:
            self.assertFalse(of(tree).content, tree)

    def test_tool_call_beside_usage(self) -> None:
        """Usage in the same chunk takes nothing from the content."""
        seen = of({**chat(content="x"), "usage": {"prompt_tokens": 4, "completion_tokens": 2}})
        self.assertEqual(seen, Meaning(content=True, completion_tokens=2, prompt_tokens=4))
        details = {"cached_tokens": 3}
        seen = of({"choices": [], "usage": {"prompt_tokens": 4, "prompt_tokens_details": details}})
        self.assertEqual(seen, Meaning(prompt_tokens=4, cached_tokens=3))


class Usage(TestCase):
    """Tokens."""

    def test_counts_are_counts(self) -> None:
        """What is no plain count is unknown, and spoils nothing beside it."""
        for odd in ODD_COUNTS:
            usage = {"completion_tokens": odd, "prompt_tokens": 9}
            seen = of({**chat(content="x"), "usage": usage})
            self.assertEqual(seen, Meaning(content=True, prompt_tokens=9), odd)
        for odd in ODD_USAGE:
            self.assertEqual(of({**chat(), "usage": odd}), NOTHING)

    def test_completed_response(self) -> None:
        """A response's usage is inside the response; it may be missing."""
        usage = {"input_tokens": 3, "output_tokens": 0}
        for kind in ("completed", "incomplete"):
            self.assertEqual(
                of({"type": f"response.{kind}", "response": {"usage": usage, "error": None}}),
                Meaning(completion_tokens=0, prompt_tokens=3, terminal=True),
            )
        for response in ODD_RESPONSES:
            tree = {"type": "response.completed", "response": response}
            self.assertEqual(of(tree), Meaning(terminal=True))


class Errors(TestCase):
    """Errors inside a stream."""

    def test_forms(self) -> None:
        """OpenAI's chunk, a named event, Anthropic's, and those of the responses API."""
        fields = {"message": "m", "type": "t", "param": "p", "code": "c"}
        full = ErrorInfo("m", "t", "p", "c")
        for tree, name, expected in (
            ({"error": fields}, "", full),
            ({"error": fields, "choices": []}, "", full),
            (
                {"type": "error", "error": {"type": "t", "message": "m"}},
                "error",
                ErrorInfo("m", "t"),
            ),
            ({"error": "m", "error_type": "overloaded"}, "", ErrorInfo("m", "overloaded")),
            ({"type": "error", "code": "c", "message": "m"}, "error", ErrorInfo("m", code="c")),
            ({"type": "error", "code": "c", "message": "m"}, "", ErrorInfo("m", code="c")),
            ({"message": "m"}, "error", ErrorInfo("m")),
            ({"type": "t", "message": "m"}, "error", ErrorInfo("m", "t")),
        ):
            self.assertEqual(of(tree, name), Meaning(error=expected), tree)

    def test_failed_response(self) -> None:
        """A failed response ends its stream; what it says of why may be missing."""
        kind = "response.failed"
        for error, expected in (
            ({"code": "server_error", "message": "m"}, ErrorInfo("m", code="server_error")),
            (None, ErrorInfo()),
        ):
            self.assertEqual(
                of({"type": kind, "response": {"error": error}}, kind),
                Meaning(error=expected, terminal=True),
            )

    def test_own_frame_is_understood(self) -> None:
        """The gateway's own frame, from a gateway behind this one, is an error with its message."""
        error = {"message": "m", "type": "server_error", "param": None, "code": "draining"}
        frame = error_frame(error, {"status": 503, "reason": "draining"})
        (event,) = EventSplitter().feed(frame).events
        self.assertEqual(
            classify(event), Meaning(error=ErrorInfo("m", "server_error", code="draining"))
        )

    def test_named_error_that_is_no_json(self) -> None:
        """`event: error` is one, whatever its data."""
        for data, message in ((b"out of memory", "out of memory"), (b"", ""), (b"{}", "")):
            self.assertEqual(
                classify(Event(data, b"error")), Meaning(error=ErrorInfo(message)), data
            )

    def test_no_error(self) -> None:
        """An empty `error` member is none, and neither is one that the model writes about."""
        for empty in EMPTY:
            self.assertEqual(of({**chat(), "error": empty}), NOTHING)
        text = '"error": {"message": "x"}} event: error data: [DONE]'
        for tree in (chat(content=text), chat(tool_calls=[{"error": {"message": text}}])):
            self.assertEqual(of(tree), Meaning(content=True))


class Unreadable(TestCase):
    """What cannot be read."""

    def test_means_nothing(self) -> None:
        """Other JSON, broken JSON, wrong types and bottomless nesting mean nothing."""
        deep = b"[" * 30_000
        for data in (
            b"",
            b"x",
            b"[]",
            b'"x"',
            b"null",
            b"{",
            b"\xff",
            b'{"type": 7, "choices": [{"delta": {"content": "x"}}]}',
            b'{"choices": {"delta": 1}}',
            b'{"x": ' + deep + b"]" * 30_000 + b"}",
        ):
            self.assertEqual(classify(Event(data)), NOTHING, data[:60])

    def test_oversized_by_name(self) -> None:
        """An event over the limit is judged by its name."""
        for name, expected in (
            (b"", NOTHING),
            (b"response.created", NOTHING),
            (b"response.completed", Meaning(terminal=True)),
            (b"response.output_text.delta", Meaning(content=True)),
            (b"content_block_delta", Meaning(content=True)),
            (b"response.failed", Meaning(error=ErrorInfo(), terminal=True)),
            (b"error", Meaning(error=ErrorInfo())),
            (b"\xff", NOTHING),
        ):
            self.assertEqual(classify(Event(None, name)), expected, name)

    @examples(100)
    @given(
        st.one_of(
            st.binary(max_size=60),
            st.recursive(
                st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
                lambda inner: st.dictionaries(
                    st.sampled_from(
                        ["type", "choices", "delta", "usage", "error", "response", "detail", "msg"]
                    ),
                    st.one_of(inner, st.lists(inner, max_size=2)),
                ),
                max_leaves=8,
            ).map(lambda tree: json.dumps(tree).encode()),
        ),
        st.sampled_from([b"", b"error", b"response.failed", b"content_block_delta"]),
    )
    def test_never_raises(self, data: bytes, name: bytes) -> None:
        """No event and no error body makes either reader raise, and messages are bounded."""
        classify(Event(data, name))
        self.assertLessEqual(len(upstream_message(data).message), MAX_MESSAGE_CHARS)


class UpstreamMessage(TestCase):
    """What an engine's error body says."""

    def test_recordings(self) -> None:
        """Bodies of real engines."""
        too_long = (
            "This model's maximum context length is 8192 tokens. However, your prompt contains at "
            "least 8193 input tokens, which exceeds this limit even without any output tokens. "
            "Please reduce the length of the input prompt. (parameter=input_tokens, value=8193)"
        )
        llamacpp = (
            "request (16010 tokens) exceeds the available context size (4096 tokens), "
            "try increasing it"
        )
        for name, expected in (
            (
                "vllm_err_prompt_too_long_stream",
                ErrorInfo(too_long, "BadRequestError", "input_tokens", 400),
            ),
            (
                "vllm_err_prompt_too_long_anthropic_stream",
                ErrorInfo(too_long, "BadRequestError"),
            ),
            ("vllm_err_404_path", ErrorInfo("Not Found")),
            ("vllm_apikey_missing_chat_401", ErrorInfo("Unauthorized")),
            (
                "llamacpp_err_prompt_too_long_stream",
                ErrorInfo(llamacpp, "exceed_context_size_error", code=400),
            ),
            ("infinity_err_malformed", ErrorInfo("body.9: JSON decode error")),
        ):
            self.assertEqual(upstream_message(recorded(name)), expected, name)

    def test_line_breaks_become_blanks(self) -> None:
        """A message of several lines is one line here."""
        message = upstream_message(recorded("vllm_err_wrong_type")).message
        self.assertTrue(message.startswith("2 validation errors: {'type': 'list_type'"), message)
        self.assertEqual(
            upstream_message(b'{"error": "a\\u0000\\u001b[31m\\r\\nb\\u202ec\\u0085"}').message,
            "a [31m b c",
        )

    def test_encodings(self) -> None:
        """In ISO-8859-1 it is read too, as its field or it itself has it; never without words."""
        for body, content_type, message in (
            (
                b'{"error": {"message": "zu gro\xdf", "code": 4}}',
                "a/b; charset=latin1",
                "zu gro\xdf",
            ),
            (b'{"error": {"message": "zu gro\xdf", "code": 4}}', "a/b", "zu gro\ufffd"),
            (b"zu gro\xdf", "text/plain; charset=iso-8859-1", "zu gro\xdf"),
            (b"<html><meta charset=latin1><title>zu gro\xdf</title>", "", "zu gro\xdf"),
            (b"zu gro\xc3\x9f", "text/plain; charset=iso-8859-1", "zu gro\xdf"),
        ):
            info = upstream_message(body, content_type)
            self.assertEqual(info.message, message)
            self.assertEqual(info.code, 4 if body.startswith(b"{") else None)
            self.assertEqual(upstream_words(body, content_type), message)

    def test_cut_character(self) -> None:
        """A character that the end of what is looked at cuts through makes it no other encoding."""
        for before in range(4):
            body = b"x" * before + "\U0001f600ä".encode() * 12_000
            message = upstream_message(body, "text/plain; charset=iso-8859-1").message
            self.assertEqual(message[before : before + 2], "\U0001f600ä")
            words = upstream_words(body[:65_536], "text/plain; charset=iso-8859-1")
            self.assertEqual(set(words), {*("x" * before), "\U0001f600", "ä"})

    def test_other_forms(self) -> None:
        """TEI, FastAPI, problem documents, Spring, lists, HTML and text."""
        for body, expected in (
            (
                b'{"error": "Model is overloaded", "error_type": "overloaded"}',
                ErrorInfo("Model is overloaded", "overloaded"),
            ),
            (
                b'{"detail": [{"loc": ["body", "a"], "msg": "m"}, {"msg": "n"}, {}, 7]}',
                ErrorInfo("body.a: m; n; invalid"),
            ),
            (
                b'{"type": "about:blank", "title": "T", "status": 503, "detail": "D"}',
                ErrorInfo("D"),
            ),
            (b'{"type": "urn:x:y", "title": "T"}', ErrorInfo("T")),
            (
                b'{"object": "error", "message": "m", "type": "t", "param": null, "code": 4}',
                ErrorInfo("m", "t", code=4),
            ),
            (b'{"status": 500, "error": "Server Error", "message": "m"}', ErrorInfo("m")),
            (b'[{"error": {"message": "m", "code": true}}]', ErrorInfo("m")),
            (b'{"error": {"code": 7}, "message": "m"}', ErrorInfo("m", code=7)),
            (b'{"error": {"message": "m", "code": 9007199254740993}}', ErrorInfo("m")),
            (b'"just text"', ErrorInfo("just text")),
            (b"just\ntext\n", ErrorInfo("just text")),
            (
                b'{"error": "invalid_grant", "error_description": "Too late."}',
                ErrorInfo("Too late."),
            ),
            (b'{"error": "Bad", "errorDescription": "No title."}', ErrorInfo("No title.")),
            (b'{"reason": "r"}', ErrorInfo('{"reason": "r"}')),
            (b'{"error": {"message": "cut off', ErrorInfo('{"error": {"message": "cut off')),
            (
                b"<html><HEAD><title>502 Bad\nGateway</title></head>",
                ErrorInfo("502 Bad Gateway"),
            ),
            (b"<html>", ErrorInfo()),
            (b"{}", ErrorInfo()),
            (b"[]", ErrorInfo()),
            (b"", ErrorInfo()),
            (b"\xff\xfe", ErrorInfo("\ufffd\ufffd")),
        ):
            self.assertEqual(upstream_message(body), expected, body)

    def test_bounds(self) -> None:
        """However much an engine says, little of it is kept."""
        long = "x" * 100_000
        for body in (long, json.dumps({"error": {"message": long[:50_000]}})):
            message = upstream_message(body.encode()).message
            self.assertEqual(len(message), MAX_MESSAGE_CHARS)
            self.assertTrue(message.endswith("x…"))
        info = upstream_message(json.dumps({"message": "m", "type": long[:999]}).encode())
        self.assertEqual(len(info.type or ""), 200)

    def test_whole(self) -> None:
        """Whoever has to take something out of the words first is given them whole."""
        said = "x" * 3000 + " end"
        for body in (
            said,
            json.dumps({"error": said}),
            json.dumps({"detail": [{"msg": said}]}),
            json.dumps([{"error": {"message": said, "code": 1}}]),
        ):
            self.assertEqual(upstream_words(body.encode()), said)
        self.assertEqual(upstream_words(b'{"message": "a\\r\\nb"}'), "a b")
        self.assertEqual(upstream_words(b"{}"), "")

    def test_error_object(self) -> None:
        """What the engine left out is filled in; what it said stays."""
        self.assertEqual(
            ErrorInfo().error_object(message="the engine answered 500"),
            {
                "message": "the engine answered 500",
                "type": "server_error",
                "param": None,
                "code": "upstream_error",
            },
        )
        self.assertEqual(
            ErrorInfo("m", "t", "p", 0).error_object(message="other"),
            {"message": "m", "type": "t", "param": "p", "code": 0},
        )
