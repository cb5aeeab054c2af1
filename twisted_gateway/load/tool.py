"""`llm-gateway-load`: play a workload, and report; or compare two results."""

from __future__ import annotations

import argparse
import io
import os
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import react

from twisted_gateway import __version__
from twisted_gateway.config.faults import ConfigError, Wrong
from twisted_gateway.console.interruption import SIGNALLED, Interruption
from twisted_gateway.console.terminal import columns, plain
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
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A name that the terminal's encoding cannot say does not cost the report.
            stream.reconfigure(errors="replace")
    try:
        chosen = commandline.options(sys.argv[1:])
        if chosen.compare:
            raise SystemExit(_compare(chosen))
        clients = commandline.arrivals(chosen, os.environ)
        wire = commandline.wire(chosen, os.environ)
        commandline.see_files(chosen)
    except (ConfigError, Unreadable, Wrong) as fault:
        _fail(str(fault), commandline.USAGE)
    except KeyboardInterrupt:
        raise SystemExit(SIGNALLED + signal.SIGINT) from None
    _allow_many_connections(clients)
    react(_play, [chosen, clients, wire])


async def _play(
    reactor: Any, chosen: argparse.Namespace, arrivals: Sequence[Arrival], wire: Wire
) -> None:
    """Run the workload and report.

    Raises:
        SystemExit: with the exit status, if that is not 0.
    """
    interruption = Interruption(reactor)
    agent = UpstreamAgent(
        reactor, connect_seconds=CONNECT_SECONDS, max_idle_per_host=MAX_IDLE_CONNECTIONS
    )
    await _look_first(Looker(agent, reactor, api_key=wire.api_key), chosen, interruption)
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
        _fail(run.unserved, commandline.UNSERVED)
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
    _report(chosen, result)
    if ended_by is not None:
        raise SystemExit(ended_by)


async def _look_first(
    looker: Looker, chosen: argparse.Namespace, interruption: Interruption
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
        _fail(str(fault), commandline.UNREACHABLE)
    except NoSuchModel as fault:
        _fail(str(fault), commandline.UNSERVED)
    except CancelledError:
        raise SystemExit(interruption.status) from None


def _status(chosen: argparse.Namespace) -> list[str]:
    if chosen.status:
        return [url for url in chosen.status if url != "none"]
    return [f"{url}/status.json" for url in dict.fromkeys(chosen.to)]


def _allow_many_connections(clients: Sequence[Arrival]) -> None:
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
        _say(
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


def _report(chosen: argparse.Namespace, result: Result) -> None:
    """Print the table and write the files."""
    summary, advice = summarize(result), advise(result)
    _print(table.render(result, summary, advice, columns=columns(sys.stdout)))
    faults = [
        _write(chosen.json, lambda: as_json(result, summary=summary, advice=advice)),
        _write(chosen.html, lambda: report.report(result, summary, advice).encode("utf-8")),
    ]
    if any(faults):
        raise SystemExit(commandline.USAGE)


def _compare(chosen: argparse.Namespace) -> int:
    """Compare two results; gives the exit status.

    Raises:
        Unreadable: one is none.
    """
    first, second = chosen.compare
    compared = compare.compare((str(first), str(second)), read(first), read(second))
    _print(compare.render(compared, columns=columns(sys.stdout)))
    faulty = _write(chosen.html, lambda: report.comparison(compared).encode("utf-8"))
    return commandline.USAGE if faulty else 0


def _write(path: Path | None, make: Callable[[], bytes]) -> bool:
    """Write a file, if one is wanted; says whether that failed."""
    if path is None:
        return False
    try:
        path.write_bytes(make())
    except OSError as fault:
        _say(f"{path} cannot be written: {fault.strerror or fault}")
        return True
    _say(f"wrote {path}")
    return False


def _print(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read it has read enough; what is left in the buffer goes nowhere, quietly.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(text: str) -> None:
    sys.stderr.write(f"llm-gateway-load: {plain(text)}\n")
    sys.stderr.flush()


def _fail(text: str, status: int) -> NoReturn:
    for line in text.splitlines():
        _say(line)
    raise SystemExit(status)


if __name__ == "__main__":
    main()
