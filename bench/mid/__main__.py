"""Start the engine and the gateway, play both scenes in both ways, and say what came of it."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.mid import report
from bench.mid.drawing import picture
from bench.mid.report import DIRECT, WAYS, Measurement, Rates, Run
from bench.mid.scene import (
    BYTES_PER_TOKEN,
    LONG_TOKENS,
    SCENES,
    Failed,
    ask,
    finish,
    play,
    text,
)
from bench.pages import spliced
from tests.integration.cache import Unavailable
from tests.integration.engines import MAX_NUM_SEQS, MODEL, Engine, real_slow_engine
from tests.integration.gateway import Gateway
from tests.integration.processes import NotReady, free_port, wait_until
from tests.integration.vllm_cpu import VERSION
from twisted_gateway.console.values import whole

ENGINE = (
    f"vLLM {VERSION} on the CPU, `--max-num-seqs {MAX_NUM_SEQS}`, with a Llama of 210 million"
    " random parameters in float32"
)
ALONE_TOKENS = 2500
ALONE_ANSWER_TOKENS = 48
LONG_PREFILL_SECONDS = 15.0
START_SECONDS = 900.0
SETTLE_SECONDS = 120.0
BEGIN, END = "<!-- figures: python -m bench mid -->", "<!-- end of figures -->"


def main(arguments: Sequence[str]) -> int:
    """Measure; returns the exit status."""
    options = _options(arguments)
    with tempfile.TemporaryDirectory(prefix="bench-mid-") as directory:
        try:
            measurement = measure(options, Path(directory))
        except (Unavailable, NotReady, Failed, AssertionError) as fault:
            print(fault, file=sys.stderr)
            return 1
    print(report.page(measurement))
    if options.out is not None:
        _write(measurement, options.out)
    return 0


def measure(options: argparse.Namespace, directory: Path) -> Measurement:
    """Start everything, play everything, end everything.

    Raises:
        Unavailable: there is no vLLM here.
        NotReady: engine or gateway do not start.
        Failed, AssertionError: a request was not answered.
    """
    engine = real_slow_engine(free_port(), directory)
    with _started(engine) as start_seconds:
        _say(f"the engine has started in {start_seconds:.0f} s")
        rates = alone(engine)
        _say(f"alone: prefill {rates.prefill:.0f}, decode {rates.decode:.1f} tokens a second")
        measurement = Measurement(
            engine=ENGINE,
            cores=os.cpu_count() or 1,
            start_seconds=start_seconds,
            rates=rates,
            admission=admission(rates),
        )
        gateway = Gateway("gateway", configuration(engine, measurement), directory)
        try:
            gateway.start()
            for number in range(options.repetitions):
                for scene in options.scenes:
                    for way in WAYS:
                        measurement.runs.append(_run(scene, way, number, engine, gateway))
                _keep(measurement, options.json)
        finally:
            gateway.process.stop()
    return measurement


def alone(engine: Engine) -> Rates:
    """Measure how fast a warm engine is with one request alone."""
    finish(ask(engine.url, 50, 4, "warm"))
    call = finish(ask(engine.url, ALONE_TOKENS, ALONE_ANSWER_TOKENS, "alone"))
    first, last = call.contents[0], call.lines[-1][0]
    prompt_tokens = len(text(ALONE_TOKENS, "alone")) / BYTES_PER_TOKEN
    return Rates(prefill=prompt_tokens / first, decode=(ALONE_ANSWER_TOKENS - 1) / (last - first))


def admission(rates: Rates) -> dict[str, Any]:
    """How the gateway is configured, beside the defaults."""
    half = LONG_TOKENS / rates.prefill / 2
    return {
        "maxInflight": MAX_NUM_SEQS,
        "prefillTokensPerSecond": round(rates.prefill),
        "decodeTokensPerSecond": round(rates.decode, 1),
        # Whatever the machine, the long ones are to count as long.
        "longPrefillSeconds": round(min(LONG_PREFILL_SECONDS, half), 1),
    }


def configuration(engine: Engine, measurement: Measurement) -> dict[str, Any]:
    """The gateway's configuration."""
    chat = {"upstream": engine.url, "engine": "vllm", "admission": measurement.admission}
    return {"models": {MODEL: chat}, "drainSeconds": 1}


def _run(name: str, way: str, repetition: int, engine: Engine, gateway: Gateway) -> Run:
    """Play a scene once, when nothing of the run before is left."""
    engine.wait_idle(SETTLE_SECONDS)
    wait_until(lambda: gateway.status()["in_engine"] == 0, SETTLE_SECONDS, "an idle gateway")
    load, _, _ = os.getloadavg()
    url = engine.url if way == DIRECT else gateway.url
    words = f"{name}/{way}/{repetition}"
    answers = play(SCENES[name], url, lengths=repetition, words=words)
    run = Run(scene=name, way=way, repetition=repetition, load=load, answers=answers)
    told = ", ".join(f"{one.kind} {one.completion:.1f}" for one in answers)
    _say(f"{words} at load {load:.1f}: {told}")
    return run


@contextmanager
def _started(engine: Engine) -> Iterator[float]:
    """Start it and end it; gives the seconds that it took to start."""
    began = time.monotonic()
    engine.start()
    try:
        engine.wait_ready(START_SECONDS)
        yield time.monotonic() - began
    finally:
        engine.process.stop()


def _keep(measurement: Measurement, file: Path | None) -> None:
    """Write what has been measured so far."""
    if file is not None:
        told = json.dumps(report.as_json(measurement), indent=1)
        file.write_text(f"{told}\n", encoding="utf-8")


def _write(measurement: Measurement, out: Path) -> None:
    """Put figures and picture into the directory, and leave what else the page says."""
    document = out / "real-engine.md"
    try:
        told = spliced(document.read_text(encoding="utf-8"), BEGIN, END, report.page(measurement))
    except ValueError as fault:
        raise SystemExit(f"{document}: {fault}") from None
    document.write_text(told, encoding="utf-8")
    (out / "real-engine.svg").write_text(picture(measurement), encoding="utf-8")


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench mid",
        description="Short prompts beside long ones on a real vLLM, with the gateway and without.",
    )
    add = parser.add_argument
    add(
        "--repetitions",
        type=whole(1, 1000),
        default=3,
        help="of each scene each way (default 3)",
    )
    add("--scenes", nargs="+", choices=SCENES, default=list(SCENES), help="default: both")
    add("--json", type=Path, metavar="FILE", help="write all that was measured")
    add("--out", type=Path, metavar="DIRECTORY", help="real-engine.md and .svg there, as in docs/")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
