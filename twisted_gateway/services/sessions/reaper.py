"""The reaper: removes the pods of sandboxes that nobody uses any more, in one replica at a time.

    a pod that has ended                              at once
    a pod on a workspace that is being removed        at once: a DELETE that has come half way
    a pod that starts, or runs and is not Ready,      when it has been so for `STARTING_SECONDS`:
    or is Ready and has no Service                    nobody waits any more, and it would stay

Where what one of these needs to know cannot be had, for a Role lacks something or there are too
many objects, the others go on; so they do where one pod cannot be deleted. A pod's Service goes
with it, for the pod owns it (objects.py). Workspaces stay: a session is resumed with them. What
another manager's label is on stays too. Time is counted in looks, by what this process has seen
itself: no other clock is believed, and a clock that is set ends nobody's time.

A look removes nothing any more when the next one is near, which renews the Lease and goes on: an
API that hangs has it last for no longer than that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_gateway.config.sandbox import SessionsAdapter
from twisted_gateway.services.adapter import BadAnswer
from twisted_gateway.services.sessions.kube import ANSWER_SECONDS, CLAIMS, PODS, SERVICES, Kube
from twisted_gateway.services.sessions.kube_answers import KubeRefusal, TooLong, Tree
from twisted_gateway.services.sessions.lease import Lease, LeaseSight
from twisted_gateway.services.sessions.names import POD_PREFIX, claim_name
from twisted_gateway.services.sessions.objects import (
    SELECTOR,
    is_leaving,
    is_ours,
    manager_of_another,
    pods_of,
)
from twisted_gateway.services.sessions.pods import Stage, readiness, seen, stage
from twisted_gateway.telemetry.repeats import Repeats
from twisted_gateway.upstream.errors import ConnectFailed, UpstreamError

FIRST_SECONDS = 10.0
"""When the first look of a process is, at most: one that is restarted often looks all the same."""
STARTING_SECONDS = 900.0
"""How long a sandbox may take to become Ready, or to become it again, before it is given up."""

MOST_FAILING = 10_000
"""How many pods are remembered whose removal has failed: as many as are listed."""

_RULES = {
    CLAIMS: ("PersistentVolumeClaims", "pods on a workspace that is being removed"),
    SERVICES: ("Services", "pods that are Ready and have none"),
}
"""What cannot be listed, and what is not removed then, for the log."""


@dataclass(slots=True)
class Sight:
    """What a reaper has seen, which one of a later configuration goes on from.

    Attributes:
        due: when the next look is, on the clock; None before the first one.
        lease: of the Lease.
        starting: of pods that start, how many looks ago each was seen first.
        failing: uids of pods whose removal has failed.
    """

    due: float | None = None
    lease: LeaseSight = field(default_factory=LeaseSight)
    starting: dict[str, int] = field(default_factory=dict)
    failing: dict[str, None] = field(default_factory=dict)


class Reaper:
    """Looks every `reaperIntervalMinutes`.

    Args:
        adapter: says where, and how often.
        kube: the API.
        clock: for the timer.
        replica: what this process is called, unlike any other, and the same over a reload.
        sights: what has been seen, by adapter, API and interval; outlives a reload, which must end
            no count, and put no look off. None: nothing does.
    """

    _log = Logger()

    def __init__(
        self,
        adapter: SessionsAdapter,
        kube: Kube,
        clock: IReactorTime,
        replica: str,
        sights: MutableMapping[str, Sight] | None = None,
    ) -> None:
        """Take what the class documents; nothing happens before `start`."""
        self._kube = kube
        self._clock = clock
        self._interval_seconds = adapter.reaper_interval_minutes * 60
        # The last request of a look is to have ended when the next one begins.
        self._look_seconds = max(
            self._interval_seconds / 2, self._interval_seconds - 2 * ANSWER_SECONDS
        )
        # Looks of another interval are none to count on with.
        key = f"{adapter.name} {adapter.server} {adapter.namespace} {self._interval_seconds}"
        self._sight = Sight() if sights is None else sights.setdefault(key, Sight())
        self._patience_looks = math.ceil(STARTING_SECONDS / self._interval_seconds)
        self._lease = Lease(
            kube,
            clock,
            holder=replica,
            interval_seconds=self._interval_seconds,
            namespace=adapter.namespace,
            sight=self._sight.lease,
        )
        self._repeats = Repeats(clock, interval_seconds=3600)
        # The kinds that cannot be listed, of which the log has been told.
        self._unlisted: set[str] = set()
        self._timer: IDelayedCall | None = None
        self._look: Deferred[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        now = self._clock.seconds()
        if self._sight.due is None:
            seconds = min(FIRST_SECONDS, self._interval_seconds)
        else:
            # A gateway that is reloaded all the time looks when it would have looked, and not more
            # often, for looks are counted; nor much later when its clock has been set.
            seconds = max(0.0, min(self._sight.due - now, self._interval_seconds))
        self._sight.due = now + seconds
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
        self._sight.due = self._clock.seconds() + self._interval_seconds
        if self._look is None:
            look = Deferred.fromCoroutine(self._hold_and_reap())
            if not look.called:
                self._look = look
            _ = look.addBoth(self._looked)

    async def _hold_and_reap(self) -> None:
        until = self._clock.seconds() + self._look_seconds
        if await self._lease.hold():
            await self._reap(until)
        else:
            self._sight.starting = {}

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

    async def _reap(self, until: float) -> None:
        pods: dict[str, _Pod] = {}
        try:
            await self._collect(pods)
        except (KubeRefusal, UpstreamError):
            # For those that have ended nothing else needs to be known, not even all the others.
            await self._remove_all(_ended(pods), until)
            raise
        self._sight.failing = {uid: None for uid in self._sight.failing if uid in pods}
        ended = _ended(pods)
        # Those that fail come behind all others: they may take all the time there is.
        failing = [pod for pod in ended if pod.uid in self._sight.failing]
        await self._remove_all([pod for pod in ended if pod.uid not in self._sight.failing], until)
        if self._clock.seconds() >= until:
            # This look must not outlast its interval: what is counted waits for one with more time.
            if len(failing) == len(ended):
                await self._remove_all(failing, until)
            return
        # After the pods: what a pod is seen to lack was not there when it was looked at either, for
        # whoever removes a session begins with its claim, and a Service goes behind its pod.
        try:
            going = await self._listed(CLAIMS, _leaving) or set()
            # A Service without the label is asked for by its name: see `_is_served`.
            served = await self._listed(SERVICES, pods_of, SELECTOR)
        except UpstreamError:
            await self._remove_all(failing, until)
            raise
        # All are counted before any is removed, which may break off.
        before, self._sight.starting = self._sight.starting, {}
        stuck = {
            one.uid for one in pods.values() if one.lacks(served) and self._is_stuck(one, before)
        }
        useless: list[_Pod] = []
        for pod in pods.values():
            pod.is_on_going_claim = pod.is_ours and pod.claim in going
            waits = pod.stage in (Stage.STARTING, Stage.READY)
            if pod.uid in stuck or (waits and pod.is_on_going_claim):
                useless.append(pod)
        await self._remove_all(useless + failing, until)

    async def _collect(self, pods: dict[str, _Pod]) -> None:
        """Collect the pods, as far as they can be listed.

        Args:
            pods: gets them, by uid: a list that is begun anew half way has some of them twice.

        Raises:
            KubeRefusal, UpstreamError: that is not all of them.
        """
        async for tree in self._kube.list(PODS):
            if tree["metadata"]["name"].startswith(POD_PREFIX):
                pod = _Pod(tree)
                pods[pod.uid] = pod

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
        except (KubeRefusal, BadAnswer) as fault:
            if kind not in self._unlisted:
                self._unlisted.add(kind)
                self._log.warn(
                    "{what} {cannot} be listed, so {rule} stay: {why}",
                    what=what,
                    cannot=_why_not(fault),
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
        looks = self._sight.starting[pod.key] = before.get(pod.key, -1) + 1
        return looks >= self._patience_looks

    async def _remove_all(self, pods: Iterable[_Pod], until: float) -> None:
        """Remove pods, one after the other, for as long as there is time; last those that fail.

        Raises:
            ConnectFailed: the API cannot be reached.
        """
        turns = {uid: turn for turn, uid in enumerate(self._sight.failing, 1)}
        for place, pod in enumerate(sorted(pods, key=lambda pod: turns.get(pod.uid, 0))):
            # One at least: where all the time went by with looking, nothing would ever go.
            if place and self._clock.seconds() >= until:
                self._repeats.say(
                    "late",
                    self._log.warn,
                    "the Kubernetes API is slow: not all sandboxes that have ended are removed in "
                    "one look, and the next one goes on",
                )
                return
            await self._remove(pod)

    async def _remove(self, pod: _Pod) -> None:
        """Remove a pod, if it is still as it was seen.

        One that cannot be removed keeps none of the others: a webhook of somebody's may fail for
        that one alone.

        Raises:
            ConnectFailed: the API cannot be reached.
        """
        try:
            lacks_service = pod.stage is Stage.READY and not pod.is_on_going_claim
            if lacks_service and await self._is_served(pod):
                return
            # That very one: by now somebody may have put another in its place. And as it was seen,
            # where it may become Ready in between, and be given to somebody.
            version = pod.version if pod.stage is Stage.STARTING else None
            removed = await self._kube.delete(PODS, pod.name, pod.uid, version)
        except ConnectFailed:
            raise
        except (KubeRefusal, UpstreamError) as fault:
            # Behind all others that fail: their number may take more than a look's time.
            self._sight.failing.pop(pod.uid, None)
            self._sight.failing[pod.uid] = None
            if len(self._sight.failing) > MOST_FAILING:
                del self._sight.failing[next(iter(self._sight.failing))]
            self._repeats.say(
                # Not by its name: where a webhook is down they may be thousands.
                f"pod {type(fault).__name__}",
                self._log.warn,
                "the pod {name} is not removed: {why}",
                name=pod.name,
                why=str(fault),
            )
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


def _ended(pods: Mapping[str, _Pod]) -> list[_Pod]:
    """Give those that have ended, and that no other manager's label is on: it may want them."""
    return [pod for pod in pods.values() if pod.stage is Stage.ENDED and not pod.is_anothers]


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
        self.is_anothers = manager_of_another(pod) is not None
        self.is_on_going_claim = False
        self.key = f"{readiness(pod)} {self.stage.name}"

    def lacks(self, served: set[str] | None) -> bool:
        """Whether it is one of ours that nobody can use as it is now.

        Args:
            served: uids and names of the pods that have a Service; None: nobody knows.
        """
        if self.stage is Stage.READY:
            return self.is_ours and served is not None and served.isdisjoint((self.uid, self.name))
        return self.is_ours and self.stage is Stage.STARTING


def _why_not(fault: KubeRefusal | BadAnswer) -> str:
    if isinstance(fault, KubeRefusal):
        return "may not"
    return "are too many to" if isinstance(fault, TooLong) else "cannot"
