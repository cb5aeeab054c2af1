"""A Lease: of all replicas one holds it at a time (coordination.k8s.io/v1).

As with Kubernetes' own leader election, no clock is compared with another's: a Lease has expired
when the replica itself has seen it unchanged for as long as it lasts. What two replicas write at
once is told apart by the resource version, so that one of them loses.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from twisted.internet.interfaces import IReactorTime

from twisted_gateway.services.sessions.kube import LEASES, Kube, Tree
from twisted_gateway.services.sessions.names import LEASE


class Lease:
    """One replica's claim to the Lease.

    Args:
        kube: the API.
        clock: for the time.
        holder: what this replica is called, unlike any other.
        seconds: how long it lasts from its last renewal.
        namespace: where it is.
    """

    def __init__(
        self, kube: Kube, clock: IReactorTime, *, holder: str, seconds: float, namespace: str
    ) -> None:
        """Have seen none yet."""
        self._kube = kube
        self._clock = clock
        self._holder = holder
        self._seconds = seconds
        self._namespace = namespace
        self._version: str | None = None
        self._seen_at = 0.0

    async def hold(self) -> bool:
        """Take the Lease or renew it; False while another replica holds it.

        Cancelling drops the connection. Raises what `Kube` does.
        """
        found = await self._kube.get(LEASES, LEASE)
        if found is None:
            return await self._kube.create(LEASES, self._tree(None)) is not None
        if not self._may_take(found):
            return False
        return await self._kube.update(LEASES, self._tree(found)) is not None

    def _may_take(self, found: Tree) -> bool:
        version = str(found["metadata"].get("resourceVersion"))
        if version != self._version:
            self._version = version
            self._seen_at = self._clock.seconds()
        spec = _spec(found)
        holder = spec.get("holderIdentity")
        if not holder or holder == self._holder:
            return True
        lasts = spec.get("leaseDurationSeconds")
        # Its holder says how long it lasts: that of another configuration may differ from ours.
        seconds = lasts if isinstance(lasts, int) and lasts > 0 else self._seconds
        return self._clock.seconds() - self._seen_at >= seconds

    def _tree(self, found: Tree | None) -> Tree:
        before = {} if found is None else _spec(found)
        now = datetime.fromtimestamp(self._clock.seconds(), UTC)
        written = now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        same = before.get("holderIdentity") == self._holder
        transitions = before.get("leaseTransitions")
        count = transitions if isinstance(transitions, int) else 0
        metadata: Tree = {"name": LEASE, "namespace": self._namespace}
        if found is not None:
            metadata["resourceVersion"] = found["metadata"].get("resourceVersion")
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                "holderIdentity": self._holder,
                "leaseDurationSeconds": max(1, round(self._seconds)),
                "acquireTime": before.get("acquireTime", written) if same else written,
                "renewTime": written,
                "leaseTransitions": count if same or found is None else count + 1,
            },
        }


def _spec(tree: Tree) -> dict[str, Any]:
    spec = tree.get("spec")
    return spec if isinstance(spec, dict) else {}
