from __future__ import annotations

from tests.services.sessions.stack import PLAIN, ReaperTestCase
from tests.services.stack import said
from tests.stack import Asked


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
