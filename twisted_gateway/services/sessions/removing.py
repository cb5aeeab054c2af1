"""A session's sandbox on Kubernetes, removed, whatever is there of it.

    claim    first: whoever makes the session at the same time, be it in another replica, sees that
             it is removed (making.py)
    Service
    pod

That is a pass. Each of the three is tried whatever becomes of the others, and a pass in which
anything did not come to its end is followed by another one, from the claim on: a pod that has gone
while its claim could not be deleted may have been put back on it in between. So the pass that ends
it has found the claim gone or going before it looked for the pod.

What is deleted is what was seen, by its uid: a request that is carried out late, behind a proxy
that has given it up, meets nothing that was made since. What only happens to be called so, and
bears another manager's label, stays, and whoever asks is told.
"""

from __future__ import annotations

from twisted_gateway.services.adapter import BadAnswer, Refused
from twisted_gateway.services.sessions.kube import CLAIMS, PODS, SERVICES, Kube
from twisted_gateway.services.sessions.kube_answers import KubeRefusal
from twisted_gateway.services.sessions.names import claim_name, pod_name
from twisted_gateway.services.sessions.objects import is_leaving, manager_of_another
from twisted_gateway.services.sessions.patience import Patience
from twisted_gateway.upstream.errors import UpstreamError

MOST_PASSES = 5
"""How often a session is removed that is there again each time."""


class Removing:
    """One attempt to remove a session's sandbox.

    Args:
        kube: the API.
        patience: asks it.
        session: whose sandbox it is.
    """

    def __init__(self, kube: Kube, patience: Patience, session: str) -> None:
        """Have removed nothing yet."""
        self._kube = kube
        self._patience = patience
        self._parts = (
            (CLAIMS, claim_name(session)),
            (SERVICES, pod_name(session)),
            (PODS, pod_name(session)),
        )
        self._found = False

    async def run(self) -> bool:
        """Remove it; raises as `Cluster.remove` does.

        Returns:
            Whether there was anything.
        """
        for _ in range(MOST_PASSES):
            if await self._remove() and not await self._is_made_again():
                return self._found
        raise BadAnswer("the session is made again as often as it is removed")

    async def _remove(self) -> bool:
        """Go through it until the API has served all of a pass; whether it has gone with that."""
        tries = 0
        refusal: KubeRefusal | Refused | None = None
        fault: UpstreamError | None = None
        try:
            while True:
                tries += 1
                gone, refusal, fault = True, None, None
                for kind, name in self._parts:
                    try:
                        gone = await self._remove_one(kind, name) and gone
                    except (KubeRefusal, Refused) as one:
                        refusal = refusal or one
                    except UpstreamError as one:
                        fault = fault or one
                if fault is None:
                    break
                await self._patience.bear(fault, tries)
            if refusal is not None:
                raise refusal
            return gone
        finally:
            # Either has this frame in its traceback, and must not be held by it in turn.
            del refusal, fault

    async def _remove_one(self, kind: str, name: str) -> bool:
        """Remove what is there by a name; False where it was another one by then, or none.

        Raises:
            KubeRefusal, UpstreamError: it could not be removed.
            Refused: it is somebody else's.
        """
        tree = await self._patience.once(lambda: self._kube.get(kind, name))
        if tree is None:
            return True
        if (manager := manager_of_another(tree)) is not None:
            what = kind.rpartition("/")[2]
            words = f"{what} {name} is managed by {manager}, and is not removed"
            raise Refused(409, words)
        self._found = True
        if is_leaving(tree):
            return True
        uid = str(tree["metadata"]["uid"])
        return await self._patience.once(lambda: self._kube.delete(kind, name, uid))

    async def _is_made_again(self) -> bool:
        """Whether a claim has come in between: its maker may have seen nothing of all this."""
        kind, name = self._parts[0]
        claim = await self._patience.ask(lambda: self._kube.get(kind, name))
        return claim is not None and not is_leaving(claim)
