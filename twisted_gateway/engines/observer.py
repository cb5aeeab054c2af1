"""Poll one engine's gauges, and tell whoever waits that there is news.

`verdict.py` says what each answer means.

**Generations.** Each finished poll, good or failed, ends a generation. `snapshot()` returns the
observation together with a Deferred of the end of the generation that it belongs to. A poll puts
the new generation in place before it fires the old one, so whoever judges by an observation and
then waits for the Deferred that came with it misses no poll, and whoever asks again while the old
one fires gets the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

from twisted.internet.defer import Deferred, execute, maybeDeferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_gateway.config.schema import EngineKind
from twisted_gateway.core.sample import Sample
from twisted_gateway.engines.exposition import Page
from twisted_gateway.engines.kinds import KINDS
from twisted_gateway.engines.verdict import Health, Verdict, judge, words


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What is known of an engine after a poll.

    Attributes:
        sample: the last good poll's sample, however old; None before the first one.
        ok: whether the last poll was good.
        stale: whether so many polls in a row have failed that `sample` is not to be trusted.
        degraded: whether the engine's last answer could not be read as all of its kind's gauges.
        reason: in words, why the last poll failed or is degraded; "" when all is well.
        polls: finished polls since the start.
        failed_polls: how many of them failed.
        max_model_len: the engine's longest sequence in tokens, where it says so.
    """

    sample: Sample | None = None
    ok: bool = False
    stale: bool = False
    degraded: bool = False
    reason: str = "not polled yet"
    polls: int = 0
    failed_polls: int = 0
    max_model_len: int | None = None


class ObserverEvents(Protocol):
    """What an observer reports besides its observations: the material of the metrics.

    An event that raises is logged and harms nothing.
    """

    def sampled(self, sample: Sample) -> None:
        """A good poll brought this sample."""

    def went_stale(self) -> None:
        """As many polls in a row have failed as make the sample stale; once per transition."""

    def degraded(self, degraded: bool) -> None:
        """Whether the engine can be read has changed. Until the first call it is False."""


@dataclass(eq=False, slots=True)
class _Poll:
    """A poll under way."""

    sent_at: float
    timer: IDelayedCall | None = None
    answer: Deferred[Page] | None = None

    def end(self) -> None:
        """Cancel what is still pending of it."""
        if self.timer is not None and self.timer.active():
            self.timer.cancel()
        if self.answer is not None:
            self.answer.cancel()


class Observer:
    """Polls one engine, first at `start()` and then every `poll_seconds`.

    Polls never overlap: a tick during one is skipped.
    """

    _log: ClassVar[Logger] = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        fetch: Callable[[], Deferred[Page]],
        *,
        kind: EngineKind,
        names: Collection[str],
        poll_seconds: float,
        poll_timeout_seconds: float,
        stale_after_polls: int,
        poll_sent: Callable[[], None],
        events: ObserverEvents,
        fetch_model_len: Callable[[], Deferred[int | None]] | None = None,
        name: str = "",
    ) -> None:
        """Make an observer that does nothing yet.

        Args:
            clock: time and timers.
            fetch: sends one poll; cancelling its Deferred gives the connection up.
            kind: one of `KINDS`.
            names: what the engine may call the model: `upstreamModel`, the model's name.
            poll_seconds: from one poll to the next.
            poll_timeout_seconds: how long a poll may take.
            stale_after_polls: so many failed polls in a row make the sample stale.
            poll_sent: called just before a poll is sent.
            events: where metrics come from.
            fetch_model_len: asks the engine for its longest sequence, once each time that polls
                begin to be good; a failure means unknown.
            name: the engine's name in log lines; default: the first of `names`.

        Raises:
            ValueError: the kind publishes no gauges.
        """
        if kind not in KINDS:
            raise ValueError(f"an engine of kind {kind.value} publishes no gauges")
        self._clock = clock
        self._fetch = fetch
        self._kind = kind
        self._names = frozenset(names)
        self._poll_seconds = poll_seconds
        self._poll_timeout_seconds = poll_timeout_seconds
        self._stale_after_polls = stale_after_polls
        self._poll_sent = poll_sent
        self._events = events
        self._fetch_model_len = fetch_model_len
        self._name = name or next(iter(names), kind.value)
        self._loop: LoopingCall | None = None
        self._stopped = False
        self._poll: _Poll | None = None
        self._asking: Deferred[int | None] | None = None
        self._asking_timer: IDelayedCall | None = None
        self._observation = Observation()
        self._waiters: dict[Deferred[None], None] = {}
        self._failed_in_a_row = 0
        self._fingerprint: object = None
        self._health = Health.UNKNOWN

    @property
    def observation(self) -> Observation:
        """What is known now, for readers that wait for nothing."""
        return self._observation

    def snapshot(self) -> tuple[Observation, Deferred[None]]:
        """Return what is known, and a Deferred of when there will be news.

        Returns:
            The observation, and a Deferred of the caller's own that fires with None when the next
            poll has finished, good or failed. Cancelling it harms nobody else. After `stop()` it
            never fires.
        """
        news: Deferred[None] = Deferred(self._forget)
        if not self._stopped:
            self._waiters[news] = None
        return self._observation, news

    def start(self) -> None:
        """Send the first poll at once and the others after it. Does nothing when started."""
        if self._loop is not None:
            return
        self._loop = LoopingCall(self._tick)
        self._loop.clock = self._clock
        self._stopped = False
        _ = self._loop.start(self._poll_seconds, now=True).addErrback(self._log_fault)

    def stop(self) -> None:
        """Stop polling and cancel a poll under way. Does nothing when stopped.

        Whoever waits for the next generation waits for ever: there is none.
        """
        self._stopped = True
        loop, self._loop = self._loop, None
        if loop is not None and loop.running:
            loop.stop()
        poll, self._poll = self._poll, None
        if poll is not None:
            poll.end()
        self._stop_asking()
        self._waiters.clear()

    def _forget(self, news: Deferred[None]) -> None:
        self._waiters.pop(news, None)

    def _tick(self) -> None:
        if self._poll is not None:
            return
        self._tell(self._poll_sent)
        if self._stopped:
            return
        poll = self._poll = _Poll(self._clock.seconds())
        poll.timer = self._clock.callLater(self._poll_timeout_seconds, self._give_up, poll)
        poll.answer = maybeDeferred(self._fetch)
        verdict = poll.answer.addCallbacks(self._judge, self._blame).addErrback(self._confess)
        _ = verdict.addCallback(self._finish, poll).addErrback(self._log_fault)

    def _give_up(self, poll: _Poll) -> None:
        # A cancelled request fails with errors that do not say so (ResponseNeverReceived,
        # DNSLookupError): the reason is settled here, whatever the cancelling brings.
        reason = f"no answer within {self._poll_timeout_seconds:g} s"
        self._finish(Verdict(Health.SILENT, None, reason), poll)
        poll.end()

    def _judge(self, page: Page) -> Verdict:
        return judge(self._kind, page, self._names)

    def _blame(self, failure: Failure) -> Verdict:
        return Verdict(Health.SILENT, None, words(failure))

    def _confess(self, failure: Failure) -> Verdict:
        """Make a fault of our own a failed poll: the next one may find another page."""
        self._log_fault(failure)
        return Verdict(Health.UNREADABLE, None, f"the gateway failed to read it: {failure.type}")

    def _finish(self, verdict: Verdict, poll: _Poll) -> None:
        """End the generation, unless the poll was given up before."""
        if self._poll is not poll:
            return
        self._poll = None
        if poll.timer is not None and poll.timer.active():
            poll.timer.cancel()
        before = self._observation
        now = self._observation = self._observe(before, verdict, poll.sent_at)
        generation, self._waiters = self._waiters, {}
        self._report(before, now, verdict)
        for news in generation:
            if not news.called:
                news.callback(None)

    def _observe(self, before: Observation, verdict: Verdict, sent_at: float) -> Observation:
        reading = verdict.reading
        sample = before.sample
        if reading is None or reading.waiting is None:
            self._failed_in_a_row += 1
        else:
            self._failed_in_a_row = 0
            sample = Sample(
                running=reading.running,
                waiting=reading.waiting,
                kv_usage=reading.kv_usage,
                kv_tokens=reading.kv_tokens,
                prefix_hit_tokens=reading.prefix_hit_tokens,
                changed=reading.fingerprint != self._fingerprint,
                taken_at=sent_at,
            )
            self._fingerprint = reading.fingerprint
        ok = self._failed_in_a_row == 0
        return Observation(
            sample=sample,
            ok=ok,
            stale=self._failed_in_a_row >= self._stale_after_polls,
            degraded=verdict.degraded(before.degraded),
            reason=verdict.reason,
            polls=before.polls + 1,
            failed_polls=before.failed_polls + (0 if ok else 1),
            max_model_len=before.max_model_len,
        )

    def _report(self, before: Observation, now: Observation, verdict: Verdict) -> None:
        """Tell the exporter and the log what has changed."""
        if now.ok and now.sample is not None:
            self._tell(self._events.sampled, now.sample)
            if not before.ok:
                self._ask_model_len()
        if now.degraded is not before.degraded:
            self._tell(self._events.degraded, now.degraded)
        if now.stale and not before.stale:
            self._tell(self._events.went_stale)
        self._log_health(verdict)
        if now.stale and not before.stale:
            self._log.warn(
                "{engine}: gauges are stale after {polls} failed polls",
                engine=self._name,
                polls=self._failed_in_a_row,
            )

    def _log_health(self, verdict: Verdict) -> None:
        """Say once that an engine cannot be read, and once that it can again."""
        before, self._health = self._health, verdict.health
        if before is self._health:
            return
        if self._health is not Health.FINE:
            self._log.error(
                "{engine}: {kind} gauges: {health}: {reason}",
                engine=self._name,
                kind=self._kind.value,
                health=self._health.value,
                reason=verdict.reason,
            )
        else:
            self._log.info(
                "{engine}: {kind} gauges are read{again}",
                engine=self._name,
                kind=self._kind.value,
                again="" if before is Health.UNKNOWN else " again",
            )

    def _ask_model_len(self) -> None:
        if self._fetch_model_len is None or self._asking is not None:
            return
        self._asking = asking = maybeDeferred(self._fetch_model_len)
        self._asking_timer = self._clock.callLater(self._poll_timeout_seconds, self._stop_asking)
        tokens = asking.addErrback(self._no_model_len).addErrback(self._log_fault)
        _ = tokens.addCallback(self._set_model_len)

    def _no_model_len(self, failure: Failure) -> None:
        self._log.debug(
            "{engine}: the longest sequence is unknown: {reason}",
            engine=self._name,
            reason=words(failure),
        )

    def _set_model_len(self, tokens: int | None) -> None:
        self._asking = None
        if self._asking_timer is not None and self._asking_timer.active():
            self._asking_timer.cancel()
        self._observation = replace(self._observation, max_model_len=tokens)

    def _stop_asking(self) -> None:
        if self._asking is not None:
            self._asking.cancel()

    def _tell(self, tell: Callable[..., object], *arguments: object) -> None:
        _ = execute(tell, *arguments).addErrback(self._log_fault)

    def _log_fault(self, failure: Failure) -> None:
        self._log.failure("{engine}: a fault in observing it", failure, engine=self._name)
