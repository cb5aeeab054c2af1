"""`llm-gateway-check`: check a live gateway, and report."""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import react

from twisted_gateway.check import commandline, settings, table
from twisted_gateway.check.client import Client
from twisted_gateway.check.junit import junit
from twisted_gateway.check.ready import Readiness
from twisted_gateway.check.redactor import Redactor
from twisted_gateway.check.results import NotReady, Report
from twisted_gateway.check.runner import Runner
from twisted_gateway.check.suite import Suite
from twisted_gateway.config.faults import Wrong
from twisted_gateway.console.console import Console
from twisted_gateway.console.interruption import SIGNALLED, Interruption
from twisted_gateway.upstream.agent import UpstreamAgent

CONNECT_SECONDS = 5.0


def main() -> None:
    """Run the program; does not return.

    Raises:
        SystemExit: with the exit status.
    """
    console = Console(commandline.PROGRAM)
    try:
        chosen = commandline.options(sys.argv[1:])
        if chosen.list:
            console.write(table.catalogue())
            raise SystemExit(commandline.USAGE if console.fault else 0)
        wanted = settings.read(chosen, os.environ)
        settings.see_file(chosen.junit)
    except Wrong as fault:
        console.fail(str(fault), commandline.USAGE)
    except KeyboardInterrupt:
        raise SystemExit(SIGNALLED + signal.SIGINT) from None
    react(_check, [console, chosen, wanted])


async def _check(
    reactor: Any,
    console: Console,
    chosen: argparse.Namespace,
    wanted: settings.Settings,
    date: Callable[[], float] = time.time,
) -> None:
    """Make the checks, and report.

    Args:
        reactor: the reactor; its clock, which may be of any origin, tells how long things take.
        console: where to report.
        chosen: the command line.
        wanted: what it comes to.
        date: gives the seconds since the epoch.

    Raises:
        SystemExit: with the exit status, if that is not 0.
    """
    interruption = Interruption(reactor)
    # What was asked for once is not to be done twice: a service may have acted on it.
    agent = UpstreamAgent(reactor, connect_seconds=CONNECT_SECONDS, idempotent_only=True)
    report = Report(
        url=chosen.url,
        admin=chosen.admin or "",
        run_id=f"check-{secrets.token_hex(4)}",
        started=date(),
    )
    began = reactor.seconds()
    runner = _runner(reactor, console, agent, report, chosen, wanted)
    readiness = Readiness(
        reactor,
        chosen.wait,
        admin_named=wanted.plan.admin_named,
        told=lambda why: console.say(f"waiting: {runner.shown(why)}"),
        any_id=runner.skips("request-id"),
    )
    made = Deferred.fromCoroutine(Suite(runner, reactor, wanted.plan, readiness).run())

    def end() -> None:
        # What has been made is removed to the last; that has bounds of its own.
        if not runner.cleaning:
            made.cancel()

    def cut() -> None:
        runner.overdue()
        end()

    bound = reactor.callLater(chosen.deadline, cut)
    interruption.ends = end
    ready = True
    try:
        await made
    except NotReady:
        ready = False
    except CancelledError:
        report.interrupted = True
    except BaseException:
        # A fault of this program, outside of any check; what it has seen is told before it ends.
        report.interrupted = True
        raise
    finally:
        if bound.active():
            bound.cancel()
        report.seconds = reactor.seconds() - began
        try:
            written = _report(console, report, chosen.junit)
        finally:
            await agent.close()
    status = interruption.status or _status(report, ready, written)
    if status:
        raise SystemExit(status)


def _runner(
    reactor: Any,
    console: Console,
    agent: UpstreamAgent,
    report: Report,
    chosen: argparse.Namespace,
    wanted: settings.Settings,
) -> Runner:
    redactor = Redactor(wanted.secrets)
    return Runner(
        Client(agent, reactor, report.run_id, report.url, report.admin, redactor),
        reactor,
        report,
        seconds=chosen.timeout,
        tokens=wanted.tokens,
        accepted=settings.accepted(chosen),
        skip=chosen.skip,
        redactor=redactor,
        told=lambda result: console.write(table.row(result, console.columns)),
    )


def _status(report: Report, ready: bool, written: bool) -> int:
    if not ready:
        return commandline.NOT_READY
    if report.failed:
        return commandline.FAILED
    return 0 if written else commandline.USAGE


def _report(console: Console, report: Report, path: Path | None) -> bool:
    """Say what it comes to, and write the XML; says whether all of it went well."""
    console.write(table.footer(report, console.columns))
    saved = True
    if path is not None:
        document = junit(report, socket.gethostname())
        if path == settings.STANDARD_OUTPUT:
            # It begins a line and goes on to the end, so that it can be cut out of a log.
            console.write_document(document)
        else:
            saved = console.save(path, document)
    return saved and not console.fault


if __name__ == "__main__":
    main()
