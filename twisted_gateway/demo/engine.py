"""A simulated engine: the scheduler driven by a clock. No timer runs while there is no work."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from twisted_gateway.demo.scheduler import Gauges, Job, Profile, Scheduler, Step


class EngineDead(Exception):
    """The engine has died: it takes no more jobs."""


class Engine:
    """One engine in time.

    Attributes:
        profile: what it can do, its `speed` included.
        in_engine_now: sequences that have been submitted and neither ended nor been aborted. This
            is the truth that the gauges tell late.
        peak_in_engine: the most there have been at once since the start, or `reset_peak`.
        most_behind_seconds: the most by which a step ended after its time, because the machine is
            too slow for the engine's speed; since the start, or `reset_peak`.
        dead: whether `die` was called.
    """

    def __init__(
        self,
        clock: IReactorTime,
        profile: Profile | None = None,
        *,
        speed: float = 1.0,
        on_step: Callable[[Step], object] | None = None,
    ) -> None:
        """Start idle.

        Args:
            clock: where time comes from.
            profile: what the engine can do; the default is the project's reasoning engine.
            speed: its time runs this many times as fast as the clock's.
            on_step: told of every step at its end, before those who wait for tokens.

        Raises:
            ValueError: `speed` is not above zero.
        """
        self.profile = (profile or Profile()).faster(speed)
        self.in_engine_now = 0
        self.peak_in_engine = 0
        self.most_behind_seconds = 0.0
        self.dead = False
        self._clock = clock
        self._on_step = on_step
        self._scheduler = Scheduler(self.profile)
        self._published = Gauges()
        self._ends_at = 0.0
        self._call: IDelayedCall | None = None
        self._stepping = False

    def gauges(self) -> Gauges:
        """What the engine publishes: its state at the end of its last step."""
        return self._published

    @property
    def idle(self) -> bool:
        """Whether no step is under way."""
        return self._call is None and not self._stepping

    @property
    def prefilled_tokens(self) -> int:
        """Tokens that prefill has computed since the start."""
        return self._scheduler.prefilled_tokens

    @property
    def wasted_tokens(self) -> int:
        """Those of them that were for jobs that were aborted, or computed again."""
        return self._scheduler.wasted_tokens

    def submit(
        self,
        prompt_tokens: int,
        max_tokens: int,
        on_token: Callable[[int], object],
        on_done: Callable[[str], object],
        *,
        natural_tokens: int | None = None,
        keys: Sequence[int] = (),
    ) -> Job:
        """Take in one sequence; it enters the scheduler with the next step.

        Args:
            prompt_tokens: at least 1.
            max_tokens: how many tokens it may produce; 0 for pooling.
            on_token: told the index of each token, at the end of its step.
            on_done: told once why it ended: `stop`, `length` or `error`; not told of an abort.
            natural_tokens: after how many it would stop by itself; None: never.
            keys: of the prompt's full blocks, for the prefix cache; see `Job`.

        Raises:
            EngineDead: it has died.
            ValueError: the sequence is empty or longer than the model's context.
        """
        if self.dead:
            raise EngineDead()
        if prompt_tokens < 1 or max_tokens < 0:
            raise ValueError("a sequence has at least one token")
        if prompt_tokens + max_tokens > self.profile.max_model_tokens:
            raise ValueError(f"longer than {self.profile.max_model_tokens} tokens")
        output_tokens = max_tokens if natural_tokens is None else min(max_tokens, natural_tokens)
        stops = max_tokens == 0 or natural_tokens == output_tokens
        job = Job(
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            max_tokens=max_tokens,
            reason="stop" if stops else "length",
            keys=keys,
            on_token=on_token,
            on_done=on_done,
            arrived_at=self._clock.seconds(),
        )
        self._scheduler.add(job)
        self.in_engine_now += 1
        self.peak_in_engine = max(self.peak_in_engine, self.in_engine_now)
        if self.idle:
            self._begin(self._clock.seconds())
        return job

    def abort(self, job: Job) -> None:
        """Drop a job whose client has left: silent at once, out of the batch at the step's end."""
        if not job.ended:
            self._scheduler.abort(job)
            self.in_engine_now -= 1

    def reset_peak(self) -> None:
        """Measure `peak_in_engine` and `most_behind_seconds` from now on."""
        self.peak_in_engine = self.in_engine_now
        self.most_behind_seconds = 0.0

    def die(self) -> None:
        """End every job with `error`, stop all timers and take no more."""
        if self.dead:
            return
        self.dead = True
        if self._call is not None:
            self._call.cancel()
            self._call = None
        jobs = self._scheduler.jobs
        for job in jobs:
            self.abort(job)
        for job in jobs:
            job.on_done("error")

    def _begin(self, now: float) -> None:
        duration = self._scheduler.plan(now)
        if duration is None:
            self._published = self._scheduler.gauges()
            return
        self._ends_at = now + duration
        # Ends are reckoned from the planned end of the step before, so that a late timer is made up
        # for; never more than the step's own length, should the clock have been set back.
        delay = min(duration, max(0.0, self._ends_at - self._clock.seconds()))
        self._call = self._clock.callLater(delay, self._end)

    def _end(self) -> None:
        self._call = None
        self._stepping = True
        behind = self._clock.seconds() - self._ends_at
        self.most_behind_seconds = max(self.most_behind_seconds, behind)
        step = self._scheduler.complete(self._ends_at)
        self.in_engine_now -= len(step.finished)
        self._published = step.gauges
        try:
            self._tell(step)
        finally:
            self._stepping = False
            if not self.dead:
                self._begin(self._ends_at)

    def _tell(self, step: Step) -> None:
        if self._on_step is not None:
            self._on_step(step)
        finished = set(step.finished)
        for job in step.producers:
            # One listener may abort another's job, and then that one must not be told any more.
            if job in finished or not job.ended:
                job.on_token(job.made - 1)
        for job in step.finished:
            job.on_done(job.reason)
