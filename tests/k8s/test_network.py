"""Every selector of a NetworkPolicy takes somebody, and somebody listens on every port."""

from __future__ import annotations

from typing import Any

from tests.k8s import network, policies
from tests.k8s.network import Port
from tests.k8s.overlays import Overlay, overlay, overlays, shipped, sound
from tests.support import TestCase


def unmatched(of: Overlay) -> list[str]:
    """What is said of an overlay's selectors and ports."""
    return list(network.unmatched(of.policies, of.cluster(), of.own))


class SelectorTests(TestCase):
    """Selectors against the namespaces of each overlay's `cluster.yaml`."""

    def test_sound(self) -> None:
        """Each peer is somebody, and somebody listens on each port."""
        for each in overlays():
            sound(each, unmatched(each))

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
        self.assertIn("nobody listens on 9091/TCP", self._faults(ports=[{"port": 9091}]))
        self.assertIn(
            "nobody listens on 9090/UDP", self._faults(ports=[{"port": 9090, "protocol": "UDP"}])
        )
        self.assertIn(
            "nobody listens on 9091/TCP", self._faults(ports=[{"port": 9090, "endPort": 9099}])
        )
        self.assertIn("nobody listens on 1/TCP", self._faults(ports=[{"protocol": "TCP"}]))
        self.assertIn("for everybody", self._faults(**{"from": []}))
        self.assertIn("for everybody", self._faults(ports=[]))

    def test_service_port(self) -> None:
        """A rule by the port of a Service, where its pods have another."""
        homelab = overlay("homelab")
        changed = homelab.policies
        for _, _, peers, ports in network.rules(changed):
            if "storage" in str(peers):
                ports[0]["port"] = 80
        faults = list(network.unmatched(changed, homelab.cluster(), homelab.own))
        self.assertEqual(len(faults), 1)
        self.assertIn("nobody listens on 80/TCP", faults[0])

    def test_another_port(self) -> None:
        """A port that changes everywhere but in the policies."""
        for each in shipped():
            for port in each.own:
                moved = each.own - {port} | {Port(port.number + 1)}
                faults = list(network.unmatched(each.policies, each.cluster(), moved))
                self.assertIn(f"nobody listens on {port.number}/TCP", "\n".join(faults))

    def _faults(self, **rule: Any) -> str:
        """What is said when Prometheus' rule is changed so."""
        homelab = overlay("homelab")
        changed = homelab.policies
        for policy in changed:
            given = policy["spec"].get("ingress", [])
            for index, one in enumerate(given):
                if "monitoring" in str(one):
                    given[index] = {**one, **rule}
        return "\n".join(network.unmatched(changed, homelab.cluster(), homelab.own))

    def test_nobody(self) -> None:
        """A policy that binds no pod, and rules that its policyTypes leave without effect."""
        homelab = overlay("homelab")
        changed = homelab.policies
        changed[0]["spec"]["podSelector"] = {"matchLabels": {"app.kubernetes.io/name": "gateway"}}
        changed[0]["spec"]["policyTypes"] = ["Ingress"]
        said = "\n".join(network.unmatched(changed, homelab.cluster(), homelab.own))
        self.assertIn("llm-gateway binds nobody", said)
        self.assertIn("llm-gateway has rules for egress, and policyTypes ['Ingress']", said)


class EnginesTests(TestCase):
    """The coupling that nobody but people keeps: ADMISSION_MAX_INFLIGHT and --max-num-seqs."""

    def test_sequences(self) -> None:
        """Each gate lets through what its engine runs at once, by cluster.yaml."""
        for each in overlays():
            # Else the file that is read for a key which nobody makes would be what is said.
            sound(each, policies.secrets(each.objects))
            gated = [model for model in each.objects.config.models.values() if model.gated]
            self.assertTrue(gated, each.name)
            for model in gated:
                runs = 0
                for upstream in model.upstreams:
                    found = network.place(upstream)
                    behind = found and each.cluster().behind(*found)
                    sequences = behind[0].max_num_seqs if behind else None
                    if sequences is None:
                        sound(each, [f"no pods with maxNumSeqs in cluster.yaml behind {upstream}"])
                    runs += sequences or 0
                self.assertEqual(model.policy.max_inflight, runs, f"{each.name}: {model.name}")
