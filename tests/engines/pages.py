"""The recorded and hand-written pages that the tests of this folder read."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent / "fixtures"


def fixture(name: str) -> bytes:
    """Return a fixture's bytes."""
    return (_FOLDER / name).read_bytes()


def body(name: str) -> bytes:
    """Return the body of a recorded HTTP exchange."""
    return fixture(name).partition(b"\r\n\r\n")[2]


def vllm(
    running: object = 0.0,
    waiting: object = 0.0,
    usage: object = 0.0,
    *,
    model: str = "reasoning",
    generated: object = 0.0,
) -> bytes:
    """Write a small page of a vLLM with one rank."""
    labels = f'{{engine="0",model_name="{model}"}}'
    return (
        f"vllm:num_requests_running{labels} {running}\n"
        f"vllm:num_requests_waiting{labels} {waiting}\n"
        f"vllm:kv_cache_usage_perc{labels} {usage}\n"
        f"vllm:generation_tokens_total{labels} {generated}\n"
    ).encode()
