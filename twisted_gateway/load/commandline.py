"""The command line of `llm-gateway-load`: options, the workload that they name, the way to it."""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from twisted_gateway import __version__
from twisted_gateway.config.faults import Wrong
from twisted_gateway.config.forms import base_url, credential
from twisted_gateway.load.arrivals import Arrival
from twisted_gateway.load.own import read_file
from twisted_gateway.load.run import Wire
from twisted_gateway.load.workloads import NAMES, workload
from twisted_gateway.upstream.errors import InvalidRequest
from twisted_gateway.upstream.request_head import parse_address

USAGE = 1
"""The exit status where the command line or a file is wrong."""
MAX_SPEED = 1000.0

_DESCRIPTION = """\
Replays a workload against an OpenAI-style address and says how its clients fared. A workload is
one of W1 to W6, or a YAML file of your own (docs/load.md). At the end: a table, and on request a
JSON file and an HTML page with plots that needs nothing beside itself.
"""
_EPILOGUE = """\
examples:
  llm-gateway-load W1 --to http://127.0.0.1:8080 --model reasoning --html w1.html
  llm-gateway-load W1 --to http://127.0.0.1:8080 --model reasoning --speed 20
      against `twistd -n llm-gateway --demo --demo-speed 20`
  llm-gateway-load evening.yaml --to http://a:8080 --to http://b:8080 --model reasoning
  llm-gateway-load --compare before.json after.json --html both.html

exit status: 0 it ran, 1 something in the command line or a file is wrong, 2 the address cannot be
reached. Ctrl-C ends a run early, with the report of what was done; a second one at once.
"""


class _Parser(argparse.ArgumentParser):
    """Exits with 1 where argparse would with 2, which means something else here."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and exit."""
        self.print_usage(sys.stderr)
        self.exit(USAGE, f"{self.prog}: {message}\n")


def options(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line.

    Raises:
        SystemExit: it cannot be understood, or it asked for help.
    """
    parser = _parser()
    chosen = parser.parse_args(arguments)
    if chosen.compare:
        if chosen.workload is not None:
            parser.error("--compare takes two JSON files and no workload")
        return chosen
    if chosen.workload is None:
        parser.error(f"name a workload: {', '.join(NAMES)} or a YAML file")
    for name in ("to", "model"):
        if not getattr(chosen, name):
            parser.error(f"--{name} is needed")
    if chosen.options and chosen.workload not in NAMES:
        parser.error(f"--set is for {', '.join(NAMES)}; a YAML file says it all itself")
    return chosen


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="llm-gateway-load",
        description=_DESCRIPTION,
        epilog=_EPILOGUE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("workload", nargs="?", help=f"{', '.join(NAMES)}, or a YAML file")
    add(
        "--to",
        action="append",
        type=_url,
        metavar="URL",
        help="where to ask; may be given again: requests take turns",
    )
    add("--model", help="which model to ask for")
    add("--direct-to", type=_url, metavar="URL", help="the engine, for clients that go past")
    add(
        "--speed",
        type=_positive(MAX_SPEED),
        default=1.0,
        metavar="X",
        help="let time run X times as fast, for engines that do too; reports stay in model time",
    )
    add("--seed", type=int, default=1, help="of all that is drawn at random (default 1)")
    add(
        "--set",
        dest="options",
        action="append",
        type=_option,
        default=[],
        metavar="NAME=NUMBER",
        help="change a number of W1 to W6, such as patience_seconds=300; may be given again",
    )
    add("--limit", type=_whole, metavar="N", help="the first N clients only")
    add(
        "--duration",
        type=_positive(1e9),
        metavar="SECONDS",
        help="only clients that come within so many model seconds",
    )
    add(
        "--max-tokens-as-answer",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="send max_tokens as the answer's length, with vLLM's ignore_eos, so that answers are "
        "as long as the workload says; without it engines end where they like (needed for APIs "
        "that know no ignore_eos)",
    )
    add(
        "--retry-after",
        choices=("model", "wall"),
        default="model",
        help="what the seconds of a refusal's Retry-After are when --speed is not 1",
    )
    add("--tenant-header", type=_header, default="X-Tenant", metavar="NAME", help="'' for none")
    add("--api-key-env", metavar="NAME", help="the environment variable that holds the API key")
    add(
        "--status",
        action="append",
        type=_page,
        metavar="URL",
        help="a gateway's /status.json, for what it has parked; may be given again; "
        "default: that of each --to; 'none' for none",
    )
    add(
        "--engine-state",
        type=_page,
        metavar="URL",
        help="a simulated engine's /demo/state, for the truth",
    )
    add("--json", type=Path, metavar="FILE", help="keep the result, for --compare")
    add("--html", type=Path, metavar="FILE", help="write the report")
    add("--no-progress", action="store_true", help="say nothing while it runs")
    add("--compare", nargs=2, type=Path, metavar=("A.json", "B.json"), help="compare two results")
    add("--version", action="version", version=f"%(prog)s {__version__}")
    return parser


def _positive(most: float) -> Any:
    def number(text: str) -> float:
        value = float(text)
        if not 0 < value <= most:
            raise argparse.ArgumentTypeError(f"expected a number above 0, at most {most:g}")
        return value

    return number


def _whole(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("expected a whole number, 1 or more")
    return value


def _url(text: str) -> str:
    bare = text.rstrip("/")
    try:
        return base_url(bare.removesuffix("/v1"))
    except Wrong as fault:
        # The text may hold a password, which is not repeated.
        raise argparse.ArgumentTypeError(str(fault).replace("apiKey", "--api-key-env")) from None


def _page(text: str) -> str:
    if text == "none":
        return text
    try:
        parse_address(text.encode("ascii"))
    except (InvalidRequest, UnicodeEncodeError):
        raise argparse.ArgumentTypeError("expected a URL such as http://host:8080/page") from None
    return text


def _option(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        return name, float(value)
    except ValueError:
        raise argparse.ArgumentTypeError("expected NAME=NUMBER") from None


def _header(text: str) -> str:
    if text and not all(char.isascii() and (char.isalnum() or char in "-_") for char in text):
        raise argparse.ArgumentTypeError("expected the name of a header")
    return text


def arrivals(chosen: argparse.Namespace, environ: Mapping[str, str]) -> list[Arrival]:
    """Draw the workload.

    Raises:
        ConfigError: its file is faulty.
        Wrong: it cannot be drawn so.
    """
    rng = random.Random(chosen.seed)
    if chosen.workload in NAMES:
        try:
            drawn = workload(chosen.workload, rng, **dict(chosen.options))
        except TypeError:
            named = ", ".join(name for name, _ in chosen.options)
            raise Wrong(f"{chosen.workload} has no such option: {named} (--set)") from None
        except (ValueError, ArithmeticError) as fault:
            raise Wrong(f"{chosen.workload} cannot be made so (--set): {fault}") from None
    elif Path(chosen.workload).suffix in (".yaml", ".yml"):
        drawn = read_file(Path(chosen.workload), rng, environ)
    else:
        raise Wrong(
            f"{chosen.workload}: expected one of {', '.join(NAMES)}, or a file named *.yaml"
        )
    if chosen.duration is not None:
        drawn = [one for one in drawn if one.at <= chosen.duration]
    drawn = drawn[: chosen.limit]
    if not drawn:
        raise Wrong(f"{chosen.workload}: expected at least one client, and there is none")
    return drawn


def wire(chosen: argparse.Namespace, environ: Mapping[str, str]) -> Wire:
    """Say where requests go.

    Raises:
        Wrong: there is no key where one is expected.
    """
    key = ""
    if chosen.api_key_env is not None:
        name = chosen.api_key_env
        try:
            key = credential(environ.get(name, ""))
        except Wrong:
            raise Wrong(f"{name}: expected an API key of visible ASCII characters") from None
        if not key:
            raise Wrong(f"{name}: expected an API key in this environment variable")
    return Wire(
        to=tuple(chosen.to),
        model=chosen.model,
        seed=chosen.seed,
        direct_to=chosen.direct_to,
        tenant_header=chosen.tenant_header,
        api_key=key,
        exact=chosen.max_tokens_as_answer,
        retry_after_is_wall=chosen.retry_after == "wall",
    )
