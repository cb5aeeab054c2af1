"""The form of POST /v1/responses, which numbers its events and repeats the whole at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted_gateway.demo.dialects import Dialect, Piece, to_json


class Responses(Dialect):
    """One `response`. A stream's first two events come with the head, before any token."""

    _number = 0
    _text = ""
    _reason: str | None = None

    def head(self) -> bytes:
        """The response exists, and is in progress."""
        response = self._response("in_progress", [], None)
        return self._event("response.created", response=response) + self._event(
            "response.in_progress", response=response
        )

    def first(self) -> bytes:
        """The message and its one part begin."""
        part = {"annotations": [], "text": "", "type": "output_text", "logprobs": []}
        return self._event(
            "response.output_item.added", item=self._item("in_progress", []), output_index=0
        ) + self._event(
            "response.content_part.added",
            content_index=0,
            item_id=self._item_id,
            output_index=0,
            part=part,
        )

    def piece(self, piece: Piece) -> bytes:
        """One delta, unless there is no text in it."""
        self._count(piece)
        self._text += piece.text
        self._reason = piece.reason
        if not piece.text:
            return b""
        return self._text_event("response.output_text.delta", delta=piece.text, logprobs=[])

    def last(self) -> bytes:
        """Text, part, item and response end."""
        part = self._part()
        item = self._item("completed", [part])
        return (
            self._text_event("response.output_text.done", logprobs=[], text=self._text)
            + self._text_event("response.content_part.done", part=part)
            + self._event("response.output_item.done", item=item, output_index=0)
            + self._event("response.completed", response=self._ended([item]))
        )

    def whole(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        """A `response`."""
        self.piece(pieces[0])
        return self._ended([self._item("completed", [self._part()])])

    @property
    def _item_id(self) -> str:
        return f"msg_{self._ident}"

    def _ended(self, output: Sequence[dict[str, Any]]) -> dict[str, Any]:
        tokens = self._output_tokens
        usage = {
            "input_tokens": self._prompt_tokens,
            "input_tokens_details": {
                "cached_tokens": 0,
                "cache_write_tokens": 0,
                "input_tokens_per_turn": [],
                "cached_tokens_per_turn": [],
            },
            "output_tokens": tokens,
            "output_tokens_details": {
                "reasoning_tokens": 0,
                "tool_output_tokens": 0,
                "output_tokens_per_turn": [],
                "tool_output_tokens_per_turn": [],
            },
            "total_tokens": self._prompt_tokens + tokens,
        }
        status = "incomplete" if self._reason == "length" else "completed"
        return self._response(status, output, usage)

    def _part(self) -> dict[str, Any]:
        return {"annotations": [], "text": self._text, "type": "output_text", "logprobs": None}

    def _item(self, status: str, content: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._item_id,
            "content": content,
            "role": "assistant",
            "status": status,
            "type": "message",
            "phase": None,
        }

    def _response(
        self, status: str, output: Sequence[dict[str, Any]], usage: dict[str, Any] | None
    ) -> dict[str, Any]:
        cut = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return {
            "id": f"resp_{self._ident}",
            "created_at": self._created,
            "incomplete_details": cut,
            "instructions": None,
            "metadata": None,
            "model": self._ask.model,
            "object": "response",
            "output": output,
            "parallel_tool_calls": True,
            "temperature": 1.0,
            "tool_choice": "none",
            "tools": [],
            "top_p": 1.0,
            "background": False,
            "max_output_tokens": self._ask.max_tokens,
            "max_tool_calls": None,
            "previous_response_id": None,
            "prompt": None,
            "reasoning": None,
            "service_tier": "auto",
            "status": status,
            "text": None,
            "top_logprobs": None,
            "truncation": "disabled",
            "usage": usage,
            "user": None,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "input_messages": None,
            "output_messages": None,
        }

    def _text_event(self, kind: str, **more: Any) -> bytes:
        return self._event(kind, content_index=0, item_id=self._item_id, output_index=0, **more)

    def _event(self, kind: str, **tree: Any) -> bytes:
        numbered = {**tree, "sequence_number": self._number, "type": kind}
        self._number += 1
        body = to_json(dict(sorted(numbered.items())))
        return b"event: " + kind.encode("ascii") + b"\ndata: " + body + b"\n\n"
