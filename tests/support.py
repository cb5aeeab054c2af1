"""The tests' only helper: a base class that lets no test pass in silence."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from typing import Any

from hypothesis import settings
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

# The suite is to be run at every save; EXAMPLES_SCALE=1 or more looks longer, as CI does.
_SCALE = float(os.environ.get("EXAMPLES_SCALE", "0.2"))


def examples(count: int) -> settings:
    """So many examples of a property, scaled."""
    return settings(max_examples=max(5, round(count * _SCALE)))


settings.register_profile("ci", examples(100), derandomize=True, deadline=None, database=None)
settings.register_profile("dev", examples(100), deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


class TestCase(SynchronousTestCase):
    """A synchronous test whose body must run to its end and leave no timer behind.

    `self.clock` is a fresh `Clock`; a delayed call that is left on it fails the test. A test that
    returns a coroutine or a Deferred fails, for nobody would run it. The falsifying example that
    hypothesis hangs on an exception as a note is put into its message, for trial prints no notes.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        """Wrap each test method, in the class itself so that trial finds it by its name."""
        super().__init_subclass__(**options)
        for name, method in list(vars(cls).items()):
            if name.startswith("test") and callable(method):
                setattr(cls, name, _whole(method))

    def setUp(self) -> None:
        """Give the test a clock of its own."""
        self.clock = Clock()
        self.addCleanup(self._no_timer_left)

    def _no_timer_left(self) -> None:
        self.assertEqual(self.clock.getDelayedCalls(), [], "timers left on the clock")


def _whole(method: Callable[[Any], object]) -> Callable[[Any], None]:
    @functools.wraps(method)
    def run(case: Any) -> None:
        try:
            result: Any = method(case)
        except Exception as fault:
            notes = getattr(fault, "__notes__", None)
            if notes:
                raise AssertionError("\n".join([f"{fault!r}", *notes])) from fault
            raise
        if inspect.isawaitable(result) or isinstance(result, Deferred):
            if inspect.iscoroutine(result):
                result.close()
            raise AssertionError(f"{method.__name__} returned {result!r}, which nobody would run")

    return run
