"""Tests of the tests' base class: what would pass in silence fails."""

from __future__ import annotations

import unittest
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, succeed

from tests.support import TestCase


class BaseClass(TestCase):
    """What it refuses."""

    def _messages(self, body: Any) -> list[str]:
        class Inner(TestCase):
            test_it = body

        result = unittest.TestResult()
        Inner("test_it").run(result)
        return [str(text) for _, text in [*result.errors, *result.failures]]

    def test_what_returns_something_to_wait_for(self) -> None:
        """A coroutine or a Deferred would be run by nobody."""

        async def coroutine(self: TestCase) -> None:
            raise AssertionError("nobody sees this")

        def deferred(self: TestCase) -> Deferred[None]:
            return succeed(None)

        for body in (coroutine, deferred):
            (message,) = self._messages(body)
            self.assertIn("which nobody would run", message)

    def test_a_timer_that_is_left(self) -> None:
        """A test cleans up after itself."""

        def leaves(self: TestCase) -> None:
            self.clock.callLater(1, print)

        (message,) = self._messages(leaves)
        self.assertIn("timers left on the clock", message)

    def test_the_falsifying_example_is_shown(self) -> None:
        """trial prints no notes, so it stands in the message."""

        @given(st.integers())
        def fails(self: TestCase, number: int) -> None:
            raise ValueError(number)

        (message,) = self._messages(fails)
        self.assertIn("number=0", message)

    def test_a_good_one_passes(self) -> None:
        """And nothing else is in its way."""
        self.assertEqual(self._messages(lambda self: None), [])
