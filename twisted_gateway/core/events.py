"""What an event of an OpenAI- or Anthropic-style stream means, and what an engine's error says.

`classify` reads the few members that matter out of an event without building a tree of it:

    chat/completions   choices[].delta.{content,reasoning,tool_calls,...}, usage, error, [DONE]
    completions        choices[].text, usage, error, [DONE]
    responses          type *.delta with `delta`; response.usage; response.completed and its kin
    messages           content_block_delta, message_start and message_delta (usage), message_stop

The forms are those of the OpenAI and Anthropic API references, seen from vLLM 0.32 and llama.cpp.
What cannot be read means nothing: no event makes `classify` raise.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Raw, Struct

from twisted_gateway.core.charset import decoded
from twisted_gateway.core.sse import Event
from twisted_gateway.core.usage import read_usage

MAX_ERROR_BODY_BYTES = 65_536
"""How much of an error body is looked at; a caller need not gather more."""
MAX_MESSAGE_CHARS = 2_000
"""The longest message that is taken from an engine."""
_MAX_WORD_CHARS = 200

_CUT_CHARACTER = re.compile(rb"[\xc0-\xff][\x80-\xbf]{0,3}\Z")
_FAULTS = (msgspec.MsgspecError, ValueError, RecursionError)


class ErrorInfo(Struct, frozen=True):
    """What an engine said of an error: bounded, without control characters.

    Attributes:
        message: a sentence for people, `""` where the engine gave none.
        type: the engine's word for the class of error.
        param: the request parameter at fault.
        code: the engine's code, a word or a number.
    """

    message: str = ""
    type: str | None = None
    param: str | None = None
    code: str | int | None = None

    def error_object(
        self, *, message: str, type: str = "server_error", code: str = "upstream_error"
    ) -> dict[str, Any]:
        """The `error` object of `core.errors.error_frame`; the arguments fill in for gaps."""
        return {
            "message": self.message or message,
            "type": self.type or type,
            "param": self.param,
            "code": code if self.code is None else self.code,
        }


class Meaning(Struct, frozen=True):
    """What one event means for timing, accounting and the outcome.

    Attributes:
        content: it bears something for the reader: text, reasoning, a tool call, audio. Roles,
            empty strings, pings and mere usage do not.
        completion_tokens: tokens generated so far, where it says so.
        prompt_tokens: tokens of the prompt, where it says so.
        cached_tokens: how many of these were in the engine's prefix cache, where it says so.
        error: the error that the engine put into its stream.
        terminal: it is the last event of a whole answer, or of one that failed.
    """

    content: bool = False
    completion_tokens: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    error: ErrorInfo | None = None
    terminal: bool = False


NOTHING = Meaning()
CONTENT = Meaning(content=True)
DONE = Meaning(terminal=True)

_TERMINAL = frozenset(
    {"message_stop", "response.completed", "response.incomplete", "response.failed"}
)

_NULL = Raw(b"null")
_EMPTY = (_NULL, Raw(b'""'), Raw(b"[]"), Raw(b"{}"), Raw(b"false"))


# Members whose type differs between engines, or need not be known, stay raw: a surprise in one
# does not spoil the others, and no value is built that nobody reads.
class _Delta(Struct, gc=False):
    content: Raw = _NULL
    reasoning: Raw = _NULL
    reasoning_content: Raw = _NULL
    refusal: Raw = _NULL
    tool_calls: Raw = _NULL
    function_call: Raw = _NULL
    audio: Raw = _NULL


class _Choice(Struct, gc=False):
    delta: _Delta | None = None
    text: Raw = _NULL


class _Body(Struct, gc=False):
    type: str = ""
    choices: list[_Choice] | None = None
    usage: Raw = _NULL
    error: Raw = _NULL
    delta: Raw = _NULL
    message: Raw = _NULL
    response: Raw = _NULL


class _BlockDelta(Struct, gc=False):
    text: Raw = _NULL
    thinking: Raw = _NULL
    partial_json: Raw = _NULL
    signature: Raw = _NULL


class _Carrier(Struct, gc=False):
    usage: Raw = _NULL
    error: Raw = _NULL


_NO_CARRIER = _Carrier()

_decode_body = msgspec.json.Decoder(_Body).decode
_decode_block_delta = msgspec.json.Decoder(_BlockDelta).decode
_decode_carrier = msgspec.json.Decoder(_Carrier).decode


def classify(event: Event) -> Meaning:
    """Say what an event means.

    An event over the splitter's limit is judged by its name alone. One that is not the JSON
    expected of it means nothing, unless its name says that it is an error.
    """
    data = event.data
    if data is None:
        return _by_name(event.name)
    if data.startswith(b"[DONE]"):
        return DONE
    try:
        body = _decode_body(data)
    except _FAULTS:
        return Meaning(error=upstream_message(data)) if event.name == b"error" else NOTHING
    kind = body.type or event.name.decode("utf-8", "replace")
    if not kind and body.usage is _NULL and body.error is _NULL:
        return CONTENT if _in_choices(body.choices) else NOTHING
    return _in_full(event, body, kind)


def _by_name(name: bytes) -> Meaning:
    kind = name.decode("utf-8", "replace")
    return Meaning(
        content=kind == "content_block_delta" or kind.endswith(".delta"),
        error=ErrorInfo() if kind in ("error", "response.failed") else None,
        terminal=kind in _TERMINAL,
    )


def _in_choices(choices: list[_Choice] | None) -> bool:
    for choice in choices or ():
        delta = choice.delta
        if choice.text not in _EMPTY or (
            delta is not None
            and not (
                delta.content in _EMPTY
                and delta.reasoning_content in _EMPTY
                and delta.reasoning in _EMPTY
                and delta.tool_calls in _EMPTY
                and delta.refusal in _EMPTY
                and delta.function_call in _EMPTY
                and delta.audio in _EMPTY
            )
        ):
            return True
    return False


def _in_full(event: Event, body: _Body, kind: str) -> Meaning:
    inner = _NO_CARRIER
    if kind in _TERMINAL:
        inner = _carrier(body.response)
    elif kind == "message_start":
        inner = _carrier(body.message)
    usage = body.usage if body.usage not in _EMPTY else inner.usage
    used = read_usage(usage)
    return Meaning(
        content=_in_choices(body.choices) or _in_delta(body.delta, kind),
        # A message_start counts from nothing (Anthropic's says 1 before anything is there).
        completion_tokens=None if kind == "message_start" else used.output_tokens,
        prompt_tokens=used.input_tokens,
        cached_tokens=used.cached_tokens,
        error=_error(event, body, kind, inner.error),
        terminal=kind in _TERMINAL,
    )


def _in_delta(delta: Raw, kind: str) -> bool:
    if kind.endswith(".delta"):
        return delta not in _EMPTY
    if kind != "content_block_delta":
        return False
    try:
        block = _decode_block_delta(delta)
    except _FAULTS:
        return False
    return not (
        block.text in _EMPTY
        and block.thinking in _EMPTY
        and block.partial_json in _EMPTY
        and block.signature in _EMPTY
    )


def _carrier(raw: Raw) -> _Carrier:
    try:
        return _decode_carrier(raw)
    except _FAULTS:
        return _NO_CARRIER


def _error(event: Event, body: _Body, kind: str, inner: Raw) -> ErrorInfo | None:
    if body.error not in _EMPTY or kind == "error" or event.name == b"error":
        return upstream_message(event.data or b"")
    if kind == "response.failed":
        return _info(_tree(bytes(inner)))
    return None


def upstream_message(body: bytes, content_type: str = "") -> ErrorInfo:
    """Read an engine's own account of an error out of its error body, or error event.

    Known forms: OpenAI's and llama.cpp's `{"error": {"message", "type", "param", "code"}}`, the
    same without the wrapper, `{"error": "text", "error_type": …}` (TEI, TGI), `{"error": "word",
    "error_description": …}` (OAuth; Gotify writes `errorDescription`), `{"detail": …}` (FastAPI,
    also its list of faults), problem+json, HTML (its title), plain text.

    Args:
        body: the body, or as much of it as was gathered; what exceeds 64 KiB is not looked at.
        content_type: its `Content-Type`, for its encoding (`charset.decoded`); "" for none.
    """
    text = decoded(_beginning(body), content_type)
    tree = _tree(text)
    info = _info(tree)
    return msgspec.structs.replace(info, message=info.message or _cut(_words(text, tree)))


def upstream_words(body: bytes, content_type: str = "") -> str:
    """Read the sentence alone out of an error body, whole: some 64 KiB at most.

    For who takes something out of it before it is shown: half a credential is none that anybody
    would find, and enough to go on.

    Args:
        body: as for `upstream_message`.
        content_type: as for `upstream_message`.
    """
    text = decoded(_beginning(body), content_type)
    return _words(text, _tree(text))


def _beginning(body: bytes) -> bytes:
    """Give as much as is looked at, without a character of UTF-8 that the end cuts through."""
    beginning = body[:MAX_ERROR_BODY_BYTES]
    return _CUT_CHARACTER.sub(b"", beginning) if len(beginning) == MAX_ERROR_BODY_BYTES else body


def _tree(body: bytes | str) -> Any:
    # Errors are rare and small: here a tree is the plainest way to bear every form.
    try:
        return msgspec.json.decode(body)
    except _FAULTS:
        return None


def _words(text: str, tree: Any) -> str:
    said = _one_line(_sentence(tree))
    return said if said or tree in ({}, [], "") else _one_line(_plain(text))


def _sentence(tree: Any) -> str:
    outer = _first(tree)
    if isinstance(outer, str):
        return outer
    return _said(_fields(outer)) or _said(outer) if isinstance(outer, dict) else ""


def _info(tree: Any) -> ErrorInfo:
    message = _cut(_one_line(_sentence(tree)))
    outer = _first(tree)
    if not isinstance(outer, dict):
        return ErrorInfo(message)
    fields = _fields(outer)
    return ErrorInfo(
        message=message,
        type=_type(fields),
        param=_word(fields.get("param")),
        code=_code(fields.get("code")),
    )


def _first(tree: Any) -> Any:
    return tree[0] if isinstance(tree, list) and tree else tree


def _fields(outer: dict[str, Any]) -> dict[str, Any]:
    error = outer.get("error")
    return error if isinstance(error, dict) and error else outer


_SENTENCES = ("message", "errorDescription", "error_description", "error", "detail", "title")


def _said(fields: dict[str, Any]) -> str:
    """The sentence for people among the members of an error."""
    for name in _SENTENCES:
        said = fields.get(name)
        if isinstance(said, str) and said:
            return said
        if isinstance(said, list):
            # FastAPI: [{"loc": ["body", "messages"], "msg": "Field required", …}, …]
            return "; ".join(_fault(fault) for fault in said[:8] if isinstance(fault, dict))
    return ""


def _fault(fault: dict[str, Any]) -> str:
    place = fault.get("loc")
    steps = place[:8] if isinstance(place, list) else []
    where = ".".join(str(step) for step in steps if isinstance(step, str | int))
    said = fault.get("msg")
    what = said if isinstance(said, str) and said else "invalid"
    return f"{where}: {what}" if where else what


def _type(fields: dict[str, Any]) -> str | None:
    word = _word(fields.get("error_type") or fields.get("type"))
    # "error" is the envelope's own type; a problem document's is a URI, which is no class of error.
    return None if word is None or word == "error" or ":" in word else word


def _word(value: Any) -> str | None:
    if not isinstance(value, str) or not value:
        return None
    return _cut(_one_line(value), _MAX_WORD_CHARS)


def _code(value: Any) -> str | int | None:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53:
        return value
    return _word(value)


def _plain(text: str) -> str:
    text = text.strip()
    if not text.startswith("<"):
        return text
    title = _TITLE.search(text)
    return "" if title is None else title[1]


def _one_line(text: str) -> str:
    return _CONTROL.sub(" ", text).strip()


def _cut(text: str, limit_chars: int = MAX_MESSAGE_CHARS) -> str:
    return text if len(text) <= limit_chars else text[: limit_chars - 1] + "…"


# Bounded repeats: on a hostile page they cost no more than its length many times 300.
_TITLE = re.compile(r"<title[^>]{0,100}>(.{0,300}?)</title>", re.IGNORECASE | re.DOTALL)
# C0, DEL, C1, the line and paragraph separators, and what reverses the direction of a log line.
_CONTROL_CHARS = "\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069"
_CONTROL = re.compile(f"[{_CONTROL_CHARS}][{_CONTROL_CHARS} ]*")
