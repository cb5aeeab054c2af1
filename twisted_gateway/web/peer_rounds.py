"""Asking all replicas what they hold, round after round.

    a replica that                 is asked               and the round waits for it
    -----------------------------  ---------------------  ------------------------------------
    answered in time, or is new    in every round         until it answers, or the time is up
    did not answer in time         when its last ask is   not at all, until it answers in time
                                   over, 2 s at most

The time of a round is the interval between rounds: what a view that comes later says is older than
what the next one will. So rounds never overlap, and a replica that hangs makes one round late and
then costs precision alone. Its ask goes on behind the rounds, for a first connection may take
longer than an answer does; what it answers then counts for no round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_gateway.config.forms import peer_text
from twisted_gateway.core.peers import GateReport
from twisted_gateway.core.peerwire import PeerView, gate_key
from twisted_gateway.core.policy import Replicas
from twisted_gateway.web.background import in_background
from twisted_gateway.web.peer_addresses import Address, PeerAddresses
from twisted_gateway.web.peer_client import NoView

INTERVAL_SECONDS = 0.25
"""The least time between the beginnings of two rounds."""

SECONDS_PER_PEER = 0.02
"""The same for each replica, so that many do not spend their time on each other."""

IDLE_SECONDS = 1.0
"""The time between rounds while nobody here waits for, or is in, an engine."""

ASK_SECONDS = 2.0
"""How long one ask may go on behind the rounds."""

COMPLAINT_SECONDS = 60.0
"""How long the log does not say again of the same replica that it fails."""


class Exchanging(Protocol):
    """A gate whose replicas ask each other."""

    def report(self) -> GateReport:
        """What this replica holds."""

    def peers(self, views: Mapping[str, GateReport | None], *, current: bool) -> None:
        """A round has ended: what each other replica holds, None for one that did not answer."""


@dataclass(frozen=True, slots=True)
class ExchangingGate:
    """A gate, and where its replicas are.

    Attributes:
        addresses: those of its engines.
        replicas: as configured.
        gate: the gate's driver.
    """

    addresses: tuple[str, ...]
    replicas: Replicas
    gate: Exchanging

    @property
    def key(self) -> str:
        """Its name on the wire."""
        return gate_key(self.addresses)


@dataclass(slots=True, eq=False)
class _Peer:
    """An address that is asked.

    Attributes:
        instance: which process last answered there; "" before any did.
        in_time: whether rounds wait for it.
        asking: the ask that is under way.
        asked_at: when that began, in seconds.
        complained: whether the log says last that it fails.
        quiet_until: when the log may say so again, in seconds.
    """

    address: Address
    instance: str = ""
    in_time: bool = True
    asking: Deferred[Any] | None = None
    asked_at: float = 0.0
    complained: bool = False
    quiet_until: float = 0.0

    def __str__(self) -> str:
        return peer_text(self.address)

    def give_up(self) -> None:
        """Take no interest in the ask that is under way."""
        asking, self.asking = self.asking, None
        if asking is not None:
            asking.cancel()


class Rounds:
    """Asks everyone, over and over, and tells the gates.

    Args:
        clock: for the timers.
        ask: asks the replica at an address; fails with NoView.
        addresses: where replicas are.
        gates: gives the gates that there are.
        instance: the name of this process, by which it knows its own answer.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        ask: Callable[[Address], Deferred[PeerView]],
        addresses: PeerAddresses,
        gates: Callable[[], Sequence[ExchangingGate]],
        instance: str,
    ) -> None:
        """Take what the class documents; nobody is asked before `start`."""
        self._clock = clock
        self._ask = ask
        self._addresses = addresses
        self._gates = gates
        self._instance = instance
        self._peers: dict[Address, _Peer] = {}
        self._places: dict[tuple[str, Replicas], tuple[Address, ...] | None] = {}
        self._views: dict[Address, PeerView] = {}
        self._awaited: set[_Peer] = set()
        self._started_at = 0.0
        self._under_way = False
        # Of the round that is under way its end at the latest, else the beginning of the next.
        self._timer: IDelayedCall | None = None

    def start(self) -> None:
        """Begin a round in the reactor's next turn; one that is under way is given up."""
        self.stop()
        self._set_timer(0, self._begin)

    def stop(self) -> None:
        """Ask no more, and listen to nobody who has been asked."""
        self._under_way = False
        self._stop_timer()
        for peer in self._peers.values():
            peer.give_up()

    @property
    def interval_seconds(self) -> float:
        """The time between the beginnings of two rounds."""
        return max(INTERVAL_SECONDS, SECONDS_PER_PEER * len(self._peers))

    # A round

    def _next(self) -> None:
        since_seconds = self._clock.seconds() - self._started_at
        if since_seconds < IDLE_SECONDS and self._is_idle():
            self._set_timer(self.interval_seconds, self._next)
        else:
            self._begin()

    def _begin(self) -> None:
        self._places = {
            (one.key, one.replicas): self._addresses.of(one.replicas) for one in self._gates()
        }
        self._know({address for found in self._places.values() for address in found or ()})
        self._views = {}
        self._awaited = {peer for peer in self._peers.values() if peer.in_time}
        self._started_at = self._clock.seconds()
        self._under_way = True
        self._set_timer(self.interval_seconds, self._time_is_up)
        for peer in list(self._peers.values()):
            self._ask_once(peer)
        self._look()

    def _know(self, addresses: set[Address]) -> None:
        for gone in self._peers.keys() - addresses:
            self._peers.pop(gone).give_up()
        for new in sorted(addresses - self._peers.keys()):
            self._peers[new] = _Peer(new)

    def _ask_once(self, peer: _Peer) -> None:
        if peer.asking is not None:
            if self._started_at < peer.asked_at + ASK_SECONDS:
                return
            peer.give_up()
        peer.asked_at = self._started_at
        peer.asking = asking = self._ask(peer.address)
        in_background(asking.addBoth(self._settled, peer, asking), self._log, "asking a replica")

    def _settled(self, result: PeerView | Failure, peer: _Peer, asking: Deferred[Any]) -> None:
        if peer.asking is not asking:
            return
        peer.asking = None
        if isinstance(result, PeerView):
            self._answered(peer, result)
        else:
            self._failed(peer, result)
        self._awaited.discard(peer)
        self._look()

    def _answered(self, peer: _Peer, view: PeerView) -> None:
        peer.instance = view.instance
        peer.in_time = self._clock.seconds() < peer.asked_at + self.interval_seconds
        if peer.asked_at == self._started_at and self._under_way:
            self._views[peer.address] = view
        if peer.complained and peer.in_time:
            peer.complained = False
            self._log.info("the replica at {peer} answers again", peer=peer)

    def _failed(self, peer: _Peer, failure: Failure) -> None:
        peer.in_time = False
        if failure.check(NoView):
            self._complain(peer, failure.getErrorMessage())
        elif not failure.check(CancelledError):
            self._log.failure("asking a replica failed", failure=failure)

    def _time_is_up(self) -> None:
        self._timer = None
        for peer in self._awaited:
            peer.in_time = False
            self._complain(peer, f"no answer within {self.interval_seconds:g} s")
        self._awaited = set()
        self._look()

    def _complain(self, peer: _Peer, why: str) -> None:
        now = self._clock.seconds()
        if not peer.complained and now >= peer.quiet_until:
            peer.complained = True
            peer.quiet_until = now + COMPLAINT_SECONDS
            self._log.warn(
                "the replica at {peer} does not say what it holds: {why}", peer=peer, why=why
            )

    # Its end

    def _look(self) -> None:
        """See whether the round is over, and tell the gates."""
        if self._awaited or not self._under_way:
            return
        self._under_way = False
        took_seconds = self._clock.seconds() - self._started_at
        interval_seconds = self.interval_seconds
        # Before anybody is told: whoever is may stop all this.
        self._set_timer(max(0.0, interval_seconds - took_seconds), self._next)
        places, views = self._places, self._views
        # Those that a reload has retired are told first: no newcomers come to them, so none of
        # their requests waits for the newcomers of another, nor any of these for long.
        for one in reversed(self._gates()):
            # A reload may have brought others, or changed where their replicas are.
            if (one.key, one.replicas) in places:
                addresses = places[one.key, one.replicas]
                current = addresses is not None and took_seconds < interval_seconds
                self._tell(one, self._others(one.key, addresses or (), views), current)

    def _others(
        self, key: str, addresses: Sequence[Address], views: Mapping[Address, PeerView]
    ) -> dict[str, GateReport | None]:
        """What every other replica holds, each once, however many addresses it has."""
        others: dict[str, GateReport | None] = {}
        names: dict[str, str] = {}
        for address in addresses:
            peer = self._peers.get(address)
            if peer is None or peer.instance == self._instance:
                continue
            name = str(peer)
            if peer.instance:
                name = names.setdefault(peer.instance, name)
            view = views.get(address)
            if others.get(name) is None:
                others[name] = None if view is None else view.of(key)
        return others

    def _tell(
        self, one: ExchangingGate, views: Mapping[str, GateReport | None], current: bool
    ) -> None:
        try:
            one.gate.peers(views, current=current)
        except Exception:  # noqa: BLE001 -- the other gates are to be told, and the next round come
            self._log.failure("telling a gate of its peers failed")

    def _is_idle(self) -> bool:
        try:
            reports = [one.gate.report() for one in self._gates()]
        except Exception:  # noqa: BLE001 -- the next round is to come, whatever is wrong here
            self._log.failure("asking a gate what it holds failed")
            return False
        return not any(report.head is not None or any(report.in_flight) for report in reports)

    # The timer

    def _set_timer(self, seconds: float, then: Callable[[], None]) -> None:
        self._stop_timer()
        self._timer = self._clock.callLater(seconds, then)

    def _stop_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()
