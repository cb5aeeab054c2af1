from __future__ import annotations

from tests.services.sessions.stack import WITH_FLEET, SessionsTestCase
from tests.services.sessions.test_fleet import GOOD
from tests.services.stack import said


class ReleaseTests(SessionsTestCase):
    """DELETE, and the fleet controller does not take the pod back at once."""

    config = WITH_FLEET

    def paths(self) -> list[str]:
        """What the fleet controller was asked."""
        return [one.path.rpartition("/")[2] for one in self.fleet.asked]

    def test_passes(self) -> None:
        """It is asked again within the DELETE, whose answer says what has come of it."""
        client = self.delete()
        self.fleet.last.answer(503)
        self.stack.advance(0.75)
        self.fleet.last.die()
        self.assertEqual(client.status, 0)
        self.stack.advance(2.25)
        self.fleet.last.answer()
        self.assertEqual((client.status, client.json["fleet"]), (200, "released"))
        self.assertEqual(self.paths(), ["release"] * 3)

    def test_never_behind_the_answer(self) -> None:
        """Another replica is given the pod that was not taken back, and nobody takes it away."""
        gone = self.delete()
        for seconds in (0.75, 2.25, 0):
            self.fleet.last.answer(500)
            self.stack.advance(seconds)
        self.assertEqual((gone.status, gone.json["fleet"]), (200, "failed"))
        other = self.replica()
        client = other.post()
        other.fleet.last.answer(body=GOOD)
        self.assertEqual(client.status, 200)
        for one in (self, other):
            one.stack.advance(60)
        self.assertEqual(self.paths(), ["release"] * 3)

    def test_its_words(self) -> None:
        """The log says once what has come of it, in the controller's words, without addresses."""
        lines = said(self)
        self.delete()
        for seconds in (0.75, 2.25, 0):
            self.fleet.last.answer(500, {"error": "no route to 10.5.0.2:8788"})
            self.stack.advance(seconds)
        (line,) = [one for one in lines if "giving a pod back" in one]
        self.assertIn("failed: 500: no route to ***", line)

    def test_removed_again(self) -> None:
        """The DELETE may be sent again, and is asked for anew."""
        self.fleet.up = False
        gone = self.delete()
        self.stack.advance(3)
        self.assertEqual((gone.status, gone.json["fleet"]), (200, "failed"))
        self.fleet.up = True
        again = self.delete()
        self.fleet.last.answer()
        self.assertEqual((again.status, again.json["fleet"]), (200, "released"))

    def test_refused(self) -> None:
        """What would be refused again is not asked again."""
        client = self.delete()
        self.fleet.last.answer(403)
        self.assertEqual((client.status, client.json["fleet"]), (200, "failed"))
        self.assertEqual(self.paths(), ["release"])

    def test_slow(self) -> None:
        """It has ten seconds, not `fleetSeconds`, and no try that could not end in time."""
        client = self.delete()
        self.stack.advance(9.5)
        self.assertFalse(self.fleet.last.gone)
        self.stack.advance(11)
        self.assertEqual(self.paths(), ["release"] * 2)
        self.stack.advance(0.75)
        self.assertEqual((client.status, client.json["fleet"]), (200, "failed"))
        self.stack.advance(60)
        self.assertEqual(self.paths(), ["release"] * 2)

    def test_no_room(self) -> None:
        """One that has no room now (429) is asked again, as one that fails."""
        client = self.delete()
        self.fleet.last.answer(429)
        self.stack.advance(0.75)
        self.fleet.last.answer()
        self.assertEqual((client.status, client.json["fleet"]), (200, "released"))

    def made_behind(self) -> None:
        """A session that is asked for is assigned once the release is over."""
        client = self.post()
        self.assertEqual(self.paths(), ["release"])
        self.stack.advance(0.75)
        self.assertEqual(self.paths(), ["release"] * 2)
        self.fleet.last.answer()
        self.fleet.last.answer(body=GOOD)
        self.assertEqual(client.status, 200)
        self.assertEqual(self.paths(), ["release", "release", "assign"])
        self.stack.advance(60)
        self.assertEqual(len(self.paths()), 3)

    def test_then_made(self) -> None:
        """Who asks for the session meanwhile waits until nothing is tried any more."""
        self.delete()
        self.fleet.last.answer(500)
        self.made_behind()

    def test_after_a_reload(self) -> None:
        """So does who asks the adapter of a later configuration."""
        self.delete()
        self.fleet.last.answer(500)
        self.stack.text = WITH_FLEET.replace("size: 1Gi", "size: 2Gi")
        self.assertTrue(self.stack.gateway.reload())
        self.made_behind()

    def test_page_of_a_proxy(self) -> None:
        """A 404 that is none of the controller's own says nothing of the pod."""
        own = {"error": "no such session"}
        for body, kind, then in (
            (b"default backend - 404\n", "text/plain", own),
            (b" <html>404</html>", "text/plain", b"404 page not found\n"),
            (b"<html>404</html>", "text/plain", b"session not assigned\n"),
            (b"Not Found", "text/html; charset=utf-8", own),
        ):
            client = self.delete()
            self.fleet.last.answer(404, body, kind)
            self.assertEqual(client.status, 0, body)
            self.stack.advance(0.75)
            self.fleet.last.answer(404, then, "text/plain")
            self.assertEqual((client.status, client.json["fleet"]), (200, "absent"))

    def test_stopped(self) -> None:
        """A process that ends tries no more, and says what has become of all else."""
        client = self.delete()
        self.fleet.last.answer(500)
        self.stack.gateway.stopService()
        self.stack.advance(5)
        self.assertEqual(self.paths(), ["release"])
        self.assertEqual((client.status, client.json["fleet"]), (200, "failed"))
        self.assertEqual(client.json["kubernetes"], "absent")


class ShortTests(SessionsTestCase):
    """A DELETE with less time than a release may take."""

    config = WITH_FLEET.replace(
        "requireAuth", "timeoutSeconds: 6\n    fleetSeconds: 5\n    requireAuth"
    )

    def test_given_up(self) -> None:
        """A release is given up with the DELETE: nothing goes on behind its answer."""
        client = self.delete()
        self.stack.advance(5.75)
        self.assertFalse(self.fleet.last.gone)
        self.stack.advance(0.5)
        self.assertEqual((client.status, client.json["fleet"]), (200, "failed"))
        self.assertTrue(self.fleet.last.gone)
        self.stack.advance(10)
        self.assertEqual(len(self.fleet.asked), 1)

    def test_behind_another(self) -> None:
        """It has what a DELETE that has waited for a POST has left."""
        self.post()
        client = self.delete()
        self.assertEqual(self.fleet.last.path, "/sessions/s1/assign")
        self.stack.advance(5.5)
        self.assertEqual(self.fleet.last.path, "/sessions/s1/release")
        self.assertFalse(self.fleet.last.gone)
        self.stack.advance(0.75)
        self.assertEqual(client.status, 504)
        self.assertIn("The sandbox was not removed within 6 s: ", client.json["detail"])
        self.assertTrue(self.fleet.last.gone)
        self.stack.advance(10)
        self.assertEqual(len(self.fleet.asked), 2)

    def test_made(self) -> None:
        """What was asked for is told apart: a POST has not come to a sandbox in its time."""
        client = self.post()
        self.fleet.last.answer(404)
        self.stack.advance(6.5)
        self.assertEqual(client.status, 504)
        self.assertIn("The sandbox was not there within 6 s: ", client.json["detail"])


class FleetAloneTests(SessionsTestCase):
    """A fleet controller, and no Kubernetes API."""

    config = "".join(one for one in WITH_FLEET.splitlines(True) if "kubernetes:" not in one)

    def test_removed(self) -> None:
        """What the fleet controller says is all there is to say."""
        for status, became in ((200, "released"), (404, "absent")):
            client = self.delete()
            self.fleet.last.answer(status)
            self.assertEqual(client.status, 200)
            self.assertEqual((client.json["fleet"], client.json["kubernetes"]), (became, "none"))

    def test_fails(self) -> None:
        """Where it fails nothing has been removed, and the client is told."""
        client = self.delete()
        for seconds in (0.75, 2.25, 0):
            self.fleet.last.answer(500, {"error": "out of order"})
            self.stack.advance(seconds)
        self.assertEqual((client.status, client.json["upstream_status"]), (500, 500))
        client = self.delete()
        for seconds in (0.75, 2.25, 0):
            self.fleet.last.die()
            self.stack.advance(seconds)
        self.assertEqual(client.status, 502)

    def test_none_to_be_had(self) -> None:
        """A POST that it has no pod for is refused."""
        client = self.post()
        self.fleet.last.answer(404)
        self.assertEqual(client.status, 502)
