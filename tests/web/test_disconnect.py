"""A client may leave at any moment: at each await of the handler everything is given back."""

from __future__ import annotations

from collections.abc import Callable

from tests.stack import CONFIG, DONE, ROLE, Client, Stack, token
from tests.support import TestCase

HALF = b"POST /v1/completions HTTP/1.1\r\nHost: g\r\nContent-Length: 900\r\n\r\n" + b"x" * 500


def sending(stack: Stack) -> Client:
    """The body has not come whole."""
    return stack.client().send(HALF)


def parked(stack: Stack, *, stream: bool = True) -> Client:
    """All places are taken."""
    for _ in range(4):
        stack.client().chat()
    return stack.client().chat(stream=stream)


def parked_and_kept_alive(stack: Stack) -> Client:
    """The 200 is spent."""
    client = parked(stack)
    stack.advance(16)
    return client


def connecting(stack: Stack) -> Client:
    """The connection to the engine is not there yet."""
    stack.engine().accept = lambda *_: None  # type: ignore[method-assign]
    return stack.client().chat(stream=True)


def awaiting_the_head(stack: Stack) -> Client:
    """The engine has the request."""
    return stack.client().chat(stream=True)


def awaiting_content(stack: Stack) -> Client:
    """The engine's head is out."""
    client = stack.client().chat(stream=True)
    stack.engine().last.stream()
    return client


def streaming(stack: Stack) -> Client:
    """Between two tokens."""
    client = stack.client().chat(stream=True)
    stack.engine().last.stream(ROLE, token("a"))
    return client


def streaming_paused(stack: Stack) -> Client:
    """The client takes nothing any more."""
    client = stack.client().chat(stream=True)
    client.wire.congested = True
    stack.engine().last.stream(ROLE, token("a"))
    return client


def receiving_a_whole_answer(stack: Stack) -> Client:
    """In the middle of a body."""
    client = stack.client().chat()
    stack.engine().last.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
    return client


def refused_by_the_engine(stack: Stack) -> Client:
    """Parked again after the engine's 503."""
    client = stack.client().chat()
    stack.engine().last.answer(503, b"{}")
    return client


def reading_the_refusal(stack: Stack) -> Client:
    """The engine's 503 has not come whole."""
    client = stack.client().chat()
    stack.engine().last.send(b"HTTP/1.1 503 Busy\r\ncontent-length: 100\r\n\r\nhalf")
    return client


def reading_an_error_behind_a_spent_status(stack: Stack) -> Client:
    """The engine's 400 has not come whole and the 200 is spent."""
    client = stack.client().chat(stream=True)
    stack.advance(16)
    stack.engine().last.send(b"HTTP/1.1 400 No\r\ncontent-length: 100\r\n\r\nhalf")
    return client


PHASES: list[Callable[[Stack], Client]] = [
    sending,
    parked,
    parked_and_kept_alive,
    connecting,
    awaiting_the_head,
    awaiting_content,
    streaming,
    streaming_paused,
    receiving_a_whole_answer,
    refused_by_the_engine,
    reading_the_refusal,
    reading_an_error_behind_a_spent_status,
]


class Leaving(TestCase):
    """What is left behind when a client leaves: nothing."""

    def test_at_each_await(self) -> None:
        """Place, upstream connection, timers and gauges are back where they were."""
        for phase in PHASES:
            with self.subTest(phase.__name__):
                self._leaves_nothing(phase)

    def _leaves_nothing(self, phase: Callable[[Stack], Client]) -> None:
        stack = Stack(self)
        timers = len(stack.reactor.getDelayedCalls())
        client = phase(stack)
        asked = list(stack.engine().asked)
        others = [one for one in stack.clients if one is not client]
        client.leave()
        stack.advance(1)
        outcome = stack.entries[-1].outcome.value
        self.assertEqual(outcome, "client_disconnect", phase.__name__)
        if asked and len(asked) == 1:
            self.assertTrue(asked[0].gone or phase is refused_by_the_engine, phase.__name__)
        for other in others:
            other.leave()
        facts = stack.facts()
        self.assertEqual((facts["own"], facts["parked"]), (0, []), phase.__name__)
        self.assertEqual(len(stack.gateway.exchanges), 0)
        self.assertEqual(stack.gateway._held.now, 0)
        self.assertEqual(stack.gateway._connections.now, 0)
        self.assertEqual(stack.metric("gateway_inflight", model="reasoning"), 0)
        # Idle upstream connections may each have their pool's one timer, no more.
        self.assertLessEqual(len(stack.reactor.getDelayedCalls()), timers + 1, phase.__name__)
        self.assertEqual(stack.metric("observer_degraded", model="reasoning"), 0)

    def test_nobody_is_called_a_failure_for_it(self) -> None:
        """No engine failure is counted for a client that left."""
        stack = Stack(self)
        streaming(stack).leave()
        for outcome in ("upstream_error", "upstream_incomplete", "upstream_timeout"):
            self.assertFalse(
                stack.metric("gateway_requests_total", model="reasoning", outcome=outcome)
            )

    def test_after_the_last_event(self) -> None:
        """One that leaves at [DONE], or at an error, has had the whole stream: no disconnect."""
        done, failed = b"data: [DONE]\n\n", b'data: {"error": {"message": "dead"}}\n\n'
        for events, outcome in (((done,), "ok"), ((failed,), "upstream_error")):
            stack = Stack(self)
            client = stack.client().chat(stream=True)
            stack.engine().last.stream(ROLE, token("a"), *events)
            client.leave()
            stack.advance(1)
            self.assertEqual(stack.outcomes, [outcome])
            self.assertEqual(stack.facts()["own"], 0)

    def test_the_place_of_one_that_left_goes_to_the_next(self) -> None:
        """At once, not at the next poll."""
        stack = Stack(self)
        first = stack.client().chat(stream=True)
        for _ in range(4):
            stack.client().chat(stream=True)
        self.assertEqual(len(stack.engine().asked), 4)
        first.leave()
        self.assertEqual(len(stack.engine().asked), 5)


class Crowding(TestCase):
    """Clients that send on behind an unanswered request."""

    def test_a_little_is_kept(self) -> None:
        """A pipelined request is answered in its turn."""
        stack = Stack(self)
        client = stack.client().chat()
        client.get("/health")
        stack.engine().last.answer(200, b"{}")
        self.assertEqual(client.received.count(b"HTTP/1.1 200"), 2)

    def test_more_than_16_kb_is_cut(self) -> None:
        """The engine's slot is given back with the connection."""
        stack = Stack(self)
        client = stack.client().chat(stream=True)
        client.send(b"x" * 20_000)
        self.assertTrue(client.wire.aborted)
        self.assertTrue(stack.engine().last.gone)
        self.assertEqual(stack.outcomes, ["client_disconnect"])

    def test_idle_connections_are_closed(self) -> None:
        """A head that trickles counts as idle: the whole of it is timed."""
        stack = Stack(self)
        client = stack.client()
        for _ in range(8):
            client.send(b"G")
            stack.advance(10, step=1)
        self.assertTrue(client.wire.closed or client.wire.disconnecting)

    def test_too_many_connections(self) -> None:
        """503 past maxConnections, and room again when one has gone."""
        stack = Stack(self, "maxConnections: 1\n" + CONFIG)
        first = stack.client()
        self.assertIn(b"503 Service Unavailable", stack.client().received)
        first.leave()
        self.assertEqual(stack.client().get("/health").status, 200)

    def test_a_line_that_is_too_long(self) -> None:
        """431."""
        client = Stack(self).client().send(b"GET /" + b"a" * 40_000)
        self.assertEqual(client.status, 431)


class Stalling(TestCase):
    """Clients that do not read."""

    def test_back_pressure_reaches_the_engine(self) -> None:
        """The engine's socket is paused and resumed with the client's."""
        stack = Stack(self)
        client = stack.client().chat(stream=True)
        asked = stack.engine().last.stream(ROLE)
        client.wire.congested = True
        asked.more(token("a"))
        self.assertEqual(asked.wire.producerState, "paused")
        client.wire.relieve()
        stack.settle()
        self.assertEqual(asked.wire.producerState, "producing")

    def test_memory_stays_flat(self) -> None:
        """However much an engine has to say, it waits in the engine's socket."""
        stack = Stack(self)
        client = stack.client().chat(stream=True)
        asked = stack.engine().last.stream(ROLE)
        client.wire.congested = True
        asked.more(token("a"))
        received = len(client.received)
        asked.more(*[token("x" * 10_000)] * 100)
        self.assertEqual(len(client.received), received)
        client.wire.relieve()
        stack.settle()
        asked.more(DONE).end()
        self.assertTrue(client.whole)
        self.assertGreater(len(client.body), 1_000_000)

    def test_one_that_takes_nothing_is_cut(self) -> None:
        """After clientStallSeconds; the place is given back."""
        stack = Stack(self)
        client = stack.client().chat(stream=True)
        asked = stack.engine().last.stream(ROLE)
        client.wire.congested = True
        asked.more(token("a"))
        stack.advance(59, step=1)
        self.assertFalse(client.wire.aborted)
        stack.advance(2, step=1)
        self.assertTrue(client.wire.aborted)
        self.assertTrue(asked.gone)
        self.assertEqual(stack.outcomes, ["client_stalled"])
        self.assertEqual(stack.facts()["own"], 0)

    def test_one_that_reads_slowly_is_not(self) -> None:
        """As long as it takes a byte now and then."""
        stack = Stack(self)
        client = stack.client().chat(stream=True)
        asked = stack.engine().last.stream(ROLE)
        client.wire.congested = True
        asked.more(token("a") * 100)
        for _ in range(5):
            client.wire.take(1)
            stack.advance(50, step=5)
        self.assertFalse(client.wire.aborted)

    def test_the_engines_silence_does_not_count_meanwhile(self) -> None:
        """idleSeconds stands still while the client's transport is paused."""
        stack = Stack(self, CONFIG + "    timeouts: {idleSeconds: 30}\n")
        client = stack.client().chat(stream=True)
        asked = stack.engine().last.stream(ROLE, token("a"))
        client.wire.congested = True
        asked.more(token("b"))
        for _ in range(4):
            client.wire.take(1)
            stack.advance(30, step=5)
        client.wire.relieve()
        stack.advance(20, step=5)
        self.assertFalse(asked.gone)
        stack.advance(15, step=5)
        self.assertTrue(asked.gone)
        self.assertEqual(stack.outcomes, ["upstream_timeout"])
