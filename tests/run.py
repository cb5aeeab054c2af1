"""Run the tests: `python3 tests/run.py` on a fresh checkout is all it takes.

With Python 3.11 or later and its `venv` module, and nothing else set up, it makes `.venv`, installs
the package and what the tests need into it, runs the unit tests there with branch coverage, and
ends with one line: `N passed, N failed, N skipped`. A crash, or coverage below its floor, counts
as one failure. The exit status is 0 only when nothing failed and at least one test passed.

    python3 tests/run.py                              # all unit tests, coverage with its floors
    python3 tests/run.py tests.core.test_gate         # these only, no floors
    python3 tests/run.py --here                       # in the interpreter that runs this (tox)
    python3 tests/run.py --here --integration         # against real engines and nginx
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
CORE = "twisted_gateway/core/*"
FLOORS = ((["--include", CORE], 100), (["--omit", CORE], 90))
_SUMMARY = re.compile(r"^(?:PASSED|FAILED)(?: \(([^()]*)\))?$")
_RAN = re.compile(r"^Ran (\d+) tests? in [\d.]+s$")


@dataclass(frozen=True, slots=True)
class Count:
    """How many tests passed, failed and were skipped."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(
            self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped
        )

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def count(lines: Iterable[str], status: int) -> Count:
    """Read trial's closing summary.

    Args:
        lines: what trial printed; the last summary that follows a `Ran N tests` counts.
        status: trial's exit status; one that the summary does not explain is one failure.

    Returns:
        The count. Tests that failed as a `todo` expects have passed.
    """
    words: dict[str, int] | None = None
    ran = False
    for line in lines:
        if _RAN.match(line):
            ran, words = True, None
        elif ran and (match := _SUMMARY.match(line)):
            pairs = (part.split("=") for part in (match[1] or "").split(", ") if "=" in part)
            words = {word: int(number) for word, number in pairs}
    words = words or {}
    seen = Count(
        words.get("successes", 0) + words.get("expectedFailures", 0),
        words.get("failures", 0) + words.get("errors", 0) + words.get("unexpectedSuccesses", 0),
        words.get("skips", 0),
    )
    unexplained = not seen.failed and (status != 0 or not (seen.passed or seen.skipped))
    return seen + Count(failed=1) if unexplained else seen


def unit_packages() -> list[str]:
    """The test packages and modules that need nothing but the package, by their dotted names."""
    here = ROOT / "tests"
    packages = [path.parent.name for path in here.glob("*/__init__.py")]
    modules = [path.stem for path in here.glob("test_*.py")]
    return [f"tests.{name}" for name in sorted(packages + modules) if name != "integration"]


def python() -> str:
    """The interpreter of `.venv`, which is made, or brought up to date, first."""
    inside = VENV / "bin" / "python"
    if not inside.exists():
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    stamp = VENV / ".installed"
    wanted = (ROOT / "setup.cfg").read_text()
    if not stamp.exists() or stamp.read_text() != wanted:
        pip = [str(inside), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
        subprocess.run([*pip, "--editable", f"{ROOT}[test]"], check=True, cwd=ROOT)
        stamp.write_text(wanted)
    return str(inside)


def trial(arguments: list[str], *, covered: bool, interpreter: str) -> Count:
    """Run trial, pass on what it prints, and count."""
    under = ["coverage", "run", "-m"] if covered else []
    command = [interpreter, "-m", *under, "twisted.trial", *arguments]
    lines: list[str] = []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.write(line)
            lines.append(line.rstrip())
        sys.stdout.flush()
    return count(lines, process.returncode)


def floors(interpreter: str) -> Count:
    """Print the coverage of core/ and of the rest; each that is below its floor is a failure."""
    missed = 0
    for selection, floor in FLOORS:
        report = [interpreter, "-m", "coverage", "report", *selection, f"--fail-under={floor}"]
        missed += subprocess.run(report, cwd=ROOT).returncode != 0
    return Count(failed=missed)


def main() -> int:
    """Run what the command line asks for; returns the exit status."""
    parser = argparse.ArgumentParser(description="Run the tests.")
    parser.add_argument("--here", action="store_true", help="in this interpreter, not in .venv")
    parser.add_argument("--integration", action="store_true", help="against real parts")
    parser.add_argument("names", nargs="*", metavar="TEST", help="dotted names; default: all")
    options = parser.parse_args()
    if sys.version_info < (3, 11):  # noqa: UP036 -- this is what an older interpreter is told.
        parser.error("Python 3.11 or later is needed")
    total = run(options.names, integration=options.integration, here=options.here)
    print(total)
    return 0 if total.passed and not total.failed else 1


def run(names: list[str], *, integration: bool, here: bool) -> Count:
    """Run the tests that are named, or all, and count."""
    os.environ.setdefault("PYTHONFAULTHANDLER", "1")
    try:
        interpreter = sys.executable if here else python()
    except (OSError, subprocess.CalledProcessError) as fault:
        print(f"could not set up {VENV}: {fault} (on Debian: apt-get install python3-venv)")
        return Count(failed=1)
    whole = not names and not integration
    wanted = names or (["tests.integration"] if integration else unit_packages())
    total = trial(wanted, covered=whole, interpreter=interpreter)
    return total + floors(interpreter) if whole else total


if __name__ == "__main__":
    sys.exit(main())
