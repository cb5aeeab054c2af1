from __future__ import annotations

from typing import Any

from tests.services.sessions.apiserver import Reply, leaving, refusal, times
from tests.services.sessions.stack import ReaperTestCase, SessionsTestCase
from tests.services.stack import said
from twisted_gateway.services.adapter import BadAnswer
from twisted_gateway.services.sessions import kube
from twisted_gateway.services.sessions.kube_answers import whole

PAGES: tuple[dict[str, Any], ...] = (
    {"error": "default backend"},
    {"kind": "Pod", "reason": "NotFound", "message": "x"},
    {"kind": "Status", "reason": "Forbidden", "code": float("nan")},
    {},
)
"""What something in front of the API says for it: a proxy, a default backend."""
KINDS = ("persistentvolumeclaims", "services", "pods")


class PageTests(SessionsTestCase):
    """Statuses that are none of the API's own: they say nothing, as no answer does."""

    def there(self) -> list[str]:
        """What there is of the session, and stays."""
        found = self.api.objects.items()
        return sorted(kind for (kind, _), one in found if kind in KINDS and not leaving(one))

    def page(self, verb: str, kind: str, status: int, tree: dict[str, Any]) -> None:
        """Something answers such requests in the API's place."""
        self.api.fail = lambda asked, resource, name: (
            Reply(status, tree) if (asked, resource) == (verb, kind) else None
        )

    def test_nothing_is_absent(self) -> None:
        """A DELETE is not told that all is gone while all is there."""
        for tree in PAGES:
            self.running()
            self.api.fail = lambda verb, kind, name, tree=tree: Reply(404, tree)  # type: ignore[misc]
            client = self.delete()
            self.stack.advance(31)
            self.assertEqual(client.status, 502, tree)
            self.assertEqual(self.there(), sorted(KINDS))
            self.api.fail = lambda verb, kind, name: None

    def test_a_webhook_denies(self) -> None:
        """With 404 too, and a sentence for a reason: it is told, and nothing is absent."""
        denied = 'admission webhook "guard.example" denied the request: not in this namespace'
        for reason in ("", "Forbidden", "not in this namespace"):
            self.running()
            denial = {"kind": "Status", "reason": reason, "message": denied}
            self.api.fail = lambda verb, kind, name, tree=denial: (  # type: ignore[misc]
                Reply(404, tree) if verb in ("create", "delete") else None
            )
            client = self.delete()
            self.stack.advance(31)
            self.assertEqual((client.status, client.json["upstream_status"]), (404, 404))
            self.assertIn("denied the request", client.json["upstream_message"])
            self.assertEqual(self.there(), sorted(KINDS))
            self.api.fail = lambda verb, kind, name: None

    def test_passes(self) -> None:
        """It is asked again, until the API itself answers."""
        for status in (400, 401, 403, 404, 409, 410, 422):
            for tree in PAGES:
                session = f"s{status}-{PAGES.index(tree)}"
                self.running(session)
                self.api.fail = times("delete", "persistentvolumeclaims", Reply(status, tree))
                client = self.delete(session)
                self.assertEqual(client.status, 0)
                self.stack.advance(2)
                self.assertEqual((client.status, client.json["kubernetes"]), (200, "removed"))
                self.api.finish(session)
                self.assertEqual(self.there(), [])

    def test_nothing_is_rolled_back(self) -> None:
        """A POST that something in between refuses leaves what it has made, for the next one."""
        for status in (400, 403, 404, 409, 413, 422):
            for kind in ("services", "persistentvolumeclaims"):
                self.page("create", kind, status, PAGES[0])
                client = self.post()
                self.stack.advance(31)
                self.assertEqual(client.status, 502)
                self.assertIn("pods", self.there())
                self.assertIn(str(status), client.json["upstream_message"])
                self.api.fail = lambda verb, kind, name: None
                self.api.objects.clear()

    def test_serving_pod_stays(self) -> None:
        """A roll-back takes no pod that another replica's client has been given."""
        other = self.replica()
        mine = self.post()
        self.kube.holding = True
        theirs = other.post()
        self.api.become_ready()
        other.stack.settle()
        self.assertEqual(theirs.status, 200)
        self.page("get", "persistentvolumeclaims", 404, PAGES[0])
        self.kube.let_go()
        self.stack.advance(31)
        self.assertEqual(mine.status, 502)
        self.assertEqual(self.there(), sorted(KINDS))

    def test_pod_that_starts(self) -> None:
        """One that is waited for is waited for on."""
        client = self.post()
        pages = [Reply(status, PAGES[0]) for status in (400, 404, 422)]
        self.api.fail = times("watch", "pods", *pages)
        self.kube.end_watches()
        self.stack.advance(15)
        self.ready()
        self.assertEqual(client.status, 200)

    def test_words(self) -> None:
        """Nothing of such a page is told, in the answer or the log."""
        lines = said(self)
        page = {"message": "Bearer token-1 at 10.5.0.1:8001"}
        self.api.fail = lambda verb, kind, name: Reply(404, page)
        client = self.post()
        self.stack.advance(31)
        self.assertEqual(client.status, 502)
        for text in (client.received.decode(), *lines):
            self.assertNotIn("token-1", text)
            self.assertNotIn("10.5.0.1", text)
        self.assertIn(
            "something in front of the Kubernetes API answered 404", client.json["detail"]
        )


class WebhookTests(ReaperTestCase):
    """A webhook that refuses with a status which means something else where the API says it."""

    def test_deletion(self) -> None:
        """A 409 that is no Conflict does not mean that there is another object by now."""
        self.running()
        self.api.fail = lambda verb, kind, name: (
            refusal(409, "", "admission webhook denied it") if verb == "delete" else None
        )
        client = self.delete()
        self.assertEqual((client.status, client.json["upstream_status"]), (409, 409))
        self.assertEqual(client.json["upstream_message"], "admission webhook denied it")
        self.assertEqual(len([one for one in self.api.asked if one[0] == "delete"]), 3)

    def test_lease(self) -> None:
        """Nor that another replica has the Lease: the log says what is wrong."""
        lines = said(self)
        self.look()
        self.api.fail = times("update", "leases", refusal(409, "", "admission webhook denied it"))
        self.look()
        self.assertEqual(len([one for one in lines if "webhook denied it" in one]), 1)

    def test_quota(self) -> None:
        """Nor, with words like a quota's, that there will be room in a moment."""
        self.running()
        self.api.end()
        refusals = [refusal(403, "Invalid", "exceeded quota: of another kind")] * 2
        self.api.fail = times("create", "pods", *refusals)
        client = self.post()
        self.stack.advance(1)
        self.assertEqual(client.status, 403)

    def test_list(self) -> None:
        """Nor that a list has been forgotten half way."""
        lines = said(self)
        self.patch(kube, "PAGE_PODS", 1)
        for session in ("s1", "s2"):
            self.running(session)
        pages: list[Reply | None] = [None, refusal(410, "", "denied")]
        self.api.fail = lambda verb, kind, name: (
            pages.pop(0) if pages and (verb, kind) == ("list", "pods") else None
        )
        self.look()
        self.assertEqual(self.api.asked.count(("list", "pods")), 2)
        self.assertEqual(len([one for one in lines if "410 : denied" in one]), 1)


class WholeTests(SessionsTestCase):
    """Objects that lack what each has."""

    def test_nonsense(self) -> None:
        """They are an answer that is none, and never a fault of the gateway's."""
        good = {"name": "pi-session-s1", "uid": "1"}
        self.assertEqual(whole({"metadata": good}), {"metadata": good})
        for bad in (
            {"name": "pi-session-s1"},
            {"uid": "1"},
            {**good, "uid": 5},
            {**good, "uid": ""},
            {**good, "labels": ["x"]},
            {**good, "ownerReferences": {"uid": "1"}},
            {**good, "ownerReferences": ["1"]},
        ):
            pod = {"kind": "Pod", "metadata": bad}
            self.assertRaises(BadAnswer, whole, pod)
            for verb in ("get", "create"):
                self.api.fail = times(verb, "pods", Reply(200, pod))
                client = self.post()
                self.assertEqual(client.status, 502, bad)
            self.api.fail = times("get", "pods", Reply(200, pod))
            self.assertEqual(self.delete().status, 502, bad)
        nothing: tuple[object, ...] = ({"kind": "Status"}, {"metadata": None}, 5, None, [])
        for tree in nothing:
            self.assertRaises(BadAnswer, whole, tree)

    def test_another(self) -> None:
        """Nor is another session's object the one that was asked for."""
        self.running("s2")
        theirs = self.api.pod("s2")
        self.api.fail = times("get", "pods", Reply(200, theirs))
        self.assertEqual(self.post().status, 502)
        self.api.fail = times("get", "pods", Reply(200, theirs))
        self.assertEqual(self.delete().status, 502)
        self.assertFalse(leaving(theirs))

    def test_while_it_is_waited_for(self) -> None:
        """Nor does it end the waiting with anything but a clear answer."""
        client = self.post()
        page = {"metadata": {}, "items": [{"metadata": {"name": "pi-session-s1"}}]}
        self.api.fail = times("list", "pods", *[Reply(200, page)] * 100)
        self.kube.end_watches()
        self.stack.advance(31)
        self.assertEqual(client.status, 504)


class ListTests(ReaperTestCase):
    """A list that is none."""

    def test_nonsense(self) -> None:
        """The reaper says so, removes nothing, and looks again."""
        lines = said(self)
        self.running()
        self.api.end()
        for page in ({"items": 5}, {"items": ["x"]}, {"items": [{"metadata": {"name": "x"}}]}):
            self.api.fail = times("list", "pods", Reply(200, {"metadata": {}, **page}))
            self.look()
            self.assertEqual(self.api.names("pods"), ["pi-session-s1"])
        self.assertEqual(len([one for one in lines if "are not removed: " in one]), 1)
        self.assertEqual(len([one for one in lines if "failed" in one]), 0)
        self.look()
        self.assertEqual(self.api.names("pods"), [])
