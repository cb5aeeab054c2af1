"""Command lines: a fault is told in a line; files are looked at before there is work to lose."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import NoReturn

from twisted_gateway.config.faults import Wrong
from twisted_gateway.console.terminal import plain


class Parser(argparse.ArgumentParser):
    """Takes options by their whole names, and shows its texts as they are laid out.

    Args:
        prog: the program's name.
        description: stands before the options.
        epilog: stands behind them.
        fault_status: with which a command line that cannot be understood ends the program.
    """

    def __init__(self, *, prog: str, description: str, epilog: str, fault_status: int) -> None:
        """Take what the class documents."""
        super().__init__(
            prog=prog,
            description=description,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        self._fault_status = fault_status

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, in a line, and exit."""
        self.exit(self._fault_status, f"{self.prog}: {plain(message)} (--help has every option)\n")


def see_writable(path: Path) -> None:
    """See that a file can be written, before there is anything that could be lost.

    Raises:
        Wrong: it cannot.
    """
    if path.is_dir():
        raise Wrong(f"{path} cannot be written: it is a directory")
    if not path.exists() and not path.parent.is_dir():
        raise Wrong(f"{path} cannot be written: there is no directory {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise Wrong(f"{path} cannot be written: permission denied")
