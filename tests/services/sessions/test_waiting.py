from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred

from tests.services.sessions.apiserver import (
    BROKEN_OFF,
    ETCD_TIMED_OUT,
    STARTING,
    UNAVAILABLE,
    Reply,
    refusal,
    times,
)
from tests.services.sessions.stack import SessionsTestCase
from tests.support import TestCase
from twisted_gateway.services.sessions.attempt import Attempt, Late
from twisted_gateway.services.sessions.kube import PODS
from twisted_gateway.services.sessions.kube_answers import KubeRefusal, KubeUnavailable
from twisted_gateway.services.sessions.waiting import Waiter
from twisted_gateway.services.sessions.watch import Change
from twisted_gateway.upstream.errors import ConnectFailed

Tree = dict[str, Any]
Said = Change | Exception | Deferred[Change | None] | None


def pod(version: int, *, uid: str = "u1", ready: bool = False) -> Tree:
    """A pod, as it was at a version."""
    metadata = {"name": "p", "uid": uid, "resourceVersion": str(version)}
    return {"metadata": metadata, "ready": ready}


def changed(tree: Tree, kind: str = "MODIFIED") -> Change:
    """A change of it."""
    return Change(kind, tree)


class ScriptedWatch:
    """A watch that says what it is told to; and nothing after that."""

    def __init__(self, said: list[Said]) -> None:
        self.said = said
        self.closed = False

    async def next(self) -> Change | None:
        if not self.said:
            return await Deferred()
        said = self.said.pop(0)
        if isinstance(said, Exception):
            raise said
        return await said if isinstance(said, Deferred) else said

    def close(self) -> None:
        self.closed = True


class ScriptedKube:
    """The API: what its watches say, one after the other, and what it is looked at for.

    Attributes:
        watched: the versions that watches began at.
        looks: when it was looked.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.watches: list[list[Said] | Exception] = []
        self.looked: list[tuple[Tree | None, str] | Exception] = []
        self.watched: list[str] = []
        self.opened: list[ScriptedWatch] = []
        self.looks: list[float] = []
        self._now = now

    async def watch(self, kind: str, name: str, version: str, seconds: float) -> ScriptedWatch:
        self.watched.append(version)
        said = self.watches.pop(0)
        if isinstance(said, Exception):
            raise said
        watch = ScriptedWatch(said)
        self.opened.append(watch)
        return watch

    async def look(self, kind: str, name: str) -> tuple[Tree | None, str]:
        self.looks.append(self._now())
        found = self.looked.pop(0) if self.looked else UNREACHABLE
        if isinstance(found, Exception):
            raise found
        return found


UNREACHABLE = ConnectFailed("the connection was refused")
EXPIRED = Change("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})


class WaiterTests(TestCase):
    """What is done with everything that an API may say."""

    def setUp(self) -> None:
        super().setUp()
        self.kube = ScriptedKube(self.clock.seconds)
        self.told: list[Tree | None] = []

    def wait(self, chance: float = 1.0, seconds: float = 100) -> Deferred[None]:
        """Wait for a pod to be ready, or gone."""

        def judge(tree: Tree | None) -> bool:
            self.told.append(tree)
            return tree is None or tree["ready"]

        attempt = self.attempt = Attempt(self.clock, seconds)
        waiter = Waiter(self.kube, self.clock, lambda: chance)  # type: ignore[arg-type]

        async def until() -> None:
            try:
                await waiter.until(PODS, pod(1), attempt, judge)
            finally:
                attempt.end()

        return Deferred.fromCoroutine(until())

    def test_changes(self) -> None:
        """It is watched from the version that it was seen at, until it is as wished."""
        self.kube.watches = [[changed(pod(2)), changed(pod(3, ready=True))]]
        self.successResultOf(self.wait())
        self.assertEqual((self.kube.watched, self.kube.looks), (["1"], []))
        self.assertEqual(self.told, [pod(1), pod(2), pod(3, ready=True)])
        self.assertTrue(self.kube.opened[0].closed)

    def test_gone(self) -> None:
        """It is gone when it is deleted, when another is in its place, and when a look finds so."""
        for change in (changed(pod(2), "DELETED"), changed(pod(2, uid="u2"), "ADDED")):
            self.kube.watches = [[change]]
            self.successResultOf(self.wait())
            self.assertIsNone(self.told.pop())
        for found in (None, pod(2, uid="u2", ready=True)):
            self.kube.watches, self.kube.looked = [[None]], [(found, "2")]
            waiting = self.wait()
            self.clock.pump([1])
            self.successResultOf(waiting)
            self.assertIsNone(self.told.pop())

    def test_bookmark(self) -> None:
        """A bookmark has a version and no object: it says nothing of the pod."""
        mark = Change("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": "9"}})
        self.kube.watches = [[mark, changed(pod(10, ready=True))]]
        self.successResultOf(self.wait())
        self.assertEqual(self.told, [pod(1), pod(10, ready=True)])

    def test_expired(self) -> None:
        """A version that is too old is followed by that of a list, not by the object's own."""
        self.kube.watches = [[EXPIRED], [changed(pod(8, ready=True))]]
        self.kube.looked = [(pod(1), "7")]
        waiting = self.wait()
        self.clock.pump([1])
        self.successResultOf(waiting)
        self.assertEqual(self.kube.watched, ["1", "7"])

    def test_what_passes(self) -> None:
        """An API that fails, cannot be reached or does not know who asks is asked again."""
        for fault, seen in (
            (UNREACHABLE, "the connection was refused"),
            (KubeUnavailable(504, "the API answered 504", "", None), "the API answered 504"),
            (KubeRefusal(410, "Expired", ""), "the Kubernetes API answered 410 Expired"),
            (KubeRefusal(401, "", ""), "the Kubernetes API answered 401"),
            (KubeRefusal(403, "Forbidden", ""), "the Kubernetes API answered 403 Forbidden"),
        ):
            self.kube.watches = [fault, [changed(pod(8, ready=True))]]
            self.kube.looked = [fault, (pod(1), "7")]
            waiting = self.wait()
            self.assertEqual(self.attempt.seen, seen)
            self.clock.pump([1, 1])
            self.successResultOf(waiting)

    def test_what_stays(self) -> None:
        """Any other refusal is told, whichever request it is to."""
        refusal = KubeRefusal(400, "BadRequest", "")
        self.kube.watches = [refusal]
        self.failureResultOf(self.wait(), KubeRefusal)
        self.kube.watches, self.kube.looked = [[None]], [refusal]
        waiting = self.wait()
        self.clock.pump([1])
        self.failureResultOf(waiting, KubeRefusal)

    def test_left_alone(self) -> None:
        """An API that says how long it wants to be left alone is, and no longer."""
        busy = KubeUnavailable(429, "it answered 429", "", 7.0)
        self.kube.watches = [busy, [None], []]
        self.kube.looked = [busy, (pod(1), "7"), (pod(1), "8")]
        waiting = self.wait()
        self.clock.pump([0.25] * 80)
        self.assertEqual(self.kube.looks, [7.5, 15.5, 17.5])
        waiting.cancel()
        self.failureResultOf(waiting, CancelledError)

    def test_pauses(self) -> None:
        """In vain it is looked at longer intervals, up to five seconds, by its own jitter."""
        for chance, expected in (
            (1.0, [0.5, 1.5, 3.5, 7.5, 12.5, 17.5]),
            (0.0, [0.25, 0.75, 1.75, 3.75, 6.25, 8.75]),
        ):
            self.kube.watches, self.kube.looks = [UNREACHABLE], []
            began = self.clock.seconds()
            waiting = self.wait(chance, seconds=expected[-1] + 0.1)
            self.clock.pump([0.125] * 150)
            self.failureResultOf(waiting, Late)
            self.assertEqual([one - began for one in self.kube.looks], expected)

    def test_pauses_begin_anew(self) -> None:
        """After a watch that has gone on for a while the first pause is the short one again."""
        long: Deferred[Change | None] = Deferred()
        self.kube.watches = [[EXPIRED], [EXPIRED], [long], []]
        self.kube.looked = [(pod(1), "7")] * 3
        waiting = self.wait()
        self.clock.pump([0.5, 1, 10])
        long.callback(None)
        self.clock.pump([0.5])
        self.assertEqual(self.kube.looks, [0.5, 1.5, 12])
        waiting.cancel()
        self.failureResultOf(waiting, CancelledError)


class CompactedTests(SessionsTestCase):
    """A cluster that knows the version of a pod no more, for it has not changed for long."""

    def test_lasting(self) -> None:
        """Its pod is waited for by a watch, and no request is sent again and again."""
        self.api.room = False
        self.post()
        self.stack.advance(31)
        self.api.compact()
        self.api.asked.clear()
        client = self.post()
        self.stack.advance(25)
        self.assertEqual(len([one for one in self.api.asked if one[0] == "watch"]), 2)
        self.assertEqual(len([one for one in self.api.asked if one[0] == "list"]), 1)
        self.assertEqual(self.kube.open_watches, 1)
        self.api.room = True
        self.api.schedule()
        self.ready()
        self.assertEqual(client.status, 200)

    def test_watched_alone(self) -> None:
        """It is watched from where it was seen, by its name, for as long as there is time."""
        self.post()
        self.stack.advance(10)
        self.kube.end_watches()
        self.stack.advance(1)
        ((watch, asked),) = self.kube.watches
        seconds = int(watch.fields.pop("timeoutSeconds"))
        self.assertIn(seconds, (19, 20))
        self.assertEqual(
            watch.fields,
            {
                "watch": "1",
                "fieldSelector": "metadata.name=pi-session-s1",
                "resourceVersion": str(self.api._version),
            },
        )
        lists = [one.path for one in self.kube.asked if "watch=" not in one.path]
        place = "/api/v1/namespaces/poimen/pods"
        self.assertEqual(lists[-1], f"{place}?fieldSelector=metadata.name%3Dpi-session-s1")
        self.ready()
        self.assertTrue(asked.gone)

    def test_restarting(self) -> None:
        """An API that restarts is waited for, whatever it says meanwhile; the pod stays."""
        client = self.post()
        self.api.fail = times("list", "pods", UNAVAILABLE, STARTING, ETCD_TIMED_OUT, BROKEN_OFF)
        self.kube.end_watches()
        self.ready()
        self.stack.advance(20)
        self.assertEqual(client.status, 200)

    def test_no_list(self) -> None:
        """What is answered to a list and is none is no pod that is gone."""
        client = self.post()
        answers: list[Tree] = [{"metadata": 5}, {"metadata": {}, "items": 5}]
        self.api.fail = times("list", "pods", *(Reply(200, one) for one in answers))
        self.kube.end_watches()
        self.stack.advance(5)
        self.ready()
        self.stack.advance(5)
        self.assertEqual(client.status, 200)

    def test_forbidden(self) -> None:
        """A Role that lacks `watch` costs time, and no sandbox."""
        self.api.fail = lambda verb, kind, name: (
            refusal(403, "Forbidden", "no watch") if verb == "watch" else None
        )
        client = self.post()
        self.ready()
        self.stack.advance(1)
        self.assertEqual(client.status, 200)
