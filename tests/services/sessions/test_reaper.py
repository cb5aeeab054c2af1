from __future__ import annotations

from tests.services.sessions.apiserver import Reply, refusal
from tests.services.sessions.stack import PLAIN, SessionsTestCase
from twisted_gateway.services.sessions import kube


class ReaperTestCase(SessionsTestCase):
    """A test with sandboxes in several stages."""

    def look(self) -> None:
        """Let the reaper look once."""
        before = len([one for one in self.api.asked if one[1].startswith("leases/")])
        while len([one for one in self.api.asked if one[1].startswith("leases/")]) == before:
            self.stack.advance(5, step=5)

    def lease(self) -> dict[str, object]:
        spec: dict[str, object] = self.api.objects["leases", "pi-session-reaper"]["spec"]
        return spec

    def replica(self) -> ReaperTestCase:
        """Another replica before the same cluster."""
        other = ReaperTestCase("setUp")
        other.setUp()
        other.api = other.kube.api = self.api
        self.addCleanup(other.doCleanups)
        return other


class ReapTests(ReaperTestCase):
    """What is removed."""

    def test_ended(self) -> None:
        """Pods that have succeeded or failed go, those that run or start stay; so do workspaces."""
        for name in ("run", "fail", "done", "start"):
            self.post(name)
        self.ready("run")
        self.api.end("fail")
        self.api.end("done", "Succeeded", "Completed")
        self.stack.settle()
        self.look()
        self.assertEqual(self.api.names("pods"), ["pi-session-run", "pi-session-start"])
        self.assertEqual(len(self.api.names("persistentvolumeclaims")), 4)
        self.assertEqual(len(self.api.names("services")), 4)
        client = self.post("fail")
        self.ready("fail")
        self.assertEqual(client.status, 200)

    def test_others(self) -> None:
        """Pods that are not called so are nobody's business."""
        self.running()
        self.api.end()
        pod = self.api.objects.pop(("pods", "pi-session-s1"))
        pod["metadata"]["name"] = "another"
        self.api.objects["pods", "another"] = pod
        self.look()
        self.assertEqual(self.api.names("pods"), ["another"])

    def test_pages(self) -> None:
        """However many there are, they are looked at in pages."""
        self.patch(kube, "PAGE_OBJECTS", 3)
        for number in range(10):
            self.post(f"s{number}")
            self.api.end(f"s{number}")
        self.stack.settle()
        self.look()
        self.assertEqual(self.api.names("pods"), [])
        # The list moves on while pods go: none is left out.
        self.assertGreater(len([one for one in self.api.asked if one[0] == "list"]), 3)

    def test_replaced_meanwhile(self) -> None:
        """A pod that was put in the place of one that has ended stays."""
        self.running()
        self.api.end()
        uid = self.api.pod()["metadata"]["uid"]

        def fail(verb: str, resource: str, name: str) -> Reply | None:
            if verb == "delete":
                self.api.pod()["metadata"]["uid"] = "another"
            return None

        self.api.fail = fail
        self.look()
        self.assertNotEqual(self.api.pod()["metadata"]["uid"], uid)

    def test_stuck(self) -> None:
        """A sandbox that does not start for a quarter of an hour goes, by the gateway's clock."""
        self.post("stuck")
        self.api.become_unpullable("stuck")
        self.stack.advance(31)
        self.api.pod("stuck")["metadata"]["creationTimestamp"] = "1999-01-01T00:00:00Z"
        self.stack.advance(800, step=5)
        self.assertNotIn("deletionTimestamp", self.api.pod("stuck")["metadata"])
        self.stack.advance(400, step=5)
        self.assertIn("deletionTimestamp", self.api.pod("stuck")["metadata"])

    def test_one_refused(self) -> None:
        """A pod that may not be deleted keeps none of the others, and the next look comes."""
        for name in ("a", "b"):
            self.post(name)
            self.api.end(name)
        self.stack.settle()
        self.api.fail = lambda verb, kind, name: (
            refusal(403, "Forbidden", "no") if (verb, name) == ("delete", "pi-session-a") else None
        )
        self.look()
        self.assertEqual(self.api.names("pods"), ["pi-session-a"])
        self.api.fail = lambda verb, kind, name: None
        self.look()
        self.assertEqual(self.api.names("pods"), [])

    def test_api_down(self) -> None:
        """Whatever goes wrong, the next look comes."""
        self.running()
        self.api.end()
        self.kube.up = False
        for wire, _ in self.kube._wires:
            wire.lose()
        self.stack.advance(15)
        self.kube.up = True
        self.api.fail = lambda verb, kind, name: Reply(200, {"metadata": {}, "items": [5, {}]})
        self.look()
        self.api.fail = lambda verb, kind, name: refusal(500, "InternalError", "etcd")
        self.look()
        self.api.fail = lambda verb, kind, name: None
        self.look()
        self.assertEqual(self.api.names("pods"), [])

    def test_interval(self) -> None:
        """It looks every so many minutes, as SANDBOX_REAPER_INTERVAL_MINUTES has it."""
        self.stack._environ = {"SANDBOX_REAPER_INTERVAL_MINUTES": "0.5"}
        self.assertTrue(self.stack.gateway.reload())
        self.stack.advance(101, step=1)
        looks = [one for one in self.api.asked if one == ("list", "pods")]
        self.assertEqual(len(looks), 4)

    def test_reload(self) -> None:
        """After a reload without the adapter nobody looks."""
        self.stack.text = "adapters: {memory: {upstream: 'http://10.2.0.1', requireAuth: false}}"
        self.assertTrue(self.stack.gateway.reload())
        self.stack.advance(400, step=5)
        self.assertEqual(self.api.asked, [])


class LeaseTests(ReaperTestCase):
    """Who looks."""

    def test_one_of_two(self) -> None:
        """Of two replicas one looks, and goes on doing so."""
        other = self.replica()
        self.look()
        holder = self.lease()["holderIdentity"]
        self.assertEqual(self.lease()["leaseDurationSeconds"], 600)
        for _ in range(4):
            other.stack.advance(300, step=5)
            self.stack.advance(300, step=5)
        self.assertEqual(self.lease()["holderIdentity"], holder)
        self.assertEqual(self.lease()["leaseTransitions"], 0)
        self.api.asked.clear()
        other.stack.advance(300, step=5)
        self.assertNotIn(("list", "pods"), self.api.asked)

    def test_holder_gone(self) -> None:
        """When the holder is gone another takes the Lease, once it has seen it unchanged so long.

        However far apart their clocks are: what the Lease says of times is not believed.
        """
        self.look()
        other = self.replica()
        self.lease()["renewTime"] = "2099-01-01T00:00:00.000000Z"
        other.stack.advance(15)
        self.api.asked.clear()
        other.stack.advance(590, step=5)
        self.assertNotIn(("list", "pods"), self.api.asked)
        other.stack.advance(300, step=5)
        self.assertIn(("list", "pods"), self.api.asked)
        self.assertEqual(self.lease()["leaseTransitions"], 1)
        # The former holder comes back, and is none any more.
        self.api.asked.clear()
        self.stack.advance(300, step=5)
        self.assertNotIn(("list", "pods"), self.api.asked)

    def test_old_times(self) -> None:
        """A Lease whose times are long past by our clock has not expired for that."""
        self.look()
        other = self.replica()
        self.lease()["renewTime"] = "1999-01-01T00:00:00.000000Z"
        self.api.asked.clear()
        other.stack.advance(15)
        self.assertNotIn(("list", "pods"), self.api.asked)

    def test_both_at_once(self) -> None:
        """Of two that take the Lease at once, one has lost (409 Conflict, or AlreadyExists)."""
        for expired in (False, True):
            other = self.replica()
            if expired:
                self.lease()["holderIdentity"] = ""
            self.api.asked.clear()
            for one in (self, other):
                one.kube.holding = True
                while not one.kube.held:
                    one.stack.advance(5, step=5)
            for _ in range(3):
                for one in (self, other):
                    held, one.kube.held = one.kube.held, []
                    for asked in held:
                        one.kube.reply(asked)
                    one.stack.settle()
            for one in (self, other):
                one.kube.let_go()
            lists = [one for one in self.api.asked if one == ("list", "pods")]
            self.assertEqual(len(lists), 1, expired)

    def test_released(self) -> None:
        """A Lease without a holder is taken at once."""
        self.look()
        self.lease()["holderIdentity"] = ""
        other = self.replica()
        self.api.asked.clear()
        other.look()
        self.assertIn(("list", "pods"), self.api.asked)

    def test_after_a_reload(self) -> None:
        """A replica that reads its configuration again holds the Lease that it held before."""
        self.look()
        for _ in range(2):
            self.assertTrue(self.stack.gateway.reload())
            self.api.asked.clear()
            self.stack.advance(15)
            self.assertIn(("list", "pods"), self.api.asked)

    def test_stopped(self) -> None:
        """A look that is under way when the process stops is given up."""
        self.kube.holding = True
        self.stack.advance(11)
        self.assertEqual(len(self.kube.held), 1)
        self.stack.gateway.stopService()
        self.stack.settle()
        self.assertTrue(self.kube.held[0].gone)


class SlowTests(ReaperTestCase):
    """A look that takes longer than the interval."""

    config = PLAIN.replace("requireAuth", "reaperIntervalMinutes: 0.05\n    requireAuth")

    def test_no_two_looks(self) -> None:
        """The next look begins when the one before has ended."""
        self.kube.holding = True
        self.stack.advance(9)
        self.assertEqual(len(self.kube.held), 1)
        self.kube.let_go()
        self.stack.advance(4)
        self.assertIn(("list", "pods"), self.api.asked)
