"""What a client asks of a simulated engine: bodies into values, with vLLM's own complaints."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from twisted_gateway.demo.words import prompt_tokens

MAX_SEQUENCES = 128
"""How many sequences one request may ask for; a bound of this engine's, not of vLLM's."""


class ApiError(Exception):
    """A request that the engine answers with an error, in vLLM's form."""

    def __init__(self, status: int, message: str, kind: str, param: str | None = None) -> None:
        """Take the HTTP status, and the members of the `error` object."""
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param

    def document(self) -> dict[str, Any]:
        """The error as OpenAI's paths give it."""
        error = {"message": self.message, "type": self.kind, "param": self.param}
        return {"error": {**error, "code": self.status}}

    def anthropic_document(self) -> dict[str, Any]:
        """The error as Anthropic's path gives it."""
        return {"type": "error", "error": {"type": self.kind, "message": self.message}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the model allows: the name it is served by, and its context in tokens."""

    model: str
    max_model_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request for text.

    Attributes:
        prompts: as text; each makes `n` choices.
        max_tokens: how many each choice may have at most.
        ignore_eos: go on to `max_tokens` whatever the answer's natural length.
        include_usage: a stream ends with a chunk that bears the usage.
        continuous_usage: every chunk of a stream bears it.
    """

    model: str
    prompts: tuple[bytes, ...]
    n: int
    max_tokens: int
    ignore_eos: bool
    stream: bool
    include_usage: bool
    continuous_usage: bool

    @property
    def prompt_tokens(self) -> int:
        """The tokens of all prompts together."""
        return sum(map(prompt_tokens, self.prompts))


def decode(body: bytes) -> dict[str, Any]:
    """The JSON object in `body`.

    Raises:
        ApiError: 400, as vLLM words it.
    """
    try:
        tree = json.loads(body)
    except json.JSONDecodeError as fault:
        detail = {
            "type": "json_invalid",
            "loc": f"body.{fault.pos}",
            "msg": "JSON decode error",
            "input": "<dict of 0 items>",
            "ctx": {"error": fault.msg},
        }
        raise _unprocessable(detail) from fault
    except (UnicodeDecodeError, RecursionError) as fault:
        raise ApiError(400, "There was an error parsing the body", "Bad Request") from fault
    if not isinstance(tree, dict):
        message = "Input should be a valid dictionary or object to extract fields from"
        raise _unprocessable(
            {"type": "model_attributes_type", "loc": "body", "msg": message, "input": _shown(tree)}
        )
    return tree


def chat(body: Mapping[str, Any], limits: Limits) -> Ask:
    """Read a body of /v1/chat/completions.

    Raises:
        ApiError: 400 or 404.
    """
    messages = required(body, "messages", list)
    given = _count(body, "max_completion_tokens")
    if given is None:
        given = _count(body, "max_tokens")
    return _ask(body, limits, [text_of(messages)], given)


def completions(body: Mapping[str, Any], limits: Limits) -> Ask:
    """Read a body of /v1/completions. Without `max_tokens` an answer has 16, as OpenAI has it.

    Raises:
        ApiError: 400 or 404.
    """
    given = _count(body, "max_tokens")
    return _ask(body, limits, inputs(body, "prompt"), 16 if given is None else given)


def responses(body: Mapping[str, Any], limits: Limits) -> Ask:
    """Read a body of /v1/responses.

    Raises:
        ApiError: 400 or 404.
    """
    text = text_of(body.get("instructions")) + text_of(required(body, "input", (str, list)))
    return _ask(body, limits, [text], _count(body, "max_output_tokens"), many=False)


def messages(body: Mapping[str, Any], limits: Limits) -> Ask:
    """Read a body of /v1/messages.

    Raises:
        ApiError: 400 or 404.
    """
    prompt = message_prompt(body)
    required(body, "max_tokens", int)
    return _ask(body, limits, [prompt], _count(body, "max_tokens"), many=False)


def message_prompt(body: Mapping[str, Any]) -> bytes:
    """The prompt of a body in Anthropic's form.

    Raises:
        ApiError: 400.
    """
    return text_of(body.get("system")) + text_of(required(body, "messages", list))


def inputs(body: Mapping[str, Any], name: str) -> list[bytes]:
    """One or many texts: a string, a list of strings, a list of tokens, a list of such lists.

    Raises:
        ApiError: 400.
    """
    value = required(body, name, (str, list))
    if isinstance(value, str):
        return [value.encode("utf-8", "replace")]
    if value and all(map(_is_token, value)):
        value = [value]
    if not 1 <= len(value) <= 16 * MAX_SEQUENCES:
        raise _bad(f"{name} must have 1 to {16 * MAX_SEQUENCES} items", name)
    return [_one_input(item, name) for item in value]


def text_of(content: object) -> bytes:
    """All text in a prompt, whatever its form: strings, messages, parts, and lists of them."""
    if isinstance(content, str):
        return content.encode("utf-8", "replace")
    if isinstance(content, list):
        return b"".join(map(text_of, content))
    if isinstance(content, dict):
        return text_of(content.get("content", content.get("text")))
    return b""


def check_model(body: Mapping[str, Any], limits: Limits, *, pooling: bool = False) -> None:
    """See to it that the model asked for, if any, is the one served.

    Raises:
        ApiError: 404.
    """
    model = body.get("model")
    if model in (None, limits.model):
        return
    if pooling:
        raise ApiError(404, f"The model `{model}` does not exist.", "NotFoundError")
    message = f"The model `{model}` does not exist. Valid aliases: {limits.model}."
    raise ApiError(404, message, "NotFoundError", "model")


def check_length(tokens: int, limits: Limits, output_tokens: int = 0) -> None:
    """See to it that a prompt leaves room for its answer.

    Raises:
        ApiError: 400.
    """
    limit = limits.max_model_tokens
    room = "which exceeds this limit even without any output tokens"
    if output_tokens > 1:
        room = f"and {output_tokens} output tokens are requested, which together exceed this limit"
    if tokens + output_tokens > limit:
        message = (
            f"This model's maximum context length is {limit} tokens. However, your prompt contains "
            f"at least {tokens} input tokens, {room}. Please reduce the length of the input "
            f"prompt. (parameter=input_tokens, value={tokens})"
        )
        raise _bad(message, "input_tokens")


def required(body: Mapping[str, Any], name: str, kind: type | tuple[type, ...]) -> Any:
    """The member `name` of a body, which must be there and of this kind.

    Raises:
        ApiError: 400.
    """
    if name not in body:
        shown = _shown(body)
        detail = {"type": "missing", "loc": f"body.{name}", "msg": "Field required", "input": shown}
        raise _unprocessable(detail)
    value = body[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        wanted = "list" if kind is list else "integer" if kind is int else "string or list"
        raise _wrong_type(name, wanted, value)
    return value


def _ask(
    body: Mapping[str, Any],
    limits: Limits,
    prompts: Sequence[bytes],
    given: int | None,
    *,
    many: bool = True,
) -> Ask:
    check_model(body, limits)
    n = _count(body, "n") if many else None
    n = 1 if n is None else n
    if not 1 <= n * len(prompts) <= MAX_SEQUENCES:
        raise _bad(f"n must be 1 to {MAX_SEQUENCES // len(prompts)}, got {n}", "n")
    limit = limits.max_model_tokens
    if given is not None and given > limit:
        message = (
            f"max_tokens={given} cannot be greater than max_model_len={limit}. "
            f"Please request fewer output tokens. (parameter=max_tokens, value={given})"
        )
        raise _bad(message, "max_tokens")
    if given is not None and given < 1:
        raise _bad(f"max_tokens must be at least 1, got {given}.", "max_tokens")
    longest = max(map(prompt_tokens, prompts))
    check_length(longest, limits, given or 1)
    options = body.get("stream_options")
    if not isinstance(options, dict):
        options = {}
    return Ask(
        model=limits.model,
        prompts=tuple(prompts),
        n=n,
        max_tokens=limit - longest if given is None else given,
        ignore_eos=_flag(body, "ignore_eos"),
        stream=_flag(body, "stream"),
        include_usage=_flag(options, "include_usage"),
        continuous_usage=_flag(options, "continuous_usage_stats"),
    )


def _one_input(item: object, name: str) -> bytes:
    if isinstance(item, str):
        return item.encode("utf-8", "replace")
    if isinstance(item, list) and item and all(map(_is_token, item)):
        # Four bytes a token, as this engine's tokenizer has it.
        return b"".join((token & 0xFFFFFFFF).to_bytes(4, "big") for token in item)
    raise _wrong_type(name, "string or list", item)


def _is_token(item: object) -> bool:
    return isinstance(item, int) and not isinstance(item, bool)


def _count(body: Mapping[str, Any], name: str) -> int | None:
    value = body.get(name)
    if value is None or _is_token(value):
        return value
    raise _wrong_type(name, "integer", value)


def _flag(body: Mapping[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise _wrong_type(name, "boolean", value)


def _bad(message: str, param: str) -> ApiError:
    return ApiError(400, message, "BadRequestError", param)


def _wrong_type(name: str, wanted: str, value: object) -> ApiError:
    kind = {"integer": "int", "boolean": "bool"}.get(wanted, wanted.split(" ")[0])
    return _unprocessable(
        {
            "type": f"{kind}_type",
            "loc": f"body.{name}",
            "msg": f"Input should be a valid {wanted}",
            "input": _shown(value),
        }
    )


def _unprocessable(detail: Mapping[str, Any]) -> ApiError:
    message = f"1 validation error:\n  {dict(detail)}"
    return ApiError(400, message, "Bad Request", str(detail["loc"]))


def _shown(value: object) -> object:
    """A value as a complaint shows it: never long."""
    if isinstance(value, Mapping):
        return f"<dict of {len(value)} items>"
    if isinstance(value, list):
        return f"<list of {len(value)} items>"
    return value[:64] if isinstance(value, str) else value
