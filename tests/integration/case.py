"""The base class of the suite's tests, and the bodies that they send."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.integration.cache import Unavailable
from tests.integration.engines import MODEL, Engine, Gauges
from tests.integration.gateway import Gateway
from tests.integration.processes import pause, wait_until
from tests.integration.wire import Call
from tests.integration.world import WORLD

# The official clients would otherwise take a proxy of the environment for the way to loopback.
os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1"

MESSAGES = [{"role": "user", "content": "Write something about gateways."}]


def chat(max_tokens: int, *, model: str = MODEL, **members: Any) -> dict[str, Any]:
    """A chat that is answered by exactly so many tokens."""
    # What a random model says may end at once; `ignore_eos` is vLLM's own.
    length = {"max_tokens": max_tokens, "ignore_eos": True}
    return {"model": model, "messages": MESSAGES, **length, **members}


def long_text(words: int) -> str:
    """A prompt of at least so many tokens."""
    return " ".join(f"import {number}" for number in range(words // 2))


class Watch:
    """Reads the engine's own gauges, and who is parked, all the while.

    Attributes:
        readings: the engine's.
        parked: the most that were parked at once.
    """

    def __init__(self, engine: Engine, gateway: Gateway) -> None:
        self.readings: list[Gauges] = []
        self.parked = 0
        self._engine = engine
        self._gateway = gateway
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._over.set()
        self._thread.join(10)

    def _look(self) -> None:
        while not self._over.is_set():
            self.readings.append(self._engine.gauges())
            self.parked = max(self.parked, len(self._gateway.parked()))
            pause(0.05)


class TestCase(SynchronousTestCase):
    """A test of real parts, all of them idle when it begins and when it ends.

    Attributes:
        engine: the chat engine, which serves.
        gateway: the one that the tests share.
        front: the address that clients use: nginx.
    """

    def setUp(self) -> None:
        """Have all parts up and idle."""
        self.engine = WORLD.engine()
        self.gateway, self.front = self.parts()
        self.calls: list[Call] = []
        self.addCleanup(self._leave)
        self._settle()
        self._before = self.gateway.outcomes()

    def parts(self) -> tuple[Gateway, str]:
        """The gateway of these tests, before the chat engine, and where its clients connect."""
        return WORLD.gateway(), WORLD.front

    def _leave(self) -> None:
        for call in self.calls:
            call.leave()

    def _settle(self) -> None:
        gateway = self.gateway
        self.wait(lambda: not gateway.status()["own"], 60, "the gateway idle")
        self.engine.wait_idle()
        # What direct callers had left is gone from what the gateway last saw, too.
        self.wait(
            lambda: gateway.status()["in_engine"] == 0 and not gateway.status()["stale"],
            15,
            "the gateway sees an idle engine",
        )

    def wait(self, condition: Callable[[], object], seconds: float, what: str) -> float:
        """Wait until the condition holds; fail with the end of the gateway's log."""
        try:
            return wait_until(condition, seconds, what)
        except AssertionError as fault:
            raise AssertionError(f"{fault}\n{self.gateway.process.tail()}") from None

    def call(
        self, path: str, body: dict[str, Any], base: str | None = None, **options: Any
    ) -> Call:
        """Send a request and let it run."""
        call = Call(f"{base or self.front}{path}", body, **options)
        self.calls.append(call)
        return call

    def stream(self, max_tokens: int, base: str | None = None, **members: Any) -> Call:
        """Ask for a stream of exactly so many tokens and let it run."""
        return self.call("/v1/chat/completions", chat(max_tokens, stream=True, **members), base)

    def fill(self, max_tokens: int, base: str | None = None, count: int = 4) -> list[Call]:
        """Fill the engine's places with streams of so many tokens; all have content then."""
        calls = [self.stream(max_tokens, base) for _ in range(count)]
        for call in calls:
            call.expect(lambda one: one.contents, 30, "content")
        return calls

    def ended(self, **expected: int) -> None:
        """Wait for the requests of this test to have ended so, and in no other outcome."""

        def seen() -> dict[str, int]:
            now = self.gateway.outcomes()
            changes = {name: count - self._before.get(name, 0) for name, count in now.items()}
            return {name: change for name, change in changes.items() if change}

        try:
            self.wait(lambda: seen() == expected, 5, f"outcomes {expected}")
        except AssertionError as fault:
            raise AssertionError(f"got {seen()}\n{fault}") from None


def openai_client(base: str, **options: Any) -> Any:
    """The official OpenAI client; it retries nothing unless told to."""
    return _module("openai").OpenAI(
        api_key="unused", base_url=f"{base}/v1", **{"max_retries": 0, "timeout": 120, **options}
    )


def anthropic_client(base: str, **options: Any) -> Any:
    """The official Anthropic client; it retries nothing unless told to."""
    return _module("anthropic").Anthropic(
        api_key="unused", base_url=base, **{"max_retries": 0, "timeout": 120, **options}
    )


def openai_errors() -> Any:
    """The module with the OpenAI client's exceptions."""
    return _module("openai")


def anthropic_errors() -> Any:
    """The module with the Anthropic client's exceptions."""
    return _module("anthropic")


def _module(name: str) -> Any:
    # By name: neither is installed where the types are checked.
    try:
        return importlib.import_module(name)
    except ImportError as fault:
        raise unavailable(f"{fault}: pip install '.[integration]'") from None


def unavailable(why: str | Unavailable) -> SkipTest:
    """To be raised where a part cannot be had; says so loudly."""
    WORLD.say(f"SKIPPED: {why}")
    return SkipTest(str(why))


def together(count: int, work: Callable[[int], Any]) -> list[Future[Any]]:
    """Do the work `count` times at once, in threads; returns when all have ended."""
    with ThreadPoolExecutor(count) as threads:
        return [threads.submit(work, number) for number in range(count)]
