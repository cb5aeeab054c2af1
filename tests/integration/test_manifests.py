"""The overlays as `kubectl` builds them, by every policy."""

from __future__ import annotations

import os
import re
import sys
import unittest
from dataclasses import replace
from pathlib import Path

import yaml
from twisted.trial.unittest import SynchronousTestCase

from tests.integration.cache import Unavailable
from tests.integration.case import unavailable
from tests.integration.container import CPUS, MEMORY_BYTES
from tests.integration.manifests import built, documents
from tests.k8s import network, ours, own, schemas
from tests.k8s.ingress import nginx_annotations
from tests.k8s.objects import BASE, JOB, K8S, OVERLAYS, TOP, Objects, matches
from tests.k8s.overlays import Overlay, overlay, overlays, shipped, sound
from tests.k8s.policies import amount
from tests.k8s.test_policies import POLICIES
from tests.test_pipeline import program
from twisted_gateway.config.sandbox import SessionsAdapter

HOMELAB = OVERLAYS / "homelab"
NGINX = TOP / "docs" / "nginx" / "nginx.conf"


class ManifestsTestCase(SynchronousTestCase):
    """A test that needs kubectl."""

    def setUp(self) -> None:
        """Skip, loudly, where one is missing."""
        try:
            self.overlays = {
                each.name: replace(built(each.path), by_hand=each.by_hand) for each in overlays()
            }
        except Unavailable as why:
            raise unavailable(why) from None
        self.shipped = {each.name: self.overlays[each.name] for each in shipped()}


class OverlayTests(ManifestsTestCase):
    """Each overlay, whole."""

    def test_valid(self) -> None:
        """A kube-apiserver takes every object, of the base's as well, strictly."""
        objects = [one for each in self.overlays.values() for one in each.all]
        objects += built(BASE).all
        objects += documents(HOMELAB / "application.yaml")
        objects += documents(K8S / "components" / "autoscaling" / "horizontalpodautoscaler.yaml")
        objects += documents(JOB)
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
        """Every policy of the base holds for what the overlays make of it; ours for our own."""
        for name, objects in self.overlays.items():
            for policy in (*POLICIES, *(ours.OURS if name in self.shipped else ())):
                self.assertEqual(list(policy(objects)), [], f"{name}: {policy.__name__}")

    def test_namespaces(self) -> None:
        """All is in the gateway's namespace, but for what sandboxes need in theirs."""
        for each in overlays():
            objects = self.overlays[each.name]
            sandboxes = [one.namespace for one in _sessions(objects)]
            for one in objects.all:
                if one["kind"] == "Namespace":
                    self.assertEqual(one["metadata"]["name"], each.namespace)
                    continue
                rights = one["kind"] in ("Role", "RoleBinding")
                wanted = sandboxes if rights else [each.namespace]
                self.assertEqual([one["metadata"]["namespace"]], wanted, one["kind"])

    def test_network(self) -> None:
        """The way to everything that is configured is open, on the port of its pods."""
        for each in overlays():
            name, objects, cluster = each.name, self.overlays[each.name], each.cluster()
            policies = objects.of("NetworkPolicy")
            # Labels that kustomize adds to pods and selectors are not the Job's.
            labels = objects.pod["metadata"]["labels"]
            self.assertEqual(cluster.bearing(each.namespace, labels).labels, labels, name)
            reach = each.reach(policies, cluster)
            sound(each, reach.wrong())
            sound(each, network.unmatched(policies, cluster, each.own))
            self.assertGreater(len(network.reached(objects)), 1)
            sound(each, reach.closed(objects))

    def test_labels_for_everything(self) -> None:
        """In an overlay of one's own: in selectors they take others' pods out, and are noticed."""
        example = overlay("example")
        for selectors, said in ((False, []), (True, ["coredns is reached at []", "the check at"])):
            labels = [{"pairs": {"env": "prod"}, "includeSelectors": selectors}]
            objects = self._with(example.path, labels=labels)
            cluster = example.cluster()
            for pod in cluster.pods:
                if pod.name == "gateway":
                    pod.labels["env"] = "prod"  # type: ignore[index]
            faults = "\n".join(example.reach(objects.of("NetworkPolicy"), cluster).wrong())
            self.assertEqual(bool(faults), selectors, faults)
            for one in said:
                self.assertIn(one, faults)

    def test_sandboxes(self) -> None:
        """Sandboxes may reach the gateway that their NetworkPolicy opens to them."""
        objects = self.overlays["homelab"]
        (sessions,) = _sessions(objects)
        self.assertEqual(sessions.gateway_namespace, overlay("homelab").namespace)
        self.assertEqual(sessions.gateway_port, objects.ports["http"])
        labels = objects.pod["metadata"]["labels"]
        self.assertLessEqual(sessions.gateway_labels.items(), labels.items())

    def test_predecessor(self) -> None:
        """Its numbers are in one overlay."""
        former = {"ADMISSION_MAX_PARK_SECONDS": "120", "VLLM_MAX_QUEUE_DEPTH": "8"}
        for name, objects in {**self.shipped, "base": built(BASE)}.items():
            given = objects.environ
            found = {key: given[key] for key in former} == former
            self.assertEqual(found, name == "homelab", name)

    def test_beside_the_predecessor(self) -> None:
        """No object has the name of one of its own, nor its host, until the cut-over."""
        homelab = self.overlays["homelab"]
        names = {one["metadata"]["name"] for one in homelab.all}
        self.assertFalse(names & {"api-gateway", "session-sandbox-manager"})
        (rule,) = homelab.one("Ingress")["spec"]["rules"]
        self.assertNotEqual(rule["host"], "api.riotpiao.com")
        after = self._with(HOMELAB, HOMELAB / "cut-over")
        self.assertSound(after)
        alias = after.one("Service", "api-gateway")
        self.assertEqual([one["port"] for one in alias["spec"]["ports"]], [8080])
        (rule,) = after.one("Ingress")["spec"]["rules"]
        self.assertEqual(rule["host"], "api.riotpiao.com")
        # The line that takes it is there, to be uncommented.
        self.assertRegex((HOMELAB / "kustomization.yaml").read_text("utf-8"), r"\n  # - cut-over\n")

    def test_cilium(self) -> None:
        """With the component the gateway, and a candidate, have a way to the Kubernetes API."""
        objects = self._with(BASE, K8S / "components" / "cilium")
        self.assertSound(objects)
        (policy,) = objects.of("CiliumNetworkPolicy")
        (rule,) = policy["spec"]["egress"]
        self.assertEqual(rule["toEntities"], ["kube-apiserver"])

    def test_monitoring(self) -> None:
        """Rules, scraping and dashboard are there, where operator and sidecar look for them."""
        for each in overlays():
            objects = self.overlays[each.name]
            if each not in shipped() and not objects.of("ServiceMonitor"):
                # Without the operator an overlay takes no monitoring.
                continue
            (selects,) = [one.selects for one in each.cluster().pods if one.selects is not None]
            for kind in ("ServiceMonitor", "PrometheusRule"):
                (one,) = objects.of(kind)
                labels = one["metadata"]["labels"]
                self.assertTrue(matches({"matchLabels": dict(selects)}, labels), each.name)
            dashboard = objects.one("ConfigMap", "llm-gateway-dashboard")
            self.assertEqual(dashboard["metadata"]["labels"]["grafana_dashboard"], "1")

    def test_resources(self) -> None:
        """What the image is measured with is what its containers get."""
        for name, objects in self.shipped.items():
            limits = objects.container["resources"]["limits"]
            self.assertEqual(amount(limits["cpu"], {"m": 1}), CPUS * 1000, name)
            self.assertEqual(amount(limits["memory"], {"Mi": 1 << 20}), MEMORY_BYTES, name)

    def test_config_rolls_out(self) -> None:
        """The pods name the ConfigMap by its content: another one makes new pods."""
        for name, objects in self.shipped.items():
            used = objects.volume("config")["configMap"]["name"]
            self.assertRegex(used, r"^llm-gateway-[a-z0-9]{10}$", name)

    def test_autoscaling(self) -> None:
        """With the component an overlay is sound, and says no number of its own."""
        objects = self._with(BASE, K8S / "components" / "autoscaling")
        self.assertEqual(len(objects.of("HorizontalPodAutoscaler")), 1)
        self.assertSound(objects)

    def test_application(self) -> None:
        """Argo CD is sent to the overlay of what is promoted, and to its namespace."""
        (application,) = documents(HOMELAB / "application.yaml")
        source = application["spec"]["source"]
        self.assertEqual(TOP / source["path"], HOMELAB)
        self.assertEqual(source["targetRevision"], program("promote").BRANCH)
        home = overlay("homelab").namespace
        self.assertEqual(application["spec"]["destination"]["namespace"], home)

    def test_nginx(self) -> None:
        """The nginx of those without an Ingress goes to the same port, as patient."""
        text = NGINX.read_text(encoding="utf-8")
        ports = {int(port) for port in re.findall(r"^\s*server [\w.]+:(\d+);", text, re.MULTILINE)}
        self.assertEqual(ports, {self.overlays["example"].ports["http"]})
        silences = [int(seconds) for seconds in re.findall(r"proxy_read_timeout (\d+)s", text)]
        ingress = nginx_annotations(built(BASE).one("Ingress"))
        self.assertEqual(max(silences), int(ingress["proxy-read-timeout"]))
        tries = re.findall(r"^ *proxy_next_upstream(?:_tries)? (.+);$", text, re.MULTILINE)
        names = ("proxy-next-upstream", "proxy-next-upstream-tries")
        self.assertEqual(tries, [ingress[name] for name in names])

    def assertSound(self, objects: Objects) -> None:
        """No policy and no schema has anything to say of these."""
        for policy in (*POLICIES, *ours.OURS):
            self.assertEqual(list(policy(objects)), [], policy.__name__)
        self.assertEqual([said for one in objects.all for said in schemas.refused(one)], [])

    def _with(self, resource: Path, *components: Path, **more: object) -> Objects:
        """A kustomization with components, and what else it is to have."""
        place = Path(self.mktemp()).resolve()
        place.mkdir(parents=True)
        tree = {
            "resources": [os.path.relpath(resource, place)],
            "components": [os.path.relpath(component, place) for component in components],
            **more,
        }
        (place / "kustomization.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
        return built(place)


class OwnOverlayTests(ManifestsTestCase):
    """Somebody's own, of which no test may forbid what docs/kubernetes.md leaves to choice."""

    def test_sound(self) -> None:
        """It passes all tests of overlays, as it was edited first, and with each choice made."""
        mine = own.mine(Path(self.mktemp()).resolve())
        self._results(mine)
        own.edit(mine.path, own.CHOICES)
        built.cache_clear()
        self._results(Overlay(mine.path))

    def _results(self, mine: Overlay) -> None:
        self.patch(sys.modules[__name__], "overlays", lambda: [*shipped(), mine])
        result = unittest.TestResult()
        unittest.defaultTestLoader.loadTestsFromTestCase(OverlayTests).run(result)
        self.assertEqual([*result.failures, *result.errors], [])
        self.assertGreater(result.testsRun, 10)
        self.assertEqual(result.skipped, [])


def _sessions(objects: Objects) -> list[SessionsAdapter]:
    adapters = objects.config.adapters.values()
    return [one for one in adapters if isinstance(one, SessionsAdapter)]
