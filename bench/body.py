"""What it costs to read the model out of a body: `python bench/body.py`.

Prints a row for each body: its size, the least CPU time of several readings, the most memory that
a reading took beyond the body, and, for comparison, `json.loads`. The last column is the target,
where there is one. The bodies are the same every time; it takes a few seconds.
"""

from __future__ import annotations

import contextlib
import json
import time
import tracemalloc
from collections.abc import Callable

from twisted_gateway.core.body import BodyError, read_json
from twisted_gateway.core.multipart import read_multipart

KIB = 1024
MIB = 1024 * KIB
PROSE = 'The quick brown fox jumps over the lazy dog.\n"Indeed," it said. '
JAPANESE = "\u6df7\u6c8c\u306e\u4e2d\u304b\u3089\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8 "


def chat(
    size: int, per_message: int, text: str = PROSE, *, ascii_only: bool = True, tools: bool = False
) -> bytes:
    """A chat of about `size` bytes, in messages of `per_message` characters."""
    message = {"role": "user", "content": (text * (per_message // len(text) + 1))[:per_message]}
    each = len(json.dumps(message, ensure_ascii=ascii_only).encode()) + 2
    tree: dict[str, object] = {"messages": [message] * max(1, size // each)}
    tree |= {"model": "reasoning", "stream": True, "max_tokens": 512}
    if tools:
        schema = {"type": "object", "properties": {"model": {"type": "string"}}}
        tree["tools"] = [{"type": "function", "function": {"name": "task", "parameters": schema}}]
    return json.dumps(tree, ensure_ascii=ascii_only).encode()


def hostile(unit: bytes, *, head: bytes = b'{"model":"m","x":[') -> bytes:
    """A MiB of one thing over and over."""
    return head + unit * (MIB // len(unit)) + b"0]}"


# Nested before it comes at the top, so that levels must be counted.
NESTED = b'{"y":{"model":1},"model":"m","x":['
ESCAPED = b'{"\\u0061":{"model":1},"model":"m","x":['

JSON: list[tuple[str, bytes, float]] = [
    ("chat 1 kB", chat(1000, 900), 0.010),
    ("chat 256 kB", chat(256 * KIB, 4000), 1),
    ("chat 256 kB, tool with a `model`", chat(256 * KIB, 4000, tools=True), 1),
    ("chat 1 MiB, long messages", chat(MIB, 100_000), 4),
    ("chat 1 MiB, short messages", chat(MIB, 150), 4),
    ("chat 1 MiB, tool with a `model`", chat(MIB, 4000, tools=True), 4),
    ("chat 1 MiB, Japanese", chat(MIB, 4000, JAPANESE, ascii_only=False), 4),
    ("chat 1 MiB, Japanese as escapes", chat(MIB, 4000, JAPANESE), 4),
    ("brackets", hostile(b"[],"), 50),
    ("strings", hostile(b'"",'), 50),
    ("backslashes", hostile(b"\\\\", head=b'{"model":"m","x":"')[:-3] + b'"}', 50),
    ("quotes", hostile(b'\\"', head=b'{"model":"m","x":"')[:-3] + b'"}', 50),
    ("keys", hostile(b'"":0,', head=b'{"model":"m",')[:-3] + b'"":0}', 50),
    ("half surrogates", hostile(b"\\ud800", head=b'{"model":"m","x":"')[:-3] + b'"}', 50),
    ("levels: brackets", hostile(b"[0,[[]]],", head=NESTED), 50),
    ("levels: strings", hostile(b'"",', head=NESTED), 50),
    ("levels: brackets in strings", hostile(b'["["],', head=NESTED), 50),
    ("levels: models", hostile(b'{"model":0},', head=NESTED), 50),
    ("levels: models apart from colons", hostile(b'{"model" :0},', head=NESTED), 50),
    ("levels: models, escaped", hostile(b'{"m\\u006fdel":0},', head=ESCAPED), 50),
    ("levels: quotes, escaped", hostile(b'"\\"",', head=ESCAPED), 50),
    ("deep", b'{"model":"m","x":' + b"[" * MIB, 50),
]


def form(*, parts: int, content: bytes, boundary: bytes) -> bytes:
    """A form with a model at its end."""
    line = b"--" + boundary + b"\r\nContent-Disposition: form-data; name="
    one = line + b'"file"; filename="a.wav"\r\n\r\n' + content + b"\r\n"
    return one * parts + line + b'"model"\r\n\r\nm\r\n--' + boundary + b"--\r\n"


FORMS: list[tuple[str, bytes, bytes, float]] = [
    ("form, a file of 1 MiB", form(parts=1, content=bytes(MIB), boundary=b"B" * 40), b"B" * 40, 4),
    ("form, 999 parts", form(parts=999, content=b"x" * KIB, boundary=b"B"), b"B", 50),
    ("form, hyphens", form(parts=1, content=b"-" * MIB, boundary=b"-" * 70), b"-" * 70, 50),
    ("form, line breaks", form(parts=1, content=b"\r\n-" * (MIB // 3), boundary=b"B"), b"B", 50),
]


def cost(read: Callable[[], object], size: int) -> tuple[float, int]:
    """The least milliseconds of CPU and the most bytes that a reading takes."""

    def once() -> None:
        with contextlib.suppress(BodyError, RecursionError):
            read()

    rounds, times = (200, 5) if size < 10_000 else (1, 7)
    least = float("inf")
    for _ in range(times):
        start = time.process_time()
        for _ in range(rounds):
            once()
        least = min(least, (time.process_time() - start) / rounds)
    tracemalloc.start()
    once()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return least * 1000, peak


def row(name: str, body: bytes, read: Callable[[], object], target: float, other: str) -> None:
    """Print one."""
    spent, peak = cost(read, len(body))
    late = "" if spent <= target else "  MISSED"
    print(f"{name:36}{len(body):>9}{spent:>10.3f}{peak / MIB:>8.2f}{other:>10}{target:>8}{late}")


def main() -> None:
    """Print the table."""
    print(f"{'body':36}{'bytes':>9}{'ms':>10}{'MiB':>8}{'json ms':>10}{'target':>8}")
    for name, body, target in JSON:
        loads = cost(lambda body=body: json.loads(body), len(body))[0]  # type: ignore[misc]
        row(name, body, lambda body=body: read_json(body), target, f"{loads:.3f}")  # type: ignore[misc]
    for name, body, boundary, target in FORMS:
        header = b"multipart/form-data; boundary=" + boundary
        row(
            name,
            body,
            lambda body=body, header=header: read_multipart(body, header),  # type: ignore[misc]
            target,
            "",
        )


if __name__ == "__main__":
    main()
