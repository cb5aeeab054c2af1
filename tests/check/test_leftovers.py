"""That what a check makes does not stay, and what is taken from an older gateway."""

from __future__ import annotations

from tests.check.harness import (
    NOTHING,
    Came,
    Says,
    ScriptedGateway,
    problem,
)
from tests.check.services import KINDS, ServicesTestCase


class CleanupTests(ServicesTestCase):
    """What a check has made is removed, whatever happened."""

    def setUp(self) -> None:
        super().setUp()
        self.gateway.serve(s3=KINDS["s3"])

    def deletes(self) -> int:
        return self.gateway.keys("DELETE").count("s3/delete")

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
        made = self.begin("--token-env", "TOKEN", "--bucket", "checks", "--models", "")
        self.assertEqual(len(self.gateway.objects), 1)
        self.reactor.handlers[2](2, None)
        self.settle()
        self.assertEqual(self.status(made), 130)
        self.assertEqual(self.gateway.objects, {})
        self.assertEqual(self.rows()["s3-get s3"], ("skipped", "it was cut short"))
        self.assertEqual(self.verdicts()["cleanup"], "ok")
        self.assertIn("ended early", self.printed.getvalue())
        self.assertNotIn("s3-delete s3", self.verdicts())

    def test_terminated(self) -> None:
        """SIGTERM, as a Job's deadline sends it, does the same; nothing hangs in the cleanup."""
        self.gateway.says["s3/get"] = NOTHING
        made = self.begin("--token-env", "TOKEN", "--bucket", "checks", "--models", "")
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
        made = self.begin(
            *("--token-env", "TOKEN", "--bucket", "checks", "--models", "", "--deadline", "20")
        )
        self.gateway.says["s3/delete"] = NOTHING
        self.advance(16)
        self.reactor.handlers[2](2, None)
        self.advance(5)
        self.assertNoResult(made)
        self.advance(6)
        self.assertEqual(self.status(made), 130)
        self.assertIn("is left behind", self.rows()["cleanup"][1])


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
