"""What an engine's answer says of itself: its model, why it ended, the tokens that it took.

Read from a whole JSON answer or from single events of a stream, without a tree:

    chat/completions, completions   model, id, choices[].finish_reason, usage
    embeddings, rerank, score       model, id, usage
    responses                       response.{model,id,status,incomplete_details.reason,usage}
    messages                        message.{model,id,usage}, delta.stop_reason, stop_reason, usage

The forms are those of the OpenAI and Anthropic API references. What cannot be read says nothing.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

from twisted_gateway.core.usage import read_usage

MOST_REASONS = 16
"""How many finish reasons are kept: one for each of a request's `n` choices."""
_MAX_WORD_CHARS = 200

_NULL = Raw(b"null")


class Account(Struct, frozen=True):
    """What was said; None and the empty tuple for what was not.

    Attributes:
        model: the engine's own name for what answered, of at most 200 characters.
        answer_id: the engine's identifier of the answer, of at most 200 characters.
        finish_reasons: one word for each choice that has ended.
        input_tokens: tokens of the prompt.
        output_tokens: tokens generated.
        cached_tokens: how many of `input_tokens` were in the engine's prefix cache.
    """

    model: str | None = None
    answer_id: str | None = None
    finish_reasons: tuple[str, ...] = ()
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None

    def __or__(self, later: Account) -> Account:
        """Both accounts as one; where both say something of the same, the later one counts."""
        return Account(
            model=self.model if later.model is None else later.model,
            answer_id=self.answer_id if later.answer_id is None else later.answer_id,
            finish_reasons=(self.finish_reasons + later.finish_reasons)[:MOST_REASONS],
            input_tokens=self.input_tokens if later.input_tokens is None else later.input_tokens,
            output_tokens=(
                self.output_tokens if later.output_tokens is None else later.output_tokens
            ),
            cached_tokens=(
                self.cached_tokens if later.cached_tokens is None else later.cached_tokens
            ),
        )


# Every member is raw, so that a surprise in one does not spoil the others.
class _Answer(Struct, gc=False):
    model: Raw = _NULL
    id: Raw = _NULL
    usage: Raw = _NULL
    choices: Raw = _NULL
    stop_reason: Raw = _NULL
    object: Raw = _NULL
    status: Raw = _NULL
    incomplete_details: Raw = _NULL
    delta: Raw = _NULL
    message: Raw = _NULL
    response: Raw = _NULL


class _Choice(Struct, gc=False):
    finish_reason: Raw = _NULL


class _Details(Struct, gc=False):
    reason: Raw = _NULL
    stop_reason: Raw = _NULL


_FAULTS = (msgspec.MsgspecError, ValueError, RecursionError)
_read_answer = msgspec.json.Decoder(_Answer).decode
_read_choices = msgspec.json.Decoder(list[_Choice]).decode
_read_details = msgspec.json.Decoder(_Details).decode
_read_string = msgspec.json.Decoder(str).decode

# The states of a response (Responses API) in which it has ended.
_ENDED = frozenset({"completed", "incomplete", "failed", "cancelled"})


def read(data: bytes) -> Account:
    """Read what one event's data, or a whole answer's body, says of the answer.

    Args:
        data: JSON; anything else says nothing.
    """
    try:
        outer = _read_answer(data)
    except _FAULTS:
        return Account()
    inner = _inner(outer)
    # Anthropic's message_start holds a count of 1 output token before anything is there.
    begins = inner is not outer and outer.message != _NULL
    used = read_usage(inner.usage)
    return Account(
        model=_word(inner.model),
        answer_id=_word(inner.id),
        finish_reasons=_reasons(inner),
        input_tokens=used.input_tokens,
        output_tokens=None if begins else used.output_tokens,
        cached_tokens=used.cached_tokens,
    )


def _inner(outer: _Answer) -> _Answer:
    """Give what the event of a responses or messages stream holds of the answer."""
    held = outer.message if outer.response == _NULL else outer.response
    try:
        return outer if held == _NULL else _read_answer(held)
    except _FAULTS:
        return outer


def _reasons(answer: _Answer) -> tuple[str, ...]:
    if answer.choices != _NULL:
        try:
            ended = [_word(choice.finish_reason) for choice in _read_choices(answer.choices)]
        except _FAULTS:
            return ()
        return tuple(word for word in ended[:MOST_REASONS] if word is not None)
    found = _word(answer.stop_reason) or _word(_details(answer.delta).stop_reason)
    if found is None and _word(answer.object) == "response":
        found = _word(_details(answer.incomplete_details).reason)
        status = _word(answer.status)
        if found is None and status in _ENDED:
            found = status
    return () if found is None else (found,)


def _details(raw: Raw) -> _Details:
    try:
        return _read_details(raw)
    except _FAULTS:
        return _Details()


def _word(raw: Raw) -> str | None:
    try:
        return _read_string(raw)[:_MAX_WORD_CHARS] or None
    except _FAULTS:
        return None
