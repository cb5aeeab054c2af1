from __future__ import annotations

from tests.services.sessions.apiserver import (
    BROKEN_OFF,
    ETCD_TIMED_OUT,
    STARTING,
    UNAVAILABLE,
    Request,
    leaving,
    refusal,
    times,
)
from tests.services.sessions.stack import SessionsTestCase, tree
from tests.services.sessions.test_removal import KINDS


class UnavailableTests(SessionsTestCase):
    """DELETE, and Kubernetes cannot serve it now."""

    def test_passes(self) -> None:
        """It is asked again, until it can, and the client is told that it is done."""
        for kind in KINDS:
            self.running()
            self.api.fail = times("delete", kind, UNAVAILABLE, STARTING, ETCD_TIMED_OUT)
            client = self.delete()
            self.assertEqual(client.status, 0)
            self.stack.advance(5)
            self.assertEqual((client.status, client.json["kubernetes"]), (200, "removed"), kind)
            self.api.finish()
            self.assertEqual([kind for kind, _ in self.api.objects if kind in KINDS], [])

    def test_none_waits_for_another(self) -> None:
        """What can be removed is, at once, while another is asked for again."""
        for kind in KINDS:
            self.running()
            self.api.fail = lambda verb, asked, name, kind=kind: (  # type: ignore[misc]
                UNAVAILABLE if (verb, asked) == ("delete", kind) else None
            )
            client = self.delete()
            gone = [one for one, tree in self.api.objects.items() if not leaving(tree)]
            self.assertEqual([one for one, _ in gone if one in KINDS], [kind])
            self.stack.advance(31)
            self.assertEqual((client.status, client.json["upstream_status"]), (503, 503))
            self.api.fail = lambda verb, asked, name: None
            self.delete()
            self.stack.advance(1)
            self.api.finish()

    def test_refused_and_unavailable(self) -> None:
        """A refusal of one keeps another from nothing."""
        self.running()
        passing = times("delete", "pods", UNAVAILABLE)
        self.api.fail = lambda verb, kind, name: (
            refusal(403, "Forbidden", "no")
            if (verb, kind) == ("delete", "services")
            else passing(verb, kind, name)
        )
        client = self.delete()
        self.stack.advance(1)
        self.assertEqual(client.status, 403)
        self.assertTrue(leaving(self.api.pod()))

    def test_workspace_made_in_between(self) -> None:
        """A workspace that comes while the session is removed is removed too."""
        self.post()
        claims = self.api.objects
        claim = claims.pop(("persistentvolumeclaims", "workspace-session-s1"))
        other = self.replica()
        other.kube.holding = True
        client = other.delete()
        other.kube.step(2)
        claims["persistentvolumeclaims", "workspace-session-s1"] = claim
        other.kube.let_go()
        self.assertEqual((client.status, client.json["kubernetes"]), (200, "removed"))
        self.api.finish()
        self.stack.settle()
        self.assertEqual(self.api.names("persistentvolumeclaims"), [])

    def test_put_back_in_between(self) -> None:
        """A pod that another replica has put back, before the workspace could go, goes as well."""
        other = self.replica()
        self.running()
        self.api.fail = times("delete", "persistentvolumeclaims", UNAVAILABLE)
        removed = self.delete()
        self.api.finish()
        made = other.post()
        self.api.become_ready()
        other.stack.settle()
        self.assertEqual((removed.status, made.status), (0, 200))
        self.stack.advance(2)
        self.assertEqual(removed.status, 200)
        self.api.finish()
        self.assertEqual([kind for kind, _ in self.api.objects if kind in KINDS], [])

    def test_carried_out_late(self) -> None:
        """A deletion that is carried out behind a 504 meets nothing that was made since."""
        for kind in KINDS:
            session = kind[:4]
            self.running(session)
            self.kube.asked.clear()
            self.api.fail = times("delete", kind, UNAVAILABLE)
            removed = self.delete(session)
            self.stack.advance(2)
            self.assertEqual(removed.status, 200)
            self.api.finish(session)
            made = self.post(session)
            self.ready(session)
            self.assertEqual(made.status, 200)
            late = next(
                one for one in self.kube.asked if one.method == "DELETE" and kind in one.path
            )
            reply = self.api.handle(Request(late.method, late.path, late.headers, late.body))
            self.assertEqual(reply.status, 409, kind)
            self.assertEqual(self.post(session).json, made.json)

    def test_broken_off(self) -> None:
        """An API that has answered, and then breaks off, is waited for."""
        for kind in KINDS:
            self.running()
            self.api.fail = times("delete", kind, BROKEN_OFF, BROKEN_OFF)
            client = self.delete()
            self.stack.advance(5)
            self.assertEqual((client.status, client.json["kubernetes"]), (200, "removed"), kind)
            self.api.finish()

    def test_replaced_while_it_is_looked_at(self) -> None:
        """What is put in a part's place, between its being seen and deleted, is seen as well."""
        self.running()
        uid = self.api.pod()["metadata"]["uid"]

        def fail(verb: str, kind: str, name: str) -> None:
            if (verb, kind) == ("delete", "pods") and self.api.pod()["metadata"]["uid"] == uid:
                self.api.pod()["metadata"]["uid"] = "another"

        self.api.fail = fail
        self.assertEqual(self.delete().status, 200)
        self.assertTrue(leaving(self.api.pod()))

    def test_bounded_by_the_api(self) -> None:
        """Every write tells the API how long it is waited for: none is carried out behind that."""
        self.running()
        self.delete()
        written = [one for one in self.kube.asked if one.method != "GET"]
        self.assertEqual({one.method for one in written}, {"PATCH", "POST", "DELETE"})
        self.assertEqual([one.path for one in written if "timeout=9s" not in one.path], [])
        uids = [tree(one)["preconditions"] for one in written if one.method == "DELETE"]
        self.assertEqual([list(one) for one in uids], [["uid"]] * 3)
