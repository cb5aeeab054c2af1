"""The `usage` object of an engine's answer: what tokens it took.

    OpenAI      prompt_tokens, completion_tokens, prompt_tokens_details.cached_tokens
    Responses   input_tokens, output_tokens, input_tokens_details.cached_tokens
    Anthropic   input_tokens, output_tokens, cache_read_input_tokens, cache_creation_input_tokens

Anthropic's `input_tokens` are those that were neither read from the cache nor written into it; here
they are all, as in the other two.
The forms are those of the OpenAI and Anthropic API references. What cannot be read says nothing.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

NULL = Raw(b"null")


class Usage(Struct, frozen=True):
    """Counts of tokens; None for what was not said.

    Attributes:
        input_tokens: of the prompt.
        output_tokens: generated.
        cached_tokens: how many of `input_tokens` the engine had in its prefix cache, and did not
            read.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None


# Every member is raw, so that a surprise in one does not spoil the others.
class _Usage(Struct, gc=False):
    prompt_tokens: Raw = NULL
    completion_tokens: Raw = NULL
    input_tokens: Raw = NULL
    output_tokens: Raw = NULL
    prompt_tokens_details: Raw = NULL
    input_tokens_details: Raw = NULL
    cache_read_input_tokens: Raw = NULL
    cache_creation_input_tokens: Raw = NULL


class _Details(Struct, gc=False):
    cached_tokens: Raw = NULL


_FAULTS = (msgspec.MsgspecError, ValueError, RecursionError)
_NOTHING = Usage()
_decode = msgspec.json.Decoder(_Usage).decode
_decode_details = msgspec.json.Decoder(_Details).decode


def read_usage(raw: Raw) -> Usage:
    """Read a `usage` object; anything else says nothing."""
    if raw == NULL:
        return _NOTHING
    try:
        usage = _decode(raw)
    except _FAULTS:
        return _NOTHING
    prompt, completion = _count(usage.prompt_tokens), _count(usage.completion_tokens)
    cached = _cached(usage)
    if prompt is None and (prompt := _count(usage.input_tokens)) is not None:
        apart = _count(usage.cache_read_input_tokens)
        cached = cached if apart is None else apart
        prompt += (apart or 0) + (_count(usage.cache_creation_input_tokens) or 0)
    return Usage(
        input_tokens=prompt,
        output_tokens=_count(usage.output_tokens) if completion is None else completion,
        cached_tokens=cached,
    )


def _cached(usage: _Usage) -> int | None:
    for details in (usage.prompt_tokens_details, usage.input_tokens_details):
        try:
            cached = None if details == NULL else _count(_decode_details(details).cached_tokens)
        except _FAULTS:
            continue
        if cached is not None:
            return cached
    return None


def _count(raw: Raw) -> int | None:
    digits = bytes(raw)
    # Fifteen digits are more than any count, and exact wherever it goes from here.
    return int(digits) if len(digits) <= 15 and digits.isdigit() else None
