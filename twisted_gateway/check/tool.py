"""`llm-gateway-check`: check a live gateway, and report."""

from __future__ import annotations

import argparse
import io
import os
import secrets
import signal
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import react

from twisted_gateway.check import commandline, given, table
from twisted_gateway.check.client import Client
from twisted_gateway.check.junit import junit
from twisted_gateway.check.ready import Readiness
from twisted_gateway.check.results import NotReady, Report
from twisted_gateway.check.runner import Runner
from twisted_gateway.check.suite import Suite
from twisted_gateway.config.faults import Wrong
from twisted_gateway.console.interruption import SIGNALLED, Interruption
from twisted_gateway.console.terminal import columns, plain
from twisted_gateway.upstream.agent import UpstreamAgent

CONNECT_SECONDS = 5.0


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
        if chosen.list:
            _print(table.catalogue())
            raise SystemExit(0)
        run = given.run(chosen, os.environ)
        given.see_file(chosen.junit)
    except Wrong as fault:
        _fail(str(fault))
    except KeyboardInterrupt:
        raise SystemExit(SIGNALLED + signal.SIGINT) from None
    react(_check, [chosen, run])


async def _check(reactor: Any, chosen: argparse.Namespace, run: given.Run) -> None:
    """Make the checks, and report.

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
        started=reactor.seconds(),
    )
    runner = _runner(reactor, agent, report, chosen, run)
    readiness = Readiness(
        reactor,
        chosen.wait,
        admin_named=run.plan.admin_named,
        told=lambda why: _say(f"waiting: {why}"),
    )
    made = Deferred.fromCoroutine(Suite(runner, reactor, run.plan, readiness).run())

    def cut() -> None:
        runner.overdue()
        made.cancel()

    bound = reactor.callLater(chosen.deadline, cut)

    def interrupt() -> None:
        # What has been made is removed, and no deadline cuts that short.
        if bound.active():
            bound.cancel()
            made.cancel()

    interruption.ends = interrupt
    ready = True
    try:
        await made
    except NotReady:
        ready = False
    except CancelledError:
        report.interrupted = True
    finally:
        if bound.active():
            bound.cancel()
    report.seconds = reactor.seconds() - report.started
    await agent.close()
    written = _report(report, chosen.junit)
    status = interruption.status or _status(report, ready, written)
    if status:
        raise SystemExit(status)


def _runner(
    reactor: Any,
    agent: UpstreamAgent,
    report: Report,
    chosen: argparse.Namespace,
    run: given.Run,
) -> Runner:
    return Runner(
        Client(agent, reactor, report.run_id, report.url, report.admin),
        reactor,
        report,
        seconds=chosen.timeout,
        tokens=run.tokens,
        accepted=given.accepted(chosen),
        skip=chosen.skip,
        secrets=run.secrets,
        told=lambda result: _print(table.row(result, columns(sys.stdout))),
    )


def _status(report: Report, ready: bool, written: bool) -> int:
    if not ready:
        return commandline.NOT_READY
    if report.failed:
        return commandline.FAILED
    return 0 if written else commandline.USAGE


def _report(report: Report, path: Path | None) -> bool:
    """Say what it comes to, and write the XML; says whether that went well."""
    _print(table.footer(report, columns(sys.stdout)))
    if path is None:
        return True
    document = junit(report, socket.gethostname())
    if path == given.STANDARD_OUTPUT:
        # It begins a line and goes on to the end, so that it can be cut out of a log.
        _print(document.decode("utf-8"))
        return True
    try:
        path.write_bytes(document)
    except OSError as fault:
        _say(f"{path} cannot be written: {fault.strerror or fault}")
        return False
    return True


def _print(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read it has read enough; what is left in the buffer goes nowhere, quietly.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(text: str) -> None:
    sys.stderr.write(f"llm-gateway-check: {plain(text)}\n")
    sys.stderr.flush()


def _fail(text: str) -> NoReturn:
    for line in text.splitlines():
        _say(line)
    raise SystemExit(commandline.USAGE)


if __name__ == "__main__":
    main()
