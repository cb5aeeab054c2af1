"""The bench of real gateways: their configurations, its figures, its report and its pictures."""

from __future__ import annotations

import contextlib
import io
import json
import runpy
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from bench import w1
from bench.pages import spliced
from bench.replicas import gateway
from bench.replicas.__main__ import main, parser, runs
from bench.replicas.lanes import Lane, Panel, picture
from bench.replicas.measure import Measured, Run, figures, idle
from bench.replicas.report import BEGINS, ENDS, Report, lane
from bench.replicas.setups import MODEL, SETUPS, Place
from tests.load.harness import request, result, tried
from tests.support import TestCase
from twisted_gateway.config.load import load
from twisted_gateway.config.schema import Config, EngineKind
from twisted_gateway.core import order
from twisted_gateway.core.policy import Ordering, Policy
from twisted_gateway.load.results import Ending, Request

HERE = Path(w1.__file__).parent
PLACE = Place("http://127.0.0.1:9000", (9001, 9002, 9003), 20.0)
STATE = {
    "in_engine_now": 0,
    "peak_in_engine": 6,
    "most_behind_seconds": 0.05,
    "prefilled_tokens": 1000,
    "wasted_tokens": 250,
    "published": {"running": 0, "waiting": 0, "kv_usage": 0.0},
}


def lost(number: int, **changes: Any) -> Request:
    """A request whose client gave up before anything came."""
    one = tried(ending=Ending.GAVE_UP, content=None, head=None, tokens=0)
    return request(number, one, ending=Ending.GAVE_UP, **changes)


class Configurations(TestCase):
    """What the gateways are started with."""

    def config(self, setup: str, number: int = 0) -> Config:
        """A gateway's configuration, as it reads it."""
        text = json.dumps(SETUPS[setup].configuration(PLACE, number))
        return load(text, name=setup, environ={}, read_file=self.fail)

    def policy(self, setup: str) -> Policy:
        return self.config(setup).models[MODEL].policy

    def test_all_are_valid(self) -> None:
        """Each one is, and believes the load tool's tenants."""
        for name, setup in SETUPS.items():
            for number in range(setup.gateways):
                config = self.config(name, number)
                self.assertEqual([*map(str, config.trusted_proxies)], ["127.0.0.1/32"])

    def test_no_gate(self) -> None:
        """With no gate there is none."""
        self.assertIs(self.config("none").models[MODEL].engine, EngineKind.NONE)

    def test_times_are_scaled(self) -> None:
        """Times are divided by the speed, rates multiplied."""
        policy, default = self.policy("peers"), Policy()
        self.assertEqual(policy.patience_seconds * 20, default.patience_seconds)
        self.assertEqual(policy.poll_seconds * 20, default.poll_seconds)
        self.assertEqual(policy.parked_work_seconds * 20, default.parked_work_seconds)
        self.assertEqual(policy.poll_timeout_seconds, default.poll_timeout_seconds)
        self.assertEqual(policy.prefill_tokens_per_second, 10_500)
        self.assertEqual(policy.decode_tokens_per_second, 500)

    def test_replicas(self) -> None:
        """They know nothing of each other, their number, or where to ask."""
        self.assertEqual(self.policy("alone").replicas.count, 1)
        self.assertEqual(self.policy("static").replicas.count, 3)
        self.assertEqual(len(self.policy("peers").replicas.addresses), 3)
        self.assertIs(self.policy("fifo").ordering, Ordering.FIFO)

    def test_semaphore(self) -> None:
        """A semaphore is one: by arrival, a short queue, nothing else that refuses."""
        policy = self.policy("semaphore")
        self.assertEqual((policy.max_inflight, policy.max_queue_depth), (4, 8))
        self.assertEqual(policy.max_park_seconds, 6.0)
        self.assertIsNone(policy.prefill_tokens_per_second)
        self.assertIs(self.config("semaphore").models[MODEL].engine, EngineKind.OLLAMA)

    def test_order_is_hurried(self) -> None:
        """What of the order is no setting is divided by the speed in the process."""
        for name in gateway.STRETCHED:
            self.patch(order, name, getattr(order, name))
        gateway.hurry(20)
        self.assertEqual((order.USE_SECONDS, order.USE_STEP_SECONDS), (6.0, 0.5))


class Figures(TestCase):
    """What a run comes to."""

    def test_figures(self) -> None:
        """Clients that got nothing count with all their patience; tokens are the engine's."""
        late = request(1, tried(content=400.0), kind="interactive")
        found = figures(result(request(0, kind="interactive"), late, lost(2), speed=20), STATE)
        self.assertAlmostEqual(found["completed_percent"], 200 / 3)
        self.assertEqual(found["light_ttft_p95"], 400.0)
        self.assertEqual(found["wasted_percent"], 25.0)
        self.assertEqual((found["most_over"], found["engine_behind"]), (2, 1.0))
        gone = figures(result(lost(0, kind="interactive")), STATE)
        self.assertEqual(gone["light_ttft_p95"], 600.0)

    def test_idle(self) -> None:
        """An engine that has not dropped yet what was aborted is not idle."""
        self.assertTrue(idle(STATE))
        self.assertFalse(idle(STATE | {"published": {"running": 1, "waiting": 0}}))

    def test_plan(self) -> None:
        """A seed is played before every setup in turn, as ratios want it; quick is less of all."""
        plan = [(one.workload, one.seed, one.setup) for one in runs(parser().parse_args([]))]
        self.assertEqual(len(plan), 3 * 6 + 4)
        self.assertEqual(plan[:2], [("W1", 1000, "none"), ("W1", 1000, "semaphore")])
        quick = list(runs(parser().parse_args(["--quick"])))
        self.assertEqual(len(quick), 6)
        self.assertEqual(quick[-1].options, {"seconds": 400.0})
        self.assertEqual(quick[0].options, {"within_seconds": 20.0})

    def test_unknown(self) -> None:
        """A workload or a setup that there is not ends it before anything is started."""
        for line, told in (
            (["W2"], "there is no W2"),
            (["--setups", "none,nope"], "there is no nope"),
            (["--speed", "0"], "--speed: expected a number"),
            (["--w1-seeds", "0"], "--w1-seeds: expected a whole number"),
        ):
            with contextlib.redirect_stderr(io.StringIO()) as said:
                self.assertEqual(self.assertRaises(SystemExit, main, line).code, 2)
            self.assertIn(told, said.getvalue())


class Reports(TestCase):
    """What is printed and written."""

    def report(self, **changes: Any) -> Report:
        """Of one seed of W1 and three setups: one of two answered, then two of two."""
        found = Report(judged=True)
        requests = {
            "none": (request(0, kind="long"), lost(1, kind="short")),
            "static": (request(0, kind="long"), request(1, kind="short")),
            "peers": (request(0, kind="long"), request(1, kind="short")),
        }
        for setup, asked in requests.items():
            run = Run(workload="W1", setup=setup, seed=1000, speed=20.0)
            whole = result(*asked, speed=20)
            machine = {"load_average": 1.0, "took": 30.0, "engine_cpu_seconds": 3.0}
            machine |= {"gateways_cpu_seconds": 6.0, "tool_cpu_seconds": 1.5}
            state = STATE | changes
            measured = Measured(run, whole, {**figures(whole, state), **machine})
            found.add(measured, figures(whole, STATE))
        return found

    def rows(self, text: str, words: str) -> list[list[str]]:
        """The cells of the rows of a table that begin with these words."""
        lines = [line for line in text.splitlines() if line.startswith(f"| {words}")]
        return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]

    def test_targets(self) -> None:
        """A target is a ratio within a seed; the design's bound says whether it is reached."""
        text = self.report().sections()
        completed = self.rows(text, "completed, to no gate")
        self.assertEqual([row[3:5] for row in completed], [["2", "yes"], ["2", "yes"]])
        over = self.rows(self.report(peak_in_engine=7).sections(), "most over S")
        self.assertEqual([row[4] for row in over], ["yes", "**no**"])

    def test_not_judged(self) -> None:
        """Of a quick run no target is judged."""
        found = self.report()
        found.judged = False
        self.assertNotIn("yes", found.sections())

    def test_too_slow(self) -> None:
        """A run whose engine fell behind its own time is named."""
        self.assertNotIn("Too slow", self.report().sections())
        slow = self.report(most_behind_seconds=2.0).sections()
        self.assertEqual(slow.count("**Too slow:**"), 3)
        self.assertIn("40 s behind", slow)

    def test_files(self) -> None:
        """Tables go between a page's marks, figures into JSON with no NaN, W1 into a picture."""
        directory = Path(self.mktemp())
        directory.mkdir()
        page = directory / "replicas-bench.md"
        page.write_text(f"before\n{BEGINS}\nold\n{ENDS}\nafter\n", encoding="utf-8")
        wrote: list[Path] = []
        self.report().write(directory, {"command": "x"}, wrote.append)
        text = page.read_text(encoding="utf-8")
        self.assertTrue(text.startswith("before\n") and text.endswith("after\n"))
        self.assertNotIn("old", text)
        tree = json.loads((directory / "replicas-bench.json").read_text())
        self.assertEqual([one["setup"] for one in tree["runs"]], ["none", "static", "peers"])
        self.assertIsNone(tree["runs"][0]["figures"]["light_ttft_p95"])
        drawn = ElementTree.parse(directory / "replicas-bench.svg").getroot()
        self.assertIn("1 of 2 answered", [one.text for one in drawn.iter() if one.text])
        self.assertEqual(len(wrote), 3)

    def test_no_marks(self) -> None:
        """A page without marks is not overwritten; of one with them all else stays as it is."""
        for page in ("nothing", f"{ENDS} then {BEGINS}", BEGINS):
            with self.assertRaisesRegex(ValueError, BEGINS):
                spliced(page, BEGINS, ENDS, "figures")
        page = f"a\n{BEGINS}\n\nold\n\n{ENDS}\nb {ENDS}"
        self.assertEqual(
            spliced(page, BEGINS, ENDS, "new"), f"a\n{BEGINS}\n\nnew\n\n{ENDS}\nb {ENDS}"
        )


class Pictures(TestCase):
    """Who waited and who was served."""

    def test_lanes(self) -> None:
        """Whoever was not answered is red and ends in a cross."""
        lanes = [
            Lane(label="8k", at=10, first=30, end=90, answered=True),
            Lane(label="8k", at=10, first=40, end=610, answered=False),
            Lane(label="65k", at=10, first=None, end=610, answered=False),
        ]
        root = ElementTree.fromstring(picture("A < B", [Panel("one & all", lanes)]))
        kinds = [one.get("class") for one in root.iter()]
        counts = [kinds.count(kind) for kind in ("answers", "spoilt", "lost", "cross")]
        # One of each of the first three stands in the legend.
        self.assertEqual(counts, [2, 2, 3, 2])

    def test_programs(self) -> None:
        """What can be run is named, and nothing else: what programs share is none."""
        with contextlib.redirect_stdout(io.StringIO()) as said:
            self.patch(sys, "argv", ["bench"])
            self.assertEqual(
                self.assertRaises(SystemExit, runpy.run_module, "bench", run_name="__main__").code,
                0,
            )
        named = said.getvalue().partition("{")[2].partition("}")[0].split(",")
        modules = [*HERE.glob("*.py"), *HERE.glob("*/__main__.py")]
        runnable = [one for one in modules if '__name__ == "__main__"' in one.read_text("utf-8")]
        names = {one.parent.name if one.stem == "__main__" else one.stem for one in runnable}
        self.assertEqual(named, sorted(names))
        self.assertTrue({"replicas", "simulate", "w1"} <= names)

    def test_hostile_words(self) -> None:
        """No word is markup, wherever it stands in a picture."""
        words = "<script>&"
        lanes = [Lane(label=words, at=0, first=1, end=2, answered=True)]
        drawn = picture(words, [Panel(words, lanes)])
        texts = [one.text for one in ElementTree.fromstring(drawn).iter()]
        # As the document's title, its heading, the panel's and the lane's.
        self.assertEqual(texts.count(words), 4)

    def test_request(self) -> None:
        """A request's lane begins at its first asking; what it got at its last try counts."""
        tries = (tried(content=5.0, ending=Ending.FAILED), tried(at=30.0, content=35.0, end=40.0))
        drawn = lane(request(0, *tries, kind="long", at=1.0, end=40.0))
        self.assertEqual((drawn.label, drawn.at, drawn.first, drawn.end), ("65k", 1.0, 35.0, 40.0))
        self.assertIsNone(lane(lost(1)).first)

    def test_w1_is_the_same_every_time(self) -> None:
        """A seed's picture is; it has a panel each for no gate, the predecessor and ours."""
        drawn = [Path(self.mktemp()) for _ in range(2)]
        with contextlib.redirect_stdout(io.StringIO()) as said:
            for path in drawn:
                self.assertEqual(w1.main(["--seed", "2", str(path)]), 0)
        self.assertEqual(drawn[0].read_bytes(), drawn[1].read_bytes())
        self.assertIn("No gate: ", said.getvalue())
        titles = [one.text for one in ElementTree.parse(drawn[0]).getroot().iter()]
        self.assertIn("This gateway", titles)

    def test_typical(self) -> None:
        """The seed that is drawn is the first at which everybody answers its median."""

        def panel(answered: int) -> Panel:
            lanes = [Lane(label="", at=0, first=1, end=2, answered=n < answered) for n in range(9)]
            return Panel("", lanes)

        played = [[panel(a), panel(b)] for a, b in ((1, 8), (3, 6), (3, 5), (3, 6), (5, 2))]
        self.assertEqual(w1.typical(played), 1)
