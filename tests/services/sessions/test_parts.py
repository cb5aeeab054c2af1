from __future__ import annotations

import gc
import json
import weakref
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure
from twisted.web.http_headers import Headers

from tests.support import TestCase
from twisted_gateway.config.sandbox import SessionsAdapter
from twisted_gateway.services.sessions import chores as chores_module
from twisted_gateway.services.sessions.attempt import Attempt, Late, Superseded
from twisted_gateway.services.sessions.chores import Chores
from twisted_gateway.services.sessions.kube_answers import KubeRefusal, KubeUnavailable
from twisted_gateway.services.sessions.patience import Patience
from twisted_gateway.services.sessions.reaper import Reaper
from twisted_gateway.services.sessions.removing import Removing
from twisted_gateway.services.sessions.watch import MOST_LINE_BYTES, MOST_WAITING, Watch
from twisted_gateway.upstream.errors import Aborted
from twisted_gateway.upstream.response import SentRequest, UpstreamResponse


class AttemptTests(TestCase):
    """One attempt."""

    def test_late(self) -> None:
        """What waits when the time is over is cancelled, and the attempt may not go on."""
        attempt = Attempt(self.clock, 10)
        never: Deferred[None] = Deferred()
        waiting = Deferred.fromCoroutine(attempt.wait(never))
        self.clock.advance(9)
        self.assertEqual(attempt.left_seconds, 1)
        attempt.check()
        self.clock.advance(1)
        self.failureResultOf(waiting, Late)
        self.assertTrue(never.called)
        self.assertRaises(Late, attempt.check)

    def test_stopped(self) -> None:
        """One that is stopped waits for nothing more; the first reason counts."""
        attempt = Attempt(self.clock, 10)
        attempt.stop(Superseded())
        attempt.stop(Late())
        never: Deferred[None] = Deferred()
        self.failureResultOf(Deferred.fromCoroutine(attempt.wait(never)), Superseded)
        self.assertTrue(never.called)
        began = []

        async def work() -> None:
            began.append(1)

        self.failureResultOf(Deferred.fromCoroutine(attempt.wait(work())), Superseded)
        self.assertEqual(began, [])
        attempt.end()

    def test_several(self) -> None:
        """Of several that are waited for at once each is cancelled, and one that is over is not."""
        attempt = Attempt(self.clock, 10)
        works: list[Deferred[str]] = [Deferred() for _ in range(3)]
        waiting = [Deferred.fromCoroutine(attempt.wait(one)) for one in works]
        works[0].callback("x")
        self.assertEqual(self.successResultOf(waiting[0]), "x")
        self.clock.advance(10)
        for one in waiting[1:]:
            self.failureResultOf(one, Late)

    def test_cancelled_from_outside(self) -> None:
        """A cancelling that is none of its own stays one."""
        attempt = Attempt(self.clock, 10)
        never: Deferred[None] = Deferred()
        waiting = Deferred.fromCoroutine(attempt.wait(never))
        waiting.cancel()
        self.failureResultOf(waiting, CancelledError)
        attempt.end()


class ChoreTests(TestCase):
    """What is done behind an answer."""

    def setUp(self) -> None:
        super().setUp()
        self.chores = Chores()
        self.failures: list[BaseException | None] = []
        self.began: list[str] = []

    def do(self, name: str, place: str = "x") -> Deferred[None]:
        """Do something that may be given up at any moment; gives what it waits for."""
        work: Deferred[None] = Deferred()

        async def wait() -> None:
            self.began.append(name)
            await work

        self.done = self.chores.do(
            place, name, wait, lambda failure: self.failures.append(failure.value)
        )
        return work

    def test_one_of_a_name(self) -> None:
        """What goes by the same name is given up for the later one, without a word."""
        first = self.do("a")
        second = self.do("a")
        other = self.do("b")
        self.assertEqual([first.called, second.called, other.called], [True, False, False])
        second.errback(ValueError("x"))
        self.assertEqual([str(one) for one in self.failures], ["x"])
        other.callback(None)

    def test_a_few_at_once(self) -> None:
        """Past so many others wait for their turn, and may be given up before it comes."""
        works = [self.do(str(number)) for number in range(chores_module.MOST_AT_ONCE)]
        for name in ("p", "q", "q"):
            _ = self.do(name)
        self.assertEqual(len(self.began), chores_module.MOST_AT_ONCE)
        works[3].callback(None)
        self.assertEqual(self.began[-1], "p")
        works[4].errback(ValueError("x"))
        self.assertEqual(self.began[-2:], ["p", "q"])
        works[5].callback(None)
        self.assertEqual(len(self.began), chores_module.MOST_AT_ONCE + 2)
        self.chores.close()

    def test_bound(self) -> None:
        """Past so many that wait or are under way others are left undone."""
        self.patch(chores_module, "MOST_CHORES", 2)
        works = [self.do(name) for name in ("a", "b")]
        self.assertTrue(self.done)
        _ = self.do("c")
        self.assertFalse(self.done)
        self.assertEqual(self.began, ["a", "b"])
        works[0].callback(None)
        _ = self.do("c")
        self.assertTrue(self.done)
        self.assertEqual(self.began, ["a", "b", "c"])
        self.chores.close()

    def test_places(self) -> None:
        """A place that hangs keeps nothing from another: each has its own room and bound."""
        self.patch(chores_module, "MOST_CHORES", chores_module.MOST_AT_ONCE + 1)
        here = [self.do(str(number)) for number in range(chores_module.MOST_AT_ONCE + 1)]
        there = self.do("0", "y")
        self.assertEqual((self.began[-1], here[0].called), ("0", False))
        self.assertEqual(len(self.began), chores_module.MOST_AT_ONCE + 1)
        self.assertTrue(self.done)
        there.callback(None)
        self.chores.close()
        self.assertTrue(all(work.called for work in here[:-1]))
        self.assertEqual(self.chores._lines, {})

    def test_closed(self) -> None:
        """In the end everything is given up, also what waits, and nothing more is begun."""
        works = [self.do(str(number)) for number in range(chores_module.MOST_AT_ONCE + 1)]
        self.chores.close()
        self.assertTrue(all(work.called for work in works[:-1]))
        _ = self.do("b")
        self.assertEqual(len(self.began), chores_module.MOST_AT_ONCE)
        self.assertEqual(self.failures, [])


class CycleTests(TestCase):
    """What is raised goes with whoever has it, as far as that is the gateway's to say.

    A fault that has come through a `Deferred` is in a cycle of Twisted's own.
    """

    def setUp(self) -> None:
        super().setUp()
        gc.disable()
        self.addCleanup(gc.enable)

    def is_kept(self, work: Coroutine[Deferred[Any], Any, Any]) -> bool:
        """Whether the fault with which something fails is kept when its failure is let go."""
        kept: list[weakref.ref[BaseException]] = []
        failed: Deferred[Any] = Deferred.fromCoroutine(work)

        def keep(failure: Failure) -> None:
            assert failure.value is not None
            kept.append(weakref.ref(failure.value))

        _ = failed.addErrback(keep)
        del failed, work
        return kept[0]() is not None

    def removing(self, *faults: Exception) -> Coroutine[Deferred[Any], Any, bool]:
        """Remove a session from where each request fails, one after the other."""
        left = list(faults)

        class Failing:
            async def get(self, kind: str, name: str) -> None:
                raise left.pop(0)

        attempt = Attempt(self.clock, 1)
        self.addCleanup(attempt.end)
        patience = Patience(attempt, self.clock)
        return Removing(Failing(), patience, "s1").run()  # type: ignore[arg-type]

    def refusal(self) -> KubeRefusal:
        return KubeRefusal(403, "Forbidden", "no")

    def unavailable(self) -> KubeUnavailable:
        return KubeUnavailable(503, "x", "", None)

    def test_removing(self) -> None:
        """Refused, unavailable, and both at once."""
        self.assertFalse(self.is_kept(self.removing(*(self.refusal() for _ in range(3)))))
        self.assertFalse(self.is_kept(self.removing(*(self.unavailable() for _ in range(3)))))
        refused = self.refusal()
        kept = weakref.ref(refused)
        work = self.removing(refused, self.unavailable(), self.unavailable())
        del refused
        self.assertFalse(self.is_kept(work))
        self.assertIsNone(kept())

    def test_stopped(self) -> None:
        """An attempt whose time is over, where it waits and where it goes on."""
        attempt = Attempt(self.clock, 1)
        attempt.stop(Late())

        async def go_on() -> None:
            attempt.check()

        self.assertFalse(self.is_kept(go_on()))
        self.assertFalse(self.is_kept(attempt.wait(Deferred())))
        attempt.end()

    def test_reaper(self) -> None:
        """A list that breaks off half way, with what was read of it."""
        fault = self.unavailable

        class Failing:
            async def list(self, kind: str, selector: str = "") -> AsyncIterator[dict[str, Any]]:
                yield {"metadata": {"name": "pi-session-a", "uid": "1"}, "status": {}}
                raise fault()

        adapter = SessionsAdapter(name="sessions", server="http://k", namespace="n", image="i")
        reaper = Reaper(adapter, Failing(), self.clock, "r")  # type: ignore[arg-type]
        self.assertFalse(self.is_kept(reaper._reap(self.clock.seconds() + 1)))


class Source:
    """A connection with a body."""

    def __init__(self) -> None:
        self.paused = self.aborted = False

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def abort(self) -> None:
        self.aborted = True


class WatchTests(TestCase):
    """The lines of a watch."""

    def setUp(self) -> None:
        super().setUp()
        self.source = Source()
        request = SentRequest(b"GET", b"http://k/", None)
        version = (b"HTTP", 1, 1)
        self.answer = UpstreamResponse(
            self.source, request, version, 200, b"OK", Headers(), "unknown"
        )
        self.watch = Watch(self.answer)

    def line(self, number: int) -> bytes:
        tree: dict[str, Any] = {"type": "MODIFIED", "object": {"n": number}}
        return json.dumps(tree).encode() + b"\n"

    def next(self) -> Any:
        change = self.successResultOf(Deferred.fromCoroutine(self.watch.next()))
        return None if change is None else change.tree["n"]

    def test_however_they_come(self) -> None:
        """Lines are whole however they come, and blank ones are none."""
        data = self.line(1) + b"\n \r\n" + self.line(2)
        waiting = Deferred.fromCoroutine(self.watch.next())
        for index in range(len(data)):
            self.answer.received(data[index : index + 1], more=True)
        change = self.successResultOf(waiting)
        assert change is not None
        self.assertEqual((change.kind, change.tree), ("MODIFIED", {"n": 1}))
        self.assertEqual(self.next(), 2)
        self.answer.ended(Aborted("x"))
        self.assertIsNone(self.next())

    def test_nonsense(self) -> None:
        """What is no change of an object ends the watch."""
        for line in (
            b"hello",
            b"[]",
            b'{"type": 5, "object": {}}',
            b'{"type": "ADDED", "object": 5}',
            b'{"type": "ADDED"}',
            b"[" * 100_000,
            b'{"type": "ADDED", "object": {"n": NaN}}',
            b'{"type": "ADDED", "object": {"n": 1e999}}',
        ):
            self.answer.received(line + b"\n", more=True)
            self.assertIsNone(self.next(), line[:30])

    def test_back_pressure(self) -> None:
        """Nobody who reads: the socket is paused, and read on when what waits was taken."""
        count = MOST_WAITING + 1
        self.answer.received(b"".join(map(self.line, range(count))), more=True)
        self.assertTrue(self.source.paused)
        self.assertEqual([self.next() for _ in range(count)], list(range(count)))
        waiting = Deferred.fromCoroutine(self.watch.next())
        self.assertFalse(self.source.paused)
        self.answer.ended(Aborted("x"))
        self.assertIsNone(self.successResultOf(waiting))

    def test_large_ones(self) -> None:
        """So it is when what waits is large, however few they are."""
        large = self.line(1)[:-2] + b" " * (MOST_LINE_BYTES - 100) + b"}\n"
        for _ in range(3):
            self.assertFalse(self.source.paused)
            self.answer.received(large, more=True)
        self.assertTrue(self.source.paused)
        self.assertEqual([self.next() for _ in range(3)], [1, 1, 1])
        waiting = Deferred.fromCoroutine(self.watch.next())
        self.assertFalse(self.source.paused)
        self.answer.received(large * 2, more=True)
        self.assertFalse(self.source.paused)
        self.assertIsNotNone(self.successResultOf(waiting))

    def test_endless_line(self) -> None:
        """A line without end is cut off, with its connection."""
        for _ in range(MOST_LINE_BYTES // 65_536 + 1):
            self.answer.received(b"x" * 65_536, more=True)
        self.assertTrue(self.source.aborted)
        self.assertIsNone(self.next())

    def test_given_up(self) -> None:
        """Who waits no more has cancelled; closing drops the connection."""
        waiting = Deferred.fromCoroutine(self.watch.next())
        waiting.cancel()
        self.failureResultOf(waiting, CancelledError)
        self.answer.received(self.line(5), more=True)
        self.assertEqual(self.next(), 5)
        self.watch.close()
        self.assertTrue(self.source.aborted)
