"""What a request will cost, as far as can be told before it is served."""

from __future__ import annotations

BYTES_PER_TOKEN = 4
DEFAULT_MAX_TOKENS = 512
"""What a body that names no bound on its answer is taken to ask for."""
ANSWER_TOKENS_RESERVED = 1024
"""The most of an answer that room in the KV cache is kept for before it exists."""


def prompt_tokens(body_bytes: int, max_model_len: int | None = None) -> int:
    """Estimate the tokens of a prompt from the size of the body that carries it.

    Args:
        body_bytes: size of the decoded body.
        max_model_len: the engine's own limit from its `GET /v1/models`, where it has one; a
            longer prompt is refused by the engine before it costs anything.
    """
    tokens = -(-body_bytes // BYTES_PER_TOKEN)
    return tokens if max_model_len is None else min(tokens, max_model_len)


def kv_tokens_needed(prompt: int, max_tokens: int) -> int:
    """Tokens of KV cache to keep for a request that has not started."""
    return prompt + min(max_tokens, ANSWER_TOKENS_RESERVED)
