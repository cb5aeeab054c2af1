"""The gateway as a service: start, reload, drain."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry
from twisted.application import strports
from twisted.application.internet import StreamServerEndpointService
from twisted.application.service import MultiService
from twisted.internet import task
from twisted.internet.defer import CancelledError, Deferred, gatherResults
from twisted.logger import Logger

from twisted_gateway.banner import banner, beyond_limits
from twisted_gateway.cgroup import Limits
from twisted_gateway.config.load import ConfigError
from twisted_gateway.config.schema import Config, Model
from twisted_gateway.core.outcome import Outcome
from twisted_gateway.core.preferences import request_id
from twisted_gateway.service_side import ServiceSide
from twisted_gateway.telemetry.access import AccessLog
from twisted_gateway.telemetry.metrics import Metrics
from twisted_gateway.telemetry.repeats import Repeats
from twisted_gateway.telemetry.tracing import Tracing
from twisted_gateway.upstream.agent import UpstreamAgent
from twisted_gateway.web.background import in_background
from twisted_gateway.web.books import Books
from twisted_gateway.web.exchange import Exchange, Exchanges
from twisted_gateway.web.fleet import Fleet
from twisted_gateway.web.http_attributes import client_of, server_attributes
from twisted_gateway.web.intake import HeldBytes
from twisted_gateway.web.models import Models
from twisted_gateway.web.operations import Operations
from twisted_gateway.web.peers import Peers
from twisted_gateway.web.problems import draining
from twisted_gateway.web.proxy_client import ProxyClient
from twisted_gateway.web.request import GatewayRequest
from twisted_gateway.web.routing import Front, Root
from twisted_gateway.web.site import Bounds, Connections, GatewaySite
from twisted_gateway.web.tenancy import Tenancy

ACCEPT_GRACE_SECONDS = 2.0
"""How long listeners still accept after a drain began, so that whoever routes to us can notice."""

BACKLOG = 4096
"""Connections that wait to be accepted (the kernel caps it); Twisted's 50 lets bursts wait for a
second, for their SYN to be sent again."""

ADMIN_CONNECTIONS = 1000
"""How many connections the listeners of `adminListen` take."""

LAST_SECONDS = 1.0
"""How long after `drainSeconds` a request may still be under way, before it is cut."""

FLUSH_SECONDS = 10.0
"""How long last words may take to reach their clients before the process ends."""

FLUSH_LOOK_SECONDS = 0.25
"""How often it is looked whether they have."""


class Gateway(MultiService):
    """The whole gateway.

    Args:
        reactor: for everything that takes time or touches the network.
        config: the configuration to begin with.
        registry: where the metrics are registered.
        tracing: traces, or the null object.
        access_log: writes a line for each request.
        load: reads the configuration anew, for `reload`; None: it cannot be reloaded.
        limits: what the process may use, which the log says.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: Any,
        config: Config,
        *,
        registry: CollectorRegistry,
        tracing: Tracing,
        access_log: AccessLog,
        load: Callable[[], Config] | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Put the parts together; nothing listens or polls before `startService`."""
        super().__init__()
        self._reactor = reactor
        self._config = config
        self._bounds = Bounds.of(config)
        self._load = load
        self._limits = limits
        self._tracing = tracing
        self._repeats = Repeats(reactor)
        self._listeners: list[StreamServerEndpointService] = []
        self._drained: Deferred[None] | None = None
        self._draining: Deferred[None] | None = None
        self._clients: dict[float, ProxyClient] = {}
        self.exchanges = Exchanges()
        self.metrics = Metrics(registry)
        self._books = Books(self.metrics, access_log)
        self.agent = UpstreamAgent(reactor, connect_seconds=5.0)
        self.fleet = Fleet(reactor, self._scraping, self.metrics)
        self.peers = Peers(
            reactor,
            self.fleet.exchanging,
            instance=uuid.uuid4().hex,
            agent=UpstreamAgent(reactor, connect_seconds=5.0, max_idle_per_host=1),
        )
        self.tenancy = Tenancy(secrets.token_bytes)
        self.operations = Operations(
            self.fleet, self.exchanges, self.metrics, reactor, self.tenancy.shown
        )
        self.operations.status.setServiceParent(self)
        self.metrics.states = self.operations.states
        self.metrics.history = self.operations.status.history
        held = self._held = HeldBytes(config.max_held_bytes)
        self.metrics.watch_held(lambda: held.now)
        self._service_side = ServiceSide(reactor, self.fleet, self.metrics, self.tenancy, held)
        models = Models(
            self.fleet,
            self._client,
            reactor,
            self.metrics,
            tenancy=self.tenancy,
            guard=self._service_side.guard,
            prefix_key=secrets.token_bytes(16),
        )
        root = Root(models, self.operations, self._service_side, lambda: self._bounds)
        connections = Connections(config.max_connections)

        def site(front: Front, connections: Connections) -> GatewaySite:
            return GatewaySite(
                front.resource,
                reactor=reactor,
                bounds=lambda: self._bounds,
                held=held,
                connections=connections,
                open_exchange=self._open_exchange,
                turned_away=self._turned_away,
                body_rule=front.body_rule,
            )

        public = root.public(with_operations=not config.admin_listen)
        self.site = site(public, connections)
        # Clients that take all connections must not keep the probes of the orchestrator out.
        self._sites = [(place, self.site) for place in config.listen]
        if config.admin_listen:
            admin = site(root.admin(), Connections(ADMIN_CONNECTIONS))
            self._sites += [(place, admin) for place in config.admin_listen]
        self._connections = connections

    # Start

    def startService(self) -> None:
        """Observe, gate and listen."""
        for line in banner(self._config, self._tracing.describe(), self._limits):
            self._log.info("{line}", line=line)
        self._adopt(self._config)
        self.peers.start(self._config)
        for place, site in self._sites:
            # Its services say at once when a port is taken: no gateway runs without one of its own.
            listener = strports.service(_with_backlog(place), site, reactor=self._reactor)
            listener.setServiceParent(self)
            if site is self.site:
                self._listeners.append(listener)
        super().startService()

    def stopService(self) -> Any:
        """Stop listening and polling; what is under way is cut."""
        if self._draining is not None:
            self._draining.cancel()
        self.fleet.stop()
        return gatherResults(
            [
                self.peers.stop(),
                _deferred(super().stopService()),
                self.agent.close(),
                *self._service_side.stop(),
                self._tracing.shutdown(),
            ]
        )

    # Reload

    def reload(self) -> bool:
        """Read the configuration again and put it in force.

        Returns:
            False where it is faulty: its errors are logged, and the old one stays in force.
        """
        if self._load is None:
            self._log.warn("this gateway was started without a configuration file to read again")
            return False
        # Before anything can raise: whatever does, the file is not in force.
        self.metrics.reloaded(False)
        self.operations.status.configured(["it could not be read; the log has why"])
        try:
            config = self._load()
        except ConfigError as fault:
            for line in str(fault).splitlines():
                self._log.error("configuration refused: {line}", line=line)
            self.operations.status.configured(str(fault).splitlines())
            return False
        old = self._config
        for name in ("listen", "admin_listen", "reload"):
            if getattr(config, name) != getattr(old, name):
                self._log.warn("{name} has changed; that takes effect at the next start", name=name)
        self._adopt(config)
        self.peers.adopt(config)
        self._log.info("the configuration was read again and is in force")
        return True

    def _adopt(self, config: Config) -> None:
        self.metrics.reloaded(False)
        self.operations.status.configured(["it could not be put in force; the log has why"])
        # What may raise comes first: a configuration is in force whole, or not at all.
        services = self._service_side.build(config)
        for warning in (*config.warnings, *beyond_limits(config, self._limits)):
            self._log.warn("{words}", words=warning)
        observed = [model.name for model in config.models.values() if model.observed]
        self.metrics.configure(list(config.models), observed, gen_ai=config.gen_ai_metrics)
        self.fleet.adopt(config)
        self._service_side.adopt(config, services)
        self._config = config
        self._bounds = Bounds.of(config)
        self._held.limit = config.max_held_bytes
        self._connections.limit = config.max_connections
        self.metrics.reloaded(True)
        self.operations.status.configured()

    # Shutdown

    def drain(self) -> Deferred[None]:
        """Let what is under way end, refuse what is new, for at most `drainSeconds`.

        Calling it again while it drains ends the drain at once.

        Returns:
            Fires when nothing is under way any more and last words have had time to leave, or
            when the service is stopped before that.
        """
        if self._drained is not None:
            self._interrupt_all()
            return self._drained
        self._log.info(
            "draining: {count} requests under way, {seconds} s at most; a second signal, such as "
            "another Ctrl-C, ends it at once",
            count=len(self.exchanges),
            seconds=f"{self._config.drain_seconds:g}",
        )
        self.fleet.drain()
        drained = self._drained = Deferred()
        self._draining = Deferred.fromCoroutine(self._drain())
        in_background(self._draining, self._log, "the drain")
        _ = self._draining.addBoth(lambda _: drained.callback(None))
        return drained

    async def _drain(self) -> None:
        later = self._reactor.callLater
        timers = [
            later(ACCEPT_GRACE_SECONDS, self._stop_listening),
            later(self._config.drain_seconds, self._interrupt_all),
        ]
        try:
            await task.deferLater(self._reactor, ACCEPT_GRACE_SECONDS, lambda: None)
            await self._emptied()
        finally:
            for timer in timers:
                if timer.active():
                    timer.cancel()
        await self._flushed()
        await self._service_side.finished()

    async def _emptied(self) -> None:
        """Return when nothing is under way any more, at the latest when all has been cut."""
        empty = self.exchanges.when_empty()
        # A request whose body is still coming has no handler that could be interrupted.
        last = self._reactor.callLater(self._config.drain_seconds + LAST_SECONDS, empty.cancel)
        try:
            await empty
        except CancelledError:
            if last.active():
                # Not its doing: the service is stopped.
                raise
            self._log.warn("{count} requests are cut", count=len(self.exchanges))
            self.site.cut_connections()
        finally:
            if last.active():
                last.cancel()

    async def _flushed(self) -> None:
        """Return when the last words have left, or nobody has read them for too long."""
        self.site.close_connections()
        waited_seconds = 0.0
        while self.site.open_connections and waited_seconds < FLUSH_SECONDS:
            await task.deferLater(self._reactor, FLUSH_LOOK_SECONDS, lambda: None)
            waited_seconds += FLUSH_LOOK_SECONDS

    def _interrupt_all(self) -> None:
        self.fleet.close()
        for exchange in self.exchanges:
            exchange.interrupt(draining())

    def _stop_listening(self) -> None:
        # Those of adminListen go on: probes and scrapes follow a drain to its end.
        for listener in self._listeners:
            listener.stopService()
        self.site.close_connections()

    # Requests

    def _open_exchange(self, request: GatewayRequest) -> Exchange:
        config = self.fleet.config
        trusted = request.peer_is_trusted(config.trusted_proxies)
        exchange = Exchange(
            self._reactor,
            request_id(request.getHeader(b"X-Request-ID"), lambda: uuid.uuid4().hex),
            self._tracing.request(
                request.requestHeaders, trusted, lambda: server_attributes(request, config)
            ),
            self._ended,
        )
        if config.identify_clients:
            exchange.client = client_of(request, config)
        self.exchanges.opened(exchange)
        return exchange

    def _ended(self, exchange: Exchange) -> None:
        # In this order: when the last is closed, a drain ends, and the process with it.
        try:
            self._books.close(exchange)
        finally:
            self.exchanges.closed(exchange)

    def _turned_away(self) -> None:
        """A connection too many was closed; there is no request that could be logged."""
        self._repeats.say(
            "maxConnections",
            self._log.warn,
            "a connection was turned away: maxConnections are open",
        )
        self.metrics.ended("", "", Outcome.REJECTED)
        self.metrics.rejected("", "queue_full")

    def _client(self, model: Model) -> ProxyClient:
        seconds = model.timeouts.connect_seconds
        client = self._clients.get(seconds)
        if client is None:
            client = self._clients[seconds] = ProxyClient(self.agent.bound(seconds))
        return client

    def _scraping(self, connect_seconds: float) -> UpstreamAgent:
        # A pool of its own: those that carry inference may be full when the gauges matter most.
        return UpstreamAgent(self._reactor, connect_seconds=connect_seconds, max_idle_per_host=1)


def _with_backlog(place: str) -> str:
    """A TCP endpoint with room for a burst of agents, where it does not say itself."""
    if place.partition(":")[0] in ("tcp", "tcp6", "ssl") and ":backlog=" not in place:
        return f"{place}:backlog={BACKLOG}"
    return place


def _deferred(result: Any) -> Deferred[Any]:
    if isinstance(result, Deferred):
        return result
    done: Deferred[Any] = Deferred()
    done.callback(result)
    return done
