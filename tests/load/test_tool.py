"""The program: from looking whether there is anybody to the report, and its exit status."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred

from tests.load.harness import CONTENT, HEAD, RunTestCase, answer, arrival, chunk, request, result
from tests.support import TestCase
from twisted_gateway.console.console import Console
from twisted_gateway.load import commandline, tool
from twisted_gateway.load.arrivals import Arrival
from twisted_gateway.load.results import Ending, as_json, read

NAME = commandline.PROGRAM
ENOUGH = ["W1", "--to", "http://one:80", "--model", "m"]


class Reactor:
    """A clock, and what else the tool asks of a reactor."""

    def __init__(self, clock: Any) -> None:
        self.seconds = clock.seconds
        self.callLater = clock.callLater
        self.when_running: list[Callable[[], object]] = []

    def callWhenRunning(self, call: Callable[[], object]) -> None:
        self.when_running.append(call)

    def run(self) -> None:
        """Do what was to be done once it runs."""
        for call in self.when_running:
            call()

    def callFromThread(self, call: Callable[[], object]) -> None:
        call()


class Playing(RunTestCase):
    """A whole run, from looking whether there is anybody to the report."""

    def setUp(self) -> None:
        super().setUp()
        self.reactor = Reactor(self.clock)
        self.json = Path(self.mktemp())
        self.printed, self.said = io.StringIO(), io.StringIO()
        self.patch(tool, "UpstreamAgent", lambda reactor, **bounds: self.agent)
        self.patch(sys, "stdout", self.printed)
        self.patch(sys, "stderr", self.said)

    def begin(self, *arguments: str, models: bytes = b'{"data":[{"id":"m"}]}') -> Deferred[None]:
        """Start a run of one client, and tell it which models there are."""
        line = [*ENOUGH, "--limit", "1", "--status", "none", "--json", str(self.json), *arguments]
        played = self.playing(commandline.options(line))
        self.socket().say(answer(200, models))
        return played

    def playing(self, chosen: argparse.Namespace) -> Deferred[None]:
        arrivals, wire = commandline.arrivals(chosen, {}), commandline.wire(chosen, {})
        return Deferred.fromCoroutine(
            tool._play(self.reactor, Console(NAME), chosen, arrivals, wire)
        )

    def interrupt(self) -> dict[int, Any]:
        """Take the signals that the reactor's start has handled; gives the handlers."""
        handlers: dict[int, Any] = {}
        self.patch(signal, "signal", handlers.__setitem__)
        self.reactor.run()
        return handlers

    def ends(self, played: Deferred[None], status: int) -> str:
        """See the exit status; gives what was said on standard error."""
        self.assertEqual(self.failureResultOf(played, SystemExit).value.code, status)
        return self.said.getvalue()

    def test_to_the_end(self) -> None:
        """It ends with its last client: the table is printed, the file written, no timer left."""
        played = self.begin("--speed", "10")
        self.clock.advance(1.1)
        self.complete()
        self.clock.advance(0)
        self.successResultOf(played)
        kept = read(self.json)
        self.assertEqual([one.ending for one in kept.requests], [Ending.COMPLETED])
        self.assertEqual((kept.interrupted, kept.took), (False, 11.0))
        self.assertIn("TTFT p50", self.printed.getvalue())
        self.assertIn("1/1", self.said.getvalue())

    def test_no_standard_error(self) -> None:
        """It plays to the end where the process was started without standard error (`2>&-`)."""
        self.patch(sys, "stderr", None)
        played = self.begin("--speed", "10")
        self.clock.advance(1.1)
        self.complete()
        self.clock.advance(0)
        self.successResultOf(played)
        self.assertEqual([one.ending for one in read(self.json).requests], [Ending.COMPLETED])

    def test_ctrl_c(self) -> None:
        """The first Ctrl-C ends the run; what was done is reported, and the status tells."""
        played = self.begin("--no-progress")
        handlers = self.interrupt()
        self.clock.advance(11)
        self.socket().say(HEAD + chunk(CONTENT))
        handlers[signal.SIGINT](signal.SIGINT, None)
        self.clock.advance(0)
        self.ends(played, 130)
        kept = read(self.json)
        self.assertEqual([one.ending for one in kept.requests], [Ending.INTERRUPTED])
        self.assertTrue(kept.interrupted)
        self.assertIn("Cut while they asked or waited: 1;", self.printed.getvalue())
        self.assertIn("worked in vain, at least: 0", self.printed.getvalue())

    def test_terminated(self) -> None:
        """SIGTERM does the same, with a status of its own."""
        played = self.begin("--no-progress")
        self.interrupt()[signal.SIGTERM](signal.SIGTERM, None)
        self.clock.advance(0)
        self.ends(played, 143)
        self.assertTrue(read(self.json).interrupted)

    def test_ctrl_c_before_it_begins(self) -> None:
        """Ctrl-C while an address keeps it waiting ends the program, with nothing to report."""
        played = self.playing(commandline.options(ENOUGH))
        self.interrupt()[signal.SIGINT](signal.SIGINT, None)
        self.clock.advance(0)
        self.ends(played, 130)
        self.assertEqual(self.printed.getvalue(), "")

    def test_ctrl_c_twice(self) -> None:
        """The second ends the process there and then."""
        played = self.begin("--no-progress")
        handlers = self.interrupt()
        exits: list[int] = []
        self.patch(os, "_exit", exits.append)
        self.patch(self.reactor, "callFromThread", lambda call: None)
        handlers[signal.SIGINT](signal.SIGINT, None)
        handlers[signal.SIGINT](signal.SIGINT, None)
        self.assertEqual(exits, [130])
        played.cancel()
        self.clock.advance(0)
        self.ends(played, 130)

    def test_nobody_there(self) -> None:
        """Where nobody listens nothing is played, and the exit status is 2."""
        self.net.manual = True
        played = self.playing(commandline.options(ENOUGH))
        self.clock.advance(5.0)
        said = self.ends(played, 2)
        self.assertTrue(said.startswith("llm-gateway-load: http://one:80 cannot be reached: "))
        self.assertEqual(said.count("\n"), 1)
        self.assertFalse(self.json.exists())

    def test_no_such_model(self) -> None:
        """Where there is no such model nothing is played, and the exit status is 3."""
        said = self.ends(self.begin(models=b'{"data":[{"id":"oth\\u001b[2Jer"}]}'), 3)
        self.assertIn("http://one:80 has no model m. It has oth [2Jer.", said)
        self.assertFalse(self.json.exists())

    def test_unserved(self) -> None:
        """Where the first answer is that there is no such model, the exit status is 3 too."""
        played = self.begin("--no-progress", models=b"[]")
        self.clock.advance(11)
        self.socket().say(answer(404, b'{"error":{"message":"no model m"}}'))
        self.clock.advance(0)
        said = self.ends(played, 3)
        self.assertIn("http://one:80 serves nobody: status 404: no model m", said)
        self.assertFalse(self.json.exists())


class Descriptors(TestCase):
    """How many connections the process may have."""

    def allow(self, clients: list[Arrival], soft: int, hard: int) -> tuple[list[Any], str]:
        """What is asked of the system, and what is said."""
        asked: list[Any] = []
        self.patch(resource, "getrlimit", lambda which: (soft, hard))
        self.patch(resource, "setrlimit", lambda which, limits: asked.append(limits))
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            tool._allow_many_connections(Console(NAME), clients)
        return asked, said.getvalue()

    def test_as_many_as_may_be(self) -> None:
        """It takes what it may have, within reason, and says nothing where that will do."""
        for soft, hard, taken in (
            (1024, 4096, [(4096, 4096)]),
            (1024, resource.RLIM_INFINITY, [(tool.MAX_FILES, resource.RLIM_INFINITY)]),
            (4096, 4096, []),
            (resource.RLIM_INFINITY, resource.RLIM_INFINITY, []),
        ):
            self.assertEqual(self.allow([arrival()], soft, hard), (taken, ""))

    def test_too_few(self) -> None:
        """Where more may ask at once than that, it says so; clients one by one need few."""
        burst = [arrival() for _ in range(100)]
        _, said = self.allow(burst, 64, 64)
        self.assertIn("warning: up to 100 clients ask at once", said)
        self.assertIn("may have 64 files open", said)
        turns = [arrival(at=9.0 * n, patience_seconds=9.0) for n in range(100)]
        self.assertEqual(self.allow(turns, 64, 64), ([], ""))

    def test_not_allowed(self) -> None:
        """A system that allows less than it says is left as it was."""
        self.patch(resource, "getrlimit", lambda which: (64, 4096))
        self.patch(resource, "setrlimit", self.refuse)
        with contextlib.redirect_stderr(io.StringIO()) as said:
            tool._allow_many_connections(Console(NAME), [arrival() for _ in range(100)])
        self.assertIn("may have 64 files", said.getvalue())

    def refuse(self, which: int, limits: tuple[int, int]) -> None:
        raise ValueError("current limit exceeds maximum limit")


class Files(TestCase):
    """What is written, and compared."""

    def setUp(self) -> None:
        super().setUp()
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        self.printed, self.said = io.StringIO(), io.StringIO()

    def quietly(self, call: Callable[[], object]) -> object:
        with contextlib.redirect_stdout(self.printed), contextlib.redirect_stderr(self.said):
            return call()

    def test_report(self) -> None:
        """A run's table is printed, its files are written."""
        files = [self.directory / "a.json", self.directory / "a.html"]
        chosen = commandline.options([*ENOUGH, "--json", str(files[0]), "--html", str(files[1])])
        self.quietly(lambda: tool._report(Console(NAME), chosen, result(request(0))))
        self.assertIn("TTFT p50", self.printed.getvalue())
        self.assertTrue(files[0].read_bytes().startswith(b'{"schema":"llm-gateway-load/1"'))
        self.assertTrue(files[1].read_bytes().startswith(b"<!doctype html>"))

    def test_no_room(self) -> None:
        """A file that cannot be written is named, after the table has been printed."""
        chosen = commandline.options([*ENOUGH, "--json", str(self.directory / "no" / "a.json")])
        fault = self.assertRaises(
            SystemExit,
            self.quietly,
            lambda: tool._report(Console(NAME), chosen, result(request(0))),
        )
        self.assertEqual(fault.code, 1)
        self.assertIn("TTFT p50", self.printed.getvalue())
        self.assertIn("cannot be written", self.said.getvalue())

    def test_a_reader_that_has_gone(self) -> None:
        """Who reads the table may leave (`| head`): the files are written all the same."""
        reader, writer = os.pipe()
        os.close(reader)
        path = self.directory / "a.json"
        chosen = commandline.options([*ENOUGH, "--json", str(path)])
        with open(writer, "w", encoding="utf-8") as gone:
            self.patch(sys, "stdout", gone)
            with contextlib.redirect_stderr(self.said):
                tool._report(Console(NAME), chosen, result(request(0)))
        self.assertEqual(len(read(path).requests), 1)

    def test_no_output(self) -> None:
        """A table that cannot be written is a status of its own; the files are written."""
        path = self.directory / "a.json"
        chosen = commandline.options([*ENOUGH, "--json", str(path)])
        self.patch(sys, "stdout", None)
        with contextlib.redirect_stderr(self.said):
            fault = self.assertRaises(
                SystemExit, tool._report, Console(NAME), chosen, result(request(0))
            )
        self.assertEqual(fault.code, 1)
        self.assertIn("the standard output cannot be written", self.said.getvalue())
        self.assertEqual(len(read(path).requests), 1)

    def test_compare(self) -> None:
        """Two results are printed beside each other, and written as a page."""
        files = [self.directory / name for name in ("a.json", "b.json", "c.html")]
        for file in files[:2]:
            file.write_bytes(as_json(result(request(0))))
        chosen = commandline.options(["--compare", *map(str, files[:2]), "--html", str(files[2])])
        self.assertEqual(self.quietly(lambda: tool._compare(Console(NAME), chosen)), 0)
        self.assertIn("B / A", self.printed.getvalue())
        self.assertIn(b"Two load tests", files[2].read_bytes())
