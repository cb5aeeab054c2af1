"""What is sampled while a run goes on, and what is shown of it."""

from __future__ import annotations

import io
import json
from typing import Any

from twisted.internet.defer import Deferred

from tests.load.harness import CONTENT, HEAD, RunTestCase, answer, arrival, chunk
from tests.support import TestCase
from twisted_gateway.load import progress
from twisted_gateway.load.gauges import Gauges, thinned
from twisted_gateway.load.look import Looker, NoAnswer
from twisted_gateway.load.results import Gate, Sample

PARKED = {"position": 1, "waited_seconds": 2.5, "prompt_tokens": 7}
MODEL = {
    "aliases": ["gpt"],
    "parked": [PARKED, PARKED],
    "in_engine": 4,
    "own": 3,
    "running": 4,
    "waiting": 1,
    "max_inflight": 4,
    "max_park_seconds": 540.0,
    "max_queue_depth": 256,
}


class GaugesTestCase(RunTestCase):
    """A run whose one client comes late, so that sockets are the samples'."""

    def setUp(self) -> None:
        super().setUp()
        self.play(arrival(at=1000.0))
        self.addCleanup(self.run_.stop)

    def sample(self, model: str = "m", **options: Any) -> Gauges:
        options.setdefault("status", ["http://one:80/status.json"])
        gauges = Gauges(
            self.clock, Looker(self.agent, self.clock, seconds=2.0), self.run_, model, **options
        )
        gauges.start()
        self.addCleanup(gauges.stop)
        return gauges

    def tell(self, model: dict[str, Any] | None = None, index: int = -1) -> None:
        """Answer for a gateway."""
        body = json.dumps({"models": {"m": MODEL if model is None else model}}).encode()
        self.socket(index).say(answer(200, body))


class Sampling(GaugesTestCase):
    """The gateways' own account."""

    def test_status(self) -> None:
        """A sample has what the gateway says of the model, and the run's own counts."""
        gauges = self.sample()
        self.tell()
        (one,) = gauges.samples
        self.assertEqual(
            (one.parked, one.deepest, one.in_engine, one.running, one.waiting, one.longest_wait),
            (2, 2, 4, 4, 1, 2.5),
        )
        self.assertEqual(
            gauges.gate, Gate(max_inflight=4, max_park_seconds=540.0, max_queue_depth=256)
        )

    def test_each_second(self) -> None:
        """There is one sample each model second."""
        gauges = self.sample()
        self.tell()
        for _ in range(3):
            self.clock.advance(1.0)
            self.tell()
        self.assertEqual([one.at for one in gauges.samples], [0.0, 1.0, 2.0, 3.0])

    def test_alias(self) -> None:
        """The model may be asked for by an alias."""
        gauges = self.sample("gpt")
        self.tell()
        self.assertTrue(gauges.seen)

    def test_several(self) -> None:
        """Of several gateways the parked add up; in the engine is what they own together."""
        urls = ["http://one:80/status.json", "http://two:80/status.json"]
        gauges = self.sample(status=urls)
        self.tell(index=0)
        self.tell({"parked": [PARKED], "in_engine": 4, "own": 3, "running": 3}, index=1)
        (one,) = gauges.samples
        self.assertEqual((one.parked, one.deepest, one.in_engine), (3, 2, 6))

    def test_one_that_hangs(self) -> None:
        """All are asked at once: of one that hangs a sample says nothing, of the others enough."""
        urls = [f"http://{host}:80/status.json" for host in ("one", "two", "three")]
        gauges = self.sample(status=urls, state="http://engine:80/demo/state")
        self.assertEqual(len(self.net.sockets), 4)
        self.tell(index=1)
        self.socket(0).say(answer(200, b'{"in_engine_now":5}'))
        self.clock.advance(2.0)
        (one,) = gauges.samples
        self.assertEqual((one.at, one.parked, one.truth), (0.0, 2, 5))
        self.clock.advance(0)

    def test_absent(self) -> None:
        """Without an answer, or with one that is none, a sample has the run's own counts."""
        for reply in (answer(404), answer(200, b"<html>"), answer(200, b'{"models":{}}')):
            gauges = self.sample()
            self.socket().say(reply)
            (one,) = gauges.samples
            self.assertEqual((one.parked, one.open, gauges.seen), (None, 0, False))

    def test_other_version(self) -> None:
        """A gateway of another version may say less."""
        gauges = self.sample()
        self.tell({"parked": [{}]})
        self.assertEqual((gauges.samples[0].parked, gauges.samples[0].in_engine), (1, None))

    def test_silence(self) -> None:
        """A gateway that does not answer holds nothing up for long."""
        gauges = self.sample()
        self.clock.advance(2.0)
        self.clock.advance(0)
        self.assertEqual([one.parked for one in gauges.samples], [None])
        self.clock.advance(1.0)
        self.tell()
        self.assertEqual([one.parked for one in gauges.samples], [None, 2])

    def test_truth(self) -> None:
        """A simulated engine's own account is kept beside it."""
        gauges = self.sample(status=[], state="http://engine:80/demo/state")
        self.socket().say(answer(200, b'{"in_engine_now": 5, "peak_in_engine": 6}'))
        self.assertEqual(gauges.samples[0].truth, 5)


class Thinning(TestCase):
    """Many samples become fewer."""

    def test_peaks_stay(self) -> None:
        """Two become one, which has the larger of what has peaks; an odd one is left."""
        samples = [Sample(at=1.0, parked=9), Sample(at=2.0, parked=1, refused=3), Sample(at=3.0)]
        thin = thinned(samples)
        self.assertEqual(
            [(one.at, one.parked, one.refused) for one in thin], [(2, 9, 3), (3, None, 0)]
        )


class Looking(RunTestCase):
    """Small answers."""

    def look(self) -> Any:
        looker = Looker(self.agent, self.clock, api_key="secret")
        return Deferred.fromCoroutine(looker.fetch("http://one:80/x", dict))

    def test_key(self) -> None:
        """The key goes with it."""
        asked = self.look()
        self.assertIn(b"Bearer secret", self.socket().sent)
        self.socket().say(answer(200, b'{"a": 1}'))
        self.assertEqual(self.successResultOf(asked), {"a": 1})

    def test_late(self) -> None:
        """An answer that does not come in time is none."""
        asked = self.look()
        self.clock.advance(10.0)
        self.clock.advance(0)
        self.assertIn("no answer within 10 s", str(self.failureResultOf(asked, NoAnswer).value))

    def test_too_long(self) -> None:
        """An answer without end is cut off."""
        asked = self.look()
        self.socket().say(b"HTTP/1.1 200 OK\r\nContent-Length: 99000000\r\n\r\n")
        for _ in range(9):
            self.socket().say(bytes(1_000_000))
        self.failureResultOf(asked, NoAnswer)
        self.assertEqual(self.socket().transport.closed, "abort")
        self.clock.advance(0)

    def test_cut(self) -> None:
        """An answer that is cut is none."""
        asked = self.look()
        self.socket().say(answer(200, b'{"a": 1}')[:-1])
        self.socket().end()
        self.assertFalse(self.failureResultOf(asked, NoAnswer).value.unreachable)

    def test_unreachable(self) -> None:
        """A connection that cannot be had is told apart."""
        self.net.manual = True
        asked = self.look()
        self.clock.advance(5.0)
        self.assertTrue(self.failureResultOf(asked, NoAnswer).value.unreachable)


class Terminal(io.StringIO):
    """A terminal, or none."""

    def __init__(self, *, tty: bool) -> None:
        super().__init__()
        self.tty = tty

    def isatty(self) -> bool:
        return self.tty


class Showing(RunTestCase):
    """The progress bar."""

    def show(self, *, tty: bool, wide: int = 200) -> tuple[progress.Progress, Terminal]:
        self.play(arrival(), arrival(at=1000.0))
        self.addCleanup(self.run_.stop)
        gauges = Gauges(self.clock, Looker(self.agent, self.clock), self.run_, "m")
        terminal = Terminal(tty=tty)
        self.patch(progress, "columns", lambda stream: wide)
        shown = progress.Progress(self.clock, self.run_, gauges, terminal)
        shown.start()
        self.addCleanup(shown.stop)
        return shown, terminal

    def test_no_stream(self) -> None:
        """A process that was started without standard error shows nothing, and runs on."""
        self.play(arrival())
        self.addCleanup(self.run_.stop)
        gauges = Gauges(self.clock, Looker(self.agent, self.clock), self.run_, "m")
        timers = len(self.clock.getDelayedCalls())
        shown = progress.Progress(self.clock, self.run_, gauges, None)
        shown.start()
        self.assertEqual(len(self.clock.getDelayedCalls()), timers)
        shown.stop()

    def lines(self, wide: int) -> list[str]:
        """What a terminal of so many columns shows within a quarter of a second."""
        shown, terminal = self.show(tty=True, wide=wide)
        self.clock.advance(0.25)
        lines = terminal.getvalue().split("\r\x1b[K")[1:]
        shown.stop()
        self.assertTrue(terminal.getvalue().endswith("\n"))
        return lines

    def test_bar(self) -> None:
        """On a terminal one line changes four times a second."""
        lines = self.lines(200)
        self.assertEqual(len(lines), 2)
        self.assertTrue(lines[0].startswith(f"[{'.' * 20}] 0/2  0 s  open 1  parked 0  "))

    def test_narrow_bar(self) -> None:
        """It is no wider than the terminal; the figures have what there is before the bar."""
        for wide, begins in (
            (80, "[....."),
            (40, "0/2  0 s  open 1  parked 0  refused 0"),
            (9, "0/2"),
        ):
            self.start()
            line = self.lines(wide)[0]
            self.assertLess(len(line), wide)
            self.assertTrue(line.startswith(begins), line)

    def test_lines(self) -> None:
        """Elsewhere there is a plain line every five seconds."""
        _, terminal = self.show(tty=False)
        self.socket().say(HEAD + chunk(CONTENT))
        self.clock.advance(5.0)
        self.assertEqual(
            terminal.getvalue(),
            "0/2  5 s  open 1  parked 0  refused 0  TTFT 0.0 p95 0.0  0 tok/s\n",
        )

    def test_nobody_reads(self) -> None:
        """A stream that takes no more ends the showing, and not the run."""
        _, terminal = self.show(tty=False)
        terminal.close()
        self.clock.advance(5.0)
        self.assertEqual(self.run_.open, 1)
