"""The order of service as clients see it, through the whole stack."""

from __future__ import annotations

import re
from typing import Any

from twisted.logger import ILogObserver, LogEvent, formatEvent, globalLogPublisher
from zope.interface import provider

from tests.stack import DONE, ROLE, Client, Stack, token
from tests.support import TestCase
from twisted_gateway.core.decision import Reason, Refused
from twisted_gateway.core.outlook import Standing
from twisted_gateway.core.policy import Policy
from twisted_gateway.core.ticket import Ticket
from twisted_gateway.core.view import EngineView, Sight
from twisted_gateway.web.refusal import refusal

ONE = """
tenants: {from: [header, address], trustedProxies: ['10.1.0.0/16']}
models:
  reasoning:
    upstream: http://10.0.0.1:8000
    engine: vllm
    admission:
      {maxInflight: 1, prefillTokensPerSecond: 500, decodeTokensPerSecond: 25, patienceSeconds: 600}
"""


def config(**admission: str) -> str:
    extra = "".join(f", {name}: {value}" for name, value in admission.items())
    return ONE.replace("patienceSeconds: 600", f"patienceSeconds: 600{extra}")


def ask(stack: Stack, tokens: int, tenant: str = "a", **members: Any) -> Client:
    """A prompt of about so many tokens from a tenant whom a trusted proxy names."""
    body = {"messages": [{"role": "user", "content": "x" * (4 * tokens)}], "max_tokens": 100}
    headers = {"X-Tenant": tenant}
    return stack.client("10.1.0.9").chat(headers=headers, **{"stream": True, **body, **members})


class Serving(TestCase):
    """Who goes first."""

    def test_short_ones_go_before_long_ones(self) -> None:
        """Of two that have waited as long, the one of less cost goes first."""
        stack = Stack(self, ONE)
        ask(stack, 10)
        long, short = ask(stack, 5000), ask(stack, 50)
        stack.engine().last.stream(DONE).end()
        stack.engine().last.stream(ROLE, token("s"), DONE).end()
        self.assertTrue(short.whole)
        self.assertEqual(long.received, b"")
        stack.engine().last.stream(ROLE, token("l"), DONE).end()
        self.assertTrue(long.whole)

    def test_a_tenant_of_little_use_goes_first(self) -> None:
        """Who has used much of the engine lately waits for who has not."""
        stack = Stack(self, ONE)
        ask(stack, 7000, "heavy")
        heavy, light = ask(stack, 50, "heavy"), ask(stack, 5000, "light")
        stack.engine().last.stream(ROLE, token("x"), DONE).end()
        stack.engine().last.stream(ROLE, token("x"), DONE).end()
        self.assertEqual((light.whole, heavy.received), (True, b""))

    def test_fifo_is_by_arrival(self) -> None:
        """`ordering: fifo` serves who came first."""
        stack = Stack(self, config(ordering="fifo"))
        ask(stack, 10)
        long, short = ask(stack, 5000), ask(stack, 50)
        stack.engine().last.stream(DONE).end()
        stack.engine().last.stream(ROLE, token("l"), DONE).end()
        self.assertEqual((long.whole, short.received), (True, b""))

    def test_a_prompt_that_begins_as_one_before(self) -> None:
        """What the engine has read lately costs nothing again."""
        stack = Stack(self, ONE)
        ask(stack, 5000)
        again = ask(stack, 5000)
        other = ask(stack, 4000, messages=[{"role": "user", "content": "y" * 16_000}])
        stack.engine().last.stream(ROLE, token("x"), DONE).end()
        stack.engine().last.stream(ROLE, token("x"), DONE).end()
        self.assertEqual((again.whole, other.received), (True, b""))


class Telling(TestCase):
    """What a client may know of its place."""

    def test_comments_tell_position_and_time(self) -> None:
        """A parked stream reads in its comments where it stands and how long it may take."""
        stack = Stack(self, ONE)
        ask(stack, 10)
        parked = ask(stack, 1000)
        ask(stack, 10)
        stack.advance(16)
        found = re.fullmatch(rb": keep-alive position=(\d+) eta=(\d+)\n\n", parked.body)
        assert found is not None, parked.body
        self.assertEqual(found[1], b"2")
        # Ahead are 4 s of the short one; and a quarter of the 16 s that the one in the engine has
        # taken, which should have ended long ago.
        self.assertIn(int(found[2]), range(8, 11))

    def test_comments_of_a_served_stream_tell_nothing(self) -> None:
        """Once it is in the engine, a stream's comments are plain."""
        stack = Stack(self, ONE)
        client = ask(stack, 10)
        stack.advance(16)
        self.assertEqual(client.body, b": keep-alive\n\n")

    def test_a_refusal_tells_position_and_time(self) -> None:
        """A refusal says where the request stood, how long it would have been, and when to come."""
        stack = Stack(self, config(maxQueueDepth="1"))
        ask(stack, 10)
        ask(stack, 10)
        refused = ask(stack, 1000)
        self.assertEqual((refused.status, refused.json["reason"]), (503, "queue_full"))
        self.assertEqual(refused.headers["x-queue-position"], "2")
        self.assertIn(int(refused.headers["x-queue-wait-estimate"]), range(8, 10))
        self.assertEqual(refused.json["position"], 2)
        self.assertIn(int(refused.headers["retry-after"]), range(5, 8))

    def test_what_cannot_be_told_is_not_told(self) -> None:
        """Without learned rates, and before anything has been served, there is no estimate."""
        rates = "prefillTokensPerSecond: 500, decodeTokensPerSecond: 25, "
        stack = Stack(self, ONE.replace(rates, ""))
        ask(stack, 10)
        refused = ask(stack, 10, stream=False, messages=[])
        stack.advance(541)
        self.assertEqual((refused.status, refused.json["reason"]), (503, "park_timeout"))
        self.assertEqual(refused.headers["x-queue-position"], "1")
        self.assertNotIn("x-queue-wait-estimate", refused.headers)

    def test_status_shows_the_queue(self) -> None:
        """`/status.json` has each parked request with what it costs, and hashed tenants."""
        stack = Stack(self, ONE)
        ask(stack, 10, "alice")
        ask(stack, 9000, "alice")
        ask(stack, 10, "bob")
        facts = stack.client().get("/status.json").json["models"]["reasoning"]
        first, second = facts["parked"]
        self.assertEqual((first["position"], second["position"]), (1, 2))
        self.assertLess(first["cost_seconds"], second["cost_seconds"])
        self.assertEqual((first["long_prefill"], second["long_prefill"]), (False, True))
        self.assertLess(first["eta_seconds"], second["eta_seconds"])
        self.assertNotEqual(first["tenant"], second["tenant"])
        alice = next(t for t in facts["tenants"] if t["tenant"] == second["tenant"])
        self.assertEqual(alice["parked"], 1)
        self.assertGreater(alice["used_seconds"], 3)
        self.assertNotIn("alice", stack.client().get("/status.json").body.decode())
        self.assertEqual(facts["rates"]["learned"], True)
        self.assertEqual((facts["replicas"], facts["ordering"]), (1, "cost"))


class Refusing(TestCase):
    """Who is refused, and why."""

    def test_deadline(self) -> None:
        """What could only be served when its client has gone is refused, and says so."""
        stack = Stack(self, config(longPrefillSeconds="1000"))
        ask(stack, 10)
        parked = ask(stack, 100_000, stream=False)
        stack.advance(330)
        self.assertEqual(parked.received, b"")
        stack.advance(10)  # 540 less 200 of prefill and 4 of answer
        self.assertEqual((parked.status, parked.json["reason"]), (503, "deadline"))
        self.assertEqual(stack.outcomes, ["rejected"])

    def test_the_newest_of_the_heaviest_tenant(self) -> None:
        """A queue that is full refuses whoever fills it, not whoever comes last."""
        stack = Stack(self, config(maxQueueDepth="2"))
        ask(stack, 10)
        first, second = ask(stack, 1000, "flood"), ask(stack, 1000, "flood")
        other = ask(stack, 10, "other")
        self.assertEqual((first.received, other.received), (b"", b""))
        self.assertEqual((second.status, second.json["reason"]), (503, "queue_full"))

    def test_more_work_than_may_park(self) -> None:
        """`parkedWorkSeconds` bounds the queue by what it would cost."""
        stack = Stack(self, config(parkedWorkSeconds="20"))
        ask(stack, 10)
        first, second = ask(stack, 5000), ask(stack, 5000)
        self.assertEqual(first.received, b"")
        self.assertEqual((second.status, second.json["reason"]), (503, "queue_full"))

    def test_retry_after(self) -> None:
        """It is when a place should be free, give or take a quarter, from its floor up to 60."""
        seen = EngineView(
            running=1,
            waiting=0,
            kv_usage=None,
            kv_tokens=None,
            sample_age_seconds=None,
            max_inflight=1,
            learned=False,
            drift=False,
            own=1,
            own_requests=1,
            peers=0,
            foreign=0,
            long_prefill=False,
            in_engine=1,
            sight=Sight.FRESH,
            stale=False,
            hold=None,
        )

        def told(place_seconds: float | None, chance: float) -> str:
            ticket = Ticket(model="m", policy=Policy(retry_after_seconds=4.2))
            standing = Standing(position=1, eta_seconds=None)
            decision = Refused(ticket, Reason.QUEUE_FULL, seen, 1, standing, place_seconds)
            return refusal(decision, chance).headers["Retry-After"]

        cases = [(20, 0, "15"), (20, 0.5, "20"), (20, 1, "25"), (1, 0.5, "5"), (None, 0, "5")]
        cases += [(None, 1, "6"), (500, 0, "60")]
        for place_seconds, chance, expected in cases:
            self.assertEqual(told(place_seconds, chance), expected, (place_seconds, chance))


class Logging(TestCase):
    """What is said of S."""

    def lines(self, stack: Stack, *pages: dict[str, int]) -> list[str]:
        logged: list[str] = []

        @provider(ILogObserver)
        def note(event: LogEvent) -> None:
            logged.append(formatEvent(event))

        globalLogPublisher.addObserver(note)
        self.addCleanup(globalLogPublisher.removeObserver, note)
        for page in pages:
            stack.engine().gauges = {"kv": 0.0, **page}
            stack.advance(2.1)
        return [line for line in logged if "sequences" in line or "agrees" in line]

    def test_what_auto_learns(self) -> None:
        """S is told once for each value that is learned."""
        stack = Stack(self, ONE.replace("maxInflight: 1,", ""))
        page = {"running": 4, "waiting": 3}
        lines = self.lines(stack, page, page)
        self.assertEqual(len(lines), 1)
        self.assertIn("reasoning: engine 0 is seen to run 4 sequences at once", lines[0])

    def test_drift(self) -> None:
        """A configured S that the gauges contradict is told of when it begins and when it ends."""
        stack = Stack(self, ONE)
        wrong, right = {"running": 4, "waiting": 1}, {"running": 1, "waiting": 0}
        begun, ended = self.lines(stack, wrong, wrong, right, right)
        self.assertIn("reasoning: maxInflight is 1, but engine 0 runs 4 with 1 waiting", begun)
        self.assertIn("engine 0 agrees with maxInflight 1", ended)
