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
        self.assertIn("In force: 540 s.", text)

    def test_nobody(self) -> None:
        """A run in which nobody came has a report too."""
        self.assertIn("this run does not say", self.page(result(samples=[], took=0.0)))

    def test_long_words(self) -> None:
        """No word from outside makes the page long."""
        long = "k" * 5000
        no = tried(ending=Ending.REFUSED, reason=long)
        run = result(
            request(0, no, kind=long, tenant=long, ending=Ending.REFUSED),
            *(request(n, kind=f"k{n}") for n in range(1, 1000)),
            workload=long,
            model=long,
            to=[long] * 100,
        )
        self.assertLess(len(self.page(run)), 50_000)

    def test_many_kinds(self) -> None:
        """Kinds that ask least share a colour."""
        run = result(*(request(n, kind=f"k{n % 8}") for n in range(20)))
        text = Elements(self.page(run)).text
        self.assertIn("● 3 other kinds", text)

    def test_controls(self) -> None:
        """No word from outside turns the direction of what stands beside it."""
        words = "a\u202eb\x00"
        run = result(request(0, kind=words, tenant=words), model=words, workload=words)
        page = self.page(run)
        self.assertNotIn("\u202e", page)
        self.assertNotIn("\x00", page)

    def test_dark_and_narrow(self) -> None:
        """It has colours for the night, and letters that a phone can show."""
        page = self.page(evil_run())
        self.assertIn("prefers-color-scheme:dark", page)
        self.assertIn("width=device-width", page)
        self.assertIn("@media(max-width:40rem){.tick", page)

    def test_mailable(self) -> None:
        """However long a run is, its page can be mailed."""
        run = result(
            *(request(n, tried(content=n / 7), at=float(n)) for n in range(8000)),
            samples=[Sample(at=float(n), parked=n % 50, in_engine=4) for n in range(4000)],
            places=[Place(float(n), n, n % 30) for n in range(8000)],
            took=8000.0,
        )
        self.assertLess(len(self.page(run)), 150_000)


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
        cut = request(1, tried(ending=Ending.INTERRUPTED), ending=Ending.INTERRUPTED)
        text = self.text(result(request(0), cut, interrupted=True))
        self.assertIn("Cut while they asked or waited: 1; not come yet: 0.", text)
        self.assertIn("tokens worked for those cut, at least: 110", text)
        self.assertIn("worked in vain, at least: 0", text)
        head, row = text.split("\n")[:2]
        self.assertEqual(row[: head.index("cut") + 3].split()[-1], "1")
        self.assertNotIn("cut", self.text(result(request(0))))

    def test_promises(self) -> None:
        """How far the first promises were off is said with its direction."""
        for content, words in ((50.0, "10.0 s later"), (25.0, "15.0 s earlier")):
            run = result(request(0, tried(content=content)), places=[Place(10.0, 0, 3, 30.0)])
            self.assertIn(
                f"first token, against the first promise, median: {words}", self.text(run)
            )

    def test_narrow(self) -> None:
        """On a narrow terminal no line is wider than it."""
        run = result(*(request(n, kind=f"k{n}", tenant=f"t{n}") for n in range(9)), speed=20.0)
        text = table.render(run, summarize(run), advise(run), columns=40)
        self.assertLessEqual(max(map(len, text.split("\n"))), 40)
        self.assertEqual(sum(line.startswith("completed") for line in text.split("\n")), 7)


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

    def test_settings(self) -> None:
        """So are settings, each in words."""
        first, second = result(), result()
        second.settings.options = {"load": 2.0, "seconds": 90.0}
        second.settings.limit = 5
        second.settings.retry_after = "wall"
        second.settings.direct_to = "http://engine:80"
        self.assertEqual(
            compare(("a", "b"), first, second).notes,
            (
                "They differ in its options (--set): none and load=2, seconds=90.",
                "They differ in --limit: none and 5.",
                "They differ in what Retry-After was taken for: model and wall.",
                "In one of them clients went past the gateway (--direct-to), in the other none.",
            ),
        )

    def test_other_clients(self) -> None:
        """So are clients that are not the same, whatever the workload is called."""
        first, second = result(request(0)), result(request(0, prompt_tokens=7))
        for one, other, differ in ((first, first, False), (first, second, True)):
            notes = compare(("a", "b"), one, other).notes
            self.assertEqual(
                ["clients are not the same" in note for note in notes], [True] * differ
            )

    def test_narrow(self) -> None:
        """On a narrow terminal no line is wider than it."""
        text = render_comparison(compare(("a", "b" * 30), evil_run(), result()), columns=50)
        self.assertLessEqual(max(map(len, text.split("\n"))), 50)

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

    def test_time(self) -> None:
        """A long run counts in minutes, and says so."""
        series = [Series(name="s", points=[(0.0, 3.0)], colour=0)]
        for seconds, words in ((600.0, "y; by seconds from"), (3600.0, "y; by minutes from")):
            figure = plot("t", series, x_max=seconds, y_name="y", absent="")
            self.assertIn(words, figure)
            self.assertIn("<text class=tick x=746.0 y=238 text-anchor=middle>60", figure)

    def test_far_bound(self) -> None:
        """A bound far above everything does not flatten the rest."""
        series = [Series(name="s", points=[(0.0, 3.0)], colour=0)]
        for y, shown in ((4.0, True), (256.0, False)):
            bounds = [Bound(name="limit", y=y)]
            figure = plot("t", series, x_max=1.0, y_name="y", absent="", bounds=bounds)
            self.assertIs("limit" in figure, shown)
