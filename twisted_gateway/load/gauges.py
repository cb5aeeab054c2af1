"""The gateways' own account of themselves while a run goes on, once each model second."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from twisted_gateway.load.look import Looker, NoAnswer
from twisted_gateway.load.results import Gate, Sample
from twisted_gateway.load.run import Run
from twisted_gateway.web.background import in_background

LEAST_WALL_SECONDS = 0.1
"""However fast a run is, nobody is asked more often."""
MAX_SAMPLES = 4000
"""Past so many, two become one, and they are taken half as often."""


class _Parked(Struct):
    waited_seconds: float = 0.0


class _Model(Struct):
    """What `/status.json` says of a model; a gateway of another version may say less."""

    aliases: list[str] = field(default_factory=list)
    parked: list[_Parked] = field(default_factory=list)
    in_engine: int | None = None
    own: int | None = None
    running: int | None = None
    waiting: int | None = None
    max_inflight: int | None = None
    max_park_seconds: float | None = None
    max_queue_depth: int | None = None


class _Status(Struct):
    models: dict[str, _Model]


class _State(Struct):
    in_engine_now: int


class Gauges:
    """Takes samples of a run, and of the gateways that it goes to.

    Attributes:
        samples: in their order, at most `MAX_SAMPLES`.
        gate: what the first gateway that answered says of the model's gate.
        seen: whether any gateway has answered.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        looker: Looker,
        run: Run,
        model: str,
        *,
        status: Sequence[str] = (),
        state: str | None = None,
    ) -> None:
        """Take what is sampled.

        Args:
            clock: the reactor's.
            looker: fetches.
            run: the run.
            model: which of the gateways' models.
            status: addresses of `/status.json`, one of each gateway.
            state: the address of a simulated engine's `/demo/state`.
        """
        self.samples: list[Sample] = []
        self.gate: Gate | None = None
        self._looker = looker
        self._run = run
        self._model = model
        self._status = status
        self._state = state
        self._every = 1.0
        self._due = 0.0
        self._loop = LoopingCall(self._tick)
        self._loop.clock = clock

    @property
    def seen(self) -> bool:
        """Whether any gateway has answered."""
        return self.gate is not None

    def start(self) -> None:
        """Take the first sample, and one each model second, of a run that has started."""
        speed = self._run.pace.speed
        wall = max(1.0 / speed, LEAST_WALL_SECONDS)
        self._every = wall * speed
        in_background(self._loop.start(wall), self._log, "the sampling of gauges")

    def stop(self) -> None:
        """Take no more."""
        if self._loop.running:
            self._loop.stop()

    def _tick(self) -> Deferred[None] | None:
        # A little less than due, for timers are never early by much and thinning needs no more.
        if self._run.pace.now() < self._due - self._every / 10:
            return None
        self._due = self._run.pace.now() + self._every
        return Deferred.fromCoroutine(self._take())

    async def _take(self) -> None:
        run = self._run
        sample = Sample(
            at=run.pace.now(),
            open=run.open,
            held=run.held,
            completed=run.completed,
            refused=run.refused,
        )
        # All at once, so that one that hangs makes no sample of the others old.
        truth = Deferred.fromCoroutine(self._truth())
        asked = [Deferred.fromCoroutine(self._facts(url)) for url in self._status]
        told = [await facts for facts in asked]
        self._fill(sample, [facts for facts in told if facts is not None])
        sample.truth = await truth
        self.samples.append(sample)
        if len(self.samples) >= MAX_SAMPLES:
            self.samples = thinned(self.samples)
            self._every *= 2

    async def _truth(self) -> int | None:
        """Ask the simulated engine; None where there is none, or it does not say."""
        if self._state is None:
            return None
        try:
            return (await self._looker.fetch(self._state, _State)).in_engine_now
        except NoAnswer:
            return None

    async def _facts(self, url: str) -> _Model | None:
        """Ask one gateway; None where it does not say."""
        try:
            status = await self._looker.fetch(url, _Status)
        except NoAnswer:
            return None
        if self._model in status.models:
            return status.models[self._model]
        aliased = (one for one in status.models.values() if self._model in one.aliases)
        return next(aliased, None)

    def _fill(self, sample: Sample, told: Sequence[_Model]) -> None:
        """Put together what the gateways say."""
        if not told:
            return
        if self.gate is None:
            self.gate = Gate(
                max_inflight=told[0].max_inflight,
                max_park_seconds=told[0].max_park_seconds,
                max_queue_depth=told[0].max_queue_depth,
            )
        depths = [len(one.parked) for one in told]
        waits = [parked.waited_seconds for one in told for parked in one.parked]
        sample.parked, sample.deepest = sum(depths), max(depths)
        sample.longest_wait = max(waits, default=0.0) * self._run.pace.speed
        # Each sees what is not its own by the engine's gauges, which lag: where all of them own
        # more than any of them sees, that is what there is.
        own = [one.own for one in told if one.own is not None]
        sample.in_engine = _most([*(one.in_engine for one in told), sum(own) if own else None])
        sample.running = _most([one.running for one in told])
        sample.waiting = _most([one.waiting for one in told])


def thinned(samples: Sequence[Sample]) -> list[Sample]:
    """Make one sample of each two: the later, with the larger of the figures that have peaks."""
    thin: list[Sample] = []
    for index in range(1, len(samples), 2):
        first, second = samples[index - 1], samples[index]
        second.held = max(first.held, second.held)
        second.open = max(first.open, second.open)
        second.parked = _most((first.parked, second.parked))
        second.deepest = _most((first.deepest, second.deepest))
        second.in_engine = _most((first.in_engine, second.in_engine))
        second.running = _most((first.running, second.running))
        second.waiting = _most((first.waiting, second.waiting))
        second.truth = _most((first.truth, second.truth))
        if first.longest_wait is not None:
            second.longest_wait = max(first.longest_wait, second.longest_wait or 0.0)
        thin.append(second)
    return thin + list(samples[len(thin) * 2 :])


def _most(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
