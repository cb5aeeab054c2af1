"""The command line of `llm-gateway-check`: options, and the credentials that they lead to."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from twisted_gateway import __version__
from twisted_gateway.check import values
from twisted_gateway.check.models import KINDS
from twisted_gateway.check.services import BODIES
from twisted_gateway.console.arguments import Parser
from twisted_gateway.console.values import number

PROGRAM = "llm-gateway-check"
FAILED = 1
"""The exit status where a check has failed."""
USAGE = 2
"""The exit status where the command line or a file is wrong."""
NOT_READY = 3
"""The exit status where the gateway did not become ready in time."""
MAX_SECONDS = 3600.0

_DESCRIPTION = """\
Checks a live gateway: that it is ready, what it serves and what it refuses, each model by a chat,
a stream, an embedding or a ranking, each configured service by something harmless. The object that
it puts into a store it removes again; the text that it gives a memory service stays, for there is
no way to take it back (--skip memory-ingest), as does a notification (only with --notify). At the
end: a table, and on request JUnit XML for a pipeline (docs/check.md).
"""
_EPILOGUE = """\
examples:
  llm-gateway-check http://127.0.0.1:8080
  llm-gateway-check https://api.example.com --token-file token --bucket checks --junit check.xml
  llm-gateway-check http://llm-gateway:8080 --admin http://llm-gateway-admin:9090 --models reasoning
  llm-gateway-check URL --accept 400,404 --accept chat=503 --skip memory-ingest
      against an older release, a busy engine, a memory that is to stay as it is

What is named by --models and --services must be checked: what cannot be (no token, no bucket) has
failed. What is not named is then left out. Without these options all that is listed is checked;
what cannot be is skipped, and the table says why.

exit status: 0 nothing failed, 1 something did, 2 the command line or a file is wrong, or the report
cannot be written, 3 the gateway is not ready in time, 130 Ctrl-C and 143 SIGTERM ended it early
(an object that it had put is removed; a second signal ends it at once).
"""


def options(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line.

    Raises:
        SystemExit: it cannot be understood, or it asked for help.
    """
    parser = _parser()
    chosen = parser.parse_args(arguments)
    if chosen.list:
        return chosen
    for wrong, message in (
        (chosen.url is None, "name the gateway's URL"),
        (chosen.admin == chosen.url, "--admin is where adminListen is, and not the URL itself"),
        (
            (chosen.client_id is None)
            != (chosen.client_secret_file is None and chosen.client_secret_env is None),
            "--client-id goes with --client-secret-file or --client-secret-env",
        ),
        (
            chosen.client_id is not None and bool(chosen.token_file or chosen.token_env),
            "a token is given, or got by --client-id: not both",
        ),
    ):
        if wrong:
            parser.error(message)
    return chosen


def _parser() -> Parser:
    parser = Parser(prog=PROGRAM, description=_DESCRIPTION, epilog=_EPILOGUE, fault_status=USAGE)
    add = parser.add_argument
    add("url", nargs="?", type=values.url, metavar="URL", help="where clients reach the gateway")
    add("--admin", type=values.url, metavar="URL", help="where adminListen is, if it is set")
    seconds = number(0, MAX_SECONDS)
    add(
        "--wait",
        type=seconds,
        default=120.0,
        metavar="S",
        help="how long it may take to become ready (default 120)",
    )
    add(
        "--timeout",
        type=number(1, MAX_SECONDS),
        default=120.0,
        metavar="S",
        help="bound on each request, the time that it is parked included (default 120)",
    )
    add(
        "--deadline",
        type=number(1, MAX_SECONDS),
        default=900.0,
        metavar="S",
        help="bound on all of it: the check that is under way then has failed (default 900)",
    )
    _add_credentials(parser)
    add(
        "--models",
        type=values.models,
        metavar="NAME[=KIND],…",
        help=f"check these models; KIND, one of {', '.join(KINDS)}, is found out where it is left "
        "out; '' for none (default: all that are listed)",
    )
    add(
        "--services",
        type=values.services,
        metavar="NAME,…",
        help="check these services; '' for none (default: all that are listed)",
    )
    add("--bucket", type=values.name, metavar="NAME", help="of s3, to be written to")
    add(
        "--namespace",
        type=values.name,
        default="default",
        metavar="NAME",
        help="of workflows (default: default)",
    )
    add("--notify", action="store_true", help="send a notification: it rings telephones")
    add(
        "--body",
        action="append",
        type=values.body,
        default=[],
        metavar="CHECK=FILE",
        help=f"what {' and '.join(BODIES)} post, as JSON",
    )
    add(
        "--accept",
        action="append",
        type=values.accept,
        default=[],
        metavar="[CHECK=]CODES",
        help="statuses that are accepted beside the expected one: without CHECK (400 to 599) in "
        "those checks that see a refusal; may be given again",
    )
    add(
        "--skip",
        action="append",
        type=values.skip,
        default=[],
        metavar="CHECK",
        help="do not make this check; may be given again",
    )
    add("--junit", type=Path, metavar="FILE", help="write JUnit XML; '-': behind the table")
    add("--list", action="store_true", help="list the checks, and exit")
    add("--version", action="version", version=f"%(prog)s {__version__}")
    return parser


def _add_credentials(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "credentials", "from files and variables alone: command lines are seen by everybody"
    )
    add = group.add_argument
    token = group.add_mutually_exclusive_group().add_argument
    token("--token-file", type=Path, metavar="FILE", help="has a token that the gateway accepts")
    token("--token-env", metavar="NAME", help="the variable that has one")
    add(
        "--token-to-models",
        action="store_true",
        help="send it to a model that asks for one also where /status.json does not say that the "
        "gateway keeps it: the engine may then see it",
    )
    add("--client-id", type=values.name, metavar="ID", help="get a token by /v1/auth/token")
    secret = group.add_mutually_exclusive_group().add_argument
    secret("--client-secret-file", type=Path, metavar="FILE", help="has the client's secret")
    secret("--client-secret-env", metavar="NAME", help="the variable that has it")
    add(
        "--token-parameter",
        action="append",
        type=values.parameter,
        default=[],
        metavar="NAME=VALUE",
        help="a further parameter of the token request, such as scope=…; may be given again",
    )
    add(
        "--api-key-env",
        metavar="NAME",
        help="the variable that has an API key of the engines', where the gateway has none",
    )
