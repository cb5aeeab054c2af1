"""The Job of llm-gateway-check fits the gateway that it is applied beside."""

from __future__ import annotations

import re

import yaml

from tests.k8s import network, policies
from tests.k8s.network import Pod
from tests.k8s.objects import K8S, Objects, base, matches
from tests.k8s.overlays import overlays
from tests.support import TestCase


class JobTests(TestCase):
    """k8s/integration-test-job.yaml beside the base."""

    def setUp(self) -> None:
        super().setUp()
        self.job = yaml.safe_load((K8S / "integration-test-job.yaml").read_text(encoding="utf-8"))
        self.objects = Objects((*base().all, self.job))
        self.pod = self.job["spec"]["template"]

    def test_policies(self) -> None:
        """Its pod is as restricted and limited as the gateway's, and of the same image."""
        for policy in (policies.images, policies.resources, policies.restricted):
            self.assertEqual(list(policy(self.objects)), [], policy.__name__)
        (container,) = self.pod["spec"]["containers"]
        self.assertEqual(container["image"], self.objects.container["image"])

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
            pod = Pod.read("check", each.namespace, {"labels": labels}, {})
            cluster, given = each.cluster(), each.policies
            let = {p for p in each.own if network.allowed(given, cluster, "ingress", pod, p)}
            ports = each.objects.ports
            self.assertEqual({port.number for port in let}, {ports["http"], ports["admin"]})
        for service in self.objects.of("Service"):
            self.assertFalse(matches({"matchLabels": service["spec"]["selector"]}, labels))
