"""The replicas' exchange: each answers the others what it holds, and asks them.

    PeerListener      answers, on `peers.listen`
    PeerAddresses     knows where the others are
    PeerClient        asks one of them
    Rounds            asks all of them, and tells the gates

Nothing of it is there while no model's `replicas` give addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.error import CannotListenError
from twisted.logger import Logger

from twisted_gateway.config.schema import Config
from twisted_gateway.core.peers import GateReport
from twisted_gateway.core.peerwire import PeerView, render_view
from twisted_gateway.upstream.agent import UpstreamAgent
from twisted_gateway.web.background import in_background
from twisted_gateway.web.peer_addresses import PeerAddresses
from twisted_gateway.web.peer_client import PeerClient
from twisted_gateway.web.peer_rounds import ExchangingGate, Rounds
from twisted_gateway.web.peer_site import PeerListener


class Peers:
    """All of the exchange, as the configuration in force wants it.

    Args:
        reactor: for timers, the listener and names.
        gates: gives the gates whose replicas ask each other; of two for the same engines the one
            in force first.
        instance: names this process among the replicas; hexadecimal digits.
        agent: asks the others. It is closed by `stop`.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: Any,
        gates: Callable[[], Sequence[ExchangingGate]],
        *,
        instance: str,
        agent: UpstreamAgent,
    ) -> None:
        """Take what the class documents; nothing is opened or asked before `start`."""
        self._gates = gates
        self._instance = instance
        self._listener = PeerListener(reactor, self._view)
        self._addresses = PeerAddresses(reactor)
        self._client = PeerClient(agent, lambda: self._listener.token)
        self._rounds = Rounds(reactor, self._client.view, self._addresses, gates, instance)

    def start(self, config: Config) -> None:
        """Answer and ask, where the configuration says so; the gates are in place.

        Raises:
            CannotListenError: or another exception of the endpoint: nobody can be answered.
        """
        self._listen(config)
        self._follow(config)

    def adopt(self, config: Config) -> None:
        """Put another configuration in force; where it cannot be listened, the old place stays."""
        try:
            self._listen(config)
        except (CannotListenError, OSError) as fault:
            self._log.error(
                "the replicas' listener stays as it was: {why}",
                why=str(fault),
            )
        self._follow(config)

    def stop(self) -> Deferred[Any]:
        """Neither answer nor ask any more.

        Returns:
            Fires when the port is free and no connection is left.
        """
        self._rounds.stop()
        self._addresses.stop()
        return gatherResults([self._listener.close(), self._client.close()])

    def _listen(self, config: Config) -> None:
        token = config.peers.token
        self._listener.token = b"" if token is None else token.value.encode("utf-8")
        if config.exchanges:
            self._listener.listen(config.peers.listen)
        else:
            in_background(self._listener.close(), self._log, "closing the replicas' listener")

    def _follow(self, config: Config) -> None:
        if config.exchanges:
            self._addresses.adopt([one.replicas for one in self._gates()])
            self._rounds.start()
        else:
            self._rounds.stop()
            self._addresses.stop()

    def _view(self) -> bytes:
        reports: dict[str, GateReport] = {}
        for one in self._gates():
            if one.key not in reports:
                reports[one.key] = one.gate.report()
        return render_view(PeerView(self._instance, reports))
