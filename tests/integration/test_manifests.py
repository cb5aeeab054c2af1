"""The overlays as `kubectl` builds them, by every policy; their Secrets by real sops and age."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import yaml
from twisted.trial.unittest import SynchronousTestCase

from tests.integration.cache import Unavailable
from tests.integration.case import unavailable
from tests.integration.manifests import Keeper, Refused, built, overlay
from tests.k8s import network, schemas
from tests.k8s.objects import BASE, K8S, OVERLAYS, TOP, Objects
from tests.k8s.test_network import HOME, OWN
from tests.k8s.test_policies import POLICIES
from twisted_gateway.config.sandbox import SessionsAdapter

HOMELAB = OVERLAYS / "homelab"
JOB = K8S / "integration-test-job.yaml"
ENCRYPT = ("encrypt", "--filename-override", "secrets.enc.yaml", "secrets.example.yaml")
NGINX = TOP / "docs" / "nginx" / "nginx.conf"


class ManifestsTestCase(SynchronousTestCase):
    """A test that needs kubectl, sops or age."""

    def setUp(self) -> None:
        """Skip, loudly, where one is missing."""
        try:
            self.overlays = {name: overlay(name) for name in HOME}
        except Unavailable as why:
            raise unavailable(why) from None


class OverlayTests(ManifestsTestCase):
    """Each overlay, whole."""

    def test_all(self) -> None:
        """The tests know each overlay."""
        self.assertEqual({path.name for path in OVERLAYS.iterdir()}, set(HOME))

    def test_valid(self) -> None:
        """A kube-apiserver takes every object, of the base's as well, strictly."""
        objects = [one for each in self.overlays.values() for one in each.all]
        objects += built(BASE).all
        objects += _documents(HOMELAB / "application.yaml")
        objects += _documents(K8S / "components" / "autoscaling" / "horizontalpodautoscaler.yaml")
        objects += _documents(JOB) if JOB.exists() else []
        self.assertGreater(len(objects), 40)
        self.assertEqual([said for one in objects for said in schemas.refused(one)], [])

    def test_refused(self) -> None:
        """The schemas notice a key that does not exist, in objects of every kind."""
        for objects in self.overlays.values():
            for one in objects.all:
                if "spec" in one and one["kind"] != "Namespace":
                    wrong = {**one, "spec": {**one["spec"], "replicaz": 3}}
                    self.assertNotEqual(list(schemas.refused(wrong)), [], one["kind"])

    def test_policies(self) -> None:
        """Every policy of the base holds for what the overlays make of it."""
        for name, objects in self.overlays.items():
            for policy in POLICIES:
                self.assertEqual(list(policy(objects)), [], f"{name}: {policy.__name__}")

    def test_namespaces(self) -> None:
        """All is in the gateway's namespace, but for what sandboxes need in theirs."""
        for name, objects in self.overlays.items():
            sandboxes = [one.namespace for one in _sessions(objects)]
            for one in objects.all:
                if one["kind"] == "Namespace":
                    self.assertEqual(one["metadata"]["name"], HOME[name])
                    continue
                rights = one["kind"] in ("Role", "RoleBinding")
                wanted = sandboxes if rights else [HOME[name]]
                self.assertEqual([one["metadata"]["namespace"]], wanted, one["kind"])

    def test_network(self) -> None:
        """The way to everything that is configured is open, on the port of its pods."""
        for name, objects in self.overlays.items():
            cluster, policies = network.Cluster(name), objects.of("NetworkPolicy")
            self.assertEqual(list(network.unmatched(policies, cluster, OWN)), [], name)
            addresses = network.reached(objects)
            self.assertGreater(len(addresses), 1)
            for host, port in addresses:
                found = cluster.behind(host, port)
                assert found is not None, f"{name}: {host}:{port} is no Service of cluster.yaml"
                self.assertTrue(
                    network.allowed(policies, cluster, "egress", *found),
                    f"{name}: {host}:{port} leads to port {found[1]}, which is closed",
                )

    def test_sandboxes(self) -> None:
        """Sandboxes may reach the gateway that their NetworkPolicy opens to them."""
        objects = self.overlays["homelab"]
        (sessions,) = _sessions(objects)
        self.assertEqual(sessions.gateway_namespace, HOME["homelab"])
        self.assertEqual(sessions.gateway_port, objects.ports["http"])
        labels = objects.pod["metadata"]["labels"]
        self.assertLessEqual(sessions.gateway_labels.items(), labels.items())

    def test_predecessor(self) -> None:
        """Its numbers are in one overlay, and the address that its clients use leads to us."""
        former = {"ADMISSION_MAX_PARK_SECONDS": "120", "VLLM_MAX_QUEUE_DEPTH": "8"}
        for name, objects in {**self.overlays, "base": built(BASE)}.items():
            given = objects.environ
            found = {key: given[key] for key in former} == former
            self.assertEqual(found, name == "homelab", name)
        alias = self.overlays["homelab"].one("Service", "api-gateway")
        self.assertEqual([one["port"] for one in alias["spec"]["ports"]], [8080])

    def test_config_rolls_out(self) -> None:
        """The pods name the ConfigMap by its content: another one makes new pods."""
        for name, objects in self.overlays.items():
            used = objects.volume("config")["configMap"]["name"]
            self.assertRegex(used, r"^llm-gateway-[a-z0-9]{10}$", name)

    def test_autoscaling(self) -> None:
        """With the component an overlay is sound, and says no number of its own."""
        place = Path(self.mktemp()).resolve()
        place.mkdir(parents=True)
        tree = {
            "resources": [os.path.relpath(BASE, place)],
            "components": [os.path.relpath(K8S / "components" / "autoscaling", place)],
        }
        (place / "kustomization.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
        objects = built(place)
        self.assertEqual(len(objects.of("HorizontalPodAutoscaler")), 1)
        for policy in POLICIES:
            self.assertEqual(list(policy(objects)), [], policy.__name__)

    def test_application(self) -> None:
        """Argo CD is sent to the overlay, and to its namespace."""
        (application,) = _documents(HOMELAB / "application.yaml")
        self.assertEqual(TOP / application["spec"]["source"]["path"], HOMELAB)
        self.assertEqual(application["spec"]["destination"]["namespace"], HOME["homelab"])

    def test_nginx(self) -> None:
        """The nginx of those without an Ingress goes to the same port, as patient."""
        text = NGINX.read_text(encoding="utf-8")
        ports = {int(port) for port in re.findall(r"^\s*server [\w.]+:(\d+);", text, re.MULTILINE)}
        self.assertEqual(ports, {self.overlays["example"].ports["http"]})
        silences = [int(seconds) for seconds in re.findall(r"proxy_read_timeout (\d+)s", text)]
        ingress = built(BASE).one("Ingress")["metadata"]["annotations"]
        key = "nginx.ingress.kubernetes.io/proxy-read-timeout"
        self.assertEqual(max(silences), int(ingress[key]))


class SecretTests(ManifestsTestCase):
    """`.sops.yaml` and what is encrypted by it."""

    def setUp(self) -> None:
        """Have a copy of the overlay's files for two keepers with keys of their own."""
        super().setUp()
        self.place = Path(self.mktemp()).resolve()
        self.place.mkdir(parents=True)
        try:
            self.cluster, self.safe, self.next = (
                Keeper(self.place / f"{name}.txt") for name in ("cluster", "safe", "next")
            )
        except Unavailable as why:
            raise unavailable(why) from None
        for name in (".sops.yaml", "secrets.example.yaml"):
            shutil.copy(HOMELAB / name, self.place)
        self._recipients(self.cluster, self.safe)
        (self.plain,) = _documents(self.place / "secrets.example.yaml")

    def test_round_trip(self) -> None:
        """What the documented command encrypts either key decrypts, and no other."""
        encrypted = self._encrypt()
        for value in _leaves(self.plain["spec"]):
            if "change-me" in value:
                self.assertNotIn(value, encrypted)
        for keeper in (self.cluster, self.safe):
            self.assertEqual(self._decrypt(keeper), self.plain)
        self.assertCannotRead(self.next)

    def test_applied(self) -> None:
        """What kustomize makes of it still decrypts, its MAC and all, in another namespace."""
        self._encrypt()
        (self.place / "kustomization.yaml").write_text(
            "namespace: api\nlabels: [{pairs: {app.kubernetes.io/part-of: x}}]\n"
            "resources: [secrets.enc.yaml]\n",
            encoding="utf-8",
        )
        (applied,) = built(self.place).all
        self.assertEqual(list(schemas.refused(applied)), [])
        (self.place / "secrets.enc.yaml").write_text(yaml.safe_dump(applied), encoding="utf-8")
        got = self._decrypt(self.cluster)
        self.assertEqual(got["spec"], self.plain["spec"])
        self.assertEqual(got["metadata"]["namespace"], "api")

    def test_changed(self) -> None:
        """A value that somebody has put in the place of another is noticed."""
        encrypted = self._encrypt()
        (first,) = re.findall(r" s3-access-key: (\S+)", encrypted)
        (second,) = re.findall(r" sqs-access-key: (\S+)", encrypted)
        swapped = re.sub(
            f"{re.escape(first)}|{re.escape(second)}",
            lambda found: second if found[0] == first else first,
            encrypted,
        )
        self.assertNotEqual(swapped, encrypted)
        (self.place / "secrets.enc.yaml").write_text(swapped, encoding="utf-8")
        fault = self.assertRaises(Refused, self._decrypt, self.cluster)
        self.assertIn("message authentication failed", str(fault))

    def test_rotation(self) -> None:
        """A new key is taken in, the old one taken out, and what is changed then it cannot read."""
        self._encrypt()
        self._recipients(self.cluster, self.safe, self.next)
        self.safe.sops("updatekeys", "--yes", "secrets.enc.yaml", cwd=self.place)
        self.assertEqual(self._decrypt(self.next), self.plain)
        self._recipients(self.next, self.safe)
        self.safe.sops("updatekeys", "--yes", "secrets.enc.yaml", cwd=self.place)
        self.safe.sops("rotate", "--in-place", "secrets.enc.yaml", cwd=self.place)
        self.assertCannotRead(self.cluster)
        path = '["spec"]["secretTemplates"][0]["stringData"]["s3-secret-key"]'
        self.next.sops("set", "secrets.enc.yaml", path, '"another"', cwd=self.place)
        for keeper in (self.next, self.safe):
            changed = self._decrypt(keeper)["spec"]["secretTemplates"][0]["stringData"]
            self.assertEqual(changed["s3-secret-key"], "another")

    def test_documented(self) -> None:
        """The page says what is tested here."""
        page = (TOP / "docs" / "kubernetes.md").read_text(encoding="utf-8")
        self.assertIn(f"sops {' '.join(ENCRYPT)} > secrets.enc.yaml", page)
        self.assertIn("sops updatekeys --yes secrets.enc.yaml", page)
        self.assertIn("sops rotate --in-place secrets.enc.yaml", page)

    def test_committed(self) -> None:
        """The overlay's own has its template's keys, all encrypted, for the two of the rule."""
        (encrypted,) = _documents(HOMELAB / "secrets.enc.yaml")
        self.assertEqual(list(schemas.refused(encrypted)), [])
        (template,) = _documents(HOMELAB / "secrets.example.yaml")
        self.assertEqual(_shape(encrypted["spec"]), _shape(template["spec"]))
        (rule,) = yaml.safe_load((HOMELAB / ".sops.yaml").read_text("utf-8"))["creation_rules"]
        recipients = [one["recipient"] for one in encrypted["sops"]["age"]]
        self.assertEqual(recipients, re.split(r",\s*", rule["age"]))
        for path in K8S.rglob("*.*"):
            if path.suffix in (".yaml", ".md", ".txt", ".key"):
                self.assertNotIn("AGE-SECRET-KEY-1", path.read_text(encoding="utf-8"), path)

    def assertCannotRead(self, keeper: Keeper) -> None:
        """It is encrypted for others, and that is why sops fails."""
        fault = self.assertRaises(Refused, self._decrypt, keeper)
        self.assertIn("identity did not match any of the recipients", str(fault))

    def _recipients(self, *keepers: Keeper) -> None:
        path = self.place / ".sops.yaml"
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
        tree["creation_rules"][0]["age"] = ",".join(one.recipient for one in keepers)
        path.write_text(yaml.safe_dump(tree), encoding="utf-8")

    def _encrypt(self) -> str:
        encrypted = self.cluster.sops(*ENCRYPT, cwd=self.place)
        (self.place / "secrets.enc.yaml").write_text(encrypted, encoding="utf-8")
        return encrypted

    def _decrypt(self, keeper: Keeper) -> Any:
        return yaml.safe_load(keeper.sops("decrypt", "secrets.enc.yaml", cwd=self.place))


def _documents(path: Path) -> list[Any]:
    return [one for one in yaml.safe_load_all(path.read_text(encoding="utf-8")) if one]


def _sessions(objects: Objects) -> list[SessionsAdapter]:
    adapters = objects.config.adapters.values()
    return [one for one in adapters if isinstance(one, SessionsAdapter)]


def _leaves(node: Any) -> list[str]:
    if isinstance(node, dict):
        return [leaf for value in node.values() for leaf in _leaves(value)]
    if isinstance(node, list):
        return [leaf for value in node for leaf in _leaves(value)]
    return [str(node)]


def _shape(node: Any) -> Any:
    """A tree without the values of `stringData`."""
    if isinstance(node, dict):
        return {
            key: sorted(value) if key == "stringData" else _shape(value)
            for key, value in node.items()
        }
    if isinstance(node, list):
        return [_shape(value) for value in node]
    return node
