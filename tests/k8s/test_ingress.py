"""Each way to break the Ingress is noticed."""

from __future__ import annotations

from typing import Any

from tests.k8s import ingress
from tests.k8s.breaking import BreakingTestCase, annotate, put, variable
from tests.k8s.objects import NAME, TOP, Objects, base
from tests.test_docs import rows

_PREFIX = "nginx.ingress.kubernetes.io/"


def of(objects: Objects) -> Any:
    """The Ingress, to be changed."""
    return objects.one("Ingress")


def path(objects: Objects) -> Any:
    """Its first path, to be changed."""
    return of(objects)["spec"]["rules"][0]["http"]["paths"][0]


class BrokenTests(BreakingTestCase):
    """Each policy notices what it is for."""

    def test_paths(self) -> None:
        """A path too many or too few; the operator's port."""
        policy = ingress.published
        self.assertFault(policy, lambda o: path(o).update(path="/"), "it publishes ['/']")
        self.assertFault(policy, lambda o: path(o).update(pathType="Exact"), "/v1 is no prefix")
        backend = {"name": f"{NAME}-admin", "port": {"name": "admin"}}
        self.assertFault(
            policy,
            lambda o: path(o)["backend"].update(service=backend),
            "publishes llm-gateway-admin",
        )
        self.assertFault(
            policy,
            lambda o: path(o)["backend"]["service"].update(port={"number": 8080}),
            "there is no port",
        )

    def test_everything_else(self) -> None:
        """A backend for what no path takes."""
        for name in (NAME, f"{NAME}-admin"):
            backend = {"service": {"name": name, "port": {"number": 9090}}}
            self.assertFault(
                ingress.published,
                put(lambda o: of(o)["spec"], defaultBackend=backend),
                f"it publishes whatever nobody else does: {backend}",
            )

    def test_controller(self) -> None:
        """One that does not read these annotations, or none that is named."""
        policy = ingress.published
        self.assertFault(
            policy, lambda o: of(o)["spec"].update(ingressClassName="traefik"), "is traefik"
        )
        self.assertFault(policy, lambda o: of(o)["spec"].pop("ingressClassName"), "is None")

    def test_encrypted(self) -> None:
        """No TLS, and TLS for another host."""
        policy = ingress.published
        self.assertFault(policy, lambda o: of(o)["spec"].pop("tls"), "it has TLS for []")
        self.assertFault(
            policy,
            lambda o: of(o)["spec"]["rules"][0].update(host="api.example.com"),
            "TLS for ['llm.example.com'], and publishes ['api.example.com']",
        )

    def test_impatient(self) -> None:
        """Less time than requests are parked, and than a service may pause."""
        policy = ingress.streams
        self.assertFault(policy, annotate("proxy-read-timeout", "1440"), "not above 1440 s")
        self.assertFault(
            policy,
            lambda o: variable(o, "ADMISSION_MAX_PARK_SECONDS").update(value="600"),
            "not above 1500 s",
        )
        self.assertFault(policy, annotate("proxy-send-timeout", "0"), "not above 0 s")

    def test_holds_back(self) -> None:
        """Buffers, and bodies that it refuses."""
        policy = ingress.streams
        self.assertFault(policy, annotate("proxy-buffering", "on"), "proxy-buffering is on")
        self.assertFault(policy, annotate("proxy-http-version", "1.0"), "proxy-http-version is 1.0")
        self.assertFault(policy, annotate("proxy-body-size", "1000k"), "below maxBodyBytes")

    def test_next_gateway(self) -> None:
        """None is tried when a node is gone; one more, when another has the request already."""
        policy = ingress.streams
        self.assertFault(policy, annotate("proxy-next-upstream", "error"), "node is gone")
        self.assertFault(policy, annotate("proxy-next-upstream", "off"), "node is gone")
        for word in ("non_idempotent", "http_502", "http_429"):
            self.assertFault(
                policy, annotate("proxy-next-upstream", f"error timeout {word}"), f"{word}: what"
            )
        for tries in ("0", "1", "4"):
            self.assertFault(policy, annotate("proxy-next-upstream-tries", tries), "not every one")

    def test_misspelt(self) -> None:
        """nginx ignores what it does not know: one annotation too many, and one too few."""
        policy = ingress.streams
        for name in sorted(ingress.NEEDED):

            def misspell(objects: Objects, name: str = name) -> None:
                given = of(objects)["metadata"]["annotations"]
                given[f"{_PREFIX}{name}s"] = given.pop(f"{_PREFIX}{name}")

            self.assertFault(policy, misspell, f"no annotation {name}s is known")
            self.assertFault(policy, misspell, f"{name} is not set")

    def test_documented(self) -> None:
        """The page has every annotation, with its value."""
        page = (TOP / "docs" / "kubernetes.md").read_text(encoding="utf-8")
        table = {row[0].strip("`"): row[1].strip("`") for row in rows(page) if len(row) == 3}
        given = ingress.nginx_annotations(of(base()))
        self.assertEqual({name: table.get(name) for name in given}, given)
