from __future__ import annotations

from tests.services.sessions.apiserver import UNAVAILABLE, Reply, refusal, times
from tests.services.sessions.stack import PLAIN, ReaperTestCase
from tests.services.stack import said
from twisted_gateway.services.sessions import kube


class EveryReasonTestCase(ReaperTestCase):
    """A test with a pod for each reason to remove one."""

    config = PLAIN.replace("requireAuth", "reaperIntervalMinutes: 1\n    requireAuth")

    def setUp(self) -> None:
        """There is a pod for each reason to remove one."""
        super().setUp()
        for session in ("ended", "half", "starting", "ready"):
            self.post(session)
        self.ready("half")
        self.ready("ready")
        self.stack.advance(31)
        self.api.fail = lambda verb, kind, name: (
            refusal(403, "Forbidden", "no")
            if verb == "delete" and kind in ("pods", "services")
            else None
        )
        self.assertEqual(self.delete("half").status, 403)
        self.api.fail = lambda verb, kind, name: None
        self.api.end("ended")
        del self.api.objects["services", "pi-session-ready"]
        self.said = said(self)

    def stay(self) -> list[str]:
        """The sessions whose pods stay."""
        sessions = ("ended", "half", "starting", "ready")
        return [one for one in sessions if self.kept("pods", f"pi-session-{one}")]


class MissingRightTests(EveryReasonTestCase):
    """A Role that lacks a right: what needs it stays, the rest goes."""

    def may_list(self, kind: str, allowed: bool) -> None:
        """Give the Role that right, or take it away."""
        (rule,) = (one for one in self.api.rules if kind in one["resources"])
        rule["verbs"] = [verb for verb in rule["verbs"] if verb != "list"]
        if allowed:
            rule["verbs"].append("list")

    def told(self) -> list[str]:
        """What the log says of it."""
        lines, self.said[:] = [one for one in self.said if " listed" in one], []
        return lines

    def check(self, kind: str, kept: str, words: str) -> None:
        self.may_list(kind, allowed=False)
        self.looks(20)
        self.assertEqual(self.stay(), [kept])
        (line,) = self.told()
        self.assertIn(f"{words} may not be listed, so pods", line)
        self.assertIn(f'cannot list resource "{kind}"', line)
        self.may_list(kind, allowed=True)
        self.looks(16)
        self.assertEqual(self.stay(), [])
        (line,) = self.told()
        self.assertIn(f"{words} may be listed again", line)
        self.may_list(kind, allowed=False)
        self.looks(2)
        self.assertEqual(len(self.told()), 1)

    def test_services(self) -> None:
        """Without Services nobody knows which pod lacks one."""
        self.check("services", "ready", "Services")

    def test_claims(self) -> None:
        """Without claims nobody knows which one is being removed."""
        self.check("persistentvolumeclaims", "half", "PersistentVolumeClaims")

    def test_pods(self) -> None:
        """Without pods there is nothing to go by, and the log says so."""
        self.may_list("pods", allowed=False)
        self.looks(20)
        self.assertEqual(len(self.stay()), 4)
        lines = [one for one in self.said if "sandboxes that have ended are not removed" in one]
        self.assertEqual(len(lines), 1)

    def test_no_answer(self) -> None:
        """No answer is no refusal: it is looked again, and what was counted counts."""
        self.looks(10)
        self.api.fail = times("list", "services", *[UNAVAILABLE] * 3)
        self.looks(3)
        self.assertEqual(self.stay(), ["starting", "ready"])
        self.assertEqual(self.told(), [])
        self.looks(6)
        self.assertEqual(self.stay(), [])


class TooManyTests(EveryReasonTestCase):
    """More objects than are read: what needs to know of all of them stays, the rest goes."""

    def too_many(self, kind: str, count: int) -> None:
        """There are so many others."""
        for number in range(count):
            name = f"another-{number}"
            labels = {
                "app.kubernetes.io/name": "pi-session-sandbox",
                "app.kubernetes.io/managed-by": "twisted-gateway",
            }
            metadata = {"name": name, "uid": name, "labels": labels}
            self.api.objects[kind, name] = {"kind": "x", "metadata": metadata}

    def check(self, kind: str, kept: str, words: str) -> None:
        self.patch(kube, "PAGE_OBJECTS", 10)
        self.patch(kube, "MOST_PAGES", 2)
        self.too_many(kind, 21)
        self.looks(20)
        self.assertEqual(self.stay(), [kept])
        (line,) = [one for one in self.said if "to be listed" in one]
        self.assertIn(f"{words} are too many to be listed, so pods", line)

    def test_claims(self) -> None:
        """Workspaces: pods that have ended go, and those that do not start."""
        self.check("persistentvolumeclaims", "half", "PersistentVolumeClaims")

    def test_services(self) -> None:
        """Services."""
        self.check("services", "ready", "Services")

    def test_nonsense(self) -> None:
        """A list that is none, or longer than is read, keeps no pod that has ended either."""
        nonsense = Reply(200, {"metadata": {}, "items": [5]})
        self.api.fail = lambda verb, kind, name: (
            nonsense if (verb, kind) == ("list", "persistentvolumeclaims") else None
        )
        self.looks(20)
        self.assertEqual(self.stay(), ["half"])
        (line,) = [one for one in self.said if "be listed" in one]
        self.assertIn("PersistentVolumeClaims cannot be listed, so pods", line)

    def test_pods(self) -> None:
        """Pods: of those that were read, which have ended go; so there are fewer each time."""
        self.patch(kube, "PAGE_PODS", 1)
        self.patch(kube, "MOST_PAGES", 2)
        for session in ("a", "b", "c"):
            self.post(session)
            self.api.end(session)
        self.stack.settle()
        self.looks(2)
        self.assertEqual(
            [one for one in ("a", "b", "c") if self.kept("pods", f"pi-session-{one}")], []
        )
        self.patch(kube, "MOST_PAGES", 100)
        self.looks(20)
        self.assertEqual(self.stay(), [])

    def test_large_pages(self) -> None:
        """Ten thousand workspaces are no reason to leave anything."""
        self.too_many("persistentvolumeclaims", 10_001)
        self.api.asked.clear()
        self.look()
        self.assertNotIn("half", self.stay())
        self.assertEqual(self.api.asked.count(("list", "persistentvolumeclaims")), 21)

    def test_services_of_others(self) -> None:
        """Services that are none of the gateway's are not read, however many there are."""
        self.patch(kube, "PAGE_OBJECTS", 10)
        self.patch(kube, "MOST_PAGES", 2)
        self.too_many("services", 100)
        for (kind, name), one in self.api.objects.items():
            if kind == "services" and name.startswith("another"):
                del one["metadata"]["labels"]
        self.looks(20)
        self.assertEqual(self.stay(), [])


class UnlabelledTests(ReaperTestCase):
    """What was there before the gateway bears none of its labels."""

    config = PLAIN.replace("requireAuth", "reaperIntervalMinutes: 1\n    requireAuth")

    def test_service(self) -> None:
        """A pod of the gateway's behind such a Service is served by it, and stays."""
        self.running()
        del self.api.objects["services", "pi-session-s1"]["metadata"]["labels"]
        del self.api.objects["services", "pi-session-s1"]["metadata"]["ownerReferences"]
        self.looks(20)
        self.assertTrue(self.kept("pods", "pi-session-s1"))

    def test_claim(self) -> None:
        """One on such a workspace that is being removed goes."""
        self.running()
        claim = self.api.objects["persistentvolumeclaims", "workspace-session-s1"]
        del claim["metadata"]["labels"]
        claim["metadata"]["deletionTimestamp"] = "2001-01-01T00:00:00Z"
        self.look()
        self.assertFalse(self.kept("pods", "pi-session-s1"))


class FailingDeletionTests(EveryReasonTestCase):
    """A pod whose deletion fails, for a webhook of somebody's that does: it keeps no other."""

    def failing(self, reply: Reply, session: str) -> None:
        """The deletion of a session's pod is answered so."""
        self.api.fail = lambda verb, kind, name: (
            reply if (verb, name) == ("delete", f"pi-session-{session}") else None
        )

    def check(self, session: str) -> None:
        """All others go, and it goes when it can."""
        self.failing(UNAVAILABLE, session)
        self.looks(16)
        self.assertEqual(self.stay(), [session])
        (line,) = [one for one in self.said if "not removed" in one]
        self.assertIn(f"the pod pi-session-{session} is not removed: ", line)
        self.assertIn("503", line)
        self.api.fail = lambda verb, kind, name: None
        self.look()
        self.assertEqual(self.stay(), [])

    def test_ended(self) -> None:
        """One that has ended."""
        self.check("ended")

    def test_half_removed(self) -> None:
        """One on a workspace that is being removed."""
        self.check("half")

    def test_starting(self) -> None:
        """One that starts."""
        self.check("starting")

    def test_not_served(self) -> None:
        """One that has no Service."""
        self.check("ready")

    def test_however(self) -> None:
        """However the deletion fails."""
        for number, reply in enumerate(
            (
                refusal(500, "InternalError", 'failed calling webhook "x"'),
                refusal(429, "TooManyRequests", ""),
                refusal(504, "Timeout", ""),
                Reply(0),
            )
        ):
            first, second = f"a{number}", f"b{number}"
            for session in (first, second):
                self.post(session)
                self.api.end(session)
            self.stack.settle()
            self.failing(reply, first)
            self.look()
            there = [self.kept("pods", f"pi-session-{one}") for one in (first, second)]
            self.assertEqual(there, [True, False], reply)

    def test_what_was_counted_counts(self) -> None:
        """Looks in which a deletion fails, or the API is lost on the way, count as any."""
        self.looks(9)
        self.failing(UNAVAILABLE, "a")
        self.post("a")
        self.api.end("a")
        self.stack.settle()
        self.looks(4)
        self.assertIn("starting", self.stay())
        self.looks(2)
        self.assertNotIn("starting", self.stay())

    def test_unreachable(self) -> None:
        """An API that cannot be reached any more is not tried for each of them."""
        for session in ("a", "b", "c"):
            self.post(session)
            self.api.end(session)
        self.stack.settle()

        def goes_down(verb: str, kind: str, name: str) -> Reply | None:
            if verb != "delete":
                return None
            self.kube.up = False
            return Reply(0)

        self.api.fail = goes_down
        connected: list[bool] = []
        connect = self.stack.reactor.connectTCP

        def count(*args: object, **more: object) -> object:
            connected.append(self.kube.up)
            return connect(*args, **more)

        self.patch(self.stack.reactor, "connectTCP", count)
        self.look()
        self.assertEqual(connected.count(False), 1)
        self.assertEqual(len(self.api.names("pods")), 7)
        self.kube.up = True
        self.api.fail = lambda verb, kind, name: None
        self.looks(2)
        self.assertEqual(self.stay(), ["starting", "ready"])
