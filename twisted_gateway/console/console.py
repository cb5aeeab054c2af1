"""Where a program talks: results go to standard output, what goes on meanwhile to the other."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, NoReturn

from twisted_gateway.console.terminal import columns, plain


class Console:
    """The standard streams of a program, which may be closed, full, or read by nobody any more.

    Attributes:
        program: its name, with which each line on standard error begins.
        fault: why the first text that was lost could not be written to standard output; "" where
            none was. What follows goes nowhere, quietly.
    """

    def __init__(self, program: str) -> None:
        """Take the streams as they are."""
        self.program = program
        self.fault = ""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                # A name that the terminal's encoding cannot say does not cost the report.
                stream.reconfigure(errors="replace")

    @property
    def columns(self) -> int | None:
        """How wide the terminal is that standard output is; None where it is none."""
        return None if _missing(sys.stdout) else columns(sys.stdout)

    def write(self, text: str) -> None:
        """Write to standard output, at once; what comes of it is in `fault`."""
        self._attempt(lambda: sys.stdout.write(text))

    def write_document(self, document: bytes) -> None:
        """Write bytes to standard output, whatever its encoding; see `write`.

        Args:
            document: it; in UTF-8.
        """

        def write() -> None:
            # What only takes text is in memory, and has no encoding of its own.
            raw: IO[bytes] | None = getattr(sys.stdout, "buffer", None)
            if raw is None:
                sys.stdout.write(document.decode("utf-8"))
                return
            sys.stdout.flush()
            raw.write(document)

        self._attempt(write)

    def _attempt(self, write: Callable[[], object]) -> None:
        if self.fault:
            return
        if _missing(sys.stdout):
            self._lose("it is closed")
            return
        try:
            write()
            sys.stdout.flush()
        except BrokenPipeError:
            # Whoever read it has read enough.
            _silence(sys.stdout)
        except OSError as fault:
            _silence(sys.stdout)
            self._lose(fault.strerror or str(fault))

    def _lose(self, why: str) -> None:
        self.fault = why
        self.say(f"the standard output cannot be written: {why}")

    def say(self, text: str) -> None:
        """Write a line to standard error; where that is not to be had it is not said."""
        if _missing(sys.stderr):
            return
        try:
            sys.stderr.write(f"{self.program}: {plain(text)}\n")
            sys.stderr.flush()
        except OSError:
            _silence(sys.stderr)

    def save(self, path: Path, document: bytes) -> bool:
        """Write a file, and say so where it cannot be; gives whether it could."""
        try:
            path.write_bytes(document)
        except OSError as fault:
            self.say(f"{path} cannot be written: {fault.strerror or fault}")
            return False
        return True

    def fail(self, text: str, status: int) -> NoReturn:
        """Say what is wrong, line by line, and end the program.

        Raises:
            SystemExit: with this status.
        """
        for line in text.splitlines():
            self.say(line)
        raise SystemExit(status)


def _missing(stream: object) -> bool:
    """Say whether the process was started without this stream (`>&-`)."""
    return stream is None


def _silence(stream: IO[str]) -> None:
    """Let what is in a stream's buffer go nowhere: Python writes it once more when it exits."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, stream.fileno())
    finally:
        os.close(nowhere)
