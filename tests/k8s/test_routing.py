"""Each way to break probes, ports or Services is noticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.k8s import routing
from tests.k8s.breaking import BreakingTestCase, configure, container, variable
from tests.k8s.objects import NAME, Objects


class BrokenTests(BreakingTestCase):
    """Each policy notices what it is for."""

    def test_probes(self) -> None:
        """A path or port where there is nothing, and operations on the public port."""
        policy = routing.probes

        def probe(**where: str) -> Callable[[Objects], object]:
            return lambda o: container(o)["readinessProbe"]["httpGet"].update(where)

        self.assertFault(policy, probe(path="/ready"), "readinessProbe: /ready on admin is 404")
        self.assertFault(policy, probe(port="http"), "readinessProbe: /health/ready on http is 404")
        self.assertFault(policy, probe(port="web"), "readinessProbe: /health/ready on web is 0")
        self.assertFault(policy, probe(path="/health/live"), "answers another question")
        self.assertFault(policy, lambda o: container(o).pop("livenessProbe"), "no livenessProbe")
        self.assertFault(
            policy,
            configure("adminListen: [tcp:9090]", "adminListen: []"),
            "/metrics on 8080 is public",
        )

    def test_ports(self) -> None:
        """One place that says another number."""
        policy = routing.ports
        self.assertFault(
            policy, lambda o: container(o)["ports"][0].update(containerPort=8000), "it listens on"
        )
        self.assertFault(policy, configure("listen: tcp:8081", "listen: tcp:8082"), "it listens on")
        self.assertFault(
            policy, lambda o: variable(o, "GATEWAY_LISTEN").update(value="tcp:80"), "it listens on"
        )
        service = lambda o, **port: o.one("Service")["spec"]["ports"][0].update(port)  # noqa: E731
        self.assertFault(
            policy, lambda o: service(o, port=80), "Service llm-gateway: 80 leads to http"
        )
        self.assertFault(
            policy, lambda o: service(o, targetPort="admin", port=9090), "gives ['admin']"
        )

    def test_peers(self) -> None:
        """A Service that is not there, that hides who drains, or has another port."""
        policy = routing.peers
        headless = f"{NAME}-peers"
        self.assertFault(
            policy, configure("dns:llm-gateway-peers", "dns:gateways"), "no Service gateways"
        )
        self.assertFault(policy, configure("peers:8081", "peers:9090"), "no port peers 9090")
        self.assertFault(
            policy,
            lambda o: o.one("Service", headless)["spec"].pop("publishNotReadyAddresses"),
            "one by one",
        )
        self.assertFault(
            policy, lambda o: o.one("Service", headless)["spec"].pop("clusterIP"), "one by one"
        )

    def test_scraped(self) -> None:
        """A selector for all Services or none, another port or path, labels that are changed."""
        policy = routing.scraped

        def monitor(objects: Objects) -> Any:
            return objects.one("ServiceMonitor")["spec"]

        labels = {"app.kubernetes.io/name": NAME}
        self.assertFault(
            policy, lambda o: monitor(o).update(selector={"matchLabels": labels}), "takes 3"
        )
        self.assertFault(
            policy, lambda o: monitor(o)["selector"]["matchLabels"].update(a="b"), "takes 0"
        )
        self.assertFault(
            policy, lambda o: monitor(o)["endpoints"][0].update(port="http"), "of http is not"
        )
        self.assertFault(
            policy, lambda o: monitor(o)["endpoints"][0].update(path="/"), "/ of admin is not"
        )
        self.assertFault(
            policy, lambda o: monitor(o)["endpoints"][0].update(honorLabels=True), "own labels"
        )
        self.assertFault(policy, lambda o: monitor(o).update(jobLabel="job"), "no name")
