"""Tests of one answer in time: its head, its tokens, its end, its client, its faults."""

from __future__ import annotations

from typing import Any

from tests.demo.harness import CHAT, FIXTURES, HELLO, EngineCase, Recorded, run_dry
from twisted_gateway.demo.words import Answer


class StreamTests(EngineCase):
    """A stream in time."""

    def stream(self, prompt: str = "hello", tokens: int = 10, **more: Any) -> Any:
        message = {"role": "user", "content": prompt}
        document = {"messages": [message], "max_tokens": tokens, "stream": True}
        return self.send("POST", CHAT, {**document, "ignore_eos": True, **more})

    def test_head_comes_at_once_even_when_queued(self) -> None:
        """200 and the headers are sent before there is a place, and then nothing for long."""
        connection = [self.stream(str(number) + "x" * 28_000) for number in range(5)][-1]
        answer = connection.answer
        self.assertEqual((answer.status, answer.body, answer.whole), (200, b"", False))
        self.clock.advance(50)
        self.assertEqual(connection.answer.body, b"")
        run_dry(self.clock, until=200)
        self.assertTrue(connection.answer.whole)

    def test_role_comes_with_the_first_token(self) -> None:
        """Nothing is sent until there is a token; then the role and the token."""
        connection = self.stream("x" * 2100)
        self.clock.advance(1.03)
        self.assertEqual(connection.answer.events, [])
        self.clock.advance(0.02)
        self.assertEqual(len(connection.answer.events), 2)
        self.clock.advance(0.04)
        self.assertEqual(len(connection.answer.events), 3)

    def test_answer_is_english_and_depends_on_the_prompt(self) -> None:
        """The deltas make the text that the same request gets whole."""
        document = {"messages": HELLO, "max_tokens": 40}
        whole = self.ask(CHAT, document).json["choices"][0]["message"]["content"]
        events = self.ask(CHAT, {**document, "stream": True}).events[:-1]
        text = "".join(event["choices"][0]["delta"]["content"] for _, event in events)
        self.assertEqual(text, whole)
        self.assertRegex(text, r"^[A-Z][a-z]+ [a-z ,.A-Z]+$")
        other = self.ask(CHAT, {"messages": [{"content": "!"}], "max_tokens": 40}).json
        self.assertNotEqual(other["choices"][0]["message"]["content"], whole)

    def test_client_that_leaves_is_dropped(self) -> None:
        """Streaming or not, a lost connection takes its sequences out of the engine."""
        whole = self.send("POST", CHAT, {"messages": HELLO, "max_tokens": 5000, "n": 2})
        stream = self.stream(tokens=5000)
        self.clock.advance(1)
        self.assertEqual(self.host.engine.in_engine_now, 3)
        whole.transport.drop()
        self.assertEqual(self.host.engine.in_engine_now, 1)
        stream.transport.drop()
        self.clock.advance(0.04)
        self.assertEqual(self.host.engine.gauges().running, 0)

    def test_slow_client_pauses_the_writing_and_not_the_engine(self) -> None:
        """While its transport is paused nothing is written; then pieces of many tokens follow."""
        connection = self.stream(tokens=800)
        self.clock.advance(1)
        before = len(connection.transport.value())
        connection.transport.producer.pauseProducing()
        self.clock.advance(40)
        self.assertEqual(len(connection.transport.value()), before)
        self.assertEqual(self.host.engine.in_engine_now, 0)
        connection.transport.producer.resumeProducing()
        events = connection.answer.events
        self.assertEqual(events[-1], ("", "[DONE]"))
        self.assertLess(len(events), 45)
        self.assertGreater(len(events), 35)
        text = "".join(event["choices"][0]["delta"]["content"] for _, event in events[:-1])
        self.assertEqual(text, Answer(b"hello").text(0, 800))

    def test_resumed_client_is_given_no_more_than_it_takes(self) -> None:
        """A transport that fills again stops the writing again."""
        connection = self.stream(tokens=1200)
        producer = connection.transport.producer
        producer.pauseProducing()
        self.clock.advance(60)
        write = connection.transport.write

        def full(data: bytes) -> None:
            write(data)
            producer.pauseProducing()

        connection.transport.writeSequence = lambda pieces: full(b"".join(pieces))
        producer.resumeProducing()
        self.assertLess(len(connection.answer.events), 20)
        for _ in range(10):
            producer.resumeProducing()
        self.assertEqual(connection.answer.events[-1], ("", "[DONE]"))

    def test_two_requests_on_one_connection(self) -> None:
        """A connection serves one request after the other, and closes after 5 s of idleness."""
        connection = self.stream(tokens=2)
        self.clock.advance(1)
        connection.send("GET", "/version")
        self.assertEqual(connection.answer.json, {"version": "0.32.0"})
        self.clock.advance(4.9)
        self.assertFalse(connection.transport.gone)
        self.clock.advance(0.2)
        self.assertTrue(connection.transport.gone)


class FaultTests(EngineCase):
    """What an engine can be told to do wrong to those who generate."""

    def stream(self, tokens: int = 10, path: str = CHAT) -> Any:
        return self.send("POST", path, {"messages": HELLO, "max_tokens": tokens, "stream": True})

    def test_refuses_the_next_ones(self) -> None:
        """503, as vLLM's own admission gives it, then service as before."""
        self.host.change_faults({"refuse_next": 2})
        for path, name in ((CHAT, "503_stream"), ("/v1/messages", "503_anthropic_stream")):
            answer = self.stream(path=path).answer
            recorded = Recorded(f"vllm_engine_admission_{name}")
            self.assertEqual((answer.status, answer.json), (503, recorded.json))
        self.assertEqual(self.stream().answer.status, 200)

    def test_cuts_the_connection(self) -> None:
        """After so many tokens the connection is aborted and the engine rid of the request."""
        self.host.change_faults({"cut_after_tokens": 3})
        connection = self.stream()
        self.clock.advance(5)
        self.assertTrue(connection.transport.aborting)
        self.assertEqual(len(connection.answer.events), 4)
        self.assertFalse(connection.answer.whole)
        self.assertEqual(self.host.engine.in_engine_now, 0)

    def test_breaks_in_band(self) -> None:
        """After so many tokens the stream ends with an error, and `[DONE]`, as vLLM's does."""
        self.host.change_faults({"error_after_tokens": 2})
        connection = self.stream()
        self.clock.advance(5)
        answer = connection.answer
        end = (FIXTURES / "vllm_stream_engine_killed_end.txt").read_bytes().strip()
        self.assertTrue(answer.whole)
        self.assertTrue(answer.body.strip().endswith(end))
        self.assertEqual(len(answer.events), 5)
        self.assertEqual(self.host.engine.in_engine_now, 0)

    def test_fault_before_the_first_token(self) -> None:
        """At no tokens, the error is all that follows the head."""
        self.host.change_faults({"error_after_tokens": 0})
        connection = self.stream(path="/v1/messages")
        self.clock.advance(5)
        self.assertEqual([name for name, _ in connection.answer.events], ["error", ""])

    def test_hangs(self) -> None:
        """The head comes, and then nothing; the engine knows nothing of the request."""
        self.host.change_faults({"hang": True})
        connection = self.stream()
        self.clock.advance(500)
        self.assertEqual((connection.answer.status, connection.answer.body), (200, b""))
        self.assertEqual(self.host.engine.peak_in_engine, 0)

    def test_death_and_restart(self) -> None:
        """Streams end in error, the rest is 500, health 503, metrics go on; then all is new."""
        stream, whole = self.stream(100), self.send("POST", CHAT, {"messages": HELLO})
        self.clock.advance(1)
        self.host.change_faults({"die": True})
        self.assertEqual(stream.answer.events[-1], ("", "[DONE]"))
        self.assertEqual(stream.answer.events[-2][1]["error"]["code"], 500)
        dead = Recorded("vllm_chat_after_engine_death").json
        self.assertEqual((whole.answer.status, whole.answer.json), (500, dead))
        self.assertEqual((self.stream().answer.status, self.stream().answer.json), (500, dead))
        self.assertEqual(self.send("GET", "/health").answer.status, 503)
        self.assertEqual(self.send("GET", "/metrics").answer.status, 200)

        self.host.change_faults({"die": False})
        self.assertEqual(self.send("GET", "/health").answer.status, 200)
        page = self.send("GET", "/metrics").answer.body
        self.assertIn(b'generation_tokens_total{engine="0",model_name="reasoning"} 0.0', page)
        self.assertEqual(self.ask(CHAT, {"messages": HELLO, "max_tokens": 1}).status, 200)

    def test_death_while_paused(self) -> None:
        """A client that reads on after the engine's death is told of it."""
        connection = self.stream(100)
        connection.transport.producer.pauseProducing()
        self.clock.advance(1)
        self.host.change_faults({"die": True})
        self.assertEqual(connection.answer.body, b"")
        connection.transport.producer.resumeProducing()
        self.assertEqual(connection.answer.events[-1], ("", "[DONE]"))
