"""`docker stop` and SIGHUP: nothing is lost in silence."""

from __future__ import annotations

import signal

from tests.integration.case import TestCase, chat
from tests.integration.engines import MODEL
from tests.integration.gateway import PATIENT, Gateway
from tests.integration.wire import get, post
from tests.integration.world import WORLD


class LifecycleTests(TestCase):
    """A gateway of the test's own."""

    def setUp(self) -> None:
        super().setUp()
        self.own = Gateway("gateway-own", WORLD.configuration(), WORLD.logs)
        self.addCleanup(self.own.process.stop)
        self.own.start()

    def test_stop(self) -> None:
        """SIGTERM: running and kept-alive requests are served, silent ones refused; exit 0."""
        own = self.own
        running = self.fill(1500, own.url)
        kept = self.stream(50, own.url)
        kept.expect(lambda call: call.comments, 10, "a comment")
        silent = self.stream(50, own.url, model=PATIENT)
        whole = self.call("/v1/chat/completions", chat(50), own.url)
        self.wait(lambda: len(own.parked()) == 3, 5, "three parked")

        own.process.signal(signal.SIGTERM)

        seconds = self.wait(lambda: own.ready() == 503, 5, "unready")
        self.assertLess(seconds, 0.5)
        self.assertEqual(get(f"{own.url}/health/ready").json()["reasons"], ["draining"])
        for call in (silent, whole):
            call.finish(5)
            self.assertEqual(call.status, 503, call.describe())
            self.assertIn('"draining"', call.text)
            self.assertGreaterEqual(int(call.headers["retry-after"]), 1)
        newcomer = post(f"{own.url}/v1/chat/completions", chat(4))
        self.assertEqual((newcomer.status, newcomer.json()["reason"]), (503, "draining"))
        self.assertFalse(any(call.done.is_set() for call in (*running, kept)))

        for call in (*running, kept):
            self.assertTrue(call.finish(120).whole, call.describe())
        self.assertTrue(kept.contents)
        self.assertEqual(own.process.wait(10), 0)

    def test_stop_when_idle(self) -> None:
        """An idle gateway stops within seconds, with exit code 0."""
        self.own.process.signal(signal.SIGTERM)
        self.assertEqual(self.own.process.wait(10), 0)

    def test_reload(self) -> None:
        """SIGHUP puts the file in force or refuses it whole; no request is disturbed."""
        own = self.own
        running = self.fill(1200, own.url)
        parked = self.stream(20, own.url)
        parked.expect(lambda call: call.comments, 10, "a comment")

        own.configure(WORLD.configuration(aliases=("gpt-4o", "gpt-5")))
        own.reload()
        self.wait(lambda: "gpt-5" in own.status()["aliases"], 5, "the new alias")

        own.configure("models: {reasoning: {upstream: nowhere, colour: green}}")
        own.reload()
        failed = lambda: own.metric("config_last_reload_successful") == 0  # noqa: E731
        self.wait(failed, 5, "the bad file refused")
        log = own.process.log.read_text()
        self.assertIn("models.reasoning.upstream", log)
        self.assertIn("models.reasoning.colour", log)
        self.assertNotIn("Traceback", log)
        self.assertIn("gpt-5", own.status()["aliases"])
        self.assertEqual(len(own.parked()), 1)

        for call in (*running, parked):
            self.assertTrue(call.finish(120).whole, call.describe())
        answer = post(f"{own.url}/v1/chat/completions", chat(4, model="gpt-5"))
        self.assertEqual((answer.status, answer.json()["model"]), (200, MODEL))
