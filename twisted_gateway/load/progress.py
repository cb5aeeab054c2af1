"""What is seen of a run while it goes on: a line that changes, or a line now and then."""

from __future__ import annotations

from typing import TextIO

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from twisted_gateway.console.terminal import USUAL_COLUMNS, columns
from twisted_gateway.load.figures import quantile
from twisted_gateway.load.gauges import Gauges
from twisted_gateway.load.run import Run
from twisted_gateway.load.table import seconds
from twisted_gateway.web.background import in_background

BAR_SECONDS = 0.25
LINE_SECONDS = 5.0
# The bar has what the figures leave, up to so many; less than a few say nothing.
_MOST_BAR_CHARS, _LEAST_BAR_CHARS = 20, 4
# The newest only: what is seen live is how it goes, and costs the same however long a run is.
_LIVE_TTFTS = 1000


class Progress:
    """Shows a run on a terminal, or in a log."""

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        run: Run,
        gauges: Gauges,
        stream: TextIO | None,
    ) -> None:
        """Take what is shown, and where.

        Args:
            clock: the reactor's.
            run: the run.
            gauges: what the gateways say.
            stream: where to write; a terminal has a bar, as wide as it is just then. None where
                the process was started without it (`2>&-`): then nothing is shown.
        """
        self._run = run
        self._gauges = gauges
        self._stream = stream
        self._bar = stream is not None and stream.isatty()
        self._loop = LoopingCall(self._show)
        self._loop.clock = clock

    def start(self) -> None:
        """Show how it stands, and again and again."""
        if self._stream is None:
            return
        started = self._loop.start(BAR_SECONDS if self._bar else LINE_SECONDS, now=self._bar)
        in_background(started, self._log, "the progress bar")

    def stop(self) -> None:
        """Show how it stands for the last time."""
        if self._loop.running:
            self._loop.stop()
            self._show()
            if self._bar:
                self._write("\n")

    def line(self) -> str:
        """How it stands."""
        run = self._run
        last = self._gauges.samples[-1] if self._gauges.samples else None
        parked = run.held if last is None or last.parked is None else last.parked
        ttfts = run.live_ttfts(_LIVE_TTFTS)
        now = run.pace.now()
        parts = [
            f"{run.ended}/{len(run.requests)}",
            f"{now:.0f} s",
            f"open {run.open}",
            f"parked {parked}",
            f"refused {run.refused}",
            f"TTFT {seconds(quantile(ttfts, 0.5))} p95 {seconds(quantile(ttfts, 0.95))}",
            f"{run.tokens / now if now > 0 else 0:.0f} tok/s",
        ]
        return "  ".join(parts)

    def _show(self) -> None:
        if self._stream is None:
            return
        if not self._bar:
            self._write(self.line() + "\n")
            return
        wide = (columns(self._stream) or USUAL_COLUMNS) - 1
        line = self.line()[:wide]
        room = min(_MOST_BAR_CHARS, wide - len(line) - len("[] "))
        if room >= _LEAST_BAR_CHARS:
            full = int(self._run.ended / max(1, len(self._run.requests)) * room)
            line = f"[{'#' * full}{'.' * (room - full)}] {line}"
        self._write(f"\r\x1b[K{line}")

    def _write(self, text: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            # Nobody reads any more; the run goes on.
            if self._loop.running:
                self._loop.stop()
