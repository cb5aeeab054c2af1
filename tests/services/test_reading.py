"""What adapters read of their services counts in `maxHeldBytes` while they have it."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from tests.services.stack import ServicesTestCase, said
from tests.services.test_workflow import FakeTemporal
from tests.stack import Asked, Client
from tests.support import TestCase, examples
from twisted_gateway.config import extras
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.services import build, s3
from twisted_gateway.services.workflow import Page, Workflow
from twisted_gateway.web import reading
from twisted_gateway.web.intake import HeldBytes
from twisted_gateway.web.reading import UNCOUNTED_BYTES, Reading

LIMIT = 300_000
CONFIG = """
maxHeldBytes: 300000
drainSeconds: 3
adapters:
  s3: {upstream: "http://10.3.0.1:9000", accessKey: AK, secretKey: SK, requireAuth: false,
       timeoutSeconds: 8}
  registry: {upstream: "http://10.5.0.1:3000", requireAuth: false, timeoutSeconds: 8}
  memory: {upstream: "http://10.2.0.1:8080", requireAuth: false, timeoutSeconds: 8}
  workflow: {upstream: "temporal:7233", requireAuth: false, timeoutSeconds: 8}
webhooks:
  forgejo:
    secret: s
    targets: [{event: push, service: memory, resource: ingest, parameters: {text: x}}]
"""
BEGIN = b"<ListBucketResult>"
END = b"</ListBucketResult>"
REST = 200_000


class ReadingTests(ServicesTestCase):
    """Answers that are read whole."""

    config = CONFIG

    def setUp(self) -> None:
        self.temporal = FakeTemporal()
        self.patch(extras, "WORKFLOW", ())
        kinds = {**build.BUILDERS, "workflow": lambda one, parts: Workflow(one, self.temporal)}
        self.patch(build, "BUILDERS", kinds)
        super().setUp()

    @property
    def held(self) -> int:
        held = self.stack.gateway._held.now
        self.assertEqual(self.stack.metric("gateway_held_bytes"), held)
        return held

    def get(self, service: str, resource: str, query: str) -> Client:
        return self.ask(service, resource, method="GET", path=f"/?{query}", body=b"", token=None)

    def listing(self, size: int) -> tuple[Client, Asked]:
        """Ask for a listing, of which `size` bytes come, and others are to follow."""
        client = self.get("s3", "list", "bucket=b")
        asked = self.stack.engine("10.3.0.1", 9000).last
        head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (size + REST)
        asked.send(head + BEGIN + b" " * (size - len(BEGIN)))
        return client, asked

    def end(self, asked: Asked) -> None:
        """Have the rest of a listing come."""
        asked.send(b" " * (REST - len(END)) + END)

    def test_whole(self) -> None:
        """It counts as it comes, but for its begin, and no more when its document is made."""
        client, asked = self.listing(UNCOUNTED_BYTES)
        self.assertEqual(self.held, 0)
        for size in (1000, 2000):
            asked.send(b" " * 1000)
            self.assertEqual(self.held, size)
        asked.send(b" " * (REST - 2000 - len(END)) + END)
        self.assertEqual((client.status, self.held), (200, 0))

    def test_too_much(self) -> None:
        """What does not go into the bound is 503, and the service is not read any further."""
        first, one = self.listing(LIMIT)
        second, other = self.listing(UNCOUNTED_BYTES + LIMIT - self.held)
        self.assertEqual(self.held, LIMIT)
        self.assertFalse(other.gone)
        other.send(b" ")
        self.assertTrue(other.gone)
        self.assertEqual((second.status, second.json["reason"]), (503, "queue_full"))
        self.assertEqual(second.headers["retry-after"], "5")
        self.assertIs(self.stack.entries[-1].outcome, Outcome.REJECTED)
        # Whoever was first goes on, and short ones are served meanwhile.
        self.assertEqual(self.held, LIMIT - UNCOUNTED_BYTES)
        third, short = self.listing(100)
        short.die()
        self.assertEqual(third.status, 502)
        one.die()
        self.assertEqual((first.status, self.held), (502, 0))

    def test_ends(self) -> None:
        """However it ends all is given back."""
        self.patch(s3, "MAX_LISTING_BYTES", UNCOUNTED_BYTES + REST + 1)
        ends: list[tuple[Callable[[Client, Asked], object], int]] = [
            (lambda client, asked: self.end(asked), 200),
            (lambda client, asked: asked.die(), 502),
            (lambda client, asked: asked.send(b"<" * REST), 502),
            (lambda client, asked: self.stack.advance(9), 504),
            (lambda client, asked: client.leave(), 0),
        ]
        for number, (end, status) in enumerate(ends):
            client, asked = self.listing(UNCOUNTED_BYTES + 1)
            self.assertEqual(self.held, 1)
            end(client, asked)
            self.assertEqual((client.status, self.held), (status, 0), number)
        client, asked = self.listing(UNCOUNTED_BYTES + 1)
        self.assertTrue(self.stack.gateway.reload())
        self.end(asked)
        self.assertEqual((client.status, self.held), (200, 0))
        client, _ = self.listing(UNCOUNTED_BYTES + 1)
        _ = self.stack.gateway.drain()
        self.stack.advance(4)
        self.assertEqual((client.status, self.held), (503, 0))

    def test_too_long(self) -> None:
        """An answer over its own bound is that, however much is held."""
        self.patch(s3, "MAX_LISTING_BYTES", LIMIT)
        for size in (LIMIT + 1, LIMIT + UNCOUNTED_BYTES + 1):
            client, _ = self.listing(size)
            self.assertEqual((client.status, self.held), (502, 0))

    def test_refusals(self) -> None:
        """The words of a refusal are read however much is held."""
        client, _ = self.listing(UNCOUNTED_BYTES + LIMIT)
        self.assertEqual(self.held, LIMIT)
        refused = self.get("registry", "list-repos", "q=x")
        self.stack.engine("10.5.0.1", 3000).last.answer(404, b"x" * 80_000)
        self.assertEqual(refused.status, 404)
        client.leave()
        self.assertEqual(self.held, 0)

    def test_lowered(self) -> None:
        """What counts nowhere is served also where a reload puts the bound below what is held."""
        client, _ = self.listing(UNCOUNTED_BYTES + LIMIT)
        self.stack.gateway._held.limit = 100_000
        refused = self.get("registry", "list-repos", "q=x")
        self.stack.engine("10.5.0.1", 3000).last.answer(404, b"no such thing")
        self.assertEqual(refused.status, 404)
        found = self.get("registry", "list-repos", "q=x")
        self.stack.engine("10.5.0.1", 3000).last.answer(body={"ok": True, "data": []})
        self.assertEqual(found.status, 200)
        client.leave()
        self.assertEqual(self.held, 0)

    def test_one_after_the_other(self) -> None:
        """Of several answers to one request the one that is read counts."""
        owner = json.dumps({"id": 7, "x": "x" * (UNCOUNTED_BYTES + REST)}).encode()
        client = self.get("registry", "list-repos", "owner=o")
        server = self.stack.engine("10.5.0.1", 3000)
        server.last.answer(body=owner)
        self.assertGreater(self.held, REST)
        server.last.send(b"HTTP/1.1 200 OK\r\ncontent-length: 80000\r\n\r\n[")
        self.assertEqual(self.held, 0)
        server.last.send(b" " * (UNCOUNTED_BYTES + 99))
        self.assertEqual(self.held, 100)
        server.last.send(b" " * (80_000 - UNCOUNTED_BYTES - 101) + b"]")
        self.assertEqual((client.status, self.held), (200, 0))

    def event(self, delivery: str) -> Client:
        """Have an event come that the memory service is told of."""
        body = json.dumps({"ref": delivery}).encode()
        lines = {
            "X-Forgejo-Event": "push",
            "X-Forgejo-Delivery": delivery,
            "X-Forgejo-Signature": hmac.digest(b"s", body, "sha256").hex(),
        }
        return self.stack.client().post("/v1/webhooks/forgejo", body, lines)

    def test_webhooks(self) -> None:
        """So do answers to what events lead to."""
        size = UNCOUNTED_BYTES + 50
        head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (size + 1)
        client = self.event("d1")
        self.service.last.send(head + b" " * size)
        self.assertGreaterEqual(self.held, 50)
        self.service.last.send(b" ")
        self.assertEqual((client.status, self.held), (200, 0))
        listing, asked = self.listing(LIMIT)
        client = self.event("d2")
        asked.send(b" " * (LIMIT - self.held))
        self.service.last.send(head + b" " * size)
        self.assertEqual(client.json["targets"][0]["outcome"], Outcome.REJECTED.value)
        listing.leave()
        self.assertEqual((client.status, self.held), (502, 0))

    def test_other_ways(self) -> None:
        """What comes otherwise than by HTTP counts when it is there."""
        listing, asked = self.listing(LIMIT)
        for size, status in (
            (2 * UNCOUNTED_BYTES, 200),
            (2 * UNCOUNTED_BYTES + 1, 503),
            (UNCOUNTED_BYTES, 200),
        ):
            client = self.get("workflow", "list", "namespace=a")
            self.temporal.answers[-1].callback(Page([], b"", size))
            self.assertEqual(client.status, status, size)
            self.assertEqual(self.held, LIMIT - UNCOUNTED_BYTES)
        self.end(asked)
        self.assertEqual(self.held, 0)
        self.assertEqual(listing.status, 503)

    def test_what_nobody_waits_for(self) -> None:
        """What is read when its client has left, to undo what it had begun, is given back too."""
        # The answers that tell what was begun are short.
        self.patch(reading, "UNCOUNTED_BYTES", 0)
        self.patch(s3, "PART_BYTES", 4)
        store = self.stack.engine("10.3.0.1", 9000)
        for end in (lambda begun: begun.send(b"un>"), lambda begun: begun.die()):
            client = self.stack.client().send(
                b"PUT /?bucket=b&key=k HTTP/1.1\r\nHost: g\r\nX-Service: s3\r\nX-Resource: put\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n"
            )
            begun = store.last
            told = b"<Begun><UploadId>u1</UploadId></Begun>"
            head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(told)
            client.leave()
            begun.send(head + told[:9])
            self.assertEqual(self.held, 9)
            end(begun.send(told[9:-3]))
            self.assertEqual(self.held, 0)
            self.stack.advance(11)

    def test_no_room_for_what_nobody_waits_for(self) -> None:
        """The log says that something may be left, and nothing is held."""
        lines = said(self)
        self.patch(reading, "UNCOUNTED_BYTES", 0)
        self.patch(s3, "PART_BYTES", 4)
        client = self.stack.client().send(
            b"PUT /?bucket=b&key=k HTTP/1.1\r\nHost: g\r\nX-Service: s3\r\nX-Resource: put\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n"
        )
        begun = self.stack.engine("10.3.0.1", 9000).last
        client.leave()
        self.stack.gateway._held.limit = 5
        begun.answer(body=b"<Begun><UploadId>u1</UploadId></Begun>")
        self.assertEqual(self.held, 0)
        self.assertIn("something may be left undone there", "".join(lines))

    @examples(60)
    @given(
        st.lists(
            st.tuples(
                st.sampled_from(("ask", "more", "more", "more", "end", "die", "leave", "wait")),
                st.integers(0, 3),
                st.sampled_from((1000, UNCOUNTED_BYTES, 150_000)),
            ),
            max_size=30,
        )
    )
    def test_always(self, moves: list[tuple[str, int, int]]) -> None:
        """Whatever happens the bound holds, and nothing is held when nobody is there."""
        under_way: list[tuple[Client, Asked]] = []
        for move, index, size in moves:
            if move == "ask" or not under_way:
                under_way.append(self.listing(size))
                continue
            client, asked = under_way[index % len(under_way)]
            if move == "more":
                asked.send(b" " * size)
            elif move == "end":
                self.end(asked)
            elif move == "die":
                asked.die()
            elif move == "leave":
                client.leave()
            else:
                self.stack.advance(5)
            self.assertLessEqual(0, self.held)
            self.assertLessEqual(self.held, LIMIT)
        for client, _ in under_way:
            client.leave()
        self.assertEqual((self.held, len(self.stack.gateway.exchanges)), (0, 0))


class CountingTests(TestCase):
    """`Reading`."""

    def test_refused(self) -> None:
        """What does not fit is not counted, and what was before stays so until it is let go."""
        held = HeldBytes(10)
        one = Reading(held)
        self.assertTrue(one.add(UNCOUNTED_BYTES + 9))
        self.assertFalse(one.add(2))
        self.assertEqual(held.now, 9)
        self.assertTrue(one.add(1))
        for _ in range(2):
            one.release()
            self.assertEqual(held.now, 0)
        self.assertTrue(one.add(UNCOUNTED_BYTES))
        self.assertEqual(held.now, 0)
