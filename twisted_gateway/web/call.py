"""What a client asks of a model, read from its request once and checked as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twisted_gateway.config.schema import Model
from twisted_gateway.core.body import BodyError, BodyFacts, read_json, rewrite
from twisted_gateway.core.coding import (
    CodingCorrupt,
    CodingTooLarge,
    CodingUnsupported,
    decode,
)
from twisted_gateway.core.errors import Problem
from twisted_gateway.core.estimate import DEFAULT_MAX_TOKENS
from twisted_gateway.core.multipart import read_multipart
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.core.preferences import prefer_wait, priority
from twisted_gateway.core.ticket import Priority
from twisted_gateway.upstream.request_body import BytesProducer
from twisted_gateway.web.problems import body_too_large, held_too_much
from twisted_gateway.web.target import routed_path

if TYPE_CHECKING:
    from twisted_gateway.web.request import GatewayRequest

STREAMING_PATHS = ("/chat/completions", "/completions", "/responses", "/messages")
"""Ends of the paths whose `stream: true` means an event stream (contract, section 4)."""

UNGATED_PATHS = ("/count_tokens", "/tokenize", "/detokenize")
"""Ends of the paths that never enter the engine's scheduler."""

MOST_NAMES = 20
"""How many names an error's message lists; `valid_models` has all."""

PROMPT_ONLY_PATHS = ("/embeddings", "/rerank", "/score", "/classify", "/pooling")
"""Ends of the paths that generate nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request to a model.

    Attributes:
        model: whose engine serves it.
        path: the engine's path, with the client's query string.
        stream: whether the client asked for an event stream.
        gated: whether it enters the engine's scheduler.
        max_tokens: how many tokens it may generate.
        n: how many sequences it takes in the engine.
        priority: its class.
        wait_seconds: the client's own bound on parking (RFC 7240 `wait`), None without one.
        body: what is sent; restartable, so that a refused try can be made again.
        body_bytes: its size as the client sent it, decoded.
        decoded: whether the body came encoded and goes on as identity.
    """

    model: Model
    path: str
    stream: bool
    gated: bool
    max_tokens: int
    n: int
    priority: Priority
    wait_seconds: float | None
    body: BytesProducer
    body_bytes: int
    decoded: bool


@dataclass(frozen=True, slots=True)
class Posted:
    """The body of a request, read once, whatever model it will turn out to be for.

    Attributes:
        body: decoded.
        facts: what it says.
        decoded: whether it came encoded.
    """

    body: bytes
    facts: BodyFacts
    decoded: bool


def read_body(request: GatewayRequest) -> Posted:
    """Read the body of a request, which has come whole; an encoded one is dropped by that.

    Raises:
        Problem: whatever is wrong with it, in words.
    """
    body, decoded = _decoded_body(request)
    return Posted(body, _facts(request, body), decoded)


def read_call(request: GatewayRequest, posted: Posted, models: Mapping[str, Model]) -> Call:
    """Say what a request asks, and of which model.

    Args:
        request: its head counts.
        posted: its body.
        models: every name and alias that clients may use -> the model.

    Raises:
        Problem: whatever is wrong with it, in words.
    """
    body, facts = posted.body, posted.facts
    model = models.get(facts.model)
    if model is None:
        raise _unknown_model(facts.model, models)
    request.exchange.model = model.name
    if len(body) > model.max_body_bytes:
        raise body_too_large(model.max_body_bytes, f"this one for {model.name} has {len(body)}")
    path = routed_path(request.path).decode("utf-8", "replace")
    return Call(
        model=model,
        path=_upstream_path(request, model, path),
        stream=facts.stream and path.endswith(STREAMING_PATHS),
        gated=not path.endswith(UNGATED_PATHS),
        max_tokens=0 if path.endswith(PROMPT_ONLY_PATHS) else _max_tokens(facts),
        n=facts.n,
        priority=priority(request.requestHeaders.getRawHeaders(b"X-Priority", [])),
        wait_seconds=prefer_wait(request.requestHeaders.getRawHeaders(b"Prefer", [])),
        body=BytesProducer(_as_the_engine_knows_it(body, facts, model)),
        body_bytes=len(body),
        decoded=posted.decoded,
    )


def _decoded_body(request: GatewayRequest) -> tuple[bytes, bool]:
    body = request.content.whole()
    codings = b", ".join(request.requestHeaders.getRawHeaders(b"Content-Encoding", []))
    coding = codings.decode("latin-1").strip().lower()
    if coding in ("", "identity"):
        return body, False
    limit = request.owner.max_body_bytes
    try:
        decoded = decode(body, coding, limit)
    except CodingUnsupported as fault:
        raise Problem(
            "content_coding",
            415,
            str(fault),
            outcome=Outcome.BAD_REQUEST,
            headers={"Accept-Encoding": "gzip, zstd"},
        ) from None
    except CodingCorrupt as fault:
        raise _bad_request("content_coding", str(fault)) from None
    except CodingTooLarge:
        raise body_too_large(limit, "this one decodes to more") from None
    if not request.content.recount(len(decoded)):
        raise held_too_much(request.owner.retry_after_seconds)
    return decoded, True


def _facts(request: GatewayRequest, body: bytes) -> BodyFacts:
    content_type = request.requestHeaders.getRawHeaders(b"Content-Type", [b""])[0]
    try:
        if content_type.partition(b";")[0].strip().lower() == b"multipart/form-data":
            return read_multipart(body, content_type)
        return read_json(body)
    except BodyError as fault:
        raise _bad_request("malformed_body", fault.detail, fault.param) from None


def _unknown_model(name: str, models: Mapping[str, Model]) -> Problem:
    shown = name if len(name) <= 200 else name[:200] + "…"
    # In the message too: official clients show nothing else.
    known = sorted(models)
    some = ", ".join(known[:MOST_NAMES]) + (", …" if len(known) > MOST_NAMES else "")
    return Problem(
        "unknown_model",
        400,
        f"The model {shown!r} is not served here; served are: {some}.",
        outcome=Outcome.BAD_REQUEST,
        members={"valid_models": known},
        param="model",
    )


def _upstream_path(request: GatewayRequest, model: Model, path: str) -> str:
    mapped = model.paths.get(path)
    if mapped is None:
        # The client's own spelling, percent-encoding and all.
        mapped = request.path.decode("ascii", "replace")
    query = request.uri.partition(b"?")[2].decode("ascii", "replace")
    return f"{mapped}?{query}" if query else mapped


def _max_tokens(facts: BodyFacts) -> int:
    return DEFAULT_MAX_TOKENS if facts.max_tokens is None else facts.max_tokens


def _as_the_engine_knows_it(
    body: bytes, facts: BodyFacts, model: Model
) -> list[bytes | memoryview]:
    name = model.upstream_model
    if name is None and facts.model != model.name:
        name = model.name
    if name is None or name == facts.model:
        return [body]
    return rewrite(body, facts, name)


def _bad_request(kind: str, detail: str, param: str | None = None) -> Problem:
    return Problem(kind, 400, detail, outcome=Outcome.BAD_REQUEST, param=param)
