"""The command line: what it takes, and what it refuses."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Callable
from pathlib import Path

from tests.support import TestCase
from twisted_gateway.config.faults import Wrong
from twisted_gateway.load import commandline, drawing, tool
from twisted_gateway.load.workloads import NAMES

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
        for option, value in (
            *(("--speed", "0"), ("--speed", "1e-300"), ("--speed", "fast"), ("--speed", "inf")),
            *(("--limit", "0"), ("--limit", "few"), ("--limit", "9" * 5000), ("--limit", "2.5")),
            *(("--duration", "nan"), ("--duration", "1e9"), ("--seed", "-1"), ("--seed", "1_0")),
        ):
            said = self.refuses(*ENOUGH, option, value)
            self.assertIn(f"argument {option}: expected a", said)
            self.assertEqual(said.count("\n"), 1)
        self.assertIn("--set", self.refuses(*ENOUGH, "--set", "load"))

    def test_header(self) -> None:
        """The tenant's header must be the name of one."""
        self.assertIn("--tenant-header", self.refuses(*ENOUGH, "--tenant-header", "X Y"))
        self.assertEqual(commandline.options([*ENOUGH, "--tenant-header", ""]).tenant_header, "")
        for name in ("Content-Length", "host", "X-Request-ID"):
            self.assertIn("another header", self.refuses(*ENOUGH, "--tenant-header", name))

    def test_model(self) -> None:
        """A model must have a name that can be said."""
        for name in ("", " m", "m\x1b[2J", "m\udcff", "m" * 300):
            said = self.refuses("W1", "--to", "http://one:80", "--model", name)
            self.assertIn("--model", said)
            self.assertNotIn("\x1b", said)

    def test_one_line(self) -> None:
        """What is wrong is said in one line, and where to read more."""
        said = self.refuses(*ENOUGH, "--no\x1b[2Jsuch")
        self.assertEqual(
            said,
            "llm-gateway-load: unrecognized arguments: --no [2Jsuch (--help has every option)\n",
        )

    def test_files(self) -> None:
        """A file that could not be written is refused before the run, and not after it."""
        directory = Path(self.mktemp())
        directory.mkdir()
        there = directory / "there.json"
        there.touch()
        for path, words in (
            (directory, "it is a directory"),
            (directory / "no" / "a.json", "there is no directory"),
            (there / "a.json", "there is no directory"),
        ):
            for option in ("--json", "--html"):
                chosen = commandline.options([*ENOUGH, option, str(path)])
                fault = self.assertRaises(Wrong, commandline.see_files, chosen)
                self.assertTrue(str(fault).startswith(f"{path} cannot be written: "))
                self.assertIn(words, str(fault))
        commandline.see_files(
            commandline.options([*ENOUGH, "--json", str(there), "--html", str(directory / "a")])
        )
        self.assertEqual([*directory.iterdir()], [there])

    def test_permission(self) -> None:
        """So is one that may not be written."""
        path = Path(self.mktemp())
        path.touch()
        self.patch(os, "access", lambda path, mode: False)
        chosen = commandline.options([*ENOUGH, "--json", str(path)])
        fault = self.assertRaises(Wrong, commandline.see_files, chosen)
        self.assertIn("permission denied", str(fault))

    def test_same_file(self) -> None:
        """One file cannot be both."""
        self.assertIn("same file", self.refuses(*ENOUGH, "--json", "a", "--html", "a"))

    def test_overwritten(self) -> None:
        """What is read is not overwritten."""
        for option in ("--json", "--html"):
            said = self.refuses("w.yaml", *ENOUGH[1:], option, "./w.yaml")
            self.assertIn("w.yaml is the workload", said)
        said = self.refuses("--compare", "a.json", "b.json", "--html", "b.json")
        self.assertIn("would overwrite b.json", said)

    def test_status_pages(self) -> None:
        """A status page must have an address; 'none' is none."""
        self.assertIn("--status", self.refuses(*ENOUGH, "--status", "here"))
        self.assertEqual(commandline.options([*ENOUGH, "--status", "none"]).status, ["none"])

    def test_comparing(self) -> None:
        """--compare takes files and no workload."""
        chosen = commandline.options(["--compare", "a.json", "b.json"])
        self.assertEqual(chosen.compare, [Path("a.json"), Path("b.json")])
        self.assertIn("no workload", self.refuses("W1", "--compare", "a", "b"))
        self.assertIn("no --json", self.refuses("--compare", "a", "b", "--json", "c"))

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
        self.assertEqual(
            self.refuses("--set", "foo=1"),
            "--set: W1 has no option foo; it has direct, patience_seconds, within_seconds",
        )

    def test_hopeless_options(self) -> None:
        """Numbers that nothing can be made of are refused at once, in words."""
        self.patch(drawing, "MAX_ARRIVALS", 2000)
        for workload, option, words in (
            ("W2", "per_minute=-1", "per_minute: expected a number from 0 to 1,000,000"),
            ("W2", "per_minute=nan", "per_minute: expected"),
            ("W2", "hours=inf", "hours: expected"),
            ("W4", "prompt_tokens=0", "prompt_tokens: expected a number from 1 to 4,000,000"),
            ("W1", "direct=1.5", "direct: expected a number from 0 to 1"),
            ("W1", "patience_seconds=1e9", "patience_seconds: expected"),
            ("W3", "every_seconds=604800", "expected everybody within 604,800 s"),
            ("W4", "per_second=1000", "expected at most 2,000 clients in all"),
            ("W4", "per_second=0", "expected at least one client"),
        ):
            chosen = commandline.options([workload, *ENOUGH[1:], "--set", option])
            fault = str(self.assertRaises(Wrong, commandline.arrivals, chosen, {}))
            self.assertIn(words, fault)

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


class Documented(TestCase):
    """docs/load.md."""

    PAGE = (Path(__file__).parent.parent.parent / "docs" / "load.md").read_text(encoding="utf-8")

    def test_exit_statuses(self) -> None:
        """Every exit status is there, and in --help."""
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            self.assertRaises(SystemExit, commandline.options, ["--help"])
        told = said.getvalue().partition("exit status: ")[2]
        for status in (0, commandline.USAGE, commandline.UNREACHABLE, commandline.UNSERVED, 130):
            self.assertRegex(self.PAGE, rf"(?m)^\| {status}\b")
            self.assertRegex(told, rf"\b{status} ")

    def test_options_of_workloads(self) -> None:
        """Every number of W1 to W6 that can be set is named with its workload."""
        told = self.PAGE.partition("changes what they are made of (")[2].partition(");")[0]
        parts = {part.split()[-1]: part for part in " ".join(told.split()).split("; ")}
        for name in NAMES:
            chosen = commandline.options([name, *ENOUGH[1:], "--set", "none=1"])
            fault = str(self.assertRaises(Wrong, commandline.arrivals, chosen, {}))
            options = set(fault.partition("it has ")[2].split(", "))
            documented = parts["all"] + parts.get(name, "")
            self.assertEqual(options, set(re.findall(r"`(\w+)`", documented)), name)
