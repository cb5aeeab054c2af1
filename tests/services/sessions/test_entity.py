from __future__ import annotations

from tests.services.sessions.apiserver import refusal
from tests.services.sessions.stack import WITH_ENTITY, SessionsTestCase, tree
from tests.services.stack import said
from tests.stack import Asked
from twisted_gateway.services.sessions import chores

PLACE = {
    "svc_dns": "pi-session-s1.poimen.svc.cluster.local",
    "pod_name": "pi-session-s1",
    "pvc_name": "workspace-session-s1",
}


class EntityTests(SessionsTestCase):
    """The memory entity of a session."""

    config = WITH_ENTITY

    def get(self) -> Asked:
        """The GET that follows a POST."""
        self.running()
        asked = self.memory.last
        self.assertEqual((asked.method, asked.path), ("GET", "/entities/session-s1"))
        return asked

    def test_merged(self) -> None:
        """It is got, and put back with where the sandbox is; the client does not wait for it."""
        self.get().answer(body={"title": "kept", "pod_name": "old"})
        put = self.memory.last
        self.assertEqual((put.method, put.path), ("PUT", "/entities/session-s1"))
        merged = tree(put)
        self.assertEqual(
            {name: value for name, value in merged.items() if name != "last_active_at"},
            {"title": "kept", **PLACE},
        )
        self.assertRegex(merged["last_active_at"], r"^1970-01-01T00:16:4\d\+00:00$")
        put.answer()
        self.assertEqual(len(self.memory.asked), 2)

    def test_none_yet(self) -> None:
        """An entity that is not there is made, unless somebody else makes it first."""
        for body in (b"", b"404 page not found\n"):
            self.get().answer(404, body, "text/plain")
            put = self.memory.last
            self.assertEqual(put.headers["if-none-match"], "*")
            self.assertLessEqual(PLACE.items(), tree(put).items())
            put.answer()
            self.api.objects.clear()

    def test_page_of_a_proxy(self) -> None:
        """A 404 that is none of the memory service's own says nothing: nothing is overwritten."""
        for body in (b"default backend - 404", b" <html>404</html>"):
            self.running()
            self.memory.last.answer(404, body, "text/plain")
            self.assertEqual(self.memory.last.method, "GET", body)
            self.api.objects.clear()

    def test_again(self) -> None:
        """A POST that finds the sandbox running says that the session is active."""
        self.get().answer(404)
        self.memory.last.answer()
        self.post()
        self.assertEqual(self.memory.last.method, "GET")
        self.memory.last.answer(404)
        self.memory.last.answer()

    def test_changed_meanwhile(self) -> None:
        """What others write in between is not lost where the service tells versions apart."""
        self.get().answer(body={"a": 1}, extra='etag: "v1"\r\n')
        put = self.memory.last
        self.assertEqual(put.headers["if-match"], '"v1"')
        put.answer(412)
        self.memory.last.answer(body={"a": 2}, extra='etag: "v2"\r\n')
        put = self.memory.last
        self.assertEqual((put.headers["if-match"], tree(put)["a"]), ('"v2"', 2))
        put.answer()

    def test_contended(self) -> None:
        """One that changes all the time is given up."""
        self.get().answer(body={}, extra='etag: "v1"\r\n')
        for _ in range(2):
            self.memory.last.answer(412)
            self.memory.last.answer(body={}, extra='etag: "v1"\r\n')
        self.memory.last.answer(412)
        self.assertEqual(len(self.memory.asked), 6)

    def test_not_overwritten(self) -> None:
        """What cannot be merged into is left as it is."""
        for status, body in (
            (200, b"[1]"),
            (200, b"hello"),
            (200, b'{"a": NaN}'),
            (200, b'{"a": [Infinity]}'),
            (200, b'{"a": 1} {"b": 2}'),
            (200, b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
            (200, b"{" + b" " * 1_100_000),
            (500, b""),
            (403, b"{}"),
            (302, b""),
        ):
            self.running()
            self.memory.last.answer(status, body)
            self.assertEqual(self.memory.last.method, "GET", body[:10])
            self.api.objects.clear()

    def test_service_down(self) -> None:
        """A memory service that is down, hangs or refuses is nothing to the client."""
        self.memory.up = False
        self.running()
        self.memory.up = True
        self.assertEqual(self.post().status, 200)
        hanging = self.memory.last
        self.stack.advance(11)
        self.assertTrue(hanging.gone)
        self.assertEqual(self.post().status, 200)
        self.memory.last.answer(body={})
        self.memory.last.answer(400)

    def test_removed(self) -> None:
        """A DELETE gives up what is still to be merged, and says that there is no sandbox."""
        asked = self.get()
        self.assertEqual(self.delete().status, 200)
        self.assertTrue(asked.gone)
        self.memory.last.answer(body={"title": "kept", **PLACE})
        merged = tree(self.memory.last)
        self.assertIn("last_active_at", merged)
        self.assertEqual(
            {name: value for name, value in merged.items() if name != "last_active_at"},
            {"title": "kept", "svc_dns": None, "pod_name": None, "pvc_name": None},
        )
        self.memory.last.answer()

    def test_removed_without(self) -> None:
        """An entity that is not there is not made for a session that is removed."""
        self.delete()
        self.memory.last.answer(404)
        self.assertEqual([one.method for one in self.memory.asked], ["GET"])

    def test_not_removed(self) -> None:
        """Where a session could not be removed its entity says what it did."""
        self.get().answer(404)
        self.memory.last.answer()
        self.api.fail = lambda verb, kind, name: (
            refusal(403, "Forbidden", "no") if verb == "delete" else None
        )
        self.assertEqual(self.delete().status, 403)
        self.assertEqual(len(self.memory.asked), 2)

    def test_byte_for_byte(self) -> None:
        """Its other members stay as they are: numbers that no float holds, order, escapes."""
        members = b'"z":12345678901234567890.50,"a":1e999,"b":{"y":[1.0,-0],"x":"\\u00e9\xc3\xa9"}'
        self.get().answer(body=b"{" + members + b',"pod_name":"old"}')
        self.assertTrue(self.memory.last.body.startswith(b"{" + members))
        self.memory.last.answer()

    def test_one_at_a_time(self) -> None:
        """Of two merges for one session the later one is done."""
        first = self.get()
        self.post()
        self.assertTrue(first.gone)
        self.memory.last.answer(404)
        self.memory.last.answer()


class FromBothTests(SessionsTestCase):
    """The memory entity of a session that has been here and there."""

    config = WITH_ENTITY.replace("memoryEntity", 'fleet: "http://10.5.0.2:8788"\n    memoryEntity')

    def test_whole(self) -> None:
        """What the fleet controller does not say is null: a former sandbox's is not left."""
        self.post()
        self.fleet.last.answer(body={"svc_dns": "warm-7.poimen"})
        self.memory.last.answer(body={"title": "kept", **PLACE})
        merged = tree(self.memory.last)
        self.assertEqual(
            {name: merged[name] for name in ("title", *PLACE)},
            {"title": "kept", "svc_dns": "warm-7.poimen", "pod_name": None, "pvc_name": None},
        )
        self.memory.last.answer()

    def test_a_few_at_once(self) -> None:
        """However many sessions there are, few entities are held in memory at once.

        What is left undone is told of once, by the adapter's name.
        """
        lines = said(self)
        self.patch(chores, "MOST_CHORES", 12)
        self.kube.up = False
        for number in range(20):
            self.post(f"s{number}")
            self.fleet.last.answer(body={"svc_dns": "a.b"})
        self.assertEqual(len(self.memory.asked), chores.MOST_AT_ONCE)
        (line,) = [one for one in lines if "left undone" in one]
        self.assertIn("sessions: updating a memory entity is left undone", line)
        for asked in list(self.memory.asked):
            asked.answer(403)
        self.assertEqual(len(self.memory.asked), 12)
        for asked in self.memory.asked[chores.MOST_AT_ONCE :]:
            asked.answer(403)
        self.assertEqual(len(self.memory.asked), 12)

    def test_waiting_for_too_long(self) -> None:
        """A change that has waited for its turn is old by then, and left undone."""
        lines = said(self)
        self.kube.up = False
        for number in range(chores.MOST_AT_ONCE + 2):
            self.post(f"s{number}")
            self.fleet.last.answer(body={"svc_dns": "a.b"})
        self.stack.advance(9)
        self.memory.asked[0].answer(403)
        self.assertEqual(len(self.memory.asked), chores.MOST_AT_ONCE + 1)
        self.stack.advance(2)
        self.assertEqual(len(self.memory.asked), chores.MOST_AT_ONCE + 1)
        self.assertIn("others kept it waiting for 10 s", "".join(lines))
