"""The report and its plots: nothing foreign gets in as markup, nothing is needed from outside."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from tests.load.harness import request, result, tried
from tests.support import TestCase
from twisted_gateway.load import table
from twisted_gateway.load.advice import advise
from twisted_gateway.load.compare import compare
from twisted_gateway.load.compare import render as render_comparison
from twisted_gateway.load.figures import summarize
from twisted_gateway.load.plots import Bound, Series, plot, thinned, ticks
from twisted_gateway.load.report import comparison, report
from twisted_gateway.load.results import Ending, Gate, Place, Result, Sample

EVIL = "<script>alert('x')</script>\"&"


class Elements(HTMLParser):
    """Notes the elements of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str | None] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href", "xlink:href")]

    def handle_data(self, data: str) -> None:
        self.text += data


def evil_run() -> Result:
    """A run every word of which is hostile."""
    no = tried(ending=Ending.REFUSED, reason=EVIL)
    return result(
        request(0, tried(kept=9.0), kind=EVIL, tenant=EVIL),
        request(1, no, ending=Ending.REFUSED, kind=EVIL, tenant="bob"),
        workload=EVIL,
        model=EVIL,
        to=[EVIL],
        places=[Place(1.0, 0, 3)],
        gate=Gate(max_queue_depth=2, max_inflight=4, max_park_seconds=540.0),
        samples=[Sample(at=1.0, parked=3, in_engine=4, running=4), Sample(at=2.0, parked=1)],
    )


class Page(TestCase):
    """The report of one run."""

    def page(self, run: Result) -> str:
        return report(run, summarize(run), advise(run))

    def test_escapes(self) -> None:
        """Words from outside show as they are and are no markup."""
        page = self.page(evil_run())
        self.assertNotIn("<script", page)
        self.assertNotIn("'x'", page)
        self.assertIn("alert('x')", Elements(page).text)

    def test_self_contained(self) -> None:
        """It names no address to load anything from, and forbids it."""
        elements = Elements(self.page(evil_run()))
        self.assertEqual(elements.addresses, [])
        self.assertTrue({"link", "img", "script", "iframe"}.isdisjoint(elements.tags))
        self.assertIn("default-src 'none'", self.page(evil_run()).replace("&#x27;", "'"))
        self.assertNotIn("url(", self.page(evil_run()))

    def test_plots(self) -> None:
        """There is a plot of TTFT, of parked, in engine, refused and of places."""
        page = self.page(evil_run())
        self.assertEqual(Elements(page).tags.count("svg"), 5)

    def test_absent_figures(self) -> None:
        """Where something was not to be had, the plots say so in words."""
        page = self.page(result(request(0), samples=[]))
        self.assertEqual(Elements(page).tags.count("svg"), 1)
        self.assertIn("/status.json was not to be had", Elements(page).text)
        self.assertIn("Nothing was refused", Elements(page).text)

    def test_advice(self) -> None:
        """It says what the run argues for, and what is in force."""
        text = Elements(self.page(evil_run())).text
        self.assertIn("maxParkSeconds: 10 s", text)
        self.assertIn("In force: 540 s", text)

    def test_nobody(self) -> None:
        """A run in which nobody came has a report too."""
        self.assertIn("this run does not say", self.page(result(samples=[], took=0.0)))

    def test_long_words(self) -> None:
        """No word from outside makes the page long."""
        run = result(request(0, kind="k" * 5000, tenant="t" * 5000))
        self.assertLess(len(self.page(run)), 15_000)


class Table(TestCase):
    """What is printed."""

    def text(self, run: Result) -> str:
        return table.render(run, summarize(run), advise(run))

    def test_rows(self) -> None:
        """Kinds and tenants have a row each, in columns of one width."""
        run = result(request(0), request(1, kind="long", tenant="bob"))
        lines = self.text(run).split("\n")
        self.assertEqual([line.split()[0] for line in lines[:4]], ["kind", "chat", "long", "all"])
        self.assertEqual(len({len(line) for line in lines[:4]}), 1)

    def test_controls(self) -> None:
        """What a server says does not steer the terminal."""
        no = tried(ending=Ending.REFUSED, reason="\x1b[2Jx")
        text = self.text(result(request(0, no, ending=Ending.REFUSED, kind="\x1b]0;x\x07")))
        self.assertNotIn("\x1b", text)

    def test_speed(self) -> None:
        """At a speed it says what the seconds are."""
        self.assertIn("20 times as fast", self.text(result(request(0), speed=20.0)))

    def test_interrupted(self) -> None:
        """A run that was ended early says so."""
        run = result(request(0), request(1, ending=Ending.INTERRUPTED), interrupted=True)
        self.assertIn("1 clients had not come or were under way", self.text(run))


class Comparing(TestCase):
    """Two runs beside each other."""

    def test_ratios(self) -> None:
        """Each figure has both values, and the second over the first."""
        first = result(request(0, tried(content=4.0)))
        second = result(request(0, tried(content=2.0)))
        rows = {row[0]: row[1:] for row in compare(("a", "b"), first, second).rows}
        self.assertEqual(rows["TTFT p50, s"], ("4.0", "2.0", "0.50"))
        self.assertEqual(rows["refused"], ("0", "0", "-"))
        self.assertEqual(rows["most in the engine, by itself"], ("-", "-", "-"))

    def test_kinds(self) -> None:
        """Kinds that both have are compared too, where there are several."""
        run = result(request(0), request(1, kind="long"))
        names = [row[0] for row in compare(("a", "b"), run, run).rows]
        self.assertIn("long: TTFT p95, s", names)

    def test_differences(self) -> None:
        """What makes the comparison unfair is said."""
        compared = compare(("a", "b"), result(), result(workload="W2"))
        self.assertEqual(compared.notes, ("They differ in workload: W1 and W2.",))
        self.assertIn("They differ in workload", render_comparison(compared))

    def test_page(self) -> None:
        """The page of both shows both in each plot, and escapes."""
        page = comparison(compare((EVIL, "b"), evil_run(), result(request(0))))
        self.assertNotIn("<script", page)
        self.assertEqual(Elements(page).tags.count("svg"), 4)
        self.assertEqual(len(re.findall(r"</b> A<", page)), 4)


class Plots(TestCase):
    """Figures as SVG."""

    def test_ticks(self) -> None:
        """Ticks are round, begin at 0 and reach the largest value."""
        self.assertEqual(ticks(13), [0, 5, 10, 15])
        self.assertEqual(ticks(4), [0, 1, 2, 3, 4])
        self.assertEqual(ticks(600), [0, 200, 400, 600])
        self.assertEqual(ticks(0, least_step=1.0), [0, 1])
        self.assertEqual(ticks(0.3), [0, 0.1, 0.2, 0.3])

    def test_thinned(self) -> None:
        """What is thinned keeps its peaks."""
        points = [(float(x), float(x == 501)) for x in range(1000)]
        thin = thinned(points, 10)
        self.assertEqual((len(thin), max(y for _, y in thin)), (10, 1.0))

    def test_bounded(self) -> None:
        """However many points there are, the figure stays small."""
        points = [(float(x), float(x % 7)) for x in range(100_000)]
        series = [
            Series(name="line", points=points, colour=0),
            Series(name="dots", points=points, colour=1, form="dots"),
            Series(name="crosses", points=points, colour=2, form="crosses"),
        ]
        figure = plot("t", series, x_max=1e5, y_name="y", absent="")
        self.assertLess(len(figure), 250_000)

    def test_far_bound(self) -> None:
        """A bound far above everything does not flatten the rest."""
        series = [Series(name="s", points=[(0.0, 3.0)], colour=0)]
        for y, shown in ((4.0, True), (256.0, False)):
            bounds = [Bound(name="limit", y=y)]
            figure = plot("t", series, x_max=1.0, y_name="y", absent="", bounds=bounds)
            self.assertIs("limit" in figure, shown)
