"""The paths of an engine that generates text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from twisted.web.server import Request

from twisted_gateway.demo import ask
from twisted_gateway.demo.ask import Ask, Limits
from twisted_gateway.demo.dialects import Chat, Completions, Dialect, Messages
from twisted_gateway.demo.generation import Generation
from twisted_gateway.demo.host import Handler, Host, Routes, abort
from twisted_gateway.demo.responses import Responses
from twisted_gateway.demo.words import prompt_tokens

_Read = Callable[[Mapping[str, Any], Limits], Ask]
_Form = Callable[[Ask, str, int], Dialect]


def routes(host: Host) -> Routes:
    """Chat, completions, responses and messages, and the counting of tokens."""

    def generating(read: _Read, form: _Form) -> Mapping[str, Handler]:
        return {"POST": lambda request: _generate(host, request, read, form)}

    return {
        "/v1/chat/completions": generating(ask.chat, Chat),
        "/v1/completions": generating(ask.completions, Completions),
        "/v1/responses": generating(ask.responses, Responses),
        "/v1/messages": generating(ask.messages, Messages),
        "/v1/messages/count_tokens": {"POST": lambda request: _count_tokens(host, request)},
        "/tokenize": {"POST": lambda request: _tokenize(host, request)},
        "/detokenize": {"POST": lambda request: _detokenize(host, request)},
    }


def _generate(host: Host, request: Request, read: _Read, form: _Form) -> None:
    wanted = read(host.body(request), host.limits)
    host.admit()
    identity = (request.getHeader(b"x-request-id") or b"").decode("latin-1")
    if not 1 <= len(identity) <= 128:
        identity = host.new_id()
    Generation(
        request,
        host.engine,
        wanted,
        form(wanted, identity, host.now()),
        faults=host.faults,
        reply=host.reply,
        cut=abort,
    ).start()


def _count_tokens(host: Host, request: Request) -> None:
    tokens = prompt_tokens(ask.message_prompt(host.body(request)))
    context = {"original_input_tokens": tokens}
    host.reply(request, 200, {"input_tokens": tokens, "context_management": context})


def _tokenize(host: Host, request: Request) -> None:
    body = host.body(request)
    ask.check_model(body, host.limits)
    if "messages" in body:
        text = ask.text_of(ask.required(body, "messages", list))
    else:
        text = ask.inputs(body, "prompt")[0]
    tokens = [int.from_bytes(text[start : start + 4], "big") for start in range(0, len(text), 4)]
    document = {"count": len(tokens), "max_model_len": host.limits.max_model_tokens}
    host.reply(request, 200, {**document, "tokens": tokens, "token_strs": None})


def _detokenize(host: Host, request: Request) -> None:
    body = host.body(request)
    ask.check_model(body, host.limits)
    tokens = ask.required(body, "tokens", list)
    text = b"".join(ask.inputs({"tokens": tokens}, "tokens"))
    host.reply(request, 200, {"prompt": text.replace(b"\0", b"").decode("utf-8", "replace")})
