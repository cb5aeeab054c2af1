"""What one event of a stream costs: splitting, and saying what it means.

    python bench/sse.py

prints CPU microseconds per event of about 200 bytes for the ways in which a stream arrives: an
event a read (what engines do), reads full of them (what a loaded reactor sees), small pieces, CRLF.
"""

from __future__ import annotations

import argparse
import sys
import time

from twisted_gateway.core.events import classify
from twisted_gateway.core.sse import EventSplitter

CHUNK = (
    b'data: {"id":"chatcmpl-a0cf93141d36089b","object":"chat.completion.chunk",'
    b'"created":1795976988,"model":"reasoning","choices":[{"index":0,"delta":{"content":" word"},'
    b'"logprobs":null,"finish_reason":null,"token_ids":null}]}\n\n'
)
ANTHROPIC = (
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"last"},'
    b'"index":0}\n\n'
)


def pieces(stream: bytes, size_bytes: int) -> list[bytes]:
    """Cut a stream into reads of one size."""
    return [stream[at : at + size_bytes] for at in range(0, len(stream), size_bytes)]


def measure(reads: list[bytes], events: int) -> float:
    """Feed all reads to one splitter, classify each event; microseconds per event."""
    splitter = EventSplitter()
    content = 0
    start = time.process_time()
    for read in reads:
        for event in splitter.feed(read).events:
            content += classify(event).content
    spent = time.process_time() - start
    if content != events:
        raise SystemExit(f"{content} content events came out of {events}")
    return spent / events * 1e6


def main() -> int:
    """Measure each way of arriving, best of five."""
    parser = argparse.ArgumentParser(description="microseconds per event of a stream")
    parser.add_argument("--events", type=int, default=20_000)
    count = parser.parse_args().events
    ways = {
        "an event a read": [CHUNK] * count,
        "an event a read, named (messages)": [ANTHROPIC] * count,
        "64 KiB reads": pieces(CHUNK * count, 65_536),
        "1,448-byte reads": pieces(CHUNK * count, 1_448),
        "64-byte reads": pieces(CHUNK * count, 64),
        "CRLF, an event a read": [CHUNK.replace(b"\n", b"\r\n")] * count,
    }
    for name, reads in ways.items():
        best = min(measure(reads, count) for _ in range(5))
        sys.stdout.write(f"{name:36} {best:6.2f} us an event\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
