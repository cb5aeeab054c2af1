from __future__ import annotations

from collections import Counter

from tests.services.sessions.apiserver import TIMED_OUT, UNAVAILABLE, Reply, times
from tests.services.sessions.stack import PLAIN, ReaperTestCase
from tests.services.stack import said
from tests.stack import Asked
from twisted_gateway.services.sessions import kube, reaper


class HangingTests(ReaperTestCase):
    """An API that hangs where pods are deleted that have ended."""

    config = PLAIN.replace("requireAuth", "reaperIntervalMinutes: 1\n    requireAuth")

    def setUp(self) -> None:
        """There are more of them than can hang in one look."""
        super().setUp()
        self.hung: list[str] = []
        for number in range(20):
            self.post(f"s{number:02}")
        self.stack.advance(31)
        for number in range(20):
            self.doom(f"s{number:02}")
        reply = self.kube.reply

        def hang(asked: Asked) -> None:
            name = asked.path.partition("?")[0].rpartition("/")[2]
            if asked.method == "DELETE" and self.hangs(name):
                self.hung.append(name)
            else:
                reply(asked)

        self.patch(self.kube, "reply", hang)

    def doom(self, session: str) -> None:
        """Give a reason to remove a session's pod."""
        self.api.end(session)

    def hangs(self, name: str) -> bool:
        """Whether the deletion of a pod does."""
        return name != "pi-session-s19"

    def test_lease(self) -> None:
        """A look has ended when the next one is due, and says so: the Lease is renewed each time.

        The pod that can be deleted waits for no other more than once.
        """
        lines = said(self)
        self.look()
        for _ in range(5):
            renewed = self.api.asked.count(("update", "leases/pi-session-reaper"))
            self.stack.advance(60, step=5)
            later = self.api.asked.count(("update", "leases/pi-session-reaper"))
            self.assertEqual(later, renewed + 1)
        self.assertEqual(len(set(self.hung)), 19)
        self.assertFalse(self.kept("pods", "pi-session-s19"))
        self.assertEqual(len([one for one in lines if "the next one goes on" in one]), 1)
        (line,) = [one for one in lines if "is not removed" in one]
        self.assertIn("the pod pi-session-s00 is not removed: ", line)


class HangingWorkspaceTests(HangingTests):
    """An API that hangs where pods are deleted whose workspaces are being removed."""

    def doom(self, session: str) -> None:
        """Give a reason to remove a session's pod."""
        claim = self.api.objects["persistentvolumeclaims", f"workspace-session-{session}"]
        claim["metadata"]["deletionTimestamp"] = "2001-01-01T00:00:00Z"


class StarvingTests(HangingTests):
    """One of them hangs no more."""

    blips = 1

    def hangs(self, name: str) -> bool:
        """Whether the deletion of a pod does: that of the last once."""
        if name == "pi-session-s19" and self.blips:
            self.blips -= 1
            return True
        return super().hangs(name)

    def test_lease(self) -> None:
        """Those that fail come in turn: none waits for ever behind others that do."""
        self.look()
        self.stack.advance(60 * 12, step=5)
        self.assertFalse(self.kept("pods", "pi-session-s19"))
        tries = Counter(self.hung)
        del tries["pi-session-s19"]
        self.assertLessEqual(max(tries.values()) - min(tries.values()), 1)

    def test_bounded(self) -> None:
        """So many of those that fail are remembered, and no more."""
        self.patch(reaper, "MOST_FAILING", 3)
        self.look()
        self.stack.advance(60 * 3, step=5)
        (sight,) = self.stack.gateway._service_side._sandboxes.sights.values()
        self.assertEqual(len(sight.failing), 3)


class SlowTests(ReaperTestCase):
    """An API that takes nine seconds for each answer."""

    config = PLAIN.replace("requireAuth", "reaperIntervalMinutes: 1\n    requireAuth")

    def test_those_that_failed(self) -> None:
        """So does one whose removal failed once, where no other has ended."""
        self.check(3, UNAVAILABLE, UNAVAILABLE, UNAVAILABLE)

    def test_one_at_least(self) -> None:
        """Where looking alone takes a look's time one pod goes in each all the same."""
        self.check(15)

    def check(self, count: int, *faults: Reply) -> None:
        """So many pods have ended, and the first removals fail so; all go."""
        self.patch(kube, "PAGE_PODS", 1 if count < 5 else 5)
        for number in range(count):
            self.post(f"s{number:02}")
        self.stack.advance(31)
        for number in range(count):
            self.api.end(f"s{number:02}")
        self.api.fail = times("delete", "pods", *faults)
        reply, reactor = self.kube.reply, self.stack.reactor

        def late(asked: Asked) -> None:
            reactor.callLater(9, lambda: None if asked.gone else reply(asked))

        self.patch(self.kube, "reply", late)
        self.stack.advance(1500, step=5)
        self.assertEqual([one for one in self.api.objects if one[0] == "pods"], [])
        self.stack.gateway.stopService()
        self.stack.advance(10)


class FailedOnceTests(ReaperTestCase):
    """A pod that has ended, whose deletion failed once."""

    def check(self, kind: str) -> None:
        """It is tried again also while nothing else can be listed."""
        self.post("s1")
        self.stack.advance(9)
        self.api.end("s1")
        failed: list[str] = []

        def fail(verb: str, kind_asked: str, name: str) -> Reply | None:
            if (verb, kind_asked) == ("delete", "pods") and not failed:
                failed.append(name)
                return UNAVAILABLE
            return TIMED_OUT if (verb, kind_asked) == ("list", kind) else None

        self.api.fail = fail
        self.looks(3)
        self.assertEqual(failed, ["pi-session-s1"])
        self.assertFalse(self.kept("pods", "pi-session-s1"))

    def test_services(self) -> None:
        """Services."""
        self.check("services")

    def test_claims(self) -> None:
        """Workspaces."""
        self.check("persistentvolumeclaims")
