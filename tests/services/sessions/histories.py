"""Histories of one session, of chance: replicas, clients and a cluster, and whatever goes wrong.

Everything takes its time here, on a clock: requests and answers, the scheduler, the kubelet, the
garbage collector, the finalizer of claims. Pods are lost, and requests refused, broken off, or
carried out without an answer. What must hold all the same is in `wrong`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from twisted.internet.defer import Deferred
from twisted.internet.protocol import Protocol
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http_headers import Headers

from tests.services.sessions.apiserver import (
    TIMED_OUT,
    UNAVAILABLE,
    ApiServer,
    Reply,
    Request,
    leaving,
)
from tests.services.sessions.cluster import ENDED, Tree, Watch
from tests.services.sessions.stack import PLAIN
from twisted_gateway.config.load import load
from twisted_gateway.config.sandbox import SessionsAdapter
from twisted_gateway.services.adapter import Refused
from twisted_gateway.services.sessions.attempt import Attempt, Attempts, Late, Superseded, Wish
from twisted_gateway.services.sessions.chores import Chores
from twisted_gateway.services.sessions.cluster import Cluster
from twisted_gateway.services.sessions.kube import Kube
from twisted_gateway.services.sessions.kube_answers import KubeRefusal
from twisted_gateway.services.sessions.pods import Stage, stage
from twisted_gateway.services.sessions.provisioner import Provisioner
from twisted_gateway.services.sessions.reaper import Reaper
from twisted_gateway.upstream.errors import Disconnected, UpstreamError

POD = ("pods", "pi-session-s1")
CLAIM = ("persistentvolumeclaims", "workspace-session-s1")
SERVICE = ("services", "pi-session-s1")
REPLICAS = 3
SECONDS = 30.0
"""How much time an attempt has."""
TROUBLES = ("refused early", "refused late", "cut early", "cut late", "lost early", "lost late")
EXPECTED = (Late, Superseded, KubeRefusal, Refused, UpstreamError)


def _adapter() -> SessionsAdapter:
    config = load(PLAIN, name="config", environ={}, read_file=lambda _: "")
    (adapter,) = config.adapters.values()
    assert isinstance(adapter, SessionsAdapter)
    return adapter


@dataclass
class Asked:
    """What a client wants: `told` is its answer, None while there is none."""

    wish: Wish
    since: float
    told: str | None = None


class History:
    """One history.

    Attributes:
        asked: what clients have wanted, oldest first.
        wrong: what must not have happened.

    Args:
        seed: says all of it.
        troubled: how many of the requests meet with trouble, from 0 to 1.
    """

    def __init__(self, seed: int, troubled: float) -> None:
        self.chance = random.Random(seed)
        self.clock = Clock()
        self.asked: list[Asked] = []
        self.wrong: list[str] = []
        self.troubled = troubled
        self.by_gateway = False
        self.api = SlowApi(self)
        self.served: list[bool] = []
        self._replicas = [_Replica(self, number) for number in range(REPLICAS)]

    def later(self, seconds: float, act: Callable[[], object]) -> None:
        """Have something done in a while."""
        self.clock.callLater(seconds, act)

    def latency(self) -> float:
        """How long a message is under way."""
        if self.chance.random() < 0.05:
            return self.chance.uniform(1, 8)
        return self.chance.choice((0, 0.01, 0.05, 0.2)) * self.chance.random()

    def run(self) -> None:
        """From the first request to long after the last one."""
        then = 0.0
        for _ in range(self.chance.randint(2, 8)):
            then += self.chance.choice((0, 0.01, 0.1, 0.5, 2, 6, 15)) * self.chance.random()
            replica = self.chance.choice(self._replicas)
            wish = self.chance.choice((Wish.MAKE, Wish.MAKE, Wish.REMOVE))
            self.later(then, lambda replica=replica, wish=wish: replica.ask(wish))  # type: ignore[misc]
        for _ in range(self.chance.randint(0, 2)):
            self.later(self.chance.uniform(0, then + 10), self.api.disturb)
        self._pass(300)
        self.wrong += [f"{one} has no answer" for one in self.asked if one.told is None]
        self.wrong += [f"{one} is left" for one in self.clock.getDelayedCalls()]
        self.troubled = 0
        for replica in self._replicas:
            replica.reaper.start()
        self._pass(3000)
        for replica in self._replicas:
            replica.reaper.stop()
        self._pass(60)
        self._settled()

    def changed(self, tree: Tree) -> None:
        """Something has changed in the cluster."""
        self.served.append(self.serves())
        if tree["kind"] != "PersistentVolumeClaim" or not (leaving(tree) and self.by_gateway):
            return
        if not any(one.wish is Wish.REMOVE for one in self.asked):
            self.wrong.append("a workspace is removed, and nobody has wanted that")

    def serves(self) -> bool:
        """Whether there is a sandbox that may be given to a client."""
        pod, claim, service = (self.api.objects.get(key) for key in (POD, CLAIM, SERVICE))
        if pod is None or claim is None or service is None or leaving(claim):
            return False
        owners = {one["uid"] for one in service["metadata"]["ownerReferences"]}
        return stage(pod) is Stage.READY and pod["metadata"]["uid"] in owners

    def _settled(self) -> None:
        """In the end a session is there whole, or its workspace alone, or not at all."""
        there = [key for key in (POD, CLAIM, SERVICE) if key in self.api.objects]
        if there not in ([], [CLAIM]) and not self.serves():
            self.wrong.append(f"of the session there is {there}")
        made = [one for one in self.asked if one.wish is Wish.MAKE]
        removed = [one for one in self.asked if one.wish is Wish.REMOVE]
        if there and removed and all(one.told == "done" for one in removed):
            last = max(one.since for one in removed)
            if not any(one.since > last - SECONDS for one in made):
                self.wrong.append(f"after a removal that was done there is {there}")

    def _pass(self, seconds: float) -> None:
        until = self.clock.seconds() + seconds
        while calls := self.clock.getDelayedCalls():
            then = min(call.getTime() for call in calls)
            if then > until:
                break
            self.clock.advance(max(0.0, then - self.clock.seconds()))


class SlowApi(ApiServer):
    """A cluster whose controllers take their time."""

    def __init__(self, history: History) -> None:
        super().__init__(history.clock.seconds)
        self._history = history

    def _soon(self, *seconds: float) -> float:
        return self._history.chance.choice(seconds)

    def schedule(self) -> None:
        self._history.later(self._soon(0, 0.05, 0.3, 1), super().schedule)

    def collect(self) -> None:
        self._history.later(self._soon(0, 0.1, 1, 4), super().collect)

    def _release_claims(self) -> None:
        self._history.later(self._soon(0, 0.05, 0.5, 2), super()._release_claims)

    def _changed(self, event: str, resource: str, tree: Tree) -> None:
        super()._changed(event, resource, tree)
        self._history.changed(tree)
        if (resource, tree["metadata"]["name"]) != POD or event == "DELETED":
            return
        uid = tree["metadata"]["uid"]
        if leaving(tree):
            self._history.later(self._soon(0.1, 1, 3, 10), lambda: self._end(uid))
        elif "nodeName" in tree["spec"] and tree["status"]["phase"] == "Pending":
            self._history.later(self._soon(0.2, 1, 3), lambda: self._begin(uid))

    def _is(self, uid: str) -> bool:
        return POD in self.objects and self.pod()["metadata"]["uid"] == uid

    def _end(self, uid: str) -> None:
        if self._is(uid):
            self.finish()

    def _begin(self, uid: str) -> None:
        pending = self._is(uid) and self.pod()["status"]["phase"] == "Pending"
        if pending and not leaving(self.pod()) and self.can_start("s1"):
            self.become_ready()

    def disturb(self) -> None:
        """The pod is lost, in one way or another."""
        if POD not in self.objects or leaving(self.pod()) or "nodeName" not in self.pod()["spec"]:
            return
        if self.pod()["status"]["phase"] not in ENDED:
            self._history.chance.choice((self.end, self.evict, self.disrupt))()


class _Replica:
    """A gateway: what of it is at work for sessions."""

    def __init__(self, history: History, number: int) -> None:
        adapter = _adapter()
        clock = history.clock
        kube = Kube(adapter, _Agent(history), clock)  # type: ignore[arg-type]
        self._history = history
        self._attempts = Attempts(clock)
        self._began: dict[Attempt, int] = {}
        cluster = Cluster(adapter, kube, clock, history.chance.random)
        self._provisioner = Provisioner(adapter, cluster, None, None, Chores(), clock)
        self.reaper = Reaper(adapter, kube, clock, f"replica-{number}")

    def ask(self, wish: Wish) -> None:
        """A client wants something."""
        asked = Asked(wish, self._history.clock.seconds())
        self._history.asked.append(asked)
        provisioner = self._provisioner

        async def work(attempt: Attempt) -> None:
            if wish is Wish.MAKE:
                await provisioner.make("s1", attempt)
            else:
                await provisioner.remove("s1", attempt)

        attempt, doing = self._attempts.join(
            "s1", wish, work, seconds=SECONDS, failed=lambda *_: None
        )
        # Who joins an attempt is told what that has seen, since it began.
        began = self._began.setdefault(attempt, max(0, len(self._history.served) - 1))

        def told(result: Failure | None) -> None:
            if isinstance(result, Failure):
                asked.told = type(result.value).__name__
                if not result.check(*EXPECTED):
                    self._history.wrong.append(f"{asked}: {result.value!r}")
                return
            asked.told = "done"
            if wish is Wish.MAKE and not any(self._history.served[began:]):
                self._history.wrong.append(f"{asked}: there was none in its time")

        _ = doing.addBoth(told)


class _Agent:
    """Sends requests to the API, of which some meet with trouble."""

    def __init__(self, history: History) -> None:
        self._history = history

    def request(
        self, method: bytes, url: bytes, headers: Headers, body: Any = None
    ) -> Deferred[_Answer]:
        """Send a request; its body is a `BytesProducer`."""
        parts = urlsplit(url.decode())
        fields = {
            name.decode().lower(): one[0].decode() for name, one in headers.getAllRawHeaders()
        }
        content = b"" if body is None else b"".join(body._pieces)
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        request = Request(method.decode(), target, fields, content)
        chance = self._history.chance
        trouble = ""
        if chance.random() < self._history.troubled:
            trouble = chance.choice(TROUBLES)
        asked: Deferred[_Answer] = Deferred()
        self._history.later(self._history.latency(), lambda: self._arrive(request, asked, trouble))
        return asked

    def _arrive(self, request: Request, asked: Deferred[_Answer], trouble: str) -> None:
        reply: Reply | None = UNAVAILABLE
        if not trouble.endswith("early"):
            self._history.by_gateway = True
            reply = self._history.api.handle(request)
            self._history.by_gateway = False
            if reply.watch is not None:
                trouble = ""
        if trouble == "refused late":
            reply = TIMED_OUT
        elif trouble.startswith("cut"):
            reply = None
        if not trouble.startswith("lost"):
            self._history.later(self._history.latency(), lambda: self._reply(asked, reply))

    def _reply(self, asked: Deferred[_Answer], reply: Reply | None) -> None:
        if asked.called:
            # It has been given up.
            if reply is not None and reply.watch is not None:
                reply.watch.over = True
        elif reply is None:
            asked.errback(Failure(Disconnected("it broke off")))
        else:
            asked.callback(_Answer(self._history, reply))


class _Answer:
    """An answer as the agent gives it, and its transport."""

    def __init__(self, history: History, reply: Reply) -> None:
        retry = {} if reply.retry_after is None else {b"Retry-After": [b"%d" % reply.retry_after]}
        self.code = reply.status
        self.headers = Headers(retry)
        self._history = history
        self._reply = reply
        self._protocol: Any = None
        self._sent = 0.0
        self._over = False

    def deliverBody(self, protocol: Protocol) -> None:
        self._protocol = protocol
        protocol.transport = self  # type: ignore[assignment]
        watch = self._reply.watch
        if watch is None:
            protocol.dataReceived(json.dumps(self._reply.tree).encode())
            self._end()
            return
        watch.send = self._send
        for line in watch.backlog:
            self._send(line)
        seconds = self._history.chance.choice((watch.seconds, 1.0, 3.0))
        self._ending = self._history.clock.callLater(seconds, self._end_watch, watch)

    def _send(self, line: bytes) -> None:
        clock = self._history.clock
        # In their order, however long each is under way.
        self._sent = max(self._sent, clock.seconds() + self._history.latency())
        clock.callLater(self._sent - clock.seconds(), self._deliver, line)

    def _deliver(self, line: bytes) -> None:
        if not self._over:
            self._protocol.dataReceived(line)

    def _end_watch(self, watch: Watch) -> None:
        watch.over = True
        self._end()

    def _end(self) -> None:
        if not self._over:
            self._over = True
            self._protocol.connectionLost(Failure(ResponseDone()))

    def abort(self) -> None:
        if self._reply.watch is not None and not self._over:
            self._reply.watch.over = True
            self._ending.cancel()
            self._end()

    abortConnection = abort

    def pauseProducing(self) -> None:
        """It goes on: nothing is lost by that."""

    def resumeProducing(self) -> None:
        """It has gone on."""
