"""The overlays' configurations load, by their files alone: for whoever has no kubectl."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import yaml

from tests.k8s import policies, routing
from tests.k8s.objects import OVERLAYS, Objects, base
from tests.k8s.test_network import HOME
from tests.support import TestCase
from twisted_gateway.config.faults import ConfigError

# What needs no more than the configuration, the environment and the Secrets.
POLICIES = (policies.environment, policies.configuration, policies.drain, routing.ports)


def overlaid(name: str) -> Objects:
    """The base with an overlay's file, environment and Secrets."""
    objects = base().changed(lambda _: None)
    config = (OVERLAYS / name / "config.yaml").read_text(encoding="utf-8")
    objects.one("ConfigMap")["data"]["config.yaml"] = config
    for variable in _variables(name):
        kept = [one for one in objects.container["env"] if one["name"] != variable["name"]]
        objects.container["env"][:] = [*kept, copy.deepcopy(variable)]
    secrets = OVERLAYS / name / "secrets.enc.yaml"
    if not secrets.exists():
        return objects
    return Objects((*objects.all, yaml.safe_load(secrets.read_text(encoding="utf-8"))))


def _variables(name: str) -> Iterator[Any]:
    """The environment of every patch of the Deployment."""
    directory = OVERLAYS / name
    kustomization = yaml.safe_load((directory / "kustomization.yaml").read_text(encoding="utf-8"))
    for patch in kustomization["patches"]:
        text = patch.get("patch") or (directory / patch["path"]).read_text(encoding="utf-8")
        tree = yaml.safe_load(text)
        if isinstance(tree, dict) and tree["kind"] == "Deployment":
            for container in tree["spec"]["template"]["spec"].get("containers", []):
                yield from container.get("env", [])


class ConfigTests(TestCase):
    """config.yaml of each overlay."""

    def test_sound(self) -> None:
        """It loads without a warning, and agrees with environment, Secrets and ports."""
        for name in HOME:
            for policy in POLICIES:
                self.assertEqual(list(policy(overlaid(name))), [], f"{name}: {policy.__name__}")

    def test_variables(self) -> None:
        """The patches are found: what they set is in force."""
        self.assertEqual(overlaid("example").environ["ADMISSION_OBSERVE_MODELS"], "chat")
        (gated,) = [one for one in overlaid("homelab").config.models.values() if one.gated]
        self.assertEqual(gated.policy.max_queue_depth, 8)

    def test_secrets(self) -> None:
        """A key that the Secret lacks is a fault of the file."""
        objects = overlaid("homelab")
        del objects.one("SopsSecret")["spec"]["secretTemplates"][0]["stringData"]["gotify-token"]
        fault = self.assertRaises(ConfigError, lambda: objects.config)
        self.assertIn("adapters.notification.token", str(fault))
