from __future__ import annotations

from tests.services.sessions.apiserver import Reply, refusal, times
from tests.services.sessions.stack import PLAIN, ReaperTestCase
from twisted_gateway.services.sessions import kube


class ReapTests(ReaperTestCase):
    """What is removed."""

    def test_ended(self) -> None:
        """Pods that have succeeded or failed go with their Services; workspaces stay."""
        for name in ("run", "fail", "done", "start"):
            self.post(name)
        self.ready("run")
        self.api.end("fail")
        self.api.end("done", "Succeeded", "Completed")
        self.stack.settle()
        self.look()
        self.assertEqual(self.api.names("pods"), ["pi-session-run", "pi-session-start"])
        self.assertEqual(len(self.api.names("persistentvolumeclaims")), 4)
        self.assertEqual(self.api.names("services"), ["pi-session-run", "pi-session-start"])
        client = self.post("fail")
        self.ready("fail")
        self.assertEqual(client.status, 200)
        self.assertTrue(self.kept("services", "pi-session-fail"))

    def test_others(self) -> None:
        """Pods that are not called so are nobody's business."""
        self.running()
        self.api.end()
        pod = self.api.objects.pop(("pods", "pi-session-s1"))
        pod["metadata"]["name"] = "another"
        self.api.objects["pods", "another"] = pod
        self.look()
        self.assertEqual(self.api.names("pods"), ["another"])

    def test_ended_of_another_manager(self) -> None:
        """One that has ended and is managed by something else stays, as it does at a DELETE."""
        managers = {"foreign": "argo", "own": "twisted-gateway", "empty": "", "none": None}
        for session, manager in managers.items():
            self.post(session)
            self.api.end(session)
            labels = {} if manager is None else {"app.kubernetes.io/managed-by": manager}
            self.api.pod(session)["metadata"]["labels"] = labels
        self.stack.settle()
        self.look()
        self.assertEqual(self.api.names("pods"), ["pi-session-foreign"])

    def test_half_removed(self) -> None:
        """A pod on a workspace that is being removed goes at once, and the workspace with it."""
        for session in ("s1", "s2"):
            self.running(session)
        self.api.pod("s2")["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "another"
        self.api.fail = lambda verb, kind, name: (
            refusal(403, "Forbidden", "no") if (verb, kind) == ("delete", "pods") else None
        )
        self.assertEqual([self.delete(one).status for one in ("s1", "s2")], [403, 409])
        self.api.fail = lambda verb, kind, name: None
        self.look()
        self.assertFalse(self.kept("pods", "pi-session-s1"))
        self.assertTrue(self.kept("pods", "pi-session-s2"))
        self.api.finish("s1")
        self.assertEqual(self.api.names("persistentvolumeclaims"), ["workspace-session-s2"])

    def test_pages(self) -> None:
        """However many there are, they are looked at in pages."""
        self.patch(kube, "PAGE_PODS", 3)
        for number in range(10):
            self.post(f"s{number}")
            self.api.end(f"s{number}")
        self.stack.settle()
        self.look()
        self.assertEqual(self.api.names("pods"), [])
        # The list moves on while pods go: none is left out.
        self.assertGreater(len([one for one in self.api.asked if one[0] == "list"]), 3)

    def test_large_page(self) -> None:
        """A page of pods that many have managed is read."""
        self.running()
        self.api.end()
        managed: dict[str, object] = {
            "fieldsV1": {f"f:{number}": {"f:x": {}} for number in range(400)}
        }
        ended = self.api.pod()
        items = []
        for number in range(kube.PAGE_PODS):
            own = {"name": f"pi-session-x{number}", "uid": str(number), "managedFields": [managed]}
            items.append({**ended, "metadata": own})
        page = {"kind": "PodList", "metadata": {"resourceVersion": "5"}, "items": items}
        self.api.fail = times("list", "pods", Reply(200, page))
        self.look()
        deleted = [one for one in self.api.asked if one[0] == "delete"]
        self.assertEqual(len(deleted), kube.PAGE_PODS)

    def test_list_forgotten(self) -> None:
        """A list that the API has forgotten half way is begun anew; whose pages are read counts."""
        self.patch(kube, "PAGE_PODS", 3)
        for number in range(10):
            self.post(f"s{number}")
            self.api.end(f"s{number}")
        self.stack.settle()
        lists: list[str] = []

        def forget(verb: str, resource: str, name: str) -> None:
            if verb == "list":
                lists.append(resource)
                if lists in (["pods"] * 3, ["pods"] * 6):
                    self.api.set_status(f"s{len(lists)}", {"phase": "Failed"})
                    self.api.compact()

        self.api.fail = forget
        self.look()
        self.assertEqual(self.api.names("pods"), [])
        # Twice two pages and the third forgotten, then all four.
        self.assertEqual(lists.count("pods"), 10)
        deleted = [one for one in self.api.asked if one[0] == "delete"]
        self.assertEqual(len(deleted), 10)

    def test_list_forgotten_ever_again(self) -> None:
        """One that never comes to its end is given up, and the next look comes.

        What is on the pages that were read, and has ended, goes all the same.
        """
        self.patch(kube, "PAGE_PODS", 3)
        self.patch(kube, "MOST_PAGES", 9)
        for number in range(4):
            self.post(f"s{number}")
            self.api.end(f"s{number}")
        self.stack.settle()

        def forget(verb: str, resource: str, name: str) -> None:
            if verb == "list":
                self.api.set_status("s0", {"phase": "Failed"})
                self.api.compact()

        self.api.fail = forget
        self.look()
        self.assertEqual(self.api.names("pods"), ["pi-session-s3"])
        self.assertEqual(self.api.asked.count(("list", "pods")), 9)
        self.api.fail = lambda verb, kind, name: None
        self.look()
        self.assertEqual(self.api.names("pods"), [])

    def test_too_many_pages(self) -> None:
        """Half a list is none: the Service that a pod seems to lack may be in the other half."""
        self.running()
        service = self.api.objects["services", "pi-session-s1"]
        for number in range(7):
            name = f"another-{number}"
            metadata = {**service["metadata"], "name": name, "ownerReferences": []}
            self.api.objects["services", name] = {**service, "metadata": metadata}
        self.patch(kube, "PAGE_OBJECTS", 3)
        self.patch(kube, "MOST_PAGES", 2)
        self.looks(20)
        self.assertTrue(self.kept("pods", "pi-session-s1"))

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


class StuckTests(ReaperTestCase):
    """Pods that are not Ready: they go after a quarter of an hour, by what was seen of them."""

    config = PLAIN.replace("requireAuth", "reaperIntervalMinutes: 1\n    requireAuth")

    def stuck(self, session: str) -> bool:
        """Whether a pod that was seen as it is now goes with the fifteenth look after that."""
        self.looks(15)
        if not self.kept("pods", f"pi-session-{session}"):
            return False
        self.look()
        return not self.kept("pods", f"pi-session-{session}")

    def test_not_starting(self) -> None:
        """One that does not start goes, on a node or on none; its workspace stays."""
        self.post("image")
        self.api.become_unpullable("image")
        self.assertTrue(self.stuck("image"))
        self.api.room = False
        self.post("room")
        self.assertTrue(self.stuck("room"))
        for session in ("image", "room"):
            self.assertTrue(self.kept("persistentvolumeclaims", f"workspace-session-{session}"))
        self.stack.advance(31)

    def test_never_ready(self) -> None:
        """One that runs and never becomes Ready goes."""
        self.post()
        self.api.become_running()
        self.assertTrue(self.stuck("s1"))
        self.stack.advance(31)

    def test_no_more_ready(self) -> None:
        """One that was Ready has as long to become it again, each time."""
        self.running()
        self.api.become_running()
        self.looks(5)
        for number in range(3):
            self.api.become_running()
            (condition,) = self.api.pod()["status"]["conditions"]
            condition["lastTransitionTime"] = f"2001-01-0{number + 1}T00:00:00Z"
            self.looks(10)
            self.assertTrue(self.kept("pods", "pi-session-s1"))
        self.api.become_ready()
        self.looks(20)
        self.assertTrue(self.kept("pods", "pi-session-s1"))
        self.api.become_running()
        self.assertTrue(self.stuck("s1"))

    def test_ready_in_between(self) -> None:
        """One that becomes Ready, and is given to somebody, between list and deletion stays."""
        for session in ("s1", "s2"):
            self.post(session)
            self.api.become_running(session)
        self.stack.advance(31)
        given: list[int] = []

        def fail(verb: str, kind: str, name: str) -> None:
            if (verb, kind, name) == ("delete", "pods", "pi-session-s1") and not given:
                given.append(0)
                self.api.become_ready("s2")

        self.api.fail = fail
        self.looks(16)
        self.assertEqual(given, [0])
        self.assertFalse(self.kept("pods", "pi-session-s1"))
        self.assertTrue(self.kept("pods", "pi-session-s2"))
        self.assertEqual(self.post("s2").status, 200)

    def test_ready_and_not_served(self) -> None:
        """One that is Ready and has no Service goes; nobody can reach it."""
        self.running()
        self.looks(20)
        self.assertTrue(self.kept("pods", "pi-session-s1"))
        del self.api.objects["services", "pi-session-s1"]
        self.assertTrue(self.stuck("s1"))
        self.assertTrue(self.kept("persistentvolumeclaims", "workspace-session-s1"))

    def test_served_in_between(self) -> None:
        """One whose Service is made between list and deletion stays: somebody has been given it."""
        self.running()
        service = self.api.objects.pop(("services", "pi-session-s1"))
        asked: list[str] = []

        def made(verb: str, kind: str, name: str) -> None:
            if (verb, kind) == ("get", "services"):
                asked.append(name)
                self.api.objects["services", "pi-session-s1"] = service

        self.api.fail = made
        self.looks(20)
        self.assertEqual(asked, ["pi-session-s1"])
        self.assertTrue(self.kept("pods", "pi-session-s1"))

    def test_service_of_nobody(self) -> None:
        """One whose Service nobody owns is served all the same."""
        self.running()
        del self.api.objects["services", "pi-session-s1"]["metadata"]["ownerReferences"]
        self.looks(20)
        self.assertTrue(self.kept("pods", "pi-session-s1"))

    def test_clocks(self) -> None:
        """No other clock is believed, and one's own may be set."""
        self.post()
        self.look()
        self.api.pod()["metadata"]["creationTimestamp"] = "1999-01-01T00:00:00Z"
        for _ in range(3):
            self.stack.reactor.advance(86_400)
            self.stack.settle()
        self.assertTrue(self.kept("pods", "pi-session-s1"))
        self.looks(12)
        self.assertFalse(self.kept("pods", "pi-session-s1"))

    def test_of_others(self) -> None:
        """One that is called so and was made by somebody else is nobody's business."""
        self.post()
        self.api.pod()["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "another"
        self.looks(20)
        self.assertTrue(self.kept("pods", "pi-session-s1"))

    def test_reloaded_all_the_time(self) -> None:
        """What was counted before a reload counts."""
        self.post()
        for _ in range(20):
            self.stack.advance(59, step=10)
            self.assertTrue(self.stack.gateway.reload())
        self.assertFalse(self.kept("pods", "pi-session-s1"))

    def test_another_replica(self) -> None:
        """What was seen before another replica held the Lease counts no more."""
        self.post()
        self.looks(10)
        self.lease()["holderIdentity"] = "another"
        self.look()
        self.lease()["holderIdentity"] = ""
        self.looks(15)
        self.assertTrue(self.kept("pods", "pi-session-s1"))
        self.look()
        self.assertFalse(self.kept("pods", "pi-session-s1"))


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
