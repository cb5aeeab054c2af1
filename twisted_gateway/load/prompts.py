"""What the load test says: text of a given length that is the same every time.

The words have three letters: with a space before each, most tokenizers make one token of each,
and it has the four bytes by which the gateway and the simulated engines reckon a token.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec

from twisted_gateway.load.arrivals import Arrival

_WORDS = (
    *("act", "add", "age", "aid", "aim", "air", "all", "and", "any", "arm", "art", "ask", "bad"),
    *("bag", "bar", "bed", "big", "bit", "box", "boy", "bus", "but", "buy", "can", "car", "cat"),
    *("cup", "cut", "day", "did", "dog", "dry", "due", "ear", "eat", "egg", "end", "eye", "far"),
    *("few", "fit", "fly", "for", "fox", "fun", "get", "got", "had", "has", "hat", "her", "him"),
    *("his", "hot", "how", "ice", "job", "key", "law", "lay", "leg", "let", "lie", "low"),
)
# One for each byte, so that random bytes become words at one look-up each.
_BY_BYTE = [f" {_WORDS[byte % len(_WORDS)]}" for byte in range(256)]


def prompt(arrival: Arrival, number: int, seed: int) -> str:
    """Make the prompt of a client: the prefix of its group, then what is its own.

    Args:
        arrival: says how long both are.
        number: its place in the workload.
        seed: another seed, other words.
    """
    shared = min(arrival.prefix_tokens, arrival.prompt_tokens) if arrival.group else 0
    own = arrival.prompt_tokens - shared
    return _text(f"{seed}/group/{arrival.group}", shared) + _text(f"{seed}/{number}", own)


def body(arrival: Arrival, number: int, seed: int, model: str, *, exact: bool) -> bytes:
    """Make the body of a client's request to `/v1/chat/completions`.

    Args:
        arrival: what it asks for.
        number: its place in the workload.
        seed: of the words.
        model: which it asks.
        exact: have the answer be exactly as long as the workload says: `max_tokens` is that length
            and `ignore_eos`, which vLLM and SGLang know, keeps the engine from ending before. Else
            `max_tokens` is the workload's own, and the engine ends where it likes.
    """
    tree: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": prompt(arrival, number, seed)}],
        "max_tokens": arrival.answer_tokens if exact else arrival.max_tokens,
        "stream": arrival.stream,
    }
    if exact:
        tree["ignore_eos"] = True
    if arrival.stream:
        tree["stream_options"] = {"include_usage": True}
    return msgspec.json.encode(tree)


def _text(seed: str, tokens: int) -> str:
    return "".join(map(_BY_BYTE.__getitem__, random.Random(seed).randbytes(tokens)))
