from __future__ import annotations

import kubernetes_validate  # type: ignore[import-untyped]

from tests.services.sessions.apiserver import Reply, manifest, refusal
from tests.services.sessions.stack import PLAIN, SessionsTestCase
from tests.services.sessions.validation import VERSION
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
            ["persistentvolumeclaims", "networkpolicies", "pods", "services"],
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
        self.assertEqual(len(self.api.asked), asked)

    def test_many_sessions(self) -> None:
        """Sessions do not wait for each other."""
        clients = [self.post(f"s{number}") for number in range(20)]
        self.assertEqual(len(self.api.names("pods")), 20)
        for number in range(20):
            self.ready(f"s{number}")
        self.assertEqual({client.status for client in clients}, {200})

    def test_another_replica(self) -> None:
        """What another replica makes at the same time is taken as it is (409 AlreadyExists)."""
        other = self.other_replica()
        self.kube.holding = other.kube.holding = True
        clients = [self.post(), other.post()]
        for _ in range(12):
            # Both see nothing, then both create, step by step.
            for kube in (self.kube, other.kube):
                held, kube.held = kube.held, []
                for asked in held:
                    kube.reply(asked)
                kube.stack.settle()
        self.assertEqual(len([one for one in self.api.created if one[0] == "pods"]), 1)
        self.assertEqual(len(self.api.created), 4)
        self.kube.let_go()
        other.kube.let_go()
        self.ready()
        other.stack.settle()
        self.assertEqual([client.status for client in clients], [200, 200])
        self.assertEqual(clients[0].json, clients[1].json)

    def other_replica(self) -> SessionsTestCase:
        other = SessionsTestCase("setUp")
        other.setUp()
        other.api = other.kube.api = self.api
        self.addCleanup(other.doCleanups)
        return other

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
            self.assertEqual([kind for kind, _ in self.api.created], ["pods"])
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
            [kind for kind, _ in self.api.created], ["persistentvolumeclaims", "pods", "services"]
        )
        self.ready()
        self.assertEqual(client.status, 200)

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


class WaitingTests(SessionsTestCase):
    """A pod that does not become Ready, or not at once."""

    def test_late(self) -> None:
        """After 30 s the answer is 504, and says what was seen; the next request resumes."""
        client = self.post()
        self.api.become_unpullable()
        self.stack.advance(29)
        self.assertEqual(client.status, 0)
        self.stack.advance(2)
        self.assertEqual(client.status, 504)
        self.assertEqual(client.json["seen"], "the pod is not Ready: Pending, ImagePullBackOff")
        self.assertIn("ImagePullBackOff", client.json["detail"])
        self.assertNotIn(b"secret-registry", client.received)
        self.assertIs(self.stack.entries[-1].outcome, Outcome.UPSTREAM_TIMEOUT)
        self.assertEqual(self.kube.open_watches, 0)
        made = len(self.api.created)
        again = self.post()
        self.ready()
        self.assertEqual((again.status, len(self.api.created)), (200, made))

    def test_late_joiner(self) -> None:
        """Who joins late has no more time than the attempt has."""
        first = self.post()
        self.stack.advance(20)
        second = self.post()
        self.stack.advance(11)
        self.assertEqual((first.status, second.status), (504, 504))

    def test_silent_api(self) -> None:
        """An API that does not answer is 504 in time too."""
        self.kube.holding = True
        client = self.post()
        self.stack.advance(31)
        self.assertEqual(client.status, 504)

    def test_slow_api(self) -> None:
        """An API that takes its time with every request leaves the client no longer than that."""
        self.kube.holding = True
        client = self.post()
        for _ in range(3):
            self.stack.advance(9)
            held, self.kube.held = self.kube.held, []
            for asked in held:
                self.kube.reply(asked)
            self.stack.settle()
        self.stack.advance(4)
        self.assertEqual(client.status, 504)
        self.assertEqual(client.json["seen"], "Kubernetes has not answered")
        self.kube.let_go()
        # Between two steps the attempt has seen that its time is over.
        self.assertEqual(self.api.names("services"), [])
        again = self.post()
        self.ready()
        self.assertEqual(again.status, 200)

    def test_dies(self) -> None:
        """A sandbox that ends as soon as it begins is 502 with the reason; the next one is new."""
        client = self.post()
        self.api.end(reason="OOMKilled")
        self.stack.settle()
        self.assertEqual((client.status, client.json["upstream_status"]), (502, 502))
        self.assertIn("OOMKilled", client.json["detail"])
        uid = self.api.pod()["metadata"]["uid"]
        again = self.post()
        self.assertNotEqual(self.api.pod()["metadata"]["uid"], uid)
        self.ready()
        self.assertEqual(again.status, 200)

    def test_watch_ends(self) -> None:
        """A watch that ends, or is too old to begin, is begun anew, with a look in between."""
        client = self.post()
        self.kube.end_watches()
        self.api.set_status("s1", {"phase": "Running"})
        self.api.compacted = 10_000
        self.stack.advance(1)
        self.assertEqual(client.status, 0)
        self.api.compacted = 0
        self.stack.advance(1)
        self.ready()
        self.assertEqual(client.status, 200)

    def test_ready_between_watches(self) -> None:
        """What happens while nobody watches is seen."""
        client = self.post()
        self.kube.end_watches()
        self.ready()
        self.assertEqual(client.status, 0)
        self.stack.advance(1)
        self.assertEqual(client.status, 200)

    def test_api_restarts(self) -> None:
        """An API that restarts while a pod is waited for is waited for too."""
        client = self.post()
        self.kube.up = False
        for _, asked in self.kube.watches:
            asked.die()
        self.stack.advance(5)
        self.assertEqual(client.status, 0)
        self.kube.up = True
        self.ready()
        self.stack.advance(1)
        self.assertEqual(client.status, 200)

    def test_nonsense(self) -> None:
        """A watch that talks nonsense, or without end, is given up, and begun anew."""
        for line in (b"hello\n", b"[]\n", b'{"type": 5}\n', b"x" * 3_000_000):
            client = self.post()
            _, asked = self.kube.watches[-1]
            asked.more(line)
            self.stack.advance(1)
            self.assertEqual(self.kube.open_watches, 1, line[:20])
            self.ready()
            self.assertEqual(client.status, 200)
            self.delete()
            self.api.finish()


class RefusalTests(SessionsTestCase):
    """Kubernetes refuses, or fails."""

    def test_rolled_back(self) -> None:
        """What was made before a refusal is removed, whichever request is refused."""
        for resource in ("persistentvolumeclaims", "networkpolicies", "pods", "services"):
            self.refuse("create" if resource != "networkpolicies" else "patch", resource)
            client = self.post()
            self.assertEqual(client.status, 403, resource)
            self.assertEqual(client.json["upstream_message"], "exceeded quota")
            for kind in ("pods", "services", "persistentvolumeclaims"):
                left = [one for key, one in self.api.objects.items() if key[0] == kind]
                gone = all("deletionTimestamp" in one["metadata"] for one in left)
                self.assertTrue(gone, (resource, kind))
            if self.api.names("pods"):
                self.api.finish()
            self.assertEqual(self.api.names("persistentvolumeclaims"), [])

    def refuse(self, verb: str, resource: str) -> None:
        def fail(asked: str, kind: str, name: str) -> Reply | None:
            if (asked, kind) == (verb, resource):
                return refusal(403, "Forbidden", "exceeded quota")
            return None

        self.api.fail = fail

    def test_roll_back_refused(self) -> None:
        """What cannot be rolled back keeps nothing else, and the client is told of the refusal."""
        self.api.fail = lambda verb, kind, name: (
            refusal(403, "Forbidden", f"no {verb}")
            if (verb, kind) in (("create", "services"), ("delete", "persistentvolumeclaims"))
            else None
        )
        client = self.post()
        self.assertEqual(client.json["upstream_message"], "no create")
        self.assertIn("deletionTimestamp", self.api.pod()["metadata"])

    def test_contradiction(self) -> None:
        """An API whose words contradict each other is given up."""
        self.api.fail = lambda verb, kind, name: (
            refusal(409, "AlreadyExists", "") if verb == "create" else None
        )
        self.assertEqual(self.post().status, 502)
        self.assertLess(len(self.api.asked), 50)

    def test_workspace_kept(self) -> None:
        """A workspace that was there before is not rolled back."""
        self.running()
        self.api.end()
        self.refuse("create", "pods")
        self.assertEqual(self.post().status, 403)
        claim = self.api.objects["persistentvolumeclaims", "workspace-session-s1"]
        self.assertNotIn("deletionTimestamp", claim["metadata"])

    def test_unreachable(self) -> None:
        """An API that cannot be reached is 502."""
        self.kube.up = False
        client = self.post()
        self.assertEqual(client.status, 502)
        self.assertIs(self.stack.entries[-1].outcome, Outcome.UPSTREAM_ERROR)

    def test_bad_token(self) -> None:
        """A token that is not accepted is 401, as the API says; it is in no answer."""
        self.api.tokens = {"another"}
        client = self.post()
        self.assertEqual((client.status, client.json["upstream_status"]), (502, 401))
        self.assertNotIn(b"token-1", client.received)

    def test_crowded(self) -> None:
        """An API without room (429) is asked again when it says, a few times."""
        times: list[float] = []

        def fail(verb: str, resource: str, name: str) -> Reply | None:
            if (verb, resource) != ("get", "pods"):
                return None
            times.append(self.stack.now)
            return refusal(429, "TooManyRequests", "", 2) if len(times) < 3 else None

        self.api.fail = fail
        client = self.post()
        self.stack.advance(5)
        self.ready()
        self.assertEqual(client.status, 200)
        self.assertEqual([round(one - times[0]) for one in times], [0, 2, 4])

    def test_contended_quota(self) -> None:
        """A quota that others write to (409 Conflict) is no refusal."""
        conflicts = [refusal(409, "Conflict", "cannot be fulfilled on resourcequotas")]
        self.api.fail = lambda verb, kind, name: (
            conflicts.pop() if conflicts and (verb, kind) == ("create", "pods") else None
        )
        client = self.post()
        self.stack.advance(2)
        self.ready()
        self.assertEqual(client.status, 200)

    def test_nonsense(self) -> None:
        """An answer that is no object is 502."""
        answers: list[Reply] = [Reply(200, {}), Reply(302, {}), Reply(200, {"metadata": 5})]
        for answer in answers:
            self.api.fail = lambda verb, kind, name, answer=answer: answer  # type: ignore[misc]
            self.assertEqual(self.post().status, 502)

    def test_rbac(self) -> None:
        """Everything that is done is allowed by k8s/base/rbac-sandbox.yaml, and nothing beyond."""
        self.running()
        self.delete()
        claim = self.api.objects["persistentvolumeclaims", "workspace-session-s1"]["metadata"]
        claim["finalizers"].append("example/held")
        self.post()
        self.api.finish()
        self.stack.settle()
        claim["finalizers"].clear()
        self.api._gone("persistentvolumeclaims", "workspace-session-s1")
        self.stack.settle()
        self.ready()
        self.stack.advance(11)
        self.stack.advance(301, step=5)
        allowed = {
            (verb, resource, "resourceNames" in rule)
            for rule in self.api.rules
            for verb in rule["verbs"]
            for resource in rule["resources"]
        }
        self.assertEqual(self.api.allowed, allowed)

    def test_manifest(self) -> None:
        """The manifest is what Kubernetes takes."""
        for document in manifest():
            kubernetes_validate.validate(document, VERSION, strict=True)
