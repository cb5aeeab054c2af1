"""The repository's own manifests are as it wants them, and each way to break them is noticed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tests.k8s import ours, routing
from tests.k8s.breaking import BreakingTestCase, container, part, put, service, variable
from tests.k8s.objects import NAME, OVERLAYS, Objects, base, read
from tests.k8s.overlays import overlay, shipped
from tests.k8s.policies import selectors
from tests.k8s.test_policies import POLICIES


def pod(objects: Objects) -> Any:
    """The pod's spec, to be changed."""
    return objects.pod["spec"]


def with_namespace() -> Objects:
    """The base, and the Namespace of overlays/example."""
    text = (OVERLAYS / "example" / "namespace.yaml").read_text(encoding="utf-8")
    return Objects((*base().all, *read(text).all))


class SoundTests(BreakingTestCase):
    """What is there."""

    def test_sound(self) -> None:
        """Nothing has to be said of it."""
        for policy in ours.OURS:
            self.assertEqual(list(policy(with_namespace())), [], policy.__name__)
        for each in shipped():
            policies = Objects(tuple(each.policies))
            self.assertEqual(list(ours.blocks(policies)), [], each.name)
        self.assertTrue(any("ipBlock" in str(one) for one in overlay("homelab").policies))


class ChoicesTests(BreakingTestCase):
    """What is not as the repository has it, and is well all the same."""

    def test_choices(self) -> None:
        """An overlay of somebody's own may choose it: only what is for our own speaks of it."""
        block = {"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}
        changes: tuple[tuple[Callable[[Objects], Any], dict[str, object]], ...] = (
            (container, {"imagePullPolicy": "Never"}),
            (lambda o: pod(o)["securityContext"], {"runAsUser": 1000660000, "runAsGroup": 0}),
            (lambda o: container(o)["resources"]["requests"], {"memory": "256Mi"}),
            (partial(part, name="readinessProbe"), {"failureThreshold": 12}),
            (pod, {"topologySpreadConstraints": []}),
            (lambda o: o.one("Deployment")["spec"]["strategy"]["rollingUpdate"], {"maxSurge": 3}),
            (service, {"type": "LoadBalancer"}),
            (lambda o: o.one("ServiceAccount"), {"automountServiceAccountToken": True}),
            (lambda o: o.one("NetworkPolicy")["spec"], {"egress": [block]}),
        )
        for where, given in changes:
            with self.subTest(given=given):
                chosen = base().changed(put(where, **given))
                self.assertEqual([said for one in POLICIES for said in one(chosen)], [])
                self.assertEqual(len([one for one in ours.OURS if [*one(chosen)]]), 1)


class AliasTests(BreakingTestCase):
    """The predecessor's Service, which leads to this gateway after the cut-over."""

    def test_alias(self) -> None:
        """It is one for clients, in the cluster; each way to make it another is noticed."""
        path = OVERLAYS / "homelab" / "cut-over" / "service-api-gateway.yaml"
        added = read(path.read_text(encoding="utf-8")).all
        for change, said in (
            ({}, ""),
            ({"type": "LoadBalancer"}, "Service api-gateway is open to those outside"),
            (
                {"ports": [{"name": "http", "port": 8080, "targetPort": "admin"}]},
                "Service api-gateway: 8080 leads to admin",
            ),
            ({"publishNotReadyAddresses": True}, "Service api-gateway sends clients to gateways"),
            ({"selector": {"app": "api-gateway"}}, "Service api-gateway selects no gateway"),
        ):
            alias = put(partial(service, name="api-gateway"), **change)
            objects = Objects((*base().all, *added)).changed(alias)
            policies = (ours.services, routing.ports, routing.exposed, selectors)
            faults = [fault for policy in policies for fault in policy(objects)]
            self.assertEqual([fault.startswith(said) for fault in faults], [True] * bool(said))


class BrokenTests(BreakingTestCase):
    """Each policy notices what it is for."""

    def test_pods(self) -> None:
        """Somebody else's user or group, one pod's processes for all, an image that is nowhere."""
        policy, context = ours.pods, lambda o: pod(o)["securityContext"]
        for given, said in (
            ({"runAsUser": 10002}, "runs as (10002, 10001), and the image is made for"),
            ({"runAsGroup": 10002}, "runs as (10001, 10002)"),
            ({"fsGroup": 0}, "root's group"),
            ({"supplementalGroups": [10001, 0]}, "root's group"),
        ):
            self.assertFault(policy, put(context, **given), said)
        own = put(lambda o: container(o)["securityContext"], runAsUser=10002)
        self.assertFault(policy, own, "gateway runs as (10002, 10001)")
        self.assertFault(policy, put(pod, shareProcessNamespace=True), "each other's processes")
        for pull in ("Never", "Always"):
            self.assertFault(policy, put(container, imagePullPolicy=pull), f"is pulled {pull}")

    def test_memory(self) -> None:
        """Less is asked for than may be used."""
        asked = put(lambda o: container(o)["resources"]["requests"], memory="64Mi")
        self.assertFault(ours.memory, asked, "64Mi of memory are asked for, and 512Mi may be used")

    def test_noticed(self) -> None:
        """Who hangs stays; who is busy has to answer at once."""
        for probe, given, after in (
            ("startup", {"failureThreshold": 300}, 600),
            ("liveness", {"initialDelaySeconds": 3600}, 3660),
            ("readiness", {"failureThreshold": 60}, 300),
            ("readiness", {"successThreshold": 60}, 300),
        ):
            self.assertFault(
                ours.noticed,
                put(partial(part, name=f"{probe}Probe"), **given),
                f"{probe}Probe: after {after} s, and is to be known within",
            )
        hasty = put(lambda o: container(o)["readinessProbe"], timeoutSeconds=1)
        self.assertFault(ours.noticed, hasty, "readinessProbe: it has to answer within a second")

    def test_spread(self) -> None:
        """Over nodes alone, with the old ones, and not at all where there are too few nodes."""
        for index, topology in enumerate(("kubernetes.io/hostname", "topology.kubernetes.io/zone")):
            constraint = partial(self._constraint, index=index)
            for change in (
                put(constraint, whenUnsatisfiable="DoNotSchedule"),
                put(constraint, matchLabelKeys=[]),
                put(constraint, topologyKey="example.com/rack"),
            ):
                self.assertFault(ours.spread, change, f"not spread over {topology}")
        none = put(pod, topologySpreadConstraints=[])
        self.assertFault(ours.spread, none, "not spread over kubernetes.io/hostname")

    def _constraint(self, objects: Objects, index: int) -> Any:
        return pod(objects)["topologySpreadConstraints"][index]

    def test_turnover(self) -> None:
        """All at once, for good, before they are let go of, and holding a node up."""
        policy = ours.turnover

        def spec(objects: Objects) -> Any:
            return objects.one("Deployment")["spec"]

        for surge in ("100%", 3):
            wide = put(lambda o: spec(o)["strategy"]["rollingUpdate"], maxSurge=surge)
            self.assertFault(policy, wide, f"adds {surge} at once")
        self.assertFault(policy, put(spec, revisionHistoryLimit=0), "cannot be undone")
        hasty = put(lambda o: container(o)["lifecycle"]["preStop"]["sleep"], seconds=1)
        self.assertFault(policy, hasty, "takes requests for 1 s")
        for given in ("IfHealthyBudget", None):
            held = put(
                lambda o: o.one("PodDisruptionBudget")["spec"], unhealthyPodEvictionPolicy=given
            )
            self.assertFault(policy, held, "holds a node's drain up")

    def test_container(self) -> None:
        """Another program or name, a Secret for all, a directory that is not there, or silence."""
        policy = ours.container
        silent = put(container, terminationMessagePolicy="File")
        self.assertFault(policy, silent, "why it ended is not in its status")
        for key in ("command", "args"):
            started = put(container, **{key: ["--demo"]})
            self.assertFault(policy, started, f"not started as the image says: {key}")
        for name, path in (("POD_NAME", "spec.nodeName"), ("POD_NAMESPACE", "metadata.name")):
            other = {"fieldRef": {"fieldPath": path}}
            named = put(partial(variable, name=name), valueFrom=other)
            self.assertFault(policy, named, f"{name} is not its metadata.")
        for mode in (0o444, 0o777, 0o460):
            files = put(lambda o: o.volume("secrets")["secret"], defaultMode=mode)
            self.assertFault(policy, files, f"more than its group to read: {mode:o}")
        for volume in ("config", "secrets", "tmp"):
            kept = [one for one in base().container["volumeMounts"] if one["name"] != volume]
            unmounted = put(container, volumeMounts=kept)
            self.assertFault(policy, unmounted, f"the volume {volume} is mounted nowhere")

    def test_services(self) -> None:
        """One that is open to those outside, whatever its port."""
        for name in (NAME, f"{NAME}-admin", f"{NAME}-peers"):
            for given in (
                {"type": "LoadBalancer"},
                {"type": "NodePort"},
                {"type": "ExternalName", "externalName": "example.com"},
                {"externalIPs": ["192.0.2.1"]},
            ):
                opened = put(partial(service, name=name), **given)
                self.assertFault(ours.services, opened, f"Service {name} is open to those outside")
            sticky = put(partial(service, name=name), sessionAffinity="ClientIP")
            self.assertFault(ours.services, sticky, "sends a client to one gateway alone")

    def test_accounts(self) -> None:
        """A token for every pod, by a word or by Kubernetes' default."""
        for given in (True, None):
            mounted = put(lambda o: o.one("ServiceAccount"), automountServiceAccountToken=given)
            self.assertFault(ours.accounts, mounted, "ServiceAccount llm-gateway gets its token")

    def test_namespaces(self) -> None:
        """A namespace that takes any pod."""
        for enforced in ("privileged", "baseline", None):
            objects = with_namespace()
            labels = objects.one("Namespace")["metadata"]["labels"]
            labels["pod-security.kubernetes.io/enforce"] = enforced
            self.assertEqual(
                list(ours.namespaces(objects)),
                [f"the namespace llm-gateway takes pods that are {enforced}"],
            )

    def test_blocks(self) -> None:
        """One more address than is meant, and all of them."""
        for wide in ("192.168.1.10/31", "0.0.0.0/0", "2001:db8::/127"):
            for way, peers in (("ingress", "from"), ("egress", "to")):
                opened = put(
                    lambda o: o.one("NetworkPolicy")["spec"],
                    **{way: [{peers: [{"podSelector": {}}, {"ipBlock": {"cidr": wide}}]}]},
                )
                self.assertFault(ours.blocks, opened, f"{wide} is more than one address")
        for single in ("192.168.1.10/32", "2001:db8::1/128"):
            rule = {"to": [{"ipBlock": {"cidr": single}}]}
            named = put(lambda o: o.one("NetworkPolicy")["spec"], egress=[rule])
            self.assertEqual(list(ours.blocks(base().changed(named))), [])
