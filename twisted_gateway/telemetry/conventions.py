"""OpenTelemetry's words for what the gateway does (semantic conventions for HTTP and for GenAI).

https://opentelemetry.io/docs/specs/semconv/http/http-spans/ and
https://github.com/open-telemetry/semantic-conventions-genai
"""

from __future__ import annotations

from functools import lru_cache

from twisted_gateway.core.outcome import Outcome

# The last part of a route -> gen_ai.operation.name. The last two are ours: no name of the
# conventions fits them, and then "a custom value MAY be used".
_OPERATIONS = {
    "chat/completions": "chat",
    "responses": "chat",
    "messages": "chat",
    "completions": "text_completion",
    "embeddings": "embeddings",
    "rerank": "rerank",
    "score": "score",
}

_METHODS = frozenset(
    {"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE"}
)

UNKNOWN_PROVIDER = "openai"
"""`gen_ai.provider.name` of an engine of no known kind: whose dialect it speaks."""


# Routes are a bounded set, and this is asked several times a request.
@lru_cache(maxsize=256)
def operation(route: str) -> str | None:
    """Give `gen_ai.operation.name`, None for a route that asks nothing of a model."""
    return next((word for end, word in _OPERATIONS.items() if route.endswith("/" + end)), None)


def provider(engine: str) -> str:
    """Give `gen_ai.provider.name` for a kind of engine: its name, which is a custom value."""
    return UNKNOWN_PROVIDER if engine in ("", "none") else engine


def method(name: str) -> str:
    """Give `http.request.method`: `_OTHER` for one that no RFC knows."""
    return name if name in _METHODS else "_OTHER"


def error_type(outcome: Outcome) -> str:
    """Give `error.type` for how a request ended; "" where it went well.

    The values are the outcomes' own words, so there are few. A client that left is one of them: no
    failure of anybody's, and no request whose duration could be compared with others either.
    """
    return "" if outcome is Outcome.OK else outcome.value
