"""That what a check makes does not stay, and what is taken from an older gateway."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater

from tests.check.harness import (
    NOTHING,
    PUBLIC,
    Came,
    Says,
    ScriptedGateway,
    problem,
)
from tests.check.network import Network
from tests.check.services import KINDS, ServicesTestCase
from twisted_gateway.check.client import Client
from twisted_gateway.check.probe import Probe
from twisted_gateway.check.results import Failed, Report, Verdict
from twisted_gateway.check.runner import ALL_CLEANUP_SECONDS, Runner
from twisted_gateway.upstream.agent import UpstreamAgent


class CleanupTests(ServicesTestCase):
    """What a check has made is removed, whatever happened."""

    def setUp(self) -> None:
        super().setUp()
        self.gateway.serve(s3=KINDS["s3"])

    arguments = ("--token-env", "TOKEN", "--bucket", "checks", "--models", "")

    def test_after_a_failure(self) -> None:
        """An object that could not be deleted the first time is deleted at the end."""
        good, tries = self.gateway._delete, iter([problem(503, "service_refused")])
        self.gateway.says["s3/delete"] = lambda came: next(tries, None) or good(came)
        self.assertEqual(self.check(), 1)
        self.assertEqual(self.verdicts()["s3-delete s3"], "FAILED")
        self.assertIn("removed checks/llm-gateway-check/check-", self.rows()["cleanup"][1])
        self.assertEqual(self.gateway.objects, {})

    def test_left_behind(self) -> None:
        """What cannot be removed is named."""
        self.gateway.says["s3/delete"] = problem(503, "service_refused")
        self.assertEqual(self.check(), 1)
        self.assertEqual(self.verdicts()["cleanup"], "FAILED")
        (key,) = self.gateway.objects
        self.assertIn(f"checks/{key} of s3 is left behind: status 503", self.rows()["cleanup"][1])

    def test_put_without_an_answer(self) -> None:
        """What may have been put, for no answer came, is deleted."""

        def put(came: Came) -> Says:
            self.gateway._put(came)
            return NOTHING

        self.gateway.says["s3/put"] = put
        self.assertEqual(self.check("--timeout", "10", seconds=12), 1)
        self.assertEqual(self.verdicts()["s3-put s3"], "FAILED")
        self.assertEqual(self.gateway.objects, {})
        self.assertEqual(self.verdicts()["cleanup"], "ok")

    def test_put_refused(self) -> None:
        """What was refused is not there, and nobody is asked to remove it."""
        self.gateway.says["s3/put"] = problem(403, "service_refused")
        self.assertEqual(self.check(), 1)
        self.assertNotIn("cleanup", self.verdicts())

    def test_interrupted(self) -> None:
        """Ctrl-C while an object is there ends the run, and takes the object away."""
        self.gateway.says["s3/get"] = NOTHING
        path = Path(self.mktemp())
        made = self.begin(*self.arguments, "--junit", str(path))
        self.assertEqual(len(self.gateway.objects), 1)
        self.reactor.handlers[2](2, None)
        self.settle()
        self.assertEqual(self.status(made), 130)
        self.assertEqual(self.gateway.objects, {})
        verdict, said = self.rows()["s3-get s3"]
        self.assertEqual(verdict, "FAILED")
        self.assertIn("under way when the run was interrupted", said)
        self.assertEqual(self.verdicts()["cleanup"], "ok")
        self.assertIn("ended early", self.printed.getvalue())
        self.assertNotIn("s3-delete s3", self.verdicts())
        # A pipeline that looks at the XML alone does not take it for a run that went well.
        (suite,) = ElementTree.parse(path).getroot()
        self.assertEqual(suite.get("failures"), "1")

    def test_terminated(self) -> None:
        """SIGTERM, as a Job's deadline sends it, does the same; nothing hangs in the cleanup."""
        self.gateway.says["s3/get"] = NOTHING
        made = self.begin(*self.arguments)
        self.gateway.says["s3/delete"] = NOTHING
        self.reactor.handlers[15](15, None)
        self.advance(11)
        self.assertEqual(self.status(made), 143)
        self.assertIn("is left behind: no whole answer within 10 s", self.rows()["cleanup"][1])

    def test_deadline(self) -> None:
        """When the time for all is over the check under way has failed, and what it made goes."""
        self.gateway.says["s3/get"] = NOTHING
        self.assertEqual(self.check("--deadline", "30", "--timeout", "60", seconds=31), 1)
        self.assertEqual(self.verdicts()["s3-get s3"], "FAILED")
        self.assertIn("time for all checks was over", self.rows()["s3-get s3"][1])
        self.assertEqual(self.gateway.objects, {})
        self.assertEqual(self.verdicts()["cleanup"], "ok")

    def test_deadline_in_the_cleanup(self) -> None:
        """Neither a deadline nor a first signal that comes then cuts the cleanup short."""
        self.gateway.says["s3/get"] = NOTHING
        made = self.begin(*self.arguments, "--deadline", "20")
        self.gateway.says["s3/delete"] = NOTHING
        self.advance(16)
        self.reactor.handlers[2](2, None)
        self.advance(5)
        self.assertNoResult(made)
        self.advance(6)
        self.assertEqual(self.status(made), 130)
        self.assertIn("is left behind", self.rows()["cleanup"][1])

    def test_cut_while_it_cleans_up(self) -> None:
        """What comes when all was checked does not cut the cleanup short either."""
        for number, deadline, status in ((2, 900, 130), (15, 900, 143), (None, 30, 1)):
            for answers in (True, False):
                self.again()
                self.gateway.serve(s3=KINDS["s3"])
                self.deletes = 0
                self.gateway.says["s3/delete"] = self.slowly
                made = self.begin(*self.arguments, "--deadline", str(deadline), "--timeout", "28")
                # The first hangs until its time is over, the second is the cleanup's.
                self.advance(29)
                self.assertEqual((self.deletes, self.verdicts()["s3-delete s3"]), (2, "FAILED"))
                if number is not None:
                    self.reactor.handlers[number](number, None)
                self.advance(2)
                self.assertNoResult(made)
                if answers:
                    self.late()
                self.advance(8)
                self.assertEqual(self.status(made), status)
                said = "removed checks/" if answers else "left behind: no whole answer within 10 s"
                self.assertIn(said, self.rows()["cleanup"][1])
                self.assertNotIn("ended early", self.printed.getvalue())

    def slowly(self, came: Came) -> Says:
        self.deletes += 1
        return NOTHING

    def late(self) -> None:
        """Answer the delete that the cleanup waits for."""
        transport: Any = self.gateway.connections[-1].transport
        transport.write(b"HTTP/1.1 204 Gone\r\n\r\n")


class BoundTests(ServicesTestCase):
    """The cleanup by itself: there may be several things to remove."""

    def setUp(self) -> None:
        super().setUp()
        agent = UpstreamAgent(self.clock, connect_seconds=5.0, endpoints=Network(self.clock, {}))
        self.report = Report(url=PUBLIC, run_id="check-1", started=0.0)
        client = Client(agent, self.clock, "check-1", PUBLIC)
        self.runner = Runner(client, self.clock, self.report, seconds=120.0)
        self.tried: list[str] = []

    def leave(self, *names: str, fails: str = "") -> None:
        """Leave things that each take as long to remove as may be."""
        for name in names:

            async def remove(probe: Probe, name: str = name) -> str:
                self.tried.append(name)
                await deferLater(self.clock, probe.seconds)
                if name in fails:
                    raise Failed("it does not go")
                return ""

            self.runner.leave(name, remove)

    def clean_up(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self.runner.clean_up())

    def result(self) -> tuple[Verdict, str]:
        (result,) = self.report.results
        return result.verdict, result.said

    def test_each_is_tried(self) -> None:
        """One that does not go does not keep the others; the latest goes first."""
        self.leave("a", "b", "c", fails="b")
        made = self.clean_up()
        self.assertTrue(self.runner.cleaning)
        self.advance(31)
        self.successResultOf(made)
        self.assertFalse(self.runner.cleaning)
        self.assertEqual(self.tried, ["c", "b", "a"])
        self.assertEqual(self.result(), (Verdict.FAILED, "b is left behind: it does not go"))

    def test_all_in_a_time(self) -> None:
        """However many there are it ends in time for Kubernetes, and names the rest."""
        self.leave("a", "b", "c", "d", "e", "f")
        made = self.clean_up()
        self.advance(ALL_CLEANUP_SECONDS)
        self.successResultOf(made)
        self.assertEqual(self.tried, ["f", "e", "d", "c"])
        self.assertEqual(self.result(), (Verdict.FAILED, "b, a: left behind, for want of time"))

    def test_cancelled(self) -> None:
        """Who cancels it all the same reads what is left, the one under way included."""
        self.leave("a", "b", "c", fails="c")
        made = self.clean_up()
        self.advance(12)
        made.cancel()
        self.failureResultOf(made, CancelledError)
        self.assertEqual(
            self.result(),
            (
                Verdict.FAILED,
                "c is left behind: it does not go; b, a: left behind, for it was cut short",
            ),
        )


class OlderTests(ServicesTestCase):
    """A gateway of another release is not kept from being replaced by its own check."""

    def test_refusals(self) -> None:
        """A bare --accept is for what sees a refusal, and shows what was accepted."""
        self.gateway.serve(workflow=KINDS["workflow"])
        good = self.gateway._workflows

        def older(came: Came) -> Says:
            return good(came) if "namespace" in came.query else Says(404, b"", "text/plain")

        self.gateway.says["workflow/list"] = older
        self.assertEqual(self.check(), 1)
        self.assertEqual(self.of_services()["workflow-namespace workflow"], "FAILED")
        for accept in ("400,404", "workflow-namespace=404"):
            self.again()
            self.gateway.serve(workflow=KINDS["workflow"])
            self.gateway.says["workflow/list"] = older
            self.assertEqual(self.check("--accept", accept), 0)
            verdict, said = self.rows()["workflow-namespace workflow"]
            self.assertEqual(verdict, "accepted")
            self.assertIn("status 404, and 400 was expected", said)
            self.assertIn("1 accepted", self.printed.getvalue())

    def test_whatever_comes_with_it(self) -> None:
        """A status that is accepted needs nothing of what the right answer has."""
        self.patch(self.gateway, "answer", self.bare)
        self.assertEqual(self.check("--accept", "400,404"), 0, self.printed.getvalue())
        self.assertEqual(self.verdicts()["unknown-service"], "accepted")
        self.assertEqual(self.verdicts()["unknown-model"], "accepted")
        self.assertEqual(self.check("--accept", "403"), 1)

    def bare(self, came: Came) -> Says:
        said = ScriptedGateway.answer(self.gateway, came)
        return Says(said.status, {"error": "no"}) if said.status in (400, 404) else said

    def test_only_refusals(self) -> None:
        """A bare --accept does not let pass what is to work."""
        self.gateway.serve(iam=KINDS["iam"])
        self.gateway.says["iam/list-users"] = problem(404, "service_refused")
        self.assertEqual(self.check("--accept", "400,404"), 1)
        self.assertEqual(self.check("--accept", "iam-list=404"), 0)

    def test_no_list_of_services(self) -> None:
        """Where services are not listed those that are named are checked by their names."""
        del self.gateway.says["/v1/services"]
        status = self.check("--accept", "services=404", "--services", "sqs,workflow,memory")
        self.assertEqual(status, 0, self.printed.getvalue())
        self.assertEqual(self.verdicts()["services"], "accepted")
        names = ["no-token sqs", "sqs-list sqs", "workflow-list workflow"]
        names += ["workflow-namespace workflow", "memory-ingest memory", "memory-query memory"]
        self.assertEqual(self.of_services(), dict.fromkeys(names, "ok"))
