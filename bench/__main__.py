"""`python -m bench NAME`: run one of the programs in this directory; without a name, list them.

A program is a module, or a package with a `__main__`; what others share is none.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

HERE = Path(__file__).parent
PROGRAMS = [*HERE.glob("*.py"), *(path.parent for path in HERE.glob("*/__main__.py"))]
SHARED = {"__init__", "__main__", "pages", "svg"}
NAMES = sorted({path.stem for path in PROGRAMS} - SHARED)


def main() -> int:
    """Run the program that the command line names; returns the exit status."""
    if len(sys.argv) < 2 or sys.argv[1] not in NAMES:
        print(f"usage: python -m bench {{{','.join(NAMES)}}} [options]")
        return 0 if len(sys.argv) < 2 else 2
    name = sys.argv.pop(1)
    runpy.run_module(f"bench.{name}", run_name="__main__", alter_sys=True)
    return 0


sys.exit(main())
