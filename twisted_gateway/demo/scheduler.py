"""The scheduler of a simulated engine: pure, told the time, in the shape of vLLM V1's.

A step is planned, lasts for the time that the plan says, and is completed; nothing enters, leaves
or becomes visible but at its two ends:

    plan      arrivals enter the waiting queue; running jobs get tokens first (one a decode, a chunk
              of prompt otherwise) out of `max_batched_tokens`; then waiting ones in order of
              arrival, while there are places, tokens and KV blocks. Where a running job finds no
              block the last running one is preempted: it loses its blocks and waits, foremost,
              to be computed again.
    complete  aborted jobs leave; each job that has no prompt left to compute has one token more;
              finished ones leave; the gauges are published.

    job       arrived -> waiting -> running: prefill chunks, then decode -> finished
                            ^----------- preempted -----------'            any: aborted
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from twisted_gateway.demo.kvcache import Holding, KvCache


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What an engine can do. The defaults are those of the engine that the project was made for.

    Attributes:
        max_num_seqs: sequences in the batch at most (S).
        num_blocks: KV blocks of `block_tokens` tokens.
        max_batched_tokens: tokens that one step computes at most.
        max_model_tokens: prompt and answer of one sequence at most.
        prefill_tokens_per_second: of a step that only prefills.
        shared_prefill_tokens_per_second: of a step that also decodes.
        step_seconds: what a step costs besides; so one decoded token takes this long.
    """

    max_num_seqs: int = 4
    block_tokens: int = 16
    num_blocks: int = 9527
    max_batched_tokens: int = 2048
    max_model_tokens: int = 131_072
    prefill_tokens_per_second: float = 525.0
    shared_prefill_tokens_per_second: float = 262.0
    step_seconds: float = 0.04
    prefix_caching: bool = True

    def __post_init__(self) -> None:
        """Refuse what could not work.

        Raises:
            ValueError: a lone sequence would not fit the KV cache, or a batch the step.
        """
        if self.max_model_tokens > self.kv_tokens:
            raise ValueError(
                f"{self.max_model_tokens} tokens of a sequence exceed {self.kv_tokens} of KV cache"
            )
        if not 1 <= self.max_num_seqs <= self.max_batched_tokens:
            raise ValueError(f"max_num_seqs must be 1 to {self.max_batched_tokens}")

    @property
    def kv_tokens(self) -> int:
        """The tokens that the KV cache holds."""
        return self.num_blocks * self.block_tokens

    def faster(self, speed: float) -> Profile:
        """The same engine, `speed` times as fast.

        Raises:
            ValueError: `speed` is not above zero.
        """
        if not speed > 0:
            raise ValueError(f"speed must be above 0, not {speed}")
        return replace(
            self,
            prefill_tokens_per_second=self.prefill_tokens_per_second * speed,
            shared_prefill_tokens_per_second=self.shared_prefill_tokens_per_second * speed,
            step_seconds=self.step_seconds / speed,
        )


@dataclass(eq=False, slots=True, kw_only=True)
class Job:
    """One sequence on its way through an engine.

    Attributes:
        output_tokens: how many it will produce; 0 for pooling: it ends with its prefill.
        max_tokens: how many its request allowed.
        reason: why it will end: `stop` or `length`.
        keys: one for each full block of the prompt, each standing for all of the prompt up to
            the block's end.
        on_token: called with the index of each token when the step that made it has ended.
        on_done: called once with `reason`, or with `error` when the engine dies.
        arrived_at, scheduled_at, first_token_at, last_token_at: times in seconds.
        prefilled: tokens computed for it by prefill, again after a preemption included.
    """

    prompt_tokens: int
    output_tokens: int
    max_tokens: int
    reason: str
    keys: Sequence[int] = field(repr=False)
    on_token: Callable[[int], object]
    on_done: Callable[[str], object]
    arrived_at: float
    scheduled_at: float | None = None
    first_token_at: float | None = None
    last_token_at: float | None = None
    computed: int = 0
    prefilled: int = 0
    made: int = 0
    cached_tokens: int = 0
    preemptions: int = 0
    ended: bool = False
    holding: Holding = field(default_factory=Holding)

    @property
    def pending(self) -> int:
        """The tokens that must be computed before the next one can be produced."""
        return self.prompt_tokens + self.made - self.computed

    @property
    def decoding(self) -> bool:
        """Whether it only needs its own last token computed."""
        return self.made > 0 and self.pending == 1


@dataclass(frozen=True, slots=True)
class Gauges:
    """What an engine publishes about now, which is the end of its last step."""

    running: int = 0
    waiting: int = 0
    kv_usage: float = 0.0


@dataclass(slots=True, kw_only=True)
class Step:
    """What happened in one step, for the statistics and for those who wait.

    Attributes:
        producers: the jobs that produced a token, oldest first.
        first: those of them whose first one it was.
        gaps_seconds: the time since the last token, of the others.
        finished: the jobs that ended.
        prefix_queries, prefix_hits: in tokens.
    """

    now: float
    gauges: Gauges
    producers: list[Job] = field(default_factory=list)
    first: list[Job] = field(default_factory=list)
    gaps_seconds: list[float] = field(default_factory=list)
    finished: list[Job] = field(default_factory=list)
    prefix_queries: int = 0
    prefix_hits: int = 0
    preemptions: int = 0


class Scheduler:
    """The state of one engine between and during its steps. `plan` and `complete` take turns.

    Attributes:
        prefilled_tokens: computed by prefill, of all jobs so far.
        wasted_tokens: those of them that were for aborted jobs, or computed again.
    """

    def __init__(self, profile: Profile) -> None:
        """Start idle."""
        self.prefilled_tokens = self.wasted_tokens = 0
        self._profile = profile
        self._cache = KvCache(profile.num_blocks, profile.block_tokens)
        self._arrived: list[Job] = []
        self._waiting: deque[Job] = deque()
        self._running: list[Job] = []
        self._plan: dict[Job, int] = {}
        self._left = False
        self._queries = self._hits = self._preemptions = 0

    @property
    def cache(self) -> KvCache:
        """The KV cache as it is, whatever the gauges say."""
        return self._cache

    @property
    def jobs(self) -> list[Job]:
        """Every job that has come and not ended, the running ones first."""
        jobs = [*self._running, *self._waiting, *self._arrived]
        return [job for job in jobs if not job.ended]

    def add(self, job: Job) -> None:
        """Take a job in; it enters with the next step."""
        self._arrived.append(job)

    def abort(self, job: Job) -> None:
        """Let a job go; it gives up its place when the step that is under way ends."""
        job.ended = True
        self._left = True

    def gauges(self) -> Gauges:
        """What would be published if a step ended now."""
        return Gauges(len(self._running), len(self._waiting), self._cache.usage)

    def plan(self, now: float) -> float | None:
        """Begin a step.

        Returns:
            How long it lasts, in seconds; None when there is nothing to do.
        """
        self._drop()
        self._waiting.extend(self._arrived)
        self._arrived.clear()
        self._plan = {}
        preemptions = self._preemptions
        budget = self._plan_running(self._profile.max_batched_tokens)
        if self._preemptions == preemptions:
            self._plan_waiting(budget, now)
        if not self._plan:
            return None
        prefill_tokens = sum(count for job, count in self._plan.items() if not job.decoding)
        mixed = any(job.decoding for job in self._plan)
        rate = (
            self._profile.shared_prefill_tokens_per_second
            if mixed
            else self._profile.prefill_tokens_per_second
        )
        return self._profile.step_seconds + prefill_tokens / rate

    def complete(self, now: float) -> Step:
        """End the step that was planned last."""
        self._drop()
        step = Step(now=now, gauges=Gauges())
        for job, count in self._plan.items():
            if not job.ended:
                self._advance(job, count, step)
        self._plan = {}
        step.gauges = self.gauges()
        step.prefix_queries, step.prefix_hits = self._queries, self._hits
        step.preemptions = self._preemptions
        self._queries = self._hits = self._preemptions = 0
        return step

    def _plan_running(self, budget: int) -> int:
        index = 0
        while index < len(self._running) and budget:
            job = self._running[index]
            count = min(job.pending, budget)
            if self._make_room(job, count):
                self._plan[job] = count
                budget -= count
                index += 1
        return budget

    def _make_room(self, job: Job, count: int) -> bool:
        """Preempt from the end of the batch until `job` fits, or is preempted itself."""
        while not self._cache.grow(job.holding, job.computed + count):
            victim = self._running.pop()
            self._cache.release(victim.holding)
            victim.computed = 0
            victim.preemptions += 1
            self._preemptions += 1
            self._waiting.appendleft(victim)
            if victim is job:
                return False
        return True

    def _plan_waiting(self, budget: int, now: float) -> None:
        while self._waiting and budget and len(self._running) < self._profile.max_num_seqs:
            job = self._waiting[0]
            # At least one token must be computed, else there would be none to sample from.
            keys = job.keys[: (job.pending - 1) // self._profile.block_tokens]
            keys = keys[: self._cache.match(keys)] if self._profile.prefix_caching else ()
            cached = len(keys) * self._profile.block_tokens
            count = min(job.pending - cached, budget)
            if not self._cache.take(job.holding, keys, cached + count):
                return
            self._waiting.popleft()
            self._running.append(job)
            job.computed = cached
            if job.scheduled_at is None:
                job.scheduled_at = now
                job.cached_tokens = cached
                if self._profile.prefix_caching:
                    self._queries += job.prompt_tokens
                    self._hits += cached
            self._plan[job] = count
            budget -= count

    def _advance(self, job: Job, count: int, step: Step) -> None:
        if not job.decoding:
            job.prefilled += count
            self.prefilled_tokens += count
        job.computed += count
        if self._profile.prefix_caching:
            self._cache.store(job.holding, job.keys, job.computed)
        if job.pending:
            return
        if job.first_token_at is None:
            job.first_token_at = step.now
            step.first.append(job)
        else:
            step.gaps_seconds.append(step.now - (job.last_token_at or step.now))
        if job.output_tokens:
            job.made += 1
            job.last_token_at = step.now
            step.producers.append(job)
        if job.made >= job.output_tokens:
            job.ended = True
            # Started over, it may find in the cache what it was the first to need.
            again = job.prefilled - (job.prompt_tokens - job.cached_tokens)
            self.wasted_tokens += max(0, again)
            self._running.remove(job)
            self._cache.release(job.holding)
            step.finished.append(job)

    def _drop(self) -> None:
        if not self._left:
            return
        self._left = False
        for job in [*self._running, *self._waiting]:
            if job.ended:
                self.wasted_tokens += job.prefilled
                self._cache.release(job.holding)
        self._running = [job for job in self._running if not job.ended]
        self._waiting = deque(job for job in self._waiting if not job.ended)
        self._arrived = [job for job in self._arrived if not job.ended]
