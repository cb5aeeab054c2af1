"""Every selector of a NetworkPolicy takes somebody, and the right connections are let through."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from tests.k8s import network
from tests.k8s.network import Cluster, Pod, Port
from tests.k8s.objects import OVERLAYS, Tree, matches
from tests.k8s.overlays import Overlay, overlay, overlays
from tests.support import TestCase


def unmatched(of: Overlay) -> list[str]:
    """What is said of an overlay's selectors and ports."""
    return list(network.unmatched(of.policies, of.cluster(), of.own))


def wrong(policies: list[Tree], cluster: Cluster, own: frozenset[Port]) -> list[str]:
    """Who is let through and is not to be, or the other way round."""
    found = []
    everywhere = network.mentioned(policies, cluster)

    def let(direction: str, pod: Pod, ports: frozenset[Port]) -> frozenset[Port]:
        ways = (port for port in ports if network.allowed(policies, cluster, direction, pod, port))
        return frozenset(ways)

    for pod in (*cluster.pods, *cluster.strangers):
        name = f"{pod.namespace}/{pod.name}"
        if (may := let("ingress", pod, own | everywhere)) != pod.use:
            found.append(f"{name} may use {_said(may)} and is to use {_said(pod.use)}")
        ports = everywhere if pod.ports is None else pod.ports
        if (may := let("egress", pod, ports)) != pod.served:
            found.append(f"{name} is reached at {_said(may)} and is to be at {_said(pod.served)}")
    return found


def _said(ports: frozenset[Port]) -> list[str]:
    return [f"{port.number}/{port.protocol}" for port in sorted(ports)]


class SelectorTests(TestCase):
    """Selectors against the namespaces of each overlay's `cluster.yaml`."""

    def test_sound(self) -> None:
        """Each peer is somebody, and somebody listens on each port."""
        for each in overlays():
            self.assertEqual(unmatched(each), [], each.name)

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
        for each in overlays():
            for port in each.own:
                moved = each.own - {port} | {Port(port.number + 1)}
                faults = list(network.unmatched(each.policies, each.cluster(), moved))
                self.assertIn(f"nobody listens on {port.number}/TCP", "\n".join(faults))

    def _faults(self, **rule: Any) -> str:
        """What is said when Prometheus' rule is changed so."""
        homelab = overlay("homelab")
        changed = homelab.policies
        for policy in changed:
            given = policy["spec"]["ingress"]
            for index, one in enumerate(given):
                if "monitoring" in str(one):
                    given[index] = {**one, **rule}
        return "\n".join(network.unmatched(changed, homelab.cluster(), homelab.own))


class ReachTests(TestCase):
    """Who is let through is who is to be, of all the pods of `cluster.yaml` and all others."""

    def test_sound(self) -> None:
        """Clients and the Ingress reach the API, Prometheus the metrics, gateways each other.

        The gateway reaches its engines and services on their pods' ports, and nothing else.
        """
        for each in overlays():
            self.assertEqual(wrong(each.policies, each.cluster(), each.own), [], each.name)

    def test_both_ways(self) -> None:
        """Each policy is for both directions: one that it does not name is open."""
        for each in overlays():
            for policy in each.policies:
                self.assertEqual(set(policy["spec"]["policyTypes"]), {"Ingress", "Egress"})

    def test_gateways_only(self) -> None:
        """Each policy takes the gateway's pods, and no others of the namespace."""
        for each in overlays():
            labels = each.objects.pod["metadata"]["labels"]
            for policy in each.policies:
                selector = policy["spec"]["podSelector"]
                self.assertTrue(matches(selector, labels), policy["metadata"])
                self.assertFalse(matches(selector, {}), policy["metadata"])

    def test_broken(self) -> None:
        """All the world, all of kube-system, of the LAN, of the namespace; the wrong protocol."""
        for name, change, said in (
            ("kube-system", _drop_pods, "kube-system/anybody is reached at ['53/TCP', '53/UDP']"),
            ("kube-system", _no_udp, "kube-system/coredns is reached at ['53/TCP']"),
            ("10.96.0.1", _to("0.0.0.0/0"), "/203.0.113.1 is reached at ['443/TCP']"),
            ("10.96.0.1", _to("::/0"), "/2001:db8::1 is reached at ['443/TCP']"),
            ("192.168.1.10", _to("192.168.0.0/16"), "/192.168.1.77 is reached at ['6443/TCP']"),
            ("temporal", _as_udp, "temporal/frontend is reached at []"),
            ("observability", _all_namespaces, "default/anybody is reached at ['4318/TCP']"),
            ("llm-gateway'", _everybody_here, "api/anybody"),
            ("storage", lambda rule: rule.pop("ports"), "storage/minio is reached at ['9000/TCP',"),
            ("storage", lambda rule: rule.pop("to"), "default/anybody is reached at ['9000/TCP']"),
        ):
            homelab = overlay("homelab")
            changed = homelab.policies
            for policy in changed:
                for rule in policy["spec"]["egress"]:
                    if name in str(rule["to"]):
                        change(rule)
            faults = wrong(changed, homelab.cluster(), homelab.own)
            self.assertIn(said, "\n".join(faults), name)

    def test_except(self) -> None:
        """What a block leaves out is not in it."""
        homelab = overlay("homelab")
        (lan,) = [pod for pod in homelab.cluster().pods if pod.name == "192.168.1.77"]
        for left_out, taken in (([], True), (["192.168.1.64/26"], False)):
            peer = {"ipBlock": {"cidr": "192.168.0.0/16", "except": left_out}}
            self.assertIs(homelab.cluster().takes(peer, "api", lan), taken)

    def test_stranger(self) -> None:
        """A namespace that is not named is let through nowhere; one more label changes that."""
        example = overlay("example")
        cluster = example.cluster()
        cluster.namespaces["default"]["kubernetes.io/metadata.name"] = "apps"
        http = Port(example.objects.ports["http"])
        self.assertEqual(
            wrong(example.policies, cluster, example.own),
            [f"default/anybody may use ['{http.number}/TCP'] and is to use []"],
        )


class EnginesTests(TestCase):
    """The coupling that nobody but people keeps: ADMISSION_MAX_INFLIGHT and --max-num-seqs."""

    def test_sequences(self) -> None:
        """Each gate lets through what its engine runs at once, by cluster.yaml."""
        for each in overlays():
            gated = [model for model in each.objects.config.models.values() if model.gated]
            self.assertTrue(gated, each.name)
            for model in gated:
                runs = 0
                for upstream in model.upstreams:
                    found = re.fullmatch(r"http://([^:/]+):(\d+)", upstream)
                    assert found is not None, upstream
                    behind = each.cluster().behind(found[1], int(found[2]))
                    assert behind is not None, f"{each.name}: {upstream}"
                    sequences = behind[0].max_num_seqs
                    assert sequences is not None, f"{each.name}: {upstream} has no maxNumSeqs"
                    runs += sequences
                self.assertEqual(model.policy.max_inflight, runs, f"{each.name}: {model.name}")


class OwnOverlayTests(TestCase):
    """What somebody has copied of the example, as docs/kubernetes.md says."""

    def setUp(self) -> None:
        """Make `mine`."""
        super().setUp()
        place = Path(self.mktemp())
        shutil.copytree(OVERLAYS / "example", place / "mine")
        (self.mine,) = overlays(place)

    def test_sound(self) -> None:
        """It is found, with its namespace."""
        self.assertEqual((self.mine.name, self.mine.namespace), ("mine", "llm-gateway"))
        self.assertEqual(unmatched(self.mine), [])

    def test_broken(self) -> None:
        """A selector of its own that takes nobody is noticed; so is another namespace."""
        path = self.mine.path / "networkpolicy.yaml"
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace("kubernetes.io/metadata.name: apps", "name: nowhere"), "utf-8")
        self.assertIn("nowhere", "\n".join(unmatched(self.mine)))
        path.write_text(text, encoding="utf-8")
        path = self.mine.path / "kustomization.yaml"
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace("namespace: llm-gateway", "namespace: llm"), "utf-8")
        (moved,) = overlays(self.mine.path.parent)
        self.assertIn("is nobody", "\n".join(unmatched(moved)))

    def test_without_a_namespace(self) -> None:
        """Objects that go wherever kubectl happens to be are no overlay."""
        path = self.mine.path / "kustomization.yaml"
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
        del tree["namespace"]
        path.write_text(yaml.safe_dump(tree), encoding="utf-8")
        (mine,) = overlays(self.mine.path.parent)
        fault = self.assertRaises(AssertionError, lambda: mine.namespace)
        self.assertIn("mine gives its objects no namespace", str(fault))


def _drop_pods(rule: Tree) -> None:
    for peer in rule["to"]:
        peer.pop("podSelector")


def _no_udp(rule: Tree) -> None:
    rule["ports"] = [one for one in rule["ports"] if one["protocol"] != "UDP"]


def _as_udp(rule: Tree) -> None:
    rule["ports"][0]["protocol"] = "UDP"


def _all_namespaces(rule: Tree) -> None:
    rule["to"] = [{"namespaceSelector": {}}]


def _everybody_here(rule: Tree) -> None:
    rule["to"] = [{"podSelector": {}}]


def _to(cidr: str) -> Callable[[Tree], None]:
    return lambda rule: rule.update(to=[{"ipBlock": {"cidr": cidr}}])
