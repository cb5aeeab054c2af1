"""The runner reads what trial says of itself."""

from __future__ import annotations

from tests.run import Count, count, unit_packages
from tests.support import TestCase


def summary(last: str, status: int = 0, ran: int = 9) -> Count:
    """What is counted of a run that closed with `last`."""
    return count(["noise", f"Ran {ran} tests in 0.123s", "", last], status)


class CountTests(TestCase):
    """Every way in which a run of trial can end."""

    def test_summaries(self) -> None:
        """Each word of trial's summary counts as passed, failed or skipped."""
        self.assertEqual(summary("PASSED (successes=9)"), Count(passed=9))
        self.assertEqual(summary("PASSED (skips=2, successes=7)"), Count(passed=7, skipped=2))
        self.assertEqual(summary("PASSED (expectedFailures=1, successes=8)"), Count(passed=9))
        self.assertEqual(
            summary("FAILED (failures=2, errors=3, successes=4)", 1), Count(passed=4, failed=5)
        )
        self.assertEqual(
            summary("FAILED (unexpectedSuccesses=1, successes=8)", 1), Count(passed=8, failed=1)
        )

    def test_a_crash_is_a_failure(self) -> None:
        """A run that ended without a summary, or after it, failed once."""
        self.assertEqual(count(["Traceback"], 1), Count(failed=1))
        self.assertEqual(count([], -11), Count(failed=1))
        self.assertEqual(summary("PASSED (successes=9)", status=-11), Count(passed=9, failed=1))

    def test_no_test_is_a_failure(self) -> None:
        """A run that found nothing to run proves nothing."""
        self.assertEqual(summary("PASSED", ran=0), Count(failed=1))

    def test_a_summary_that_a_test_printed_does_not_count(self) -> None:
        """Only what follows trial's own closing line does."""
        lines = ["PASSED (successes=99)", "Ran 1 tests in 0.1s", "", "FAILED (errors=1)"]
        self.assertEqual(count(lines, 1), Count(failed=1))

    def test_counts_add_up_to_one_line(self) -> None:
        """The closing line has the form that CI reads."""
        self.assertEqual(
            str(Count(1, 2, 3) + Count(10, 20, 30)), "11 passed, 22 failed, 33 skipped"
        )

    def test_integration_is_not_a_unit_test(self) -> None:
        """All test packages are run, but the one that needs real parts."""
        self.assertIn("tests.core", unit_packages())
        self.assertIn("tests.test_run", unit_packages())
        self.assertNotIn("tests.integration", unit_packages())
