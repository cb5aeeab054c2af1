"""What .ci/check_config.py gives --check; kubectl's part is in the integration suite."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest import mock

from tests.k8s.objects import Objects, base
from tests.k8s.overlays import overlay
from tests.support import TestCase
from tests.test_pipeline import program
from twisted_gateway.config.load import load
from twisted_gateway.config.schema import Config


class FoundTests(TestCase):
    """What --check is run with and by, in a directory of its own, whatever PATH is relative to."""

    def setUp(self) -> None:
        super().setUp()
        self.program = program("check_config")

    def test_twistd(self) -> None:
        """It is that beside this Python, else that of PATH, else none."""
        directory = Path(self.mktemp())
        directory.mkdir()
        twistd = directory / "twistd"
        for relative in (directory, Path(os.path.relpath(directory))):
            given = {"PATH": str(relative), "PYTHONPATH": str(relative)}
            with (
                mock.patch.dict(os.environ, given),
                mock.patch.object(self.program.sys, "executable", "/nonexistent/python"),
            ):
                twistd.unlink(missing_ok=True)
                self.assertIsNone(self.program._twistd())
                twistd.touch(0o755)
                self.assertEqual(self.program._twistd(), str(twistd.resolve()))
                self.assertEqual(
                    self.program._kept(), dict.fromkeys(given, str(directory.resolve()))
                )
            with mock.patch.object(self.program.sys, "executable", str(relative / "python")):
                self.assertEqual(self.program._twistd(), str(twistd.resolve()))
        with mock.patch.dict(os.environ, {"PATH": "", "PYTHONPATH": ""}):
            self.assertEqual(self.program._kept(), {})


class PrepareTests(TestCase):
    """The file, the variables and the Secrets."""

    def setUp(self) -> None:
        super().setUp()
        self.prepare = program("check_config").prepare

    def prepared(self, objects: Objects) -> tuple[Any, Path]:
        """What is made of these, and where."""
        directory = Path(self.mktemp()).resolve()
        directory.mkdir()
        return self.prepare(list(objects.all), directory), directory

    def config(self, objects: Objects) -> Config:
        """It, read as --check reads it."""
        prepared, directory = self.prepared(objects)
        return load(
            (directory / "config.yaml").read_text(encoding="utf-8"),
            name="config.yaml",
            environ=prepared.environ,
            read_file=lambda path: Path(path).read_text(encoding="utf-8"),
        )

    def test_in_force(self) -> None:
        """What the Deployment sets wins: the gate, its size, and the names of its models."""
        model = self.config(overlay("example").objects).models["chat"]
        self.assertTrue(model.gated)
        self.assertEqual(model.policy.max_inflight, 8)
        homelab = self.config(overlay("homelab").objects)
        self.assertEqual(homelab.models["reasoning"].policy.max_queue_depth, 8)
        self.assertIn("sessions", homelab.adapters)

    def test_environment(self) -> None:
        """References are filled in, as Kubernetes does, with what comes before them alone."""
        objects = base()
        objects.container["env"][:0] = [
            {"name": "EARLY", "value": "$(LATER)"},
            {"name": "LATER", "value": "a"},
            {"name": "LAST", "value": "$(LATER)-$(EARLY)"},
            {"name": "EMPTY"},
            {"name": "ELSEWHERE", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}},
        ]
        environ = self.prepared(objects)[0].environ
        self.assertEqual((environ["EARLY"], environ["LAST"]), ("$(LATER)", "a-$(LATER)"))
        self.assertEqual(environ["EMPTY"], "")
        self.assertIn("made-up", environ["ELSEWHERE"])

    def test_secrets(self) -> None:
        """Every file that the configuration names, several of a line too; none of a comment's."""
        objects = base()
        data = objects.one("ConfigMap")["data"]
        data["config.yaml"] += (
            "adapters: {s3: {accessKey: {file: /etc/llm-gateway-secrets/s3.access}, "
            "secretKey: {file: /etc/llm-gateway-secrets/s3-secret}}}\n"
            "  # {file: /etc/llm-gateway-secrets/former}\n"
        )
        prepared, directory = self.prepared(objects)
        keys = ["peer-token", "s3-secret", "s3.access"]
        self.assertEqual(prepared.keys, [("llm-gateway", key) for key in keys])
        self.assertEqual(sorted(path.name for path in (directory / "secrets").iterdir()), keys)
        text = (directory / "config.yaml").read_text(encoding="utf-8")
        self.assertEqual(text.count(f"{directory}/secrets/s3"), 2)

    def test_half_an_overlay(self) -> None:
        """Nothing is assumed of what is not there."""

        def changed(**given: object) -> Objects:
            return base().changed(lambda o: o.container.update(given))

        for objects, why in (
            (Objects(()), "0 Deployments"),
            (changed(name="other"), "no container gateway"),
            (changed(env=[]), "GATEWAY_CONFIG is ., which no ConfigMap"),
            (changed(volumeMounts=None), "which no ConfigMap of the overlay's holds"),
            (changed(volumeMounts=[{}]), "is no list of items with a name"),
            (changed(envFrom=[{"configMapRef": {"name": "a"}}]), "envFrom"),
            (base().changed(lambda o: o.one("ConfigMap").pop("data")), "which no ConfigMap"),
        ):
            fault = self.assertRaises(ValueError, self.prepared, objects)
            self.assertIn(why, str(fault))
