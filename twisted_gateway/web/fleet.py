"""The engines behind the models: an observer for each address, one gate for each list of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_gateway.config.admission import describe_admission
from twisted_gateway.config.forms import engine_address
from twisted_gateway.config.schema import Config, Model
from twisted_gateway.core.gate import Gate
from twisted_gateway.core.ticket import Ticket
from twisted_gateway.engines.observer import Observer, ObserverEvents
from twisted_gateway.engines.scrape import Scraper
from twisted_gateway.upstream.agent import UpstreamAgent
from twisted_gateway.web.admission import Admission, AdmissionEvents, Place
from twisted_gateway.web.background import in_background
from twisted_gateway.web.exchange import Exchange


class FleetEvents(AdmissionEvents, Protocol):
    """The metrics that engines and gates feed."""

    def engine(self, models: Sequence[str]) -> ObserverEvents:
        """The metrics of one engine, shown for each of these models."""


class OpenPlace:
    """A place in an engine that has no gate: always free.

    Of several engines the one with fewest of our requests in flight is asked first, and another
    only when one refuses the connection.
    """

    def __init__(self, loads: dict[str, int], upstreams: Sequence[str]) -> None:
        """Take the book of requests in flight and the engines' base URLs."""
        self._loads = loads
        self._untried = list(upstreams)
        self.upstream = ""

    async def __aenter__(self) -> OpenPlace:
        """Choose an engine."""
        self._choose()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Count the request out."""
        self._leave()

    async def again(self, *, connected: bool) -> bool:
        """Choose another engine after a refused connection, as long as there is one."""
        if connected or not self._untried:
            return False
        self._leave()
        self._choose()
        return True

    def content(self) -> None:
        """Content came; nobody counts it here."""

    def _choose(self) -> None:
        self.upstream = min(self._untried, key=lambda url: self._loads.get(url, 0))
        self._untried.remove(self.upstream)
        self._loads[self.upstream] = self._loads.get(self.upstream, 0) + 1

    def _leave(self) -> None:
        left = self._loads.pop(self.upstream) - 1
        if left:
            self._loads[self.upstream] = left


@dataclass(slots=True)
class Group:
    """The models that share a list of engine addresses, and what gates and observes these.

    Attributes:
        models: the models, by name.
        admission: the gate's driver; None where nothing is gated.
        observers: one for each upstream; empty where nothing is observed.
        scraping: the client of the observers, with a pool of its own.
    """

    models: dict[str, Model] = field(default_factory=dict)
    admission: Admission | None = None
    observers: list[Observer] = field(default_factory=list)
    scraping: UpstreamAgent | None = None

    @property
    def model(self) -> Model:
        """Any of the models: what concerns the engine is equal in all."""
        return next(iter(self.models.values()))

    @property
    def names(self) -> frozenset[str]:
        """What the engine may call the models."""
        return frozenset(
            name
            for model in self.models.values()
            for name in (model.name, model.upstream_model)
            if name is not None
        )


class Fleet:
    """All groups of the configuration in force.

    Attributes:
        config: the configuration in force.
        names: every name and alias that clients may use -> its model.
        draining: whether newcomers are refused.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        scraping: Callable[[float], UpstreamAgent],
        events: FleetEvents,
    ) -> None:
        """Start with no engines.

        Args:
            clock: for polls and parks.
            scraping: makes an agent for polls, with its own pool; takes the connect timeout.
            events: the metrics.
        """
        self._clock = clock
        self._scraping = scraping
        self._events = events
        self.config = Config()
        self.names: Mapping[str, Model] = {}
        self.groups: dict[tuple[str, ...], Group] = {}
        self._group_of: dict[str, Group] = {}
        self._retired: list[Group] = []
        self._loads: dict[str, int] = {}
        self.draining = False

    # Configuration

    def adopt(self, config: Config) -> None:
        """Put a configuration in force; requests in flight and parked are not disturbed.

        A gate whose engines stay keeps its queue and its ledger and takes the new policy. One
        whose engines are gone serves the requests that it has.
        """
        wanted: dict[tuple[str, ...], Group] = {}
        for model in config.models.values():
            group = wanted.setdefault(_addresses(model), Group())
            group.models[model.name] = model
        for key, group in wanted.items():
            self._put_in_force(group, self.groups.get(key))
        for key, group in self.groups.items():
            if key not in wanted:
                self._retire(group)
        self.groups = wanted
        self._group_of = {name: group for group in wanted.values() for name in group.models}
        self.names = {
            name: model for model in config.models.values() for name in (model.name, *model.aliases)
        }
        self.config = config
        for model in config.models.values():
            self._log.info(
                "{model}: {described}",
                model=model.name,
                described=describe_admission(config, model),
            )

    def _put_in_force(self, group: Group, old: Group | None) -> None:
        model = group.model
        if old is not None and self._keeps_gate(group, old):
            group.admission = old.admission
            if group.admission is not None:
                group.admission.adopt(lambda gate, now: gate.adopt(model.policy, now))
        else:
            if old is not None:
                self._retire(old)
                old = None
            if model.gated:
                group.admission = self._admission(group)
        if old is not None and self._keeps_observers(group, old):
            group.observers, group.scraping = old.observers, old.scraping
            return
        if old is not None:
            self._stop_observers(old)
        if model.observed:
            self._observe(group)

    def _keeps_gate(self, group: Group, old: Group) -> bool:
        new_model, old_model = group.model, old.model
        return (new_model.engine, new_model.observed, new_model.gated) == (
            old_model.engine,
            old_model.observed,
            old_model.gated,
        )

    def _keeps_observers(self, group: Group, old: Group) -> bool:
        def relevant(one: Group) -> object:
            policy = one.model.policy
            return (
                sorted(one.models),
                one.names,
                one.model.observed,
                one.model.api_key,
                policy.poll_seconds,
                policy.poll_timeout_seconds,
                policy.stale_after_polls,
            )

        return relevant(group) == relevant(old)

    def _admission(self, group: Group) -> Admission:
        model = group.model
        gate = Gate(
            model.policy,
            engines=len(model.upstreams),
            observed=model.observed,
            learns=model.engine.publishes_running,
        )
        return Admission(gate, self._clock, self._events)

    def _observe(self, group: Group) -> None:
        model = group.model
        policy = model.policy
        group.scraping = agent = self._scraping(model.timeouts.connect_seconds)
        for engine, upstream in enumerate(model.upstreams):
            scraper = Scraper(agent, upstream, names=group.names, api_key=model.api_key)
            observer = Observer(
                self._clock,
                scraper.page,
                kind=model.engine,
                names=group.names,
                poll_seconds=policy.poll_seconds,
                poll_timeout_seconds=policy.poll_timeout_seconds,
                stale_after_polls=policy.stale_after_polls,
                poll_sent=_poll_sent(group.admission, engine),
                events=self._events.engine(sorted(group.models)),
                fetch_model_len=scraper.model_len,
                name=f"{model.name} at {upstream}",
            )
            group.observers.append(observer)
            if group.admission is not None:
                group.admission.watch(engine, observer)
            observer.start()

    def _retire(self, group: Group) -> None:
        """Serve what the group has, then stop observing its engines."""
        admission = group.admission
        if admission is None:
            self._stop_observers(group)
            return
        self._retired.append(group)
        idle = admission.when_idle().addCallback(lambda _: self._stop_group(group))
        in_background(idle, self._log, "retiring an engine")

    def _stop_group(self, group: Group) -> None:
        self._stop_observers(group)
        if group.admission is not None:
            group.admission.stop()
        if group in self._retired:
            self._retired.remove(group)

    def _stop_observers(self, group: Group) -> None:
        for observer in group.observers:
            observer.stop()
        group.observers = []
        if group.scraping is not None:
            in_background(group.scraping.close(), self._log, "closing a scraping client")
            group.scraping = None

    # The request path

    def place(self, model: Model, ticket: Ticket | None, exchange: Exchange) -> Place | OpenPlace:
        """Where a request waits for its engine; without a ticket nothing gates it."""
        group = self._group_of[model.name]
        if ticket is None or group.admission is None:
            return OpenPlace(self._loads, model.upstreams)
        return group.admission.place(ticket, exchange, model.upstreams)

    def max_model_len(self, model: Model) -> int | None:
        """The longest sequence that the model's engines take, in tokens, where they say so."""
        lengths = [
            length
            for observer in self._group_of[model.name].observers
            if (length := observer.observation.max_model_len) is not None
        ]
        return max(lengths, default=None)

    # Shutdown

    def drain(self) -> None:
        """Refuse newcomers and whoever is parked without a status."""
        self.draining = True
        for admission in self._admissions():
            admission.drain()

    def close(self) -> None:
        """Refuse whoever is still parked."""
        for admission in self._admissions():
            admission.close()

    def stop(self) -> None:
        """Stop polling and forget all timers."""
        for group in [*self.groups.values(), *self._retired]:
            self._stop_group(group)

    def _admissions(self) -> list[Admission]:
        groups = [*self.groups.values(), *self._retired]
        return [group.admission for group in groups if group.admission is not None]


def _addresses(model: Model) -> tuple[str, ...]:
    """What a gate is for: scheme, host and port of each engine, whatever the path before /v1."""
    return tuple(map(engine_address, model.upstreams))


def _poll_sent(admission: Admission | None, engine: int) -> Callable[[], None]:
    if admission is None:
        return lambda: None
    return lambda: admission.poll_sent(engine)
