"""`reload: watch`: the configuration is read again when its file has changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from twisted.application.service import Service
from twisted.internet import task
from twisted.internet.defer import maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_gateway.web.background import in_background

WATCH_SECONDS = 2.0
"""How often it is looked at."""


class Watcher(Service):
    """Reads the configuration again when its file has changed (`reload: watch`).

    Args:
        clock: for the timer.
        path: the file; where it is a link, as a mounted ConfigMap's is, what it points at counts.
        reload: called after each change.
    """

    _log = Logger()

    def __init__(self, clock: IReactorTime, path: Path, reload: Callable[[], object]) -> None:
        """Take what the class documents."""
        self._path = path
        self._reload = reload
        self._seen = self._stamp()
        self._loop = task.LoopingCall(self._look)
        self._loop.clock = clock

    def startService(self) -> None:
        """Begin to look."""
        super().startService()
        in_background(self._loop.start(WATCH_SECONDS, now=False), self._log, "watching")

    def stopService(self) -> None:
        """Look no more."""
        super().stopService()
        if self._loop.running:
            self._loop.stop()

    def _look(self) -> None:
        stamp = self._stamp()
        if stamp is not None and stamp != self._seen:
            self._seen = stamp
            self._log.info("{path} has changed", path=str(self._path))
            # Whatever comes of it, the next change is looked for.
            in_background(maybeDeferred(self._reload), self._log, "reading it again")

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            # Between two versions of the file there may be none.
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino
