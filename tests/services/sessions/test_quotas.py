from __future__ import annotations

from tests.services.sessions.test_refusals import SESSION, RefusingTestCase


class QuotaTests(RefusingTestCase):
    """A ResourceQuota that is full, by which the API refuses before it looks what is there."""

    def test_running(self) -> None:
        """A session that runs is given as it is."""
        first = self.running()
        self.api.quota = {"pods": 1, "services": 1, "persistentvolumeclaims": 1}
        again = self.post()
        self.assertEqual((again.status, again.json), (200, first.json))
        self.assertEqual({verb for verb, _ in self.api.asked}, {"get"})

    def test_resumed(self) -> None:
        """A workspace that is there needs no room of its own."""
        self.running()
        self.api.end()
        self.api.quota = {"persistentvolumeclaims": 1}
        client = self.post()
        self.ready()
        self.assertEqual(client.status, 200)

    def test_counted_late(self) -> None:
        """A quota that still counts the pod which has just gone is no refusal, for a while."""
        self.running()
        self.api.end()
        self.api.quota = {"pods": 1}
        self.api.recount_seconds = 1.5
        client = self.post()
        self.stack.advance(2)
        self.ready()
        self.assertEqual(client.status, 200)

    def test_counted_too_late(self) -> None:
        """After that while it is one; the workspace stays."""
        self.running()
        self.api.end()
        self.api.quota = {"pods": 1}
        self.api.recount_seconds = 60
        client = self.post()
        self.stack.advance(4)
        self.assertEqual(client.status, 403)
        self.assertEqual(self.left(), ["persistentvolumeclaims"])

    def test_another_replica_was_first(self) -> None:
        """What another replica has made in between is taken, though the refusal does not say so."""
        other = self.replica()
        for number, (kind, steps) in enumerate(
            (("pods", 4), ("services", 6), ("persistentvolumeclaims", 7))
        ):
            session = f"s{number}"
            self.kube.holding = True
            mine = self.post(session)
            self.kube.step(steps)
            theirs = other.post(session)
            self.api.quota = {kind: number + 1}
            self.kube.let_go()
            self.api.quota = {}
            self.ready(session)
            other.stack.settle()
            self.assertEqual((mine.status, theirs.status), (200, 200), kind)
            self.assertEqual(self.api.created.count((SESSION[1], f"pi-session-{session}")), 1)

    def test_full(self) -> None:
        """Where there is really no room the client is told of the quota, and nothing is left."""
        for kind in SESSION:
            self.api.quota = {kind: 0}
            client = self.post()
            self.assertEqual(client.status, 403)
            self.assertIn("exceeded quota", client.json["upstream_message"])
            self.assertEqual(self.left(), [], kind)
