"""Each way to break probes, ports or Services is noticed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tests.k8s import routing
from tests.k8s.breaking import BreakingTestCase, configure, container, put, service, variable
from tests.k8s.objects import NAME, Objects, base


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
        for given, said in (
            ({"port": 80}, "Service llm-gateway: 80 leads to http"),
            ({"targetPort": "admin", "port": 9090}, "gives ['admin']"),
            ({"targetPort": "admin"}, "8080 leads to admin"),
            ({"protocol": "UDP"}, "8080 is for UDP"),
        ):
            self.assertFault(policy, put(lambda o: service(o)["ports"][0], **given), said)
        self.assertFault(
            policy, lambda o: container(o)["ports"][1].update(protocol="UDP"), "UDP of peers"
        )

    def test_exposed(self) -> None:
        """The operators' port for all the world, and clients for those who are not ready."""
        policy = routing.exposed
        for name in (f"{NAME}-admin", f"{NAME}-peers"):
            for given in (
                {"type": "LoadBalancer"},
                {"type": "NodePort"},
                {"externalIPs": ["192.0.2.1"]},
            ):
                self.assertFault(
                    policy,
                    put(partial(service, name=name), **given),
                    f"Service {name} has [",
                )
        self.assertFault(
            policy,
            put(service, publishNotReadyAddresses=True),
            f"Service {NAME} sends clients to gateways that are not ready",
        )
        # Clients of one's own may come by it.
        own = base().changed(put(service, type="LoadBalancer"))
        self.assertEqual(list(policy(own)), [])

    def test_peers(self) -> None:
        """A Service that is not there, that hides who drains, or has another port."""
        policy = routing.peers
        for given in ("Default", "None"):
            self.assertFault(
                policy,
                put(lambda o: o.pod["spec"], dnsPolicy=given),
                f"with dnsPolicy {given}",
            )
        own = {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["169.254.20.10"]}}
        self.assertEqual(list(policy(base().changed(lambda o: o.pod["spec"].update(own)))), [])
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
        for longest in ("30s", "1m", "1m30s", "15001ms"):
            self.assertFault(
                policy,
                put(lambda o: monitor(o)["endpoints"][0], scrapeTimeout=longest),
                f"may take {longest}, and the next comes after 15s",
            )
