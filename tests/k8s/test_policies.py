"""The base's objects are as they should be, and each way to break them is noticed."""

from __future__ import annotations

import re
from collections.abc import Callable

import yaml

from tests.k8s import policies, routing
from tests.k8s.breaking import BreakingTestCase, built_of, configure, container, variable
from tests.k8s.objects import BASE, BY_HAND, K8S, OVERLAYS, TOP, Objects, base, read
from tests.support import TestCase

POLICIES: tuple[policies.Policy, ...] = (
    policies.images,
    policies.resources,
    policies.restricted,
    policies.environment,
    policies.configuration,
    policies.drain,
    policies.selectors,
    policies.names,
    policies.autoscaling,
    routing.probes,
    routing.ports,
    routing.peers,
    routing.scraped,
    routing.ingress,
)
"""All of them, for every overlay as well."""

# What belongs to one cluster.
PARTICULAR = re.compile(
    r"riotpiao|poimen|llm-serving|authentik|gotify|forgejo|minio|api-gateway|ornith|longhorn",
    re.IGNORECASE,
)


class BaseTests(TestCase):
    """The base itself."""

    def test_sound(self) -> None:
        """No policy has anything to say of it."""
        for policy in POLICIES:
            self.assertEqual(list(policy(base())), [], policy.__name__)

    def test_listed(self) -> None:
        """Every file of the base is in its kustomization, but for what that is made of."""
        kustomization = yaml.safe_load((BASE / "kustomization.yaml").read_text(encoding="utf-8"))
        made = [name for one in kustomization["configMapGenerator"] for name in one["files"]]
        listed = {*kustomization["resources"], *made, "kustomization.yaml"}
        there = {path.name for path in BASE.iterdir() if not path.is_symlink()}
        self.assertEqual(there, listed)

    def test_particular(self) -> None:
        """What belongs to one cluster is in its overlay alone."""
        for path in sorted(K8S.rglob("*.y*ml")):
            if not path.is_relative_to(OVERLAYS / "homelab"):
                found = PARTICULAR.search(path.read_text(encoding="utf-8"))
                self.assertIsNone(found, f"{path.relative_to(TOP)}: {found}")

    def test_by_hand(self) -> None:
        """The command that makes the example's Secret gives it its keys."""
        text = (OVERLAYS / "example" / "kustomization.yaml").read_text(encoding="utf-8")
        made = re.findall(
            r"create secret generic ([\w-]+)((?: --from-literal=[\w-]+=\S+(?: \S+)*)+)", text
        )
        keys = {name: set(re.findall(r"--from-literal=([\w-]+)=", rest)) for name, rest in made}
        self.assertEqual(keys, BY_HAND)

    def test_autoscaler(self) -> None:
        """The component goes by a series that gateways export, and takes the number over."""
        self.assertEqual(list(policies.autoscaling(self._scaled())), [])
        broken = self._scaled()
        metric = broken.of("HorizontalPodAutoscaler")[0]["spec"]["metrics"][0]["pods"]
        metric["metric"]["name"] = "parked"
        metric["target"]["averageValue"] = "256"
        broken.one("Deployment")["spec"]["replicas"] = 3
        self.assertEqual(
            list(policies.autoscaling(broken)),
            [
                "each apply would set the number of replicas back",
                "no gateway exports parked",
                "a gateway refuses from 256 on, before another is started",
            ],
        )

    def _scaled(self) -> Objects:
        path = K8S / "components" / "autoscaling" / "horizontalpodautoscaler.yaml"
        scaled = Objects((*base().all, *read(path.read_text(encoding="utf-8")).all))
        del scaled.one("Deployment")["spec"]["replicas"]
        return scaled


class BrokenTests(BreakingTestCase):
    """Each policy notices what it is for."""

    def test_images(self) -> None:
        """No tag, none that means anything, none but a registry's port."""
        for image, said in (
            ("ghcr.io/example/llm-gateway", "has no tag"),
            ("ghcr.io/example/llm-gateway:latest", "may be anything"),
            ("registry:5000/llm-gateway", "has no tag"),
        ):
            self.assertFault(policies.images, built_of(image), said)
        sandboxes = """auth: {issuer: "https://i", audience: a, jwksUrl: "https://i/k"}
adapters: {sessions: {namespace: s, image: "registry/session:latest"}}
"""
        added = configure("models:\n", f"{sandboxes}models:\n")
        self.assertFault(policies.images, added, "registry/session:latest may be anything")
        digest = f"ghcr.io/example/llm-gateway@sha256:{'0' * 64}"
        changed = base().changed(built_of(digest))
        self.assertEqual(list(policies.images(changed)), [])

    def test_resources(self) -> None:
        """No limit, too little memory for what the configuration holds, an unbounded volume."""
        policy = policies.resources
        self.assertFault(
            policy, lambda o: container(o)["resources"]["limits"].pop("cpu"), "limits.cpu"
        )
        self.assertFault(policy, lambda o: container(o).pop("resources"), "requests.memory")
        self.assertFault(
            policy, configure("maxHeldBytes: 268435456", "maxHeldBytes: 400000000"), "512Mi"
        )
        self.assertFault(policy, lambda o: o.volume("tmp").update(emptyDir={}), "tmp has no bound")

    def test_restricted(self) -> None:
        """Root, privileges, capabilities, the host's files, a token for nothing."""
        policy = policies.restricted

        def own(name: str, value: object) -> Callable[[Objects], object]:
            return lambda o: container(o)["securityContext"].update({name: value})

        self.assertFault(policy, own("allowPrivilegeEscalation", True), "may gain privileges")
        self.assertFault(policy, own("readOnlyRootFilesystem", False), "root file system")
        self.assertFault(policy, own("capabilities", {"drop": []}), "keeps capabilities")
        self.assertFault(
            policy, lambda o: o.pod["spec"]["securityContext"].pop("runAsUser"), "as root"
        )
        self.assertFault(
            policy, lambda o: o.pod["spec"]["securityContext"].pop("seccompProfile"), "seccomp"
        )
        self.assertFault(policy, lambda o: o.pod["spec"].update(hostNetwork=True), "its host")
        self.assertFault(
            policy,
            lambda o: o.pod["spec"]["volumes"].append(
                {"name": "etc", "hostPath": {"path": "/etc"}}
            ),
            "the volume etc",
        )
        self.assertFault(
            policy, lambda o: o.pod["spec"].update(automountServiceAccountToken=True), "token"
        )

    def test_environment(self) -> None:
        """A variable that nobody reads, one that is missing, one twice, one that the file wants."""
        policy = policies.environment
        self.assertFault(
            policy,
            lambda o: variable(o, "MAX_BODY_BYTES").update(name="MAX_BODY_SIZE"),
            "MAX_BODY_SIZE is nothing that the gateway reads\nMAX_BODY_BYTES is not set",
        )
        self.assertFault(
            policy,
            lambda o: container(o)["env"].append({"name": "LOG_LEVEL"}),
            "LOG_LEVEL is set twice",
        )
        self.assertFault(policy, configure("http://vllm.llm:8000", "${ENGINE}"), "refers to ENGINE")

    def test_configuration(self) -> None:
        """A stray key or Secret, another path, a name that no model has, gates that stand alone."""
        policy = policies.configuration
        self.assertFault(
            policy,
            lambda o: o.one("ConfigMap")["data"].update(old="models: {}"),
            "['config.yaml', 'old']",
        )
        self.assertFault(
            policy,
            lambda o: variable(o, "GATEWAY_CONFIG").update(value="/config.yaml"),
            "not mounted",
        )
        self.assertFault(
            policy,
            lambda o: variable(o, "ADMISSION_OBSERVE_MODELS").update(value="reasonin"),
            "reasonin",
        )
        self.assertFault(
            policy, configure("replicas: dns:llm-gateway-peers:8081", "kvThreshold: 0.9"), "know of"
        )
        self.assertFault(
            policy,
            configure(
                "{file: /etc/llm-gateway-secrets/peer-token}",
                "${HOSTNAME:-sixteen-or-more-characters}",
            ),
            "nothing uses",
        )
        self.assertFault(
            policy, configure("adminListen: [tcp:9090]", "adminListen: []"), "not one for"
        )

    def test_drain(self) -> None:
        """Too little time, no preStop, a rollout that begins by taking away."""
        policy = policies.drain
        self.assertFault(
            policy, lambda o: o.pod["spec"].update(terminationGracePeriodSeconds=614), "needs 615"
        )
        self.assertFault(policy, configure("drainSeconds: 600", "drainSeconds: 1200"), "needs 1215")
        self.assertFault(policy, lambda o: container(o).pop("lifecycle"), "no preStop")
        self.assertFault(
            policy,
            lambda o: o.one("Deployment")["spec"]["strategy"]["rollingUpdate"].update(
                maxUnavailable=1
            ),
            "takes gateways away",
        )

    def test_selectors(self) -> None:
        """Pods with another label are nobody's."""
        policy = policies.selectors
        renamed = {"app": "llm-gateway"}
        said = [*policy(base().changed(lambda o: o.pod["metadata"].update(labels=renamed)))]
        wanted = ("Deployment", "PodDisruptionBudget", "Service", "NetworkPolicy", "the spread")
        for kind in wanted:
            self.assertTrue(any(line.startswith(kind) for line in said), kind)

    def test_names(self) -> None:
        """A Secret or account that is not there."""
        policy = policies.names
        self.assertFault(
            policy,
            lambda o: o.volume("secrets")["secret"].update(secretName="other"),
            "Secret other",
        )
        self.assertFault(
            policy,
            lambda o: o.pod["spec"].update(serviceAccountName="other"),
            "ServiceAccount other",
        )
