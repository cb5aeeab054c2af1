"""`llm-gateway-load`: play a workload, and report; or compare two results."""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

from msgspec import Struct, field
from twisted.internet.task import react

from twisted_gateway import __version__
from twisted_gateway.config.faults import ConfigError, Wrong
from twisted_gateway.load import commandline, compare, report, table
from twisted_gateway.load.advice import advise
from twisted_gateway.load.arrivals import Arrival
from twisted_gateway.load.figures import summarize
from twisted_gateway.load.gauges import Gauges
from twisted_gateway.load.look import Looker, NoAnswer
from twisted_gateway.load.progress import Progress
from twisted_gateway.load.results import Result, Settings, Unreadable, as_json, read
from twisted_gateway.load.run import Run, Wire
from twisted_gateway.upstream.agent import UpstreamAgent

UNREACHABLE = 2
CONNECT_SECONDS = 10.0
STATUS_SECONDS = 2.0
MAX_IDLE_CONNECTIONS = 1024
MAX_FILES = 65_536


def main() -> None:
    """Run the program; does not return.

    Raises:
        SystemExit: with the exit status.
    """
    chosen = commandline.options(sys.argv[1:])
    try:
        if chosen.compare:
            raise SystemExit(_compare(chosen))
        clients = commandline.arrivals(chosen, os.environ)
        wire = commandline.wire(chosen, os.environ)
    except (ConfigError, Unreadable, Wrong) as fault:
        _fail(str(fault), commandline.USAGE)
    _allow_many_connections()
    react(_play, [chosen, clients, wire])


async def _play(
    reactor: Any, chosen: argparse.Namespace, arrivals: Sequence[Arrival], wire: Wire
) -> None:
    """Run the workload and report.

    Raises:
        SystemExit: with the exit status, if that is not 0.
    """
    agent = UpstreamAgent(
        reactor, connect_seconds=CONNECT_SECONDS, max_idle_per_host=MAX_IDLE_CONNECTIONS
    )
    await _look_first(Looker(agent, reactor, api_key=wire.api_key), chosen)
    run = Run(reactor, agent, arrivals, wire)
    gauges = Gauges(
        reactor,
        Looker(agent, reactor, seconds=STATUS_SECONDS),
        run,
        chosen.model,
        status=_status(chosen),
        state=None if chosen.engine_state == "none" else chosen.engine_state,
    )
    progress = Progress(
        reactor, run, gauges, sys.stderr, lambda: shutil.get_terminal_size().columns
    )
    started = datetime.now(UTC).isoformat(" ", "seconds")
    stopped = _stop_on_signals(reactor, run)
    over = run.start(chosen.speed)
    gauges.start()
    if not chosen.no_progress:
        progress.start()
    try:
        await over
    finally:
        gauges.stop()
        progress.stop()
    took = run.pace.now()
    await agent.close()
    result = Result(
        settings=_settings(chosen, wire, started),
        requests=run.requests,
        took=took,
        samples=gauges.samples,
        places=run.places,
        gate=gauges.gate,
        late=run.late,
        interrupted=bool(stopped),
    )
    _report(chosen, result)


async def _look_first(looker: Looker, chosen: argparse.Namespace) -> None:
    """See whether there is anybody, and whether the model is known.

    Raises:
        SystemExit: there is nobody.
    """
    for url in dict.fromkeys([*chosen.to, *([chosen.direct_to] if chosen.direct_to else [])]):
        try:
            models = await looker.fetch(f"{url}/v1/models", _Models)
        except NoAnswer as fault:
            if fault.unreachable:
                _fail(f"{url} cannot be reached: {fault}", UNREACHABLE)
            # Whoever answers may be an API that lists no models, or none to us.
            continue
        names = [one.id for one in models.data]
        if url in chosen.to and chosen.model not in names:
            known = ", ".join(names[:10]) or "none"
            _say(f"warning: {url} lists no model {chosen.model} (it lists {known})")


class _Model(Struct):
    id: str


class _Models(Struct):
    data: list[_Model] = field(default_factory=list)


def _status(chosen: argparse.Namespace) -> list[str]:
    if chosen.status:
        return [url for url in chosen.status if url != "none"]
    return [f"{url}/status.json" for url in dict.fromkeys(chosen.to)]


def _stop_on_signals(reactor: Any, run: Run) -> list[int]:
    """Let the first Ctrl-C end the run, and a second one the program; the list has them."""
    got: list[int] = []

    def stop(number: int, frame: object) -> None:
        got.append(number)
        if len(got) > 1:
            os._exit(128 + number)
        reactor.callFromThread(run.stop)

    def install() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop)

    # Once it runs the reactor has installed its own, which would stop it and say nothing.
    reactor.callWhenRunning(install)
    return got


def _allow_many_connections() -> None:
    """Take as many file descriptors as this process may have: each stream needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


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
    _print(table.render(result, summary, advice))
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
    _print(compare.render(compared))
    faulty = _write(chosen.html, lambda: report.comparison(compared).encode("utf-8"))
    return commandline.USAGE if faulty else 0


def _write(path: Path | None, make: Any) -> bool:
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
    sys.stdout.write(text)
    sys.stdout.flush()


def _say(text: str) -> None:
    sys.stderr.write(f"llm-gateway-load: {text}\n")
    sys.stderr.flush()


def _fail(text: str, status: int) -> NoReturn:
    for line in text.splitlines():
        _say(line)
    raise SystemExit(status)


if __name__ == "__main__":
    main()
