"""The right connections are let through by NetworkPolicies, and no others."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

import yaml

from tests.k8s import network
from tests.k8s.mutations import mutations
from tests.k8s.network import WORLD, Port
from tests.k8s.objects import K8S, Tree, check_labels, matches
from tests.k8s.overlays import Overlay, overlay, overlays, sound
from tests.support import TestCase

BASE_POLICIES = {"llm-gateway", "llm-gateway-check", "llm-gateway-dns"}
CILIUM = K8S / "components" / "cilium" / "ciliumnetworkpolicy.yaml"


class ReachTests(TestCase):
    """Who is let through is who is to be, of all the pods of `cluster.yaml` and all others."""

    def test_sound(self) -> None:
        """Clients and the Ingress reach the API, Prometheus the metrics, gateways each other.

        The gateway reaches its engines and services on their pods' ports, and nothing else; so does
        its check, which nobody reaches.
        """
        for each in overlays():
            sound(each, each.reach(each.policies).wrong())

    def test_configured(self) -> None:
        """So is the way to everything that is configured, on the port of its pods."""
        for each in overlays():
            sound(each, each.reach(each.policies).closed(each.objects))
            self.assertGreater(len(network.reached(each.objects)), 1)

    def test_every_line(self) -> None:
        """Whatever is taken out of a policy, or let more through, is noticed."""
        for each in overlays():
            policies, cluster = each.policies, each.cluster()
            missed, tried = [], 0
            for said, changed in mutations(policies):
                tried += 1
                faults = (
                    network.unmatched(changed, cluster, each.own),
                    each.reach(changed, cluster).wrong(),
                )
                if next(chain(*faults), None) is None:
                    missed.append(said)
            self.assertEqual(missed, [], each.name)
            self.assertGreater(tried, 100, each.name)

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
                for rule in policy["spec"].get("egress", []):
                    if name in str(rule["to"]):
                        change(rule)
            self.assertIn(said, _faults(homelab, changed), name)

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
            [*example.reach(example.policies, cluster).wrong()],
            [
                f"default/{who} may use ['{http.number}/TCP'] and is to use []"
                for who in ("anybody", "another")
            ],
        )


class CheckTests(TestCase):
    """The pods of the check, of which a candidate's is one: it has the gateway's Secrets."""

    def test_as_the_gateway(self) -> None:
        """What the gateway reaches it reaches, in an overlay that says it of the gateway alone."""
        for each in overlays():
            changed = each.policies
            own = {one["metadata"]["name"] for one in changed} - BASE_POLICIES
            for policy in changed:
                if policy["metadata"]["name"] in own and "Egress" in policy["spec"]["policyTypes"]:
                    labels = each.objects.pod["metadata"]["labels"]
                    policy["spec"]["podSelector"] = {"matchLabels": labels}
            self.assertIn("is reached by the check at [], not at ['", _faults(each, changed))

    def test_unbound(self) -> None:
        """Without its policy it is open to all, and may ask the gateway nothing."""
        for each in overlays():
            left = [one for one in each.policies if one["metadata"]["name"] != "llm-gateway-check"]
            said = _faults(each, left)
            for who in ("gateway", "anybody"):
                self.assertIn(f"{each.namespace}/{who} reaches the check at", said)
            # The one for DNS binds it to the last.
            self.assertNotIn(f"/{WORLD[0]} is reached by the check", said)
            without = [one for one in left if "matchExpressions" not in one["spec"]["podSelector"]]
            self.assertIn(f"/{WORLD[0]} is reached by the check", _faults(each, without))

    def test_cilium(self) -> None:
        """Where Cilium is the plugin, both have the way to the Kubernetes API, and no other pod."""
        policy = yaml.safe_load(CILIUM.read_text(encoding="utf-8"))
        selector = policy["spec"]["endpointSelector"]
        for each in overlays():
            for pod in each.cluster().pods:
                wanted = pod in (each.reach([]).gateway, each.reach([]).check)
                if pod.namespace == each.namespace:
                    self.assertIs(matches(selector, pod.labels), wanted, pod.name)
        self.assertTrue(matches(selector, check_labels()))
        self.assertFalse(matches(selector, {}))


class SelectorTests(TestCase):
    """Label selectors, as Kubernetes reads them."""

    def test_expressions(self) -> None:
        """Each operator; all expressions have to hold."""
        for operator, values, labels, taken in (
            ("In", ["a", "b"], {"k": "b"}, True),
            ("In", ["a", "b"], {"k": "c"}, False),
            ("In", ["a"], {}, False),
            ("NotIn", ["a"], {"k": "a"}, False),
            ("NotIn", ["a"], {"k": "b"}, True),
            ("NotIn", ["a"], {}, True),
            ("Exists", [], {"k": ""}, True),
            ("Exists", [], {"l": ""}, False),
            ("DoesNotExist", [], {"k": ""}, False),
            ("DoesNotExist", [], {}, True),
        ):
            one = {"key": "k", "operator": operator, "values": values}
            self.assertIs(matches({"matchExpressions": [one]}, labels), taken, one)
            both = [one, {"key": "l", "operator": "In", "values": ["x"]}]
            self.assertFalse(matches({"matchExpressions": both}, labels))
        unknown: list[Tree] = [{"matchFields": []}]
        unknown.append({"matchExpressions": [{"key": "k", "operator": "Is"}]})
        for selector in unknown:
            self.assertRaises(AssertionError, matches, selector, {})


def _faults(of: Overlay, policies: list[Tree]) -> str:
    return "\n".join(of.reach(policies).wrong())


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
