"""The engine dies in the middle of its work, and comes back."""

from __future__ import annotations

import itertools
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from tests.integration.case import (
    MESSAGES,
    TestCase,
    anthropic_client,
    anthropic_errors,
    chat,
    openai_client,
    openai_errors,
)
from tests.integration.engines import MODEL, START_SECONDS
from tests.integration.processes import pause


class OutageTests(TestCase):
    """What clients see of it."""

    def setUp(self) -> None:
        super().setUp()
        self.threads = ThreadPoolExecutor(4)
        self.addCleanup(self.threads.shutdown)

    def clients(self) -> list[Future[Any]]:
        """Four streams that run, two of either client; each comes to what its client raises."""
        first, second = openai_client(self.front), anthropic_client(self.front)

        def openai() -> Any:
            try:
                for _ in first.chat.completions.create(
                    model=MODEL,
                    messages=MESSAGES,
                    max_tokens=6000,
                    stream=True,
                    extra_body={"ignore_eos": True},
                ):
                    pass
            except openai_errors().APIError as fault:
                return fault

        def anthropic() -> Any:
            try:
                with second.messages.stream(
                    model=MODEL, messages=MESSAGES, max_tokens=6000, extra_body=_LENGTH
                ) as stream:
                    stream.until_done()
            except anthropic_errors().APIError as fault:
                return fault

        running = [self.threads.submit(work) for work in (openai, anthropic, openai, anthropic)]
        self.wait(lambda: self.engine.gauges().running == 4, 20, "four run")
        # Each has had content then.
        pause(1.0)
        return running

    def assertRaised(self, running: list[Future[Any]]) -> None:
        for future in running:
            fault = future.result(30)
            self.assertIsNotNone(fault, "a client took a broken stream for a whole one")

    def test_killed_and_restarted(self) -> None:
        """Streams of a killed engine end in an error; the parked are served when it is back."""
        running = self.clients()
        kept = self.stream(10)
        silent = self.call("/v1/chat/completions", chat(10), self.gateway.url)
        self.wait(lambda: len(self.gateway.parked()) == 2, 5, "two parked")

        self.engine.kill()
        self.assertRaised(running)
        newcomer = self.call("/v1/chat/completions", chat(10), self.gateway.url)
        pause(3.0)
        self.assertEqual(len(self.gateway.parked()), 3, self.gateway.process.tail())
        self.assertFalse(any(call.done.is_set() for call in (kept, silent, newcomer)))
        self.assertEqual(self.gateway.ready(), 200)

        self.engine.start()
        self.engine.wait_ready()
        self.assertTrue(kept.finish(60).whole, kept.describe())
        self.assertEqual(silent.finish(60).status, 200, silent.describe())
        self.assertEqual(newcomer.finish(60).status, 200, newcomer.describe())
        self.assertLess(max(_gaps(kept.comments)), 5.0)
        self.wait(lambda: not self.gateway.status()["stale"], 10, "the gateway sees it again")
        now = self.gateway.outcomes()
        broken = sum(
            now.get(name, 0) - self._before.get(name, 0)
            for name in ("upstream_error", "upstream_incomplete")
        )
        self.assertEqual(broken, 4, now)
        self.assertEqual(now["ok"] - self._before.get("ok", 0), 3)

    def test_scheduler_killed(self) -> None:
        """An engine that says in band that it died, and ends cleanly, makes clients raise."""
        running = self.clients()
        self.engine.kill_scheduler()
        self.assertRaised(running)
        self.ended(upstream_error=4)
        self.engine.process.wait(START_SECONDS)


_LENGTH = {"ignore_eos": True}


def _gaps(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in itertools.pairwise(times)]
