"""The gate in front of an engine of four sequences."""

from __future__ import annotations

from typing import Any

from tests.integration.case import (
    MESSAGES,
    TestCase,
    Watch,
    anthropic_client,
    chat,
    openai_client,
    together,
)
from tests.integration.engines import MAX_NUM_SEQS, MODEL
from tests.integration.gateway import KEEP_ALIVE_SECONDS, PATIENT
from tests.integration.processes import pause
from tests.integration.wire import post


class AdmissionTests(TestCase):
    """Requests park and live."""

    def assertNeverMoreThanFour(self, watch: Watch) -> None:
        self.assertGreater(len(watch.readings), 5)
        self.assertEqual(max(reading.running for reading in watch.readings), MAX_NUM_SEQS)
        self.assertEqual(max(reading.waiting for reading in watch.readings), 0)

    def test_eight_streams(self) -> None:
        """Of eight streams at once four park, all eight end whole, and the engine never queues."""
        tokens = 500
        parked_before = self.gateway.metric("admission_parked_total", model=MODEL)
        client = openai_client(self.front)

        def one(number: int) -> Any:
            stream = client.chat.completions.create(
                model=MODEL,
                messages=[{"role": "user", "content": f"Number {number}"}],
                max_tokens=tokens,
                stream=True,
                stream_options={"include_usage": True},
                extra_body={"ignore_eos": True},
            )
            return list(stream)[-1].usage.completion_tokens

        with Watch(self.engine, self.gateway) as watch:
            ends = together(8, one)
        self.assertEqual([end.result() for end in ends], [tokens] * 8)
        self.assertEqual(watch.parked, 4)
        self.assertNeverMoreThanFour(watch)
        self.assertEqual(
            self.gateway.metric("admission_parked_total", model=MODEL) - parked_before, 4
        )
        self.ended(ok=8)

    def test_both_clients_and_no_stream(self) -> None:
        """Streams of the Anthropic client and whole answers share the places with everybody."""
        anthropic = anthropic_client(self.front)

        def one(number: int) -> Any:
            if number % 2:
                answer = post(f"{self.front}/v1/chat/completions", chat(500)).json()
                return answer["usage"]["completion_tokens"]
            with anthropic.messages.stream(
                model=MODEL, messages=MESSAGES, max_tokens=500, extra_body={"ignore_eos": True}
            ) as stream:
                return stream.get_final_message().usage.output_tokens

        with Watch(self.engine, self.gateway) as watch:
            ends = together(8, one)
        self.assertEqual(len([end.result() for end in ends]), 8)
        self.assertEqual(watch.parked, 4)
        self.assertNeverMoreThanFour(watch)
        self.ended(ok=8)

    def test_burst_without_streams(self) -> None:
        """A burst of twenty short requests never puts more than four into the engine."""
        with Watch(self.engine, self.gateway) as watch:
            ends = together(20, lambda number: post(f"{self.front}/v1/chat/completions", chat(60)))
        self.assertEqual({end.result().status for end in ends}, {200})
        self.assertLessEqual(max(reading.running for reading in watch.readings), MAX_NUM_SEQS)
        self.assertEqual(max(reading.waiting for reading in watch.readings), 0)
        self.ended(ok=20)

    def test_parked_stream_is_kept_alive(self) -> None:
        """A parked stream gets its head and comments, and then its events."""
        running = self.fill(1500)
        parked = self.stream(20)
        parked.expect(lambda call: len(call.comments) >= 3, 10, "comments")
        self.assertGreaterEqual(parked.comments[0], KEEP_ALIVE_SECONDS - 0.05)
        self.assertEqual(parked.status, 200)
        self.assertTrue(parked.headers["content-type"].startswith("text/event-stream"))
        self.assertEqual([place["position"] for place in self.gateway.parked()], [1])
        for call in (*running, parked):
            self.assertTrue(call.finish(120).whole, call.describe())
        self.assertTrue(parked.contents)
        self.ended(ok=5)

    def test_short_park_is_silent(self) -> None:
        """Until `keepAliveSeconds` are over nothing is written, not even a head."""
        self.fill(2000)
        parked = self.stream(4, model=PATIENT)
        pause(3 * KEEP_ALIVE_SECONDS)
        self.assertIsNone(parked.status, parked.describe())
        self.assertEqual(len(self.gateway.parked()), 1)

    def test_parked_client_leaves(self) -> None:
        """A parked client that leaves is gone within a second; the engine never hears of it."""
        running = self.fill(1200)
        told = self.engine.gauges().prompt_tokens
        stream = openai_client(self.front).chat.completions.create(
            model=MODEL, messages=MESSAGES, max_tokens=20, stream=True
        )
        silent = self.call("/v1/chat/completions", chat(20))
        self.wait(lambda: len(self.gateway.parked()) == 2, 5, "two parked")
        stream.close()
        silent.leave()
        seconds = self.wait(lambda: not self.gateway.parked(), 5, "nobody parked")
        self.assertLess(seconds, 1.0)
        for call in running:
            self.assertTrue(call.finish(120).whole, call.describe())
        self.ended(ok=4, client_disconnect=2)
        self.assertEqual(self.engine.gauges().prompt_tokens, told)

    def test_running_client_leaves(self) -> None:
        """A client that leaves in the middle gives the engine's place back within a second."""
        running = self.fill(2000, count=1)
        self.wait(lambda: self.engine.gauges().running == 1, 5, "one runs")
        running[0].leave()
        seconds = self.wait(lambda: self.engine.gauges().running == 0, 5, "none runs")
        self.assertLess(seconds, 1.0)
        self.ended(client_disconnect=1)

    def test_leaver_makes_room(self) -> None:
        """The place of a client that leaves goes to the one that is parked, at once."""
        running = self.fill(1500)
        parked = self.stream(10)
        self.wait(lambda: len(self.gateway.parked()) == 1, 5, "one parked")
        running[0].leave()
        seconds = self.wait(lambda: bool(parked.contents), 10, "content for the parked one")
        self.assertLess(seconds, 2.0)

    def test_prefer_no_wait(self) -> None:
        """`Prefer: wait=0` is refused at once, in a form that the OpenAI client prints."""
        self.fill(2000)
        answer = post(f"{self.front}/v1/chat/completions", chat(4), headers={"Prefer": "wait=0"})
        self.assertEqual((answer.status, answer.json()["reason"]), (503, "park_timeout"))
        self.assertEqual(answer.headers["content-type"], "application/problem+json")
        self.assertGreaterEqual(int(answer.headers["retry-after"]), 1)
