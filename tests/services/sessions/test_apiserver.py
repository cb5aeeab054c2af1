"""What the other tests take for granted of Kubernetes (the sources are named in cluster.py)."""

from __future__ import annotations

import json
from typing import Any

from tests.services.sessions.apiserver import TIMED_OUT, ApiServer, Reply, Request, leaving, times
from tests.services.sessions.test_objects import MINIMAL, adapter
from tests.support import TestCase
from twisted_gateway.services.sessions import objects

ADAPTER = adapter(MINIMAL.replace("namespace: n", "namespace: poimen"))
CORE = "/api/v1/namespaces/poimen/"
POD, CLAIM = "pi-session-s1", "workspace-session-s1"


class ApiServerTests(TestCase):
    """The API, and what is behind it."""

    def setUp(self) -> None:
        super().setUp()
        self.api = ApiServer(lambda: self.clock.seconds() + 1_000_000)

    content_type = "application/json"

    def ask(self, method: str, path: str, tree: object = None, token: str = "token-1") -> Reply:
        headers = {"authorization": f"Bearer {token}", "content-type": self.content_type}
        body = b"" if tree is None else json.dumps(tree).encode()
        return self.api.handle(Request(method, CORE + path, headers, body))

    def create(self, kind: str, tree: dict[str, Any]) -> int:
        return self.ask("POST", kind, tree).status

    def make(self) -> None:
        """Make a claim and a pod."""
        self.create("persistentvolumeclaims", objects.claim(ADAPTER, "s1"))
        self.create("pods", objects.pod(ADAPTER, "s1"))

    def test_quota(self) -> None:
        """A quota refuses what is there already, and lets go of a pod that has ended."""
        self.make()
        self.api.quota = {"pods": 1}
        reply = self.ask("POST", "pods", objects.pod(ADAPTER, "s1"))
        self.assertEqual(reply.status, 403)
        self.assertIn('pods "pi-session-s1" is forbidden: exceeded quota', reply.tree["message"])
        self.assertEqual(self.create("pods", objects.pod(ADAPTER, "s2")), 403)
        self.api.end()
        self.assertEqual(self.create("pods", objects.pod(ADAPTER, "s1")), 409)
        self.assertEqual(self.create("pods", objects.pod(ADAPTER, "s2")), 201)

    def test_quota_of_late(self) -> None:
        """A pod that should be gone for as long as its grace is charged no more."""
        self.make()
        self.api.quota = {"pods": 1}
        self.ask("DELETE", f"pods/{POD}")
        self.clock.advance(20)
        self.assertEqual(self.create("pods", objects.pod(ADAPTER, "s2")), 403)
        self.clock.advance(1)
        self.assertEqual(self.create("pods", objects.pod(ADAPTER, "s2")), 201)

    def test_deleted_in_its_time(self) -> None:
        """A pod on a node ends in its time, one on none or that has ended goes at once."""
        self.make()
        self.ask("DELETE", f"pods/{POD}")
        metadata = self.api.pod()["metadata"]
        self.assertEqual(metadata["deletionTimestamp"], "1970-01-12T13:46:50Z")
        self.api.finish()
        self.create("pods", objects.pod(ADAPTER, "s1"))
        self.api.end()
        self.ask("DELETE", f"pods/{POD}")
        self.assertEqual(self.api.names("pods"), [])
        self.api.room = False
        self.create("pods", objects.pod(ADAPTER, "s1"))
        self.ask("DELETE", f"pods/{POD}")
        self.assertEqual(self.api.names("pods"), [])

    def test_claim_protected(self) -> None:
        """A claim stays while a pod on a node uses it, even one that has ended; no other pod."""
        self.make()
        self.api.end()
        self.ask("DELETE", f"persistentvolumeclaims/{CLAIM}")
        self.assertTrue(leaving(self.api.objects["persistentvolumeclaims", CLAIM]))
        self.ask("DELETE", f"pods/{POD}")
        self.assertEqual(self.api.names("persistentvolumeclaims"), [])
        self.api.room = False
        self.make()
        self.ask("DELETE", f"persistentvolumeclaims/{CLAIM}")
        self.assertEqual(self.api.names("persistentvolumeclaims"), [])
        self.assertEqual(self.api.names("pods"), [POD])

    def test_scheduled(self) -> None:
        """A pod has a node once its claim is there to stay."""
        self.create("pods", objects.pod(ADAPTER, "s1"))
        self.assertNotIn("nodeName", self.api.pod()["spec"])
        self.assertRaises(AssertionError, self.api.become_ready)
        self.create("persistentvolumeclaims", objects.claim(ADAPTER, "s1"))
        self.assertIn("nodeName", self.api.pod()["spec"])
        self.api.become_ready()

    def test_garbage(self) -> None:
        """What is owned goes with its owner: with that very one."""
        self.make()
        service = objects.service(ADAPTER, "s1", self.api.pod())
        self.create("services", service)
        self.ask("DELETE", f"pods/{POD}")
        self.assertEqual(self.api.names("services"), [POD])
        self.api.finish()
        self.assertEqual(self.api.names("services"), [])
        self.create("pods", objects.pod(ADAPTER, "s1"))
        self.assertEqual(self.create("services", service), 201)
        self.assertEqual(self.api.names("services"), [])

    def test_preconditions(self) -> None:
        """Another object of the name is not deleted."""
        self.make()
        options = {"preconditions": {"uid": "another"}}
        self.assertEqual(self.ask("DELETE", f"pods/{POD}", options).status, 409)
        options = {"preconditions": {"uid": self.api.pod()["metadata"]["uid"]}}
        self.assertEqual(self.ask("DELETE", f"pods/{POD}", options).status, 200)

    def test_lost(self) -> None:
        """A request may have been carried out whatever is said of it, or may not have been."""
        self.api.fail = times("create", "pods", TIMED_OUT)
        self.assertEqual(self.create("pods", objects.pod(ADAPTER, "s1")), 504)
        self.assertEqual(self.api.names("pods"), [])
        self.api.lose = times("create", "pods", TIMED_OUT)
        self.assertEqual(self.create("pods", objects.pod(ADAPTER, "s1")), 504)
        self.assertEqual(self.create("pods", objects.pod(ADAPTER, "s1")), 409)

    def test_compacted(self) -> None:
        """A version of before is refused in the watch itself; that of a list is good."""
        self.make()
        version = self.api.pod()["metadata"]["resourceVersion"]
        self.create("services", objects.service(ADAPTER, "s1", self.api.pod()))
        self.api.compact()
        old = self.ask("GET", f"pods?watch=1&resourceVersion={version}")
        assert old.watch is not None
        self.assertEqual((old.status, old.watch.over), (200, True))
        self.assertEqual(json.loads(old.watch.backlog[0])["object"]["code"], 410)
        new = self.ask("GET", "pods?fieldSelector=metadata.name%3Dx").tree["metadata"]
        watch = self.ask("GET", f"pods?watch=1&resourceVersion={new['resourceVersion']}").watch
        assert watch is not None
        self.api.become_ready()
        self.assertEqual(len(watch.backlog), 1)

    def test_list(self) -> None:
        """The pages of a list are those of one moment, for as long as the API keeps that."""
        for number in range(5):
            self.create("pods", objects.pod(ADAPTER, f"s{number}"))
        first = self.ask("GET", "pods?limit=2").tree
        self.ask("DELETE", "pods/pi-session-s2")
        self.create("pods", objects.pod(ADAPTER, "s9"))
        token = first["metadata"]["continue"]
        second = self.ask("GET", f"pods?limit=2&continue={token}").tree
        names = [one["metadata"]["name"][-2:] for one in first["items"] + second["items"]]
        self.assertEqual(names, ["s0", "s1", "s2", "s3"])
        version = first["metadata"]["resourceVersion"]
        self.assertEqual(second["metadata"]["resourceVersion"], version)
        self.api.compact()
        gone = self.ask("GET", f"pods?limit=2&continue={token}")
        self.assertEqual((gone.status, gone.tree["reason"]), (410, "Expired"))
        self.assertEqual(self.ask("GET", "pods?limit=2&continue=x").status, 400)
        new = self.ask("GET", "pods").tree["items"]
        self.assertEqual(
            [one["metadata"]["name"][-2:] for one in new], ["s0", "s1", "s3", "s4", "s9"]
        )

    def test_media_types(self) -> None:
        """What is sent is JSON, and called so, be it a deletion's; a patch has its own type."""
        self.make()
        name, tree = f"pods/{POD}", objects.pod(ADAPTER, "s2")
        for content_type in ("application/apply-patch+yaml", "text/plain"):
            self.content_type = content_type
            self.assertEqual(self.create("pods", tree), 415)
            self.assertEqual(self.ask("DELETE", name, {"kind": "DeleteOptions"}).status, 415)
        self.content_type = "application/json"
        path = "/apis/networking.k8s.io/v1/namespaces/poimen/networkpolicies/pi-session-sandbox"
        headers = {"authorization": "Bearer token-1", "content-type": "application/json"}
        patched = self.api.handle(Request("PATCH", path, headers, b"{}"))
        self.assertEqual(patched.status, 415)
        self.assertEqual(self.ask("DELETE", name, {"kind": "Pod"}).status, 400)
        self.assertEqual(self.ask("DELETE", name).status, 200)

    def test_refused(self) -> None:
        """Who is not known, what may not be done, and what nobody may do at once."""
        self.assertEqual(self.ask("GET", "pods", token="another").status, 401)
        self.assertEqual(self.ask("GET", "secrets").status, 403)
        self.assertEqual(self.ask("DELETE", "pods").status, 403)
        self.assertEqual(self.ask("PUT", f"pods/{POD}").status, 403)
