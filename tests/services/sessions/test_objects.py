from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.services.sessions.validation import check, check_applied
from tests.support import TestCase
from twisted_gateway.config.load import load
from twisted_gateway.config.sandbox import SessionsAdapter
from twisted_gateway.services.sessions import objects

MANIFEST = Path(__file__).with_name("sandbox.yaml")
DOCUMENT = Path(__file__).parents[3] / "docs" / "sandboxes.md"
MINIMAL = "adapters: {sessions: {namespace: n, image: i, requireAuth: false}}"


def adapter(text: str) -> SessionsAdapter:
    """The adapter of a configuration."""
    config = load(text, name="config.yaml", environ={}, read_file=lambda path: "")
    (found,) = config.adapters.values()
    assert isinstance(found, SessionsAdapter)
    return found


def documented() -> str:
    """The configuration that docs/sandboxes.md begins with."""
    return DOCUMENT.read_text().split("```yaml\n")[1].split("```")[0]


def made(adapter: SessionsAdapter) -> Iterator[dict[str, Any]]:
    """Everything that is made for a session, in order."""
    yield objects.claim(adapter, "s1")
    yield objects.policy(adapter)
    yield objects.pod(adapter, "s1")
    yield service(adapter)


def service(adapter: SessionsAdapter) -> dict[str, Any]:
    """The Service of a pod that Kubernetes has made."""
    pod = objects.pod(adapter, "s1")
    pod["metadata"]["uid"] = "uid-of-the-pod"
    return objects.service(adapter, "s1", pod)


class ObjectsTests(TestCase):
    """The objects of a sandbox, each as a whole."""

    maxDiff = None

    def test_whole(self) -> None:
        """They are those of sandbox.yaml, and nothing beyond."""
        text = documented().replace("    gateway:", "    imagePullSecret: registry\n    gateway:")
        expected = list(yaml.safe_load_all(MANIFEST.read_text()))
        for wanted, one in zip(expected, made(adapter(text)), strict=True):
            self.assertEqual(one, wanted)

    def test_taken(self) -> None:
        """Kubernetes takes them, whether much or little is configured."""
        for text in (documented(), MINIMAL):
            for one in made(adapter(text)):
                check(one)
            check_applied(objects.policy(adapter(text))["spec"])

    def test_peers(self) -> None:
        """Gateway and frontend are where the configuration says, by one peer each."""
        text = MINIMAL.replace(
            "image: i",
            "image: i, gateway: {namespace: g, labels: {a: b}, port: 81}, "
            "frontend: {namespace: f, labels: {c: d}}",
        )
        spec = objects.policy(adapter(text))["spec"]
        for peers, namespace, labels in (
            (spec["egress"][1]["to"], "g", {"a": "b"}),
            (spec["ingress"][0]["from"], "f", {"c": "d"}),
        ):
            selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
            expected = {"namespaceSelector": selector, "podSelector": {"matchLabels": labels}}
            self.assertEqual(peers, [expected])
        self.assertEqual(spec["egress"][1]["ports"], [{"protocol": "TCP", "port": 81}])

    def test_port(self) -> None:
        """A Service of a former configuration leads to where a pod of today's listens."""
        before, today = adapter(MINIMAL), adapter(MINIMAL.replace("image: i", "image: i, port: 81"))
        (container,) = objects.pod(today, "s1")["spec"]["containers"]
        (port,) = service(before)["spec"]["ports"]
        (listens,) = container["ports"]
        self.assertEqual((port["targetPort"], listens["containerPort"]), (listens["name"], 81))
        self.assertEqual(container["readinessProbe"]["tcpSocket"]["port"], listens["name"])
