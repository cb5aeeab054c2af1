from __future__ import annotations

from tests.services.sessions.apiserver import (
    leaving,
    refusal,
)
from tests.services.sessions.stack import WITH_FLEET, SessionsTestCase
from tests.services.sessions.test_fleet import GOOD
from tests.services.stack import said

KINDS = ("persistentvolumeclaims", "services", "pods")


class WithFleetTests(SessionsTestCase):
    """DELETE, with a fleet controller."""

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
        self.assertEqual(self.left(), [])
        for seconds in (0.75, 2.25, 0):
            self.fleet.last.answer(500)
            self.stack.advance(seconds)
        self.assertEqual(client.status, 200)
        self.assertEqual((client.json["fleet"], client.json["kubernetes"]), ("failed", "removed"))

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
        self.delete()
        self.fleet.last.answer()
        for kind in ("pods", "services", "persistentvolumeclaims"):
            self.post(kind)
            self.fleet.last.answer(404)
            self.ready(kind)
            self.api.asked.clear()
            self.api.fail = lambda verb, resource, name, kind=kind: (  # type: ignore[misc]
                refusal(403, "Forbidden", "no") if (verb, resource) == ("delete", kind) else None
            )
            client = self.delete(kind)
            self.fleet.last.answer()
            self.assertEqual(client.status, 403)
            asked = [path.partition("/")[0] for verb, path in self.api.asked if verb == "delete"]
            self.assertEqual(asked, ["persistentvolumeclaims", "services", "pods"])
            self.api.asked.clear()

    def test_at_once(self) -> None:
        """Many DELETEs are two: those that come when the first one has begun are one behind it."""
        clients = [self.delete() for _ in range(20)]
        self.assertEqual(self.releases(), 1)
        self.fleet.last.answer()
        self.assertEqual([client.status for client in clients], [200] + [0] * 19)
        self.assertEqual(self.releases(), 2)
        self.fleet.last.answer(404)
        self.assertEqual({client.status for client in clients}, {200})
        self.assertEqual(self.releases(), 2)

    def releases(self) -> int:
        return len([one for one in self.fleet.asked if "release" in one.path])

    def test_made_elsewhere_behind_the_first(self) -> None:
        """A DELETE removes what another replica has made when an earlier one was done with it."""
        first = self.delete()
        self.api.finish()
        other = self.replica()
        other.fleet.up = False
        made = other.post()
        self.api.become_ready()
        other.stack.settle()
        self.assertEqual((first.status, made.status), (0, 200))
        second = self.delete()
        self.fleet.last.answer()
        self.fleet.last.answer(404)
        self.assertEqual((first.status, second.status), (200, 200))
        self.assertEqual(self.left(), [])

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
        client = self.post("s2")
        self.kube.holding = True
        self.fleet.last.answer(404)
        while not any(asked.method == "POST" and "pods" in asked.path for asked in self.kube.held):
            self.kube.step()
        removed = self.delete("s2")
        self.assertEqual((client.status, removed.status), (0, 0))
        self.kube.let_go()
        self.assertEqual(client.status, 409)
        self.fleet.last.answer(404)
        self.assertEqual(removed.status, 200)
        self.assertNotIn("pi-session-s2", self.api.names("pods") + self.api.names("services"))

    def test_while_the_fleet_is_asked(self) -> None:
        """A DELETE gives back what a POST was just about to get, though its client has left.

        Whoever has sent the POST is not told of a pod that is given back in that moment.
        """
        client = self.post("s2")
        assign = self.fleet.last
        self.delete("s2").leave()
        assign.answer(body=GOOD)
        self.assertEqual(client.status, 409)
        self.assertEqual(self.fleet.last.path, "/sessions/s2/release")
        self.fleet.last.answer()

    def test_elsewhere(self) -> None:
        """A session that another replica removes while it is made is 409."""
        client = self.post("s2")
        self.fleet.last.answer(404)
        other = self.replica()
        removed = other.delete("s2")
        other.fleet.last.answer(404)
        self.assertEqual(removed.status, 200)
        self.stack.settle()
        self.assertEqual(client.status, 409)

    def test_removed_and_made_elsewhere(self) -> None:
        """So is one that is made anew there by then, and that one stays as it is."""
        client = self.post("s2")
        self.fleet.last.answer(404)
        self.kube.holding = True
        other = self.replica()
        other.delete("s2")
        other.fleet.last.answer(404)
        self.api.finish("s2")
        again = other.post("s2")
        other.fleet.last.answer(404)
        self.api.become_ready("s2")
        other.stack.settle()
        self.kube.let_go()
        self.assertEqual((client.status, again.status), (409, 200))
        self.assertEqual(len([one for one in self.left() if one.endswith("-s2")]), 3)

    def test_elsewhere_before_the_pod(self) -> None:
        """So is one whose workspace was there, and goes before there is a pod that shows it."""
        self.api.end()
        self.api._delete("pods", "pi-session-s1", {})
        self.kube.holding = True
        client = self.post()
        while not any(asked.method == "PATCH" for asked in self.kube.held):
            self.kube.step()
        self.api._delete("persistentvolumeclaims", "workspace-session-s1", {})
        self.kube.let_go()
        self.assertEqual(client.status, 409)
        self.assertEqual(self.left(), [])

    def test_elsewhere_while_it_is_looked_at(self) -> None:
        """So is one that serves, and is removed before all of it has been looked at."""
        self.kube.holding = True
        client = self.post()
        while not any("/services/" in asked.path for asked in self.kube.held):
            self.kube.step()
        other = self.replica()
        other.delete()
        other.fleet.last.answer(404)
        self.kube.let_go()
        self.assertEqual(client.status, 409)
        self.api.finish()
        self.assertEqual(self.left(), [])

    def test_at_the_last_look(self) -> None:
        """A DELETE that comes before a POST has its answer ends it, though all is there."""
        self.kube.holding = True
        client = self.post()
        while not any("/services/" in asked.path for asked in self.kube.held):
            self.kube.step()
        removed = self.delete()
        self.kube.let_go()
        self.fleet.last.answer(404)
        self.assertEqual((client.status, removed.status), (409, 200))
        self.assertEqual(self.left(), [])

    def test_of_others(self) -> None:
        """What is only called so, and is managed by something else, stays; the rest goes."""
        for kind in KINDS:
            self.post(kind)
            self.fleet.last.answer(404)
            self.ready(kind)
            name = next(n for k, n in self.api.objects if k == kind and n.endswith(f"-{kind}"))
            labels = self.api.objects[kind, name]["metadata"]["labels"]
            labels["app.kubernetes.io/managed-by"] = "Helm"
            client = self.delete(kind)
            self.fleet.last.answer(404)
            self.assertEqual(client.status, 409)
            words = f"{kind} {name} is managed by Helm, and is not removed"
            self.assertEqual(client.json["upstream_message"], words)
            self.assertIn(f"{kind}/{name}", self.left())
            asked = [path.partition("/")[0] for verb, path in self.api.asked if verb == "delete"]
            self.assertEqual(asked, [one for one in KINDS if one != kind])
            self.api.asked.clear()

    def test_words_of_others(self) -> None:
        """A label's value that Kubernetes would not allow is told of by none of its characters."""
        lines = said(self)
        for label, shown in (
            ("a\r\n\x1b[1m token-1 10.5.0.1", "something else"),
            ("Helm\n", "something else"),
            ("h\xe9lm", "something else"),
            ("x" * 64, "something else"),
            ({"x": 5}, "something else"),
            ("x" * 63, "x" * 63),
            ("a.b_c-d", "a.b_c-d"),
        ):
            labels = self.api.pod()["metadata"]["labels"]
            labels["app.kubernetes.io/managed-by"] = label
            client = self.delete()
            self.fleet.last.answer(404)
            words = f"pods pi-session-s1 is managed by {shown}, and is not removed"
            self.assertEqual((client.status, client.json["upstream_message"]), (409, words))
            self.stack.advance(61)
        told = [one for one in lines if "managed by" in one]
        self.assertEqual(len(told), 7)
        for line in told:
            self.assertNotRegex(line, r"[\x00-\x1f]|token-1|10\.5|Helm|\xe9")

    def test_empty_label(self) -> None:
        """An empty label says nothing."""
        for kind, name in list(self.api.objects):
            if kind in KINDS:
                labels = self.api.objects[kind, name]["metadata"]["labels"]
                labels["app.kubernetes.io/managed-by"] = ""
        client = self.delete()
        self.fleet.last.answer(404)
        self.assertEqual((client.status, client.json["kubernetes"]), (200, "removed"))
        self.assertEqual(self.left(), [])

    def test_without_labels(self) -> None:
        """What was there before the gateway bears no label, and is the session's by its name."""
        for (kind, _), one in self.api.objects.items():
            if kind in KINDS:
                del one["metadata"]["labels"]
        client = self.delete()
        self.fleet.last.answer(404)
        self.assertEqual((client.status, client.json["kubernetes"]), (200, "removed"))
        self.assertEqual(self.left(), [])

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


class HalfRemovedTests(SessionsTestCase):
    """POST after a DELETE that has come half way."""

    def half_remove(self, *spared: str) -> None:
        """A DELETE whose requests for some kinds are refused."""
        self.running()
        self.api.fail = lambda verb, kind, name: (
            refusal(403, "Forbidden", "no") if verb == "delete" and kind in spared else None
        )
        self.assertEqual(self.delete().status, 403)
        self.api.fail = lambda verb, kind, name: None

    def made_anew(self) -> None:
        """A POST finishes the removal, and makes the session anew."""
        claims = self.api.objects
        before = claims["persistentvolumeclaims", "workspace-session-s1"]["metadata"]["uid"]
        client = self.post()
        self.assertEqual(client.status, 0)
        self.assertTrue(leaving(self.api.pod()))
        self.api.finish()
        self.stack.settle()
        self.ready()
        self.assertEqual(client.status, 200)
        after = claims["persistentvolumeclaims", "workspace-session-s1"]["metadata"]
        self.assertNotEqual(after["uid"], before)
        self.assertNotIn("deletionTimestamp", after)

    def test_pod_left(self) -> None:
        """A pod that serves on a workspace that is being removed is none to be given."""
        self.half_remove("pods")
        self.made_anew()

    def test_pod_and_service_left(self) -> None:
        """Nor is one that has its Service, too."""
        self.half_remove("pods", "services")
        self.made_anew()

    def test_workspace_left(self) -> None:
        """Where the workspace is all that is left, the session is resumed on it."""
        self.half_remove("persistentvolumeclaims")
        client = self.post()
        self.api.finish()
        self.stack.settle()
        self.ready()
        self.assertEqual(client.status, 200)

    def test_removed_again(self) -> None:
        """A DELETE that is sent again removes the rest."""
        self.half_remove("pods")
        self.assertEqual(self.delete().status, 200)
        self.api.finish()
        self.assertEqual([kind for kind, _ in self.api.objects if kind in KINDS], [])
