"""Behaviour of a connection: what goes out, what comes back, back-pressure, giving up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.error import (
    ConnectionDone,
    ConnectionLost,
)
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers
from twisted.web.iweb import (
    UNKNOWN_LENGTH,
    IAgent,
    IResponse,
)
from zope.interface.verify import verifyObject

from tests.support import examples
from tests.upstream.network import (
    CHUNKED,
    HTTP10,
    OK,
    AgentTestCase,
    HandProducer,
    Reader,
)
from twisted_gateway.upstream.connection import MAX_INTERIM
from twisted_gateway.upstream.errors import (
    Aborted,
    BadResponse,
    BodyFailed,
    InvalidRequest,
    Truncated,
    UpstreamError,
)
from twisted_gateway.upstream.request_body import BytesProducer
from twisted_gateway.upstream.response import UpstreamResponse


class RequestTests(AgentTestCase):
    """What goes out."""

    def test_interfaces(self) -> None:
        """Agent, response, request and body transport provide what they declare."""
        verifyObject(IAgent, self.agent)
        verifyObject(IAgent, self.agent.bound(1))
        result = self.ask()
        self.socket().say(OK)
        response, _ = self.answered(result)
        verifyObject(IResponse, response)

    def test_head(self) -> None:
        """A GET has its target, Host and the caller's headers, and no framing."""
        self.send(
            uri=b"http://Engine:8000/v1/models?a=b#frag", headers=Headers({b"x-k": [b"1", b"2"]})
        )
        socket = self.socket()
        self.assertEqual(
            socket.sent,
            b"GET /v1/models?a=b HTTP/1.1\r\nHost: engine:8000\r\nX-K: 1\r\nX-K: 2\r\n\r\n",
        )
        self.assertTrue(socket.transport.no_delay)

    def test_host(self) -> None:
        """The caller's Host wins; the scheme's own port is not named; IPv6 keeps its brackets."""
        for uri, headers, host in (
            (b"http://engine/", None, b"engine"),
            (b"http://engine:80", None, b"engine"),
            (b"https://engine:80?x", None, b"engine:80"),
            (b"http://[::1]:8000/", None, b"[::1]:8000"),
            (b"http://10.0.0.1/", Headers({b"host": [b"public"]}), b"public"),
        ):
            with self.subTest(uri=uri):
                self.start()
                self.send(uri=uri, headers=headers)
                if uri.startswith(b"https"):
                    self.socket().protocol.handshakeCompleted()
                self.assertIn(b"HTTP/1.1\r\nHost: " + host + b"\r\n", self.socket().sent)

    def test_own_fields(self) -> None:
        """The caller's fields about framing and connection do not go out."""
        names = (
            b"content-length", b"transfer-encoding", b"connection", b"keep-alive", b"upgrade",
            b"te", b"trailer", b"expect", b"proxy-connection",
        )  # fmt: skip
        headers = Headers({name: [b"evil"] for name in names})
        self.send(method=b"POST", headers=headers, body=BytesProducer([b"hi"]))
        self.assertEqual(
            self.socket().sent,
            b"POST /v1/models HTTP/1.1\r\nHost: engine:8000\r\nContent-Length: 2\r\n\r\nhi",
        )

    def test_no_injection(self) -> None:
        """Line breaks in a value cannot make another field."""
        self.send(headers=Headers({b"x-a": [b"1\r\nX-Evil: 2\rX-More: 3\n\nGET"]}))
        lines = self.socket().sent.split(b"\r\n")
        self.assertEqual(len(lines), 5)
        self.assertEqual([line for line in lines if line.lower().startswith(b"x-evil")], [])

    def test_control_characters(self) -> None:
        """A head in which a control character got past `Headers` is refused."""
        for value in (b"a\0b", b"a\nb", b"a\rb"):
            headers = Headers()
            headers._rawHeaders[b"X-A"] = [value]
            error = self.fails(self.ask(headers=headers), InvalidRequest)
            self.assertTrue(error.never_sent)
        self.assertEqual(self.net.dials, [])

    def test_invalid_requests(self) -> None:
        """Impossible methods, addresses and lengths fail before there is a connection."""
        secret = b"http://user:s3cret@engine/"
        for method, uri, length in (
            (b"GE T", b"http://engine/", 0),
            (b"", b"http://engine/", 0),
            (b"GET", secret, 0),
            (b"GET", b"ftp://engine/", 0),
            (b"GET", b"http://engine:0/", 0),
            (b"GET", b"http://engine:65536/", 0),
            (b"GET", b"http://engine/a b", 0),
            (b"GET", b"http://engine/a\r\nX: y", 0),
            (b"GET", b"http://engine\n/", 0),
            (b"GET", b"http://[::1/", 0),
            (b"GET", b"/v1/models", 0),
            (b"GET", b"http://engine/", -1),
            (b"GET", b"http://engine/", "12"),
        ):
            with self.subTest(uri=uri, length=length):
                body = HandProducer(length) if length else None
                error = self.fails(self.ask(method, uri, body=body), InvalidRequest)
                self.assertNotIn("s3cret", str(error))
        self.assertEqual(self.net.dials, [])

    def test_small_body_goes_in_one_write(self) -> None:
        """Head and body leave together."""
        self.send(method=b"POST", body=BytesProducer([b'{"a"', memoryview(b":1}")]))
        self.assertEqual(len(self.socket().transport.writes), 1)
        self.assertTrue(self.socket().sent.endswith(b'Content-Length: 7\r\n\r\n{"a":1}'))

    def test_no_body(self) -> None:
        """POST, PUT and PATCH without a body say so; others say nothing."""
        for method in (b"POST", b"PUT", b"PATCH"):
            self.send(method=method)
            self.assertIn(b"Content-Length: 0\r\n", self.socket().sent)
        self.send(method=b"DELETE")
        self.assertNotIn(b"Content-Length", self.socket().sent)

    def test_empty_body(self) -> None:
        """An empty body of known length sends the head alone, and its connection is kept."""
        socket = self.whole(method=b"POST", body=BytesProducer([]))
        self.send()
        self.assertIs(self.socket(), socket)

    def test_chunked(self) -> None:
        """A body of unknown length goes out chunked, the head with its first piece."""
        body = HandProducer()
        result = self.ask(b"POST", body=body)
        socket = self.socket()
        self.assertIn(b"Transfer-Encoding: chunked\r\n\r\n", socket.sent)
        body.consumer.write(b"")
        body.consumer.write(b"hello world, 20 byte")
        self.assertEqual(socket.sent, b"14\r\nhello world, 20 byte\r\n")
        body.done.callback(None)
        self.assertEqual(socket.sent, b"0\r\n\r\n")
        self.assertIsNone(socket.transport.producer)
        socket.say(OK)
        self.answered(result)
        self.assertEqual(socket.transport.closed, "")

    def test_back_pressure_reaches_the_producer(self) -> None:
        """The transport pauses and resumes the body; the consumer cannot be re-registered."""
        body = HandProducer(4)
        self.send(method=b"POST", body=body)
        producer = cast(Any, self.socket().transport.producer)
        producer.pauseProducing()
        producer.resumeProducing()
        self.assertEqual(body.events, ["pause", "resume"])
        self.assertRaises(RuntimeError, body.consumer.registerProducer, body, True)
        self.assertRaises(RuntimeError, body.consumer.unregisterProducer)
        body.consumer.write(b"1234")
        body.done.callback(None)
        producer.pauseProducing()
        producer.resumeProducing()
        self.assertEqual(body.events, ["pause", "resume"])

    def test_body_failures(self) -> None:
        """A body that fails, or is not as long as promised, aborts, is an error, never retried."""

        def too_long(body: HandProducer) -> None:
            body.consumer.write(b"12345")

        def too_short(body: HandProducer) -> None:
            body.consumer.write(b"123")
            body.done.callback(None)

        def broken(body: HandProducer) -> None:
            body.done.errback(ValueError("s3cret"))

        for spoil in (too_long, too_short, broken):
            with self.subTest(spoil=spoil.__name__):
                pooled = self.whole()
                body = HandProducer(4)
                result = self.ask(b"POST", body=body)
                spoil(body)
                error = self.fails(result, BodyFailed)
                self.assertNotIn("s3cret", str(error))
                self.assertEqual(pooled.transport.closed, "abort")
                self.clock.advance(0)
                body.consumer.write(b"late")
                self.assertEqual(len(self.net.sockets), len(self.net.dials))
                self.assertEqual(body.starts, 1)

    def test_body_that_raises(self) -> None:
        """`startProducing` raising is a failed body, with its cause."""
        body = HandProducer(4)
        fault = ValueError("no")

        def start(_: object) -> Deferred[None]:
            raise fault

        body.startProducing = start  # type: ignore[method-assign, assignment]
        error = self.fails(self.ask(b"POST", body=body), BodyFailed)
        self.assertIs(error.__cause__, fault)
        self.assertEqual(self.socket().transport.closed, "abort")

    def test_released_body(self) -> None:
        """A body whose bytes are gone cannot be sent: an error, nothing invented."""
        body = BytesProducer([b"1234"])
        body.release()
        self.fails(self.ask(b"POST", body=body), BodyFailed)

    def test_late_fault_of_a_whole_body(self) -> None:
        """A producer that fails after its last byte changes nothing."""
        body = HandProducer(4)
        result = self.ask(b"POST", body=body)
        body.consumer.write(b"1234")
        body.done.errback(ValueError("late"))
        self.socket().say(OK)
        _, reader = self.answered(result)
        self.assertIsInstance(reader.end, ResponseDone)


class ResponseTests(AgentTestCase):
    """What comes back."""

    def test_attributes(self) -> None:
        """Head fields come as they are, Content-Length included."""
        headers = Headers({b"x-q": [b"1"]})
        result = self.ask(headers=headers)
        self.socket().say(OK)
        response, reader = self.answered(result)
        self.assertEqual(response.version, (b"HTTP", 1, 1))
        self.assertEqual((response.code, response.phrase, response.length), (200, b"OK", 5))
        self.assertEqual(response.headers.getRawHeaders(b"content-length"), [b"5"])
        self.assertEqual(response.headers.getRawHeaders(b"x-a"), [b"1"])
        self.assertEqual(response.request.method, b"GET")
        self.assertEqual(response.request.absoluteURI, b"http://engine:8000/v1/models")
        self.assertIs(response.request.headers, headers)
        self.assertIsNone(response.previousResponse)
        response.setPreviousResponse(response)
        self.assertIs(response.previousResponse, response)
        response.setPreviousResponse(None)  # type: ignore[arg-type]
        self.assertEqual(reader.pieces, [b"hello"])
        self.assertRaises(RuntimeError, response.deliverBody, Reader())

    def _read(self, answer: bytes, cuts: list[int], closes: bool) -> tuple[Any, Any, bytes, Any]:
        """Status, length, body and end of an answer that is read in pieces."""
        result = self.ask()
        socket = self.socket()
        readers: list[Reader] = []

        def deliver(response: UpstreamResponse) -> UpstreamResponse:
            reader = Reader()
            readers.append(reader)
            response.deliverBody(reader)
            return response

        result = result.addCallback(deliver)
        start = 0
        for cut in [*cuts, len(answer)]:
            if cut > start:
                socket.say(answer[start:cut])
                start = cut
        if closes:
            socket.end()
        response = self.successResultOf(result)
        (reader,) = readers
        return response.code, response.length, reader.body, type(reader.end)

    def test_cut_anywhere(self) -> None:
        """However an answer is cut, it reads the same: at every position, and byte by byte."""
        interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: a\r\n\r\n"
        for answer, closes, expected in (
            (OK, False, (200, 5, b"hello", ResponseDone)),
            (interim + OK, False, (200, 5, b"hello", ResponseDone)),
            (CHUNKED, False, (200, UNKNOWN_LENGTH, b"abcde", ResponseDone)),
            (HTTP10, True, (200, UNKNOWN_LENGTH, b"hello", PotentialDataLoss)),
        ):
            for cuts in [[at] for at in range(len(answer))] + [list(range(len(answer)))]:
                with self.subTest(answer=answer, cuts=cuts):
                    self.start()
                    self.assertEqual(self._read(answer, cuts, closes), expected)
                    self.assertEqual(len(self.net.sockets), 1)
                    self.assertEqual(self.socket().transport.closed, "peer" if closes else "")

    def test_trailing_data(self) -> None:
        """Bytes behind an answer, in one read with it, spoil the connection, not the answer."""
        for answer, code, length, body in (
            (OK, 200, 5, b"hello"),
            (CHUNKED, 200, UNKNOWN_LENGTH, b"abcde"),
            (b"HTTP/1.1 204 No\r\n\r\n", 204, 0, b""),
        ):
            for trailing in (b"X", OK, b"\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"):
                with self.subTest(answer=answer, trailing=trailing):
                    self.start()
                    read = self._read(answer + trailing, [], False)
                    self.assertEqual(read, (code, length, body, ResponseDone))
                    self.assertEqual(self.socket().transport.closed, "lose")
                    self.send()
                    self.assertEqual(len(self.net.sockets), 2)

    @examples(40)
    @given(
        st.lists(st.binary(min_size=1, max_size=40), max_size=8),
        st.sampled_from(["chunked", "length", "close"]),
        st.sets(st.integers(0, 600), max_size=12),
    )
    def test_round_trip(self, pieces: list[bytes], framing: str, cuts: set[int]) -> None:
        """Any body, in any framing, read in any pieces, arrives as it was sent."""
        self.start()
        body = b"".join(pieces)
        if framing == "chunked":
            head = b"Transfer-Encoding: chunked\r\n\r\n"
            data = b"".join(b"%X\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
            answer = head + data + b"0\r\n\r\n"
        elif framing == "length":
            answer = b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        else:
            answer = b"\r\n" + body
        answer = b"HTTP/1.1 200 OK\r\n" + answer
        end = PotentialDataLoss if framing == "close" else ResponseDone
        read = self._read(answer, sorted(cuts), framing == "close")
        length: Any = len(body) if framing == "length" else UNKNOWN_LENGTH
        self.assertEqual(read, (200, length, body, end))

    @examples(60)
    @given(st.binary(max_size=200), st.sets(st.integers(0, 200), max_size=4), st.booleans())
    def test_any_bytes(self, noise: bytes, cuts: set[int], valid: bool) -> None:
        """Whatever a server sends, a request ends once, in an answer or an UpstreamError."""
        self.start()
        result = self.ask()
        outcomes: list[object] = []
        noted = result.addBoth(outcomes.append)
        socket = self.socket()
        answer = (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" if valid else b""
        ) + noise
        start = 0
        for cut in [*sorted(cuts), len(answer)]:
            socket.say(answer[start:cut])
            start = max(start, cut)
        if socket.transport.closed:
            self.clock.advance(0)
        else:
            socket.end()
        self.assertIsNone(self.successResultOf(noted))
        (outcome,) = outcomes
        if isinstance(outcome, Failure):
            self.assertIsInstance(outcome.value, UpstreamError)
        else:
            assert isinstance(outcome, UpstreamResponse)
            reader = Reader()
            outcome.deliverBody(reader)
            self.assertIsNotNone(reader.end)

    def test_one_delivery_per_read(self) -> None:
        """All chunks of one read come as one piece, before the end."""
        for answer in (CHUNKED, OK):
            result = self.ask()
            self.socket().say(answer)
            _, reader = self.answered(result)
            self.assertEqual(len(reader.pieces), 1)
        result = self.ask()
        head, _, rest = CHUNKED.partition(b"\r\n\r\n")
        self.socket().say(head + b"\r\n\r\n")
        _, reader = self.answered(result)
        self.socket().say(b"1\r\na\r\n" * 50)
        self.socket().say(rest)
        self.assertEqual(reader.pieces, [b"a" * 50, b"abcde"])

    def test_no_body(self) -> None:
        """HEAD, 204 and 304 have no body, whatever their heads announce."""
        for method, answer, code in (
            (b"HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", 200),
            (b"HEAD", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 200),
            (b"HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200),
            (b"HEAD", b"HTTP/1.1 200 OK\r\n\r\n", 200),
            (b"HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200),
            (b"GET", b"HTTP/1.1 204 No\r\n\r\n", 204),
            (b"GET", b"HTTP/1.1 304 Not\r\nContent-Length: 5\r\n\r\n", 304),
        ):
            with self.subTest(method=method, answer=answer):
                self.start()
                result = self.ask(method)
                self.socket().say(answer)
                response, reader = self.answered(result)
                self.assertEqual((response.code, response.length), (code, 0))
                self.assertEqual(reader.pieces, [])
                self.assertIsInstance(reader.end, ResponseDone)
                closed = "lose" if method == b"HEAD" else ""
                self.assertEqual(self.socket().transport.closed, closed)

    def test_refused_answers(self) -> None:
        """What cannot be relayed safely is a BadResponse: aborted, told once, never retried."""
        length = b"Content-Length: 3\r\n"
        chunked = b"Transfer-Encoding: chunked\r\n"
        for answer in (
            b"SSH-2.0-OpenSSH\r\n",
            b"HTTP/2.0 200 OK\r\n" + length + b"\r\nabc",
            b"HTTP/1.1 099 No\r\n\r\n",
            b"HTTP/1.1 2000 OK\r\n\r\n",
            b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
            b"HTTP/1.1 101 Switching\r\n\r\n",
            b"HTTP/1.1 199 Odd\r\n" + length + b"\r\nabc",
            b"HTTP/1.1 200 OK\r\n" + length + chunked + b"\r\n3\r\nabc\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n" + chunked + length + b"\r\n3\r\nabc\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n" + length + b"Content-Length: 4\r\n\r\nabc",
            b"HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\nabc",
            b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nabc",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\n\r\nabc",
            b"HTTP/1.1 200 OK\r\n" + chunked + chunked + b"\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nX-A: b\r\n c\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nX-A : b\r\n\r\n",
            b"HTTP/1.1 200 OK\nX-A: b\n\n",
            b"HTTP/1.1 200 OK\r\nX-A: b\0c\r\n\r\n",
            b"HTTP/1.1 103 Early\r\n\r\n" * (MAX_INTERIM + 1) + OK,
        ):
            with self.subTest(answer=answer):
                self.start()
                self.whole()
                result = self.ask()
                self.socket().say(answer)
                self.fails(result, BadResponse)
                self.assertEqual(self.socket().transport.closed, "abort")
                self.clock.advance(0)
                self.assertEqual(len(self.net.sockets), 1)

    def test_large_heads(self) -> None:
        """A head over the bound is refused, however it comes; one within it passes."""
        self.start(max_head_bytes=1000)
        for step in (1, 100, 100_000):
            for head in (
                b"X-A: " + b"a" * 1100,
                b"\r\n".join(b"X-%d: a" % number for number in range(200)),
                b"a" * 1100,
            ):
                result = self.ask()
                answer = b"HTTP/1.1 200 OK\r\n" + head + b"\r\nContent-Length: 0\r\n\r\n"
                for at in range(0, len(answer), step):
                    self.socket().say(answer[at : at + step])
                error = self.fails(result, BadResponse)
                self.assertIn("HTTP" if head[:1] == b"a" and step > 1000 else "head", error.reason)
        result = self.ask()
        self.socket().say(
            b"HTTP/1.1 200 OK\r\nX-A: " + b"a" * 900 + b"\r\nContent-Length: 5000\r\n\r\n"
        )
        _, reader = self.answered(result)
        self.socket().say(b"b" * 5000)
        self.assertIsInstance(reader.end, ResponseDone)

    def test_large_trailers(self) -> None:
        """Trailers and chunk extensions are bounded too; the data before them is delivered."""
        for rest in (
            b"0\r\n" + b"X-T: a\r\n" * 300,
            b"0\r\nX-T: " + b"a" * 2000,
            b"1;" + b"e" * 2000,
        ):
            for step in (100, 100_000):
                with self.subTest(rest=rest[:10], step=step):
                    self.start(max_head_bytes=1000)
                    result = self.ask()
                    self.socket().say(
                        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
                    )
                    _, reader = self.answered(result)
                    for at in range(0, len(rest), step):
                        self.socket().say(rest[at : at + step])
                    self.assertEqual(reader.body, b"abc")
                    self.assertIsInstance(reader.end, BadResponse)
                    self.assertEqual(self.socket().transport.closed, "abort")

    def test_broken_bodies(self) -> None:
        """A body that breaks says how, after the data that came before."""
        for head, data, close, kind in (
            (b"Content-Length: 9\r\n\r\n", b"abc", ConnectionDone(), Truncated),
            (b"Content-Length: 9\r\n\r\n", b"abc", ConnectionLost(), Truncated),
            (b"Transfer-Encoding: chunked\r\n\r\n", b"3\r\nabc\r\n", ConnectionDone(), Truncated),
            (b"Transfer-Encoding: chunked\r\n\r\n", b"3\r\nabc\r\nzz", None, BadResponse),
            (b"\r\n", b"abc", ConnectionLost(), Truncated),
            (b"\r\n", b"abc", ConnectionDone(), PotentialDataLoss),
        ):
            for early in (True, False):
                with self.subTest(head=head, data=data, close=close, early=early):
                    self.start()
                    result = self.ask()
                    self.socket().say(b"HTTP/1.1 200 OK\r\n" + head + data)
                    reader = self.answered(result)[1] if early else None
                    if close is not None:
                        self.socket().end(close)
                    reader = reader or self.answered(result)[1]
                    self.assertEqual(reader.pieces, [b"abc"])
                    self.assertIsInstance(reader.end, kind)

    def test_lost_in_the_head(self) -> None:
        """A connection that ends inside the head is an answer cut short, never retried."""
        self.whole()
        result = self.ask()
        self.socket().say(OK[:10])
        self.socket().end()
        self.fails(result, Truncated)
        self.assertEqual(len(self.net.sockets), 1)


class FlowTests(AgentTestCase):
    """Back-pressure, re-entrancy, giving up."""

    HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"

    def test_held_until_delivery(self) -> None:
        """Bytes that come before `deliverBody` are held, with the socket paused until then."""
        result = self.ask()
        transport = self.socket().transport
        self.socket().say(self.HEAD)
        self.assertEqual(transport.producerState, "producing")
        self.socket().say(b"abc")
        self.assertEqual(transport.producerState, "paused")
        self.socket().say(b"de")
        _, reader = self.answered(result)
        self.assertEqual(reader.pieces, [b"abcde"])
        self.assertEqual(transport.producerState, "producing")
        self.socket().say(b"fghij")
        self.assertEqual(reader.pieces, [b"abcde", b"fghij"])
        self.assertIsInstance(reader.end, ResponseDone)

    def test_held_whole(self) -> None:
        """A whole answer is held without pausing; its connection is free at once."""
        result = self.ask()
        self.socket().say(OK)
        self.assertEqual(self.socket().transport.pauses, 0)
        other = self.ask()
        self.assertEqual(len(self.net.sockets), 1)
        response, reader = self.answered(result)
        self.assertEqual((reader.body, type(reader.end)), (b"hello", ResponseDone))
        response.abort()
        reader.tap.abortConnection()
        reader.tap.pauseProducing()
        reader.tap.resumeProducing()
        self.assertEqual(self.socket().transport.producerState, "producing")
        self.socket().say(OK)
        self.answered(other)
        self.assertEqual(self.socket().transport.closed, "")

    def test_pause_and_resume(self) -> None:
        """The reader's pauses are the socket's; a connection is kept only when reading again."""
        result = self.ask()
        transport = self.socket().transport
        self.socket().say(self.HEAD)
        _, reader = self.answered(result)
        reader.tap.pauseProducing()
        self.assertEqual(transport.producerState, "paused")
        reader.tap.resumeProducing()
        self.assertEqual(transport.producerState, "producing")
        reader.tap.pauseProducing()
        self.socket().say(b"0123456789")
        self.assertIsInstance(reader.end, ResponseDone)
        self.assertEqual(transport.producerState, "producing")
        self.send()
        self.assertEqual(len(self.net.sockets), 1)

    def test_pause_while_taking_what_was_held(self) -> None:
        """A reader that pauses on its first bytes is not resumed by the delivery."""
        result = self.ask()
        self.socket().say(self.HEAD + b"abc")
        response = self.successResultOf(result)
        response.deliverBody(Reader(lambda reader: reader.tap.pauseProducing()))
        self.assertEqual(self.socket().transport.producerState, "paused")

    def test_give_up(self) -> None:
        """Each way to give a body up aborts at once; no data follows, and the end says Aborted."""
        ways: list[Callable[[UpstreamResponse, Reader], None]] = [
            lambda response, reader: response.abort(),
            lambda response, reader: reader.tap.stopProducing(),
            lambda response, reader: reader.tap.loseConnection(),
            lambda response, reader: reader.tap.abortConnection(),
        ]
        for way in ways:
            result = self.ask()
            socket = self.socket()
            socket.say(self.HEAD)
            response, reader = self.answered(result)
            way(response, reader)
            self.assertEqual(socket.transport.closed, "abort")
            socket.say(b"0123456789")
            self.assertEqual((reader.pieces, reader.ends), ([], []))
            response.abort()
            self.clock.advance(0)
            self.assertIsInstance(reader.end, Aborted)

    def test_give_up_without_a_reader(self) -> None:
        """An answer whose body nobody took can be given up too."""
        result = self.ask()
        self.socket().say(self.HEAD + b"abc")
        response = self.successResultOf(result)
        response.abort()
        self.clock.advance(0)
        reader = Reader()
        response.deliverBody(reader)
        self.assertEqual((reader.body, type(reader.end)), (b"abc", Aborted))

    def test_abort_from_within(self) -> None:
        """`dataReceived` may abort, also in the read that has the end: no clean end follows."""
        result = self.ask()
        self.socket().say(self.HEAD)
        reader = Reader(lambda reader: reader.tap.abortConnection())
        self.successResultOf(result).deliverBody(reader)
        self.socket().say(b"0123456789")
        self.assertEqual(self.socket().transport.closed, "abort")
        self.clock.advance(0)
        self.assertIsInstance(reader.end, Aborted)
        self.send()
        self.assertEqual(len(self.net.sockets), 2)

    def test_abort_on_the_head(self) -> None:
        """Whoever gets the answer may abort it before its body, of the same read, is delivered."""
        result = self.ask()
        aborted = result.addCallback(lambda response: response.abort())
        self.socket().say(OK)
        self.assertEqual(self.socket().transport.closed, "abort")
        self.assertIsNone(self.successResultOf(aborted))

    def test_synchronous_loss(self) -> None:
        """A transport that is lost inside `abortConnection` does no harm."""
        result = self.ask()
        socket = self.socket()
        socket.transport.abortConnection = socket.end  # type: ignore[method-assign]
        socket.say(self.HEAD)
        reader = Reader(lambda reader: reader.tap.abortConnection())
        self.successResultOf(result).deliverBody(reader)
        socket.say(b"0123456789")
        self.assertIsInstance(reader.end, Aborted)

    def test_request_from_within(self) -> None:
        """A reader may send the next request as it is told the end: over the same connection."""
        others: list[Deferred[UpstreamResponse]] = []

        class Next(Reader):
            def connectionLost(inner, reason: Failure = connectionDone) -> None:
                super().connectionLost(reason)
                others.append(self.ask(uri=b"http://engine:8000/next"))

        result = self.ask()
        self.socket().say(self.HEAD)
        self.successResultOf(result).deliverBody(Next())
        socket = self.socket()
        socket.sent  # noqa: B018 -- reading it clears it
        socket.say(b"0123456789")
        self.assertEqual(len(self.net.sockets), 1)
        self.assertIn(b"GET /next", socket.sent)
        socket.say(OK)
        self.assertEqual(self.answered(others[0])[1].body, b"hello")

    def test_read_within_a_read(self) -> None:
        """Data that a transport delivers inside a delivery waits for its turn."""
        result = self.ask()
        socket = self.socket()
        socket.say(self.HEAD)
        rest = [b"56789"]

        def more(reader: Reader) -> None:
            if rest:
                socket.say(rest.pop())
                self.assertEqual(reader.body, b"01234")

        reader = Reader(more)
        self.successResultOf(result).deliverBody(reader)
        socket.say(b"01234")
        self.assertEqual(reader.pieces, [b"01234", b"56789"])
        self.assertIsInstance(reader.end, ResponseDone)

    def test_reader_that_raises(self) -> None:
        """A fault of the reader's reaches the transport's owner, and the next read works."""
        result = self.ask()
        socket = self.socket()
        socket.say(self.HEAD)

        def fault(reader: Reader) -> None:
            raise ZeroDivisionError

        reader = Reader(fault)
        self.successResultOf(result).deliverBody(reader)
        self.assertRaises(ZeroDivisionError, socket.say, b"01")
        reader.on_data = None
        socket.say(b"23456789")
        self.assertEqual(reader.body, b"0123456789")

    def test_early_answer(self) -> None:
        """An answer to half a request stops the body, is delivered, and ends the connection."""
        for length, write in ((10, b"12345"), (UNKNOWN_LENGTH, b"12345")):
            body = HandProducer(length)
            result = self.ask(b"POST", body=body)
            body.consumer.write(write)
            socket = self.socket()
            socket.say(b"HTTP/1.1 413 Too Large\r\nContent-Length: 5\r\n\r\nhe")
            response, reader = self.answered(result)
            self.assertEqual(body.events, ["stop"])
            self.assertIsNone(socket.transport.producer)
            socket.sent  # noqa: B018 -- reading it clears it
            body.consumer.write(b"6")
            body.done.callback(None)
            self.assertEqual(socket.sent, b"")
            socket.say(b"llo")
            self.assertEqual((response.code, reader.body), (413, b"hello"))
            self.assertIsInstance(reader.end, ResponseDone)
            self.assertEqual(socket.transport.closed, "abort")

    def test_interim_answer_stops_nothing(self) -> None:
        """A 100 leaves the body going."""
        body = HandProducer(2)
        result = self.ask(b"POST", body=body)
        self.socket().say(b"HTTP/1.1 100 Continue\r\n\r\n")
        body.consumer.write(b"12")
        body.done.callback(None)
        self.socket().say(OK)
        self.answered(result)
        self.assertEqual(body.events, [])
        self.assertEqual(self.socket().transport.closed, "")

    def test_answer_between_last_byte_and_done(self) -> None:
        """A producer that is slow to say that it is done does not cost the connection."""
        body = HandProducer(2)
        result = self.ask(b"POST", body=body)
        body.consumer.write(b"12")
        self.socket().say(OK)
        self.answered(result)
        self.assertIsNone(self.socket().transport.producer)
        self.send()
        self.assertEqual(len(self.net.sockets), 1)
