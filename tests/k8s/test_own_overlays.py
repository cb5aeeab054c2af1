"""What somebody has copied of the example, as docs/kubernetes.md says."""

from __future__ import annotations

import re
import unittest
from pathlib import Path

import yaml

from tests.k8s import network, own, policies, test_job, test_network, test_overlays, test_reach
from tests.k8s.objects import OVERLAYS, TOP
from tests.k8s.overlays import Overlay, overlays, shipped
from tests.support import TestCase

# Those that look at every overlay, but for the one that breaks every line, which takes seconds.
OF_ALL = (
    test_job.JobTests("test_let_in"),
    test_network.SelectorTests("test_sound"),
    test_network.EnginesTests("test_sequences"),
    test_overlays.ConfigTests("test_sound"),
    test_reach.ReachTests("test_sound"),
    test_reach.CheckTests("test_as_the_gateway"),
    test_reach.CheckTests("test_unbound"),
    test_reach.CheckTests("test_cilium"),
)


def unmatched(of: Overlay) -> str:
    """What is said of an overlay's selectors and ports."""
    return "\n".join(network.unmatched(of.policies, of.cluster(), of.own))


class OwnOverlayTests(TestCase):
    """A copy with another name, namespace, model, host and label, and a further Secret's key."""

    def setUp(self) -> None:
        """Make `mine`."""
        super().setUp()
        self.mine = own.mine(Path(self.mktemp()))

    def again(self) -> Overlay:
        """It, as its files are now."""
        return Overlay(self.mine.path)

    def results(self) -> unittest.TestResult:
        """What the tests of all overlays say of it."""
        for module in (test_job, test_network, test_overlays, test_reach):
            self.patch(module, "overlays", lambda: [self.again()])
        result = unittest.TestResult()
        for one in OF_ALL:
            one.run(result)
        return result

    def test_sound(self) -> None:
        """It is found, and passes all tests that there are of overlays."""
        found = {each.name: each.namespace for each in overlays(self.mine.path.parent)}
        self.assertEqual(found, {"example": "llm-gateway", "homelab": "api", "mine": "inference"})
        self.assertEqual(self.mine.objects.environ["ADMISSION_OBSERVE_MODELS"], "assistant")
        result = self.results()
        self.assertEqual([*result.failures, *result.errors], [])
        self.assertEqual(result.testsRun, len(OF_ALL))

    def test_key_that_nobody_makes(self) -> None:
        """It is said where to name it; a Secret or SopsSecret among the resources has it."""
        path = self.mine.path / "cluster.yaml"
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace("engine-key, ", ""), encoding="utf-8")
        (said,) = policies.secrets(self.again().objects)
        self.assertIn("/etc/llm-gateway-secrets/engine-key, and nothing makes such a key", said)
        self.assertIn("name it in cluster.yaml", said)
        failures = self.results().failures
        self.assertIn("name it in cluster.yaml", "\n".join(text for _, text in failures))
        keys = {"engine-key": "encrypted"}
        secret = {"kind": "Secret", "metadata": {"name": "llm-gateway"}, "stringData": keys}
        template = {"name": "llm-gateway", "stringData": keys}
        sealed = {"kind": "SopsSecret", "spec": {"secretTemplates": [template]}}
        own.edit(
            self.mine.path,
            {
                "kustomization.yaml": (
                    ("  - namespace.yaml\n", "  - namespace.yaml\n  - made.yaml\n"),
                )
            },
        )
        for tree in (secret, sealed):
            (self.mine.path / "made.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
            self.assertEqual(list(policies.secrets(self.again().objects)), [])
            self.assertEqual(len(self.again().objects.config.models), 1)

    def test_broken(self) -> None:
        """A selector of its own that takes nobody is noticed; so is another namespace."""
        path = self.mine.path / "networkpolicy.yaml"
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace("kubernetes.io/metadata.name: apps", "name: nowhere"), "utf-8")
        self.assertIn("nowhere", unmatched(self.mine))
        path.write_text(text, encoding="utf-8")
        self.assertEqual(unmatched(self.again()), "")
        own.edit(
            self.mine.path,
            {"kustomization.yaml": (("namespace: inference", "namespace: llm"),)},
        )
        self.assertIn("is nobody", unmatched(self.again()))

    def test_without_a_namespace(self) -> None:
        """Objects that go wherever kubectl happens to be are no overlay."""
        path = self.mine.path / "kustomization.yaml"
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
        del tree["namespace"]
        path.write_text(yaml.safe_dump(tree), encoding="utf-8")
        fault = self.assertRaises(AssertionError, lambda: self.again().namespace)
        self.assertIn("mine gives its objects no namespace", str(fault))

    def test_first_image(self) -> None:
        """The command of docs/pipeline.md puts an image into any overlay, and no more."""
        page = (TOP / "docs" / "pipeline.md").read_text(encoding="utf-8")
        (script,) = re.findall(r"(?m)^ +sed -i '(.+)' kustomization.yaml$", page)
        commands = [one.split("#") for one in script.split("; ")]
        self.assertEqual([(one[0], one[3]) for one in commands], [("s", "")] * 2)
        for each in (*shipped(), self.mine):
            text = (each.path / "kustomization.yaml").read_text(encoding="utf-8")
            for _, old, new, _ in commands:
                text = re.sub(old, new, text)
            (image,) = each.kustomization["images"]
            wanted = {**image, "newName": "NAME", "newTag": "COMMIT"}
            self.assertEqual(yaml.safe_load(text), {**each.kustomization, "images": [wanted]})

    def test_says_nothing_of_where_it_is(self) -> None:
        """No file of the example names its directory: a copy would speak of the example."""
        for path in sorted((OVERLAYS / "example").iterdir()):
            self.assertNotIn("overlays/", path.read_text(encoding="utf-8"), path.name)
