"""The command line: what it takes, what it refuses, and with which exit status."""

from __future__ import annotations

import contextlib
import io
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred

from tests.load.harness import RunTestCase, answer, request, result
from tests.support import TestCase
from twisted_gateway.config.faults import Wrong
from twisted_gateway.load import commandline, tool
from twisted_gateway.load.look import Looker
from twisted_gateway.load.results import Ending, as_json, read

ENOUGH = ["W1", "--to", "http://one:80", "--model", "m"]


class CommandLine(TestCase):
    """Options."""

    def refuses(self, *arguments: str) -> str:
        """What is said of a command line that is wrong; the exit status is 1."""
        return self.exits(lambda: commandline.options(arguments), 1)

    def exits(self, call: Callable[[], object], status: int) -> str:
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            fault = self.assertRaises(SystemExit, call)
        self.assertEqual(fault.code, status)
        return said.getvalue()

    def test_enough(self) -> None:
        """A workload, an address and a model are enough."""
        chosen = commandline.options(ENOUGH)
        self.assertEqual((chosen.to, chosen.speed, chosen.seed), (["http://one:80"], 1.0, 1))
        self.assertTrue(chosen.max_tokens_as_answer)

    def test_addresses(self) -> None:
        """An address may end in /v1 or a slash, as OpenAI's clients are given it."""
        chosen = commandline.options(
            [*ENOUGH, "--to", "http://two:80/v1/", "--to", "http://three:80/"]
        )
        self.assertEqual(chosen.to, ["http://one:80", "http://two:80", "http://three:80"])

    def test_password(self) -> None:
        """An address with a password is refused, and not repeated."""
        said = self.refuses(*ENOUGH, "--to", "http://me:hush@one:80")
        self.assertIn("--api-key-env", said)
        self.assertNotIn("hush", said)

    def test_needs(self) -> None:
        """What is missing is named."""
        self.assertIn("name a workload", self.refuses())
        self.assertIn("--to is needed", self.refuses("W1", "--model", "m"))
        self.assertIn("--model is needed", self.refuses("W1", "--to", "http://one:80"))

    def test_numbers(self) -> None:
        """Numbers that mean nothing are refused."""
        for option, value in (("--speed", "0"), ("--limit", "0"), ("--duration", "nan")):
            self.assertIn(option, self.refuses(*ENOUGH, option, value))
        self.assertIn("--set", self.refuses(*ENOUGH, "--set", "load"))

    def test_header(self) -> None:
        """The tenant's header must be the name of one."""
        self.assertIn("--tenant-header", self.refuses(*ENOUGH, "--tenant-header", "X Y"))
        self.assertEqual(commandline.options([*ENOUGH, "--tenant-header", ""]).tenant_header, "")

    def test_status_pages(self) -> None:
        """A status page must have an address; 'none' is none."""
        self.assertIn("--status", self.refuses(*ENOUGH, "--status", "here"))
        self.assertEqual(commandline.options([*ENOUGH, "--status", "none"]).status, ["none"])

    def test_comparing(self) -> None:
        """--compare takes files and no workload."""
        chosen = commandline.options(["--compare", "a.json", "b.json"])
        self.assertEqual(chosen.compare, [Path("a.json"), Path("b.json")])
        self.assertIn("no workload", self.refuses("W1", "--compare", "a", "b"))

    def test_options_of_a_file(self) -> None:
        """--set is for the workloads that have options."""
        self.assertIn("--set", self.refuses("w.yaml", *ENOUGH[1:], "--set", "load=1"))


class Workloads(TestCase):
    """What is played."""

    def arrivals(self, *arguments: str) -> list[float]:
        chosen = commandline.options([*ENOUGH, *arguments])
        return [one.at for one in commandline.arrivals(chosen, {})]

    def refuses(self, *arguments: str) -> str:
        return str(self.assertRaises(Wrong, self.arrivals, *arguments))

    def test_seed(self) -> None:
        """The same seed is the same workload."""
        self.assertEqual(self.arrivals("--seed", "5"), self.arrivals("--seed", "5"))
        self.assertNotEqual(self.arrivals("--seed", "5"), self.arrivals("--seed", "6"))

    def test_limit(self) -> None:
        """The first clients only, or those that come within so long."""
        self.assertEqual(len(self.arrivals("--limit", "3")), 3)
        self.assertTrue(all(at <= 10.5 for at in self.arrivals("--duration", "10.5")))

    def test_options(self) -> None:
        """A workload's own numbers can be set; others are refused."""
        chosen = commandline.options([*ENOUGH, "--set", "patience_seconds=90"])
        self.assertEqual(commandline.arrivals(chosen, {})[0].patience_seconds, 90.0)
        self.assertEqual(self.refuses("--set", "foo=1"), "W1 has no such option: foo (--set)")

    def test_nobody(self) -> None:
        """A workload without clients is a mistake."""
        self.assertIn("expected at least one client", self.refuses("--duration", "1"))

    def test_unknown(self) -> None:
        """A workload that is neither known nor a file is refused."""
        chosen = commandline.options(["W9", *ENOUGH[1:]])
        self.assertIn(
            "W9: expected one of W1",
            str(self.assertRaises(Wrong, commandline.arrivals, chosen, {})),
        )

    def test_key(self) -> None:
        """The key comes from the environment; one that is not there is a mistake."""
        chosen = commandline.options([*ENOUGH, "--api-key-env", "KEY"])
        self.assertEqual(commandline.wire(chosen, {"KEY": "secret\n"}).api_key, "secret")
        for environ in ({}, {"KEY": "a b"}):
            fault = self.assertRaises(Wrong, commandline.wire, chosen, environ)
            self.assertTrue(str(fault).startswith("KEY: expected an API key"))

    def test_key_is_nowhere(self) -> None:
        """The key is in no settings that a report could show."""
        chosen = commandline.options([*ENOUGH, "--api-key-env", "KEY"])
        settings = tool._settings(chosen, commandline.wire(chosen, {"KEY": "secret"}), "today")
        self.assertNotIn("secret", repr(settings))


class LookingFirst(RunTestCase):
    """Whether there is anybody to ask."""

    def look(self) -> Deferred[None]:
        chosen = commandline.options(ENOUGH)
        return Deferred.fromCoroutine(tool._look_first(Looker(self.agent, self.clock), chosen))

    def test_unreachable(self) -> None:
        """Where nobody listens, one line says so and the exit status is 2."""
        self.net.manual = True
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            looked = self.look()
            self.clock.advance(5.0)
        fault = self.failureResultOf(looked, SystemExit).value
        self.assertEqual(fault.code, 2)
        self.assertTrue(said.getvalue().startswith("llm-gateway-load: http://one:80 cannot be"))
        self.assertEqual(said.getvalue().count("\n"), 1)

    def test_no_such_model(self) -> None:
        """A model that is not listed is worth a warning."""
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            looked = self.look()
            self.socket().say(answer(200, b'{"data":[{"id":"other"}]}'))
        self.successResultOf(looked)
        self.assertIn("lists no model m (it lists other)", said.getvalue())

    def test_no_list(self) -> None:
        """Whoever answers may list nothing."""
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            looked = self.look()
            self.socket().say(answer(401))
        self.successResultOf(looked)
        self.assertEqual(said.getvalue(), "")


class Reactor:
    """A clock, and what else the tool asks of a reactor."""

    def __init__(self, clock: Any) -> None:
        self.seconds = clock.seconds
        self.callLater = clock.callLater
        self.when_running: list[Callable[[], object]] = []

    def callWhenRunning(self, call: Callable[[], object]) -> None:
        self.when_running.append(call)

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

    def begin(self, *arguments: str) -> Deferred[None]:
        """Start a run of one client, and tell it which models there are."""
        line = [*ENOUGH, "--limit", "1", "--status", "none", "--json", str(self.json), *arguments]
        chosen = commandline.options(line)
        arrivals, wire = commandline.arrivals(chosen, {}), commandline.wire(chosen, {})
        played = Deferred.fromCoroutine(tool._play(self.reactor, chosen, arrivals, wire))
        self.socket().say(answer(200, b'{"data":[{"id":"m"}]}'))
        return played

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

    def test_ctrl_c(self) -> None:
        """The first Ctrl-C ends the run, and what was done is reported."""
        handlers: dict[int, Any] = {}
        self.patch(signal, "signal", handlers.__setitem__)
        played = self.begin("--no-progress")
        for call in self.reactor.when_running:
            call()
        self.clock.advance(5)
        handlers[signal.SIGINT](signal.SIGINT, None)
        self.clock.advance(0)
        self.successResultOf(played)
        kept = read(self.json)
        self.assertEqual([one.ending for one in kept.requests], [Ending.INTERRUPTED])
        self.assertTrue(kept.interrupted)

    def test_nobody_there(self) -> None:
        """Where nobody listens nothing is played, and the exit status is 2."""
        self.net.manual = True
        chosen = commandline.options(ENOUGH)
        wire = commandline.wire(chosen, {})
        played = Deferred.fromCoroutine(tool._play(self.reactor, chosen, [], wire))
        self.clock.advance(5.0)
        self.assertEqual(self.failureResultOf(played, SystemExit).value.code, 2)
        self.assertFalse(self.json.exists())


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
        self.quietly(lambda: tool._report(chosen, result(request(0))))
        self.assertIn("TTFT p50", self.printed.getvalue())
        self.assertTrue(files[0].read_bytes().startswith(b'{"schema":"llm-gateway-load/1"'))
        self.assertTrue(files[1].read_bytes().startswith(b"<!doctype html>"))

    def test_no_room(self) -> None:
        """A file that cannot be written is named, after the table has been printed."""
        chosen = commandline.options([*ENOUGH, "--json", str(self.directory / "no" / "a.json")])
        fault = self.assertRaises(
            SystemExit, self.quietly, lambda: tool._report(chosen, result(request(0)))
        )
        self.assertEqual(fault.code, 1)
        self.assertIn("TTFT p50", self.printed.getvalue())
        self.assertIn("cannot be written", self.said.getvalue())

    def test_compare(self) -> None:
        """Two results are printed beside each other, and written as a page."""
        files = [self.directory / name for name in ("a.json", "b.json", "c.html")]
        for file in files[:2]:
            file.write_bytes(as_json(result(request(0))))
        chosen = commandline.options(["--compare", *map(str, files[:2]), "--html", str(files[2])])
        self.assertEqual(self.quietly(lambda: tool._compare(chosen)), 0)
        self.assertIn("B / A", self.printed.getvalue())
        self.assertIn(b"Two load tests", files[2].read_bytes())
