"""Sandboxes: a gateway of its own before a kube-apiserver, a fleet controller, a memory service.

None of the three can be had here; each is as strict a fake as there is need of, on a real socket,
Kubernetes over TLS.
"""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.fakes.authority import Authority
from tests.integration.fakes.kube import KubeServer
from tests.integration.fakes.serving import Handler
from tests.integration.fakes.sessions import EntityServer, FleetServer
from tests.integration.gateway import Gateway
from tests.integration.processes import wait_until
from tests.integration.wire import Answer, exchange
from tests.integration.world import WORLD

PROBLEM = "application/problem+json"
KINDS = ("pods", "services", "persistentvolumeclaims")


class Parts:
    """A cluster, a fleet controller, a memory service and two replicas of a gateway."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self.kube = KubeServer(directory)
        self.fleet = FleetServer(0)
        self.memory = EntityServer()
        self.replicas = [
            Gateway(f"gateway-sandbox-{number}", self.configuration(), WORLD.logs)
            for number in (1, 2)
        ]
        for replica in self.replicas:
            replica.start()

    def configuration(self) -> dict[str, Any]:
        """One adapter for sandboxes, one whose image is not to be had."""
        kubernetes = {"server": self.kube.url, "serviceAccount": str(self.kube.account)}
        common = {
            "namespace": self.kube.api.namespace,
            "kubernetes": kubernetes,
            "requireAuth": False,
        }
        return {
            "adapters": {
                "sessions": {
                    "image": "registry.example/session-runtime:1.0",
                    "fleet": self.fleet.url,
                    "fleetSeconds": 0.5,
                    "memoryEntity": self.memory.url + "/entities/session-{session_id}",
                    "reaperIntervalMinutes": 0.02,
                    **common,
                },
                "unpullable": {
                    "kind": "sessions",
                    "image": "registry.example/unpullable:1.0",
                    "timeoutSeconds": 1.5,
                    # One reaper is enough for a namespace.
                    "reaperIntervalMinutes": 60,
                    **common,
                },
            },
            "drainSeconds": 2,
        }


class SandboxTestCase(SynchronousTestCase):
    """A test before them."""

    parts: Parts | None = None

    def setUp(self) -> None:
        if SandboxTestCase.parts is None:
            SandboxTestCase.parts = Parts(WORLD.logs / "sandbox")
        self.parts_now = SandboxTestCase.parts
        self.kube = self.parts_now.kube
        self.api = self.kube.api
        self.fleet = self.parts_now.fleet
        self.fleet.warm, self.fleet.mood = 0, "well"
        self.first, self.second = self.parts_now.replicas
        with self.kube.lock:
            self.api.created.clear()
            self.api.asked.clear()
        self.session = f"it-{self.id().rpartition('.')[2].replace('_', '-')}"[:45]

    def ask(
        self,
        method: str,
        gateway: Gateway | None = None,
        service: str = "sessions",
        session: str | None = None,
    ) -> Answer:
        """Send a request."""
        lines = {"X-Service": service, "X-Resource": "sandbox", "Content-Length": "0"}
        base = (gateway or self.first).url
        url = f"{base}/?session_id={session or self.session}"
        return exchange(url, method, None, lines)

    def names(self, session: str | None = None) -> list[str]:
        """What there is of a session, and is not being deleted."""
        with self.kube.lock:
            return [
                kind
                for (kind, name), tree in self.api.objects.items()
                if name.endswith(f"-{session or self.session}")
                and "deletionTimestamp" not in tree["metadata"]
            ]


class LifeTests(SandboxTestCase):
    """One session, from its first request to its removal."""

    def test_made_and_removed(self) -> None:
        """It is made, found again, noted in its memory entity, and removed with its workspace."""
        made = self.ask("POST")
        self.assertEqual(made.status, 200, made.body)
        self.assertEqual(
            made.json()["svc_dns"], f"pi-session-{self.session}.poimen.svc.cluster.local"
        )
        self.assertEqual(sorted(self.names()), sorted(KINDS))
        path = f"/entities/session-{self.session}"
        entities = self.parts_now.memory.entities
        wait_until(lambda: path in entities, 5, "the memory entity")
        self.assertEqual(entities[path]["pod_name"], made.json()["pod_name"])
        self.assertEqual(self.ask("POST", self.second).json(), made.json())
        removed = self.ask("DELETE")
        self.assertEqual((removed.status, removed.json()["kubernetes"]), (200, "removed"))
        wait_until(lambda: not self._claims(), 5, "the workspace gone with its pod")
        self.assertEqual(self.ask("DELETE").json()["kubernetes"], "absent")

    def _claims(self) -> list[str]:
        with self.kube.lock:
            return [one for one in self.api.names("persistentvolumeclaims") if self.session in one]

    def test_fifty_at_once(self) -> None:
        """Fifty requests at two replicas make one pod."""
        with ThreadPoolExecutor(50) as threads:
            answers = list(
                threads.map(
                    lambda number: self.ask("POST", (self.first, self.second)[number % 2]),
                    range(50),
                )
            )
        self.assertEqual({answer.status for answer in answers}, {200})
        self.assertEqual(len({answer.body for answer in answers}), 1)
        made = [one for one in self.api.created if one[1].endswith(self.session)]
        self.assertEqual(sorted(kind for kind, _ in made), sorted(KINDS))

    def test_removed_and_made_at_once(self) -> None:
        """A session that is removed is made anew at once: its former pod and workspace first go."""
        self.ask("POST")
        with self.kube.lock:
            before = self.api.pod(self.session)["metadata"]["uid"]
        self.ask("DELETE", self.second)
        again = self.ask("POST")
        self.assertEqual(again.status, 200, again.body)
        with self.kube.lock:
            self.assertNotEqual(self.api.pod(self.session)["metadata"]["uid"], before)
        self.assertEqual(sorted(self.names()), sorted(KINDS))

    def test_restless(self) -> None:
        """POSTs and DELETEs of one session, all at once: each is answered, and the end is whole."""

        def one(number: int) -> Answer:
            gateway = (self.first, self.second)[number % 2]
            return self.ask("DELETE" if number % 3 == 0 else "POST", gateway)

        with ThreadPoolExecutor(24) as threads:
            answers = list(threads.map(one, range(48)))
        self.assertLessEqual({answer.status for answer in answers}, {200, 409})
        last = self.ask("POST")
        self.assertEqual(last.status, 200, last.body)
        self.assertEqual(sorted(self.names()), sorted(KINDS))

    def test_unpullable(self) -> None:
        """A sandbox that does not start is 504 in time, with the reason; and is removed whole."""
        answer = self.ask("POST", service="unpullable")
        self.assertEqual((answer.status, answer.headers["content-type"]), (504, PROBLEM))
        self.assertIn("ImagePullBackOff", answer.json()["seen"])
        self.assertNotIn(b"secret-registry", answer.body)
        self.assertEqual(self.ask("DELETE").status, 200)
        self.assertEqual(self.names(), [])

    def test_reaped(self) -> None:
        """A sandbox that has ended is removed by one of the replicas; its workspace stays."""
        self.ask("POST")
        with self.kube.lock:
            self.api.end(self.session)
        wait_until(lambda: "pods" not in self.names(), 30, "the pod removed")
        self.assertEqual(self.names(), ["persistentvolumeclaims"])
        with self.kube.lock:
            lease = self.api.objects["leases", "pi-session-reaper"]
        self.assertTrue(lease["spec"]["holderIdentity"])
        self.assertEqual(self.ask("POST").status, 200)


class CredentialTests(SandboxTestCase):
    """What the gateway shows the API, and what it checks the API by."""

    def test_rotation(self) -> None:
        """A token that rotates is read again."""
        self.assertEqual(self.ask("POST").status, 200)
        self.kube.rotate("token-2")
        for gateway in (self.first, self.second):
            self.assertEqual(self.ask("POST", gateway).status, 200)

    def test_another_authority(self) -> None:
        """An API whose certificate is none of the cluster's gets no token."""
        file = self.kube.account / "ca.crt"
        good = file.read_bytes()
        self.addCleanup(file.write_bytes, good)
        file.write_bytes(Authority().certificate)
        # Connections that are open already have been checked; they are idle for 4 s at most, and
        # this adapter's reaper keeps none busy.
        wait_until(lambda: self.unpullable().status == 502, 20, "a failed handshake")
        with self.kube.lock:
            self.api.asked.clear()
        answer = self.unpullable()
        self.assertIn("TLS", answer.json()["detail"])
        with self.kube.lock:
            self.assertEqual([one for one in self.api.asked if self.session in one[1]], [])
        file.write_bytes(good)
        self.assertEqual(self.unpullable().status, 504)
        with self.kube.lock:
            self.assertNotEqual([one for one in self.api.asked if self.session in one[1]], [])

    def unpullable(self) -> Answer:
        """Ask for a sandbox whose image is not to be had."""
        return self.ask("POST", service="unpullable")

    def test_rbac(self) -> None:
        """Without the rule for it a request is 403, and what was made is rolled back."""
        rules = self.api.rules
        self.addCleanup(setattr, self.api, "rules", rules)
        self.api.rules = [rule for rule in rules if rule["resources"] != ["services"]]
        answer = self.ask("POST")
        self.assertEqual((answer.status, answer.json()["upstream_status"]), (403, 403))
        self.assertEqual(self.names(), [])


class FleetTests(SandboxTestCase):
    """A fleet controller, in every mood."""

    def test_warm(self) -> None:
        """A warm pod is given, and given back."""
        self.fleet.warm = 1
        answer = self.ask("POST")
        self.assertEqual((answer.status, answer.json()["fleet"]), (200, True))
        self.assertEqual(self.ask("POST", self.second).json(), answer.json())
        self.assertEqual(self.names(), [])
        self.assertEqual(self.ask("DELETE").json()["fleet"], "released")
        self.assertEqual(self.fleet.warm, 1)

    def test_given_back_in_the_end(self) -> None:
        """One that fails is asked again within the DELETE: its answer says what is so."""
        self.fleet.warm = 1
        self.assertIs(self.ask("POST").json()["fleet"], True)
        answer, faults = self.fleet.answer, [500, 503]

        def fail(
            handler: Handler, method: str, path: str, headers: dict[str, str], body: bytes
        ) -> None:
            if faults and path.endswith("/release"):
                handler.send(faults.pop(), b"{}")
            else:
                answer(handler, method, path, headers, body)

        self.patch(self.fleet, "answer", fail)
        removed = self.ask("DELETE")
        self.assertEqual((removed.status, removed.json()["fleet"]), (200, "released"))
        self.assertEqual((faults, self.fleet.warm), ([], 1))

    def test_moods(self) -> None:
        """One that refuses, hangs or lies is as good as none."""
        for mood in ("refuses", "hangs", "lies"):
            self.fleet.mood = mood
            answer = self.ask("POST", session=f"{self.session}-{mood}")
            self.assertEqual((answer.status, answer.json()["fleet"]), (200, False), mood)
            # A DELETE waits for one that hangs, twenty seconds: test_slow of the unit tests.
            self.fleet.mood = "well" if mood == "hangs" else mood
            removed = self.ask("DELETE", session=f"{self.session}-{mood}")
            self.assertEqual((removed.status, removed.json()["kubernetes"]), (200, "removed"))
        self.fleet.over.set()


class StopTests(SandboxTestCase):
    """The end of a gateway."""

    def test_drained(self) -> None:
        """A gateway that is told to end while it waits for a pod ends in time, and with 0."""
        gateway = Gateway("gateway-sandbox-3", self.parts_now.configuration(), WORLD.logs)
        gateway.start()
        self.kube.start_seconds = 1000
        self.addCleanup(setattr, self.kube, "start_seconds", 0.2)
        with ThreadPoolExecutor(1) as threads:
            asked = threads.submit(self.ask, "POST", gateway)
            wait_until(lambda: "services" in self.names(), 10, "the pod is waited for")
            gateway.process.signal(signal.SIGTERM)
            self.assertEqual(asked.result(15).status, 503)
        self.assertEqual(gateway.process.wait(20), 0)
        self.kube.start_seconds = 0.2
        self.assertEqual(self.ask("POST").status, 200)
