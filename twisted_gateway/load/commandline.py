"""The command line of `llm-gateway-load`: options, the workload that they name, the way to it."""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from twisted_gateway import __version__
from twisted_gateway.config.faults import Wrong
from twisted_gateway.config.forms import credential
from twisted_gateway.console.arguments import Parser, see_writable
from twisted_gateway.console.values import model, number, whole
from twisted_gateway.load import values
from twisted_gateway.load.arrivals import MAX_ARRIVALS, MAX_SECONDS, Arrival
from twisted_gateway.load.own import read_file
from twisted_gateway.load.run import Wire
from twisted_gateway.load.workloads import NAMES, workload

PROGRAM = "llm-gateway-load"
USAGE = 1
"""The exit status where the command line or a file is wrong."""
UNREACHABLE = 2
"""The exit status where nobody listens at an address."""
UNSERVED = 3
"""The exit status where an address has no such model, or refuses whatever it is asked."""
# A slower one would sleep for longer than a poll can; a faster one measures the tool.
MIN_SPEED, MAX_SPEED = 0.01, 1000.0
MAX_SEED = 2**63 - 1

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

exit status: 0 it ran to its end, 1 something in the command line or a file is wrong, 2 an address
cannot be reached, 3 it does not serve that model, or refuses whatever it is asked, 130 Ctrl-C ended
it early, with the report of what was done; a second one ends it at once.
"""


def options(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line.

    Raises:
        SystemExit: it cannot be understood, or it asked for help.
    """
    parser = _parser()
    chosen = parser.parse_args(arguments)
    for fault in _comparing(chosen) if chosen.compare else _playing(chosen):
        parser.error(fault)
    return chosen


def _comparing(chosen: argparse.Namespace) -> Iterator[str]:
    """Say what is wrong with the options of a comparison."""
    if chosen.workload is not None:
        yield "--compare takes two JSON files and no workload"
    if chosen.json is not None:
        yield "--compare writes no --json; with --html it writes a page"
    if chosen.html in chosen.compare:
        yield f"--html would overwrite {chosen.html}, which is to be compared"


def _playing(chosen: argparse.Namespace) -> Iterator[str]:
    """Say what is wrong with the options of a run."""
    if chosen.workload is None:
        yield f"name a workload: {', '.join(NAMES)} or a YAML file"
    for name in ("to", "model"):
        if not getattr(chosen, name):
            yield f"--{name} is needed"
    if chosen.options and chosen.workload not in NAMES:
        yield f"--set is for {', '.join(NAMES)}; a YAML file says it all itself"
    if chosen.json is not None and chosen.json == chosen.html:
        yield "--json and --html name the same file"
    if Path(chosen.workload) in (chosen.json, chosen.html):
        yield f"{chosen.workload} is the workload, and would be overwritten"


def _parser() -> Parser:
    # argparse would exit with 2, which means something else here.
    parser = Parser(prog=PROGRAM, description=_DESCRIPTION, epilog=_EPILOGUE, fault_status=USAGE)
    add = parser.add_argument
    add("workload", nargs="?", help=f"{', '.join(NAMES)}, or a YAML file")
    add(
        "--to",
        action="append",
        type=values.url,
        metavar="URL",
        help="where to ask; may be given again: requests take turns",
    )
    add("--model", type=model, metavar="NAME", help="which model to ask for")
    add("--unlisted", action="store_true", help="ask for it though /v1/models does not list it")
    add("--direct-to", type=values.url, metavar="URL", help="the engine, for clients that go past")
    add(
        "--speed",
        type=number(MIN_SPEED, MAX_SPEED),
        default=1.0,
        metavar="X",
        help="let time run X times as fast, for engines that do too; reports stay in model time",
    )
    add(
        "--seed",
        type=whole(0, MAX_SEED),
        default=1,
        metavar="N",
        help="of all that is drawn at random (default 1)",
    )
    add(
        "--set",
        dest="options",
        action="append",
        type=values.option,
        default=[],
        metavar="NAME=NUMBER",
        help="change a number of W1 to W6, such as patience_seconds=300; may be given again",
    )
    add("--limit", type=whole(1, MAX_ARRIVALS), metavar="N", help="the first N clients only")
    add(
        "--duration",
        type=number(0, MAX_SECONDS),
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
    add(
        "--tenant-header",
        type=values.header,
        default="X-Tenant",
        metavar="NAME",
        help="'' for none",
    )
    add("--api-key-env", metavar="NAME", help="the environment variable that holds the API key")
    add(
        "--status",
        action="append",
        type=values.page,
        metavar="URL",
        help="a gateway's /status.json, for what it has parked; may be given again; "
        "default: that of each --to; 'none' for none",
    )
    add(
        "--engine-state",
        type=values.page,
        metavar="URL",
        help="the /demo/state of a simulated engine, for its own account",
    )
    add("--json", type=Path, metavar="FILE", help="keep the result, for --compare")
    add("--html", type=Path, metavar="FILE", help="write the report")
    add("--no-progress", action="store_true", help="say nothing while it runs")
    add("--compare", nargs=2, type=Path, metavar=("A.json", "B.json"), help="compare two results")
    add("--version", action="version", version=f"%(prog)s {__version__}")
    return parser


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
        except ValueError as fault:
            raise Wrong(f"--set: {fault}") from None
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


def see_files(chosen: argparse.Namespace) -> None:
    """See that the files can be written, before there is anything that could be lost.

    Raises:
        Wrong: one cannot.
    """
    for path in (chosen.json, chosen.html):
        if path is not None:
            see_writable(path)


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
