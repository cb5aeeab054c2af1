"""`llm-gateway-load`: play a workload, and report; or compare two results."""

from __future__ import annotations

import argparse
import os
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import react

from twisted_gateway import __version__
from twisted_gateway.config.faults import ConfigError, Wrong
from twisted_gateway.console.console import Console
from twisted_gateway.console.interruption import SIGNALLED, Interruption
from twisted_gateway.load import commandline, compare, report, table
from twisted_gateway.load.advice import advise, peak
from twisted_gateway.load.arrivals import Arrival
from twisted_gateway.load.figures import summarize
from twisted_gateway.load.gauges import Gauges
from twisted_gateway.load.look import Looker
from twisted_gateway.load.preflight import NoSuchModel, Unreachable, preflight
from twisted_gateway.load.progress import Progress
from twisted_gateway.load.results import Result, Settings, Unreadable, as_json, read
from twisted_gateway.load.run import Run, Wire
from twisted_gateway.upstream.agent import UpstreamAgent

CONNECT_SECONDS = 10.0
STATUS_SECONDS = 2.0
MAX_IDLE_CONNECTIONS = 1024
MAX_FILES = 65_536
SPARE_FILES = 50
"""That the process needs beside those of its clients' connections."""


def main() -> None:
    """Run the program; does not return.

    Raises:
        SystemExit: with the exit status.
    """
    console = Console(commandline.PROGRAM)
    try:
        chosen = commandline.options(sys.argv[1:])
        if chosen.compare:
            raise SystemExit(_compare(console, chosen))
        clients = commandline.arrivals(chosen, os.environ)
        wire = commandline.wire(chosen, os.environ)
        commandline.see_files(chosen)
    except (ConfigError, Unreadable, Wrong) as fault:
        console.fail(str(fault), commandline.USAGE)
    except KeyboardInterrupt:
        raise SystemExit(SIGNALLED + signal.SIGINT) from None
    _allow_many_connections(console, clients)
    react(_play, [console, chosen, clients, wire])


async def _play(
    reactor: Any,
    console: Console,
    chosen: argparse.Namespace,
    arrivals: Sequence[Arrival],
    wire: Wire,
) -> None:
    """Run the workload and report.

    Raises:
        SystemExit: with the exit status, if that is not 0.
    """
    interruption = Interruption(reactor)
    agent = UpstreamAgent(
        reactor, connect_seconds=CONNECT_SECONDS, max_idle_per_host=MAX_IDLE_CONNECTIONS
    )
    looker = Looker(agent, reactor, api_key=wire.api_key)
    await _look_first(looker, console, chosen, interruption)
    run = Run(reactor, agent, arrivals, wire)
    gauges = Gauges(
        reactor,
        Looker(agent, reactor, seconds=STATUS_SECONDS),
        run,
        chosen.model,
        status=_status(chosen),
        state=None if chosen.engine_state == "none" else chosen.engine_state,
    )
    progress = Progress(reactor, run, gauges, sys.stderr)
    started = datetime.now(UTC).isoformat(" ", "seconds")
    interruption.ends = run.stop
    over = run.start(chosen.speed)
    gauges.start()
    if not chosen.no_progress:
        progress.start()
    try:
        await over
    finally:
        gauges.stop()
        progress.stop()
    # A signal that comes later finds a run that is whole.
    took, ended_by = run.pace.now(), interruption.status
    await agent.close()
    if run.unserved is not None:
        console.fail(run.unserved, commandline.UNSERVED)
    result = Result(
        settings=_settings(chosen, wire, started),
        requests=run.requests,
        took=took,
        samples=gauges.samples,
        places=run.places,
        gate=gauges.gate,
        late=run.late,
        interrupted=ended_by is not None,
    )
    _report(console, chosen, result)
    if ended_by is not None:
        raise SystemExit(ended_by)


async def _look_first(
    looker: Looker, console: Console, chosen: argparse.Namespace, interruption: Interruption
) -> None:
    """See whether there is anybody, and whether the model is known.

    Raises:
        SystemExit: there is nobody, it is not, or the user does not wait.
    """
    addresses = [*chosen.to, *([chosen.direct_to] if chosen.direct_to else [])]
    looked = Deferred.fromCoroutine(
        preflight(looker, addresses, chosen.model, unlisted=chosen.unlisted)
    )
    interruption.ends = looked.cancel
    try:
        await looked
    except Unreachable as fault:
        console.fail(str(fault), commandline.UNREACHABLE)
    except NoSuchModel as fault:
        console.fail(str(fault), commandline.UNSERVED)
    except CancelledError:
        raise SystemExit(interruption.status) from None


def _status(chosen: argparse.Namespace) -> list[str]:
    if chosen.status:
        return [url for url in chosen.status if url != "none"]
    return [f"{url}/status.json" for url in dict.fromkeys(chosen.to)]


def _allow_many_connections(console: Console, clients: Sequence[Arrival]) -> None:
    """Take as many file descriptors as this process may have: each stream needs one.

    Whoever may be short of them is told: the engine would be blamed for it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        # Some systems allow less than they say; then it is as it was.
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    most = MAX_FILES if soft == resource.RLIM_INFINITY else soft
    if len(clients) + SPARE_FILES <= most:
        return
    at_once = peak((one.at, one.at + one.patience_seconds) for one in clients)
    if at_once + SPARE_FILES > most:
        console.say(
            f"warning: up to {at_once:,} clients ask at once, and this process may have {most:,} "
            "files open (ulimit -n): what goes beyond fails here, and not at the address"
        )


def _settings(chosen: argparse.Namespace, wire: Wire, started: str) -> Settings:
    return Settings(
        workload=Path(chosen.workload).name,
        model=wire.model,
        to=list(wire.to),
        version=__version__,
        started=started,
        options=dict(chosen.options),
        direct_to=wire.direct_to,
        speed=chosen.speed,
        seed=chosen.seed,
        exact_answers=wire.exact,
        retry_after=chosen.retry_after,
        limit=chosen.limit,
        duration=chosen.duration,
    )


def _report(console: Console, chosen: argparse.Namespace, result: Result) -> None:
    """Print the table and write the files.

    Raises:
        SystemExit: any of it cannot be written.
    """
    summary, advice = summarize(result), advise(result)
    console.write(table.render(result, summary, advice, columns=console.columns))
    written = (
        _save(console, chosen.json, lambda: as_json(result, summary=summary, advice=advice)),
        _save(console, chosen.html, lambda: report.report(result, summary, advice).encode("utf-8")),
    )
    if console.fault or not all(written):
        raise SystemExit(commandline.USAGE)


def _compare(console: Console, chosen: argparse.Namespace) -> int:
    """Compare two results; gives the exit status.

    Raises:
        Unreadable: one is none.
    """
    first, second = chosen.compare
    compared = compare.compare((str(first), str(second)), read(first), read(second))
    console.write(compare.render(compared, columns=console.columns))
    written = _save(console, chosen.html, lambda: report.comparison(compared).encode("utf-8"))
    return 0 if written and not console.fault else commandline.USAGE


def _save(console: Console, path: Path | None, make: Callable[[], bytes]) -> bool:
    """Write a file, if one is wanted; says whether that went well."""
    if path is None:
        return True
    if not console.save(path, make()):
        return False
    console.say(f"wrote {path}")
    return True


if __name__ == "__main__":
    main()
