"""Faults of the check itself: they cost neither the other checks nor the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from twisted.logger import capturedLogs

from tests.check.harness import TOKEN
from tests.check.services import KINDS, ServicesTestCase
from twisted_gateway.check import gateway
from twisted_gateway.check.probe import Probe
from twisted_gateway.check.s3 import _Store
from twisted_gateway.check.suite import Suite
from twisted_gateway.upstream.agent import UpstreamAgent


async def _broken(*arguments: object) -> Any:
    raise KeyError(f"\x1b[2J {TOKEN}")


class FaultTests(ServicesTestCase):
    """A check that is wrong."""

    def setUp(self) -> None:
        super().setUp()
        self.gateway.serve(s3=KINDS["s3"])
        self.xml = Path(self.mktemp())
        self.closed = 0
        close = UpstreamAgent.close

        def counted(agent: UpstreamAgent) -> Any:
            self.closed += 1
            return close(agent)

        self.patch(UpstreamAgent, "close", counted)

    def run_(self) -> tuple[ElementTree.Element, str]:
        """See it fail, and close the agent; gives the suite in the XML, and what was logged."""
        with capturedLogs() as events:
            self.assertEqual(self.check("--junit", str(self.xml)), 1)
        self.assertEqual(self.closed, 1)
        (suite,) = ElementTree.parse(self.xml).getroot()
        (trace,) = (str(event["trace"]) for event in events if "trace" in event)
        shown = trace + self.printed.getvalue() + self.xml.read_text(encoding="utf-8")
        self.assertNotIn(TOKEN, shown)
        self.assertNotIn("\x1b", shown)
        return suite, trace

    def test_in_a_check(self) -> None:
        """It is that check's error; the others are made, and the log says where it is."""
        self.patch(gateway, "health", _broken)
        suite, trace = self.run_()
        verdict, said = self.rows()["health"]
        self.assertEqual(verdict, "FAILED")
        self.assertTrue(said.startswith("internal error: KeyError: "), said)
        self.assertEqual((suite.get("failures"), suite.get("errors")), ("0", "1"))
        self.assertEqual(self.verdicts()["s3-delete s3"], "ok")
        self.assertIn("1 failed", self.printed.getvalue())
        self.assertIn("_broken", trace)

    def test_between_checks(self) -> None:
        """What goes wrong between checks of models does not cost those of services."""
        self.patch(Suite, "_check_models", _broken)
        suite, _ = self.run_()
        self.assertEqual(suite.get("errors"), "1")
        self.assertEqual(self.verdicts()["s3-delete s3"], "ok")

    def test_in_the_cleanup(self) -> None:
        """What cannot be removed for it is named."""
        for name in ("delete", "_remove"):
            self.patch(_Store, name, _broken if name == "_remove" else self.refuse)
        self.run_()
        self.assertIn("is left behind: internal error: KeyError", self.rows()["cleanup"][1])

    async def refuse(self, probe: Probe) -> str:
        return "not deleted"

    def test_outside_of_all(self) -> None:
        """Wherever it is, there is a report of what was checked, and no connection is left."""
        self.patch(Suite, "_gateway", _broken)
        self.failureResultOf(self.begin("--junit", str(self.xml)), KeyError)
        self.assertEqual(self.closed, 1)
        self.assertIn("1 passed", self.printed.getvalue())
        self.assertIn("It was ended early", self.printed.getvalue())
        self.assertTrue(self.xml.exists())
