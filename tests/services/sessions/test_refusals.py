from __future__ import annotations

import json

import kubernetes_validate  # type: ignore[import-untyped]
from twisted.web.http_headers import Headers

from tests.services.sessions.apiserver import (
    BROKEN_OFF,
    ETCD_TIMED_OUT,
    STARTING,
    TIMED_OUT,
    UNAVAILABLE,
    Reply,
    leaving,
    manifest,
    refusal,
    times,
)
from tests.services.sessions.stack import SessionsTestCase
from tests.services.sessions.validation import VERSION
from tests.services.stack import said
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.services.sessions.kube_answers import read_fault
from twisted_gateway.upstream.whole import WholeAnswer

WRITES = (
    ("patch", "networkpolicies"),
    ("create", "pods"),
    ("create", "services"),
    ("create", "persistentvolumeclaims"),
)
SESSION = ("persistentvolumeclaims", "pods", "services")


class RefusingTestCase(SessionsTestCase):
    """A test with an API that does not do as it is asked."""

    def left(self) -> list[str]:
        """What there is of the session, apart from what is going."""
        return sorted(
            kind
            for (kind, _), one in self.api.objects.items()
            if kind in SESSION
            if not leaving(one)
        )

    def refuse(
        self, verb: str, resource: str, status: int = 403, reason: str = "Forbidden"
    ) -> None:
        self.api.fail = lambda asked, kind, name: (
            refusal(status, reason, f"no {asked}") if (asked, kind) == (verb, resource) else None
        )

    def obey(self) -> None:
        self.api.fail = self.api.lose = lambda verb, kind, name: None


class RefusalTests(RefusingTestCase):
    """Kubernetes refuses."""

    def test_rolled_back(self) -> None:
        """Of what is refused nothing is left, whichever request it is."""
        for status in (400, 403, 413, 422):
            for verb, resource in WRITES:
                self.refuse(verb, resource, status)
                client = self.post()
                self.assertEqual(client.status, status, resource)
                self.assertEqual(client.json["upstream_message"], f"no {verb}")
                self.assertEqual(self.left(), [], resource)
                self.assertEqual(self.api.names("persistentvolumeclaims"), [], resource)

    def test_roll_back_refused(self) -> None:
        """What cannot be rolled back is said, and the client is told of the refusal."""
        self.api.fail = lambda verb, kind, name: (
            refusal(403, "Forbidden", f"no {verb}")
            if (verb, kind) in (("create", "services"), ("delete", "pods"))
            else None
        )
        client = self.post()
        self.assertEqual(client.json["upstream_message"], "no create")
        self.assertEqual(self.left(), ["pods"])

    def test_resumed(self) -> None:
        """What another refusal has left, which need not come again, is resumed."""
        for status, reason in (
            (401, "Unauthorized"),
            (404, "NotFound"),
            (405, "MethodNotAllowed"),
            (415, "UnsupportedMediaType"),
        ):
            self.refuse("create", "persistentvolumeclaims", status, reason)
            self.assertEqual(self.post().json["upstream_status"], status)
            self.assertEqual(self.left(), ["pods", "services"])
            self.obey()
            client = self.post()
            self.ready()
            self.assertEqual(client.status, 200)
            self.delete()
            self.api.finish()

    def test_of_another(self) -> None:
        """A pod that the attempt has not made itself is none to roll back."""
        self.post()
        del self.api.objects["services", "pi-session-s1"]
        self.stack.advance(31)
        self.refuse("create", "services")
        self.assertEqual(self.post().status, 403)
        self.assertEqual(self.left(), ["persistentvolumeclaims", "pods"])

    def test_contradiction(self) -> None:
        """An API whose words contradict each other is given up."""
        self.api.fail = lambda verb, kind, name: (
            refusal(409, "AlreadyExists", "") if verb == "create" else None
        )
        self.assertEqual(self.post().status, 502)
        self.assertLess(len(self.api.asked), 50)

    def test_workspace_kept(self) -> None:
        """A workspace that was there before is not rolled back."""
        self.running()
        self.api.end()
        self.refuse("create", "pods")
        self.assertEqual(self.post().status, 403)
        claim = self.api.objects["persistentvolumeclaims", "workspace-session-s1"]
        self.assertNotIn("deletionTimestamp", claim["metadata"])

    def test_unreachable(self) -> None:
        """An API that cannot be reached is 502."""
        self.kube.up = False
        client = self.post()
        self.assertEqual(client.status, 502)
        self.assertIs(self.stack.entries[-1].outcome, Outcome.UPSTREAM_ERROR)

    def test_bad_token(self) -> None:
        """A token that is not accepted is 401, as the API says; it is in no answer."""
        self.api.tokens = {"another"}
        client = self.post()
        self.assertEqual((client.status, client.json["upstream_status"]), (502, 401))
        self.assertNotIn(b"token-1", client.received)

    def test_crowded(self) -> None:
        """An API without room (429) is asked again when it says, a few times."""
        times: list[float] = []

        def fail(verb: str, resource: str, name: str) -> Reply | None:
            if (verb, resource) != ("get", "pods"):
                return None
            times.append(self.stack.now)
            return refusal(429, "TooManyRequests", "", 2) if len(times) < 3 else None

        self.api.fail = fail
        client = self.post()
        self.stack.advance(5)
        self.ready()
        self.assertEqual(client.status, 200)
        self.assertEqual([round(one - times[0]) for one in times[:3]], [0, 2, 4])

    def test_contended_quota(self) -> None:
        """A quota that others write to (409 Conflict) is no refusal."""
        conflicts = [refusal(409, "Conflict", "cannot be fulfilled on resourcequotas")]
        self.api.fail = lambda verb, kind, name: (
            conflicts.pop() if conflicts and (verb, kind) == ("create", "pods") else None
        )
        client = self.post()
        self.stack.advance(2)
        self.ready()
        self.assertEqual(client.status, 200)

    def test_nonsense(self) -> None:
        """An answer that is no object is 502."""
        answers: list[Reply] = [Reply(200, {}), Reply(302, {}), Reply(200, {"metadata": 5})]
        for answer in answers:
            self.api.fail = lambda verb, kind, name, answer=answer: answer  # type: ignore[misc]
            self.assertEqual(self.post().status, 502)

    def test_rbac(self) -> None:
        """All that is done is allowed by k8s/components/sandboxes/rbac.yaml, and nothing beyond."""
        self.running()
        self.delete()
        claim = self.api.objects["persistentvolumeclaims", "workspace-session-s1"]["metadata"]
        claim["finalizers"].append("example/held")
        self.post()
        self.api.finish()
        self.stack.settle()
        self.kube.end_watches()
        self.stack.advance(1)
        claim["finalizers"].clear()
        self.api._gone("persistentvolumeclaims", "workspace-session-s1")
        self.stack.settle()
        self.ready()
        self.stack.advance(11)
        self.stack.advance(301, step=5)
        allowed = {
            (verb, resource, "resourceNames" in rule)
            for rule in self.api.rules
            for verb in rule["verbs"]
            for resource in rule["resources"]
        }
        self.assertEqual(self.api.allowed, allowed)
        # Where a name can be told, no other will do.
        by_name = {
            (verb, resource): rule["resourceNames"]
            for rule in self.api.rules
            if "resourceNames" in rule
            for verb in rule["verbs"]
            for resource in rule["resources"]
        }
        reaper = ["pi-session-reaper"]
        self.assertEqual(
            by_name,
            {
                ("patch", "networkpolicies"): ["pi-session-sandbox"],
                ("get", "leases"): reaper,
                ("update", "leases"): reaper,
            },
        )

    def test_words(self) -> None:
        """What it says is told without addresses and the token, wherever it is cut; so is the log.

        Whatever may be in it: a webhook's address, or that of the API, by which it was asked.
        """
        lines = said(self)
        hidden = ("10.43.12.7:8443", "token-1", "10.5.0.1", "hook.policies.svc")
        for before in (0, *range(960, 1001, 5)):
            for words in (hidden, hidden[::-1]):
                message = "x" * before + " " + " ".join(words) + " denied" * 200
                self.api.fail = times("create", "pods", refusal(403, "Forbidden", message))
                client = self.post()
                self.assertEqual(client.status, 403)
                self.assertIn("x" * before, client.json["upstream_message"])
                self.assertLessEqual(len(client.json["upstream_message"]), 1000)
                shown = client.received.decode() + "".join(lines)
                for word in ("10.43", "10.5", "token-", "policies"):
                    self.assertNotIn(word, shown)
        self.assertTrue([one for one in lines if "could not be made: 403 Forbidden" in one])

    def test_its_own_name(self) -> None:
        """Its host is in none of its words, though any public one might be called so."""
        status = refusal(403, "Forbidden", "no route from kube.example.com").tree
        answer = WholeAnswer(403, Headers(), json.dumps(status).encode())
        fault = read_fault(answer, "https://kube.example.com:6443", "token-1")
        self.assertIn("no route from ***", str(fault))
        self.assertNotIn("kube.example", str(fault))

    def test_words_of_any_form(self) -> None:
        """What is no word of the API's is none."""
        for tree, shown in (
            ({"kind": "Status", "reason": "Forbidden", "message": "a\r\n\x1b[1mb"}, "a   [1mb"),
            ({"kind": "Status", "reason": "at 10.0.0.1", "message": 5}, ""),
        ):
            self.api.fail = times("create", "pods", Reply(403, tree))
            client = self.post()
            self.assertEqual(client.json["upstream_message"], shown)
            self.assertNotIn(b"10.0.0.1", client.received)

    def test_manifest(self) -> None:
        """The manifest is what Kubernetes takes."""
        for document in manifest():
            kubernetes_validate.validate(document, VERSION, strict=True)


class UnavailableTests(RefusingTestCase):
    """Kubernetes cannot serve a request now, or does not say what has become of it."""

    asked = (
        ("get", "pods"),
        ("get", "persistentvolumeclaims"),
        ("patch", "networkpolicies"),
        ("create", "pods"),
        ("get", "services"),
        ("create", "services"),
        ("create", "persistentvolumeclaims"),
    )

    def test_passes(self) -> None:
        """It is asked again, until it can; nothing is rolled back."""
        for verb, kind in self.asked:
            for number, reply in enumerate((UNAVAILABLE, STARTING, ETCD_TIMED_OUT, TIMED_OUT)):
                session = f"{kind[:4]}-{verb}-{number}"
                self.api.fail = times(verb, kind, reply, reply)
                client = self.post(session)
                self.stack.advance(6)
                self.ready(session)
                self.assertEqual(client.status, 200, session)
        self.assertNotIn("delete", {verb for verb, _ in self.api.asked})

    def test_carried_out_all_the_same(self) -> None:
        """What was made by a request that got no answer is found, and made once."""
        for verb, kind in self.asked:
            for number, reply in enumerate((TIMED_OUT, UNAVAILABLE, BROKEN_OFF)):
                if (verb, kind, reply) == ("get", "pods", BROKEN_OFF):
                    continue
                session = f"{kind[:4]}-{verb}-{number}"
                self.api.created.clear()
                self.api.lose = times(verb, kind, reply)
                client = self.post(session)
                self.stack.advance(1)
                self.ready(session)
                self.stack.advance(1)
                self.assertEqual(client.status, 200, session)
                made = [kind for kind, name in self.api.created if name.endswith(session)]
                self.assertEqual(sorted(made), list(SESSION), session)

    def test_found_and_refused(self) -> None:
        """A pod made without an answer is rolled back too, and the Service goes with it."""
        self.api.lose = times("create", "pods", TIMED_OUT)
        self.refuse("create", "persistentvolumeclaims")
        client = self.post()
        self.stack.advance(1)
        self.assertEqual(client.status, 403)
        self.assertEqual(self.left(), [])

    def test_service_made_late(self) -> None:
        """A Service that is made behind a 504, when its pod has been rolled back, goes too."""
        self.kube.holding = True
        client = self.post()
        self.kube.step(6)
        (late,) = self.kube.held
        self.assertIn("/services", late.path)
        self.kube.held = []
        self.api.fail = times("create", "services", refusal(403, "Forbidden", "exceeded quota"))
        late.answer(504)
        self.kube.holding = False
        self.stack.advance(1)
        self.assertEqual(client.status, 403)
        late.wire.closed = True
        self.kube.reply(late)
        self.assertIn(("services", "pi-session-s1"), self.api.created)
        self.assertEqual(self.left(), [])

    def test_lasts(self) -> None:
        """One that fails for good is told of in time, with its own status and words."""
        self.api.fail = lambda verb, kind, name: UNAVAILABLE
        client = self.post()
        self.stack.advance(15)
        self.assertEqual(client.status, 0)
        self.stack.advance(16)
        self.assertEqual((client.status, client.json["upstream_status"]), (503, 503))
        self.assertIn("unable to handle", client.json["upstream_message"])
        self.assertLess(len(self.api.asked), 15)

    def test_asks_for_too_long(self) -> None:
        """One that wants to be left alone for longer than there is time is told of at once."""
        self.api.fail = times("get", "pods", refusal(503, "ServiceUnavailable", "", 60))
        client = self.post()
        self.assertEqual(client.status, 503)
        self.assertEqual(client.headers["retry-after"], "60")

    def test_breaks_off(self) -> None:
        """One that cannot be reached is told of at once, unless it has answered before."""
        self.api.fail = times("get", "persistentvolumeclaims", BROKEN_OFF)
        self.assertEqual(self.post().status, 502)
        self.api.fail = times("create", "pods", BROKEN_OFF, BROKEN_OFF)
        client = self.post()
        self.stack.advance(2)
        self.ready()
        self.assertEqual(client.status, 200)
