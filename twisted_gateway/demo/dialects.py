"""The forms in which vLLM 0.32 gives text: chat, completions, responses, messages.

A `Dialect` belongs to one request. For a stream it is asked, in this order, for the events that
come with the head (`head`), that come before the first token (`first`), for each piece of text
(`piece`), and for those after the last (`last`), or for the ones that tell of an engine that died
(`failure`). For any other request it is asked once for the `whole` answer.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from twisted_gateway.demo.ask import ApiError, Ask

FINGERPRINT = "vllm-0.32.0-3d211528"
DONE = b"data: [DONE]\n\n"
DIED = "EngineCore encountered an issue. See stack trace (above) for the root cause."


@dataclass(frozen=True, slots=True)
class Piece:
    """Text of one choice: all of it, or what is new.

    Attributes:
        tokens: how many tokens the choice has so far.
        reason: `stop` or `length` with the last piece, else None.
    """

    choice: int
    text: str
    tokens: int
    reason: str | None = None


class Dialect(ABC):
    """One request's way of being answered."""

    def __init__(self, ask: Ask, ident: str, created: int) -> None:
        """Answer `ask` under an id that ends in `ident`, at the Unix time `created`."""
        self._ask = ask
        self._ident = ident
        self._created = created
        self._prompt_tokens = ask.prompt_tokens
        self._tokens: dict[int, int] = {}

    def head(self) -> bytes:
        """What goes out with the head, while the request may still be queued."""
        return b""

    def first(self) -> bytes:
        """What goes out just before the first token."""
        return b""

    @abstractmethod
    def piece(self, piece: Piece) -> bytes:
        """New text of one choice."""

    @abstractmethod
    def last(self) -> bytes:
        """What follows when every choice has ended."""

    @abstractmethod
    def whole(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        """The answer that is no stream."""

    def error(self, error: ApiError) -> dict[str, Any]:
        """An error that is no stream's."""
        return error.document()

    def failure(self) -> bytes:
        """What a stream ends with when the engine dies (recorded for chat and completions)."""
        error = {"message": DIED, "type": "InternalServerError", "param": None, "code": 500}
        return b"data: " + json.dumps({"error": error}).encode("ascii") + b"\n\n" + DONE

    def _count(self, piece: Piece) -> None:
        self._tokens[piece.choice] = piece.tokens

    @property
    def _output_tokens(self) -> int:
        return sum(self._tokens.values())


class _Chunked(Dialect):
    """What chat and completions have in common."""

    _object: str
    _prefix: str

    def _chunk(self, choice: dict[str, Any], tokens: int, **more: Any) -> bytes:
        chunk: dict[str, Any] = {**self._common(self._object), "choices": [choice]}
        if self._ask.continuous_usage:
            chunk["usage"] = {**self._usage(tokens), "completion_tokens_details": None}
        if choice["finish_reason"] is not None and not self._ask.include_usage:
            chunk["system_fingerprint"] = FINGERPRINT
        return data({**chunk, **more})

    def last(self) -> bytes:
        """The usage, where it was asked for, and `[DONE]`."""
        if not self._ask.include_usage:
            return DONE
        usage = self._usage(self._output_tokens)
        chunk = {**self._common(self._object), "choices": [], "usage": usage}
        return data({**chunk, "system_fingerprint": FINGERPRINT}) + DONE

    def _common(self, kind: str) -> dict[str, Any]:
        return {
            "id": f"{self._prefix}-{self._ident}",
            "object": kind,
            "created": self._created,
            "model": self._ask.model,
        }

    def _usage(self, output_tokens: int) -> dict[str, Any]:
        return {
            "prompt_tokens": self._prompt_tokens,
            "total_tokens": self._prompt_tokens + output_tokens,
            "completion_tokens": output_tokens,
        }

    def _whole(
        self, kind: str, choices: Sequence[dict[str, Any]], pieces: Sequence[Piece]
    ) -> dict[str, Any]:
        usage = self._usage(sum(piece.tokens for piece in pieces))
        nothing = {"prompt_tokens_details": None, "completion_tokens_details": None}
        return {
            **self._common(kind),
            "choices": choices,
            "service_tier": None,
            "system_fingerprint": FINGERPRINT,
            "usage": {**usage, **nothing},
        }


class Chat(_Chunked):
    """POST /v1/chat/completions."""

    _object = "chat.completion.chunk"
    _prefix = "chatcmpl"

    def first(self) -> bytes:
        """The role, for each choice, with content that is empty."""
        return b"".join(
            self._chunk(
                {
                    "index": index,
                    "delta": {"role": "assistant", "content": ""},
                    "logprobs": None,
                    "finish_reason": None,
                },
                0,
                prompt_token_ids=None,
                prompt_text=None,
            )
            for index in range(self._ask.n)
        )

    def piece(self, piece: Piece) -> bytes:
        """One chunk."""
        self._count(piece)
        choice: dict[str, Any] = {
            "index": piece.choice,
            "delta": {"content": piece.text},
            "logprobs": None,
            "finish_reason": piece.reason,
        }
        if piece.reason is not None:
            choice["stop_reason"] = None
        return self._chunk({**choice, "token_ids": None}, piece.tokens)

    def whole(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        """A `chat.completion`."""
        message = {"refusal": None, "annotations": None, "audio": None, "function_call": None}
        choices = [
            {
                "index": piece.choice,
                "message": {
                    "role": "assistant",
                    "content": piece.text,
                    **message,
                    "reasoning": None,
                },
                "logprobs": None,
                "finish_reason": piece.reason,
                "stop_reason": None,
                "token_ids": None,
                "routed_experts": None,
            }
            for piece in pieces
        ]
        return {
            **self._whole("chat.completion", choices, pieces),
            "prompt_logprobs": None,
            "prompt_token_ids": None,
            "prompt_text": None,
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "metrics": None,
        }


class Completions(_Chunked):
    """POST /v1/completions."""

    _object = "text_completion"
    _prefix = "cmpl"

    def piece(self, piece: Piece) -> bytes:
        """One chunk."""
        self._count(piece)
        return self._chunk(
            {
                "index": piece.choice,
                "text": piece.text,
                "logprobs": None,
                "finish_reason": piece.reason,
                "stop_reason": None,
                "prompt_token_ids": None,
                "token_ids": None,
            },
            piece.tokens,
        )

    def whole(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        """A `text_completion`."""
        choices = [
            {
                "index": piece.choice,
                "text": piece.text,
                "logprobs": None,
                "finish_reason": piece.reason,
                "stop_reason": None,
                "token_ids": None,
                "prompt_logprobs": None,
                "prompt_token_ids": None,
                "routed_experts": None,
            }
            for piece in pieces
        ]
        return {
            **self._whole("text_completion", choices, pieces),
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "metrics": None,
        }


class Messages(Dialect):
    """POST /v1/messages: Anthropic's form, without `[DONE]`."""

    _reason: str | None = None

    def first(self) -> bytes:
        """The message and its one block of text begin."""
        message = {
            **self._message([]),
            "stop_reason": None,
            "stop_sequence": None,
            "usage": self._usage(0),
        }
        block = {"type": "text", "text": ""}
        return event("message_start", message=message) + event(
            "content_block_start", content_block=block, index=0
        )

    def piece(self, piece: Piece) -> bytes:
        """One delta, unless there is no text in it."""
        self._count(piece)
        self._reason = piece.reason
        if not piece.text:
            return b""
        delta = {"type": "text_delta", "text": piece.text}
        return event("content_block_delta", delta=delta, index=0)

    def last(self) -> bytes:
        """Block and message end."""
        delta = {"stop_reason": _STOP_REASONS[self._reason or "stop"], "stop_sequence": None}
        return (
            event("content_block_stop", index=0)
            + event("message_delta", delta=delta, usage=self._usage(self._output_tokens))
            + event("message_stop")
        )

    def error(self, error: ApiError) -> dict[str, Any]:
        """In Anthropic's form."""
        return error.anthropic_document()

    def failure(self) -> bytes:
        """Anthropic's error event; its exact form has not been recorded."""
        return event("error", error={"type": "internal_error", "message": DIED}) + DONE

    def whole(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        """A `message`."""
        piece = pieces[0]
        return {
            **self._message([{"type": "text", "text": piece.text}]),
            "stop_reason": _STOP_REASONS[piece.reason or "stop"],
            "usage": self._usage(piece.tokens),
        }

    def _message(self, content: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{self._ident}",
            "type": "message",
            "role": "assistant",
            "content": content,
            "model": self._ask.model,
        }

    def _usage(self, output_tokens: int) -> dict[str, int]:
        return {"input_tokens": self._prompt_tokens, "output_tokens": output_tokens}


_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens"}


def data(tree: dict[str, Any]) -> bytes:
    """One event without a name."""
    return b"data: " + to_json(tree) + b"\n\n"


def event(kind: str, **tree: Any) -> bytes:
    """One event whose name is also its `type`, as Anthropic has it."""
    return b"event: " + kind.encode("ascii") + b"\n" + data({"type": kind, **tree})


def to_json(tree: object) -> bytes:
    """Compact JSON in UTF-8."""
    return json.dumps(tree, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
