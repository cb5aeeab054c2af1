"""Run one simulated engine alone: `python -m twisted_gateway.demo --port 8000 --speed 20`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.internet.task import react

from twisted_gateway.demo.service import EMBEDDINGS, REASONING, start_engine


def options(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line.

    Raises:
        SystemExit: it cannot be understood, or it asked for help.
    """
    parser = argparse.ArgumentParser(
        prog="python -m twisted_gateway.demo",
        description="A simulated vLLM engine on loopback.",
    )
    kinds = ("reasoning", "embeddings")
    parser.add_argument("--kind", choices=kinds, default="reasoning", help="what it does")
    parser.add_argument("--model", help="the name it serves; default: its kind")
    parser.add_argument("--port", type=int, default=0, help="default: any that is free")
    parser.add_argument("--speed", type=_positive, default=1.0, help="how many times as fast")
    parser.add_argument("--max-num-seqs", type=int, help="sequences at once")
    parser.add_argument("--num-gpu-blocks", type=int, help="KV blocks of 16 tokens")
    parser.add_argument("--max-model-len", type=int, help="tokens of prompt and answer")
    chosen = parser.parse_args(arguments)
    profile = EMBEDDINGS if chosen.kind == "embeddings" else REASONING
    changes = {
        "max_num_seqs": chosen.max_num_seqs,
        "num_blocks": chosen.num_gpu_blocks,
        "max_model_tokens": chosen.max_model_len,
    }
    try:
        wanted = {name: value for name, value in changes.items() if value is not None}
        chosen.profile = replace(profile, **wanted)
    except ValueError as fault:
        parser.error(str(fault))
    return chosen


async def main(reactor: Any, chosen: argparse.Namespace) -> None:
    """Run the engine that `options` chose until the reactor stops.

    Raises:
        SystemExit: the port is taken.
    """
    try:
        engine = await start_engine(
            reactor,
            chosen.model or chosen.kind,
            chosen.profile,
            pools=chosen.kind == "embeddings",
            speed=chosen.speed,
            port=chosen.port,
        )
    except CannotListenError as fault:
        raise SystemExit(str(fault)) from fault
    sys.stdout.write(f"{engine.url}\n")
    sys.stdout.flush()
    await Deferred()


def _positive(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError("must be above 0")
    return value


if __name__ == "__main__":
    react(main, [options(sys.argv[1:])])
