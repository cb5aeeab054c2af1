"""What is printed and written at the end."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

from tests.support import TestCase
from twisted_gateway.check import commandline
from twisted_gateway.check.catalogue import CHECKS, Accepted
from twisted_gateway.check.client import one_line
from twisted_gateway.check.junit import junit
from twisted_gateway.check.results import Report, Result, Verdict
from twisted_gateway.check.table import catalogue, footer, row

_OF_OTHERS = {
    *("--demo", "--force", "--follow", "--for", "--local", "--pod-running-timeout"),
}
"""Options of twistd and kubectl that the page uses."""

PASSED = Result(
    name="chat",
    subject="reasoning",
    verdict=Verdict.PASSED,
    said="16 tokens",
    seconds=1.24,
    request_ids=("check-1-7",),
)
FAILED = Result(
    name="s3-put",
    subject="s3",
    verdict=Verdict.FAILED,
    said='status 403: <AccessDenied> & "more"',
    seconds=0.5,
    request_ids=("check-1-8", "check-1-9"),
)
SKIPPED = Result(name="token", verdict=Verdict.SKIPPED, said="--skip says so")
ACCEPTED = Result(
    name="unknown-model", verdict=Verdict.ACCEPTED, said="status 404", request_ids=("check-1-3",)
)


def report(*results: Result, **changes: object) -> Report:
    facts = {"url": "http://one:80", "run_id": "check-1", "started": 1_796_000_000.0}
    return Report(**(facts | {"results": list(results)} | changes))  # type: ignore[arg-type]


class TableTests(TestCase):
    """The table, and what stands below."""

    def test_rows(self) -> None:
        """A row says how the check ended, and of what is not as expected by which requests."""
        self.assertEqual(
            row(PASSED), "ok        chat                  1.2 s  reasoning: 16 tokens\n"
        )
        self.assertEqual(
            row(FAILED),
            'FAILED    s3-put                0.5 s  s3: status 403: <AccessDenied> & "more" '
            "[check-1-8, check-1-9]\n",
        )
        self.assertEqual(row(SKIPPED), "skipped   token                        --skip says so\n")
        self.assertTrue(row(ACCEPTED).endswith("status 404 [check-1-3]\n"))

    def test_narrow(self) -> None:
        """On a narrow terminal rows are broken."""
        lines = row(FAILED, 60).splitlines()
        self.assertGreater(len(lines), 1)
        self.assertLessEqual(max(map(len, lines)), 60)

    def test_every_name_has_room(self) -> None:
        """The columns stand below each other, whatever the check."""
        places = {
            row(Result(name=name, verdict=Verdict.FAILED, said="~")).index("~") for name in CHECKS
        }
        self.assertEqual(len(places), 1)

    def test_footer(self) -> None:
        """It counts what there is, and says how to find the requests."""
        told = footer(report(PASSED, PASSED, FAILED, SKIPPED, ACCEPTED, seconds=3.21))
        self.assertEqual(
            told,
            "\n2 passed, 1 accepted, 1 failed, 1 skipped in 3.2 s. "
            "In the gateway's log the requests are check-1-1 and on.\n",
        )
        self.assertIn("ended early", footer(report(PASSED, interrupted=True)))

    def test_catalogue(self) -> None:
        """Every check has its line."""
        lines = catalogue().splitlines()
        self.assertEqual([line.split()[0] for line in lines], list(CHECKS))
        refusals = [line.split()[0] for line in lines if line.endswith("(a refusal)")]
        self.assertEqual(refusals, [name for name, one in CHECKS.items() if one.refusal])


class PageTests(TestCase):
    """docs/check.md."""

    def setUp(self) -> None:
        super().setUp()
        page = Path(__file__).parents[2] / "docs" / "check.md"
        self.text = page.read_text(encoding="utf-8")

    def test_checks(self) -> None:
        """Its table has every check, and no other."""
        rows = re.findall(r"^\| (`[a-z0-9`, -]+`) \|.*\|.*\|$", self.text, re.M)
        named = re.findall(r"`([a-z0-9-]+)`", " ".join(rows))
        self.assertEqual(set(named), set(CHECKS))
        self.assertEqual(len(named), len(set(named)))

    def test_options(self) -> None:
        """Every option that it names is one, and none is missing."""
        known = set(re.findall(r"--[a-z][a-z-]+", commandline._parser().format_help()))
        ours = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", self.text)) - _OF_OTHERS
        self.assertEqual(ours - known, set())
        self.assertEqual(known - ours, {"--version"})


class AcceptedTests(TestCase):
    """Which statuses a check takes."""

    def test_by(self) -> None:
        """A bare list is for refusals, a named one for its check, and they add up."""
        accepted = Accepted(
            frozenset({404}), {"chat": frozenset({503}), "no-token": frozenset({200})}
        )
        for name, codes in (
            ("chat", {503}),
            ("no-token", {200, 404}),
            ("unknown-model", {404}),
            ("stream", set()),
        ):
            self.assertEqual(accepted.by(CHECKS[name]), codes)


class JunitTests(TestCase):
    """JUnit XML, as Ant's schema and Jenkins' have it."""

    def setUp(self) -> None:
        super().setUp()
        results = (PASSED, FAILED, SKIPPED, ACCEPTED)
        self.document = junit(report(*results, seconds=3.25, admin="http://one:90"), "host")
        self.suites = ElementTree.fromstring(self.document)
        (self.suite,) = self.suites

    def test_begins_a_line(self) -> None:
        """It can be cut out of a log by its first line."""
        self.assertTrue(self.document.startswith(b"<?xml version='1.0' encoding='utf-8'?>\n"))
        self.assertTrue(self.document.endswith(b"</testsuites>\n"))

    def test_suite(self) -> None:
        """The suite bears every attribute that either schema wants, in its form."""
        self.assertEqual(
            self.suite.attrib,
            {
                "name": "llm-gateway-check",
                "package": "llm-gateway-check",
                "id": "0",
                "hostname": "host",
                "timestamp": "2026-11-30T00:53:20",
                "time": "3.250",
                "tests": "4",
                "failures": "1",
                "errors": "0",
                "skipped": "1",
            },
        )
        self.assertEqual(self.suites.attrib, {})
        # Of both schemas: a name is a token, which neither begins nor ends with a blank.
        for case in self.suite.iter("testcase"):
            self.assertEqual(set(case.attrib), {"classname", "name", "time"})
            for value in case.attrib.values():
                self.assertEqual(value, " ".join(value.split()))
                self.assertTrue(value)

    def test_order(self) -> None:
        """The parts stand in the one order that Ant's schema takes, each there."""
        tags = [child.tag for child in self.suite]
        self.assertEqual(tags, ["properties", *["testcase"] * 4, "system-out", "system-err"])
        for case in self.suite.iter("testcase"):
            self.assertLessEqual(len(case), 1)

    def test_cases(self) -> None:
        """A failure says what is wrong and by which requests, a skipped one why."""
        cases = {case.get("classname"): case for case in self.suite.iter("testcase")}
        self.assertEqual(len(cases["llm-gateway-check.chat"]), 0)
        self.assertEqual(cases["llm-gateway-check.chat"].get("name"), "reasoning")
        (failure,) = cases["llm-gateway-check.s3-put"]
        self.assertEqual(failure.get("message"), FAILED.said)
        self.assertEqual(failure.get("type"), "s3-put")
        self.assertIn("[check-1-8, check-1-9]", failure.text or "")
        (skipped,) = cases["llm-gateway-check.token"]
        self.assertEqual((skipped.tag, skipped.get("message")), ("skipped", "--skip says so"))
        self.assertEqual(len(cases["llm-gateway-check.unknown-model"]), 0)

    def test_internal(self) -> None:
        """A fault of the check itself is an error, and no failure."""
        broken = Result(name="health", verdict=Verdict.FAILED, said="internal error", internal=True)
        (suite,) = ElementTree.fromstring(junit(report(FAILED, broken), "host"))
        self.assertEqual((suite.get("failures"), suite.get("errors")), ("1", "1"))
        children = [[one.tag for one in case] for case in suite.iter("testcase")]
        self.assertEqual(children, [["failure"], ["error"]])

    def test_log(self) -> None:
        """What is accepted, and the ids of all requests, stand in the suite's output."""
        out = self.suite.findtext("system-out") or ""
        self.assertIn("accepted unknown-model status 404 [check-1-3]", out)
        self.assertIn("ok chat reasoning: 16 tokens [check-1-7]", out)

    def test_hostile_text(self) -> None:
        """Whatever a server says, the document is well-formed, and begins once."""
        said = one_line("\x00\x0b\ufffe\ud800]]> <?xml \n<?xml \u202e\N{ROCKET}", 500)
        bad = Result(name="chat", subject=said, verdict=Verdict.FAILED, said=said)
        document = junit(report(bad), "")
        (suite,) = ElementTree.fromstring(document)
        self.assertEqual(suite.get("hostname"), "localhost")
        self.assertEqual(len(re.findall(rb"^<\?xml ", document, re.M)), 1)
        self.assertIn("\N{ROCKET}", suite.findtext("system-out") or "")
