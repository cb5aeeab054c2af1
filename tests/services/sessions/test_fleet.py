from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.web.client import Agent
from twisted.web.http_headers import Headers

from tests.services.sessions.apiserver import BROKEN_OFF, UNAVAILABLE, Reply, refusal
from tests.services.sessions.stack import WITH_FLEET, SessionsTestCase, tree
from tests.services.stack import said
from tests.stack import Client
from twisted_gateway.services.sessions import fleet as fleet_module
from twisted_gateway.upstream.whole import WholeAnswer

GOOD = {"svc_dns": "warm-7.poimen.svc.cluster.local", "pod_name": "warm-7", "pvc_name": "w-7"}


class AssignTests(SessionsTestCase):
    """POST, with a fleet controller."""

    config = WITH_FLEET

    def test_warm(self) -> None:
        """A warm pod is given without a wait, where the session is not on Kubernetes already."""
        client = self.post()
        asked = self.fleet.last
        self.assertEqual((asked.method, asked.path), ("POST", "/sessions/s1/assign"))
        asked.answer(body=GOOD)
        self.assertEqual(client.status, 200)
        self.assertEqual(client.json, {"session_id": "s1", **GOOD, "fleet": True})
        looks = ["persistentvolumeclaims/workspace-session-s1", "pods/pi-session-s1"]
        self.assertEqual(self.api.asked, [("get", one) for one in looks])

    def test_other_name(self) -> None:
        """The name of the Service is also taken as podSvcDns, and nothing else is needed."""
        client = self.post()
        self.fleet.last.answer(body={"podSvcDns": "warm-7.poimen"})
        self.assertEqual(client.json["svc_dns"], "warm-7.poimen")
        self.assertNotIn("pod_name", client.json)

    def test_at_once(self) -> None:
        """Many requests for one session are one to the fleet controller."""
        clients = [self.post() for _ in range(20)]
        self.assertEqual(len(self.fleet.asked), 1)
        self.fleet.last.answer(body=GOOD)
        self.assertEqual({client.status for client in clients}, {200})

    def falls_back(self) -> None:
        """Kubernetes is asked, and the client is told nothing of it."""
        self.assertEqual(self.api.names("pods"), ["pi-session-s1"])
        self.ready()
        answered = [client for client in self.stack.clients if client.status]
        self.assertEqual(answered[-1].status, 200)
        self.assertIs(answered[-1].json["fleet"], False)

    def releases(self) -> int:
        return len([one for one in self.fleet.asked if one.path.endswith("/release")])

    def test_refuses(self) -> None:
        """Where it refuses Kubernetes is asked."""
        for status in (404, 409, 429):
            self.post()
            self.fleet.last.answer(status, {"error": "no warm pod"})
            self.falls_back()
            self.assertEqual(self.releases(), 0)
            self.api.objects.clear()

    def test_its_words(self) -> None:
        """What it says is in the log, without addresses, wherever it is cut."""
        lines = said(self)
        for before in (1, *range(970, 1001, 6)):
            text = "x" * before + " at 10.43.12.7:8443, 10.5.0.2 and warm.poimen.svc" + " y" * 500
            self.post()
            self.fleet.last.answer(409, {"error": text})
            self.falls_back()
            self.delete()
            self.fleet.last.answer(500, {"error": text})
            self.api.objects.clear()
            self.stack.advance(61)
            self.fleet.last.answer()
        told = [one for one in lines if "the fleet controller" in one]
        self.assertGreater(len(told), 10)
        for line in told:
            self.assertNotRegex(line, r"10\.|poimen\.")
            self.assertLess(len(line), 1200)
        self.assertIn("it answered 409: x at ***, *** and *** y", told[0])

    def test_its_own_name(self) -> None:
        """Its host is in none of its words, though any public one might be called so."""
        said_of = b'{"error": "no route from fleet.example.com"}'

        async def ask(*_: object, **__: object) -> WholeAnswer:
            return WholeAnswer(409, Headers({"Content-Type": ["application/json"]}), said_of)

        self.patch(fleet_module, "ask", ask)
        fleet = fleet_module.Fleet(
            "http://fleet.example.com:8788", 2, Agent(self.clock), self.clock
        )
        fault = self.failureResultOf(Deferred.fromCoroutine(fleet.assign("s1"))).value
        self.assertEqual(str(fault), "it answered 409: no route from ***")

    def test_words_in_another_encoding(self) -> None:
        """Its words are read as its field says."""
        lines = said(self)
        self.post()
        self.fleet.last.answer(409, b"kein gr\xfcner", "text/plain; charset=iso-8859-1")
        self.falls_back()
        self.assertTrue([one for one in lines if "409: kein gr\xfcner" in one], lines)

    def test_unreachable(self) -> None:
        """Where it cannot be reached Kubernetes is asked, and there is nothing to give back."""
        self.fleet.up = False
        self.post()
        self.falls_back()
        self.assertEqual(self.releases(), 0)

    def test_slow(self) -> None:
        """After two seconds it is waited for no more."""
        self.post()
        asked = self.fleet.last
        self.stack.advance(1.5)
        self.assertEqual(self.api.created, [])
        self.stack.advance(0.75)
        self.assertTrue(asked.gone)
        self.falls_back()

    def test_session_with_a_warm_pod(self) -> None:
        """A controller that fails once takes no pod away from a session that may work in it."""
        self.post()
        self.fleet.last.answer(body=GOOD)
        for number, trouble in enumerate((500, 503, None)):
            client = self.post()
            if trouble is None:
                self.fleet.last.die()
            else:
                self.fleet.last.answer(trouble)
            self.falls_back()
            self.assertEqual(client.status, 200, number)
            self.stack.advance(60)
            self.assertEqual(self.releases(), 0)
            self.api.objects.clear()

    def test_lies(self) -> None:
        """An answer that gives no pod is none."""
        for body in (
            b"<html>ok</html>",
            b"[]",
            b"{}",
            b'{"svc_dns": null}',
            b'{"svc_dns": ""}',
            b'{"svc_dns": "http://evil.example/"}',
            b'{"svc_dns": "a b"}',
            b'{"svc_dns": "a"}',
            b'{"svc_dns": "x\\r\\ny.z"}',
            b'{"svc_dns": "' + b"a." * 200 + b'a"}',
            b" " * 100_000,
            b'{"svc_dns": "warm-7.poimen", "load": NaN}',
            b'{"svc_dns": "warm-7.poimen", "load": 1e999}',
        ):
            self.post()
            self.fleet.last.answer(body=body)
            self.falls_back()
            self.assertEqual(self.releases(), 0, body)
            self.api.objects.clear()

    def test_fails(self) -> None:
        """A 5xx, a broken answer or a redirect are none either."""
        for send in (
            b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n",
            b"HTTP/1.1 302 Found\r\nlocation: http://e.example/\r\ncontent-length: 0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf",
            b"",
        ):
            self.post()
            asked = self.fleet.last.send(send)
            if not send or b"half" in send:
                asked.die()
            self.falls_back()
            self.assertEqual(self.releases(), 0, send)
            self.api.objects.clear()

    def test_nothing_of_the_client(self) -> None:
        """Nothing of the client's request goes on but the session's id."""
        self.post()
        asked = self.fleet.last
        self.assertEqual(tree(asked), {})
        self.assertLessEqual(
            set(asked.headers), {"host", "accept", "content-type", "content-length", "user-agent"}
        )
        asked.answer(404)


class OnKubernetesTests(SessionsTestCase):
    """POST for a session that Kubernetes may know of already."""

    config = WITH_FLEET

    def made(self) -> Client:
        """A session that got its sandbox from Kubernetes."""
        client = self.post()
        self.fleet.last.answer(404, {"error": "no warm pod"})
        self.ready()
        self.assertEqual(client.status, 200)
        self.fleet.asked.clear()
        return client

    def test_runs(self) -> None:
        """It keeps its sandbox when the fleet controller has a warm pod later."""
        first = self.made()
        self.assertEqual(self.post().json, first.json)
        self.assertEqual(self.fleet.asked, [])

    def test_starts(self) -> None:
        """So it does while that starts."""
        self.post()
        self.fleet.last.answer(404)
        self.stack.advance(31)
        again = self.post()
        self.assertEqual(len(self.fleet.asked), 1)
        self.ready()
        self.assertEqual(again.status, 200)

    def test_reaped(self) -> None:
        """So it does when its workspace is all there is: that is where its files are."""
        first = self.made()
        self.api.end()
        self.stack.advance(311, step=5)
        self.assertEqual(self.api.names("pods"), [])
        again = self.post()
        self.ready()
        self.assertEqual((again.status, again.json), (200, first.json))
        self.assertEqual(self.fleet.asked, [])

    def test_removed(self) -> None:
        """One that has been removed is a new one."""
        self.made()
        self.delete()
        self.fleet.last.answer(404)
        client = self.post()
        self.fleet.last.answer(body=GOOD)
        self.assertEqual((client.status, client.json["fleet"]), (200, True))

    def test_made_elsewhere(self) -> None:
        """So it does while another replica makes it, which has not come to its workspace yet."""
        self.kube.holding = True
        mine = self.post()
        self.kube.let_go()
        self.kube.holding = True
        self.fleet.last.answer(404)
        while not self.api.names("services"):
            self.kube.step()
        self.assertEqual(self.api.names("persistentvolumeclaims"), [])
        other = self.replica()
        theirs = other.post()
        self.assertEqual(other.fleet.asked, [])
        self.kube.let_go()
        self.ready()
        other.stack.settle()
        self.assertEqual((mine.status, theirs.status), (200, 200))
        self.assertEqual(mine.json, theirs.json)

    def test_pods_that_do_not_count(self) -> None:
        """A pod alone that has ended, is going, or is none of the gateway's is no sandbox."""
        label = "app.kubernetes.io/managed-by"
        for number, spoil in enumerate(
            (
                lambda pod: pod["status"].update(phase="Failed"),
                lambda pod: pod["metadata"].update(deletionTimestamp="2001-01-01T00:00:00Z"),
                lambda pod: pod["metadata"]["labels"].update({label: "another"}),
                lambda pod: pod["metadata"].pop("labels"),
            )
        ):
            self.made()
            spoil(self.api.pod())
            del self.api.objects["persistentvolumeclaims", "workspace-session-s1"]
            client = self.post()
            self.assertEqual(len(self.fleet.asked), 1, number)
            self.fleet.last.answer(body=GOOD)
            self.assertEqual((client.status, client.json["fleet"]), (200, True))
            self.api.objects.clear()

    def test_nobody_knows(self) -> None:
        """Where Kubernetes does not say, or not soon, the fleet controller is asked as ever."""
        for number, reply in enumerate(
            (UNAVAILABLE, BROKEN_OFF, refusal(403, "Forbidden", "no get"), Reply(200, {}))
        ):
            self.api.fail = lambda verb, kind, name, reply=reply: reply  # type: ignore[misc]
            client = self.post(f"s{number}")
            self.fleet.last.answer(body=GOOD)
            self.assertEqual((client.status, client.json["fleet"]), (200, True), reply)
        self.kube.holding = True
        client = self.post()
        self.stack.advance(1.5)
        self.assertEqual(len(self.fleet.asked), 4)
        self.stack.advance(1)
        self.fleet.last.answer(body=GOOD)
        self.assertEqual((client.status, client.json["fleet"]), (200, True))
