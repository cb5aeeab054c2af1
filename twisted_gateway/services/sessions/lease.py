"""A Lease: of all replicas one holds it at a time (coordination.k8s.io/v1).

As with Kubernetes' own leader election, no clock is compared with another's: a Lease has expired
when the replica itself has seen it unchanged for as long as it lasts. That is counted in looks, so
that a clock that is set, the replica's own, makes no Lease expire. What two replicas write at once
is told apart by the resource version, so that one of them loses.

See https://kubernetes.io/docs/concepts/architecture/leases/
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from twisted.internet.interfaces import IReactorTime

from twisted_gateway.services.sessions.kube import LEASES, Kube
from twisted_gateway.services.sessions.kube_answers import Tree
from twisted_gateway.services.sessions.names import LEASE

MOST_LEASE_SECONDS = 3600.0
"""How long a Lease is believed to last, at most: a holder that is gone renews it no more."""


@dataclass(slots=True)
class LeaseSight:
    """What a replica has seen of the Lease.

    Attributes:
        version: its resource version at the last look; None before the first one.
        unchanged_looks: how many looks have found it so since that was seen first.
    """

    version: str | None = None
    unchanged_looks: int = 0


class Lease:
    """One replica's claim to the Lease, which lasts for two intervals from its last renewal.

    Args:
        kube: the API.
        clock: for the time of day that is written into it, for people to read.
        holder: what this replica is called, unlike any other.
        interval_seconds: the time between two calls of `hold`.
        namespace: where it is.
        sight: what has been seen of it at calls with the same interval.
    """

    def __init__(
        self,
        kube: Kube,
        clock: IReactorTime,
        *,
        holder: str,
        interval_seconds: float,
        namespace: str,
        sight: LeaseSight,
    ) -> None:
        """Take what the class documents."""
        self._kube = kube
        self._clock = clock
        self._holder = holder
        self._interval_seconds = interval_seconds
        # It outlasts a renewal that comes late, and not the loss of its holder by much.
        self._seconds = 2 * interval_seconds
        self._namespace = namespace
        self._sight = sight

    async def hold(self) -> bool:
        """Take the Lease or renew it, once an interval; False while another replica holds it.

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
        sight = self._sight
        if version != sight.version:
            sight.version = version
            sight.unchanged_looks = 0
        else:
            sight.unchanged_looks += 1
        spec = _spec(found)
        holder = spec.get("holderIdentity")
        if not holder or holder == self._holder:
            return True
        lasts = spec.get("leaseDurationSeconds")
        # Its holder says how long it lasts: that of another configuration may differ from ours.
        seconds = lasts if isinstance(lasts, int) and lasts > 0 else self._seconds
        most = max(self._seconds, MOST_LEASE_SECONDS)
        return sight.unchanged_looks * self._interval_seconds >= min(seconds, most)

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
