"""Text for terminals: as wide as they are, and never steering them."""

from __future__ import annotations

import io
import os

from tests.support import TestCase
from twisted_gateway.console import terminal
from twisted_gateway.console.terminal import columns, grid, plain, wrapped

ROWS = [("kind", "asked", "refused"), ("long", "2", "0"), ("short", "15", "1"), ("all", "17", "1")]


class Width(TestCase):
    """How wide a terminal is."""

    def stream(self, *, tty: bool) -> io.StringIO:
        made = io.StringIO()
        self.patch(made, "isatty", lambda: tty)
        self.patch(made, "fileno", lambda: 7)
        return made

    def size(self, wide: int) -> None:
        self.patch(os, "get_terminal_size", lambda fd: os.terminal_size((wide, 24)))

    def test_none(self) -> None:
        """What is no terminal has no width."""
        self.assertIsNone(columns(self.stream(tty=False)))

    def test_as_it_says(self) -> None:
        """A terminal says it itself; one that says 0, or next to nothing, is taken for usable."""
        for says, wide in ((40, 40), (0, terminal.USUAL_COLUMNS), (1, 20)):
            self.size(says)
            self.assertEqual(columns(self.stream(tty=True)), wide)

    def test_does_not_say(self) -> None:
        """One that cannot be asked has the usual width."""
        made = io.StringIO()
        self.patch(made, "isatty", lambda: True)
        self.assertEqual(columns(made), terminal.USUAL_COLUMNS)


class Text(TestCase):
    """What is printed."""

    def test_grid(self) -> None:
        """Where there is room the columns are aligned."""
        self.assertEqual(
            grid(ROWS).split("\n"),
            [
                "kind   asked  refused",
                "long       2        0",
                "short     15        1",
                "all       17        1",
            ],
        )
        self.assertEqual(grid(ROWS, 21), grid(ROWS))

    def test_narrow_grid(self) -> None:
        """Where there is none it is turned on its side, in as many parts as it takes."""
        self.assertEqual(
            grid(ROWS, 20).split("\n"),
            [
                "kind     long  short",
                "asked       2     15",
                "refused     0      1",
                "",
                "kind     all",
                "asked     17",
                "refused    1",
            ],
        )

    def test_wrapped(self) -> None:
        """Lines are broken between words; what goes on is indented."""
        self.assertEqual(wrapped("  one two three\n\nfour", 10), "  one two\n    three\n\nfour")
        self.assertEqual(wrapped("one two three", None), "one two three")

    def test_plain(self) -> None:
        """Controls, and what turns the direction of a line, are blanks; line breaks stay."""
        self.assertEqual(plain("a\x1b[2J\u202eb\nc\r"), "a [2J b\nc ")
