"""What others do between two requests of one attempt: nothing of theirs is taken for one's own."""

from __future__ import annotations

from collections.abc import Callable

from tests.services.sessions.apiserver import UNAVAILABLE, Reply, leaving, refusal
from tests.services.sessions.stack import WITH_ENTITY, SessionsTestCase, tree
from tests.services.sessions.test_apiserver import ADAPTER
from tests.stack import Client
from twisted_gateway.services.sessions import objects


class MeanwhileTests(SessionsTestCase):
    """POST, while another replica is at the same session."""

    def before(
        self, verb: str, resource: str, act: Callable[[], object], refused: str = ""
    ) -> None:
        """Have something done just before the first request of a kind is carried out.

        Until then no object of the kind `refused` may be created.
        """

        def fail(asked: str, kind: str, name: str) -> Reply | None:
            if (asked, kind) == (verb, resource):
                self.api.fail = lambda verb, kind, name: None
                act()
            elif (asked, kind) == ("create", refused):
                return refusal(403, "Forbidden", "exceeded quota")
            return None

        self.api.fail = fail

    def remake(self) -> None:
        """The pod is deleted, and another one made."""
        old = self.api.pod()
        self.api._gone("pods", "pi-session-s1")
        self.api._store_new("pods", {**old, "metadata": {**old["metadata"]}})

    def ready_and_gone(self) -> Client:
        """A POST whose pod has become Ready, and gone, before it begins to wait for that."""
        self.running()
        self.api.end()
        self.api.fail = lambda verb, kind, name: (
            UNAVAILABLE if (verb, kind) == ("get", "services") else None
        )
        client = self.post()
        self.api.become_ready()
        return client

    def test_ready_once(self) -> None:
        """A watch begins with what was: a pod that was Ready, and has gone, is not given."""
        client = self.ready_and_gone()
        self.api.disrupt()
        self.api.finish()
        self.api.fail = lambda verb, kind, name: None
        self.stack.advance(3)
        self.assertEqual(client.status, 0)
        self.ready()
        self.assertEqual(client.status, 200)

    def test_ready_once_and_removed(self) -> None:
        """Nor is one that a DELETE has removed since: that is 409."""
        client = self.ready_and_gone()
        self.assertEqual(self.remove_elsewhere().status, 200)
        self.api.finish()
        self.api.fail = lambda verb, kind, name: None
        self.stack.advance(3)
        self.assertEqual(client.status, 409)
        self.assertEqual(self.api.names("pods"), [])

    def remove_elsewhere(self) -> Client:
        """Another replica removes the session, with an API that serves it."""
        other = self.replica()
        failing, self.api.fail = self.api.fail, lambda verb, kind, name: None
        client = other.delete()
        self.api.fail = failing
        return client

    def test_removed_and_ready(self) -> None:
        """A pod that gets Ready on a workspace that is being removed goes with it."""
        client = self.post()
        self.api.become_ready()
        self.api._delete("persistentvolumeclaims", "workspace-session-s1", {})
        self.stack.settle()
        self.assertEqual(client.status, 409)
        self.assertTrue(leaving(self.api.pod()))

    def test_another_claim(self) -> None:
        """A pod that was seen before the session was removed and made anew is not given."""
        self.running()
        pod = self.api.pod()
        other = self.replica()
        self.kube.holding = True
        client = self.post()
        while not any("/pods/" in asked.path for asked in self.kube.held):
            self.kube.step()
        self.kube.step()
        other.delete()
        self.api.finish()
        other.post()
        self.kube.let_go()
        self.assertNotEqual(self.api.pod()["metadata"]["uid"], pod["metadata"]["uid"])
        self.assertIn(client.status, (0, 409))
        self.api.become_ready()
        for one in (self, other):
            one.stack.settle()
        self.assertEqual(client.status, 409)

    def test_port(self) -> None:
        """The port is the Service's own, whatever the configuration says by now."""
        self.running()
        self.stack.text = self.config.replace("storage:", "port: 9000\n    storage:")
        self.assertTrue(self.stack.gateway.reload())
        service = self.api.objects["services", "pi-session-s1"]
        self.assertEqual(service["spec"]["ports"][0]["port"], 8787)
        self.assertEqual(self.post().json["port"], 8787)
        self.assertEqual(self.post("s2").status, 0)
        self.ready("s2")
        self.assertEqual(self.post("s2").json["port"], 9000)

    def test_replaced(self) -> None:
        """A pod that has taken the place of one that had ended is not deleted for it."""
        self.running()
        self.api.end()
        self.before("delete", "pods", self.remake)
        client = self.post()
        self.stack.advance(2)
        self.assertFalse(leaving(self.api.pod()))
        self.assertEqual([kind for kind, _ in self.api.created], ["pods", "services"])
        self.ready()
        self.stack.advance(2)
        self.assertEqual(client.status, 200)

    def test_replaced_before_it_is_rolled_back(self) -> None:
        """Nor for one that was made, and is rolled back for its Service is refused."""
        self.before("delete", "pods", self.remake, refused="services")
        client = self.post()
        self.assertEqual(client.status, 403)
        self.assertFalse(leaving(self.api.pod()))

    def make_whole(self) -> None:
        """Another replica makes what is missing, and the pod serves."""
        pod = self.api.pod()
        self.api._store_new("services", objects.service(ADAPTER, "s1", pod))
        self.api._store_new("persistentvolumeclaims", objects.claim(ADAPTER, "s1"))
        self.api.become_ready()

    def test_made_whole_before_it_is_rolled_back(self) -> None:
        """A pod that serves by now, for another replica has made the rest, stays."""
        self.before("delete", "pods", self.make_whole, refused="services")
        client = self.post()
        self.assertEqual(client.status, 403)
        self.assertFalse(leaving(self.api.pod()))
        self.assertEqual(self.post().status, 200)

    def test_service_replaced(self) -> None:
        """A Service that has taken the place of a former pod's is not deleted for it."""
        self.api.collecting = False
        self.running()
        self.api.end()

        def replace() -> None:
            self.api._gone("services", "pi-session-s1")
            service = objects.service(ADAPTER, "s1", self.api.pod())
            self.replaced_by = self.api._store_new("services", service)["metadata"]["uid"]

        self.before("delete", "services", replace)
        client = self.post()
        self.ready()
        self.assertEqual(client.status, 200)
        found = self.api.objects["services", "pi-session-s1"]["metadata"]["uid"]
        self.assertEqual(found, self.replaced_by)

    def remove(self) -> None:
        """Another replica removes the session."""
        self.api._delete("persistentvolumeclaims", "workspace-session-s1", {})
        self.api._delete("pods", "pi-session-s1", {})

    def test_removed(self) -> None:
        """A pod that serves, and whose Service had to be made anew, may be about to be removed."""
        self.running()
        del self.api.objects["services", "pi-session-s1"]
        self.before("create", "services", self.remove)
        client = self.post()
        self.assertNotEqual(client.status, 200)
        self.api.finish()
        self.stack.advance(2)
        self.assertEqual(client.status, 409)
        self.assertEqual(self.api.names("services"), [])


class WeakTests(SessionsTestCase):
    """A memory service whose entities have weak tags."""

    config = WITH_ENTITY

    def test_weak(self) -> None:
        """They never match (RFC 9110, 13.1.1): the entity is put without a condition."""
        self.running()
        self.memory.last.answer(body={"a": 1}, extra='etag: W/"v1"\r\n')
        put = self.memory.last
        self.assertNotIn("if-match", put.headers)
        self.assertEqual(tree(put)["a"], 1)
        put.answer()
