"""A model of an inference engine of vLLM's kind.

It works in steps. A step takes every running sequence one token further, or a chunk of its prompt;
chunks share `batch_tokens`, first come first served, so one long prompt takes the whole of it.
Waiting requests begin, in order, while there are fewer than `sequences`. What arrives during a
step enters after it, and the gauges are published at its end, so they lag by one step or two:
by tens of seconds while a long prompt is read beside others.

KV is counted in tokens and grows with what has been computed. When it is full the request that
began last starts over. A prefix that a group shares is kept once it has been read, and goes when
the room is needed and nobody uses it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from bench.simulate.jobs import Job
from bench.simulate.timeline import Event, Timeline, cancel
from bench.simulate.truth import Truth

REFUSES_AFTER_SECONDS = 0.005
"""A connection to an engine that is down is refused so soon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What an engine can do. The defaults are the predecessor's, as it was measured.

    Attributes:
        sequences: S, how many it runs at once.
        kv_tokens: how many tokens its KV cache holds.
        batch_tokens: how many tokens a step may take.
        alone_tokens_per_second: how fast it reads prompts while nobody decodes.
        beside_tokens_per_second: how fast it reads prompts beside decodes.
        step_seconds: what a step takes on top of that.
        sequence_seconds: what a step takes for each sequence that decodes.
    """

    sequences: int = 4
    kv_tokens: int = 152_432
    batch_tokens: int = 2048
    alone_tokens_per_second: float = 525.0
    beside_tokens_per_second: float = 262.0
    step_seconds: float = 0.04
    sequence_seconds: float = 0.0


class Gauges(NamedTuple):
    """What the engine publishes at the end of a step."""

    running: int = 0
    waiting: int = 0
    kv_usage: float = 0.0


class Prefix:
    """A group's prefix in the cache."""

    __slots__ = ("tokens", "used_at", "users")

    def __init__(self, tokens: int, used_at: float) -> None:
        self.tokens = tokens
        self.users = 1
        self.used_at = used_at


class Engine:
    """The engine.

    Attributes:
        gauges: what it says of itself.
        up: whether it takes connections.
        held: requests in it.
        held_gated: those of them that came through a gateway.
        groups: the prefixes in its cache.
        used_tokens: tokens in its KV cache that are in use.
        prefix_hit_tokens: prompt tokens that it had not to compute, so far.
        on_step: called at the end of each step.
    """

    def __init__(self, timeline: Timeline, model: Model, truth: Truth) -> None:
        self.timeline = timeline
        self.model = model
        self.truth = truth
        self.gauges = Gauges()
        self.up = True
        self.held = self.held_gated = 0
        self.groups: dict[str, Prefix] = {}
        self.on_step: Callable[[], None] | None = None
        self.used_tokens = 0
        self.prefix_hit_tokens = 0
        self._waiting: deque[Job] = deque()
        self._running: list[Job] = []
        self._arrived: list[Job] = []
        self._any_left = False
        self._busy = False
        # The step under way, or so many steps at once that only decode.
        self._prefills: dict[Job, int] = {}
        self._decodes: list[Job] = []
        self._budget = 0
        self._steps = 0
        self._many = False
        self._began = 0.0
        self._step_seconds = 0.0
        self._ends: Event | None = None

    # From outside

    @property
    def idle(self) -> bool:
        """Whether it has nothing to do."""
        return not self._busy

    @property
    def jobs(self) -> list[Job]:
        """All that count, in the order in which they are served."""
        return [job for job in [*self._running, *self._waiting, *self._arrived] if not job.over]

    def submit(self, job: Job) -> None:
        """Take a job, to begin after the step under way; or refuse it a moment later."""
        if not self.up:
            self.timeline.after(REFUSES_AFTER_SECONDS, job.owner.job_refused, job)
            return
        self._count(job, 1)
        self._arrived.append(job)
        self._wake()

    def abort(self, job: Job) -> None:
        """Its client has gone; a job that has ended already stays as it is."""
        if not job.over:
            job.over = True
            self._count(job, -1)
            self._any_left = True
            self._wake()

    def generated(self, job: Job) -> int:
        """How many tokens of a job have come out by now."""
        if not self._many or job.prefilling:
            return job.decoded
        passed = (self.timeline.now - self._began) / self._step_seconds
        return job.decoded + min(self._steps, int(passed + 1e-9))

    def restart(self, down_seconds: float) -> None:
        """Die, forget everything, and take connections again after a while."""
        self.truth.note(self)
        jobs = [*self._running, *self._waiting, *self._arrived]
        self._waiting.clear()
        self._arrived = []
        self._running = []
        self.used_tokens = 0
        self.groups = {}
        cancel(self._ends)
        self._busy = self.up = self._many = False
        self.held = self.held_gated = 0
        self.gauges = Gauges()
        for job in jobs:
            if not job.over:
                self.truth.wasted_tokens += job.computed
                job.over = True
                job.owner.job_broken(job)
        self.timeline.after(down_seconds, self._boot)

    def _boot(self) -> None:
        self.up = True

    def _count(self, job: Job, change: int) -> None:
        self.truth.note(self)
        self.held += change
        if not job.arrival.direct:
            self.held_gated += change

    def _wake(self) -> None:
        """Begin a step, or end the decoding of many steps after the one under way."""
        if not self._busy:
            self._begin()
        elif self._many:
            passed = (self.timeline.now - self._began) / self._step_seconds
            steps = max(1, math.ceil(passed - 1e-9))
            if steps < self._steps:
                cancel(self._ends)
                self._steps = steps
                ends = self._began + steps * self._step_seconds
                self._ends = self.timeline.at(ends, self._end)

    # A step begins

    def _begin(self) -> None:
        if self._any_left:
            self._drop_left()
        if self._arrived:
            self._waiting.extend(self._arrived)
            self._arrived = []
        if not self._running and not self._waiting:
            self._busy = False
            self.gauges = Gauges(0, 0, self.used_tokens / self.model.kv_tokens)
            return
        self._busy = True
        self._schedule()
        self._evict()
        self._decodes = [job for job in self._running if not job.prefilling]
        self._set_out()

    def _drop_left(self) -> None:
        self._any_left = False
        for line in (self._running, self._waiting):
            for job in [job for job in line if job.over]:
                line.remove(job)
                self._release(job)
                self.truth.wasted_tokens += job.computed
        self._arrived = [job for job in self._arrived if not job.over]

    def _schedule(self) -> None:
        """Decide who takes part in the step, and how many prompt tokens of each."""
        running = self._running
        preemptions = self.truth.preemptions
        while running and self.used_tokens + self._decoding() > self.model.kv_tokens:
            self._preempt()
        self._budget = self.model.batch_tokens - self._decoding()
        self._prefills = {}
        for job in list(running):
            if job.prefilling and self._budget > 0 and job in running and not self._go_on(job):
                break
        if self.truth.preemptions == preemptions:
            while self._waiting and len(running) < self.model.sequences and self._budget > 0:
                if not self._take_in(self._waiting[0]):
                    break

    def _go_on(self, job: Job) -> bool:
        """Take a running job's prompt further; False where it had to start over itself."""
        running = self._running
        chunk = min(job.need - job.computed, self._budget)
        while self.used_tokens + chunk > self.model.kv_tokens and running[-1] is not job:
            self._prefills.pop(self._preempt(), None)
        if self.used_tokens + chunk > self.model.kv_tokens:
            self._preempt()
            return False
        self._spend(job, chunk)
        return True

    def _take_in(self, job: Job) -> bool:
        """Begin the first of those that wait; False where the KV cache lacks room."""
        group = job.arrival.group
        prefix = self.groups.get(group) if group is not None and job.computed == 0 else None
        held = prefix.tokens if prefix is not None else 0
        revived = held if prefix is not None and prefix.users == 0 else 0
        chunk = min(job.need - held, self._budget)
        if self.used_tokens + revived + chunk > self.model.kv_tokens:
            return False
        self._waiting.popleft()
        self._running.append(job)
        if prefix is not None:
            prefix.users += 1
            prefix.used_at = self.timeline.now
            self.used_tokens += revived
            job.shares = True
            job.computed = held
            self.prefix_hit_tokens += held
        self._spend(job, chunk)
        return True

    def _spend(self, job: Job, chunk: int) -> None:
        self._prefills[job] = chunk
        self._budget -= chunk
        self.used_tokens += chunk
        job.private += chunk

    def _decoding(self) -> int:
        return sum(not job.prefilling for job in self._running)

    def _preempt(self) -> Job:
        """Let the job that began last start over, before all that wait."""
        job = self._running.pop()
        self.truth.preemptions += 1
        self.truth.wasted_tokens += job.computed
        self._release(job)
        job.need = job.arrival.prompt_tokens + job.decoded
        job.computed = 0
        job.prefilling = True
        self._waiting.appendleft(job)
        return job

    def _release(self, job: Job) -> None:
        """Give back a job's KV; its group's prefix stays until the room is needed."""
        self.used_tokens -= job.private
        job.private = 0
        if job.shares and job.arrival.group is not None:
            prefix = self.groups.get(job.arrival.group)
            if prefix is not None:
                prefix.users -= 1
                prefix.used_at = self.timeline.now
                if prefix.users == 0:
                    self.used_tokens -= prefix.tokens
            job.shares = False

    def _evict(self) -> None:
        """Forget prefixes that nobody uses, the least recent first, until all fits."""
        unused = sum(prefix.tokens for prefix in self.groups.values() if prefix.users == 0)
        while unused and self.used_tokens + unused > self.model.kv_tokens:
            _, name = min((p.used_at, name) for name, p in self.groups.items() if p.users == 0)
            unused -= self.groups.pop(name).tokens

    def _set_out(self) -> None:
        model = self.model
        decoding = len(self._decodes)
        tokens = sum(self._prefills.values())
        self._began = self.timeline.now
        self._many = False
        self._steps = 1
        beside, alone = model.beside_tokens_per_second, model.alone_tokens_per_second
        reading = tokens / (beside if decoding else alone)
        seconds = reading + model.step_seconds + model.sequence_seconds * decoding
        if not tokens and decoding:
            self._many = True
            least = min(job.arrival.answer_tokens - job.decoded for job in self._decodes)
            self._steps = max(1, min(least, (model.kv_tokens - self.used_tokens) // decoding))
        self._step_seconds = seconds
        self._ends = self.timeline.after(self._steps * seconds, self._end)

    # A step ends

    def _end(self) -> None:
        done = self._decoded()
        first = self._prefilled(done)
        self.truth.note(self)
        for job in done:
            self._running.remove(job)
            self._release(job)
            self.held -= 1
            self.held_gated -= not job.arrival.direct
            job.over = True
        usage = self.used_tokens / self.model.kv_tokens
        self.gauges = Gauges(len(self._running), len(self._waiting), usage)
        self._many = False
        # Whoever is told may submit: that goes to those that have arrived, for the next step.
        for job in first:
            job.owner.job_first(job)
        for job in done:
            job.owner.job_done(job)
        if self.on_step is not None:
            self.on_step()
        if self.up:
            self._begin()

    def _decoded(self) -> list[Job]:
        """Count the tokens of the steps that are over; return the jobs that are done."""
        steps = self._steps
        done = []
        for job in self._decodes:
            if job.over:
                continue
            job.decoded += steps
            job.computed += steps
            job.private += steps
            self.used_tokens += steps
            if job.decoded >= job.arrival.answer_tokens:
                done.append(job)
        return done

    def _prefilled(self, done: list[Job]) -> list[Job]:
        """Count the chunks of the step that is over; return the jobs whose first token is there."""
        first = []
        for job, chunk in self._prefills.items():
            if job.over or job not in self._running:
                continue
            job.computed += chunk
            self.truth.prefilled_tokens += chunk
            self._share(job)
            if job.computed >= job.need:
                job.prefilling = False
                job.decoded += 1
                if job.first_at is None:
                    job.first_at = self.timeline.now
                    first.append(job)
                if job.decoded >= job.arrival.answer_tokens:
                    done.append(job)
        return first

    def _share(self, job: Job) -> None:
        """Keep the prefix of a job's group, once it has been read."""
        group, tokens = job.arrival.group, job.arrival.prefix_tokens
        if group is None or job.shares or job.computed < tokens or group in self.groups:
            return
        self.groups[group] = Prefix(tokens, self.timeline.now)
        job.private -= tokens
        job.shares = True
