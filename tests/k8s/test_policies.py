"""The base's objects are as they should be, and each way to break them is noticed."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import yaml

from tests.k8s import argo, availability, ingress, policies, routing, security, trust
from tests.k8s.breaking import BreakingTestCase, built_of, configure, container, put, variable
from tests.k8s.objects import K8S, OVERLAYS, TOP, Objects, Tree, base
from tests.k8s.overlays import overlay
from tests.support import TestCase
from tests.test_docs import rows

POLICIES: tuple[policies.Policy, ...] = (
    policies.images,
    policies.resources,
    security.restricted,
    policies.secrets,
    policies.environment,
    policies.configuration,
    policies.coupled,
    policies.selectors,
    policies.names,
    availability.replicas,
    availability.drain,
    availability.rollout,
    availability.patience,
    availability.autoscaling,
    trust.tenants,
    trust.tokens,
    routing.probes,
    routing.ports,
    routing.exposed,
    routing.peers,
    routing.scraped,
    ingress.published,
    ingress.streams,
    argo.waves,
)
"""All of them, for every overlay as well."""

# What lies beside a kustomization and is not applied by it: who reads it says so in its head.
APART = {
    "application.yaml",
    "cluster.yaml",
    "dashboard.yaml",
    "kustomization.yaml",
    "rules.yaml",
    "secrets.example.yaml",
}
# What belongs to one cluster.
PARTICULAR = re.compile(
    r"riotpiao|poimen|llm-serving|authentik|gotify|forgejo|minio|api-gateway|ornith|longhorn",
    re.IGNORECASE,
)


def source(objects: Objects, volume: str, kind: str) -> Any:
    """What a volume is made of, to be changed."""
    return objects.volume(volume)[kind]


class BaseTests(TestCase):
    """The base itself."""

    def test_sound(self) -> None:
        """No policy has anything to say of it."""
        for policy in POLICIES:
            self.assertEqual(list(policy(base())), [], policy.__name__)

    def test_listed(self) -> None:
        """Every file beside a kustomization is named there, but for what is known to be apart."""
        seen = set()
        for path in sorted(K8S.rglob("kustomization.yaml")):
            tree = yaml.safe_load(path.read_text(encoding="utf-8"))
            made = [name for one in tree.get("configMapGenerator", []) for name in one["files"]]
            patches = [one["path"] for one in tree.get("patches", []) if "path" in one]
            named = {*tree.get("resources", []), *made, *patches}
            there = {
                one.name
                for one in path.parent.iterdir()
                if one.suffix in (".yaml", ".json") and not one.name.startswith(".")
            }
            where = str(path.relative_to(TOP))
            self.assertEqual(there - named - APART, set(), where)
            self.assertEqual({name for name in named if "/" not in name} - there, set(), where)
            seen |= named
        self.assertGreaterEqual(
            seen, {"networkpolicy.yaml", "servicemonitor.yaml", "prometheusrule.yaml", "rbac.yaml"}
        )

    def test_dashboard(self) -> None:
        """Grafana's sidecar looks for this label, by its chart's default."""
        text = (K8S / "monitoring" / "kustomization.yaml").read_text(encoding="utf-8")
        (made,) = yaml.safe_load(text)["configMapGenerator"]
        self.assertEqual(made["options"]["labels"], {"grafana_dashboard": "1"})

    def test_engine(self) -> None:
        """As vLLM is started with `--max-num-seqs 4`; in half a core, and 512 MiB."""
        self.assertEqual(base().environ["ADMISSION_MAX_INFLIGHT"], "4")
        limits = base().container["resources"]["limits"]
        self.assertEqual(limits, {"cpu": "500m", "memory": "512Mi"})

    def test_ports_documented(self) -> None:
        """The page has the ports, by name."""
        page = (TOP / "docs" / "kubernetes.md").read_text(encoding="utf-8")
        table = {row[1].strip("`"): row[0] for row in rows(page) if len(row) == 4}
        for name, port in base().ports.items():
            self.assertEqual(table[name], str(port))

    def test_particular(self) -> None:
        """What belongs to one cluster is in its overlay alone; people's own are theirs."""
        for path in sorted(K8S.rglob("*.y*ml")):
            if not path.is_relative_to(OVERLAYS) or path.is_relative_to(OVERLAYS / "example"):
                found = PARTICULAR.search(path.read_text(encoding="utf-8"))
                self.assertIsNone(found, f"{path.relative_to(TOP)}: {found}")

    def test_by_hand(self) -> None:
        """The command that makes the example's Secret gives it its keys."""
        text = (OVERLAYS / "example" / "kustomization.yaml").read_text(encoding="utf-8")
        made = re.findall(
            r"create secret generic ([\w-]+)((?: --from-literal=[\w-]+=\S+(?: \S+)*)+)", text
        )
        keys = {name: set(re.findall(r"--from-literal=([\w-]+)=", rest)) for name, rest in made}
        self.assertEqual(keys, overlay("example").by_hand)


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
        for cpu in ("5", "2500m"):
            self.assertFault(
                policy,
                put(lambda o: container(o)["resources"]["limits"], cpu=cpu),
                f"can not use {cpu} cores",
            )
        for given, said in (
            ({"cpu": "750m"}, "asks for 750m of cpu, and may use 500m"),
            ({"cpu": 1}, "asks for 1 of cpu, and may use 500m"),
            ({"memory": "1G"}, "asks for 1G of memory, and may use 512Mi"),
        ):
            asked = put(lambda o: container(o)["resources"]["requests"], **given)
            self.assertFault(policy, asked, said)

    def test_amounts(self) -> None:
        """Whatever YAML makes of a quantity, it is one."""
        cores = {"": 1000, "m": 1}
        for given, wanted in (("500m", 500), ("0.5", 500), (0.5, 500), (2, 2000), ("1.5", 1500)):
            self.assertEqual(policies.amount(given, cores), wanted)
        for wrong in ("", "m", "1x", "-1", "1 m"):
            self.assertRaises(AssertionError, policies.amount, wrong, cores)

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
        self.assertFault(
            policy,
            lambda o: container(o)["env"].append(
                container(o)["env"].pop([v["name"] for v in container(o)["env"]].index("POD_NAME"))
            ),
            "OTEL_RESOURCE_ATTRIBUTES refers to POD_NAME, which is not set before it",
        )

    def test_coupled(self) -> None:
        """One of two that say the same is changed, or is missing."""
        for name in ("ADMISSION_MAX_INFLIGHT", "VLLM_MAX_NUM_SEQS"):
            self.assertFault(
                policies.coupled,
                put(partial(variable, name=name), value="12"),
                "12",
            )

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

    def test_selectors(self) -> None:
        """Pods with another label are nobody's."""
        policy = policies.selectors
        renamed = {"app": "llm-gateway"}
        said = [*policy(base().changed(lambda o: o.pod["metadata"].update(labels=renamed)))]
        wanted = ("Deployment", "PodDisruptionBudget", "Service", "NetworkPolicy", "the spread")
        for kind in wanted:
            self.assertTrue(any(line.startswith(kind) for line in said), kind)
        selectors: tuple[Tree, ...] = ({}, {"matchLabels": {}})
        for selector in selectors:
            self.assertFault(
                policy,
                put(lambda o: o.one("NetworkPolicy")["spec"], podSelector=selector),
                "NetworkPolicy llm-gateway selects every pod",
            )
        either = {"matchExpressions": [{"key": "app.kubernetes.io/name", "operator": "Exists"}]}
        self.assertFault(
            policy,
            put(lambda o: o.one("PodDisruptionBudget")["spec"], selector=either),
            "PodDisruptionBudget llm-gateway selects the check's pods",
        )
        nobody = {"matchLabels": {"app.kubernetes.io/name": "llm-gateway-chekc"}}
        self.assertFault(
            policy,
            put(lambda o: o.one("NetworkPolicy", "llm-gateway-check")["spec"], podSelector=nobody),
            "NetworkPolicy llm-gateway-check selects no gateway",
        )

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
        for volume, kind in (("config", "configMap"), ("secrets", "secret")):
            self.assertFault(
                policy,
                put(partial(source, volume=volume, kind=kind), optional=True),
                f"without its volume {volume}",
            )

    def test_login(self) -> None:
        """A registry's Secret that no pod pulls with: by its account, or by itself."""
        (made,) = overlay("homelab").objects.of("SopsSecret")
        login = "llm-gateway-registry"
        named = [{"name": login}]

        def objects(change: Callable[[Objects], object]) -> Objects:
            return Objects((*base().all, made)).changed(change)

        said = list(policies.names(objects(lambda o: None)))
        self.assertEqual(said, [f"nobody pulls an image with the Secret {login}"])
        for where in (lambda o: o.one("ServiceAccount"), lambda o: o.pod["spec"]):
            used = objects(put(where, imagePullSecrets=named))
            self.assertEqual(list(policies.names(used)), [])
