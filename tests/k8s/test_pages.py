"""What the pages have people do with the manifests fits these."""

from __future__ import annotations

import re

import yaml

from tests.k8s.objects import K8S, NAME, TOP, base
from tests.k8s.overlays import overlay
from tests.support import TestCase
from twisted_gateway.config.load import load
from twisted_gateway.services.sessions.objects import labels


class PagesTests(TestCase):
    """docs/kubernetes.md, docs/migrating.md, and the words of an overlay."""

    def test_cut_over(self) -> None:
        """The Service has lost its old owner's mark before the new one syncs, which else fails."""
        application = (overlay("homelab").path / "application.yaml").read_text(encoding="utf-8")
        page = (TOP / "docs" / "migrating.md").read_text(encoding="utf-8")
        page = page.partition("### The predecessor's Argo CD")[2].partition("\n### ")[0]
        self.assertIn("FailOnSharedResource=true", application)
        words = (
            "Prune=false",
            "Take Service and Ingress out",
            "annotate service api-gateway argocd.argoproj.io/tracking-id-\n",
            "label service api-gateway app.kubernetes.io/instance-\n",
            "get service api-gateway -o yaml\n",
            "Uncomment `cut-over`",
        )
        steps = [page.index(text) for text in words]
        self.assertEqual(steps, sorted(steps))

    def test_both_protocols(self) -> None:
        """The endpoint for IPv6 is one where it is put, as it stands there, quotes and all."""
        page = (TOP / "docs" / "kubernetes.md").read_text(encoding="utf-8")
        (text,) = re.findall(r"`([^`]*interface=[^`]*)`", page)
        endpoint = r"tcp:8080:interface=\:\:"
        variable = yaml.safe_load(f"{{name: GATEWAY_LISTEN, value: {text}}}")
        self.assertEqual(variable["value"], endpoint)
        admin, peers = (text.replace("8080", port) for port in ("9090", "8081"))
        rest = f"models: {{a: {{upstream: 'http://a:80'}}}}\npeers: {{listen: {peers}, "
        rest += "token: a-token-of-sixteen-characters}\n"
        for listen, environ in (
            (f"listen: [{text}]\nadminListen: [{admin}]\n", {}),
            (f"listen:\n  - {text}\nadminListen:\n  - {admin}\n", {}),
            (f"adminListen: [{admin}]\n", {"GATEWAY_LISTEN": variable["value"]}),
        ):
            config = load(
                listen + rest, name="config.yaml", environ=environ, read_file=lambda path: ""
            )
            assert config.peers is not None
            self.assertEqual(config.listen, (endpoint,))
            self.assertEqual(config.admin_listen, (endpoint.replace("8080", "9090"),))
            self.assertEqual(config.peers.listen, endpoint.replace("8080", "8081"))

    def test_namespace_first(self) -> None:
        """Secrets are made in a namespace that is there by then."""
        head = K8S / "overlays" / "example" / "kustomization.yaml"
        for path in (TOP / "docs" / "kubernetes.md", head):
            text = path.read_text(encoding="utf-8")
            made = re.search(r"kubectl apply -f \S*namespace\.yaml", text)
            assert made is not None, path
            self.assertLess(made.start(), text.index("create secret"), path)

    def test_as_many_as_there_are(self) -> None:
        """Who takes the autoscaler leaves the number to another manager as it is."""
        page = (TOP / "docs" / "kubernetes.md").read_text(encoding="utf-8")
        (text,) = re.findall(r"--field-manager=replicas .*<<END\n +(\{.*\})\n +END\n", page)
        given = yaml.safe_load(text)
        deployment = base().one("Deployment")
        self.assertEqual(given["metadata"], {"name": NAME})
        for key in ("apiVersion", "kind"):
            self.assertEqual(given[key], deployment[key])
        self.assertEqual(given["spec"], {"replicas": deployment["spec"]["replicas"]})

    def test_sandbox(self) -> None:
        """The homelab's cluster.yaml knows a sandbox by a label that the gateway gives it."""
        (sandbox,) = (one for one in overlay("homelab").cluster().pods if one.name == "sandbox")
        self.assertLessEqual(sandbox.labels.items(), labels("s").items())
