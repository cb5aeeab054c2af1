"""A run: when clients ask, how answers are read, who asks again, who leaves."""

from __future__ import annotations

from tests.load.harness import (
    CONTENT,
    DONE,
    END,
    HEAD,
    USAGE,
    RunTestCase,
    answer,
    arrival,
    chunk,
    refusal,
)
from twisted_gateway.load.results import Ending


class Asking(RunTestCase):
    """What goes on the wire, where and when."""

    def test_asks_at_its_time(self) -> None:
        """A client asks when its time has come, and not before."""
        run = self.play(arrival(at=3.0))
        self.clock.advance(2.9)
        self.assertEqual(self.net.sockets, [])
        self.clock.advance(0.1)
        self.complete()
        self.assertEqual(run.requests[0].tries[0].at, 3.0)

    def test_speed(self) -> None:
        """At speed 20 a model second takes a twentieth, and times are recorded in model seconds."""
        run = self.play(arrival(at=20.0), speed=20.0)
        self.clock.advance(1.0)
        self.clock.advance(0.5)
        self.complete()
        self.assertEqual(run.requests[0].ttft, 10.0)

    def test_body(self) -> None:
        """The body asks for a stream with usage, and for an answer of exactly that length."""
        self.play(arrival(answer_tokens=7))
        _, body = self.request()
        self.assertEqual(
            {name: body[name] for name in ("model", "max_tokens", "ignore_eos", "stream")},
            {"model": "m", "max_tokens": 7, "ignore_eos": True, "stream": True},
        )
        self.assertEqual(body["stream_options"], {"include_usage": True})
        self.run_.stop()

    def test_body_without_exact_answers(self) -> None:
        """Else it says the workload's max_tokens and nothing that only some engines know."""
        self.play(arrival(max_tokens=512), exact=False)
        _, body = self.request()
        self.assertEqual(body["max_tokens"], 512)
        self.assertNotIn("ignore_eos", body)
        self.run_.stop()

    def test_headers(self) -> None:
        """Tenant, priority, key and a request id of its own are in the head."""
        self.play(arrival(priority="batch"), api_key="secret", seed=4)
        head, _ = self.request()
        lines = set(head.lower().split(b"\r\n"))
        self.assertTrue(
            lines
            >= {
                b"x-tenant: ann",
                b"x-priority: batch",
                b"authorization: bearer secret",
                b"x-request-id: load-4-0-1",
            },
            lines,
        )
        self.run_.stop()

    def test_turns(self) -> None:
        """Several addresses take turns."""
        self.play(arrival(), arrival(), arrival(), to=("http://one:80", "http://two:80"))
        self.assertEqual([dial.uri.host for dial in self.net.dials], [b"one", b"two", b"one"])
        self.run_.stop()

    def test_direct(self) -> None:
        """Who goes past the gateway asks the engine, if that is known."""
        self.play(arrival(direct=True), arrival(), direct_to="http://engine:80")
        self.assertEqual([dial.uri.host for dial in self.net.dials], [b"engine", b"one"])
        self.run_.stop()

    def test_late(self) -> None:
        """How late the tool itself was is noted."""
        run = self.play(arrival(at=1.0))
        self.clock.advance(1.5)
        self.assertEqual(run.late, 0.5)
        run.stop()


class Reading(RunTestCase):
    """What an answer is taken for."""

    def test_stream(self) -> None:
        """A stream with content and its last event has completed; usage counts its tokens."""
        run = self.play(arrival())
        self.clock.advance(2.0)
        self.socket().say(HEAD + chunk(CONTENT))
        self.clock.advance(3.0)
        self.socket().say(chunk(USAGE + DONE) + END)
        self.successResultOf(self.over)
        request, one = self.one(run)
        self.assertEqual(
            (request.ending, request.ttft, request.whole), (Ending.COMPLETED, 2.0, 5.0)
        )
        self.assertEqual((one.tokens, one.status, run.completed, run.tokens), (9, 200, 1, 9))

    def test_byte_by_byte(self) -> None:
        """The pieces in which a stream comes make no difference."""
        run = self.play(arrival())
        stream = b": keep-alive position=3 eta=42\n\n" + CONTENT + DONE
        self.socket().say(HEAD)
        for byte in stream:
            self.socket().say(chunk(bytes([byte])))
        self.socket().say(END)
        request, one = self.one(run)
        self.assertEqual((request.ending, one.tokens, one.position), (Ending.COMPLETED, 1, 3))

    def test_no_last_event(self) -> None:
        """A stream that ends without its last event has failed, however clean its end."""
        run = self.play(arrival())
        self.socket().say(HEAD + chunk(CONTENT) + END)
        request, one = self.one(run)
        self.assertEqual(request.ending, Ending.FAILED)
        self.assertIn("without its last event", one.reason)

    def test_error_event(self) -> None:
        """An error event fails the try, with the engine's words."""
        run = self.play(arrival())
        event = b'event: error\ndata: {"type":"error","error":{"message":"it broke"}}\n\n'
        self.socket().say(HEAD + chunk(CONTENT + event + DONE) + END)
        request, one = self.one(run)
        self.assertEqual((request.ending, one.reason), (Ending.FAILED, "it broke"))

    def test_refusal_in_a_stream(self) -> None:
        """The gate's error in a stream is a refusal, with its reason."""
        run = self.play(arrival())
        event = b"event: error\ndata: " + refusal("park_timeout", retry_after=7) + b"\n\n"
        self.socket().say(HEAD + chunk(b": keep-alive\n\n" + event) + END)
        request, one = self.one(run)
        self.assertEqual(
            (request.ending, one.reason, one.retry_after), (Ending.REFUSED, "park_timeout", 7)
        )

    def test_refusal(self) -> None:
        """A 503 is a refusal, with the problem's reason and the header's Retry-After."""
        run = self.play(arrival())
        self.socket().say(answer(503, refusal("queue_full"), Retry_After="9"))
        request, one = self.one(run)
        self.assertEqual(
            (request.ending, one.reason, one.retry_after, run.refused),
            (Ending.REFUSED, "queue_full", 9.0, 1),
        )

    def test_status(self) -> None:
        """Any other status is a failure that says what the server said."""
        run = self.play(arrival(tries=3))
        self.socket().say(answer(400, b'{"error":{"message":"no such model"}}'))
        self.successResultOf(self.over)
        request, one = self.one(run)
        self.assertEqual(request.ending, Ending.FAILED)
        self.assertEqual(one.reason, "status 400: no such model")

    def test_cut(self) -> None:
        """An answer that is cut has failed."""
        run = self.play(arrival())
        self.socket().say(HEAD + chunk(CONTENT))
        self.socket().end()
        request, one = self.one(run)
        self.assertEqual(request.ending, Ending.FAILED)
        self.assertTrue(one.reason)

    def test_whole_answer(self) -> None:
        """An answer that is no stream has completed with its last byte, and has no TTFT."""
        run = self.play(arrival(stream=False))
        body = b'{"choices":[{"message":{"content":"hi"}}],"usage":{"completion_tokens":4}}'
        self.socket().say(answer(200, body, Content_Type="application/json"))
        request, one = self.one(run)
        self.assertEqual((request.ending, one.tokens, request.ttft), (Ending.COMPLETED, 4, None))

    def test_cut_whole_answer(self) -> None:
        """An answer that is no stream and not whole has failed."""
        run = self.play(arrival(stream=False))
        self.socket().say(answer(200, b"{}")[:-1])
        self.socket().end()
        self.assertEqual(run.requests[0].ending, Ending.FAILED)


class Waiting(RunTestCase):
    """What a client sees of its time in the gateway's queue."""

    def test_head(self) -> None:
        """Without comments, what came before the engine's head is the time it was kept."""
        run = self.play(arrival())
        self.clock.advance(4.0)
        self.socket().say(HEAD)
        self.clock.advance(3.0)
        self.socket().say(chunk(CONTENT + DONE) + END)
        self.assertEqual(run.requests[0].tries[0].kept, 4.0)

    def test_places(self) -> None:
        """With places told, it was kept until the next comment would have come."""
        run = self.play(arrival())
        for place in (b" position=3 eta=42", b" position=1 eta=9"):
            self.clock.advance(15.0)
            self.socket().say(
                (HEAD if b"3" in place else b"") + chunk(b": keep-alive%s\n\n" % place)
            )
        self.assertEqual(run.held, 1)
        self.clock.advance(40.0)
        self.socket().say(chunk(CONTENT + DONE) + END)
        _, one = self.one(run)
        self.assertEqual((one.kept, one.position, one.eta, run.held), (45.0, 3, 42.0, 0))
        self.assertEqual([(place.at, place.position) for place in run.places], [(15, 3), (30, 1)])

    def test_let_in(self) -> None:
        """A comment without a place after one with ends the wait."""
        run = self.play(arrival())
        self.clock.advance(15.0)
        self.socket().say(HEAD + chunk(b": keep-alive position=1\n\n"))
        self.clock.advance(8.0)
        self.socket().say(chunk(b": keep-alive\n\n"))
        self.assertEqual(run.held, 0)
        self.clock.advance(30.0)
        self.socket().say(chunk(CONTENT + DONE) + END)
        self.assertEqual(run.requests[0].tries[0].kept, 23.0)

    def test_bare_comments(self) -> None:
        """Comments that tell no place leave it unknown: they come in prefill too."""
        run = self.play(arrival())
        self.clock.advance(15.0)
        self.socket().say(HEAD + chunk(b": keep-alive\n\n"))
        self.socket().say(chunk(CONTENT + DONE) + END)
        self.assertIsNone(run.requests[0].tries[0].kept)

    def test_comments_in_content(self) -> None:
        """What an answer says of places in a queue is no comment."""
        run = self.play(arrival())
        event = CONTENT.replace(b"word", b": keep-alive position=3")
        self.socket().say(HEAD + chunk(event + DONE) + END)
        self.assertEqual(run.places, [])


class AskingAgain(RunTestCase):
    """Tries, waits and patience."""

    def test_retry_after(self) -> None:
        """A refused client asks again after as long as it was told."""
        run = self.play(arrival(tries=2))
        self.socket().say(answer(503, refusal("queue_full"), Retry_After="9"))
        self.clock.advance(8.9)
        self.assertEqual(len(run.requests[0].tries), 1)
        self.clock.advance(0.1)
        self.complete()
        request, one = self.one(run)
        self.assertEqual((request.ending, one.at, request.ttft), (Ending.COMPLETED, 9.0, 9.0))
        self.successResultOf(self.over)

    def test_retry_after_at_speed(self) -> None:
        """At a speed, Retry-After is model seconds, unless it is said to be the wall's."""
        for wall, at in ((False, 8.0), (True, 80.0)):
            self.start()
            run = self.play(arrival(tries=2), speed=10.0, retry_after_is_wall=wall)
            self.socket().say(answer(503, b"", Retry_After="8"))
            self.clock.advance(at / 10)
            self.complete()
            self.assertAlmostEqual(run.requests[0].tries[1].at, at)

    def test_backs_off(self) -> None:
        """Without a Retry-After the waits double from half a second, less a quarter at most."""
        run = self.play(arrival(tries=7))
        tries = run.requests[0].tries
        for most in (0.5, 1.0, 2.0, 4.0, 8.0, 8.0):
            count = len(tries)
            self.socket().say(answer(500))
            self.clock.advance(0.74 * most)
            self.assertEqual(len(tries), count)
            self.clock.advance(0.27 * most)
            self.assertEqual(len(tries), count + 1)
        self.socket().say(answer(500))
        self.successResultOf(self.over)

    def test_refused_connections(self) -> None:
        """A connection that cannot be had is tried again too."""
        run = self.play(arrival(tries=2))
        self.socket().end()
        self.clock.advance(1.0)
        self.complete()
        self.assertEqual(
            [one.ending for one in run.requests[0].tries], [Ending.FAILED, Ending.COMPLETED]
        )

    def test_no_tries_left(self) -> None:
        """After its last try a client has been refused."""
        run = self.play(arrival(tries=1))
        self.socket().say(answer(429))
        self.assertEqual(run.requests[0].ending, Ending.REFUSED)
        self.successResultOf(self.over)

    def test_no_patience_left(self) -> None:
        """Who would have to wait beyond its patience has been refused, there and then."""
        run = self.play(arrival(tries=5, patience_seconds=8.0))
        self.socket().say(answer(503, b"", Retry_After="9"))
        request, _ = self.one(run)
        self.assertEqual((request.ending, request.end), (Ending.REFUSED, 0.0))
        self.successResultOf(self.over)

    def test_gives_up(self) -> None:
        """A client whose patience runs out leaves, and its connection is dropped."""
        run = self.play(arrival(patience_seconds=30.0))
        self.clock.advance(30.0)
        self.clock.advance(0)
        request, one = self.one(run)
        self.assertEqual(
            (request.ending, one.ending, one.end), (Ending.GAVE_UP, Ending.GAVE_UP, 30)
        )
        self.assertEqual(self.socket().transport.closed, "abort")
        self.successResultOf(self.over)

    def test_gives_up_in_a_stream(self) -> None:
        """It leaves in the middle of an answer too; what had come is noted."""
        run = self.play(arrival(patience_seconds=30.0))
        self.socket().say(HEAD + chunk(CONTENT))
        self.clock.advance(30.0)
        self.clock.advance(0)
        _, one = self.one(run)
        self.assertEqual((one.ending, one.tokens, one.content), (Ending.GAVE_UP, 1, 0.0))
        self.assertEqual(self.socket().transport.closed, "abort")

    def test_patience_counts_from_its_time(self) -> None:
        """All tries together have the patience that began with the first."""
        run = self.play(arrival(tries=2, patience_seconds=10.0))
        self.socket().say(answer(503, b"", Retry_After="6"))
        self.clock.advance(6.0)
        self.clock.advance(4.0)
        request, _ = self.one(run)
        self.assertEqual((request.ending, request.end), (Ending.GAVE_UP, 10.0))

    def test_unserved(self) -> None:
        """Where the first answer says that nobody will be served, the run ends by itself."""
        for status in (401, 403, 404, 405):
            self.start()
            run = self.play(arrival(), arrival(), arrival(at=50.0))
            self.socket(0).say(answer(status, b'{"error":{"message":"no such model"}}'))
            self.assertNoResult(self.over)
            self.clock.advance(0)
            self.clock.advance(0)
            self.successResultOf(self.over)
            self.assertEqual(
                run.unserved, f"http://one:80 serves nobody: status {status}: no such model"
            )
            self.assertEqual(self.socket(1).transport.closed, "abort")

    def test_served_before(self) -> None:
        """Where somebody else was answered, it is that client's own affair; so is a 400."""
        run = self.play(arrival(), arrival(), arrival(at=1.0))
        self.socket(0).say(answer(400))
        self.socket(1).say(answer(404))
        self.clock.advance(1.0)
        self.complete()
        self.successResultOf(self.over)
        self.assertIsNone(run.unserved)
        self.assertEqual(run.requests[2].ending, Ending.COMPLETED)

    def test_one_address_unserved(self) -> None:
        """Each address has a first answer of its own."""
        run = self.play(arrival(), arrival(), to=("http://one:80", "http://two:80"))
        self.complete(self.socket(0))
        self.socket(1).say(answer(404))
        self.successResultOf(self.over)
        self.clock.advance(0)
        self.assertEqual(run.unserved, "http://two:80 serves nobody: status 404")

    def test_stop(self) -> None:
        """A run that is stopped ends at once; who was under way, or had not come, is so marked."""
        run = self.play(arrival(), arrival(), arrival(at=50.0))
        self.complete(self.socket(0))
        run.stop()
        self.clock.advance(0)
        self.successResultOf(self.over)
        self.assertEqual(
            [one.ending for one in run.requests],
            [Ending.COMPLETED, Ending.INTERRUPTED, Ending.INTERRUPTED],
        )
        self.assertEqual(run.open, 0)
