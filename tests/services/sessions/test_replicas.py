from __future__ import annotations

import random

from tests.services.sessions.apiserver import TIMED_OUT, Reply, Trouble, leaving, refusal, times
from tests.services.sessions.stack import SessionsTestCase
from tests.support import examples

WRITES = (
    ("patch", "networkpolicies"),
    ("create", "pods"),
    ("create", "services"),
    ("create", "persistentvolumeclaims"),
)
WHOLE = ["persistentvolumeclaims", "pods", "services"]


def either(*troubles: Trouble) -> Trouble:
    """All these troubles."""

    def trouble(verb: str, resource: str, name: str) -> Reply | None:
        return next(filter(None, (one(verb, resource, name) for one in troubles)), None)

    return trouble


class RaceTests(SessionsTestCase):
    """Two replicas at one session, their requests to Kubernetes mixed in every way."""

    def setUp(self) -> None:
        super().setUp()
        self.other: SessionsTestCase = self.replica()

    def mix(self, choice: random.Random, session: str | None = None) -> None:
        """Let requests of both be answered one by one, in an order of chance, to the last.

        The kubelet looks at the pod of `session` in between, now and then.
        """
        for one in (self, self.other):
            one.kube.holding = True
        while True:
            waiting = [one for one in (self, self.other) if one.kube.held]
            if not waiting:
                return
            one = choice.choice(waiting)
            one.kube.reply(one.kube.held.pop(0))
            if session is not None and choice.random() < 0.3:
                self.kubelet_once(session)
            for each in (self, self.other):
                each.stack.settle()

    def kubelet_once(self, session: str) -> None:
        """A pod that is being deleted goes, one that can start becomes Ready."""
        if f"pi-session-{session}" in self.api.names("pods"):
            if leaving(self.api.pod(session)):
                self.api.finish(session)
            elif self.api.can_start(session):
                self.api.become_ready(session)

    def kubelet(self, session: str) -> None:
        """All that it has to do is done."""
        for _ in range(4):
            self.kubelet_once(session)
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
        for seed in range(examples(30).max_examples):
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
        for seed in range(examples(30).max_examples):
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

    def test_resumed_and_removed(self) -> None:
        """A POST that finds a workspace alone leaves all or nothing too, and 409 is nothing."""
        seen = set()
        for seed in range(examples(30).max_examples):
            self.choice = random.Random(seed)
            session = f"s{seed}"
            for one in (self, self.other):
                one.kube.holding = False
            self.post(session)
            self.ready(session)
            self.api.end(session)
            self.api._delete("pods", f"pi-session-{session}", {})
            for one in (self, self.other):
                one.kube.holding = True
            made, removed = self.post(session), self.other.delete(session)
            self.mix(self.choice, session)
            self.kubelet(session)
            self.assertEqual(removed.status, 200, seed)
            left = self.left(session)
            self.assertIn((made.status, left), ((200, WHOLE), (200, []), (409, [])), seed)
            seen.add((made.status, bool(left)))
        self.assertLessEqual({(200, True), (409, False)}, seen)

    def test_both_made(self) -> None:
        """Two POSTs at once make one sandbox, and both are told of it."""
        for seed in range(examples(30).max_examples):
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

    def test_made_ready_and_removed(self) -> None:
        """So do they when pods start and end meanwhile: whole or nothing, and 409 is nothing."""
        seen = set()
        for seed in range(examples(30).max_examples):
            self.choice = random.Random(seed)
            session = f"s{seed}"
            for one in (self, self.other):
                one.kube.holding = True
            made = self.post(session)
            for _ in range(self.choice.randrange(14)):
                if self.kube.held:
                    self.kube.reply(self.kube.held.pop(0))
                    self.stack.settle()
            removed = self.other.delete(session)
            self.mix(self.choice, session)
            self.kubelet(session)
            self.assertEqual(removed.status, 200, seed)
            left = self.left(session)
            self.assertIn((made.status, left), ((200, WHOLE), (200, []), (409, [])), seed)
            seen.add((made.status, bool(left)))
        self.assertLessEqual({(200, True), (409, False)}, seen)

    def test_one_is_refused(self) -> None:
        """Whatever one of two is refused, at whatever moment, the other's workspace stays."""
        for seed in range(examples(30).max_examples):
            self.choice = random.Random(seed)
            session = f"s{seed}"
            for one in (self, self.other):
                one.kube.holding = True
            clients = [self.post(session), self.other.post(session)]
            refused = self.choice.choice(WRITES)
            troubles = [times(*refused, refusal(403, "Forbidden", "exceeded quota"))]
            if self.choice.random() < 0.5:
                troubles.append(times(*self.choice.choice(WRITES), TIMED_OUT, TIMED_OUT))
            self.api.fail = either(*troubles)
            for _ in range(8):
                self.mix(self.choice, session)
                for one in (self, self.other):
                    one.stack.advance(0.5)
            self.api.fail = lambda verb, kind, name: None
            self.kubelet(session)
            statuses = {client.status for client in clients}
            self.assertLessEqual(statuses, {200, 403}, seed)
            deleted = [
                name
                for verb, name in self.api.asked
                if verb == "delete" and name.startswith("persistentvolumeclaims/")
            ]
            self.assertEqual(deleted, [], seed)
            if 200 in statuses:
                self.assertEqual(self.left(session), WHOLE, seed)


class RolledBackTests(SessionsTestCase):
    """One replica is refused what another one has got."""

    def test_at_each_step(self) -> None:
        """A sandbox that another replica has made meanwhile serves on, on its workspace."""
        other = self.replica()
        for kind in ("networkpolicies", "pods", "services", "persistentvolumeclaims"):
            for steps in (1, 4, 5, 7):
                session = f"{kind[:4]}-{steps}"
                self.kube.holding = True
                mine = self.post(session)
                self.kube.step(steps)
                theirs = other.post(session)
                self.api.become_ready(session)
                other.stack.settle()
                self.assertEqual(theirs.status, 200, session)
                claim = f"workspace-session-{session}"
                uid = self.api.objects["persistentvolumeclaims", claim]["metadata"]["uid"]
                self.api.fail = lambda verb, asked, name, kind=kind: (  # type: ignore[misc]
                    refusal(403, "Forbidden", "exceeded quota")
                    if verb in ("create", "patch") and asked == kind
                    else None
                )
                self.kube.let_go()
                self.api.fail = lambda verb, asked, name: None
                self.assertIn(mine.status, (200, 403), session)
                found = self.api.objects["persistentvolumeclaims", claim]
                self.assertEqual((found["metadata"]["uid"], leaving(found)), (uid, False), session)
                if mine.status == 200:
                    self.assertEqual(other.post(session).json, theirs.json, session)

    def test_its_own_pod(self) -> None:
        """Not even its own pod is taken, when another replica's client has been given it."""
        other = self.replica()
        # Held are the last looks of the one that is refused, and then its deletion.
        for steps in (9, 10):
            session = f"s{steps}"
            self.kube.holding = True
            mine = self.post(session)
            self.api.fail = times(
                "create", "persistentvolumeclaims", refusal(403, "Forbidden", "exceeded quota")
            )
            self.kube.step(steps)
            theirs = other.post(session)
            self.api.become_ready(session)
            other.stack.settle()
            self.kube.let_go()
            self.assertEqual((mine.status, theirs.status), (403, 200))
            self.assertFalse(leaving(self.api.pod(session)), session)
            self.assertEqual(other.post(session).json, theirs.json)
