"""Standard streams that are closed, full, of another encoding, or read by nobody."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Any, TextIO

from tests.support import TestCase
from twisted_gateway.console.console import Console

DOCUMENT = "<name>\N{ROCKET}\N{LATIN SMALL LETTER E WITH ACUTE}</name>\n".encode()


class Full(io.RawIOBase):
    """A file on a disk that has no room, which has a descriptor all the same."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        raise OSError(28, "No space left on device")

    def fileno(self) -> int:
        return self._descriptor


class ConsoleTestCase(TestCase):
    """A console whose streams are the test's."""

    def setUp(self) -> None:
        super().setUp()
        self.said = io.StringIO()
        self.patch(sys, "stderr", self.said)

    def console(self, stdout: TextIO | None) -> Console:
        self.patch(sys, "stdout", stdout)
        return Console("tool")

    def full(self) -> TextIO:
        """A standard output without room: its descriptor is one that may be turned elsewhere."""
        path = Path(self.mktemp())
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
        self.addCleanup(os.close, descriptor)
        raw: Any = Full(descriptor)
        return io.TextIOWrapper(io.BufferedWriter(raw, buffer_size=16))


class OutputTests(ConsoleTestCase):
    """Standard output."""

    def test_full(self) -> None:
        """What cannot be written is said once, and kept; what follows goes nowhere."""
        console = self.console(self.full())
        for _ in range(3):
            console.write("a line that is longer than the buffer\n")
        console.write_document(DOCUMENT)
        self.assertEqual(console.fault, "No space left on device")
        said = "tool: the standard output cannot be written: No space left on device\n"
        self.assertEqual(self.said.getvalue(), said)

    def test_closed(self) -> None:
        """A program that was started without one goes on, and knows that nothing was written."""
        console = self.console(None)
        self.assertIsNone(console.columns)
        console.write("text")
        console.write_document(DOCUMENT)
        self.assertEqual(console.fault, "it is closed")
        self.assertEqual(self.said.getvalue().count("\n"), 1)

    def test_reader_has_gone(self) -> None:
        """Who has read enough is no fault."""
        reader, writer = os.pipe()
        os.close(reader)
        with open(writer, "w", encoding="utf-8") as gone:
            console = self.console(gone)
            for _ in range(2):
                console.write("text")
                console.write_document(DOCUMENT)
        self.assertEqual((console.fault, self.said.getvalue()), ("", ""))

    def test_another_encoding(self) -> None:
        """A document is UTF-8 whatever the terminal is; a text is as near as it can be."""
        raw = io.BytesIO()
        console = self.console(io.TextIOWrapper(raw, encoding="latin-1"))
        console.write("\N{ROCKET}\xe9\n")
        console.write_document(DOCUMENT)
        self.assertEqual(raw.getvalue(), b"?\xe9\n" + DOCUMENT)

    def test_in_memory(self) -> None:
        """What takes text alone gets the document as text."""
        out = io.StringIO()
        self.console(out).write_document(DOCUMENT)
        self.assertEqual(out.getvalue(), DOCUMENT.decode())


class ErrorTests(ConsoleTestCase):
    """Standard error."""

    def test_plain(self) -> None:
        """A line names the program, and does not steer the terminal."""
        self.console(None).say("a\x1b[2J")
        self.assertEqual(self.said.getvalue(), "tool: a [2J\n")

    def test_closed_or_full(self) -> None:
        """Where it is not to be had nothing is said, and nothing else is lost."""
        for stderr in (None, self.full()):
            out = io.StringIO()
            console = self.console(out)
            self.patch(sys, "stderr", stderr)
            console.say("a line that is longer than the buffer")
            console.write("text")
            self.assertEqual((out.getvalue(), console.fault), ("text", ""))

    def test_fail(self) -> None:
        """Each line is said by itself, before the program ends."""
        console = self.console(None)
        fault = self.assertRaises(SystemExit, console.fail, "one\ntwo", 7)
        self.assertEqual(fault.code, 7)
        self.assertEqual(self.said.getvalue(), "tool: one\ntool: two\n")


class FileTests(ConsoleTestCase):
    """Files."""

    def test_save(self) -> None:
        """A file that cannot be written is named."""
        console = self.console(None)
        path = Path(self.mktemp())
        self.assertTrue(console.save(path, DOCUMENT))
        self.assertEqual(path.read_bytes(), DOCUMENT)
        self.assertFalse(console.save(path / "x", DOCUMENT))
        self.assertIn("x cannot be written: Not a directory", self.said.getvalue())
