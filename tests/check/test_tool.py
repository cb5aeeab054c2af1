"""The program: options, files, credentials and exit statuses."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tests.check.harness import NOTHING, PUBLIC, Says, ToolTestCase
from tests.support import TestCase
from twisted_gateway.check import commandline, settings, tool
from twisted_gateway.check.settings import Settings
from twisted_gateway.config.faults import Wrong

SECRET = "very-secret"


class OptionTests(TestCase):
    """The command line."""

    def options(self, *arguments: str) -> Any:
        return commandline.options([PUBLIC, *arguments])

    def refused(self, *arguments: str) -> str:
        """See a command line refused in one line, with status 2."""
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            fault = self.assertRaises(SystemExit, commandline.options, list(arguments))
        self.assertEqual(fault.code, 2)
        self.assertEqual(said.getvalue().count("\n"), 1)
        return said.getvalue()

    def test_url(self) -> None:
        """An address may end in /v1, as clients know it, and bears no password."""
        for text in ("http://gate:8080/v1", "http://gate:8080/", "HTTP://GATE:8080"):
            self.assertEqual(commandline.options([text]).url, "http://gate:8080")
        self.assertEqual(commandline.options(["https://x/a/v1/"]).url, "https://x/a")
        said = self.refused(f"http://me:{SECRET}@gate")
        self.assertNotIn(SECRET, said)
        self.assertIn("name the gateway's URL", self.refused())
        self.assertIn("--admin is where", self.refused(PUBLIC, "--admin", f"{PUBLIC}/"))

    def test_models(self) -> None:
        """Models come with what they are for, or without; a name may hold anything."""
        chosen = self.options("--models", "a, b=rerank,ornith:35b,x=y,Qwen/Qwen3=chat")
        self.assertEqual(
            chosen.models,
            {"a": "", "b": "rerank", "ornith:35b": "", "x=y": "", "Qwen/Qwen3": "chat"},
        )
        self.assertEqual(self.options("--models", "").models, {})
        self.assertIsNone(self.options().models)

    def test_accept(self) -> None:
        """Statuses are for all refusals, or for one check."""
        arguments = ["--accept", "400,404", "--accept", "chat=503", "--accept", "chat=429"]
        accepted = settings.accepted(self.options(*arguments, "--accept", "403"))
        self.assertEqual(accepted.of_refusals, {400, 403, 404})
        self.assertEqual(accepted.of_checks, {"chat": {503, 429}})
        for text in (
            "200",
            "4xx",
            "",
            "chat=",
            "chat=99",
            "chat=600",
            "400,",
            "\u0664\u0660\u0664",
        ):
            self.assertIn("expected statuses", self.refused(PUBLIC, "--accept", text))
        self.assertIn("no check 'chats'", self.refused(PUBLIC, "--accept", "chats=404"))

    def test_skip(self) -> None:
        """Any check may be left out, but those without which there is none, or that clean up."""
        self.assertEqual(self.options("--skip", "chat", "--skip", "token").skip, ["chat", "token"])
        for name in ("ready", "cleanup", "other"):
            self.refused(PUBLIC, "--skip", name)

    def test_services(self) -> None:
        """Services are names; each once."""
        self.assertEqual(self.options("--services", "s3,iam,s3").services, ["s3", "iam"])
        self.assertEqual(self.options("--services", "").services, [])
        self.refused(PUBLIC, "--services", "a b")

    def test_wrong(self) -> None:
        """What does not go together, or is out of range, is refused."""
        for arguments in (
            ["--client-id", "me"],
            ["--client-secret-env", "X"],
            ["--client-id", "me", "--client-secret-env", "X", "--token-env", "Y"],
            ["--token-file", "f", "--token-env", "X"],
            ["--client-id", "me", "--client-secret-file", "f", "--client-secret-env", "X"],
            ["--bucket", ""],
            ["--namespace", " x"],
            ["--timeout", "0"],
            ["--wait", "-1"],
            ["--wait", "nan"],
            ["--body", "chat=file"],
            ["--body", "memory-ingest"],
            ["--token-parameter", "scope"],
            ["--token", SECRET],
        ):
            self.refused(PUBLIC, *arguments)


class CredentialTests(TestCase):
    """Credentials come from files and variables, and are in no message."""

    def run_(self, *arguments: str, **environ: str) -> Settings:
        return settings.read(commandline.options([PUBLIC, *arguments]), environ)

    def file(self, content: bytes) -> str:
        path = Path(self.mktemp())
        path.write_bytes(content)
        return str(path)

    def test_token(self) -> None:
        """A token is read, without the line break that files end in."""
        file = self.file(SECRET.encode() + b"\r\n")
        for run in (self.run_("--token-file", file), self.run_("--token-env", "T", T=SECRET)):
            self.assertEqual(run.tokens.gateway, SECRET)
            self.assertEqual(run.secrets, {SECRET})

    def test_client(self) -> None:
        """A client's secret is concealed in each form in which it goes out."""
        run = self.run_(
            *("--client-id", "me", "--client-secret-env", "S", "--token-parameter", "scope=a b"),
            *("--token-parameter", "resource=urn:x"),
            S="a/b%",
        )
        assert run.plan.grant is not None
        self.assertEqual(run.plan.grant.parameters, (("scope", "a b"), ("resource", "urn:x")))
        self.assertEqual(run.secrets, {"a/b%", "bWU6YSUyRmIlMjU="})

    def test_faults(self) -> None:
        """What is wrong is said with where, and without what."""
        for arguments, environ, why in (
            (("--token-env", "T"), {}, "T: expected a token, and there is none"),
            (("--token-env", "T"), {"T": f"{SECRET} x"}, "T: expected a token of visible ASCII"),
            (("--token-file", "/nowhere/t"), {}, "/nowhere/t cannot be read: No such file"),
            (("--token-file", self.file(b"\xff" + SECRET.encode())), {}, "visible ASCII"),
            (("--token-file", self.file(b"x" * 1_048_577)), {}, "at most 1048576 bytes"),
            (("--body", f"memory-query={self.file(b'{')}"), {}, "expected JSON"),
        ):
            fault = self.assertRaises(Wrong, self.run_, *arguments, **environ)
            self.assertIn(why, str(fault))
            self.assertNotIn(SECRET, str(fault))


class ReportTests(ToolTestCase):
    """Where the report goes."""

    def test_file(self) -> None:
        """The XML is in a file."""
        path = Path(self.mktemp())
        self.assertEqual(self.check("--junit", str(path)), 0)
        (suite,) = ElementTree.parse(path).getroot()
        self.assertEqual(suite.get("tests"), "12")

    def test_date(self) -> None:
        """The XML has the date of the calendar, and how long it took by the reactor's clock."""
        self.gateway.says["/v1/services"] = NOTHING
        path = Path(self.mktemp())
        self.assertEqual(self.check("--junit", str(path), "--timeout", "7", seconds=8), 1)
        (suite,) = ElementTree.parse(path).getroot()
        self.assertEqual(suite.get("timestamp"), "2026-11-30T00:53:20")
        self.assertEqual(suite.get("time"), "7.000")

    def test_standard_output(self) -> None:
        """Or the last thing of the output, from a line of its own on."""
        self.gateway.says["/v1/services"] = Says(500, b"\n<?xml version='1.0'?>")
        self.assertEqual(self.check("--junit", "-"), 1)
        before, found, document = self.printed.getvalue().partition("\n<?xml ")
        self.assertTrue(found)
        self.assertIn("failed", before.splitlines()[-1])
        (suite,) = ElementTree.fromstring(f"<?xml {document}".encode())
        self.assertEqual(suite.get("failures"), "1")

    def test_another_encoding(self) -> None:
        """The XML is UTF-8 though the terminal is not; the table is as near as it can be."""
        raw = io.BytesIO()
        self.patch(sys, "stdout", io.TextIOWrapper(raw, encoding="latin-1"))
        self.gateway.says["/v1/services"] = Says(500, {"detail": "\xe9 \N{ROCKET}"})
        self.assertEqual(self.check("--junit", "-"), 1)
        table, found, document = raw.getvalue().partition(b"\n<?xml ")
        self.assertTrue(found)
        self.assertIn(b"\xe9 ?", table)
        (suite,) = ElementTree.fromstring(b"<?xml " + document)
        (failure,) = suite.iter("failure")
        self.assertIn("\xe9 \N{ROCKET}", failure.get("message") or "")

    def test_output_that_is_closed(self) -> None:
        """Where no table can be written the XML is, the status says so, and nothing crashes."""
        path = Path(self.mktemp())
        for arguments, status in (("--junit", str(path)), 2), (("--junit", "-"), 2):
            self.patch(sys, "stdout", None)
            self.assertEqual(self.check(*arguments), status)
            self.assertIn("the standard output cannot be written", self.said.getvalue())
        (suite,) = ElementTree.parse(path).getroot()
        self.assertEqual((suite.get("tests"), suite.get("failures")), ("12", "0"))
        # What failed is the greater news.
        self.gateway.says["/v1/services"] = Says(500, b"")
        self.assertEqual(self.check(), 1)

    def test_not_ready(self) -> None:
        """A gateway that never came up has its report too."""
        self.gateway.servers.clear()
        path = Path(self.mktemp())
        self.assertEqual(self.check("--wait", "0", "--junit", str(path)), 3)
        (suite,) = ElementTree.parse(path).getroot()
        self.assertEqual((suite.get("tests"), suite.get("failures")), ("1", "1"))

    def test_cannot_be_written(self) -> None:
        """A file that cannot be written is a status of its own, unless something failed."""
        path = Path(self.mktemp()) / "nowhere" / "check.xml"
        self.assertEqual(self.check("--junit", str(path)), 2)
        self.assertIn("cannot be written", self.said.getvalue())
        self.gateway.says["/v1/services"] = Says(500, b"")
        self.assertEqual(self.check("--junit", str(path)), 1)


class MainTests(TestCase):
    """The program's start."""

    def main(self, *arguments: str) -> tuple[Any, str, str]:
        """Run it; gives status, output and errors. It does not come to a reactor."""
        out, err = io.StringIO(), io.StringIO()
        self.patch(sys, "argv", ["llm-gateway-check", *arguments])
        self.patch(tool, "react", lambda check, arguments: sys.exit("it was started"))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            fault = self.assertRaises(SystemExit, tool.main)
        return fault.code, out.getvalue(), err.getvalue()

    def test_list(self) -> None:
        """The checks are listed, without any gateway."""
        status, out, _ = self.main("--list")
        self.assertEqual(status, 0)
        self.assertIn("workflow-namespace", out)

    def test_list_that_is_lost(self) -> None:
        """Where it cannot be written the status says so."""
        self.patch(sys, "argv", ["llm-gateway-check", "--list"])
        self.patch(sys, "stdout", None)
        with contextlib.redirect_stderr(io.StringIO()) as said:
            fault = self.assertRaises(SystemExit, tool.main)
        self.assertEqual(fault.code, 2)
        self.assertIn("cannot be written", said.getvalue())

    def test_help(self) -> None:
        """The help has every exit status, and no line that a terminal of 100 columns breaks."""
        status, out, _ = self.main("--help")
        self.assertEqual(status, 0)
        words = " ".join(out.split())
        for said in (
            "the report cannot be written",
            "143 SIGTERM",
            "http://llm-gateway-admin:9090",
            "memory service stays",
            "What is not named is then left out.",
        ):
            self.assertIn(said, words)
        self.assertLessEqual(max(map(len, out.splitlines())), 100)

    def test_start(self) -> None:
        """With all that is needed it starts."""
        self.assertEqual(self.main(PUBLIC)[0], "it was started")

    def test_not_allowed(self) -> None:
        """A report that may not be written ends it as early."""
        self.patch(os, "access", lambda path, mode: False)
        status, _, err = self.main(PUBLIC, "--junit", self.mktemp())
        self.assertEqual(status, 2)
        self.assertIn("permission denied", err)

    def test_faults(self) -> None:
        """A file that is wrong ends it before anything is asked, with status 2."""
        missing = str(Path(self.mktemp()) / "x" / "y")
        for arguments in (["--token-file", missing], ["--junit", missing], ["--junit", "/"]):
            status, out, err = self.main(PUBLIC, *arguments)
            self.assertEqual((status, out), (2, ""))
            self.assertEqual(err.count("\n"), 1)
            self.assertTrue(err.startswith("llm-gateway-check: "))
