"""Look at an installed wheel from an empty directory: `python tests/smoke.py`.

Everything the checkout holds must have been packaged, and twistd must know the plugin.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def modules() -> list[str]:
    """The dotted names of all modules that the checkout holds."""
    paths = (ROOT / "twisted_gateway").rglob("*.py")
    parts = [path.relative_to(ROOT).with_suffix("").parts for path in sorted(paths)]
    return [".".join(part[:-1] if part[-1] == "__init__" else part) for part in parts]


def missing() -> list[str]:
    """The modules that are not installed, or would be taken from the checkout."""
    checkout = ROOT / "twisted_gateway"
    origins = {name: origin(name) for name in modules()}
    return [
        name
        for name, path in origins.items()
        if path is None or Path(path).is_relative_to(checkout)
    ]


def origin(name: str) -> str | None:
    """The file that importing `name` would read; None where there is none."""
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        return None
    return spec.origin if spec else None


def twistd(*arguments: str, where: str) -> str:
    """What twistd prints when it is run from `where`."""
    command = [sys.executable, "-m", "twisted", *arguments]
    program = Path(sys.executable).with_name("twistd")
    if program.exists():
        command = [str(program), *arguments]
    done = subprocess.run(command, cwd=where, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        sys.exit(f"twistd {' '.join(arguments)}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def tool(name: str, where: str) -> str:
    """What `NAME --help` prints when it is run from `where`."""
    command = [str(Path(sys.executable).with_name(name)), "--help"]
    try:
        done = subprocess.run(command, cwd=where, capture_output=True, text=True, timeout=60)
    except FileNotFoundError:
        sys.exit(f"{command[0]} is not installed")
    return done.stdout


def loads_tracing(where: str) -> bool:
    """Whether the gateway loads OpenTelemetry, which costs a start its speed, with tracing off."""
    program = (
        "import sys, twisted_gateway.tap, twisted_gateway.service\n"
        "from twisted_gateway.telemetry import tracing\n"
        "tracing.start({}, None, None)\n"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    return subprocess.run([sys.executable, "-c", program], cwd=where, timeout=60).returncode != 0


def has_assets(where: str) -> bool:
    """Whether the status page's style and script are there."""
    program = "from twisted_gateway.web.status.assets import Assets; Assets()"
    return subprocess.run([sys.executable, "-c", program], cwd=where, timeout=60).returncode == 0


def main() -> None:
    """Check, and exit non-zero with a sentence where something is wrong."""
    absent = missing()
    if absent:
        sys.exit(f"not in the wheel (setup.cfg names packages one by one): {', '.join(absent)}")
    with tempfile.TemporaryDirectory() as empty:
        if "llm-gateway" not in twistd("--help", where=empty):
            sys.exit("twistd --help does not list llm-gateway")
        if loads_tracing(where=empty):
            sys.exit("the OpenTelemetry SDK is loaded although no exporter is configured")
        if not has_assets(where=empty):
            sys.exit("the status page's files are not in the wheel (setup.cfg, package_data)")
        if "--config" not in twistd("llm-gateway", "--help", where=empty):
            sys.exit("twistd llm-gateway --help does not name --config")
        for name, option in (("llm-gateway-load", "--compare"), ("llm-gateway-check", "--junit")):
            if option not in tool(name, where=empty):
                sys.exit(f"{name} --help does not name {option}")
    print(f"{len(modules())} modules installed; twistd lists llm-gateway")


if __name__ == "__main__":
    main()
