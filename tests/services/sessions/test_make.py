from __future__ import annotations

from tests.services.sessions.stack import PLAIN, SessionsTestCase
from twisted_gateway.core.outcome import Outcome

DNS = "pi-session-s1.poimen.svc.cluster.local"
ALL = {
    "pods": ["pi-session-s1"],
    "services": ["pi-session-s1"],
    "persistentvolumeclaims": ["workspace-session-s1"],
    "networkpolicies": ["pi-session-sandbox"],
}


class MakeTests(SessionsTestCase):
    """POST, without a fleet controller."""

    def there(self) -> dict[str, list[str]]:
        return {kind: self.api.names(kind) for kind in ALL}

    def test_new(self) -> None:
        """Claim, policy, pod and Service are made, and the answer comes when the pod is Ready."""
        client = self.post()
        self.assertEqual(client.status, 0)
        self.assertEqual(self.there(), ALL)
        self.assertEqual(
            [kind for kind, _ in self.api.created],
            ["networkpolicies", "pods", "services", "persistentvolumeclaims"],
        )
        self.ready()
        self.assertEqual(client.status, 200)
        self.assertEqual(
            client.json,
            {
                "session_id": "s1",
                "svc_dns": DNS,
                "pod_name": "pi-session-s1",
                "pvc_name": "workspace-session-s1",
                "fleet": False,
                "port": 8787,
            },
        )
        self.assertEqual(self.stack.entries[-1].route, "sessions/sandbox")
        self.assertIs(self.stack.entries[-1].outcome, Outcome.OK)
        self.assertEqual(self.stack.metric("gateway_upstream_seconds_count", model=""), 1)

    def test_watched(self) -> None:
        """While it waits the pod is watched, not asked after, and the watch ends with it."""
        self.post()
        self.api.asked.clear()
        self.stack.advance(9)
        self.assertEqual(self.api.asked, [])
        self.assertEqual(self.kube.open_watches, 1)
        self.ready()
        self.assertEqual(self.kube.open_watches, 0)

    def test_pod(self) -> None:
        """The pod may do next to nothing, and has what the configuration gives it."""
        self.post()
        spec = self.api.pod()["spec"]
        (container,) = spec["containers"]
        self.assertIs(spec["automountServiceAccountToken"], False)
        self.assertEqual(spec["securityContext"]["runAsUser"], 1000)
        self.assertIs(spec["securityContext"]["runAsNonRoot"], True)
        self.assertIs(container["securityContext"]["readOnlyRootFilesystem"], True)
        self.assertEqual(container["securityContext"]["capabilities"], {"drop": ["ALL"]})
        self.assertEqual(container["image"], "registry.example/session-runtime:1.0")
        self.assertEqual(spec["imagePullSecrets"], [{"name": "registry"}])
        self.assertEqual(container["resources"]["limits"], {"cpu": "1", "memory": "1Gi"})
        self.assertEqual(container["resources"]["requests"], {"cpu": "500m", "memory": "512Mi"})

    def test_selected(self) -> None:
        """Policy and Service select the session's pod, and the Service no other session's."""
        self.post()
        self.post("s2")
        labels = self.api.pod()["metadata"]["labels"].items()
        policy = self.api.objects["networkpolicies", "pi-session-sandbox"]["spec"]
        self.assertLessEqual(policy["podSelector"]["matchLabels"].items(), labels)
        selector = self.api.objects["services", "pi-session-s1"]["spec"]["selector"].items()
        self.assertLessEqual(selector, labels)
        self.assertFalse(selector <= self.api.pod("s2")["metadata"]["labels"].items())

    def test_policy(self) -> None:
        """Sandboxes reach DNS and the gateway; whoever reaches them is the frontend."""
        self.post()
        spec = self.api.objects["networkpolicies", "pi-session-sandbox"]["spec"]
        self.assertEqual(sorted(spec["policyTypes"]), ["Egress", "Ingress"])
        ports = [[one["port"] for one in rule["ports"]] for rule in spec["egress"]]
        self.assertEqual(ports, [[53, 53], [8080]])
        (rule,) = spec["ingress"]
        self.assertEqual(
            rule["from"][0]["podSelector"]["matchLabels"], {"app.kubernetes.io/name": "frontend"}
        )

    def test_policy_changed(self) -> None:
        """A policy that is other than it should be is put right before a pod is made."""
        self.running()
        policy = self.api.objects["networkpolicies", "pi-session-sandbox"]
        policy["spec"] = {"podSelector": {}}
        self.post("s2")
        self.assertEqual(policy["spec"]["policyTypes"], ["Ingress", "Egress"])

    def test_without_what_is_optional(self) -> None:
        """Without a pull secret and a storage class neither is named."""
        self.stack.text = PLAIN.replace("imagePullSecret: registry", "").replace(
            "{class: longhorn, size: 1Gi}", "{size: 2Gi}"
        )
        self.assertTrue(self.stack.gateway.reload())
        self.post()
        self.assertNotIn("imagePullSecrets", self.api.pod()["spec"])
        claim = self.api.objects["persistentvolumeclaims", "workspace-session-s1"]["spec"]
        self.assertNotIn("storageClassName", claim)
        self.assertEqual(claim["resources"]["requests"]["storage"], "2Gi")

    def test_ids(self) -> None:
        """Ids are DNS labels whose names fit; nothing else reaches Kubernetes."""
        for bad in ("", "A", "a_b", "-a", "a-", "a.b", "a%2Fb", "..", "a%00", "%C3%A9", "x" * 46):
            client = self.ask("POST", query=f"session_id={bad}")
            self.assertEqual(client.status, 400, bad)
            self.assertIn("session_id", str(client.json["missing"] or client.json["invalid"]))
        for method in ("POST", "DELETE"):
            client = self.ask(method, query="")
            self.assertEqual((client.status, client.json["missing"]), (400, ["session_id"]))
        self.assertEqual(self.api.asked, [])
        for good in ("0", "x" * 45, "3f2b8c1e-7d5a-4a55-9a0e-0d9c1b2a3f4e"):
            self.post(good)
            self.assertIn(f"pi-session-{good}", self.api.names("pods"))


class AgainTests(SessionsTestCase):
    """POST where something is there already."""

    def test_running(self) -> None:
        """A pod that runs is given as it is; nothing is made."""
        first = self.running()
        again = self.post()
        self.assertEqual((again.status, again.json), (200, first.json))
        self.assertEqual(self.api.created, [])

    def test_service_lost(self) -> None:
        """A pod that runs without its Service gets it back."""
        self.running()
        del self.api.objects["services", "pi-session-s1"]
        self.assertEqual(self.post().status, 200)
        self.assertEqual(self.api.names("services"), ["pi-session-s1"])

    def test_fifty_at_once(self) -> None:
        """Fifty requests for one session make one pod, and ask Kubernetes as often as one."""
        clients = [self.post() for _ in range(50)]
        self.assertEqual(len(self.api.created), 4)
        asked = len(self.api.asked)
        self.ready()
        self.assertEqual({client.status for client in clients}, {200})
        self.assertEqual(len({str(client.json) for client in clients}), 1)
        # The pod, its claim and its Service are looked at once more.
        self.assertEqual(len(self.api.asked), asked + 3)

    def test_many_sessions(self) -> None:
        """Sessions do not wait for each other."""
        clients = [self.post(f"s{number}") for number in range(20)]
        self.assertEqual(len(self.api.names("pods")), 20)
        for number in range(20):
            self.ready(f"s{number}")
        self.assertEqual({client.status for client in clients}, {200})

    def test_another_replica(self) -> None:
        """What another replica makes at the same time is taken as it is (409 AlreadyExists)."""
        other = self.replica()
        self.kube.holding = other.kube.holding = True
        clients = [self.post(), other.post()]
        for _ in range(12):
            # Both see nothing, then both create, step by step.
            for kube in (self.kube, other.kube):
                kube.step()
        self.assertEqual(len([one for one in self.api.created if one[0] == "pods"]), 1)
        self.assertEqual(len(self.api.created), 4)
        self.kube.let_go()
        other.kube.let_go()
        self.ready()
        other.stack.settle()
        self.assertEqual([client.status for client in clients], [200, 200])
        self.assertEqual(clients[0].json, clients[1].json)

    def test_half_made(self) -> None:
        """What an attempt has left half made is resumed, at each stage."""
        for left in (
            ("persistentvolumeclaims",),
            ("persistentvolumeclaims", "networkpolicies"),
            ("persistentvolumeclaims", "networkpolicies", "pods"),
        ):
            self.tearDown()
            self.doCleanups()
            self.setUp()
            self.running()
            for kind, name in list(self.api.objects):
                if kind not in left:
                    del self.api.objects[kind, name]
            client = self.post()
            self.assertEqual(len(self.api.created), 4 - len(left), left)
            if client.status == 0:
                self.ready()
            self.assertEqual(client.status, 200, left)

    def test_ended(self) -> None:
        """A pod that has ended is replaced, on the same workspace."""
        for phase in ("Failed", "Succeeded"):
            self.running(phase.lower())
            uid = self.api.pod(phase.lower())["metadata"]["uid"]
            self.api.end(phase.lower(), phase)
            client = self.post(phase.lower())
            self.assertNotEqual(self.api.pod(phase.lower())["metadata"]["uid"], uid)
            # The former pod's Service has gone with it.
            self.assertEqual([kind for kind, _ in self.api.created], ["pods", "services"])
            self.ready(phase.lower())
            self.assertEqual(client.status, 200)

    def test_leaving(self) -> None:
        """A pod that is being deleted is waited for, and replaced once it is gone."""
        self.running()
        self.assertEqual(self.delete().status, 200)
        client = self.post()
        self.assertEqual(self.api.created, [])
        self.stack.advance(5)
        self.api.finish()
        self.stack.settle()
        self.assertEqual(
            [kind for kind, _ in self.api.created], ["pods", "services", "persistentvolumeclaims"]
        )
        self.ready()
        self.assertEqual(client.status, 200)

    def test_claim_gone(self) -> None:
        """A pod whose workspace was taken by force is replaced: a new one would not be its own."""
        self.running()
        uid = self.api.pod()["metadata"]["uid"]
        del self.api.objects["persistentvolumeclaims", "workspace-session-s1"]
        client = self.post()
        self.api.finish()
        self.stack.settle()
        self.ready()
        self.assertEqual(client.status, 200)
        self.assertNotEqual(self.api.pod()["metadata"]["uid"], uid)

    def test_claim_leaving(self) -> None:
        """A pod that has not started on a workspace that is being removed is replaced with it."""
        self.post()
        claim = self.api.objects["persistentvolumeclaims", "workspace-session-s1"]
        claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        self.stack.advance(31)
        old = self.api.pod()["metadata"]["uid"]
        client = self.post()
        self.assertIn(("delete", "pods/pi-session-s1"), self.api.asked)
        self.api.finish()
        self.stack.settle()
        self.assertNotEqual(self.api.pod()["metadata"]["uid"], old)
        self.ready()
        self.assertEqual(client.status, 200)
