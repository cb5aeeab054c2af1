"""The engines behind the models: an observer for each address, one gate for each list of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_gateway.config.admission import describe_admission
from twisted_gateway.config.forms import engine_address
from twisted_gateway.config.schema import Config, Model
from twisted_gateway.core.gate import Gate
from twisted_gateway.core.ledger import Ledger
from twisted_gateway.core.ticket import Ticket
from twisted_gateway.engines.observer import Observer, ObserverEvents
from twisted_gateway.engines.scrape import Scraper
from twisted_gateway.upstream.agent import UpstreamAgent
from twisted_gateway.web.admission import Admission, AdmissionEvents
from twisted_gateway.web.background import in_background
from twisted_gateway.web.exchange import Exchange
from twisted_gateway.web.open_place import OpenPlace
from twisted_gateway.web.peer_rounds import ExchangingGate
from twisted_gateway.web.place import Place
from twisted_gateway.web.tries import Tries


class FleetEvents(AdmissionEvents, Protocol):
    """The metrics that engines and gates feed."""

    def engine(self, models: Sequence[str]) -> ObserverEvents:
        """The metrics of one engine, shown for each of these models."""


Addresses = tuple[str, ...]


@dataclass(slots=True)
class Group:
    """The models that share a list of engine addresses, and what gates and observes these.

    Attributes:
        models: the models, by name.
        admission: the gate's driver; None where nothing is gated.
        observers: one for each upstream; empty where nothing is observed.
        scraping: the client of the observers, with a pool of its own.
        follows: observers of others, by whose polls a retired gate looks again.
    """

    models: dict[str, Model] = field(default_factory=dict)
    admission: Admission | None = None
    observers: list[Observer] = field(default_factory=list)
    scraping: UpstreamAgent | None = None
    follows: set[Observer] = field(default_factory=set)

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
        tries: what the engines have answered to our requests.
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
        self.groups: dict[Addresses, Group] = {}
        self._group_of: dict[str, Group] = {}
        self._retired: list[tuple[Addresses, Group]] = []
        # By address, of all gates in force or retired: what is in an engine outlives a reload.
        self._ledgers: dict[str, Ledger] = {}
        self._loads: dict[str, int] = {}
        self.tries = Tries(clock.seconds)
        self.draining = False

    # Configuration

    def adopt(self, config: Config) -> None:
        """Put a configuration in force; requests in flight and parked are not disturbed.

        A gate whose engines stay keeps its queue and takes the new policy. One whose engines are
        gone serves the requests that it has, and is taken back should they come again meanwhile.
        What is in an engine counts for every gate that there is, or was, in front of it.
        """
        wanted: dict[Addresses, Group] = {}
        for model in config.models.values():
            group = wanted.setdefault(_addresses(model), Group())
            group.models[model.name] = model
        for key, group in wanted.items():
            self._put_in_force(key, group, self.groups.get(key) or self._taken_back(key, group))
        for key, group in self.groups.items():
            if key not in wanted:
                self._retire(key, group)
        self.groups = wanted
        self._let_retired_follow()
        # Not before all gates are in place: one that is retired may be buried at once.
        served = {address for key in wanted for address in key}
        served.update(address for key, _ in self._retired for address in key)
        for address in self._ledgers.keys() - served:
            del self._ledgers[address]
        self.tries.keep(served)
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

    def _put_in_force(self, key: Addresses, group: Group, old: Group | None) -> None:
        model = group.model
        if old is not None and self._keeps_gate(group, old):
            group.admission = old.admission
            if group.admission is not None:
                group.admission.adopt(lambda gate, now: gate.adopt(model.policy, now))
        else:
            if old is not None:
                self._retire(key, old)
                old = None
            if model.gated:
                group.admission = self._admission(key, group)
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
                one.model.upstreams,
                one.model.timeouts.connect_seconds,
                one.model.observed,
                one.model.api_key,
                policy.poll_seconds,
                policy.poll_timeout_seconds,
                policy.stale_after_polls,
            )

        # Of a gate that was retired and followed others, the observers have been stopped.
        return not old.follows and relevant(group) == relevant(old)

    def _admission(self, key: Addresses, group: Group) -> Admission:
        model = group.model
        gate = Gate(
            model.policy,
            observed=model.observed,
            learns=model.engine.publishes_running,
            ledgers=[self._ledgers.setdefault(address, Ledger()) for address in key],
        )
        return Admission(gate, self._clock, self._events, name=", ".join(sorted(group.models)))

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

    def _retire(self, key: Addresses, group: Group) -> None:
        """Serve what the group has, then stop observing its engines."""
        admission = group.admission
        if admission is None:
            self._stop_observers(group)
            return
        self._retired.append((key, group))
        idle = admission.when_idle().addCallback(lambda _: self._bury(group))
        in_background(idle, self._log, "retiring an engine")

    def _taken_back(self, key: Addresses, group: Group) -> Group | None:
        """A retired gate whose engines are wanted again, and as they were."""
        for entry in reversed(self._retired):
            if entry[0] == key and self._keeps_gate(group, entry[1]):
                self._retired.remove(entry)
                return entry[1]
        return None

    def _let_retired_follow(self) -> None:
        """Whoever polls an engine now wakes the retired gates in front of it, too."""
        polls = {
            address: observer
            for key, group in self.groups.items()
            for address, observer in zip(key, group.observers, strict=False)
        }
        for key, group in self._retired:
            for engine, address in enumerate(key):
                successor = polls.get(address)
                if successor is None or successor in group.follows or group.admission is None:
                    continue
                if engine < len(group.observers):
                    # Two that poll one engine would each judge the one ledger.
                    group.observers[engine].stop()
                group.follows.add(successor)
                group.admission.follow(successor)

    def _bury(self, group: Group) -> None:
        """A retired gate has served what it had, unless it was taken back meanwhile."""
        for entry in self._retired:
            if entry[1] is group:
                self._retired.remove(entry)
                self._stop_group(group)
                return

    def _stop_group(self, group: Group) -> None:
        self._stop_observers(group)
        if group.admission is not None:
            group.admission.stop()

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

    def retired(self) -> list[tuple[Group, bool]]:
        """Gates that a reload has retired and that still serve.

        The bool says whether a gate in force shares the ledger, and so shows what is in the engine.
        """
        shown = {address for key in self.groups for address in key}
        return [(group, not shown.isdisjoint(key)) for key, group in self._retired]

    def exchanging(self) -> list[ExchangingGate]:
        """Gates whose replicas ask each other, those in force before those retired."""
        return [
            ExchangingGate(key, group.model.policy.replicas, group.admission)
            for key, group in [*self.groups.items(), *self._retired]
            if group.admission is not None and group.model.exchanges
        ]

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
        for group in self._all():
            self._stop_group(group)

    def _admissions(self) -> list[Admission]:
        return [group.admission for group in self._all() if group.admission is not None]

    def _all(self) -> list[Group]:
        return [*self.groups.values(), *(group for _, group in self._retired)]


def _addresses(model: Model) -> Addresses:
    """What a gate is for: scheme, host and port of each engine, whatever the path before /v1."""
    return tuple(map(engine_address, model.upstreams))


def _poll_sent(admission: Admission | None, engine: int) -> Callable[[], None]:
    if admission is None:
        return lambda: None
    return lambda: admission.poll_sent(engine)
