"""What the page says of a gate, held against what a real gate does."""

from __future__ import annotations

from typing import Any

from tests.stack import CONFIG, PAGE, ROLE, Stack, token
from tests.support import TestCase

RATES = "prefillTokensPerSecond: 500, decodeTokensPerSecond: 25"
LONG = CONFIG.replace("maxInflight: 4", f"maxInflight: 4, {RATES}")
CACHE = (
    'vllm:cache_config_info{{engine="0",block_size="16",num_gpu_blocks="{blocks}",'
    'kv_cache_size_tokens="{tokens}"}} 1\n'
)


def ask(stack: Stack, tokens: int = 10, **members: Any) -> None:
    """A stream of a prompt of about so many tokens, each from a client of its own."""
    body = {"messages": [{"role": "user", "content": "x" * (4 * tokens)}], "max_tokens": 100}
    stack.client(f"192.0.2.{len(stack.clients)}").chat(**{"stream": True, **body, **members})


def broken(status: int) -> bytes:
    """An answer to a poll."""
    return b"HTTP/1.1 %d No\r\ncontent-length: 0\r\n\r\n" % status


class WhyTests(TestCase):
    """The sentence for each state that a gate can be in."""

    def why(self, stack: Stack) -> str:
        facts = stack.facts()
        said: str = facts["why"]
        return said

    def test_full(self) -> None:
        """As many as it has places are in it."""
        stack = Stack(self)
        for _ in range(6):
            ask(stack)
        self.assertEqual(self.why(stack), "2 wait: the engine runs 4 of 4.")
        for asked in list(stack.engine().asked):
            asked.stream(ROLE, token("a"))
        self.assertEqual(stack.facts()["state"], "waiting")

    def test_full_of_others(self) -> None:
        """Others than we have filled it."""
        stack = Stack(self)
        stack.poll(running=4)
        ask(stack)
        self.assertIn("the engine runs 4 of 4 (4 of them from elsewhere)", self.why(stack))

    def test_kv_cache_full(self) -> None:
        """Its cache is over the threshold, though it has places."""
        stack = Stack(self)
        stack.poll(running=1, kv=0.95)
        ask(stack)
        self.assertIn("1 waits: the engine runs 1 of 4, but the KV cache is 95 %", self.why(stack))

    def test_kv_cache_too_small(self) -> None:
        """The first finds no room in what is free of the cache."""
        stack = Stack(self)
        page = PAGE.format(running=1, waiting=0, kv=0.5) + CACHE.format(blocks=625, tokens=10_000)
        answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s"
        stack.engine().gauges = answer % (len(page), page.encode())
        stack.advance(3)
        ask(stack, 2000)
        ask(stack, 4000)
        self.assertEqual(len(stack.facts()["parked"]), 1)
        self.assertIn("too little room for the first (", self.why(stack))

    def test_long_prefill_waits(self) -> None:
        """A long prefill waits for an empty engine, the next one for it, others for both."""
        stack = Stack(self, LONG)
        ask(stack)
        ask(stack, 9000)
        self.assertIn("waits until nothing else is in the engine", self.why(stack))
        stack.engine().last.answer()
        ask(stack, 9000)
        self.assertIn("which waits for the long one before it", self.why(stack))
        ask(stack)
        self.assertIn("a long prefill has it to itself until its answer", self.why(stack))

    def test_sent_back(self) -> None:
        """The engine said 503: what it sent back is tried again."""
        stack = Stack(self)
        ask(stack)
        stack.engine().last.answer(503)
        self.assertIn("but sent back what waits; it is tried again soon", self.why(stack))

    def test_down(self) -> None:
        """The engine refuses connections."""
        stack = Stack(self)
        stack.engine().up = False
        ask(stack)
        stack.advance(7)
        self.assertEqual(stack.facts()["state"], "shut")
        words = (
            "The engine cannot be reached (the connection was refused); one request at a time goes"
        )
        self.assertEqual(self.why(stack), f"{words} to try. 1 waits.")

    def test_nobody_waits_for_what_is_down(self) -> None:
        """Once nobody waits any more nothing is claimed of an engine that nobody can see."""
        stack = Stack(self)
        stack.engine().up = False
        ask(stack)
        stack.clients[-1].leave()
        self.assertEqual(
            self.why(stack),
            "The engine cannot be reached (the connection was refused); the next request tries it. "
            "Nobody waits.",
        )

    def test_nothing_but_errors(self) -> None:
        """The gauges are good, and every answer is an error: that shows until one is none."""
        for config in (CONFIG, CONFIG.replace("vllm", "none").partition("    admission")[0]):
            for status in (500, 404, 501):
                stack = Stack(self, config)
                for _ in range(3):
                    ask(stack)
                    stack.engine().last.answer(status)
                facts = stack.facts()
                self.assertEqual(facts["state"], "failing")
                self.assertIn(f"answered its last 3 requests with status {status}", facts["why"])
                ask(stack)
                stack.engine().last.answer(200)
                self.assertNotEqual(stack.facts()["state"], "failing")

    def test_bad_requests_are_no_errors_of_the_engine(self) -> None:
        """What its clients do wrong speaks not of it, nor does a credential of theirs."""
        stack = Stack(self)
        for status in (400, 422, 401, 403):
            ask(stack)
            stack.engine().last.answer(status)
        self.assertEqual(stack.facts()["state"], "idle")

    def test_errors_are_forgotten(self) -> None:
        """An engine that nobody has asked for a quarter of an hour may long have been mended."""
        stack = Stack(self)
        for _ in range(3):
            ask(stack)
            stack.engine().last.answer(500)
        stack.advance(901)
        self.assertEqual(stack.facts()["state"], "idle")

    def test_hangs(self) -> None:
        """Gauges are read, requests are in it, and nothing comes."""
        stack = Stack(self)
        ask(stack)
        asked = stack.engine().last.stream(ROLE, token("a"))
        stack.advance(40)
        asked.more(token("b"))
        stack.advance(40)
        self.assertEqual(stack.facts()["engines"][0]["silent_seconds"], 40)
        self.assertEqual(stack.facts()["state"], "serving")
        stack.advance(55)
        self.assertIn("nothing has come from it for 1 min 35 s", self.why(stack))
        self.assertEqual(stack.facts()["state"], "silent")
        asked.more(token("c"))
        self.assertEqual(stack.facts()["state"], "serving")

    def test_a_long_prefill_does_not_hang(self) -> None:
        """How long it may be silent is told by what it has to read."""
        stack = Stack(self, LONG)
        ask(stack, 50_000)
        stack.advance(150)
        self.assertEqual(stack.facts()["state"], "serving")
        stack.advance(60)
        self.assertEqual(stack.facts()["state"], "silent")

    def test_a_long_prompt_that_is_read_excuses_nothing(self) -> None:
        """From the first content on there is nothing to read any more."""
        stack = Stack(self, LONG)
        ask(stack, 50_000)
        stack.engine().last.stream(ROLE, token("a"))
        stack.advance(61)
        self.assertEqual(stack.facts()["state"], "silent")

    def test_an_engine_that_was_away(self) -> None:
        """What one that a reload has taken out and another brings back did is forgotten."""
        stack = Stack(self)
        for _ in range(3):
            ask(stack)
            stack.engine().last.answer(500)
        self.assertEqual(stack.facts()["state"], "failing")
        for stack.text in (CONFIG.replace("10.0.0.1", "10.0.0.2"), CONFIG):
            self.assertTrue(stack.gateway.reload())
        self.assertEqual(stack.facts()["state"], "idle")

    def test_a_client_that_does_not_read(self) -> None:
        """Its engine is not silent: it is not listened to."""
        stack = Stack(self, CONFIG + "    timeouts: {clientStallSeconds: 600}\n")
        ask(stack)
        client = stack.clients[-1]
        client.wire.congested = True
        asked = stack.engine().last.stream(ROLE, token("a"))
        stack.advance(100)
        self.assertIsNone(stack.facts()["engines"][0]["silent_seconds"])
        client.wire.relieve()
        stack.advance(2)
        self.assertLess(stack.facts()["engines"][0]["silent_seconds"], 3)
        self.assertFalse(asked.gone)

    def test_closed_across_a_reload(self) -> None:
        """There is a reason also while the new observer has not failed often enough."""
        config = CONFIG.replace("maxInflight: 4", "maxInflight: 4, whenStale: closed")
        stack = Stack(self, config)
        stack.engine().gauges = broken(500)
        stack.advance(8)
        ask(stack)
        stack.text = config.replace("whenStale", "pollSeconds: 5, whenStale")
        self.assertTrue(stack.gateway.reload())
        for _ in range(8):
            self.assertIn("nothing is let in until they can be read", self.why(stack))
            self.assertEqual(stack.facts()["state"], "shut")
            stack.advance(2)

    def test_a_refused_reload(self) -> None:
        """It is said until the file is mended, with the first fault and how many there are."""
        stack = Stack(self)
        stack.text = CONFIG + "bogus: 1\nworse: 2\n"
        self.assertFalse(stack.gateway.reload())
        text = stack.client().get("/status", Accept="text/plain").body.decode()
        said = " ".join(text.split())
        self.assertIn("The configuration as last read is refused", said)
        self.assertIn("config.yaml: line 8: bogus", said)
        self.assertIn("(and 1 more, see the log)", said)
        stack.text = CONFIG
        self.assertTrue(stack.gateway.reload())
        self.assertNotIn("refused,", stack.client().get("/status").body.decode())

    def test_stale(self) -> None:
        """Its gauges cannot be read: our own count decides."""
        stack = Stack(self)
        stack.poll(running=0)
        stack.engine().gauges = broken(404)
        for _ in range(5):
            ask(stack)
        stack.advance(8)
        self.assertEqual(stack.facts()["state"], "stale")
        self.assertRegex(
            self.why(stack),
            r"^Gauges stale for \S+ s: /metrics answers status 404; admitting by our own ledger\. "
            r"1 waits: 4 of 4 places are taken by our count",
        )

    def test_closed(self) -> None:
        """The same with `whenStale: closed`."""
        stack = Stack(self, CONFIG.replace("maxInflight: 4", "maxInflight: 4, whenStale: closed"))
        stack.engine().gauges = broken(500)
        stack.advance(8)
        ask(stack)
        self.assertEqual(stack.facts()["state"], "shut")
        self.assertIn("nothing is let in until they can be read", self.why(stack))

    def test_held(self) -> None:
        """The same with `whenStale: hold`."""
        stack = Stack(self, CONFIG.replace("maxInflight: 4", "maxInflight: 4, whenStale: hold"))
        stack.poll(running=0)
        stack.engine().gauges = broken(500)
        stack.advance(8)
        self.assertIn("admitting by the last reading (whenStale: hold)", self.why(stack))

    def test_not_bounded_yet(self) -> None:
        """`maxInflight: auto` that has learned nothing bounds nothing."""
        stack = Stack(self, CONFIG.replace("    admission: {maxInflight: 4}\n", ""))
        stack.engine().gauges = broken(500)
        stack.advance(8)
        self.assertIn("everything is let in, for maxInflight is not known yet", self.why(stack))

    def test_only_warm_ups(self) -> None:
        """A warm-up that waits behind others says what for."""
        stack = Stack(self, CONFIG.replace("maxInflight: 4", "maxInflight: 1"))
        ask(stack)
        ask(stack)
        stack.client("192.0.2.99").chat(headers={"X-Priority": "warmup"})
        page = stack.client().get("/status").body.decode()
        self.assertIn("nobody else to wait", page)
