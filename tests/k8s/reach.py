"""Who reaches whom by NetworkPolicies, held against who is to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.k8s.network import Cluster, Pod, Port, Ways, binds, mentioned, reached
from tests.k8s.objects import Objects, Tree


@dataclass(frozen=True)
class Reach:
    """The gateway and its check among the others of a cluster.

    Attributes:
        policies: of the gateway's namespace.
        cluster: with all that are to reach the gateway, or to be reached by it.
        gateway: one of its pods.
        check: a pod of the check's; a candidate's is one.
    """

    policies: list[Tree]
    cluster: Cluster
    gateway: Pod
    check: Pod

    def wrong(self) -> Iterator[str]:
        """Say of each who is let through and is not to be, or the other way round.

        The gateway's way to others is the check's as well: one that tries a candidate has to reach
        what the candidate will. To the gateway itself the check has the ways that it is to use.
        Nobody reaches the check; and the policies bind these two, and no other pod.
        """
        everywhere = mentioned(self.policies, self.cluster)
        in_gateway, in_check = self.ways("ingress", self.gateway), self.ways("ingress", self.check)
        out_gateway, out_check = self.ways("egress", self.gateway), self.ways("egress", self.check)
        for pod in (*self.cluster.pods, *self.cluster.strangers):
            name = f"{pod.namespace}/{pod.name}"
            yield from self._bound(pod)
            if (may := in_gateway.open(pod, everywhere)) != pod.use:
                yield f"{name} may use {_said(may)} and is to use {_said(pod.use)}"
            if may := in_check.open(pod, everywhere):
                yield f"{name} reaches the check at {_said(may)}"
            ports = everywhere if pod.ports is None else pod.ports
            if (may := out_gateway.open(pod, ports)) != pod.served:
                yield f"{name} is reached at {_said(may)} and is to be at {_said(pod.served)}"
            tried = self.check.use if pod == self.gateway else pod.served
            if (may := out_check.open(pod, ports)) != tried:
                yield f"{name} is reached by the check at {_said(may)}, not at {_said(tried)}"

    def closed(self, objects: Objects) -> Iterator[str]:
        """Say of each address that these have the gateway connect to where the way is not open."""
        for host, port in sorted(reached(objects)):
            found = self.cluster.behind(host, port)
            if found is None:
                yield (
                    f"{host}:{port} is not in cluster.yaml: a Service belongs to the `services` of "
                    "its pods, a host outside of the cluster to the `names` of an address"
                )
                continue
            pod, target = found
            where = f"{pod.namespace}/{pod.name}".lstrip("/")
            for who, one in (("gateway", self.gateway), ("check", self.check)):
                if not self.ways("egress", one).open(pod, frozenset([target])):
                    yield (
                        f"{host}:{port} leads to port {target.number} of {where}, and no "
                        f"NetworkPolicy lets the {who} there: see networkpolicy.yaml"
                    )

    def ways(self, direction: str, pod: Pod) -> Ways:
        """Those of the gateway or of the check, by these policies."""
        return Ways(self.policies, self.cluster, direction, pod)

    def _bound(self, pod: Pod) -> Iterator[str]:
        if pod not in (self.gateway, self.check):
            for policy in self.policies:
                if binds(policy, pod):
                    yield f"{policy['metadata']['name']} binds {pod.namespace}/{pod.name}"


def _said(ports: Iterable[Port]) -> list[str]:
    return [f"{port.number}/{port.protocol}" for port in sorted(ports)]
