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
    test_reach.ReachTests("test_configured"),
    test_reach.CheckTests("test_as_the_gateway"),
    test_reach.CheckTests("test_unbound"),
    test_reach.CheckTests("test_cilium"),
)

# What is new in config.yaml, in cluster.yaml, and in the policy of what the gateway may reach.
_NEW = """\
auth: {issuer: "https://auth.acme.test/", audience: a, jwksUrl: "https://auth.acme.test/jwks"}
routes:
  - {path: /store, upstream: "http://store.acme.test:9000"}
models:
  embed: {upstream: "http://embed.ml"}
"""
_OUTSIDE = """\
addresses:
  203.0.113.99: {names: [auth.acme.test], ports: [443], served: [443]}
  203.0.113.98: {names: [store.acme.test], ports: [9000], served: [9000]}
"""
_ANYBODY = "anybody: {names: [auth.acme.test],"
_ML = """\
  ml:
    anybody: {served: [8001]}
    pods:
      embed: {labels: {app: embed}, ports: [8001], services: {embed: {80: 8001}}, served: [8001]}
"""
_EGRESS = """
    - to:
        - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ml}}
      ports: [{port: 8001}]
    - to: [{ipBlock: {cidr: 203.0.113.99/32}}]
      ports: [{port: 443}]
    - to: [{ipBlock: {cidr: 203.0.113.98/32}}]
      ports: [{port: 9000}]
"""


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

    def test_what_nothing_can_reach(self) -> None:
        """An engine, a store and a provider that are new are said, until they are in both files."""
        path = self.mine.path
        own.edit(path, {"config.yaml": (("\nmodels:\n", f"\n{_NEW}"),)})
        said = "\n".join(text for _, text in self.results().failures)
        for host in ("embed.ml:80", "auth.acme.test:443", "store.acme.test:9000"):
            self.assertIn(f"{host} is not in cluster.yaml", said)
        text = (path / "cluster.yaml").read_text(encoding="utf-8")
        text = text.replace("\nnamespaces:\n", f"\n{_OUTSIDE}namespaces:\n{_ML}")
        (path / "cluster.yaml").write_text(text, encoding="utf-8")
        said = "\n".join(text for _, text in self.results().failures)
        self.assertIn("embed.ml:80 leads to port 8001 of ml/embed, and no NetworkPolicy", said)
        self.assertIn("auth.acme.test:443 leads to port 443 of 203.0.113.99, and no", said)
        self.assertNotIn("maxDiff", said)
        policy = path / "networkpolicy.yaml"
        *_, last = yaml.safe_load_all(policy.read_text(encoding="utf-8"))
        self.assertEqual(last["metadata"]["name"], "llm-gateway-services")
        before = policy.read_text(encoding="utf-8").rstrip()
        policy.write_text(before + _EGRESS, encoding="utf-8")
        result = self.results()
        self.assertEqual([*result.failures, *result.errors], [])
        # The same provider where nobody knows its addresses.
        text = text.replace("203.0.113.99: {names: [auth.acme.test], ports: [443],", _ANYBODY)
        (path / "cluster.yaml").write_text(text, encoding="utf-8")
        said = "\n".join(text for _, text in self.results().failures)
        self.assertIn("auth.acme.test:443 leads to port 443 of 203.0.113.1, and no", said)
        block = "ipBlock: {cidr: 203.0.113.99/32}"
        world = [f"ipBlock: {{cidr: {one}}}" for one in ("0.0.0.0/0", '"::/0"')]
        policy.write_text(before + _EGRESS.replace(block, "}, {".join(world)), encoding="utf-8")
        result = self.results()
        self.assertEqual([*result.failures, *result.errors], [])

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
