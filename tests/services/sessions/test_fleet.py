from __future__ import annotations

from tests.services.sessions.apiserver import refusal
from tests.services.sessions.stack import WITH_FLEET, SessionsTestCase, tree

GOOD = {"svc_dns": "warm-7.poimen.svc.cluster.local", "pod_name": "warm-7", "pvc_name": "w-7"}


class AssignTests(SessionsTestCase):
    """POST, with a fleet controller."""

    config = WITH_FLEET

    def test_warm(self) -> None:
        """A warm pod is given without a wait, and Kubernetes is not asked."""
        client = self.post()
        asked = self.fleet.last
        self.assertEqual((asked.method, asked.path), ("POST", "/sessions/s1/assign"))
        asked.answer(body=GOOD)
        self.assertEqual(client.status, 200)
        self.assertEqual(client.json, {"session_id": "s1", **GOOD, "fleet": True})
        self.assertEqual(self.api.asked, [])

    def test_other_name(self) -> None:
        """The name of the Service is also taken as podSvcDns, and nothing else is needed."""
        client = self.post()
        self.fleet.last.answer(body={"podSvcDns": "warm-7.poimen"})
        self.assertEqual(client.json["svc_dns"], "warm-7.poimen")
        self.assertNotIn("pod_name", client.json)

    def test_at_once(self) -> None:
        """Many requests for one session are one to the fleet controller."""
        clients = [self.post() for _ in range(20)]
        self.assertEqual(len(self.fleet.asked), 1)
        self.fleet.last.answer(body=GOOD)
        self.assertEqual({client.status for client in clients}, {200})

    def falls_back(self) -> None:
        """Kubernetes is asked, and the client is told nothing of it."""
        self.assertEqual(self.api.names("pods"), ["pi-session-s1"])
        self.ready()
        answered = [client for client in self.stack.clients if client.status]
        self.assertEqual(answered[-1].status, 200)
        self.assertIs(answered[-1].json["fleet"], False)

    def releases(self) -> int:
        return len([one for one in self.fleet.asked if one.path.endswith("/release")])

    def test_refuses(self) -> None:
        """Where it refuses Kubernetes is asked."""
        for status in (404, 409, 429):
            self.post()
            self.fleet.last.answer(status, {"error": "no warm pod"})
            self.falls_back()
            self.assertEqual(self.releases(), 0)
            self.api.objects.clear()

    def test_unreachable(self) -> None:
        """Where it cannot be reached Kubernetes is asked, and there is nothing to give back."""
        self.fleet.up = False
        self.post()
        self.falls_back()
        self.assertEqual(self.releases(), 0)

    def test_slow(self) -> None:
        """After two seconds it is waited for no more; what it may have assigned is given back."""
        self.post()
        asked = self.fleet.last
        self.stack.advance(1.5)
        self.assertEqual(self.api.asked, [])
        self.stack.advance(0.75)
        self.assertTrue(asked.gone)
        self.falls_back()
        self.assertEqual(self.releases(), 1)
        self.fleet.last.answer()

    def test_lies(self) -> None:
        """An answer that gives no pod is none, and what it stands for is given back."""
        for number, body in enumerate(
            (
                b"<html>ok</html>",
                b"[]",
                b"{}",
                b'{"svc_dns": null}',
                b'{"svc_dns": ""}',
                b'{"svc_dns": "http://evil.example/"}',
                b'{"svc_dns": "a b"}',
                b'{"svc_dns": "a"}',
                b'{"svc_dns": "x\\r\\ny.z"}',
                b'{"svc_dns": "' + b"a." * 200 + b'a"}',
                b" " * 100_000,
            )
        ):
            self.post()
            self.fleet.last.answer(body=body)
            self.falls_back()
            self.stack.advance(0.25)
            self.assertEqual(self.releases(), number + 1, body)
            self.fleet.last.answer()
            self.api.objects.clear()

    def test_fails(self) -> None:
        """A 5xx, a broken answer or a redirect leave open what it did: that is given back."""
        for number, send in enumerate(
            (
                b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n",
                b"HTTP/1.1 302 Found\r\nlocation: http://e.example/\r\ncontent-length: 0\r\n\r\n",
                b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf",
                b"",
            )
        ):
            self.post()
            asked = self.fleet.last.send(send)
            if not send or b"half" in send:
                asked.die()
            self.falls_back()
            self.stack.advance(0.25)
            self.assertEqual(self.releases(), number + 1, send)
            self.fleet.last.answer(404)
            self.api.objects.clear()

    def test_release_tried_again(self) -> None:
        """A pod that cannot be given back is tried to three times, and then the log says so."""
        self.post()
        self.fleet.last.die()
        self.falls_back()
        for seconds in (0.25, 2.5, 10.5):
            self.stack.advance(seconds)
            self.fleet.last.answer(500)
        self.assertEqual(self.releases(), 3)
        self.stack.advance(60)
        self.assertEqual(self.releases(), 3)

    def test_asked_again(self) -> None:
        """Who asks for the session again keeps what would have been given back."""
        self.post()
        self.fleet.last.die()
        self.falls_back()
        self.stack.advance(0.25)
        self.fleet.last.answer(500)
        again = self.post()
        self.fleet.last.answer(body=GOOD)
        self.assertEqual(again.status, 200)
        self.stack.advance(60)
        self.assertEqual(self.releases(), 1)

    def test_nothing_of_the_client(self) -> None:
        """Nothing of the client's request goes on but the session's id."""
        self.post()
        asked = self.fleet.last
        self.assertEqual(tree(asked), {})
        self.assertLessEqual(
            set(asked.headers), {"host", "accept", "content-type", "content-length", "user-agent"}
        )
        asked.answer(404)


class RemoveTests(SessionsTestCase):
    """DELETE."""

    config = WITH_FLEET

    def setUp(self) -> None:
        super().setUp()
        self.fleet.up = False
        self.running()
        self.fleet.up = True

    def left(self) -> list[str]:
        return [
            f"{kind}/{name}"
            for (kind, name), one in self.api.objects.items()
            if kind not in ("networkpolicies", "leases")
            and "deletionTimestamp" not in one["metadata"]
        ]

    def test_both(self) -> None:
        """The fleet controller and Kubernetes are both asked, at once."""
        client = self.delete()
        asked = self.fleet.last
        self.assertEqual((asked.method, asked.path), ("POST", "/sessions/s1/release"))
        self.assertEqual(self.left(), [])
        asked.answer()
        self.assertEqual(
            (client.status, client.json),
            (200, {"session_id": "s1", "fleet": "released", "kubernetes": "removed"}),
        )
        self.api.finish()
        self.assertEqual(self.api.names("persistentvolumeclaims"), [])
        self.assertEqual(self.api.names("networkpolicies"), ["pi-session-sandbox"])

    def test_absent(self) -> None:
        """What is not there is removed."""
        for _ in range(2):
            client = self.delete("other")
            self.fleet.last.answer(404)
            self.assertEqual(client.status, 200)
            self.assertEqual((client.json["fleet"], client.json["kubernetes"]), ("absent",) * 2)

    def test_fleet_fails(self) -> None:
        """A fleet controller that fails keeps nothing; it is asked again."""
        client = self.delete()
        self.fleet.last.answer(500)
        self.assertEqual(client.status, 200)
        self.assertEqual((client.json["fleet"], client.json["kubernetes"]), ("failed", "removed"))
        self.assertEqual(self.left(), [])
        self.stack.advance(0.25)
        self.assertEqual(self.fleet.last.path, "/sessions/s1/release")
        self.fleet.last.answer()

    def test_kubernetes_fails(self) -> None:
        """Kubernetes that fails keeps the fleet controller from nothing; the client may retry."""
        self.kube.up = False
        for one in self.kube._wires:
            one[0].lose()
        client = self.delete()
        self.fleet.last.answer()
        self.assertEqual(client.status, 502)
        self.assertEqual(len(self.left()), 3)
        self.kube.up = True
        again = self.delete()
        self.fleet.last.answer(404)
        self.assertEqual((again.status, again.json["kubernetes"]), (200, "removed"))

    def test_one_refused(self) -> None:
        """Of pod, Service and workspace none keeps another."""
        for kind in ("pods", "services", "persistentvolumeclaims"):
            self.api.fail = lambda verb, resource, name, kind=kind: (  # type: ignore[misc]
                refusal(403, "Forbidden", "no") if (verb, resource) == ("delete", kind) else None
            )
            client = self.delete()
            self.fleet.last.answer()
            self.assertEqual(client.status, 403)
            asked = [path.partition("/")[0] for verb, path in self.api.asked if verb == "delete"]
            self.assertEqual(asked, ["persistentvolumeclaims", "services", "pods"])
            self.api.asked.clear()

    def test_at_once(self) -> None:
        """Many DELETEs are one."""
        clients = [self.delete() for _ in range(20)]
        self.assertEqual(len([one for one in self.fleet.asked if "release" in one.path]), 1)
        self.fleet.last.answer()
        self.assertEqual({client.status for client in clients}, {200})

    def test_while_it_is_made(self) -> None:
        """A DELETE ends a POST that waits: that is told 409, and nothing is left."""
        client = self.post("s2")
        self.fleet.last.answer(404)
        self.assertEqual(client.status, 0)
        removed = self.delete("s2")
        self.assertEqual(client.status, 409)
        self.fleet.last.answer(404)
        self.assertEqual((removed.status, removed.json["kubernetes"]), (200, "removed"))
        self.assertEqual(self.api.pod("s2")["metadata"].get("deletionTimestamp") is None, False)
        self.assertEqual(self.kube.open_watches, 0)

    def test_between_two_steps(self) -> None:
        """A DELETE between two steps of a POST waits for the step, and then removes its work."""
        self.kube.holding = True
        client = self.post("s2")
        self.fleet.last.answer(404)
        while not any(asked.method == "POST" and "pods" in asked.path for asked in self.kube.held):
            held, self.kube.held = self.kube.held, []
            for asked in held:
                self.kube.reply(asked)
            self.stack.settle()
        removed = self.delete("s2")
        self.assertEqual((client.status, removed.status), (0, 0))
        self.kube.let_go()
        self.assertEqual(client.status, 409)
        self.fleet.last.answer(404)
        self.assertEqual(removed.status, 200)
        self.assertIn("deletionTimestamp", self.api.pod("s2")["metadata"])
        self.assertNotIn("pi-session-s2", self.api.names("services"))

    def test_elsewhere(self) -> None:
        """A session that another replica removes while it is made is 409."""
        client = self.post("s2")
        self.fleet.last.answer(404)
        for kind, name in (("pods", "pi-session-s2"), ("services", "pi-session-s2")):
            self.api._delete(kind, name, {})
        self.stack.settle()
        self.assertEqual(client.status, 409)

    def test_then_made(self) -> None:
        """A POST while a DELETE is under way waits for it."""
        removed = self.delete()
        client = self.post()
        self.fleet.last.answer()
        self.assertEqual(removed.status, 200)
        self.fleet.last.answer(404)
        self.api.finish()
        self.stack.settle()
        self.ready()
        self.assertEqual(client.status, 200)
