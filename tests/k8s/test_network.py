"""Every selector of a NetworkPolicy takes somebody, and the right connections are let through."""

from __future__ import annotations

from typing import Any

import yaml

from tests.k8s import network
from tests.k8s.network import Cluster
from tests.k8s.objects import BASE, OVERLAYS, Tree
from tests.support import TestCase

HOME = {"example": "llm-gateway", "homelab": "api"}
"""The gateway's namespace, by overlay."""
OWN = frozenset({8080, 8081, 9090})


def policies(overlay: str) -> list[Tree]:
    """The policies of the base and of an overlay, by their files."""
    found = []
    for path in (BASE / "networkpolicy.yaml", OVERLAYS / overlay / "networkpolicy.yaml"):
        for policy in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            policy["metadata"]["namespace"] = HOME[overlay]
            found.append(policy)
    return found


class SelectorTests(TestCase):
    """Selectors against the lists of namespaces in `clusters`."""

    def test_sound(self) -> None:
        """Each peer is somebody, and somebody listens on each port."""
        for overlay in HOME:
            self.assertEqual(
                list(network.unmatched(policies(overlay), Cluster(overlay), OWN)), [], overlay
            )

    def test_broken(self) -> None:
        """A label that no namespace bears, a pod's, a port, an address; a rule without peers."""
        for key, value, said in (
            ("namespaceSelector", {"matchLabels": {"name": "monitoring"}}, "is nobody"),
            (
                "namespaceSelector",
                {"matchLabels": {"kubernetes.io/metadata.name": "x"}},
                "is nobody",
            ),
            ("podSelector", {"matchLabels": {"app": "prometeus"}}, "is nobody"),
            ("ipBlock", {"cidr": "172.16.0.0/12"}, "is nobody"),
        ):
            with self.subTest(key=key, value=value):
                self.assertIn(said, self._faults(**{"from": [{key: value}]}))
        self.assertIn("nobody listens on 9091", self._faults(ports=[{"port": 9091}]))
        self.assertIn("for everybody", self._faults(**{"from": []}))
        self.assertIn("for everybody", self._faults(ports=[]))

    def test_service_port(self) -> None:
        """A rule by the port of a Service, where its pods have another."""
        changed = policies("homelab")
        for _, _, peers, ports in network.rules(changed):
            if "storage" in str(peers):
                ports[0]["port"] = 80
        faults = list(network.unmatched(changed, Cluster("homelab"), OWN))
        self.assertEqual(len(faults), 1)
        self.assertIn("nobody listens on 80", faults[0])

    def _faults(self, **rule: Any) -> str:
        """What is said when Prometheus' rule is changed so."""
        changed = policies("homelab")
        rules = changed[0]["spec"]["ingress"]
        (index,) = [i for i, one in enumerate(rules) if "monitoring" in str(one)]
        rules[index] = {**rules[index], **rule}
        return "\n".join(network.unmatched(changed, Cluster("homelab"), OWN))


class ReachTests(TestCase):
    """Who is let through is who is to be, of all the pods of `cluster.yaml`."""

    def test_use(self) -> None:
        """Clients and the Ingress reach the API, Prometheus the metrics, gateways each other."""
        for overlay in HOME:
            cluster, given = Cluster(overlay), policies(overlay)
            for pod in cluster.pods:
                let = {p for p in OWN if network.allowed(given, cluster, "ingress", pod, p)}
                self.assertEqual(let, pod.use, f"{overlay}: {pod.namespace}/{pod.name}")

    def test_served(self) -> None:
        """The gateway reaches its engines and services on their pods' ports, and nothing else."""
        for overlay in HOME:
            cluster, given = Cluster(overlay), policies(overlay)
            for pod in cluster.pods:
                let = {p for p in pod.ports if network.allowed(given, cluster, "egress", pod, p)}
                self.assertEqual(let, pod.served, f"{overlay}: {pod.namespace}/{pod.name}")

    def test_both_ways(self) -> None:
        """Each policy is for both directions: one that it does not name is open."""
        for overlay in HOME:
            for policy in policies(overlay):
                self.assertEqual(set(policy["spec"]["policyTypes"]), {"Ingress", "Egress"})

    def test_stranger(self) -> None:
        """A namespace that is not named is let through nowhere; one more label changes that."""
        cluster, given = Cluster("example"), policies("example")
        (stranger,) = [pod for pod in cluster.pods if pod.name == "stranger"]
        let = lambda: {p for p in OWN if network.allowed(given, cluster, "ingress", stranger, p)}  # noqa: E731
        self.assertEqual(let(), set())
        cluster.namespaces["default"]["kubernetes.io/metadata.name"] = "apps"
        self.assertEqual(let(), {8080})
