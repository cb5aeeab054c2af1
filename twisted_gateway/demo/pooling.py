"""The paths of an engine that embeds, reranks and scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twisted.web.server import Request

from twisted_gateway.demo import ask
from twisted_gateway.demo.ask import ApiError
from twisted_gateway.demo.dialects import DIED
from twisted_gateway.demo.host import Handler, Host, Routes
from twisted_gateway.demo.scheduler import Job
from twisted_gateway.demo.vectors import DIMENSIONS, embed, encode, similarity
from twisted_gateway.demo.words import prompt_tokens


def routes(host: Host) -> Routes:
    """Embeddings, rerank and score, under each of the paths that vLLM gives them."""
    rerank: Mapping[str, Handler] = {"POST": lambda request: _rerank(host, request)}
    score: Mapping[str, Handler] = {"POST": lambda request: _score(host, request)}
    return {
        "/v1/embeddings": {"POST": lambda request: _embeddings(host, request)},
        "/rerank": rerank,
        "/v1/rerank": rerank,
        "/v2/rerank": rerank,
        "/score": score,
        "/v1/score": score,
    }


class _Call:
    """Texts on their way through the engine; `then` is called when all have been computed."""

    def __init__(
        self, host: Host, request: Request, texts: Sequence[bytes], then: Callable[[], object]
    ) -> None:
        self._host = host
        self._request = request
        self._then = then
        self._left = len(texts)
        self._over = False
        self._jobs: list[Job] = []
        if not host.faults.hang:
            self._jobs = [
                host.engine.submit(prompt_tokens(text), 0, lambda _: None, self._done)
                for text in texts
            ]
        _ = request.notifyFinish().addBoth(lambda _: self._leave())

    def _done(self, reason: str) -> None:
        self._left -= 1
        if self._over:
            return
        if reason == "error":
            self._leave()
            error = ApiError(500, DIED, "InternalServerError")
            self._host.reply(self._request, 500, error.document())
        elif not self._left:
            self._leave()
            self._then()

    def _leave(self) -> None:
        self._over = True
        for job in self._jobs:
            self._host.engine.abort(job)


def _embeddings(host: Host, request: Request) -> None:
    body = host.body(request)
    texts = _texts(host, ask.inputs(body, "input"))
    ask.check_model(body, host.limits, pooling=True)
    form = body.get("encoding_format", "float")
    if form not in ("float", "base64"):
        message = "encoding_format must be float or base64"
        raise ApiError(400, message, "BadRequestError", "encoding_format")
    if body.get("dimensions") not in (None, DIMENSIONS):
        message = (
            f'Model "{host.limits.model}" does not support matryoshka representation, changing '
            "output dimensions will lead to poor results."
        )
        raise ApiError(400, message, "BadRequestError", "dimensions")
    host.admit()

    def answer() -> None:
        vectors = map(embed, texts)
        data = [
            {
                "index": index,
                "object": "embedding",
                "embedding": encode(vector) if form == "base64" else vector,
            }
            for index, vector in enumerate(vectors)
        ]
        host.reply(request, 200, _list(host, "embd", data, texts))

    _Call(host, request, texts, answer)


def _rerank(host: Host, request: Request) -> None:
    body = host.body(request)
    query = ask.text_of(ask.required(body, "query", str))
    documents = _documents(body, "documents")
    texts = _texts(host, [query, *documents])
    ask.check_model(body, host.limits, pooling=True)
    top = body.get("top_n") or len(documents)
    if not isinstance(top, int) or top < 0:
        raise ApiError(400, "top_n must be 0 or more", "BadRequestError", "top_n")
    host.admit()

    def answer() -> None:
        results: list[dict[str, Any]] = [
            {
                "index": index,
                "document": {"text": document.decode("utf-8", "replace"), "multi_modal": None},
                "relevance_score": score,
            }
            for index, (document, score) in enumerate(
                zip(documents, _scores([query], documents), strict=True)
            )
        ]
        results.sort(key=lambda result: result["relevance_score"], reverse=True)
        tokens = sum(map(prompt_tokens, texts))
        document = {
            "id": f"score-{host.new_id()}",
            "model": host.limits.model,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            "results": results[:top],
        }
        host.reply(request, 200, document)

    _Call(host, request, texts, answer)


def _score(host: Host, request: Request) -> None:
    body = host.body(request)
    one, other = _pair(body)
    if len(one) not in (1, len(other)):
        message = "Input lengths must be either 1:1, 1:N or N:N"
        raise ApiError(400, message, "BadRequestError")
    texts = _texts(host, [*one, *other])
    ask.check_model(body, host.limits, pooling=True)
    host.admit()

    def answer() -> None:
        data = [
            {"index": index, "object": "score", "score": score}
            for index, score in enumerate(_scores(one, other))
        ]
        host.reply(request, 200, _list(host, "score", data, texts))

    _Call(host, request, texts, answer)


def _pair(body: Mapping[str, Any]) -> tuple[list[bytes], list[bytes]]:
    """The two sides of a score, under whichever of vLLM's names they come."""
    for one, other in (("text_1", "text_2"), ("data_1", "data_2")):
        if one in body:
            return _documents(body, one), _documents(body, other)
    return _documents(body, "queries"), _documents(body, "documents")


def _documents(body: Mapping[str, Any], name: str) -> list[bytes]:
    """One or many texts, each a string or an object with a `text`."""
    value = ask.required(body, name, (str, list))
    texts = [ask.text_of(item) for item in (value if isinstance(value, list) else [value])]
    if not 1 <= len(texts) <= 16 * ask.MAX_SEQUENCES:
        message = f"{name} must have 1 to {16 * ask.MAX_SEQUENCES} items"
        raise ApiError(400, message, "BadRequestError", name)
    return texts


def _texts(host: Host, texts: list[bytes]) -> list[bytes]:
    for text in texts:
        ask.check_length(prompt_tokens(text), host.limits)
    return texts


def _scores(one: Sequence[bytes], other: Sequence[bytes]) -> list[float]:
    left = [embed(text) for text in one] * (len(other) if len(one) == 1 else 1)
    return [similarity(a, embed(text)) for a, text in zip(left, other, strict=True)]


def _list(host: Host, prefix: str, data: list[Any], texts: Sequence[bytes]) -> dict[str, Any]:
    tokens = sum(map(prompt_tokens, texts))
    return {
        "id": f"{prefix}-{host.new_id()}",
        "object": "list",
        "created": host.now(),
        "model": host.limits.model,
        "data": data,
        "usage": {
            "prompt_tokens": tokens,
            "total_tokens": tokens,
            "completion_tokens": 0,
            "prompt_tokens_details": None,
            "completion_tokens_details": None,
        },
    }
