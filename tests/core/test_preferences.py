"""What a client asks of the gateway by header."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.support import TestCase, examples
from twisted_gateway.core.errors import Problem
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.core.preferences import prefer_wait, priority, request_id
from twisted_gateway.core.ticket import Priority


class RequestId(TestCase):
    """X-Request-ID."""

    def test_kept_or_made(self) -> None:
        """A well-formed one is kept, anything else is replaced."""
        for good in ("a", "A-1_b.c", "x" * 128):
            self.assertEqual(request_id(good, lambda: "made"), good)
            self.assertEqual(request_id(good.encode(), lambda: "made"), good)
        for bad in ("", "x" * 129, "a b", "a\n", "é", "a/b", "a\0", None, b"\xff"):
            self.assertEqual(request_id(bad, lambda: "made"), "made", bad)


class PriorityHeader(TestCase):
    """X-Priority."""

    def test_words(self) -> None:
        """Three words are known; none means interactive; a word said twice is still that word."""
        for values, expected in (
            ([], Priority.INTERACTIVE),
            (["interactive"], Priority.INTERACTIVE),
            (["batch"], Priority.BATCH),
            ([b" warmup "], Priority.WARMUP),
            ([b"batch", b"batch"], Priority.BATCH),
        ):
            self.assertIs(priority(values), expected)

    def test_anything_else(self) -> None:
        """Other words, the empty one and contradictions are the client's fault."""
        for values in (["high"], [""], ["Batch"], ["batch", "warmup"], ["batch, batch"], [b"\xff"]):
            fault = self.assertRaises(Problem, priority, values)
            self.assertEqual((fault.status, fault.outcome), (400, Outcome.BAD_REQUEST))
            self.assertEqual(fault.members["valid_priorities"], ["interactive", "batch", "warmup"])


class PreferWait(TestCase):
    """Prefer: wait."""

    def test_table(self) -> None:
        """RFC 7240: any case, first wins, quoted or not, others passed over."""
        for values, expected in (
            ([], None),
            ([""], None),
            (["wait=5"], 5),
            (["wait=0"], 0),
            (["WAIT = 5 "], 5),
            (['wait="5"'], 5),
            (["wait=007"], 7),
            (["respond-async, wait=10"], 10),
            (["respond-async; x=1 , wait=10; y=2, wait=20"], 10),
            (["respond-async", "wait=3"], 3),
            (["wait=3", "wait=4"], 3),
            (['foo="a, wait=1", wait=2'], 2),
            (['foo="a\\", wait=1", wait=2'], 2),
            (['foo="a, wait=1'], None),
            (['foo="a\\'], None),
            (["foo=wait; wait=1"], None),
            (["waiting=1"], None),
            (["xwait=1"], None),
            ([",,wait=1"], 1),
            (["wait"], None),
            (["wait="], None),
            (["wait=-1"], None),
            (["wait=1.5"], None),
            (["wait=5s"], None),
            (['wait="5'], None),
            (["wait=\u0665"], None),
            (["wait=x, wait=5"], None),
            (["wait=2147483647"], 2**31 - 1),
            (["wait=10000000000"], 2**31),
            (["wait=" + "9" * 9000], 2**31),
            (["wait=" + "0" * 9000 + "1"], 1),
        ):
            self.assertEqual(prefer_wait(values), expected, values)
        self.assertEqual(prefer_wait([b"\xff", b"wait=8"]), 8)

    @examples(80)
    @given(st.text(' ,;="\\wait0159x', max_size=30), st.integers(0, 10**12))
    def test_never_raises(self, text: str, seconds: int) -> None:
        """Nothing makes it raise, and a well-formed element in front always counts."""
        waited = prefer_wait([text])
        self.assertTrue(waited is None or 0 <= waited <= 2**31)
        self.assertEqual(prefer_wait([f"wait={seconds}, {text}"]), min(seconds, 2**31))


class HostileHeaders(TestCase):
    """A quadratic pattern would take hours over these."""

    def test_blanks_without_end(self) -> None:
        """Each of them is read in one go, for what it says."""
        blanks = " " * 200_000
        for value, seconds in (
            (f"wait={blanks}x", None),
            (f"wait{blanks}={blanks}", None),
            (f"{blanks}wait{blanks}={blanks}5{blanks};{blanks}", 5),
            (blanks, None),
            ('"' + "\\" * 200_000, None),
            ("," * 200_000, None),
            ('a="' * 100_000 + "wait=3", None),
            ("wait=" + "1" * 200_000, 2**31),
        ):
            self.assertEqual(prefer_wait([value]), seconds, value[:20])
