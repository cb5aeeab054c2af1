"""Behaviour of the upstream client as a whole: connecting, cancelling, pool, retry, close."""

from __future__ import annotations

import gc
import weakref
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import (
    ConnectionDone,
    ConnectionLost,
    ConnectionRefusedError,
    DNSLookupError,
    NoRouteError,
)
from twisted.internet.error import TimeoutError as ConnectTimeout
from twisted.internet.protocol import Protocol
from twisted.web.client import URI, ResponseDone
from twisted.web.http_headers import Headers

from tests.upstream.network import (
    CHUNKED,
    OK,
    AgentTestCase,
    HandProducer,
    Reader,
    Socket,
)
from twisted_gateway.upstream.errors import (
    Aborted,
    BadResponse,
    ConnectFailed,
    ConnectTimedOut,
    Disconnected,
    HandshakeFailed,
)
from twisted_gateway.upstream.request_body import BytesProducer


class CancelTests(AgentTestCase):
    """Cancelling at each stage."""

    def test_connecting(self) -> None:
        """While connecting: the endpoint is cancelled, and what it still brings is refused."""
        self.net.manual = True
        result = self.ask()
        result.cancel()
        self.failureResultOf(result, CancelledError)
        (dial,) = self.net.dials
        self.assertTrue(dial.cancelled)
        self.assertIsNone(dial.factory.buildProtocol(None))  # type: ignore[arg-type]

    def test_connecting_to_a_deaf_endpoint(self) -> None:
        """A connection that an endpoint makes all the same is aborted when it comes."""
        self.net.manual = True
        result = self.ask(uri=b"https://engine/")
        socket = Socket(self.clock, self.net.dials[0].factory)
        result.cancel()
        self.failureResultOf(result, CancelledError)
        self.assertEqual(socket.transport.closed, "abort")
        self.clock.advance(0)

    def test_waiting(self) -> None:
        """While waiting for the head, on a new or a pooled connection: aborted, not retried."""
        for pooled in (False, True):
            with self.subTest(pooled=pooled):
                self.start()
                if pooled:
                    self.whole()
                body = HandProducer(9)
                result = self.ask(b"POST", body=body)
                result.cancel()
                self.failureResultOf(result, CancelledError)
                self.assertEqual(self.socket().transport.closed, "abort")
                self.assertEqual(body.events, ["stop"])
                self.clock.advance(0)
                self.assertEqual(len(self.net.dials), 1)

    def test_inside_the_head(self) -> None:
        """Inside the head: the rest of it is not looked at."""
        result = self.ask()
        self.socket().say(OK[:20])
        result.cancel()
        self.failureResultOf(result, CancelledError)
        self.socket().say(OK[20:])
        self.clock.advance(0)
        self.assertEqual(len(self.net.dials), 1)

    def test_during_the_retry(self) -> None:
        """While the retry connects: as while connecting."""
        pooled = self.whole()
        self.net.manual = True
        result = self.ask()
        pooled.end()
        result.cancel()
        self.failureResultOf(result, CancelledError)
        self.assertTrue(self.net.dials[-1].cancelled)

    def test_after_the_head(self) -> None:
        """After the head the Deferred is spent, and cancelling does nothing."""
        result = self.ask()
        self.socket().say(OK[:-2])
        response = self.successResultOf(result)
        result.cancel()
        self.assertEqual(self.socket().transport.closed, "")
        response.abort()
        self.clock.advance(0)


class ConnectTests(AgentTestCase):
    """Failures to connect."""

    def setUp(self) -> None:
        super().setUp()
        self.net.manual = True

    def test_failures(self) -> None:
        """Each failure has its type, says `never_sent`, and only a refusal is `refused`."""
        for fault, kind, refused in (
            (ConnectionRefusedError(), ConnectFailed, True),
            (ConnectTimeout(), ConnectTimedOut, False),
            (DNSLookupError("engine"), ConnectFailed, False),
            (NoRouteError(), ConnectFailed, False),
            (CancelledError(), ConnectFailed, False),
            (OSError("odd"), ConnectFailed, False),
            (ConnectFailed("own", refused=True), ConnectFailed, True),
        ):
            with self.subTest(fault=fault):
                result = self.ask()
                self.net.dials[-1].result.errback(fault)
                error = self.fails(result, kind)
                assert isinstance(error, ConnectFailed)
                self.assertEqual((error.refused, error.never_sent), (refused, True))

    def test_endpoint_that_raises(self) -> None:
        """An endpoint factory that raises is a failure to connect."""

        def raises(uri: URI) -> Any:
            raise ValueError("s3cret")

        self.net.endpointForURI = raises  # type: ignore[method-assign]
        error = self.fails(self.ask(), ConnectFailed)
        self.assertNotIn("s3cret", str(error))

    def test_endpoint_without_a_connection(self) -> None:
        """An endpoint that succeeds without having made a connection is a failure."""
        result = self.ask()
        self.net.dials[0].result.callback(Protocol())
        self.fails(result, ConnectFailed)

    def test_timeout(self) -> None:
        """The bound is exact, whatever the endpoint does, and the attempt is cancelled."""
        result = self.ask()
        self.clock.advance(4.99)
        self.assertNoResult(result)
        self.clock.advance(0.01)
        self.fails(result, ConnectTimedOut)
        self.assertTrue(self.net.dials[0].cancelled)

    def test_no_timeout_once_connected(self) -> None:
        """The bound ends with the connection: the head may take as long as it likes."""
        result = self.ask()
        self.net.dials[0].accept()
        self.clock.advance(1000)
        self.assertNoResult(result)
        self.socket().say(OK)
        self.answered(result)

    def test_own_bound(self) -> None:
        """`bound` gives an agent with its own time to connect, and the same pool."""
        quick = self.agent.bound(1)
        result = quick.request(b"GET", b"http://engine:8000/")
        self.clock.advance(1)
        self.failureResultOf(result, ConnectTimedOut)
        self.net.manual = False
        socket = self.whole()
        result = quick.request(b"GET", b"http://engine:8000/x")
        self.assertIn(b"GET /x", socket.sent)
        socket.say(OK)
        self.assertEqual(self.successResultOf(result).code, 200)

    def test_handshake_is_part_of_connecting(self) -> None:
        """For https nothing is sent before the handshake is complete, and the bound covers it."""
        result = self.ask(uri=b"https://engine/")
        socket = self.net.dials[0].accept()
        self.clock.advance(4.9)
        self.assertEqual(socket.sent, b"")
        self.assertNoResult(result)
        self.clock.advance(0.1)
        self.fails(result, ConnectTimedOut)
        self.assertEqual(socket.transport.closed, "abort")
        self.clock.advance(0)

    def test_handshake_broken_off(self) -> None:
        """A connection that ends in its handshake is a failure to connect."""
        result = self.ask(uri=b"https://engine/")
        self.net.dials[0].accept().end(ConnectionLost())
        self.assertTrue(self.fails(result, HandshakeFailed).never_sent)

    def test_handshake_done(self) -> None:
        """After the handshake the request goes out, and TLS connections are pooled by scheme."""
        result = self.ask(uri=b"https://engine:8000/")
        socket = self.net.dials[0].accept()
        socket.protocol.handshakeCompleted()
        self.assertIn(b"GET / HTTP/1.1", socket.sent)
        socket.protocol.handshakeCompleted()
        socket.say(OK)
        self.answered(result)
        self.send(uri=b"https://engine:8000/again")
        self.assertIn(b"GET /again", socket.sent)
        self.send(uri=b"http://engine:8000/other")
        self.assertEqual(len(self.net.dials), 2)

    def test_what_endpoints_are_given(self) -> None:
        """An endpoint factory gets scheme, host and port, and no path."""
        for uri, scheme, host, port, netloc in (
            (b"http://[::1]:8000/secret", b"http", b"::1", 8000, b"[::1]:8000"),
            (b"HTTPS://Engine/secret?x", b"https", b"engine", 443, b"engine:443"),
        ):
            self.send(uri=uri)
            given = self.net.dials[-1].uri
            self.assertEqual(
                (given.scheme, given.host, given.port, given.netloc), (scheme, host, port, netloc)
            )
            self.assertEqual(given.path, b"/")


class PoolTests(AgentTestCase):
    """Which connections are used again."""

    def test_reuse(self) -> None:
        """A second request takes the first one's connection; a parallel one opens another."""
        first = self.whole()
        self.send()
        self.assertIn(b"GET", first.sent)
        self.send()
        self.assertEqual(len(self.net.sockets), 2)

    def test_by_origin(self) -> None:
        """Another host or port has connections of its own; the host's case does not matter."""
        self.whole()
        for uri in (b"http://other:8000/", b"http://engine:8001/"):
            self.send(uri=uri)
        self.assertEqual(len(self.net.sockets), 3)
        self.send(uri=b"http://ENGINE:8000/")
        self.assertEqual(len(self.net.sockets), 3)

    def three(self) -> list[Socket]:
        """Three idle connections; the last one was used last."""
        results = [self.ask() for _ in range(3)]
        for result, socket in zip(results, self.net.sockets, strict=True):
            socket.say(OK)
            self.answered(result)
            socket.sent  # noqa: B018 -- reading it clears it
            self.clock.advance(1)
        return self.net.sockets

    def test_last_in_first_out(self) -> None:
        """The connection that was used last is taken first."""
        first, second, third = self.three()
        self.send()
        self.assertEqual([bool(each.sent) for each in (first, second, third)], [0, 0, 1])

    def test_idle_time(self) -> None:
        """Each idle connection goes when its own time is over, by one timer for all."""
        first, second, third = self.three()
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        closed = [each.transport for each in (first, second, third)]
        self.clock.advance(0.99)
        self.assertEqual([each.closed for each in closed], ["", "", ""])
        self.clock.advance(0.01)
        self.assertEqual([each.closed for each in closed], ["lose", "", ""])
        self.clock.advance(1)
        self.assertEqual([each.closed for each in closed], ["lose", "lose", ""])
        self.clock.advance(1)
        self.clock.advance(0)
        self.assertEqual([each.closed for each in closed], ["lose", "lose", "lose"])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_late_sweep(self) -> None:
        """A connection whose time is over is not used, even if the timer is late."""
        first = self.whole()
        self.clock.rightNow += 4.0
        self.send()
        self.assertEqual(len(self.net.sockets), 2)
        self.assertEqual(first.transport.closed, "lose")
        self.clock.advance(0)

    def test_use_restarts_the_idle_time(self) -> None:
        """A connection that is used again starts its time anew."""
        socket = self.whole()
        self.clock.advance(3)
        self.assertIs(self.whole(), socket)
        self.clock.advance(3)
        self.assertEqual(socket.transport.closed, "")
        self.assertIs(self.whole(), socket)

    def test_no_timer_without_connections(self) -> None:
        """The timer ends with the last connection."""
        self.whole().end()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        pooled = self.whole()
        result = self.ask()
        pooled.say(b"bad")
        self.fails(result, BadResponse)
        self.clock.advance(0)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_timer_ends_with_the_last_idle_connection(self) -> None:
        """The timer does not wait for connections in use."""
        self.send()
        self.send()
        idle = self.socket()
        idle.say(OK)
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        idle.end()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_bounded(self) -> None:
        """Past the bound the longest idle connection goes."""
        self.start(max_idle_per_host=2)
        sockets = self.three()
        self.assertEqual([each.transport.closed for each in sockets], ["lose", "", ""])

    def test_nothing_kept(self) -> None:
        """With a bound or an idle time of zero nothing is kept."""
        for options in ({"max_idle_per_host": 0}, {"idle_seconds": 0}):
            self.start(**options)
            self.assertEqual(self.whole().transport.closed, "lose")
            self.clock.advance(0)
            self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_servers_own_timeout(self) -> None:
        """`Keep-Alive: timeout=N` shortens the idle time to N - 1 s, and never lengthens it."""
        for value, seconds in (
            (b"timeout=3, max=100", 2),
            (b"max=5,TIMEOUT=2", 1),
            (b"timeout=60", 4),
            (b"timeout=x", 4),
            (b"xtimeout=2", 4),
            (b"timeout=1", 0),
        ):
            with self.subTest(value=value):
                self.start()
                result = self.ask()
                self.socket().say(OK.replace(b"X-A: 1", b"Keep-Alive: " + value))
                self.answered(result)
                if seconds:
                    self.clock.advance(seconds - 0.01)
                    self.assertEqual(self.socket().transport.closed, "")
                    self.clock.advance(0.01)
                self.assertEqual(self.socket().transport.closed, "lose")
                self.clock.advance(0)

    def test_not_kept(self) -> None:
        """Connections of answers that end them, and of HTTP/1.0, are not used again."""
        for answer, kept in (
            (OK.replace(b"X-A: 1", b"Connection: close"), False),
            (OK.replace(b"X-A: 1", b"Connection: x, Close"), False),
            (OK.replace(b"HTTP/1.1", b"HTTP/1.0"), False),
            (
                OK.replace(b"HTTP/1.1", b"HTTP/1.0").replace(b"X-A: 1", b"Connection: keep-alive"),
                True,
            ),
            (OK, True),
        ):
            with self.subTest(answer=answer):
                self.start()
                result = self.ask()
                self.socket().say(answer)
                _, reader = self.answered(result)
                self.assertIsInstance(reader.end, ResponseDone)
                self.assertEqual(self.socket().transport.closed, "" if kept else "lose")
                self.clock.advance(0)
                self.send()
                self.assertEqual(len(self.net.sockets), 1 if kept else 2)

    def test_dropped_while_idle(self) -> None:
        """A byte or an end while idle drops the connection at once."""
        socket = self.whole()
        socket.say(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
        self.assertEqual(socket.transport.closed, "abort")
        other = self.whole()
        self.assertIsNot(other, socket)
        other.end()
        self.assertIsNot(self.whole(), other)

    def test_connection_that_dies_idle_leaves_the_others(self) -> None:
        """One idle connection's end leaves its siblings."""
        first, _, third = self.three()
        third.end()
        self.clock.advance(0)
        self.assertEqual(first.transport.closed, "")
        self.send()
        self.assertEqual(len(self.net.sockets), 3)


class RetryTests(AgentTestCase):
    """The one silent retry."""

    def test_retry(self) -> None:
        """A pooled connection that dies before a byte came is replaced, once, by a new one."""
        for reason in (ConnectionDone(), ConnectionLost()):
            with self.subTest(reason=reason):
                self.start()
                spare, pooled = self.ask(), self.ask()
                for result, socket in zip((spare, pooled), self.net.sockets, strict=True):
                    socket.say(OK)
                    self.answered(result)
                result = self.ask(b"POST", body=BytesProducer([b"the prompt"]))
                self.socket().end(reason)
                self.assertEqual(len(self.net.sockets), 3, "on a new connection, not the spare")
                self.assertTrue(self.socket().sent.endswith(b"\r\n\r\nthe prompt"))
                self.socket().say(OK)
                self.assertEqual(self.answered(result)[1].body, b"hello")

    def test_once(self) -> None:
        """The new connection's death is the end of it."""
        pooled = self.whole()
        result = self.ask()
        pooled.end()
        self.socket().end()
        error = self.fails(result, Disconnected)
        self.assertFalse(error.never_sent)
        self.assertEqual(len(self.net.sockets), 2)

    def test_new_connections_are_not_retried(self) -> None:
        """A connection of its own that dies is an error."""
        result = self.ask()
        self.socket().end(ConnectionLost())
        self.fails(result, Disconnected)
        self.assertEqual(len(self.net.sockets), 1)

    def test_not_idempotent(self) -> None:
        """Where POST and PATCH may do something that lasts they are not sent twice."""
        for method, retried in (
            *((b"POST", False), (b"PATCH", False), (b"GET", True), (b"PUT", True)),
            *((b"DELETE", True), (b"HEAD", True), (b"OPTIONS", True), (b"SEARCH", False)),
        ):
            with self.subTest(method=method):
                self.start(idempotent_only=True)
                pooled = self.whole()
                result = self.ask(method, body=BytesProducer([b"x"]))
                pooled.end()
                self.assertEqual(len(self.net.sockets), 2 if retried else 1)
                if not retried:
                    self.fails(result, Disconnected)

    def test_body_starts_again(self) -> None:
        """The retry stops the producer and starts it from the beginning."""
        pooled = self.whole()
        body = HandProducer(4)
        result = self.ask(b"POST", body=body)
        body.consumer.write(b"12")
        pooled.end()
        self.assertEqual((body.starts, body.events), (2, ["stop"]))
        body.consumer.write(b"1234")
        body.done.callback(None)
        self.assertTrue(self.socket().sent.endswith(b"\r\n\r\n1234"))
        self.socket().say(OK)
        self.answered(result)

    def test_retry_that_cannot_connect(self) -> None:
        """A retry that is refused says that, though the first attempt may have been heard."""
        pooled = self.whole()
        self.net.manual = True
        result = self.ask()
        pooled.end()
        self.net.dials[-1].result.errback(ConnectionRefusedError())
        self.fails(result, ConnectFailed)


class CloseTests(AgentTestCase):
    """Closing the agent, and what is left behind."""

    def test_close(self) -> None:
        """Idle connections close, those in use abort, attempts end, requests are refused."""
        idle = self.whole(uri=b"http://idle/")
        waiting, reading = self.ask(), self.ask()
        in_use = self.net.sockets[-2:]
        in_use[1].say(OK[:-1])
        _, reader = self.answered(reading)
        self.net.manual = True
        connecting = self.ask(uri=b"http://far/")
        closed = self.agent.close()
        again = self.agent.close()
        self.fails(waiting, Aborted)
        self.fails(connecting, Aborted)
        self.assertEqual(idle.transport.closed, "lose")
        self.assertEqual([each.transport.closed for each in in_use], ["abort", "abort"])
        self.assertNoResult(closed)
        self.clock.advance(0)
        self.assertIsInstance(reader.end, Aborted)
        self.assertIsNone(self.successResultOf(closed))
        self.assertIsNone(self.successResultOf(again))
        self.fails(self.ask(), Aborted)
        self.assertIsNone(self.successResultOf(self.agent.close()))

    def test_waiting_for_the_close_can_be_given_up(self) -> None:
        """Cancelling the wait stops nothing else."""
        self.whole()
        first, second = self.agent.close(), self.agent.close()
        first.cancel()
        self.failureResultOf(first, CancelledError)
        self.clock.advance(0)
        self.assertIsNone(self.successResultOf(second))

    def test_one_who_waits_gives_another_up(self) -> None:
        """What one of them does about it takes it from nobody behind that one."""
        self.whole()
        first, second, third = (self.agent.close() for _ in range(3))
        _ = first.addCallback(lambda _: second.cancel())
        self.clock.advance(0)
        self.failureResultOf(second, CancelledError)
        self.assertIsNone(self.successResultOf(third))

    def test_answer_that_ends_after_the_close(self) -> None:
        """A connection is not kept by an agent that was closed in its last read."""
        result = self.ask()
        self.socket().say(OK[:-1])
        reader = Reader(lambda _: closed.append(self.agent.close()))
        closed: list[Deferred[None]] = []
        self.successResultOf(result).deliverBody(reader)
        self.socket().say(OK[-1:])
        self.assertEqual(self.socket().transport.closed, "abort")

    def test_nothing_is_remembered(self) -> None:
        """An idle connection refers to nothing of the exchange that is over."""
        body = BytesProducer([b"the prompt"])
        headers = Headers({b"authorization": [b"Bearer x"]})
        result = self.ask(b"POST", headers=headers, body=body)
        self.socket().say(CHUNKED)
        response, reader = self.answered(result)
        gone = [weakref.ref(each) for each in (body, response, reader, result)]
        del body, response, reader, result
        self.results.clear()
        gc.collect()
        self.assertEqual([ref() for ref in gone], [None] * 4)
        kept = vars(self.socket().protocol)
        self.assertIsNone(kept["_request"])
        self.assertNotIn("Transfer-Encoding", repr(kept))
