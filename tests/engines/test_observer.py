"""Polling an engine: generations, staleness, degradation, what is told and logged."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionRefusedError, DNSLookupError
from twisted.internet.error import TimeoutError as ConnectTimeout
from twisted.logger import ILogObserver, LogLevel, formatEvent, globalLogPublisher
from twisted.python.failure import Failure
from twisted.web.client import ResponseFailed, ResponseNeverReceived

from tests.engines.pages import fixture, vllm
from tests.support import TestCase
from twisted_gateway.config.schema import EngineKind
from twisted_gateway.core.sample import Sample
from twisted_gateway.engines.exposition import Page
from twisted_gateway.engines.observer import Observer

OK = 200
WITHOUT_KV = vllm(1).replace(b"kv_cache", b"other")
HTML = Page(OK, b"<html></html>\n")


def page(running: int = 0, waiting: int = 0, generated: int = 0) -> Page:
    """A good answer."""
    return Page(OK, vllm(float(running), float(waiting), 0.5, generated=float(generated)))


class Events:
    """Records what is told, and raises after it when asked to."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.samples: list[Sample] = []
        self.fault: Exception | None = None

    def _tell(self, event: object) -> None:
        self.told.append(event)
        if self.fault is not None:
            raise self.fault

    def sampled(self, sample: Sample) -> None:
        self.samples.append(sample)
        self._tell("sampled")

    def went_stale(self) -> None:
        self._tell("stale")

    def degraded(self, degraded: bool) -> None:
        self._tell(("degraded", degraded))

    def but_samples(self) -> list[object]:
        return [event for event in self.told if event != "sampled"]


class ObserverTestCase(TestCase):
    """An observer whose polls are answered by hand: `self.asked` are the open ones."""

    def setUp(self) -> None:
        super().setUp()
        self.events = Events()
        self.asked: list[Deferred[Page]] = []
        self.cancelled: list[Deferred[Page]] = []
        self.sent: list[float] = []
        self.fetch: Callable[[], Deferred[Page]] = self.ask
        self.logged: list[tuple[object, str]] = []
        observer: ILogObserver = self.log  # type: ignore[assignment]
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        self.observer = self.observe()

    def observe(
        self,
        kind: EngineKind = EngineKind.VLLM,
        fetch_model_len: Callable[[], Deferred[int | None]] | None = None,
    ) -> Observer:
        observer = Observer(
            self.clock,
            lambda: self.fetch(),
            kind=kind,
            names=["reasoning"],
            poll_seconds=2,
            poll_timeout_seconds=5,
            stale_after_polls=3,
            poll_sent=lambda: self.sent.append(self.clock.seconds()),
            events=self.events,
            fetch_model_len=fetch_model_len,
        )
        self.addCleanup(observer.stop)
        return observer

    def ask(self) -> Deferred[Page]:
        answer: Deferred[Page] = Deferred(self.cancelled.append)
        self.asked.append(answer)
        return answer

    def log(self, event: dict[str, object]) -> None:
        if str(event.get("log_namespace", "")).startswith("twisted_gateway"):
            self.logged.append((event.get("log_level"), formatEvent(event)))

    def levels(self) -> list[object]:
        return [level for level, _ in self.logged if level is not LogLevel.debug]

    def answer(self, answer: Page | Exception) -> None:
        """Answer the open poll, then let the next one be sent."""
        open_poll = self.asked.pop()
        if isinstance(answer, Page):
            open_poll.callback(answer)
        else:
            open_poll.errback(answer)
        self.clock.advance(2)

    def refuse(self, times: int) -> None:
        for _ in range(times):
            self.answer(ConnectionRefusedError())


class PollingTests(ObserverTestCase):
    def test_the_first_poll_is_sent_at_start_and_then_every_interval(self) -> None:
        """Nothing before start; then at 0, 2 and 4 s, each announced just before it is sent."""
        self.assertEqual(self.sent, [])
        self.observer.start()
        self.answer(page(1))
        self.answer(page(2))
        self.assertEqual(self.sent, [0, 2, 4])
        self.assertEqual(len(self.asked), 1)

    def test_polls_never_overlap(self) -> None:
        """Ticks during a poll are skipped; the next tick after it polls again."""
        self.observer.start()
        self.clock.advance(2)
        self.clock.advance(2)
        self.assertEqual(len(self.asked), 1)
        self.asked.pop().callback(page())
        self.clock.advance(2)
        self.assertEqual(self.sent, [0, 6])

    def test_a_sample_is_taken_when_its_poll_was_sent(self) -> None:
        """The page says what was true when it was asked for, not when it came."""
        self.observer.start()
        self.clock.advance(1.5)
        self.asked.pop().callback(page(3, 2))
        sample = self.observer.observation.sample
        assert sample is not None
        self.assertEqual((sample.running, sample.waiting, sample.taken_at), (3, 2, 0))
        self.assertEqual(self.events.samples, [sample])

    def test_changed(self) -> None:
        """A page is compared with the last good one, also over failed polls between them."""
        self.observer.start()
        for answer in [page(1), page(1), HTML, page(1), page(1, generated=1)]:
            self.answer(answer)
        self.assertEqual([s.changed for s in self.events.samples], [True, False, False, True])

    def test_a_poll_that_takes_too_long_is_given_up(self) -> None:
        """After the timeout the request is cancelled and the poll has failed, with that reason."""
        self.observer.start()
        self.clock.advance(4.9)
        self.assertEqual(self.observer.observation.polls, 0)
        self.clock.advance(0.1)
        self.assertEqual(len(self.cancelled), 1)
        self.assertEqual(self.observer.observation.failed_polls, 1)
        self.assertIn("within 5 s", self.observer.observation.reason)

    def test_an_answer_after_the_timeout_is_ignored(self) -> None:
        """A fetch that cannot be cancelled holds nothing up, and its late answer is dropped."""
        late: Deferred[Page] = Deferred()
        inner: Deferred[None] = Deferred()
        _ = late.addErrback(lambda _: inner.addCallback(lambda _: page(9)))
        self.fetch = lambda: late
        self.observer.start()
        self.clock.advance(5)
        self.fetch = self.ask
        self.clock.advance(1)
        self.assertEqual(len(self.asked), 1)
        inner.callback(None)
        self.assertEqual(self.observer.observation.polls, 1)
        self.assertIsNone(self.observer.observation.sample)

    def test_a_fetch_that_raises_is_a_failed_poll(self) -> None:
        """The loop goes on whatever the fetch does."""

        def broken() -> Deferred[Page]:
            raise OSError("too many open files")

        self.fetch = broken
        self.observer.start()
        self.assertIn("too many open files", self.observer.observation.reason)
        self.fetch = self.ask
        self.clock.advance(2)
        self.answer(page())
        self.assertTrue(self.observer.observation.ok)

    def test_a_fault_in_reading_is_a_failed_poll(self) -> None:
        """A fault of the gateway's own is logged with its traceback, and polling goes on."""
        self.observer.start()
        self.asked.pop().callback("no page")  # type: ignore[arg-type]
        self.assertEqual(len(self.flushLoggedErrors(AttributeError)), 1)
        self.assertFalse(self.observer.observation.ok)
        self.clock.advance(2)
        self.answer(page())
        self.assertTrue(self.observer.observation.ok)

    def test_events_that_raise_harm_nothing(self) -> None:
        """An exporter that raises is logged; generations and polls go on."""
        self.events.fault = ValueError("exporter")
        self.observer.start()
        news = self.observer.snapshot()[1]
        self.answer(HTML)
        self.successResultOf(news)
        self.answer(page())
        self.assertEqual(self.events.told, [("degraded", True), "sampled", ("degraded", False)])
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 3)
        self.assertEqual(len(self.asked), 1)

    def test_a_kind_without_gauges_is_refused(self) -> None:
        """There is nothing to observe of an Ollama."""
        with self.assertRaises(ValueError):
            self.observe(EngineKind.OLLAMA)


class StopTests(ObserverTestCase):
    def test_stop_cancels_the_poll_under_way(self) -> None:
        """The request is cancelled, no generation ends, nothing is polled any more."""
        self.observer.start()
        before, news = self.observer.snapshot()
        self.observer.stop()
        self.observer.stop()
        self.assertEqual(len(self.cancelled), 1)
        self.clock.advance(60)
        self.assertEqual(self.sent, [0])
        self.assertNoResult(news)
        self.assertIs(self.observer.observation, before)
        self.assertEqual(self.events.told, [])

    def test_stop_between_polls_and_start_again(self) -> None:
        """It may be stopped at rest and started again; starting twice is starting once."""
        self.observer.stop()
        self.observer.start()
        self.observer.start()
        self.answer(page())
        self.asked.pop().callback(page())
        self.observer.stop()
        self.clock.advance(60)
        self.assertEqual(self.sent, [0, 2])
        self.observer.start()
        news = self.observer.snapshot()[1]
        self.answer(page())
        self.successResultOf(news)

    def test_stop_while_a_poll_is_announced(self) -> None:
        """A driver that stops the observer from `poll_sent` gets no poll."""
        self.observer._poll_sent = self.observer.stop
        self.observer.start()
        self.assertEqual(self.asked, [])

    def test_a_waiter_that_stops_the_observer(self) -> None:
        """The others of its generation still hear of the poll that has finished."""
        self.observer.start()
        first, second = (self.observer.snapshot()[1] for _ in range(2))
        _ = first.addCallback(lambda _: self.observer.stop())
        self.asked.pop().callback(page())
        self.successResultOf(first)
        self.successResultOf(second)
        self.clock.advance(60)
        self.assertEqual(self.sent, [0])

    def test_nobody_is_remembered_after_stop(self) -> None:
        """A snapshot of a stopped observer waits for nothing and is kept by nobody."""
        self.observer.stop()
        self.assertNoResult(self.observer.snapshot()[1])
        self.assertEqual(self.observer._waiters, {})


class GenerationTests(ObserverTestCase):
    def test_each_poll_ends_a_generation(self) -> None:
        """A waiter hears of the next poll, good or failed, once."""
        self.observer.start()
        answers: list[Page | Exception] = [page(), HTML, ConnectionRefusedError()]
        for answer in answers:
            news = self.observer.snapshot()[1]
            self.assertNoResult(news)
            self.answer(answer)
            self.assertIsNone(self.successResultOf(news))

    def test_the_new_generation_is_in_place_when_the_old_one_fires(self) -> None:
        """A waiter that asks again while it is told gets the new state and the next generation."""
        self.observer.start()
        seen = []
        again = []

        def ask_again(_: None) -> None:
            observation, news = self.observer.snapshot()
            seen.append(observation.sample)
            again.append(news)

        for _ in range(3):
            _ = self.observer.snapshot()[1].addCallback(ask_again)
        self.asked[-1].callback(page(4))
        self.assertEqual([s.running for s in seen if s is not None], [4, 4, 4])
        for news in again:
            self.assertNoResult(news)
        self.asked.clear()
        self.clock.advance(2)
        self.answer(page())
        for news in again:
            self.successResultOf(news)

    def test_no_poll_falls_between_the_state_and_its_generation(self) -> None:
        """However polls and waiters interleave, each waiter sees every state but those it slept
        through: it never waits on a generation that ended before its state was read."""
        self.observer.start()
        seen: list[int] = []

        def watch() -> None:
            observation, news = self.observer.snapshot()
            seen.append(observation.polls)
            _ = news.addCallback(lambda _: watch())

        watch()
        for n in range(5):
            self.answer(page(n))
        self.assertEqual(seen, [0, 1, 2, 3, 4, 5])

    def test_a_waiter_that_raises_harms_nobody(self) -> None:
        """The error stays in its own Deferred."""
        self.observer.start()
        first, second = (self.observer.snapshot()[1] for _ in range(2))
        _ = first.addCallback(lambda _: 1 / 0)
        self.answer(page())
        self.failureResultOf(first, ZeroDivisionError)
        self.successResultOf(second)
        self.assertEqual(len(self.asked), 1)

    def test_a_waiter_that_leaves_harms_nobody(self) -> None:
        """Each caller has a Deferred of its own; a cancelled one is forgotten at once."""
        self.observer.start()
        leaver, stayer = (self.observer.snapshot()[1] for _ in range(2))
        _ = leaver.addErrback(lambda _: None)
        leaver.cancel()
        self.assertEqual(list(self.observer._waiters), [stayer])
        self.answer(page())
        self.successResultOf(stayer)

    def test_a_waiter_that_makes_another_leave(self) -> None:
        """A waiter cancelled by one that was told before it ends cancelled, not twice."""
        self.observer.start()
        first, second, third = (self.observer.snapshot()[1] for _ in range(3))
        _ = second.addErrback(lambda _: "left")
        _ = first.addCallback(lambda _: second.cancel())
        self.answer(page())
        self.assertEqual(self.successResultOf(second), "left")
        self.successResultOf(third)


class StalenessTests(ObserverTestCase):
    def test_stale_after_three_failed_polls_and_once(self) -> None:
        """The third failed poll in a row makes the sample stale; the fourth adds nothing."""
        self.observer.start()
        self.answer(page(2))
        self.refuse(2)
        self.assertFalse(self.observer.observation.stale)
        self.refuse(1)
        self.assertTrue(self.observer.observation.stale)
        self.refuse(5)
        self.assertEqual(self.events.told.count("stale"), 1)
        sample = self.observer.observation.sample
        assert sample is not None
        self.assertEqual(sample.running, 2)
        self.assertEqual(self.observer.observation.polls, 9)
        self.assertEqual(self.observer.observation.failed_polls, 8)

    def test_one_good_poll_ends_it_and_starts_the_count_again(self) -> None:
        """Each transition counts."""
        self.observer.start()
        self.refuse(3)
        self.answer(page())
        self.assertFalse(self.observer.observation.stale)
        self.refuse(2)
        self.answer(page())
        self.refuse(3)
        self.assertEqual(self.events.told.count("stale"), 2)

    def test_failed_polls_of_any_kind_count(self) -> None:
        """Silence, statuses and pages without gauges make stale alike."""
        self.observer.start()
        answers: list[Page | Exception] = [HTML, Page(503, b""), ConnectionRefusedError()]
        for answer in answers:
            self.answer(answer)
        self.assertTrue(self.observer.observation.stale)

    def test_a_page_without_kv_is_a_good_poll(self) -> None:
        """It never makes stale."""
        self.observer.start()
        for _ in range(4):
            self.answer(Page(OK, WITHOUT_KV))
        self.assertEqual(self.events.told.count("stale"), 0)
        self.assertEqual(self.observer.observation.failed_polls, 0)


class DegradedTests(ObserverTestCase):
    def assertDegraded(self, *expected: bool) -> None:
        self.assertEqual(
            self.events.but_samples(), [("degraded", degraded) for degraded in expected]
        )

    def test_it_follows_what_can_be_read_both_ways(self) -> None:
        """One cut page does not pin it at 1, drift that comes later is seen, and only changes
        reach the exporter."""
        self.observer.start()
        self.answer(page())
        self.assertDegraded()
        self.answer(HTML)
        self.answer(HTML)
        self.assertDegraded(True)
        self.answer(page())
        self.answer(page())
        self.assertDegraded(True, False)
        self.answer(Page(OK, WITHOUT_KV))
        self.assertDegraded(True, False, True)
        self.assertTrue(self.observer.observation.ok)
        self.assertIn("kv_cache_usage_perc", self.observer.observation.reason)

    def test_no_answer_leaves_it_as_it_is(self) -> None:
        """Silence says nothing about gauges, before the first answer or after a degraded one."""
        self.observer.start()
        self.refuse(1)
        self.assertFalse(self.observer.observation.degraded)
        self.answer(Page(OK, WITHOUT_KV))
        self.refuse(1)
        self.assertTrue(self.observer.observation.degraded)
        self.assertDegraded(True)

    def test_statuses(self) -> None:
        """A 404 or 501 is an answer without gauges; a 503 or 429 passes and is like silence."""
        for status, degraded in [
            (404, True),
            (401, True),
            (302, True),
            (204, True),
            (501, True),
            (500, False),
            (503, False),
            (429, False),
        ]:
            self.observer.stop()
            self.observer = self.observe()
            self.observer.start()
            self.asked.pop().callback(Page(status, vllm()))
            self.assertEqual(self.observer.observation.degraded, degraded, status)
            self.assertFalse(self.observer.observation.ok)
            self.assertIn(str(status), self.observer.observation.reason)

    def test_pages_that_are_too_long(self) -> None:
        """A page over its bound is a failed poll, whether the reader or its length shows it."""
        self.observer.start()
        for answer in [Page(OK, vllm(), too_long=True), Page(OK, vllm() + b"x" * (4 << 20))]:
            self.answer(answer)
            self.assertFalse(self.observer.observation.ok)
            self.assertTrue(self.observer.observation.degraded)
            self.assertIn("longer than", self.observer.observation.reason)


class LogTests(ObserverTestCase):
    def test_an_engine_that_cannot_be_read_is_an_error_once(self) -> None:
        """One error at each transition, with the reason; one line when it can be read again."""
        self.observer.start()
        for answer in [HTML, HTML, page(), page(), HTML]:
            self.answer(answer)
        self.assertEqual(self.levels(), [LogLevel.error, LogLevel.info, LogLevel.error])
        self.assertEqual(
            [line for _, line in self.logged],
            [
                "reasoning: vllm gauges: cannot be read: the page is HTML, not exposition text",
                "reasoning: vllm gauges are read again",
                "reasoning: vllm gauges: cannot be read: the page is HTML, not exposition text",
            ],
        )

    def test_silence_and_staleness(self) -> None:
        """No answer is an error once, going stale a warning once."""
        self.observer.start()
        self.refuse(6)
        self.assertEqual(self.levels(), [LogLevel.error, LogLevel.warn])
        self.assertEqual(
            [line for _, line in self.logged],
            [
                "reasoning: vllm gauges: no answer: connection refused",
                "reasoning: gauges are stale after 3 failed polls",
            ],
        )

    def test_an_engine_that_is_read_at_once(self) -> None:
        """It is said once that it is."""
        self.observer.start()
        self.answer(page())
        self.answer(page())
        self.assertEqual(self.levels(), [LogLevel.info])

    def test_reasons_are_words(self) -> None:
        """The errors that Twisted wraps, some of them twice, are named for what they are."""
        refused = Failure(ConnectionRefusedError())
        wrapped = ResponseNeverReceived([Failure(ResponseFailed([refused]))])
        for error, expected in [
            (wrapped, "connection refused"),
            (DNSLookupError("x"), "host name is not found"),
            (ConnectTimeout(), "cannot be connected to"),
            (RuntimeError("y" * 1000), "RuntimeError: yyy"),
        ]:
            self.observer.stop()
            self.observer = self.observe()
            self.observer.start()
            self.asked.pop().errback(error)
            self.assertIn(expected, self.observer.observation.reason)
            self.assertLess(len(self.observer.observation.reason), 300)


class ModelLengthTests(ObserverTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.lengths: list[Deferred[int | None]] = []
        self.observer = self.observe(fetch_model_len=self.ask_length)

    def ask_length(self) -> Deferred[int | None]:
        self.lengths.append(Deferred())
        return self.lengths[-1]

    def length(self) -> int | None:
        return self.observer.observation.max_model_len

    def test_it_is_asked_once_each_time_polls_begin_to_be_good(self) -> None:
        """After the first good poll and after each outage, for the engine may have changed."""
        self.observer.start()
        self.answer(page())
        self.lengths[0].callback(8192)
        self.assertEqual(self.length(), 8192)
        self.answer(page())
        self.refuse(1)
        self.assertEqual(len(self.lengths), 1)
        self.assertEqual(self.length(), 8192)
        self.answer(page())
        self.assertEqual(len(self.lengths), 2)
        self.lengths[1].callback(4096)
        self.assertEqual(self.length(), 4096)

    def test_a_failure_means_unknown(self) -> None:
        """Nothing is raised, and what was known of an engine before is not believed of this one."""
        self.observer.start()
        self.answer(page())
        self.lengths[0].callback(8192)
        self.refuse(1)
        self.answer(page())
        self.lengths[1].errback(ConnectionRefusedError())
        self.assertIsNone(self.length())

    def test_it_is_given_up(self) -> None:
        """After the poll timeout, and on stop; meanwhile it is not asked twice."""
        self.observer.start()
        self.answer(page())
        self.refuse(1)
        self.answer(page())
        self.assertEqual(len(self.lengths), 1)
        _ = self.lengths[0].addErrback(lambda _: self.fail("a second error"))
        self.assertTrue(self.lengths[0].called)
        self.refuse(1)
        self.asked.pop().callback(page())
        self.observer.stop()
        self.assertTrue(self.lengths[1].called)

    def test_an_answer_at_once(self) -> None:
        """A fetch that has its answer ready leaves no timer."""
        self.observer = self.observe(fetch_model_len=lambda: succeed(77))
        self.observer.start()
        self.asked.pop().callback(page())
        self.assertEqual(self.length(), 77)
        self.observer = self.observe(fetch_model_len=lambda: fail(ValueError()))
        self.observer.start()
        self.asked.pop().callback(page())
        self.assertIsNone(self.length())


class RecordedTests(ObserverTestCase):
    def test_a_recorded_run(self) -> None:
        """The gauges of a real vLLM under twelve requests come out as they were recorded."""
        rows = list(csv.DictReader(io.StringIO(fixture("vllm_load12.timeline.csv").decode())))
        self.observer.start()
        for row in rows:
            self.answer(
                Page(
                    OK,
                    vllm(
                        row["num_requests_running"],
                        row["num_requests_waiting"],
                        row["kv_cache_usage_perc"],
                        generated=row["generation_tokens_total"],
                    ),
                )
            )
        samples = self.events.samples
        self.assertEqual(
            [(s.running, s.waiting) for s in samples],
            [
                (int(float(row["num_requests_running"])), int(float(row["num_requests_waiting"])))
                for row in rows
            ],
        )
        self.assertEqual(max(s.waiting for s in samples), 8)
        self.assertGreater(sum(s.changed for s in samples), 50)
        self.assertFalse(samples[-1].changed)
        self.assertEqual(self.events.but_samples(), [])
