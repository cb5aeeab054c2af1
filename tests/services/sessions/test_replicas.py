from __future__ import annotations

import random

from tests.services.sessions.apiserver import leaving
from tests.services.sessions.stack import SessionsTestCase
from tests.support import examples

WHOLE = ["persistentvolumeclaims", "pods", "services"]


class RaceTests(SessionsTestCase):
    """Two replicas at one session, their requests to Kubernetes mixed in every way."""

    def setUp(self) -> None:
        super().setUp()
        self.other = SessionsTestCase("setUp")
        self.other.setUp()
        self.other.api = self.other.kube.api = self.api
        self.addCleanup(self.other.doCleanups)

    def mix(self, choice: random.Random) -> None:
        """Let requests of both be answered one by one, in an order of chance, to the last."""
        for one in (self, self.other):
            one.kube.holding = True
        while True:
            waiting = [one for one in (self, self.other) if one.kube.held]
            if not waiting:
                return
            one = choice.choice(waiting)
            one.kube.reply(one.kube.held.pop(0))
            for each in (self, self.other):
                each.stack.settle()

    def kubelet(self, session: str) -> None:
        """Pods that are being deleted go, those that can start become Ready."""
        for _ in range(3):
            if f"pi-session-{session}" in self.api.names("pods"):
                if leaving(self.api.pod(session)):
                    self.api.finish(session)
                elif self.api.can_start(session):
                    self.api.become_ready(session)
            for one in (self, self.other):
                one.stack.settle()
            self.mix(self.choice)

    def left(self, session: str) -> list[str]:
        """What there is of a session, apart from what is going."""
        return sorted(
            kind
            for (kind, name), tree in self.api.objects.items()
            if name.endswith(f"-{session}") and not leaving(tree)
        )

    def test_made_and_removed(self) -> None:
        """A POST and a DELETE at once leave a whole sandbox or nothing, as the POST was told."""
        seen = set()
        for seed in range(examples(80).max_examples):
            self.choice = random.Random(seed)
            session = f"s{seed}"
            for one in (self, self.other):
                one.kube.holding = True
            made = self.post(session)
            # The other one comes at any moment.
            for _ in range(self.choice.randrange(8)):
                if self.kube.held:
                    self.kube.reply(self.kube.held.pop(0))
                    self.stack.settle()
            removed = self.other.delete(session)
            self.mix(self.choice)
            self.kubelet(session)
            self.assertEqual(removed.status, 200, seed)
            self.assertIn(made.status, (200, 409), seed)
            self.assertEqual(self.left(session), WHOLE if made.status == 200 else [], seed)
            seen.add(made.status)
        self.assertEqual(seen, {200, 409})

    def test_found_and_removed(self) -> None:
        """A POST that finds what a DELETE removes at once leaves all of it or nothing."""
        seen = set()
        for seed in range(examples(100).max_examples):
            self.choice = random.Random(seed)
            session = f"s{seed}"
            for one in (self, self.other):
                one.kube.holding = False
            self.post(session)
            self.ready(session)
            for one in (self, self.other):
                one.kube.holding = True
            made, removed = self.post(session), self.other.delete(session)
            self.mix(self.choice)
            self.kubelet(session)
            self.assertEqual(removed.status, 200, seed)
            self.assertIn(made.status, (200, 409), seed)
            left = self.left(session)
            self.assertIn(left, (WHOLE, []), seed)
            self.assertFalse(made.status == 409 and left, seed)
            seen.add((made.status, bool(left)))
        self.assertLessEqual({(200, False), (200, True)}, seen)

    def test_both_made(self) -> None:
        """Two POSTs at once make one sandbox, and both are told of it."""
        for seed in range(examples(40).max_examples):
            self.choice = random.Random(seed)
            session = f"s{seed}"
            for one in (self, self.other):
                one.kube.holding = True
            clients = [self.post(session), self.other.post(session)]
            self.mix(self.choice)
            self.kubelet(session)
            self.assertEqual([client.status for client in clients], [200, 200], seed)
            made = [kind for kind, name in self.api.created if name.endswith(f"-{session}")]
            self.assertEqual(len(made), 3, seed)
