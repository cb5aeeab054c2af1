from __future__ import annotations

from twisted.internet.defer import Deferred

from tests.services.sessions.apiserver import UNAVAILABLE, leaving
from tests.services.sessions.stack import PLAIN, WITH_FLEET, SessionsTestCase
from tests.support import TestCase
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.services.sessions import attempt as attempt_module
from twisted_gateway.services.sessions import objects
from twisted_gateway.services.sessions.attempt import Attempt, Attempts, Late, Wish, Work


class BehindTests(SessionsTestCase):
    """A request for a session to which something else is being done."""

    config = PLAIN + "drainSeconds: 3\n"

    def setUp(self) -> None:
        super().setUp()
        self.running()
        self.kube.holding = True

    def settled(self) -> None:
        """Everything is answered, and done."""
        self.kube.let_go()
        if self.api.names("pods") and leaving(self.api.pod()):
            self.api.finish()
        self.stack.settle()

    def there(self) -> list[str]:
        return self.api.names("pods") + self.api.names("persistentvolumeclaims")

    def test_in_time(self) -> None:
        """A POST behind a DELETE that hangs has its own time, and not that one's beside."""
        removed = self.delete()
        self.stack.advance(10)
        made = self.post()
        self.stack.advance(29)
        self.assertEqual(made.status, 0)
        self.stack.advance(2)
        self.assertEqual((removed.status, made.status), (504, 504))
        self.assertEqual(len(self.stack.gateway.exchanges), 0)

    def test_seen(self) -> None:
        """The client is told what it has waited for."""
        self.delete()
        made = self.post()
        for _ in range(3):
            # Each step takes as long as a request may.
            self.stack.advance(9.5)
            self.kube.step()
        self.stack.advance(2)
        self.assertEqual(made.status, 504)
        self.assertEqual(made.json["seen"], "what was wanted of the session before is not over yet")

    def test_leaving(self) -> None:
        """Its client may leave: that ends the request, and nothing else."""
        removed, made = self.delete(), self.post()
        made.leave()
        self.assertEqual(len(self.stack.gateway.exchanges), 1)
        self.assertIs(self.stack.entries[-1].outcome, Outcome.CLIENT_DISCONNECT)
        self.settled()
        self.assertEqual(removed.status, 200)
        # What it is there for is done all the same, as of any other POST.
        self.assertEqual(self.there(), ["pi-session-s1", "workspace-session-s1"])
        self.stack.advance(40)

    def test_drain(self) -> None:
        """The end of a drain ends both."""
        removed, made = self.delete(), self.post()
        drained = self.stack.gateway.drain()
        self.stack.advance(5)
        self.assertEqual((removed.status, made.status), (503, 503))
        self.assertEqual({removed.json["reason"], made.json["reason"]}, {"draining"})
        self.stack.advance(15)
        self.successResultOf(drained)

    def test_removed_though_its_client_left(self) -> None:
        """A DELETE behind a POST removes the session, though its client has left by then."""
        self.kube.let_go()
        self.api.end()
        self.kube.holding = True
        made = self.post()
        while not any(asked.method == "DELETE" for asked in self.kube.held):
            self.kube.step()
        self.delete().leave()
        self.settled()
        self.assertEqual(made.status, 409)
        self.assertEqual(self.there(), [])

    def test_made_in_between(self) -> None:
        """A POST between two DELETEs is told 409, and the second one has a look of its own."""
        first, made = self.delete(), self.post()
        second, third = self.delete(), self.delete()
        self.assertEqual(made.status, 409)
        self.assertEqual(len(self.kube.held), 1)
        self.settled()
        self.assertEqual((first.status, second.status, third.status), (200, 200, 200))
        looks = ("get", "persistentvolumeclaims/workspace-session-s1")
        # Each looks before it deletes, and at the end; the third one has joined the second.
        self.assertEqual(self.api.asked.count(looks), 4)
        self.assertEqual(self.there(), [])

    def test_made_removed_and_made(self) -> None:
        """Of POST, DELETE and POST the last one is given what there is in the end."""
        self.kube.let_go()
        self.api.end()
        self.api.collecting = False
        self.kube.holding = True
        first, removed = self.post(), self.delete()
        last, too = self.post(), self.post()
        self.kube.let_go()
        self.assertEqual((first.status, removed.status), (409, 200))
        self.ready()
        self.assertEqual((last.status, too.status), (200, 200))

    def test_stop(self) -> None:
        """At the end of the process none begins because the one before it has stopped."""
        self.kube.let_go()
        self.api.fail = lambda verb, kind, name: UNAVAILABLE if verb == "delete" else None
        removed, made = self.delete(), self.post()
        asked = len(self.api.asked)
        stopped = self.stack.gateway.stopService()
        self.stack.settle()
        self.successResultOf(stopped)
        self.assertEqual(len(self.api.asked), asked)
        self.assertEqual((removed.status, made.status), (409, 409))

    def test_no_room(self) -> None:
        """Where there is no room for another session there is for what is wanted of this one."""
        self.patch(attempt_module, "MOST_SESSIONS", 1)
        made = self.post()
        self.assertEqual(self.delete("s2").status, 503)
        removed = self.delete()
        self.settled()
        self.assertEqual((made.status, removed.status), (409, 200))


class LineTests(TestCase):
    """Attempts whose times differ, as those of two configurations may."""

    def test_behind_what_was_given_up(self) -> None:
        """Nobody joins what was to stop, though nothing is wanted in its place any more."""
        attempts = Attempts(self.clock)
        hanging: Deferred[str] = Deferred()

        async def slow(attempt: Attempt) -> str:
            return await hanging

        async def quick(attempt: Attempt) -> str:
            return "made"

        def join(wish: Wish, work: Work[str], seconds: float) -> Deferred[str]:
            return attempts.join("s1", wish, work, seconds=seconds, failed=lambda *_: None)[1]

        first = join(Wish.MAKE, slow, 100)
        removed = join(Wish.REMOVE, quick, 1)
        self.clock.advance(1)
        self.failureResultOf(removed, Late)
        second = join(Wish.MAKE, quick, 100)
        self.assertNoResult(second)
        hanging.callback("made before")
        self.assertEqual(self.successResultOf(first), "made before")
        self.assertEqual(self.successResultOf(second), "made")

    def test_whose_time_is_over(self) -> None:
        """Nobody joins what is to stop at its next step because its time is over."""
        attempts = Attempts(self.clock)
        steps: list[Deferred[None]] = []

        async def step(attempt: Attempt) -> str:
            steps.append(Deferred())
            await steps[-1]
            attempt.check()
            return "made"

        def join() -> Deferred[str]:
            return attempts.join("s1", Wish.MAKE, step, seconds=30, failed=lambda *_: None)[1]

        first = join()
        self.clock.advance(30)
        second = join()
        steps[0].callback(None)
        self.failureResultOf(first, Late)
        self.assertNoResult(second)
        steps[1].callback(None)
        self.assertEqual(self.successResultOf(second), "made")


class FaultTests(SessionsTestCase):
    """A fault of the gateway's own."""

    def test_for_nobody(self) -> None:
        """Where nobody waits any more it is said in the log, once."""
        self.kube.holding = True
        self.patch(objects, "policy", lambda *_: 1 / 0)
        for client in [self.post() for _ in range(3)]:
            client.leave()
        self.kube.let_go()
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_for_who_waits(self) -> None:
        """Where somebody does it is 500, and said with the request."""
        self.kube.holding = True
        client = self.post()
        self.patch(objects, "policy", lambda *_: 1 / 0)
        self.stack.advance(5)
        self.kube.let_go()
        self.assertEqual(client.status, 500)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)


class ReloadTests(SessionsTestCase):
    """The configuration is read again while something is under way."""

    def reload(self) -> None:
        self.stack.text = PLAIN.replace("size: 1Gi", "size: 2Gi")
        self.assertTrue(self.stack.gateway.reload())

    def test_joined(self) -> None:
        """Who comes then joins what the former adapter has begun."""
        first = self.post()
        self.reload()
        asked = len(self.api.asked)
        second = self.post()
        self.assertEqual(len(self.api.asked), asked)
        self.ready()
        self.assertEqual((first.status, second.status), (200, 200))

    def test_another_fleet_controller(self) -> None:
        """It is the same session whichever fleet controller there is."""
        first = self.post()
        self.stack.text = WITH_FLEET
        self.assertTrue(self.stack.gateway.reload())
        asked = len(self.api.asked)
        second = self.post()
        self.assertEqual(len(self.api.asked), asked)
        self.ready()
        self.assertEqual((first.status, second.status), (200, 200))

    def test_removed(self) -> None:
        """A DELETE then has it stop."""
        made = self.post()
        self.reload()
        removed = self.delete()
        self.assertEqual((made.status, removed.status), (409, 200))

    def test_stop(self) -> None:
        """The end of the process ends what a former adapter has under way, too."""
        client = self.post()
        self.reload()
        stopped = self.stack.gateway.stopService()
        self.stack.settle()
        self.successResultOf(stopped)
        self.assertEqual(self.kube.open_watches, 0)
        client.leave()

    def test_another_namespace(self) -> None:
        """In another namespace it is another session."""
        first = self.post()
        self.stack.text = PLAIN.replace("namespace: poimen", "namespace: other")
        self.assertTrue(self.stack.gateway.reload())
        self.assertEqual(self.post().status, 403)
        self.ready()
        self.assertEqual(first.status, 200)
