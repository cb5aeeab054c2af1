from __future__ import annotations

from tests.services.sessions.apiserver import BROKEN_OFF, UNAVAILABLE, refusal
from tests.services.sessions.stack import SessionsTestCase
from tests.stack import Client
from twisted_gateway.core.outcome import Outcome


class WaitingTests(SessionsTestCase):
    """A pod that does not become Ready, or not at once."""

    def test_late(self) -> None:
        """After 30 s the answer is 504, and says what was seen; the next request resumes."""
        client = self.post()
        self.api.become_unpullable()
        self.stack.advance(29)
        self.assertEqual(client.status, 0)
        self.stack.advance(2)
        self.assertEqual(client.status, 504)
        self.assertEqual(client.json["seen"], "the pod is not Ready: Pending, ImagePullBackOff")
        self.assertIn("ImagePullBackOff", client.json["detail"])
        self.assertNotIn(b"secret-registry", client.received)
        self.assertIs(self.stack.entries[-1].outcome, Outcome.UPSTREAM_TIMEOUT)
        self.assertEqual(self.kube.open_watches, 0)
        made = len(self.api.created)
        again = self.post()
        self.ready()
        self.assertEqual((again.status, len(self.api.created)), (200, made))

    def test_late_joiner(self) -> None:
        """Who joins late has no more time than the attempt has."""
        first = self.post()
        self.stack.advance(20)
        second = self.post()
        self.stack.advance(11)
        self.assertEqual((first.status, second.status), (504, 504))

    def test_silent_api(self) -> None:
        """An API that does not answer is 504 in time too."""
        self.kube.holding = True
        client = self.post()
        self.stack.advance(31)
        self.assertEqual(client.status, 504)

    def test_slow_api(self) -> None:
        """An API that takes its time with every request leaves the client no longer than that."""
        self.kube.holding = True
        client = self.post()
        for _ in range(3):
            self.stack.advance(9)
            held, self.kube.held = self.kube.held, []
            for asked in held:
                self.kube.reply(asked)
            self.stack.settle()
        self.stack.advance(4)
        self.assertEqual(client.status, 504)
        self.assertEqual(client.json["seen"], "Kubernetes has not answered")
        self.kube.let_go()
        # Between two steps the attempt has seen that its time is over.
        self.assertEqual(self.api.names("services"), [])
        again = self.post()
        self.ready()
        self.assertEqual(again.status, 200)

    def test_dies(self) -> None:
        """A sandbox that ends as soon as it begins is 502 with the reason; the next one is new."""
        client = self.post()
        self.api.end(reason="OOMKilled")
        self.stack.settle()
        self.assertEqual((client.status, client.json["upstream_status"]), (502, 502))
        self.assertIn("OOMKilled", client.json["detail"])
        uid = self.api.pod()["metadata"]["uid"]
        again = self.post()
        self.assertNotEqual(self.api.pod()["metadata"]["uid"], uid)
        self.ready()
        self.assertEqual(again.status, 200)

    def test_watch_ends(self) -> None:
        """A watch that ends, or is too old to begin, is begun anew, with a look in between."""
        client = self.post()
        self.kube.end_watches()
        self.api.set_status("s1", {"phase": "Running"})
        self.api.compacted = 10_000
        self.stack.advance(1)
        self.assertEqual(client.status, 0)
        self.api.compacted = 0
        self.ready()
        self.stack.advance(5)
        self.assertEqual(client.status, 200)

    def test_ready_between_watches(self) -> None:
        """What happens while nobody watches is seen."""
        client = self.post()
        self.kube.end_watches()
        self.ready()
        self.assertEqual(client.status, 0)
        self.stack.advance(1)
        self.assertEqual(client.status, 200)

    def test_api_restarts(self) -> None:
        """An API that restarts while a pod is waited for is waited for too."""
        client = self.post()
        self.kube.up = False
        for _, asked in self.kube.watches:
            asked.die()
        self.stack.advance(5)
        self.assertEqual(client.status, 0)
        self.kube.up = True
        self.ready()
        self.stack.advance(5)
        self.assertEqual(client.status, 200)

    def test_api_fails(self) -> None:
        """Nor is an API that fails, or refuses, for a while while a pod starts a reason to end."""
        for number, reply in enumerate(
            (
                UNAVAILABLE,
                refusal(401, "Unauthorized", "Unauthorized"),
                refusal(403, "Forbidden", "RBAC: role not found"),
                BROKEN_OFF,
            )
        ):
            session = f"s{number}"
            client = self.post(session)
            self.api.fail = lambda verb, kind, name, reply=reply: reply  # type: ignore[misc]
            self.kube.end_watches()
            self.stack.advance(4)
            self.assertEqual(client.status, 0, reply)
            self.api.fail = lambda verb, kind, name: None
            self.ready(session)
            self.stack.advance(6)
            self.assertEqual(client.status, 200, reply)
            self.assertNotIn("delete", {verb for verb, _ in self.api.asked})

    def test_api_fails_to_the_end(self) -> None:
        """Where it does so until the time is over, that is what was seen."""
        client = self.post()
        self.api.fail = lambda verb, kind, name: refusal(403, "Forbidden", "RBAC: no role")
        self.kube.end_watches()
        self.stack.advance(31)
        self.assertEqual(client.status, 504)
        self.assertEqual(client.json["seen"], "the Kubernetes API answered 403 Forbidden")
        self.assertEqual(self.api.names("pods"), ["pi-session-s1"])

    def test_nonsense(self) -> None:
        """A watch that talks nonsense, or without end, is given up, and begun anew."""
        for line in (b"hello\n", b"[]\n", b'{"type": 5}\n', b"x" * 3_000_000):
            client = self.post()
            _, asked = self.kube.watches[-1]
            asked.more(line)
            self.stack.advance(1)
            self.assertEqual(self.kube.open_watches, 1, line[:20])
            self.ready()
            self.assertEqual(client.status, 200)
            self.delete()
            self.api.finish()


class TakenAwayTests(SessionsTestCase):
    """A pod goes that somebody waits for, or that has served."""

    def uids(self) -> tuple[str, str]:
        """Of the session's claim and of its pod."""
        claim = self.api.objects["persistentvolumeclaims", "workspace-session-s1"]
        return claim["metadata"]["uid"], self.api.pod()["metadata"]["uid"]

    def replaced(self, client: Client) -> None:
        """It is replaced on the same workspace, once it is gone."""
        claim, pod = self.uids()
        self.assertEqual(client.status, 0)
        self.api.finish()
        self.stack.settle()
        self.stack.advance(1)
        self.assertEqual(self.uids()[0], claim)
        self.assertNotEqual(self.uids()[1], pod)
        self.ready()
        self.assertEqual(client.status, 200)

    def test_disrupted(self) -> None:
        """One that is drained, or makes room, while it starts is replaced."""
        for reason in ("EvictionByEvictionAPI", "PreemptionByScheduler"):
            client = self.post()
            self.api.disrupt(reason=reason)
            self.stack.settle()
            self.replaced(client)
            self.delete()
            self.api.finish()

    def test_disrupted_later(self) -> None:
        """So is one that has served."""
        self.running()
        self.api.disrupt()
        self.replaced(self.post())

    def test_removed_by_hand(self) -> None:
        """One that an operator, or the reaper, deletes is replaced."""
        client = self.post()
        self.api._delete("pods", "pi-session-s1", {})
        self.stack.settle()
        self.replaced(client)

    def test_evicted(self) -> None:
        """One that its node has no memory for is told as what it is; the next is another one."""
        client = self.post()
        self.api.evict()
        self.stack.settle()
        self.assertEqual((client.status, client.json["upstream_status"]), (502, 502))
        self.assertIn("Failed, Evicted", client.json["detail"])
        claim, pod = self.uids()
        again = self.post()
        self.assertEqual(self.uids()[0], claim)
        self.assertNotEqual(self.uids()[1], pod)
        self.ready()
        self.assertEqual(again.status, 200)

    def test_ends_before_it_is_looked_at(self) -> None:
        """One that has ended before anybody watched it has not been there before, either."""
        self.running()
        self.api.end()
        self.kube.holding = True
        client = self.post()
        while ("create", "pods") not in self.api.asked:
            self.kube.step()
        self.api.end(reason="OOMKilled")
        self.kube.let_go()
        self.assertEqual(client.status, 502)
        self.assertIn("OOMKilled", client.json["detail"])

    def test_workspace_removed(self) -> None:
        """Where the workspace goes too the session has been removed: 409, and nothing is left."""
        client = self.post()
        self.api._delete("persistentvolumeclaims", "workspace-session-s1", {})
        self.api._delete("pods", "pi-session-s1", {})
        self.stack.settle()
        self.api.finish()
        self.stack.settle()
        self.assertEqual(client.status, 409)
        self.assertEqual(self.api.names("pods") + self.api.names("services"), [])
        self.assertEqual(self.api.names("persistentvolumeclaims"), [])


class ServiceTests(SessionsTestCase):
    """The Service, which goes with its pod."""

    def owner(self) -> str:
        """The uid of the pod that the session's Service is for."""
        service = self.api.objects["services", "pi-session-s1"]
        (owner,) = service["metadata"]["ownerReferences"]
        return str(owner["uid"])

    def test_of_a_former_pod(self) -> None:
        """One that is to be collected is replaced: it would go while the new pod serves."""
        self.running()
        former = self.owner()
        self.api.end()
        self.api.collecting = False
        client = self.post()
        self.ready()
        self.assertEqual(client.status, 200)
        self.assertEqual(self.owner(), self.api.pod()["metadata"]["uid"])
        self.assertNotEqual(self.owner(), former)
        self.api.collect()
        self.assertEqual(self.api.names("services"), ["pi-session-s1"])

    def test_of_a_later_pod(self) -> None:
        """One that another replica has made for the pod's successor is left to that."""
        self.running()
        other = self.replica()
        self.kube.holding = True
        mine = self.post()
        self.kube.step(3)
        (held,) = self.kube.held
        self.assertIn("/services/", held.path)
        self.api.end()
        theirs = other.post()
        self.api.become_ready()
        other.stack.settle()
        self.assertEqual(theirs.status, 200)
        service = self.api.objects["services", "pi-session-s1"]
        self.kube.step()
        self.assertIs(self.api.objects["services", "pi-session-s1"], service)
        self.kube.let_go()
        self.assertEqual(mine.status, 200)
        self.assertIs(self.api.objects["services", "pi-session-s1"], service)

    def test_of_nobody(self) -> None:
        """One that was made without an owner is taken as it is."""
        self.running()
        del self.api.objects["services", "pi-session-s1"]["metadata"]["ownerReferences"]
        self.assertEqual(self.post().status, 200)
        self.assertEqual(self.api.created, [])

    def test_reaped(self) -> None:
        """Of a session whose pod has been reaped the workspace stays, and nothing else."""
        self.running()
        self.api.end()
        self.stack.advance(311, step=5)
        left = self.api.names("pods") + self.api.names("services")
        self.assertEqual(left, [])
        self.assertEqual(self.api.names("persistentvolumeclaims"), ["workspace-session-s1"])
