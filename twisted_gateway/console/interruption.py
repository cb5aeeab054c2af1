"""Ctrl-C, and SIGTERM: the first ends what goes on, the second the program."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

SIGNALLED = 128
"""And the number of the signal that ended a run early: its exit status."""


class Interruption:
    """What the user does about a run that goes on.

    Attributes:
        status: the exit status that the first signal stands for; None: there was none.
        ends: what the first signal calls, from the reactor; nothing, unless it is set.
    """

    def __init__(self, reactor: Any) -> None:
        """Take the signals from when the reactor runs."""
        self.status: int | None = None
        self.ends: Callable[[], object] = _nothing
        self._reactor = reactor
        # Once it runs the reactor has installed its own, which would stop it and say nothing.
        reactor.callWhenRunning(self._install)

    def _install(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._signalled)

    def _signalled(self, number: int, frame: object) -> None:
        if self.status is not None:
            os._exit(SIGNALLED + number)
        self.status = SIGNALLED + number
        # A handler may run between any two instructions, and does not wake the reactor.
        self._reactor.callFromThread(self._end)

    def _end(self) -> None:
        self.ends()


def _nothing() -> None:
    """End nothing."""
