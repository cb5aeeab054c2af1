"""The books of tries at engines."""

from __future__ import annotations

from twisted.internet.task import Clock

from tests.support import TestCase
from twisted_gateway.web.tries import LATELY_SECONDS, Standing, Tries

ENGINE = "http://10.0.0.1:8000/base"


class TriesTests(TestCase):
    """What is known of an engine by our own requests."""

    def setUp(self) -> None:
        super().setUp()
        self.clock = Clock()
        self.tries = Tries(self.clock.seconds)

    def standing(self, upstream: str = ENGINE) -> Standing:
        return self.tries.standing(upstream, prefill_rate=100, decode_rate=10)

    def test_nothing_known(self) -> None:
        """Of an engine that was never asked nothing is claimed."""
        self.assertEqual(self.standing(), Standing())

    def test_silence(self) -> None:
        """It begins where somebody begins to wait, and at each byte; newcomers do not end it."""
        self.clock.advance(50)
        first = self.tries.begin(ENGINE, prompt_tokens=100, answer_tokens=0)
        self.clock.advance(3)
        second = self.tries.begin(ENGINE, prompt_tokens=100, answer_tokens=0)
        self.assertEqual(self.standing().silent_seconds, 3)
        second.heard()
        self.clock.advance(2)
        first.end()
        self.assertEqual(self.standing().silent_seconds, 2)
        second.end()
        second.end()
        self.assertIsNone(self.standing().silent_seconds)

    def test_expected(self) -> None:
        """All prompts that are not read yet, and the shortest of the answers that come whole."""
        stream = self.tries.begin(ENGINE, prompt_tokens=400, answer_tokens=0)
        self.assertEqual(self.standing().expected_seconds, 4)
        self.tries.begin(ENGINE, prompt_tokens=200, answer_tokens=50)
        self.assertEqual(self.standing().expected_seconds, 6)
        stream.content()
        self.assertEqual(self.standing().expected_seconds, 2)
        stream.end()
        self.assertEqual(self.standing().expected_seconds, 7)

    def test_models_of_one_engine(self) -> None:
        """An engine is its scheme, host and port, whatever the path before /v1."""
        self.tries.begin("http://10.0.0.1:8000/a", prompt_tokens=0, answer_tokens=0)
        self.clock.advance(5)
        self.assertEqual(self.standing("http://10.0.0.1:8000/b").silent_seconds, 5)
        self.assertEqual(self.standing("http://10.0.0.1:8001"), Standing())

    def test_faults(self) -> None:
        """They are counted until a good answer, by what speaks of the engine alone."""
        one = self.tries.begin(ENGINE, prompt_tokens=0, answer_tokens=0)
        for status in (500, 404, 400, 401, 422, 429):
            one.answered(status, own_key=False)
        self.assertEqual((self.standing().faults_in_a_row, self.standing().fault), (2, 404))
        one.answered(401, own_key=True)
        self.assertEqual((self.standing().faults_in_a_row, self.standing().fault), (3, 401))
        one.answered(204, own_key=False)
        self.assertEqual((self.standing().faults_in_a_row, self.standing().fault), (0, None))

    def test_what_was_long_ago(self) -> None:
        """Nothing is held against an engine for ever."""
        one = self.tries.begin(ENGINE, prompt_tokens=0, answer_tokens=0)
        one.answered(500, own_key=False)
        one.failed("the connection was refused")
        self.assertEqual(self.standing().unreached, "the connection was refused")
        self.clock.advance(LATELY_SECONDS)
        self.assertEqual((self.standing().faults_in_a_row, self.standing().unreached), (0, ""))
        one.failed("the connection was refused")
        one.answered(400, own_key=False)
        self.assertEqual(self.standing().unreached, "")

    def test_forgotten(self) -> None:
        """Engines that are configured no more, once nothing of ours is in them."""
        one = self.tries.begin(ENGINE, prompt_tokens=0, answer_tokens=0)
        one.answered(500, own_key=False)
        self.tries.keep([])
        self.assertEqual(self.standing().faults_in_a_row, 1)
        one.end()
        self.tries.keep(["http://10.0.0.1:8000"])
        self.assertEqual(self.standing().faults_in_a_row, 1)
        self.tries.keep([])
        self.assertEqual(self.standing(), Standing())
