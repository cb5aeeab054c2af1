"""The Job of llm-gateway-check fits the gateway that it is applied beside."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator

import yaml

from tests.k8s import ours, policies, security
from tests.k8s.network import Port
from tests.k8s.objects import JOB, Objects, Tree, base, matches
from tests.k8s.overlays import overlays
from tests.support import TestCase


def unlike(job: Tree, objects: Objects) -> Iterator[str]:
    """How the Job's pod would not start where the gateway's does, or has what it has no use for.

    How long it may take, and how often it is tried, is in tests/check/test_job.py.
    """
    spec = job["spec"]["template"]["spec"]
    account = objects.pod["spec"]["serviceAccountName"]
    if spec.get("serviceAccountName") != account:
        yield f"it has not the imagePullSecrets of ServiceAccount {account}"
    if spec.get("automountServiceAccountToken") is not False:
        yield "it has a token, and asks nothing of Kubernetes"
    for volume in spec.get("volumes", []):
        if "secret" in volume and volume["secret"].get("optional") is not True:
            yield f"it waits for the Secret {volume['secret']['secretName']}, which few will make"


class JobTests(TestCase):
    """k8s/integration-test-job.yaml beside the base."""

    def setUp(self) -> None:
        super().setUp()
        self.job = yaml.safe_load(JOB.read_text(encoding="utf-8"))
        self.objects = Objects((*base().all, self.job))
        self.pod = self.job["spec"]["template"]

    def test_policies(self) -> None:
        """Its pod is as restricted and limited as the gateway's, and of the same image."""
        for policy in (policies.images, policies.resources, security.restricted, *ours.OURS):
            self.assertEqual(list(policy(self.objects)), [], policy.__name__)
        (container,) = self.pod["spec"]["containers"]
        self.assertEqual(container["image"], self.objects.container["image"])

    def test_unlike(self) -> None:
        """It starts wherever the gateway does; each way to have it wait is noticed."""
        self.assertEqual(list(unlike(self.job, self.objects)), [])
        for change, said in (
            (lambda spec: spec.pop("serviceAccountName"), "not the imagePullSecrets of"),
            (lambda spec: spec.update(serviceAccountName="default"), "not the imagePullSecrets of"),
            (lambda spec: spec.update(automountServiceAccountToken=True), "it has a token"),
            (lambda spec: spec.pop("automountServiceAccountToken"), "it has a token"),
            (
                lambda spec: spec["volumes"][0]["secret"].pop("optional"),
                "it waits for the Secret llm-gateway-check",
            ),
        ):
            job = copy.deepcopy(self.job)
            change(job["spec"]["template"]["spec"])
            self.assertIn(said, "\n".join(unlike(job, self.objects)))

    def test_addresses(self) -> None:
        """It asks Services that are there, on ports that are."""
        there = {
            f"http://{one['metadata']['name']}:{port['port']}"
            for one in self.objects.of("Service")
            for port in one["spec"]["ports"]
        }
        (container,) = self.pod["spec"]["containers"]
        asked = {arg for arg in container["args"] if re.match("https?://", arg)}
        self.assertEqual(len(asked), 2)
        self.assertLessEqual(asked, there)

    def test_let_in(self) -> None:
        """NetworkPolicies let its pod in where it goes, and no Service takes it for a gateway."""
        labels = self.pod["metadata"]["labels"]
        for each in overlays():
            cluster, ports = each.cluster(), each.objects.ports
            reach = each.reach(each.policies, cluster)
            self.assertEqual(reach.check, cluster.bearing(each.namespace, labels))
            wanted = {Port(ports["http"]), Port(ports["admin"])}
            ways = (("ingress", reach.gateway, reach.check), ("egress", reach.check, reach.gateway))
            for direction, one, other in ways:
                let = reach.ways(direction, one).open(other, each.own)
                self.assertEqual(let, wanted, f"{each.name}: {direction}")
        for service in self.objects.of("Service"):
            self.assertFalse(matches({"matchLabels": service["spec"]["selector"]}, labels))
