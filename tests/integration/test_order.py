"""The order of service before an engine whose prefills take long."""

from __future__ import annotations

import re
import threading
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.case import chat
from tests.integration.engines import MAX_NUM_SEQS, MODEL, Engine
from tests.integration.gateway import Gateway
from tests.integration.processes import pause, wait_until
from tests.integration.wire import Call
from tests.integration.world import WORLD

LONG_TOKENS = 2000
# A fraction of what the engine does: how long a prefill is allowed for depends on it, and a busy
# machine takes its time.
PREFILL_TOKENS_PER_SECOND = 50
LONG_PREFILL_SECONDS = 10
PLACE = re.compile(r": keep-alive position=([1-9]\d*) eta=\d+$")


def configuration(engine: Engine) -> dict[str, Any]:
    """A gateway's before this engine, whose rates are named."""
    admission = {
        "maxInflight": MAX_NUM_SEQS,
        "pollSeconds": 0.5,
        "keepAliveSeconds": 0.5,
        "longPrefillSeconds": LONG_PREFILL_SECONDS,
        "prefillTokensPerSecond": PREFILL_TOKENS_PER_SECOND,
    }
    model = {"upstream": engine.url, "engine": "vllm", "admission": admission}
    return {"models": {MODEL: model}, "drainSeconds": 1}


class Lane:
    """Looks at the gateway's status all the while.

    Attributes:
        beside: how many of ours were in the engine, each time that a long prefill was.
    """

    def __init__(self, gateway: Gateway) -> None:
        self.beside: list[int] = []
        self._gateway = gateway
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Lane:
        self._thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._over.set()
        self._thread.join(10)

    def _look(self) -> None:
        while not self._over.is_set():
            (engine,) = self._gateway.status()["engines"]
            if engine["long_prefill"]:
                self.beside.append(engine["own"])
            pause(0.1)


class OrderTests(SynchronousTestCase):
    """Two long prompts and six short ones wait for the same engine."""

    def setUp(self) -> None:
        """Have an engine of their own and a gateway before it, both idle."""
        self.engine = WORLD.slow()
        self.addCleanup(self.engine.process.stop)
        self.gateway = Gateway("gateway-order", configuration(self.engine), WORLD.logs)
        self.addCleanup(self.gateway.process.stop)
        self.gateway.start()

    def stream(self, number: int, max_tokens: int, *, prompt_tokens: int = 10) -> Call:
        """Ask for a stream and let it run; no prompt begins like another."""
        # The gateway takes four bytes for a token.
        text = f"{number} " + "get " * prompt_tokens
        messages = [{"role": "user", "content": text}]
        body = chat(max_tokens, stream=True, messages=messages)
        call = Call(f"{self.gateway.url}/v1/chat/completions", body)
        self.addCleanup(call.leave)
        return call

    def wait(self, condition: Any, seconds: float, what: str) -> None:
        try:
            wait_until(condition, seconds, what)
        except AssertionError as fault:
            raise AssertionError(f"{fault}\n{self.gateway.process.tail()}") from None

    def test_short_before_long(self) -> None:
        """The short ones are answered before a long one begins; those go one at a time, alone."""
        first = [self.stream(number, 80) for number in range(MAX_NUM_SEQS)]
        for call in first:
            call.expect(lambda one: one.contents, 60, "content")
        long = [self.stream(10 + number, 4, prompt_tokens=LONG_TOKENS) for number in range(2)]
        self.wait(lambda: len(self.gateway.parked()) == 2, 10, "two parked")
        short = [self.stream(20 + number, 8) for number in range(6)]
        self.wait(lambda: len(self.gateway.parked()) == 8, 10, "eight parked")
        self.assertShown(self.gateway.status())

        with Lane(self.gateway) as lane:
            for call in short:
                call.finish(120)
            begun = [call for call in long if call.contents]
            for call in long:
                call.finish(240)

        for call in (*first, *short, *long):
            self.assertTrue(call.whole, call.describe())
        self.assertEqual(begun, [])
        self.assertEqual(set(lane.beside), {1})
        self.assertTold(long)

    def assertShown(self, status: dict[str, Any]) -> None:
        """The status shows who waits, in the order of service, and what for."""
        parked = status["parked"]
        self.assertEqual([one["position"] for one in parked], list(range(1, 9)))
        self.assertEqual([one["long_prefill"] for one in parked], [False] * 6 + [True] * 2)
        etas = [one["eta_seconds"] for one in parked]
        self.assertEqual(etas, sorted(etas))
        self.assertGreater(parked[-1]["cost_seconds"], LONG_PREFILL_SECONDS)
        self.assertEqual(status["ordering"], "cost")

    def assertTold(self, calls: list[Call]) -> None:
        """Comments told each its place and the time until its turn: behind all six, then first."""
        told = [
            [int(found[1]) for _, line in call.lines if (found := PLACE.match(line))]
            for call in calls
        ]
        for call, places in zip(calls, told, strict=True):
            self.assertGreater(max(places, default=0), 6, call.describe())
        self.assertEqual(min(map(min, told)), 1)
