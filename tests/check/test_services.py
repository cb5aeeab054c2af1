"""What is seen of services, and that what a check makes does not stay."""

from __future__ import annotations

from tests.check.harness import (
    Answer,
    Came,
    Says,
    ToolTestCase,
    problem,
    service,
)
from tests.check.services import KINDS, ServicesTestCase

OF_KIND = {
    "memory": ("memory-ingest", "memory-query"),
    "s3": ("s3-list", "s3-put", "s3-get", "s3-delete"),
    "sqs": ("sqs-list",),
    "workflow": ("workflow-list", "workflow-namespace"),
    "iam": ("iam-list",),
    "notification": ("notification-send",),
    "registry": ("registry-list",),
}
REFUSED = problem(502, "service_refused")


class GoodTests(ServicesTestCase):
    """Services that are as they should be."""

    def test_all(self) -> None:
        """Each is checked by what belongs to its kind, and none stays open without a token."""
        self.gateway.serve(**KINDS)
        self.gateway.says["sessions/sandbox"] = Says(200, {})
        self.assertEqual(self.check("--notify"), 0, self.printed.getvalue())
        expected = {f"no-token {name}": "ok" for name in KINDS}
        expected |= {f"{check} {name}": "ok" for name in OF_KIND for check in OF_KIND[name]}
        self.assertEqual(self.of_services(), {**expected, "sessions sessions": "skipped"})

    def test_nothing_stays(self) -> None:
        """What was put is deleted; what is sent says what it is."""
        self.gateway.serve(**KINDS)
        self.check()
        self.assertEqual(self.gateway.objects, {})
        (put,) = (one for one in self.gateway.came if one.key == "s3/put" and one.body)
        self.assertRegex(put.query["key"], r"\Allm-gateway-check/check-[0-9a-f]{8}\Z")
        self.assertEqual(put.query["bucket"], "checks")
        (ingest,) = (one for one in self.gateway.came if one.key == "memory/ingest")
        self.assertEqual(ingest.tree["source"], "llm-gateway-check")

    def test_no_phone_rings(self) -> None:
        """A notification is sent only when it is asked for, however the service was named."""
        self.gateway.serve(notification=KINDS["notification"])
        self.assertEqual(self.check("--services", "notification"), 0)
        self.assertEqual(self.of_services()["notification-send notification"], "skipped")
        # The one that is refused for want of a token could not have rung either.
        (came,) = (one for one in self.gateway.came if one.key == "notification/send-message")
        self.assertEqual((came.body, "authorization" in came.headers), (b"{}", False))

    def test_another_name(self) -> None:
        """What a service is decides its kind, and not its name."""
        self.gateway.says["archive/list"] = self.gateway.says["s3/list"]
        for resource in ("put", "get", "delete"):
            self.gateway.says[f"archive/{resource}"] = self.gateway.says[f"s3/{resource}"]
        self.gateway.serve(archive=KINDS["s3"])
        self.assertEqual(self.check(), 0)
        self.assertEqual(self.of_services()["s3-delete archive"], "ok")

    def test_open(self) -> None:
        """A service that takes no token is sent none."""
        self.gateway.serve(iam={**KINDS["iam"], "require_auth": False})
        open_ = self.gateway.says["iam/list-users"]
        self.gateway.says["no token"] = open_
        self.assertEqual(self.check(), 0)
        self.assertEqual(self.of_services(), {"iam-list iam": "ok"})
        (came,) = (one for one in self.gateway.came if one.key == "iam/list-users")
        self.assertNotIn("authorization", came.headers)

    def test_nobody_is_named(self) -> None:
        """Whoever is listed is in no report."""
        self.gateway.serve(iam=KINDS["iam"])
        self.check("--junit", "-")
        self.assertNotIn("ada", self.printed.getvalue())

    def test_bodies(self) -> None:
        """The memory service may take another body than ours."""
        file = self.mktemp()
        with open(file, "w", encoding="utf-8") as out:
            out.write('{"note": 1}')
        self.gateway.serve(memory=KINDS["memory"])
        self.check("--body", f"memory-ingest={file}")
        (came,) = (one for one in self.gateway.came if one.key == "memory/ingest")
        self.assertEqual(came.tree, {"note": 1})


class NotCheckedTests(ServicesTestCase):
    """What cannot be checked."""

    def test_no_token(self) -> None:
        """Without a token what takes one is skipped, and says why; what was named has failed."""
        self.token = False
        self.gateway.serve(iam=KINDS["iam"])
        self.assertEqual(self.check(), 0)
        verdict, said = self.rows()["iam-list iam"]
        self.assertEqual(verdict, "skipped")
        self.assertIn("--token-file", said)
        self.again()
        self.gateway.serve(iam=KINDS["iam"])
        self.assertEqual(self.check("--services", "iam"), 1)
        self.assertEqual(self.of_services(), {"no-token iam": "ok", "iam-list iam": "FAILED"})

    def test_scopes(self) -> None:
        """Where the token lacks a scope nothing is put, and so nothing is to be removed."""
        resources = KINDS["s3"]["resources"]
        closed = {**resources, "put": {**resources["put"], "allowed": False}}
        self.gateway.serve(s3={**KINDS["s3"], "resources": closed})
        self.assertEqual(self.check(), 0)
        verdict, said = self.rows()["s3-put s3"]
        self.assertEqual((verdict, said), ("skipped", "the token lacks the scopes for s3/put"))
        self.assertNotIn("s3/delete", self.gateway.keys())

    def test_no_bucket(self) -> None:
        """Without a bucket a store is skipped; one that was named has failed."""
        self.gateway.serve(s3=KINDS["s3"])
        self.assertEqual(ToolTestCase.check(self, "--token-env", "TOKEN"), 0)
        left_out = {name: self.of_services()[f"{name} s3"] for name in OF_KIND["s3"]}
        self.assertEqual(set(left_out.values()), {"skipped"})
        self.again()
        self.gateway.serve(s3=KINDS["s3"])
        self.assertEqual(ToolTestCase.check(self, "--token-env", "TOKEN", "--services", "s3"), 1)
        self.assertIn("--bucket", self.rows()["s3-list s3"][1])

    def test_neither_bucket_nor_token(self) -> None:
        """Whoever gave neither is told of both."""
        self.token = False
        for arguments, status in ((), 0), (("--services", "s3"), 1):
            self.again()
            self.gateway.serve(s3=KINDS["s3"])
            self.assertEqual(ToolTestCase.check(self, *arguments), status)
            said = self.rows()["s3-list s3"][1]
            self.assertIn("--token-file", said)
            self.assertIn("--bucket", said)

    def test_after_one_that_has_not_passed(self) -> None:
        """What comes after it is skipped, and says after what; it may be accepted all the same."""
        said = problem(404, "service_refused")
        for key, accept, status, skipped in (
            ("list", (), 1, 3),
            ("list", ("--accept", "s3-list=404", "--accept", "s3-put=404"), 0, 3),
            ("put", (), 1, 2),
        ):
            self.again()
            self.gateway.serve(s3=KINDS["s3"])
            self.gateway.says[f"s3/{key}"] = said
            self.assertEqual(self.check(*accept), status)
            rows = [self.rows()[f"{name} s3"] for name in OF_KIND["s3"][-skipped:]]
            self.assertEqual(rows, [("skipped", f"s3-{key} has not passed")] * skipped)

    def test_not_configured(self) -> None:
        """A service that is named and not there has failed."""
        self.gateway.serve(iam=KINDS["iam"])
        self.assertEqual(self.check("--services", "iam,s3"), 1)
        self.assertIn("not configured; there are iam", self.rows()["services s3"][1])

    def test_unknown_kind(self) -> None:
        """A kind that is unknown here is skipped; one that was named has failed."""
        self.gateway.serve(fax=service("send", kind="fax"))
        self.gateway.says["fax/send"] = Says(200, {})
        self.assertEqual(self.check(), 0)
        self.assertEqual(self.of_services()["services fax"], "skipped")
        self.again()
        self.gateway.serve(fax=service("send", kind="fax"))
        self.gateway.says["fax/send"] = Says(200, {})
        self.assertEqual(self.check("--services", "fax"), 1)


class BadTests(ServicesTestCase):
    """Each check is seen to fail."""

    def fails(
        self, name: str, kind: str, key: str, said: Answer, why: str, *, alone: bool = True
    ) -> None:
        """See a check fail, and no other unless it is said so."""
        self.again()
        self.gateway.serve(**{kind: KINDS[kind]})
        self.gateway.says["sessions/sandbox"] = Says(200, {})
        self.gateway.says[key] = said
        self.assertEqual(self.check("--notify"), 1, self.printed.getvalue())
        verdict, told = self.rows()[f"{name} {kind}"]
        self.assertEqual(verdict, "FAILED")
        self.assertIn(why, told)
        if alone:
            self.assertIn(" 1 failed", self.printed.getvalue())

    def test_refused(self) -> None:
        """A service that fails, or refuses the gateway, is told of in its words."""
        for name, key in (
            ("memory-ingest", "memory/ingest"),
            ("memory-query", "memory/query"),
            ("s3-list", "s3/list"),
            ("s3-put", "s3/put"),
            ("s3-get", "s3/get"),
            ("s3-delete", "s3/delete"),
            ("sqs-list", "sqs/list-queues"),
            ("workflow-list", "workflow/list"),
            ("iam-list", "iam/list-users"),
            ("notification-send", "notification/send-message"),
            ("registry-list", "registry/list-repos"),
        ):
            kind = key.partition("/")[0]
            alone = name not in ("s3-get", "s3-delete", "workflow-list")
            why = "status 502: it is service_refused"
            self.fails(name, kind, key, REFUSED, why, alone=alone)

    def test_no_list(self) -> None:
        """An answer that has not what it should have."""
        for name, kind, key, why in (
            ("s3-list", "s3", "s3/list", "no list 'objects'"),
            ("sqs-list", "sqs", "sqs/list-queues", "no list 'queues'"),
            ("iam-list", "iam", "iam/list-users", "no list 'users'"),
            ("registry-list", "registry", "registry/list-repos", "no list 'repositories'"),
            ("notification-send", "notification", "notification/send-message", "was sent"),
        ):
            self.fails(name, kind, key, Says(200, {}), why)

    def test_open_to_everybody(self) -> None:
        """A service that answers without a token, though it says that it takes one."""
        for kind in KINDS:
            self.fails("no-token", kind, "no token", Says(200, {}), "open to everybody")
            self.assertNotIn("memory/ingest", self.without_token())

    def without_token(self) -> list[str]:
        """What was asked of services without a token."""
        return [one.key for one in self.gateway.came if "authorization" not in one.headers]

    def test_workflows(self) -> None:
        """No namespace is served; a namespace is not."""
        good = self.gateway._workflows

        def every(came: Came) -> Says:
            return Says(200, {"executions": []})

        def none(came: Came) -> Says:
            return good(came) if "namespace" not in came.query else problem(404, "service_refused")

        key = "workflow/list"
        self.fails("workflow-namespace", "workflow", key, every, "status 200 (400 was expected)")
        self.fails("workflow-list", "workflow", key, none, "--namespace names one")

    def test_another_object(self) -> None:
        """What comes back is not what was put."""
        self.fails("s3-get", "s3", "s3/get", self.other, "other ones came back")

    def other(self, came: Came) -> Says:
        if came.query["key"] in self.gateway.objects:
            return Says(200, b"other", "application/octet-stream")
        return problem(404, "service_refused")

    def test_not_listed(self) -> None:
        """What was put is in no listing."""
        self.fails("s3-get", "s3", "s3/list", Says(200, {"objects": []}), "not in the listing")

    def test_no_bucket(self) -> None:
        """A bucket that there is not is told of, with what to do."""
        said = problem(404, "service_refused")
        self.fails("s3-list", "s3", "s3/list", said, "--bucket names one that there is")
