"""The figures of a run."""

from __future__ import annotations

from tests.load.harness import request, result, tried
from tests.support import TestCase
from twisted_gateway.load.figures import MAX_TENANTS, quantile, summarize
from twisted_gateway.load.results import Ending, Place, Sample


class Figures(TestCase):
    """What a run comes to."""

    def test_quantile(self) -> None:
        """A quantile is one of the values; of none there is none."""
        self.assertEqual(quantile([5.0, 1.0, 3.0, 4.0], 0.5), 3.0)
        self.assertEqual(quantile([5.0, 1.0], 1.0), 5.0)
        self.assertEqual(quantile([5.0, 1.0], 0.0), 1.0)
        self.assertIsNone(quantile([], 0.5))

    def test_rows(self) -> None:
        """Requests count by how they ended, in the row of their kind and of their tenant."""
        run = result(
            request(0, kind="long"),
            request(1, tried(ending=Ending.REFUSED), ending=Ending.REFUSED),
            request(2, tried(ending=Ending.GAVE_UP), ending=Ending.GAVE_UP, tenant="bob"),
        )
        summary = summarize(run)
        self.assertEqual(
            [(row.name, row.asked) for row in summary.kinds], [("chat", 2), ("long", 1)]
        )
        self.assertEqual(
            [(row.name, row.asked) for row in summary.tenants], [("ann", 2), ("bob", 1)]
        )
        row = summary.all
        self.assertEqual((row.completed, row.refused, row.gave_up, row.failed), (1, 1, 1, 0))

    def test_times(self) -> None:
        """Times are of completed requests; the p95 of all counts the others' patience."""
        run = result(
            request(0, tried(content=3.0), end=9.0),
            request(1, tried(content=None, ending=Ending.FAILED), ending=Ending.FAILED),
        )
        row = summarize(run).all
        self.assertEqual((row.ttft_p95, row.whole_p95, row.ttft_all_p95), (3.0, 9.0, 600.0))
        self.assertEqual(row.tokens_per_second, 0.1)

    def test_interrupted(self) -> None:
        """A request that the end of the run cut off counts neither way."""
        run = result(
            request(0), request(1, tried(ending=Ending.INTERRUPTED), ending=Ending.INTERRUPTED)
        )
        row = summarize(run).all
        self.assertEqual((row.completed_percent, row.ttft_all_p95), (100.0, 2.0))

    def test_nobody(self) -> None:
        """Who had not come is in no row."""
        run = result(request(0, ending=Ending.INTERRUPTED))
        run.requests[0].tries.clear()
        row = summarize(run).all
        self.assertEqual((row.asked, row.completed_percent, row.ttft_p50), (0, None, None))

    def test_reasons(self) -> None:
        """Every try that was refused or failed counts with its reason."""
        no = tried(ending=Ending.REFUSED, reason="queue_full")
        summary = summarize(result(request(0, no, no, tried()), request(1)))
        self.assertEqual((summary.reasons, summary.refusals), ({"queue_full": 2}, 2))

    def test_wasted(self) -> None:
        """Work in vain is what had begun to answer and came to nothing."""
        left = tried(ending=Ending.GAVE_UP, tokens=7)
        early = tried(ending=Ending.GAVE_UP, content=None)
        run = result(
            request(0),
            request(1, left, ending=Ending.GAVE_UP),
            request(2, early, ending=Ending.GAVE_UP),
        )
        self.assertEqual(summarize(run).wasted_tokens, 107)

    def test_cut(self) -> None:
        """What the end of the run cut is not in vain; it is counted apart."""
        cut = tried(ending=Ending.INTERRUPTED, tokens=7)
        waits = tried(ending=Ending.FAILED, tokens=3)
        later = request(3, ending=Ending.INTERRUPTED)
        later.tries.clear()
        run = result(
            request(0),
            request(1, cut, ending=Ending.INTERRUPTED),
            request(2, waits, ending=Ending.INTERRUPTED),
            later,
            interrupted=True,
        )
        summary = summarize(run)
        self.assertEqual((summary.cut_tokens, summary.wasted_tokens), (107, 103))
        self.assertEqual((summary.all.interrupted, summary.not_come), (2, 1))

    def test_peaks(self) -> None:
        """Of samples the largest count."""
        run = result(samples=[Sample(at=0, parked=3, in_engine=4), Sample(at=1, parked=1, truth=5)])
        summary = summarize(run)
        self.assertEqual(
            (summary.most_parked, summary.most_in_engine, summary.most_truly), (3, 4, 5)
        )

    def test_promises(self) -> None:
        """The first promise of each request is held against when its content came."""
        run = result(
            request(0, tried(content=50.0)),
            places=[Place(10.0, 0, 3, 30.0), Place(20.0, 0, 2, 1.0)],
        )
        self.assertEqual(summarize(run).eta_error, 10.0)

    def test_many_tenants(self) -> None:
        """Tenants that ask least share a row."""
        run = result(*(request(n, tenant=f"t{n}") for n in range(MAX_TENANTS + 5)))
        rows = summarize(run).tenants
        self.assertEqual(
            (len(rows), rows[-1].name, rows[-1].asked), (MAX_TENANTS + 1, "5 others", 5)
        )
