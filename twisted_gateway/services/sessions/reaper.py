"""The reaper: removes the pods of sandboxes that nobody uses any more, in one replica at a time.

    a pod that has ended                              at once
    a pod on a workspace that is being removed        at once: a DELETE that has come half way
    a pod that starts, or runs and is not Ready,      when it has been so for `STARTING_SECONDS`:
    or is Ready and has no Service                    nobody waits any more, and it would stay

Where what one of these needs to know cannot be had, for a Role lacks something or there are too
many objects, the others go on; so they do where one pod cannot be deleted. A pod's Service goes
with it, for the pod owns it (objects.py). Workspaces stay: a session is resumed with them. Time is
counted in looks, by what this process has seen itself: no other clock is believed, and a clock that
is set ends nobody's time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, MutableMapping

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_gateway.config.sandbox import SessionsAdapter
from twisted_gateway.services.sessions.kube import CLAIMS, PODS, SERVICES, Kube
from twisted_gateway.services.sessions.kube_answers import KubeRefusal, TooLong, Tree
from twisted_gateway.services.sessions.lease import Lease
from twisted_gateway.services.sessions.names import POD_PREFIX, claim_name
from twisted_gateway.services.sessions.objects import SELECTOR, is_leaving, is_ours, pods_of
from twisted_gateway.services.sessions.pods import Stage, readiness, seen, stage
from twisted_gateway.telemetry.repeats import Repeats
from twisted_gateway.upstream.errors import ConnectFailed, UpstreamError

FIRST_SECONDS = 10.0
"""When the first look is, at most: a gateway that is restarted often looks all the same."""
STARTING_SECONDS = 900.0
"""How long a sandbox may take to become Ready, or to become it again, before it is given up."""


_RULES = {
    CLAIMS: ("PersistentVolumeClaims", "pods on a workspace that is being removed"),
    SERVICES: ("Services", "pods that are Ready and have none"),
}
"""What cannot be listed, and what is not removed then, for the log."""


class Reaper:
    """Looks every `reaperIntervalMinutes`.

    Args:
        adapter: says where, and how often.
        kube: the API.
        clock: for the timer.
        replica: what this process is called, unlike any other, and the same over a reload.
        looks: when the next look is due, by API and namespace; outlives a reload, which must not
            put it off for ever. None: nothing does.
    """

    _log = Logger()

    def __init__(
        self,
        adapter: SessionsAdapter,
        kube: Kube,
        clock: IReactorTime,
        replica: str,
        looks: MutableMapping[str, float] | None = None,
    ) -> None:
        """Take what the class documents; nothing happens before `start`."""
        self._kube = kube
        self._clock = clock
        self._looks = {} if looks is None else looks
        self._place = f"{adapter.server} {adapter.namespace}"
        self._interval_seconds = adapter.reaper_interval_minutes * 60
        self._patience_looks = math.ceil(STARTING_SECONDS / self._interval_seconds)
        self._lease = Lease(
            kube,
            clock,
            holder=replica,
            interval_seconds=self._interval_seconds,
            namespace=adapter.namespace,
        )
        self._repeats = Repeats(clock, interval_seconds=3600)
        # The kinds that cannot be listed, of which the log has been told.
        self._unlisted: set[str] = set()
        # Of pods that start: how many looks ago each was seen first.
        self._starting: dict[str, int] = {}
        self._timer: IDelayedCall | None = None
        self._look: Deferred[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        now = self._clock.seconds()
        seconds = min(FIRST_SECONDS, self._interval_seconds)
        # A gateway that is reloaded all the time looks when it would have looked.
        seconds = max(0.0, min(seconds, self._looks.get(self._place, math.inf) - now))
        self._looks[self._place] = now + seconds
        self._timer = self._clock.callLater(seconds, self._tick)

    def stop(self) -> None:
        """Look no more; a look under way is given up."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        if self._look is not None:
            self._look.cancel()

    def _tick(self) -> None:
        self._timer = self._clock.callLater(self._interval_seconds, self._tick)
        self._looks[self._place] = self._clock.seconds() + self._interval_seconds
        if self._look is None:
            look = Deferred.fromCoroutine(self._hold_and_reap())
            if not look.called:
                self._look = look
            _ = look.addBoth(self._looked)

    async def _hold_and_reap(self) -> None:
        if await self._lease.hold():
            await self._reap()
        else:
            self._starting = {}

    def _looked(self, result: Failure | None) -> None:
        """A look has ended; whatever came of it, there is a next one."""
        self._look = None
        if result is None or result.check(CancelledError):
            return
        if result.check(KubeRefusal, UpstreamError):
            self._complain(result.value)
        else:
            self._log.failure("looking for sandboxes that have ended failed", failure=result)

    def _complain(self, fault: object) -> None:
        self._repeats.say(
            type(fault).__name__,
            self._log.warn,
            "sandboxes that have ended are not removed: {why}",
            why=str(fault),
        )

    async def _reap(self) -> None:
        pods, fault = await self._pods()
        for pod in pods:
            if pod.stage is Stage.ENDED:
                await self._remove(pod)
        if fault is not None:
            raise fault
        # After the pods: what a pod is seen to lack was not there when it was looked at either, for
        # whoever removes a session begins with its claim, and a Service goes behind its pod.
        going = await self._listed(CLAIMS, _leaving) or set()
        # A Service without the label is asked for by its name: see `_is_served`.
        served = await self._listed(SERVICES, pods_of, SELECTOR)
        # All are counted before any is removed, which may break off.
        before, self._starting = self._starting, {}
        stuck = {one.uid for one in pods if one.lacks(served) and self._is_stuck(one, before)}
        for pod in pods:
            if pod.is_ours and pod.stage in (Stage.STARTING, Stage.READY) and pod.claim in going:
                await self._remove(pod, on_going_claim=True)
            elif pod.uid in stuck:
                await self._remove(pod)

    async def _pods(self) -> tuple[list[_Pod], KubeRefusal | UpstreamError | None]:
        """Collect the pods, as far as they can be listed, and say why if that is not all of them.

        For one that has ended nothing else needs to be known.
        """
        # By uid: a list that is begun anew half way has some of them twice.
        pods: dict[str, _Pod] = {}
        try:
            async for tree in self._kube.list(PODS):
                if tree["metadata"]["name"].startswith(POD_PREFIX):
                    pod = _Pod(tree)
                    pods[pod.uid] = pod
        except (KubeRefusal, UpstreamError) as fault:
            return list(pods.values()), fault
        return list(pods.values()), None

    async def _listed(
        self, kind: str, names: Callable[[Tree], Iterable[str]], selector: str = ""
    ) -> set[str] | None:
        """Collect what is to be known of every object of a kind; None where that cannot be had.

        Raises:
            UpstreamError: the API does not answer.
        """
        what, rule = _RULES[kind]
        try:
            found = {name async for one in self._kube.list(kind, selector) for name in names(one)}
        except (KubeRefusal, TooLong) as fault:
            if kind not in self._unlisted:
                self._unlisted.add(kind)
                self._log.warn(
                    "{what} {cannot} be listed, so {rule} stay: {why}",
                    what=what,
                    cannot="may not" if isinstance(fault, KubeRefusal) else "are too many to",
                    rule=rule,
                    why=str(fault),
                )
            return None
        if kind in self._unlisted:
            self._unlisted.remove(kind)
            self._log.info("{what} may be listed again: {rule} are removed", what=what, rule=rule)
        return found

    def _is_stuck(self, pod: _Pod, before: dict[str, int]) -> bool:
        """Whether a pod of ours has been as it is for too long."""
        looks = self._starting[pod.key] = before.get(pod.key, -1) + 1
        return looks >= self._patience_looks

    async def _remove(self, pod: _Pod, *, on_going_claim: bool = False) -> None:
        """Remove a pod, if it is still as it was seen.

        One that cannot be removed keeps none of the others: a webhook of somebody's may fail for
        that one alone.

        Raises:
            ConnectFailed: the API cannot be reached.
        """
        try:
            if pod.stage is Stage.READY and not on_going_claim and await self._is_served(pod):
                return
            # That very one: by now somebody may have put another in its place. And as it was seen,
            # where it may become Ready in between, and be given to somebody.
            version = pod.version if pod.stage is Stage.STARTING else None
            removed = await self._kube.delete(PODS, pod.name, pod.uid, version)
        except ConnectFailed:
            raise
        except (KubeRefusal, UpstreamError) as fault:
            self._complain(fault)
            return
        if removed:
            self._log.info(
                "removed the pod {name} ({seen}); its workspace stays", name=pod.name, seen=pod.seen
            )

    async def _is_served(self, pod: _Pod) -> bool:
        """Whether a pod that lacked its Service has it.

        A POST may have made it since the look; or it bears none of the gateway's labels, for it was
        there before the gateway was.
        """
        return await self._kube.get(SERVICES, pod.name) is not None


def _leaving(claim: Tree) -> Iterable[str]:
    return [str(claim["metadata"].get("name"))] if is_leaving(claim) else []


class _Pod:
    """What is kept of a pod, for as long as a look takes: not the whole, for there may be many."""

    def __init__(self, pod: Tree) -> None:
        metadata = pod["metadata"]
        self.name = str(metadata["name"])
        self.uid = str(metadata["uid"])
        self.version = str(metadata.get("resourceVersion"))
        self.claim = claim_name(self.name.removeprefix(POD_PREFIX))
        self.stage = stage(pod)
        self.seen = seen(pod)
        self.is_ours = is_ours(pod)
        self.key = f"{readiness(pod)} {self.stage.name}"

    def lacks(self, served: set[str] | None) -> bool:
        """Whether it is one of ours that nobody can use as it is now.

        Args:
            served: uids and names of the pods that have a Service; None: nobody knows.
        """
        if self.stage is Stage.READY:
            return self.is_ours and served is not None and served.isdisjoint((self.uid, self.name))
        return self.is_ours and self.stage is Stage.STARTING
