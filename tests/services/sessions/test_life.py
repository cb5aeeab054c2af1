from __future__ import annotations

from collections.abc import Callable

from tests.services.sessions.stack import SessionsTestCase
from tests.stack import Client
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.services.sessions import attempt as attempt_module
from twisted_gateway.services.sessions import objects

EVERYTHING = """
adapters:
  sessions:
    namespace: poimen
    image: registry.example/session-runtime:1.0
    kubernetes: {server: "http://10.5.0.1:8001", token: token-1}
    fleet: "http://10.5.0.2:8788"
    memoryEntity: "http://10.5.0.3:8080/entities/{session_id}"
    requireAuth: false
drainSeconds: 3
"""


class LeavingTests(SessionsTestCase):
    """A client may leave at any moment: what it has begun is ended all the same."""

    config = EVERYTHING

    def looking(self) -> Client:
        """Kubernetes is asked whether the session is there, before the fleet controller."""
        self.kube.holding = True
        return self.post()

    def asking_the_fleet(self) -> Client:
        return self.post()

    def step(self, count: int) -> Callable[[], Client]:
        """Bring a request to its `count`-th request to Kubernetes, which hangs."""

        def place() -> Client:
            client = self.post()
            self.kube.holding = True
            self.fleet.last.answer(404)
            self.kube.step(count)
            return client

        return place

    def places(self) -> list[Callable[[], Client]]:
        # Get pod and claim, apply policy, create pod, get and create Service, create claim, watch.
        return [self.looking, self.asking_the_fleet, *map(self.step, range(9))]

    def each(self, end: Callable[[Client], None]) -> None:
        for number, place in enumerate(self.places()):
            self.tearDown()
            self.doCleanups()
            self.setUp()
            self.place = f"place {number}"
            end(place())

    def test_leaving(self) -> None:
        """The sandbox is made nevertheless, and the next request finds it."""

        def leave(client: Client) -> None:
            self.assertEqual(len(self.stack.gateway.exchanges), 1, self.place)
            client.leave()
            self.assertIs(self.stack.entries[-1].outcome, Outcome.CLIENT_DISCONNECT, self.place)
            self.assertEqual(len(self.stack.gateway.exchanges), 0, self.place)
            self.kube.let_go()
            if not self.api.created:
                self.fleet.last.answer(404)
            self.assertEqual(self.api.names("services"), ["pi-session-s1"], self.place)
            self.ready()
            again = self.post()
            self.assertEqual(again.status, 200, self.place)
            self.assertEqual(len(self.api.created), 4, self.place)
            self.assertEqual(self.kube.open_watches, 0, self.place)
            self.memory.last.answer(404)
            self.memory.last.answer()

        self.each(leave)

    def test_the_last_one_leaves(self) -> None:
        """Of two that wait one may leave; the other is answered."""
        first, second = self.post(), self.post()
        self.fleet.last.answer(404)
        first.leave()
        self.ready()
        self.assertEqual(second.status, 200)

    def test_end_of_drain(self) -> None:
        """At the end of a drain the client is told, and nothing is left running here."""

        def drain(client: Client) -> None:
            drained = self.stack.gateway.drain()
            self.stack.advance(4)
            self.assertEqual((client.status, client.json["reason"]), (503, "draining"), self.place)
            self.stack.advance(12)
            client.leave()
            self.successResultOf(drained)

        self.each(drain)

    def test_stop(self) -> None:
        """When the process stops what is under way stops, wherever it is."""

        def stop(client: Client) -> None:
            stopped = self.stack.gateway.stopService()
            self.stack.settle()
            self.successResultOf(stopped)
            client.leave()
            self.assertEqual(self.kube.open_watches, 0, self.place)

        self.each(stop)

    def test_late_for_nobody(self) -> None:
        """An attempt that nobody waits for has the same time, and frees its place."""
        for place in (self.asking_the_fleet, self.step(7)):
            self.tearDown()
            self.doCleanups()
            self.setUp()
            place().leave()
            self.stack.advance(60)
            self.assertEqual(self.kube.open_watches, 0)
            self.kube.let_go()
            again = self.post()
            self.ready()
            self.assertEqual(again.status, 200)


class InForceTests(SessionsTestCase):
    """Reload, and what is bounded."""

    config = EVERYTHING

    def test_reload(self) -> None:
        """A request goes on over a reload; later ones are served by what is in force then."""
        client = self.post()
        self.fleet.last.answer(404)
        self.stack.text = EVERYTHING.replace("session-runtime:1.0", "session-runtime:2.0")
        self.assertTrue(self.stack.gateway.reload())
        self.ready()
        self.assertEqual(client.status, 200)
        self.post("s2")
        self.fleet.last.answer(404)
        image = self.api.pod("s2")["spec"]["containers"][0]["image"]
        self.assertEqual(image, "registry.example/session-runtime:2.0")

    def test_no_room(self) -> None:
        """Past so many sessions at once others are told to come again."""
        self.patch(attempt_module, "MOST_SESSIONS", 2)
        waiting = [self.post("s1"), self.post("s2")]
        client = self.post("s3")
        self.assertEqual((client.status, client.json["reason"]), (503, "queue_full"))
        self.assertEqual(client.headers["retry-after"], "5")
        self.assertIs(self.stack.entries[-1].outcome, Outcome.REJECTED)
        waiting += [self.post("s1")]
        for asked in list(self.fleet.asked):
            asked.answer(body={"svc_dns": "a.b"})
        self.assertEqual([one.status for one in waiting], [200, 200, 200])
        self.assertEqual(self.post("s3").status, 0)

    def test_without_a_cluster(self) -> None:
        """Where no Kubernetes is known the fleet controller serves alone; without one it is 502."""
        self.stack.text = EVERYTHING.replace('server: "http://10.5.0.1:8001", ', "")
        self.assertTrue(self.stack.gateway.reload())
        client = self.post()
        self.fleet.last.answer(body={"svc_dns": "a.b"})
        self.assertEqual(client.status, 200)
        client = self.post("s2")
        self.fleet.last.answer(404)
        self.assertEqual(client.status, 502)
        self.assertIn("no Kubernetes API is configured", client.json["detail"])

    def test_listed(self) -> None:
        """`GET /v1/services` lists it, without addresses."""
        client = self.stack.client().get("/v1/services")
        methods = client.json["services"]["sessions"]["resources"]["sandbox"]["methods"]
        self.assertEqual(sorted(methods), ["DELETE", "POST"])
        self.assertEqual(methods["POST"]["parameters"], [{"name": "session_id", "required": True}])
        self.assertNotIn(b"10.5.0", client.received)

    def test_a_fault_of_ours(self) -> None:
        """A fault of the gateway's own is 500, and the session can be asked for again."""
        self.patch(objects, "claim", lambda *_: 1 / 0)
        client = self.post()
        self.fleet.last.answer(404)
        self.assertEqual(client.status, 500)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
